"""Average precision as in the Pascal VOC development kit, for boxes with continuous coordinates.

The kit's inclusive pixels xmin..xmax are x0 = xmin - 1, x1 = xmax here (decision 1), so its widths are ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.evaluation.ground_truth import Floats, GroundTruth, Ints
from detaug.evaluation.predictions import NO_DETECTIONS, ImageDetections

MIN_OVERLAP = 0.5


def average_precisions(
    truth: GroundTruth, found: Sequence[ImageDetections | None], *, eleven_points: bool = False
) -> dict[str, float]:
    """Return the AP of each class by name. `found`: for each image of `truth`; None for one not evaluated."""
    evaluated = np.repeat([each is not None for each in found], np.diff(truth.first))
    detections = [NO_DETECTIONS if each is None else each for each in found]
    scores = np.concatenate([each.scores for each in detections])
    category_ids = np.concatenate([each.category_ids for each in detections])
    best = np.concatenate([_matches(truth, at, each) for at, each in enumerate(detections)])
    result = {}
    for category, name in truth.categories.items():
        mine = category_ids == category
        positives = int((evaluated & ~truth.ignored & (truth.category_ids == category)).sum())
        result[name] = average_precision(
            scores[mine], best[mine], truth.ignored, positives, eleven_points=eleven_points
        )
    return result


def _matches(truth: GroundTruth, at: int, found: ImageDetections) -> Ints:
    """Return (K,): the object of `truth` that each detection in image `at` matches, -1 for none."""
    first, end = truth.first[at : at + 2]
    objects, categories = truth.boxes[first:end], truth.category_ids[first:end]
    best = best_objects(found.boxes, found.category_ids, objects, categories)
    return np.where(best >= 0, best + first, -1)


def best_objects(boxes: Floats, labels: Ints, objects: Floats, object_labels: Ints) -> Ints:
    """Return (D,): for each detection the object of its class with the largest IoU, -1 if that is below 0.5.

    `boxes`: (D, 4), `objects`: (G, 4), XYXY in one unit. The first of several objects with the same IoU.
    """
    if not len(objects):
        return np.full(len(boxes), -1)
    overlaps = np.where(labels[:, None] == object_labels, _iou(boxes, objects), -1)
    best = overlaps.argmax(1)
    return np.where(overlaps.max(1) >= MIN_OVERLAP, best, -1)


def average_precision(
    scores: Floats, best: Ints, ignored: NDArray[np.bool_], positives: int, *, eleven_points: bool = False
) -> float:
    """Return the AP of one class; -1 where it has no object to find.

    `scores`: (D,) of all its detections in all images; `best`: (D,) the object that each matches, -1 for none.
    `ignored`: (G,), objects whose detection is neither right nor wrong, the kit's `difficult`. `positives`: number of
    the other objects. The detection with the highest score finds an object, others of the same object are wrong.

    AP is the area under the curve with precision made monotonic (VOC2010 and later), or the mean precision at the
    recalls 0, 0.1, ..., 1 (VOC2007).
    """
    if not positives:
        return -1.0
    best = best[np.argsort(-scores, kind="stable")]
    best = best[~((best >= 0) & ignored[best])]
    right = _first_of_each(best)
    found = np.cumsum(right)
    precision = np.maximum.accumulate((found / np.arange(1, len(best) + 1))[::-1])[::-1]
    if eleven_points:  # whole numbers: recall 3/10 reaches 0.3
        at = np.searchsorted(10 * found, np.arange(11) * positives)
        return float(np.append(precision, 0)[at].mean())
    return float(precision[right].sum() / positives)


def _first_of_each(best: Ints) -> NDArray[np.bool_]:
    """Return (D,) flags: the first detection of an object."""
    objects, first = np.unique(best, return_index=True)
    right = np.zeros(len(best), np.bool_)
    right[first[objects >= 0]] = True
    return right


def _iou(one: Floats, other: Floats) -> Any:
    """Return (D, G)."""
    low = np.maximum(one[:, None, :2], other[:, :2])
    high = np.minimum(one[:, None, 2:], other[:, 2:])
    shared = (high - low).clip(0).prod(2)
    return shared / (_area(one)[:, None] + _area(other) - shared)


def _area(boxes: Floats) -> Any:
    return (boxes[:, 2:] - boxes[:, :2]).prod(1)
