"""Score predicted maps that are files: classes of pixels, segments or depths."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.arguments import check, is_number
from detaug.arrays import Ints
from detaug.errors import InputError
from detaug.evaluation.depth import DepthErrors, DepthMetrics
from detaug.evaluation.map_predictions import at_points
from detaug.evaluation.panoptic import PanopticCounts, PanopticMetrics, PredictedSegments
from detaug.evaluation.pycoco import score_text
from detaug.evaluation.semantic import SemanticCounts, SemanticMetrics
from detaug.files.addresses import check_on_disk
from detaug.files.atomic import write_json
from detaug.files.formats import is_panoptic, names_segments
from detaug.files.paths import PathLike
from detaug.files.sample import Sample
from detaug.files.text import read_json
from detaug.findings.finding import counted, short_name
from detaug.machine.cores import available_cores
from detaug.machine.parallel import Progress, map_ahead, with_progress
from detaug.maps.files import FileMaps
from detaug.maps.kinds import IDS, ClassMap, DepthMap, MapError, MapKind, PanopticMap, Pixels
from detaug.maps.panoptic import PanopticFiles
from detaug.maps.panoptic_json import read_panoptic
from detaug.maps.segments import NO_SEGMENTS
from detaug.maps.values import MapValues
from detaug.outputs.guards import output_files
from detaug.scoring.reports import without_nan
from detaug.sources.coco_reader import CocoReader
from detaug.sources.scanned_folder import scan_images

Kind = Literal["semantic", "panoptic", "depth"]
Metrics = SemanticMetrics | PanopticMetrics | DepthMetrics

LEAST_DEPTH = 1e-3
"""Meters, the default of `DepthEvaluator`."""


@dataclass(frozen=True, eq=False)
class MapEvaluation:
    """The scores of predicted maps."""

    kind: Kind
    predictions: str
    """The folder, or the JSON file of panoptic ones."""
    metrics: Metrics
    counts: Mapping[str, int]
    """Of `images`, with a map and a prediction; of images `without_map`, which are not scored; of classes, of pixels
    predicted as `no_class`, which are wrong; of depths, of images `without_depth`, which are not in the means."""
    inputs: tuple[Path, ...]
    """Files and folders that were read."""

    def rows(self) -> list[tuple[str, list[float]]]:
        """Return the name of each class and its numbers: IoU, or PQ, SQ and RQ; NaN of one that does not occur."""
        if isinstance(self.metrics, SemanticMetrics):
            return [(name, [value]) for name, value in self.metrics.iou.items()]
        if isinstance(self.metrics, PanopticMetrics):
            every = self.metrics.PQ_by_class, self.metrics.SQ_by_class, self.metrics.RQ_by_class
            return [(name, [(values or {})[name] for values in every]) for name in every[0] or {}]
        return []

    def __str__(self) -> str:
        counts = self.counts
        texts = [f"{counted(counts['images'], 'image')} scored"]
        texts += [f"{counts[name]:,} {text}" for name, text in _COUNTED.items() if counts.get(name)]
        lines, rows = [str(self.metrics), ", ".join(texts)], [(short_name(name), own) for name, own in self.rows()]
        if isinstance(self.metrics, PanopticMetrics):
            for part in ("stuff", "things"):
                own = [getattr(self.metrics, f"{name}_{part}") for name in ("PQ", "SQ", "RQ")]
                rows.insert(0, (f"all {part}", own))
        if rows:
            width = max(map(len, ("class", *(name for name, _ in rows))))
            names = ["IoU"] if self.kind == "semantic" else ["PQ", "SQ", "RQ"]
            lines += ["", f"{'class':{width}}" + "".join(f"{name:>8}" for name in names)]
            lines += [f"{name:{width}}" + "".join(f"{score_text(value):>8}" for value in own) for name, own in rows]
        return "\n".join(lines)

    def write_report(self, path: PathLike) -> None:
        """Write all numbers as JSON, whole or not at all; null for those of what does not occur."""
        (target,) = output_files({"report": path}, *self.inputs).values()
        content = {"kind": self.kind, "predictions": self.predictions, **self.counts}
        write_json(target, content | {"metrics": without_nan(asdict(self.metrics))})


_COUNTED = {
    "without_map": "without a map",
    "without_depth": "without a known depth",
    "no_class": "pixels predicted as no class, which is wrong",
}
"""What is printed of `MapEvaluation.counts`, where there are some."""


class _Images(NamedTuple):
    """The images of a dataset."""

    folder: Path
    file_names: Sequence[str]
    sizes: Ints


def evaluate_maps(
    truth: MapKind,
    predictions: PathLike,
    images: PathLike,
    annotations: PathLike | None = None,
    *,
    max_depth: float | None = None,
    progress: Progress | None = None,
) -> MapEvaluation:
    """Score maps that a model predicted, files with the names of the images, against the maps of a dataset.

    Args:
        truth: the maps of the dataset, as `CocoReader(maps=)` takes them. Images without one are counted and not
            scored, whatever its `missing` is.
        predictions: a folder of files as those of `ClassMap` or `DepthMap`, in the image's size or a smaller or larger
            one; or the JSON file of panoptic maps, whose folder is beside it and has its name without .json. It may be
            without `categories`.
        images: the folder of the images.
        annotations: a COCO JSON file that lists the images, or a panoptic one, which is then that of `truth`, too.
            None: all images of the folder.
        max_depth: as of `DepthEvaluator`, meters.
        progress: called with the number of images that are done, and of all.

    Predictions of classes are the numbers of classes that the maps have after their `table`; files in RGB are read by
    the table, if it is one of colors. The number that the maps ignore may be predicted: it counts as wrong, as in
    `intersect_and_union` of https://github.com/open-mmlab/mmsegmentation/blob/main/mmseg/evaluation/metrics/iou_metric.py.
    Predictions of depths are meters where they are floats; whole numbers are multiplied by the `scale` of `truth`.
    Predictions of another size are moved to the pixels of the maps: classes and segments of the nearest pixel, depths
    interpolated.

    Returns:
        The metrics of `SemanticEvaluator`, `PanopticEvaluator` or `DepthEvaluator`, and what was not scored.

    Raises:
        InputError: for an image with a map and without a prediction, for a file that cannot be read as a map, and
            where there is nothing to score.
    """
    check("truth", truth, isinstance(truth, MapKind), "a da.ClassMap, da.PanopticMap or da.DepthMap")
    if max_depth is not None:
        good = isinstance(truth, DepthMap) and is_number(max_depth) and max_depth > LEAST_DEPTH
        check("max_depth", max_depth, good, f"None, or of a DepthMap a number above {LEAST_DEPTH}")
    check_on_disk(predictions)
    files, own_json = _images_of(images, annotations)
    if isinstance(truth, PanopticMap) and truth.annotations is None:
        truth = replace(truth, annotations=own_json)
    score: Callable[..., _Scored] = _score_segments
    if isinstance(truth, ClassMap):
        score = _score_classes
    elif isinstance(truth, DepthMap):
        score = partial(_score_depths, most=inf if max_depth is None else max_depth)
    kind, metrics, pairs, counts = score(truth, Path(predictions), files, progress)
    scored = len(pairs.scored)
    counts = {"images": scored, "without_map": len(files.file_names) - scored, **counts}
    inputs = [predictions, images, annotations, *pairs.truth.inputs, *pairs.predicted.inputs]
    paths = tuple(Path(path) for path in inputs if path is not None)
    return MapEvaluation(kind, os.fspath(predictions), metrics, counts, paths)


def _images_of(images: PathLike, annotations: PathLike | None) -> tuple[_Images, Path | None]:
    """Return the images that a JSON file lists, or all of a folder; and the file, if it is a panoptic one."""
    if annotations is not None and not _is_panoptic(Path(annotations)):
        reader = CocoReader(images, annotations)
        return _Images(reader.folder, reader.file_names, reader.sizes), None
    check_on_disk(images)
    folder = Path(images).absolute()
    if annotations is not None:
        path = Path(annotations).absolute()
        return _images_of_panoptic(folder, path), path
    files, sizes, faults = scan_images(Path(images), cache=False)
    if faults:
        index, why = min(faults.items())
        raise InputError(f"{folder / files.names[index]} {why}; replace the file, or remove it")
    return _Images(folder, files.names, sizes), None


def _is_panoptic(path: Path) -> bool:
    try:  # a COCO JSON file may have hundreds of MB, and is parsed only if it has the key
        return names_segments(path) and is_panoptic(Sample(path.name, b"", read_json(path)))
    except (OSError, InputError):
        return False  # `CocoReader` says what is wrong


def _images_of_panoptic(folder: Path, path: Path) -> _Images:
    rows = read_panoptic(path).images
    keys = {"file_name": str, "height": int, "width": int}
    for index, row in enumerate(rows):
        if not isinstance(row, dict) or any(type(row.get(key)) is not kind for key, kind in keys.items()):
            raise InputError(f"{path}: images[{index}] must be an object with file_name, height and width")
    if not rows:
        raise InputError(f"{path} has no images; it must list those that are scored")
    sizes: Ints = np.array([(row["height"], row["width"]) for row in rows], np.int64)
    return _Images(folder, [row["file_name"] for row in rows], sizes)


class _Pairs:
    """The maps of images, and their predictions."""

    def __init__(self, images: _Images, truth: FileMaps, predicted: FileMaps) -> None:
        """Raises InputError for an image with a map and without a prediction, and for maps that are not read."""
        self.truth, self.predicted = truth, predicted
        truth.refuse_none()
        for index in truth.lossy:
            raise InputError(truth.lossy_remedy(index))
        self.scored = [index for index in range(len(images.file_names)) if truth.path(index) is not None]
        if without := [index for index in self.scored if predicted.path(index) is None]:
            first = without[0]
            why = predicted.lossy_remedy(first) if first in predicted.lossy else predicted.sought(first)
            raise InputError(
                f"{predicted.folder}: {len(without):,} of {len(self.scored):,} images have no prediction there, the "
                f"first: {images.file_names[first]}; {why}; predict them too, or leave them out of the images"
            )

    def read(self, progress: Progress | None) -> Iterator[tuple[MapValues, MapValues, Path | None]]:
        """Yield the map, its prediction, and the prediction's file, of each image."""
        both = map_ahead(
            lambda index: (self.truth.read(index), self.predicted.read(index)), self.scored, available_cores()
        )
        for index, (true, predicted) in zip(with_progress(self.scored, progress), both, strict=True):
            yield true, predicted, self.predicted.path(index)


class _Scored(NamedTuple):
    kind: Kind
    metrics: Metrics
    pairs: _Pairs
    counts: Mapping[str, int]
    """Those of `MapEvaluation.counts` that only this kind has."""


def _array(own: MapValues) -> NDArray[Any]:
    return np.asarray(own.pixels().reshape(own.shape))


def _at_pixels(values: NDArray[Any], shape: tuple[int, int], *, nearest: bool) -> Tensor:
    """Return a predicted map at the centers of the pixels of the true one, of `shape`."""
    own = torch.from_numpy(values)
    if own.shape != shape:
        y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
        own = at_points(own[None], torch.from_numpy(np.stack([x, y], 2)), shape, nearest=nearest)[0]
    return own.long() if nearest else own.double()


def _check_folder(predictions: Path) -> None:
    if not predictions.is_dir():
        raise InputError(f"{predictions}: no such folder; it must hold the predictions, a file for each image")


def _nothing_to_score(truth: FileMaps, why: str) -> InputError:
    return InputError(f"{truth.folder}: nothing to score: {why}")


class _PredictedClasses(ClassMap):
    """Maps of classes that a model predicted, in the classes that those of the dataset have after their table."""

    @property
    def count(self) -> int:
        """Return the number of classes."""
        if self.classes is not None:
            return len(self.classes)
        table = self._numbers
        return IDS if table is None else 1 + max((own for own in table.values() if own != self.ignore), default=0)

    def values_of(self, pixels: Pixels, path: Path) -> NDArray[Any]:
        """Return (H, W) the classes of a file, of `dtype`. Raises MapError for one that has others."""
        values = pixels.values
        if self._has_colors and values.ndim == 3:
            return super().values_of(pixels, path)
        if self._has_colors and pixels.mode == "P":
            raise MapError(
                f"{path} has a palette, where the maps have colors: its indices or its colors may be the classes; save "
                "RGB, or indices without a palette"
            )
        if values.ndim != 2 or values.dtype.kind not in "uib":
            size = " x ".join(map(str, values.shape))
            raise MapError(
                f"{path} has {size} values of type {values.dtype}, where a prediction has the number of a class for "
                "each pixel; save height x width of them as uint8"
            )
        wrong = values[((values < 0) | (values >= self.count)) & (values != self.ignore)]
        if wrong.size:
            raise MapError(
                f"{path} has the value {wrong[0]}, where the maps have {self.count} classes, 0..{self.count - 1}; "
                f"predict these, or {self.ignore} for none"
            )
        return values.astype(np.uint8)


def _score_classes(truth: ClassMap, predictions: Path, images: _Images, progress: Progress | None) -> _Scored:
    _check_folder(predictions)
    kind = _PredictedClasses(predictions.absolute(), truth.ignore, truth.table, truth.classes)
    pairs = _Pairs(images, FileMaps(truth, "semantic", *images), FileMaps(kind, "predictions", *images))
    counts = SemanticCounts(kind.count, truth.classes)
    for true, predicted, _ in pairs.read(progress):
        classes = _at_pixels(_array(predicted), true.shape, nearest=True)
        counts.add(torch.from_numpy(_array(true)), classes, truth.ignore, "semantic")
    metrics = counts.metrics()
    if not metrics.pixels:
        raise _nothing_to_score(pairs.truth, f"all pixels have the value {truth.ignore}, which is ignored")
    if truth.classes is None:  # only numbers that occur
        metrics = replace(metrics, iou={name: value for name, value in metrics.iou.items() if value == value})
    return _Scored("semantic", metrics, pairs, {"no_class": counts.no_class})


def _score_segments(truth: PanopticMap, predictions: Path, images: _Images, progress: Progress | None) -> _Scored:
    if predictions.suffix.lower() != ".json" or not predictions.is_file():
        raise InputError(
            f"predictions must be the JSON file of panoptic maps, whose folder is beside it and has its name without "
            f".json, got {predictions}"
        )
    folder = predictions.absolute().with_suffix("")
    _check_folder(folder)
    own = PanopticFiles(truth, "panoptic", *images)
    kind = PanopticMap(folder, predictions.absolute())
    pairs = _Pairs(images, own, PanopticFiles(kind, "predictions", *images, classes=own.classes))
    counts = PanopticCounts(own.kind.class_names, own.kind.is_thing)
    for true, predicted, _ in pairs.read(progress):
        numbers = _at_pixels(_array(predicted), true.shape, nearest=True).numpy()
        labels = dict(enumerate((predicted.segments or NO_SEGMENTS).label[1:].tolist(), 1))
        counts.add(_array(true), true.segments or NO_SEGMENTS, PredictedSegments(numbers, labels))
    metrics = counts.metrics()
    if not metrics.segments:
        raise _nothing_to_score(own, "no map has a segment that is not a crowd")
    return _Scored("panoptic", metrics, pairs, {})


class _PredictedDepths(DepthMap):
    """Depths that a model predicted: whole numbers have the `scale` of the dataset's maps, floats are meters."""

    def values_of(self, pixels: Pixels, path: Path) -> NDArray[Any]:
        """Return (H, W) meters. Raises MapError for a file that cannot be a map of them."""
        is_float = pixels.values.dtype.kind == "f"
        return DepthMap(self.folder).values_of(pixels, path) if is_float else super().values_of(pixels, path)


def _score_depths(
    truth: DepthMap, predictions: Path, images: _Images, progress: Progress | None, *, most: float
) -> _Scored:
    _check_folder(predictions)
    kind = _PredictedDepths(predictions.absolute(), truth.scale, truth.invalid)
    pairs = _Pairs(images, FileMaps(truth, "depth", *images), FileMaps(kind, "predictions", *images))
    errors = DepthErrors(LEAST_DEPTH, most)
    for true, predicted, path in pairs.read(progress):
        depths, estimates = torch.from_numpy(_array(true)), _array(predicted)
        known = _at_pixels((estimates > 0).astype(np.float64), true.shape, nearest=False) > 1 - 1e-9
        if missing := int((errors.known(depths) & ~known).sum()):
            raise InputError(
                f"{path} has no depth, a number above 0, at {missing:,} pixels where the map has one; predict all"
            )
        errors.add(depths, _at_pixels(estimates, true.shape, nearest=False))
    scored = len(errors)
    if not scored:
        raise _nothing_to_score(pairs.truth, f"no map has a depth in {LEAST_DEPTH}..{most:g} m; give DepthMap(scale=)")
    return _Scored("depth", errors.metrics(), pairs, {"without_depth": len(pairs.scored) - scored})
