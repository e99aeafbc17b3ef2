"""Score predicted maps that are files: classes of pixels, segments or depths."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.arguments import check
from detaug.arrays import Ints
from detaug.errors import InputError
from detaug.evaluation.depth import DepthErrors, DepthMetrics
from detaug.evaluation.map_predictions import at_points
from detaug.evaluation.panoptic import PanopticCounts, PanopticMetrics, PredictedSegments
from detaug.evaluation.semantic import SemanticCounts, SemanticMetrics
from detaug.files.atomic import write_json
from detaug.files.formats import is_panoptic
from detaug.files.paths import PathLike
from detaug.files.sample import Sample
from detaug.files.text import read_json
from detaug.findings.finding import short_name
from detaug.machine.parallel import Progress
from detaug.maps.files import FileMaps
from detaug.maps.kinds import ClassMap, DepthMap, MapKind, PanopticMap, Table
from detaug.maps.panoptic import PanopticFiles
from detaug.maps.panoptic_json import read_panoptic
from detaug.maps.segments import NO_SEGMENTS
from detaug.maps.values import MapValues
from detaug.outputs.guards import output_files
from detaug.sources.coco_reader import CocoReader
from detaug.sources.scanned_folder import scan_images

Kind = Literal["semantic", "panoptic", "depth"]
Metrics = SemanticMetrics | PanopticMetrics | DepthMetrics


@dataclass(frozen=True, eq=False)
class MapEvaluation:
    """The scores of predicted maps."""

    kind: Kind
    predictions: str
    """The folder, or the JSON file of panoptic ones."""
    metrics: Metrics
    images: int
    """With a map and a prediction."""
    without_map: int
    """Images that are not scored, since they have no map."""
    inputs: tuple[Path, ...]
    """What was read."""

    def rows(self) -> list[tuple[str, list[float]]]:
        """Return the name of each class and its numbers: IoU, or PQ, SQ and RQ."""
        if isinstance(self.metrics, SemanticMetrics):
            return [(name, [value]) for name, value in self.metrics.iou.items()]
        if isinstance(self.metrics, PanopticMetrics):
            every = self.metrics.PQ_by_class, self.metrics.SQ_by_class, self.metrics.RQ_by_class
            return [(name, [(values or {})[name] for values in every]) for name in every[0] or {}]
        return []

    def __str__(self) -> str:
        lines, rows = [str(self.metrics)], [(short_name(name), values) for name, values in self.rows()]
        lines.append(f"{self.images:,} images" + f", {self.without_map:,} without a map" * bool(self.without_map))
        if isinstance(self.metrics, PanopticMetrics):
            for part in ("things", "stuff"):
                rows.insert(
                    0, (f"all {part}", [getattr(self.metrics, f"{name}_{part}") for name in ("PQ", "SQ", "RQ")])
                )
        if rows:
            width = max(map(len, ("class", *(name for name, _ in rows))))
            names = ["IoU"] if self.kind == "semantic" else ["PQ", "SQ", "RQ"]
            lines += ["", f"{'class':{width}}" + "".join(f"{name:>8}" for name in names)]
            lines += [f"{name:{width}}" + "".join(f"{value:8.3f}" for value in values) for name, values in rows]
        return "\n".join(lines)

    def write_report(self, path: PathLike) -> None:
        """Write all numbers as JSON, whole or not at all; null for those of what does not occur."""
        (target,) = output_files({"report": path}, *self.inputs).values()
        content = {"kind": self.kind, "predictions": self.predictions, "images": self.images}
        content |= {"without_map": self.without_map, "metrics": _without_nan(asdict(self.metrics))}
        write_json(target, content)


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nan(each) for name, each in value.items()}
    return None if value != value else value


class _Images(NamedTuple):
    """The images of a dataset."""

    folder: Path
    file_names: Sequence[str]
    sizes: Ints


def evaluate_maps(
    kind: Kind,
    predictions: PathLike,
    images: PathLike,
    annotations: PathLike | None = None,
    *,
    maps: PathLike | None = None,
    classes: Sequence[str] | None = None,
    ignore: int = 255,
    table: Table | None = None,
    suffix: str = "",
    scale: float | None = None,
    max_depth: float | None = None,
    progress: Progress | None = None,
) -> MapEvaluation:
    """Score maps that a model predicted, files with the names of the images, against the maps of a dataset.

    `predictions`: a folder of maps of classes, or of depths; or the JSON file of panoptic maps, whose folder is beside
    it and has its name without .json, or this folder. `images`: the folder of the images, `annotations`: a COCO JSON
    file that lists them, or None for all of the folder; the panoptic JSON file of the ground truth lists them, too.
    `maps`: the folder of the ground truth. `classes`, `ignore`, `table`, `suffix`: as of `ClassMap`, for the ground
    truth; predictions have numbers of classes. `scale`: as of `DepthMap`, for both. `max_depth`: as of
    `DepthEvaluator`. Images without a map are not scored.

    Raises InputError for an image without a prediction, and for maps that cannot be read.
    """
    check("kind", kind, kind in get_args(Kind), "'semantic', 'panoptic' or 'depth'")
    score: Any = {"semantic": _score_classes, "panoptic": _score_segments, "depth": _score_depths}[kind]
    options: dict[str, Any] = {"classes": classes, "ignore": ignore, "table": table, "suffix": suffix}
    options |= {"scale": scale, "max_depth": max_depth, "annotations": annotations}
    found = _images_of(images, annotations)
    metrics, pairs = score(found, maps, Path(predictions), options, progress)
    inputs = [Path(each) for each in (predictions, images, annotations, maps) if each is not None]
    counts = len(pairs.scored), len(found.file_names) - len(pairs.scored)
    return MapEvaluation(kind, os.fspath(predictions), metrics, *counts, tuple(inputs))


def _images_of(images: PathLike, annotations: PathLike | None) -> _Images:
    """Return the images that a JSON file lists, or all of a folder."""
    folder = Path(images).absolute()
    if annotations is not None and not _is_panoptic(Path(annotations)):
        reader = CocoReader(images, annotations)
        return _Images(reader.folder, reader.file_names, reader.sizes)
    if annotations is not None:
        return _images_of_panoptic(folder, Path(annotations))
    files, sizes, faults = scan_images(Path(images), cache=False)
    if faults:
        index, why = min(faults.items())
        raise InputError(f"{folder / files.names[index]} {why}; replace the file, or remove it")
    return _Images(folder, files.names, sizes)


def _is_panoptic(path: Path) -> bool:
    try:
        return is_panoptic(Sample(path.name, b"", read_json(path)))
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

    def __init__(self, names: Sequence[str], truth: FileMaps, predicted: FileMaps, progress: Progress | None) -> None:
        """`names`: of the images. Raises InputError for an image with a map and without a prediction."""
        self.truth, self.predicted, self._progress = truth, predicted, progress
        self.scored = [index for index in range(len(names)) if truth.path(index) is not None]
        without = [index for index in self.scored if predicted.path(index) is None]
        if without:
            first = names[without[0]]
            raise InputError(
                f"{predicted.folder}: {len(without):,} of {len(self.scored):,} images have no prediction there, the "
                f"first: {first}; predict them too, or leave them out of the images"
            )

    def __iter__(self) -> Any:
        """Yield the map, its prediction, and the prediction's file, of each image."""
        for done, index in enumerate(self.scored, 1):
            yield self.truth.read(index), self.predicted.read(index), self.predicted.path(index)
            if self._progress:
                self._progress(done, len(self.scored))


def _array(own: MapValues) -> NDArray[Any]:
    return np.asarray(own.pixels().reshape(own.shape))


def _at_pixels(own: MapValues, shape: tuple[int, int], *, nearest: bool) -> Tensor:
    """Return a predicted map at the centers of the pixels of the true one, of `shape`."""
    values = torch.from_numpy(_array(own))
    if own.shape == shape:
        return values.long() if nearest else values.double()
    y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
    found = at_points(values[None], torch.from_numpy(np.stack([x, y], 2)), shape, nearest=nearest)[0]
    return found.long() if nearest else found


def _files(kind: MapKind, name: str, images: _Images) -> FileMaps:
    return FileMaps(kind, name, images.folder, images.file_names, images.sizes)


def _needed(maps: PathLike | None) -> PathLike:
    if maps is None:
        raise InputError("maps must be the folder of the ground truth, got None")
    return maps


def _score_classes(
    images: _Images, maps: PathLike | None, predictions: Path, options: dict[str, Any], progress: Progress | None
) -> tuple[SemanticMetrics, _Pairs]:
    classes, ignore = options["classes"], options["ignore"]
    kind = ClassMap(_needed(maps), ignore, options["table"], classes, options["suffix"], "ignore")
    found = ClassMap(predictions, ignore, classes=classes, missing="ignore")
    pairs = _Pairs(images.file_names, _files(kind, "semantic", images), _files(found, "predictions", images), progress)
    counts = SemanticCounts(256 if classes is None else len(classes), classes)
    for true, predicted, _ in pairs:
        counts.add(torch.from_numpy(_array(true)), _at_pixels(predicted, true.shape, nearest=True), ignore, "semantic")
    return counts.metrics(), pairs


def _score_segments(
    images: _Images, maps: PathLike | None, predictions: Path, options: dict[str, Any], progress: Progress | None
) -> tuple[PanopticMetrics, _Pairs]:
    annotations = options["annotations"]
    own_json = None if annotations is None or not _is_panoptic(Path(annotations)) else Path(annotations)
    if maps is None and own_json is not None:
        maps = own_json.absolute().with_suffix("")
    kind = PanopticMap(_needed(maps), own_json, options["suffix"], "ignore")
    truth = PanopticFiles(kind, "panoptic", *images)
    is_json = predictions.suffix.lower() == ".json"
    folder = predictions.absolute().with_suffix("") if is_json else predictions
    found = PanopticMap(folder, predictions.absolute() if is_json else None, missing="ignore")
    pairs = _Pairs(
        images.file_names, truth, PanopticFiles(found, "predictions", *images, classes=truth.classes), progress
    )
    counts = PanopticCounts(truth.kind.class_names, truth.kind.is_thing)
    for true, predicted, _ in pairs:
        numbers = _at_pixels(predicted, true.shape, nearest=True).numpy()
        labels = dict(enumerate((predicted.segments or NO_SEGMENTS).label[1:].tolist(), 1))
        counts.add(_array(true), true.segments or NO_SEGMENTS, PredictedSegments(numbers, labels))
    return counts.metrics(), pairs


def _score_depths(
    images: _Images, maps: PathLike | None, predictions: Path, options: dict[str, Any], progress: Progress | None
) -> tuple[DepthMetrics, _Pairs]:
    kind = DepthMap(_needed(maps), options["scale"], suffix=options["suffix"], missing="ignore")
    found = DepthMap(predictions, options["scale"], missing="ignore")
    pairs = _Pairs(images.file_names, _files(kind, "depth", images), _files(found, "predictions", images), progress)
    errors = DepthErrors(1e-3, inf if options["max_depth"] is None else options["max_depth"])
    for true, predicted, path in pairs:
        depths = torch.from_numpy(_array(true))
        own = _at_pixels(predicted, true.shape, nearest=False)
        if missing := int((errors.known(depths) & (own <= 0)).sum()):
            raise InputError(
                f"{path} has no depth, a number above 0, at {missing:,} pixels where the map has one; predict all"
            )
        errors.add(depths, own)
    return errors.metrics(), pairs
