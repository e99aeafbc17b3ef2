"""`PanopticEvaluator`: score segments, in the pixels of the maps, as they are in the files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import nan
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from detaug.arguments import check, checks_names, is_whole
from detaug.arrays import Bools, Ints
from detaug.errors import InputError
from detaug.evaluation.map_predictions import at_points
from detaug.loading.batch import Batch
from detaug.maps.segments import Segments

NO_SEGMENT = 0, -1
"""Numbers of pixels without a segment, as transformers has them."""

MATCHED = 0.5
"""Above this IoU a segment is right: so no other one can be above it, too."""


@dataclass(frozen=True)
class PanopticMetrics:
    """What `PanopticEvaluator` measured: fractions. NaN of what has no class that occurs.

    >>> print(da.PanopticMetrics(PQ=0.5, SQ=0.8, RQ=0.6))
    PQ 0.500  SQ 0.800  RQ 0.600  things nan  stuff nan
    """

    PQ: float
    """Panoptic quality: the mean over the classes that occur, in the maps or in what was predicted."""
    SQ: float
    """Segmentation quality: the mean of the classes' mean IoU of segments that are right."""
    RQ: float
    """Recognition quality: the mean of the classes' F1 score."""
    PQ_things: float = nan
    """Of classes whose objects are counted."""
    SQ_things: float = nan
    RQ_things: float = nan
    PQ_stuff: float = nan
    """Of the other classes."""
    SQ_stuff: float = nan
    RQ_stuff: float = nan
    PQ_by_class: Mapping[str, float] | None = None
    """By name; NaN of a class that does not occur."""
    SQ_by_class: Mapping[str, float] | None = None
    RQ_by_class: Mapping[str, float] | None = None
    segments: int = 0
    """In the maps, without crowds."""

    def __str__(self) -> str:
        of_all = f"PQ {self.PQ:.3f}  SQ {self.SQ:.3f}  RQ {self.RQ:.3f}"
        return f"{of_all}  things {self.PQ_things:.3f}  stuff {self.PQ_stuff:.3f}"


class PredictedSegments(NamedTuple):
    """The segments that were predicted for an image."""

    numbers: Ints
    """(H, W): of each pixel; those not in `labels` are of no segment."""
    labels: Mapping[int, int]
    """The class of each number, a position in `PanopticMap.class_names`."""


class PanopticCounts:
    """Counts of each of C classes: segments that are right, wrong and missed, and the sum of their IoU.

    Source of the rules: `pq_compute_single_core` in panopticapi/evaluation.py of
    https://github.com/cocodataset/panopticapi. So of several crowds of a class in an image only the last one of
    `segments_info` excuses predictions.
    """

    def __init__(self, class_names: Sequence[str], is_thing: Sequence[bool]) -> None:
        self.class_names, self.is_thing = tuple(class_names), tuple(is_thing)
        count = len(self.class_names)
        self._iou = [0.0] * count
        self._right, self._wrong, self._missed = ([0] * count for _ in range(3))

    def add(self, truth: Ints, segments: Segments, predicted: PredictedSegments) -> None:
        """Count an image. `truth`: (H, W) positions in `segments`, 0 for void."""
        present, of_pixel, areas = np.unique(predicted.numbers, return_inverse=True, return_counts=True)
        count = len(segments.row)
        pairs = truth.ravel().astype(np.int64) * len(present) + of_pixel.ravel()
        shared = np.bincount(pairs, minlength=count * len(present)).reshape(count, len(present))
        sides = shared.sum(1)
        numbers = present.tolist()
        label_of = [predicted.labels.get(number, -1) for number in numbers]
        matched: set[int] = set()
        crowds = sorted(np.flatnonzero(segments.crowd).tolist(), key=lambda number: int(segments.place[number]))
        crowd_of = {int(segments.label[number]): number for number in crowds}
        for number in range(1, count):
            label, is_matched = int(segments.label[number]), False
            if segments.crowd[number] or not sides[number]:
                continue
            for other in np.flatnonzero(shared[number]).tolist():  # by id, as panopticapi, so that sums round alike
                union = areas[other] + sides[number] - shared[number, other] - shared[0, other]
                if label_of[other] == label and shared[number, other] / union > MATCHED:
                    self._iou[label] += float(shared[number, other] / union)
                    matched.add(other)
                    is_matched = True
            self._right[label] += is_matched
            self._missed[label] += not is_matched
        for other, label in enumerate(label_of):
            if label < 0 or other in matched:
                continue
            excused = shared[0, other] + (shared[crowd_of[label], other] if label in crowd_of else 0)
            self._wrong[label] += not excused / areas[other] > MATCHED

    def metrics(self) -> PanopticMetrics:
        """Return the metrics of all images so far."""
        rows: dict[str, list[float]] = {"PQ": [], "SQ": [], "RQ": []}
        for iou, right, wrong, missed in zip(self._iou, self._right, self._wrong, self._missed, strict=True):
            occurs = right + wrong + missed > 0
            weight = right + 0.5 * wrong + 0.5 * missed
            rows["PQ"].append(iou / weight if occurs else nan)
            rows["SQ"].append(iou / right if right else 0.0 if occurs else nan)
            rows["RQ"].append(right / weight if occurs else nan)
        is_thing: Bools = np.array(self.is_thing, bool)
        parts = {"": is_thing | True, "_things": is_thing, "_stuff": ~is_thing}
        means: Any = {f"{name}{part}": _mean(rows[name], chosen) for part, chosen in parts.items() for name in rows}
        by_class: Any = {
            f"{name}_by_class": dict(zip(self.class_names, values, strict=True)) for name, values in rows.items()
        }
        return PanopticMetrics(**means, **by_class, segments=sum(self._right) + sum(self._missed))


def _mean(values: Sequence[float], chosen: Bools) -> float:
    known = [value for value, is_chosen in zip(values, chosen.tolist(), strict=True) if is_chosen and value == value]
    return sum(known) / len(known) if known else nan


class PanopticEvaluator:
    """Compares predicted segments with those of a map batch by batch, and returns PQ, SQ and RQ of all.

    Args:
        map: The name of a `PanopticMap`, whose classes are `reader.maps[map].kind.class_names`. True segments are those
            of the files, also those without an annotation, so predictions are moved to their pixels. A segment is right
            if one of its class has an IoU above 0.5 with it, where void is in no union. One that is wrong counts,
            unless more than half of it is void or a crowd of its class. These are panopticapi's rules, and its numbers.

    >>> print(da.PanopticEvaluator())
    PanopticEvaluator(map='panoptic', 0 images)
    """

    @checks_names
    def __init__(self, *, map: str = "panoptic") -> None:
        self._map, self._images = map, 0
        self._counts: PanopticCounts | None = None

    def __repr__(self) -> str:
        return f"PanopticEvaluator(map={self._map!r}, {self._images} images)"

    def update(self, batch: Batch, predictions: Sequence[Mapping[str, Any]]) -> None:
        """Count a batch of an evaluation recipe, which mixes no images.

        Raises InputError for another number without a class.

        Args:
            predictions: A dict for each of N images, as `post_process_panoptic_segmentation` of transformers returns:
                `segmentation` (h, w), the number of each pixel's segment, of the whole output, at its size or a smaller
                one; and `segments_info`, a list of dicts with the `id` of each segment, its number, and `label_id`, its
                class, from 0. Pixels with 0 or -1 may be of no segment.
        """
        kind = batch.maps_of_images.panoptic(self._map)
        good = isinstance(predictions, Sequence) and len(predictions) == len(batch)
        good = good and all(_is_prediction(prediction) for prediction in predictions)
        rule = f"a list of {len(batch)} dicts with segmentation (h, w), whole numbers, and segments_info"
        check("predictions", predictions, good, rule)
        self._counts = self._counts or PanopticCounts(kind.class_names, kind.is_thing)
        if self._counts.class_names != kind.class_names:
            raise InputError(f"the map {self._map!r} must have the same classes in all batches; score sources apart")
        labels = [_labels(prediction, len(kind.class_names), index) for index, prediction in enumerate(predictions)]
        size = batch.images.shape[-2:]
        for image, (own, label_of) in enumerate(zip(predictions, labels, strict=True)):
            truth, points = batch.map_in_source(self._map, image)
            numbers = torch.as_tensor(own["segmentation"])
            predicted = at_points(numbers[None], points, size, nearest=True)[0].long().cpu().numpy()
            segments = batch.segments_in_source(self._map, image)
            self._counts.add(truth.numpy(), segments, PredictedSegments(predicted, label_of))
            self._images += 1

    def compute(self) -> PanopticMetrics:
        """Return the metrics of all batches so far."""
        if self._counts is None or not self._images:
            raise InputError("nothing to score: call update(batch, predictions) first")
        return self._counts.metrics()


def _is_prediction(own: Any) -> bool:
    if not isinstance(own, Mapping) or not isinstance(own.get("segments_info"), Sequence):
        return False
    numbers = own.get("segmentation")
    if not isinstance(numbers, Tensor | np.ndarray) or numbers.ndim != 2 or not min(numbers.shape):
        return False
    return not torch.as_tensor(numbers[:1]).is_floating_point() or _are_whole(torch.as_tensor(numbers))


def _are_whole(numbers: Tensor) -> bool:
    """Return whether floats are whole numbers: transformers makes segments of zeros, which are floats."""
    return bool((numbers == numbers.round()).all())


def _labels(own: Mapping[str, Any], classes: int, image: int) -> dict[int, int]:
    """Return the class of each number. Raises InputError for numbers without one, or with several."""
    labels: dict[int, int] = {}
    for row in own["segments_info"]:
        good = isinstance(row, Mapping) and is_whole(row.get("id")) and is_whole(row.get("label_id"), 0, classes - 1)
        rule = f"a dict with id, a whole number, and label_id in 0..{classes - 1}"
        check(f"predictions[{image}]: each entry of segments_info", row, good, rule)
        if labels.setdefault(row["id"], row["label_id"]) != row["label_id"]:
            raise InputError(f"predictions[{image}]: the segment {row['id']} must have one class in segments_info")
    present = np.unique(torch.as_tensor(own["segmentation"]).cpu().numpy()).astype(np.int64).tolist()
    if unknown := [number for number in present if number not in labels and number not in NO_SEGMENT]:
        raise InputError(
            f"predictions[{image}]: the segment {unknown[0]} has pixels and must be in segments_info; pixels of no "
            "segment are 0 or -1"
        )
    return labels
