"""Score rotated boxes by DOTA's rule: Pascal VOC's AP with the IoU of quadrangles.

Source: `dota_evaluation_task1.py` of https://github.com/CAPTAIN-WHU/DOTA_devkit. Its AP is VOC2007's of 11 points,
which `compute(voc2007=True)` takes; an IoU must be above the threshold, where VOC's may be equal to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.boxes.polygons import area, cut, side_of_line, turn_of
from detaug.coco.annotations import AnnotationError, read_annotations
from detaug.errors import InputError
from detaug.evaluation.ground_truth import read_ground_truth
from detaug.evaluation.kind import DetectionKind
from detaug.evaluation.predictions import Columns, ImageDetections, Key
from detaug.evaluation.pycoco import metrics_text
from detaug.evaluation.voc_ap import average_precisions, match, mean_of_classes
from detaug.loading.batch import Batch
from detaug.sources.coco_shapes import corners_of

THRESHOLDS = np.arange(50, 100, 5) / 100

PAIRS = 1 << 16
"""Pairs of quadrangles whose IoU is computed at once: about 100 MB."""


@dataclass(frozen=True)
class RotatedMetrics:
    """The scores of a detector of rotated boxes, 0..1; -1 where there is no object to find.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json", rotated=True)
    >>> evaluator = da.CocoEvaluator(reader, kind="rotated")
    >>> for batch in da.Loader(reader, da.presets.evaluation((300, 300)), batch_size=8, train=False):
    ...     columns = zip(batch.corners, batch.labels, batch.counts)
    ...     found = [{"corners": c[:n], "labels": k[:n], "scores": torch.ones(n)} for c, k, n in columns]
    ...     evaluator.update(batch, found)
    >>> metrics = evaluator.compute()  # RotatedMetrics
    >>> print(metrics, metrics.AP50_by_class["fish"])
    AP 1.000  AP50 1.000  AP75 1.000 1.0
    """

    AP: float
    """The mean of the mAP at the IoU thresholds 0.50, 0.55, ..., 0.95."""
    AP50: float
    """The mAP: the mean over the classes that have objects to find."""
    AP75: float
    AP_by_class: dict[str, float]
    AP50_by_class: dict[str, float]
    images: int
    """The number of images evaluated."""
    repeated: int
    """The number of images that were updated again; they count once."""

    def __str__(self) -> str:
        return metrics_text(self, ("AP", "AP50", "AP75"))


def iou_of_quadrangles(one: Floats, other: Floats, *, among: Bools | None = None) -> Floats:
    """Return (D, G): the IoU of quadrangles (D, 4, 2) and (G, 4, 2), which may go round either way, or be concave.

    `among`: (D, G), the pairs that are wanted; the others get 0.
    """
    low, high = (limits[:, None] for limits in (one.min(1), one.max(1)))
    near = ((low < other.max(1)) & (high > other.min(1))).all(2)
    if among is not None:
        near &= among
    first, second = np.nonzero(near)
    result = np.zeros(near.shape)
    for start in range(0, len(first), PAIRS):
        a, b = first[start : start + PAIRS], second[start : start + PAIRS]
        result[a, b] = _iou_of_pairs(one, other, a, b)
    return result


def _iou_of_pairs(one: Floats, other: Floats, first: Ints, second: Ints) -> Floats:
    """Return (P,): the IoU of `one[first]` and `other[second]`.

    The second quadrangle is the sum of two triangles with a sign, those on both sides of a diagonal; of a concave one,
    they may overlap and have different signs. The first one is cut to each.
    """
    ones, others = one[first], other[second]
    middles = others.mean(1, keepdims=True)
    ones, others = ones - middles, others - middles  # precision, far from the origin
    areas = area(ones), area(others)
    shared = np.zeros(len(ones))
    for corners in ([0, 1, 2], [0, 2, 3]):
        triangles = others[:, corners]
        turn = turn_of(triangles)
        left = ones
        for side in range(3):
            start, end = triangles[:, side], triangles[:, (side + 1) % 3]
            left = cut(left, side_of_line(start[:, None], end[:, None], left) * turn[:, None])
        shared += turn * area(left)
    shared = np.minimum(abs(shared), np.minimum(*areas))
    return np.asarray(shared / np.maximum(areas[0] + areas[1] - shared, np.finfo(float).tiny))


class RotatedKind(DetectionKind[RotatedMetrics]):
    """Quadrangles, (4, 2) x, y."""

    key = Key("corners", ((4, 2),))
    merged_by_shape = True

    def __init__(self, path: Path) -> None:
        truth, data = read_ground_truth(path), read_annotations(path, outlines=True)
        assert data.outlines is not None, "they were asked for"
        self.truth = truth._replace(shapes=corners_of(data.boxes, data.outlines))
        empty = np.flatnonzero((area(self.truth.shapes) == 0) & ~truth.ignored)
        if len(empty):
            raise AnnotationError(f"{path}: {len(empty)} rotated boxes have no area, such as {truth.rows[empty[0]]}")

    def in_source(self, batch: Batch, columns: Columns) -> Iterator[Floats]:
        """Yield the corners of each image in source pixels."""
        for corners in batch.points_to_source([points.double() for points in columns.shapes]):
            yield corners.numpy()

    def iou(self, one: Floats, other: Floats) -> Floats:
        """Return (D, G): the IoU of quadrangles."""
        return iou_of_quadrangles(one, other)

    def area(self, shapes: Floats) -> Floats:
        """Return (D,): the areas of quadrangles."""
        return area(shapes)

    def result(self, shape: list[Any]) -> dict[str, Any]:
        """Return the corners, and the box around them, XYWH."""
        (x0, y0), (x1, y1) = np.min(shape, 0).tolist(), np.max(shape, 0).tolist()
        return {"bbox": [x0, y0, x1 - x0, y1 - y0], "corners": shape}

    def shapes(self, rows: Sequence[Mapping[str, Any]]) -> Floats:
        """Return the corners."""
        return np.array([row["corners"] for row in rows], np.float64).reshape(len(rows), 4, 2)

    def metrics(
        self, by_image: Mapping[int, ImageDetections], *, voc2007: bool, repeated: int, max_detections: int | None
    ) -> RotatedMetrics:
        """Return the metrics by DOTA's rule, which counts all detections."""
        if max_detections is not None:
            raise InputError("max_detections is for COCO's rule; DOTA's, for rotated boxes, counts all")
        matches = match(self.truth, [by_image.get(image_id) for image_id in self.truth.image_ids], iou_of_quadrangles)
        by_class = {
            overlap: average_precisions(self.truth, matches, np.nextafter(overlap, 1), eleven_points=voc2007)
            for overlap in THRESHOLDS.tolist()
        }
        means = {overlap: mean_of_classes(precisions) for overlap, precisions in by_class.items()}
        return RotatedMetrics(
            AP=float(np.mean([*means.values()])),
            AP50=means[0.5],
            AP75=means[0.75],
            AP_by_class={
                name: float(np.mean([values[name] for values in by_class.values()])) for name in by_class[0.5]
            },
            AP50_by_class=by_class[0.5],
            images=len(by_image),
            repeated=repeated,
        )
