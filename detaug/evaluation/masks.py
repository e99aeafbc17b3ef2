"""Score masks by COCO's rule, the IoU of their pixels."""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.arrays import Floats, Ints, start_offsets
from detaug.coco.annotations import read_annotations
from detaug.coco.outlines import (
    decode_counts,
    encode_counts,
    encode_many_counts,
    ends_of_part,
    read_runs,
)
from detaug.coco.rings import mask_of_runs
from detaug.errors import InputError
from detaug.evaluation.ground_truth import own_area, read_ground_truth
from detaug.evaluation.kind import DetectionKind
from detaug.evaluation.predictions import Columns, ImageDetections, Key
from detaug.evaluation.pycoco import NAMES, CocoMetrics, coco_scores
from detaug.loading.batch import Batch


@dataclass(frozen=True)
class MaskMetrics(CocoMetrics):
    """The scores of a detector of masks, 0..1, by the IoU of masks; -1 where there is no object to find.

    >>> reader = da.CocoReader("demo/people", "demo/people.json", masks=True)
    >>> evaluator = da.CocoEvaluator(reader, kind="segm")
    >>> for batch in da.Loader(reader, da.presets.evaluation(480), batch_size=4, train=False):
    ...     found = [{**each, "scores": torch.ones(len(each["labels"]))} for each in batch.targets(masks=True)]
    ...     evaluator.update(batch, found)  # your model's
    >>> metrics = evaluator.compute()  # MaskMetrics
    >>> print(f"{metrics.AP:.3f} {metrics.AP50_by_class['person']:.3f}")
    1.000 1.000
    """

    AP_by_class: dict[str, float]
    """The mean over the IoU thresholds, of each class."""
    AP50_by_class: dict[str, float]
    images: int
    """The number of images evaluated."""
    repeated: int
    """The number of images that were updated again; they count once."""


class MaskKind(DetectionKind[MaskMetrics]):
    """Masks in source pixels, as RLE: {"size": [height, width], "counts": text}."""

    key = Key("masks", (("H", "W"), (1, "H", "W")), is_large=True)

    def __init__(self, path: Path) -> None:
        data = read_annotations(path, outlines=True)  # raises AnnotationError for wrong ones
        sizes = dict(zip(data.image_ids.tolist(), data.sizes.tolist(), strict=True))
        self.truth = read_ground_truth(path, partial(_row_of, sizes=sizes))
        self.sizes: dict[int, list[int]] = sizes
        """(height, width) of the images that detections are in, by id."""

    def in_source(self, batch: Batch, columns: Columns) -> Iterator[NDArray[Any]]:
        """Yield the RLE of the masks of each image in source pixels."""
        sizes = batch.source_size.tolist()
        for size, parts in zip(sizes, batch.masks_to_source_in_parts(columns.shapes), strict=True):
            counts = [text for part in parts for text in run_lengths(part)]
            yield np.array([{"size": size, "counts": text} for text in counts], object)

    def placed(self, shapes: NDArray[Any], window: Ints, size: Ints, image_size: Sequence[int]) -> NDArray[Any]:
        """Return RLE of masks in a tile as those of masks in its image."""
        left, top, width, height = window.tolist()
        rows, columns = (
            ((np.arange(side) + 0.5) * of_tile / side).astype(np.int64)
            for side, of_tile in zip((height, width), size.tolist(), strict=True)
        )
        moved = np.empty(len(shapes), object)
        for index, shape in enumerate(shapes.tolist()):
            mask = mask_of_runs(np.cumsum(decode_counts(shape["counts"])), *shape["size"])
            if (height, width) != tuple(size.tolist()):
                mask = mask[rows[:, None], columns]
            ends = ends_of_part(mask, (left, top), (int(image_size[0]), int(image_size[1])))
            moved[index] = {"size": [*image_size], "counts": encode_counts(np.diff(ends, prepend=0))}
        return moved

    def boxes_around(self, shapes: NDArray[Any]) -> Floats:
        """Return (D, 4) XYXY, the boxes around masks."""
        boxes = np.array([_pycocotools_mask().toBbox(shape) for shape in shapes.tolist()]).reshape(-1, 4)
        return np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)

    def result(self, shape: Any) -> dict[str, Any]:
        """Return the RLE."""
        return {"segmentation": shape}

    def shapes(self, rows: Sequence[Mapping[str, Any]]) -> NDArray[Any]:
        """Return the RLE, as compressed texts."""
        rle = []
        for row in rows:
            if not isinstance(row["segmentation"], dict):
                raise ValueError('segmentation must be RLE, {"size": [height, width], "counts": ...}')
            size, counts = self.sizes[row["image_id"]], row["segmentation"]["counts"]
            ends, fault = read_runs(row["segmentation"], *size)
            if fault:
                raise ValueError(fault)
            text = counts if isinstance(counts, str) else encode_counts(np.diff(ends, prepend=0))
            rle.append({"size": size, "counts": text})
        return np.array(rle, object)

    def metrics(
        self, by_image: Mapping[int, ImageDetections], *, voc2007: bool, repeated: int, max_detections: int | None
    ) -> MaskMetrics:
        """Return pycocotools' metrics."""
        if voc2007:
            raise InputError("voc2007 is for boxes and rotated boxes, not for masks")
        area = _pycocotools_mask().area  # of one each: with NumPy 2 it raises an OverflowError for more than 255
        detections = [{**row, "area": float(area(row["segmentation"]))} for row in self.rows(by_image)]
        scores = coco_scores(self.truth, detections, by_image, "segm", max_detections)
        return MaskMetrics(
            **dict(zip(NAMES, scores.stats, strict=True)),
            AP_by_class=scores.AP_by_class,
            AP50_by_class=scores.AP50_by_class,
            images=len(by_image),
            repeated=repeated,
        )


def run_lengths(masks: Tensor) -> list[str]:
    """Return the RLE of masks (K, H, W) bool as COCO's compressed texts. Only the ends of runs are copied."""
    flat = masks.transpose(1, 2).flatten(1)  # down the columns
    starts = flat.clone()
    starts[:, 1:] ^= flat[:, :-1]
    number, place = torch.nonzero(starts, as_tuple=False).cpu().numpy().T
    first = start_offsets(np.bincount(number, minlength=len(masks)) + 1)
    first = np.append(first, len(number) + len(masks))
    ends = np.insert(place, np.searchsorted(number, np.arange(len(masks)), side="right"), flat.shape[1])
    before = np.append(0, ends[:-1])
    before[first[:-1]] = 0
    return encode_many_counts(ends - before, first)


def _row_of(entry: dict[str, Any], sizes: Mapping[int, list[int]]) -> dict[str, Any]:
    """Return what pycocotools needs of an entry of the JSON file: its mask as RLE, and their area if it has none.

    As in training, an object without an outline has the mask of its `corners`, or of its box.
    """
    mask, size, outline = _pycocotools_mask(), sizes[entry["image_id"]], entry.get("segmentation")
    if isinstance(outline, dict):
        runs = mask.frPyObjects(outline, *size) if isinstance(outline["counts"], list) else outline
    else:
        rings = [ring for ring in outline or [] if len(ring) >= 6]
        x, y, width, height = entry["bbox"]
        box = [x, y, x + width, y, x + width, y + height, x, y + height]
        rings = rings or [np.ravel(entry.get("corners") or box).tolist()]
        runs = mask.merge(mask.frPyObjects(rings, *size))
    area = own_area(entry)
    return {"segmentation": runs, "area": float(mask.area(runs)) if area is None else area}


def _pycocotools_mask() -> Any:
    return importlib.import_module("pycocotools.mask")
