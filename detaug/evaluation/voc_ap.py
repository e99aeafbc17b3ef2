"""Average precision as the Pascal VOC development kit computes it, from boxes with continuous coordinates.

The kit's inclusive pixels xmin..xmax are x0 = xmin - 1, x1 = xmax here (decision 1), so its widths are ours.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

MIN_OVERLAP = 0.5


def best_objects(boxes: Floats, labels: Ints, objects: Floats, object_labels: Ints) -> Ints:
    """(D,): for each detection of an image the object of its class with the largest IoU, -1 where that is below 0.5.

    `boxes`: (D, 4), `objects`: (G, 4), XYXY in one unit. Of several with the same IoU it is the first.
    """
    if not len(objects):
        return np.full(len(boxes), -1)
    overlaps = np.where(labels[:, None] == object_labels, _iou(boxes, objects), -1)
    best = overlaps.argmax(1)
    return np.where(overlaps.max(1) >= MIN_OVERLAP, best, -1)


def average_precision(
    scores: Floats, best: Ints, aside: NDArray[np.bool_], positives: int, *, eleven_points: bool = False
) -> float:
    """AP of one class; -1 where it has no object to find.

    `scores`: (D,) of all its detections in all images; `best`: (D,) the object that each meets, -1 for none.
    `aside`: (G,), objects that are neither right nor wrong to find, the kit's `difficult`. `positives`: number of
    the other objects. An object is found by the detection with the highest score, others on it are wrong.

    The area under the curve with precision made monotonic (VOC2010 and later), or the mean of it at the recalls
    0, 0.1, ..., 1 (VOC2007).
    """
    if not positives:
        return -1.0
    best = best[np.argsort(-scores, kind="stable")]
    best = best[~((best >= 0) & aside[best])]
    right = _first_of_each(best)
    found = np.cumsum(right)
    precision = np.maximum.accumulate((found / np.arange(1, len(best) + 1))[::-1])[::-1]
    if eleven_points:  # whole numbers: recall 3/10 reaches 0.3
        at = np.searchsorted(10 * found, np.arange(11) * positives)
        return float(np.append(precision, 0)[at].mean())
    return float(precision[right].sum() / positives)


def _first_of_each(best: Ints) -> NDArray[np.bool_]:
    """(D,): is it the first detection of an object?"""
    objects, first = np.unique(best, return_index=True)
    right = np.zeros(len(best), np.bool_)
    right[first[objects >= 0]] = True
    return right


def _iou(one: Floats, other: Floats) -> Any:
    """(D, G)"""
    low = np.maximum(one[:, None, :2], other[:, :2])
    high = np.minimum(one[:, None, 2:], other[:, 2:])
    shared = (high - low).clip(0).prod(2)
    return shared / (_area(one)[:, None] + _area(other) - shared)


def _area(boxes: Floats) -> Any:
    return (boxes[:, 2:] - boxes[:, :2]).prod(1)
