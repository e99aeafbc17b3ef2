"""Average precision as in the Pascal VOC development kit, for boxes with continuous coordinates.

The kit's inclusive pixels xmin..xmax are x0 = xmin - 1, x1 = xmax here (decision 1), so its widths are ours.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Floats, Ints
from detaug.evaluation.ground_truth import GroundTruth
from detaug.evaluation.predictions import ImageDetections

MIN_OVERLAP = 0.5

Overlaps = Callable[[Floats, Floats], Floats]
"""Returns the IoU (D, G) of shapes (D, ...) and (G, ...)."""


class Matches(NamedTuple):
    """The object that each of D detections of all images overlaps most."""

    scores: Floats
    category_ids: Ints
    objects: Ints
    """(D,): its number in the ground truth, of the detection's class and image; -1 for none."""
    overlaps: Floats
    """(D,): their IoU; 0 for none."""
    evaluated: NDArray[np.bool_]
    """(G,): whether the object's image was evaluated."""


def match(truth: GroundTruth, detections: Sequence[ImageDetections | None], iou: Overlaps) -> Matches:
    """Compare detections with the objects of their images. `detections`: by image of `truth`; None: not evaluated."""
    columns = [(np.zeros(0), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
    for image_detections, first, end in zip(detections, truth.first[:-1], truth.first[1:], strict=True):
        if image_detections is None:
            continue
        of_image = slice(first, end)
        best, overlaps = best_objects(
            image_detections.shapes,
            image_detections.category_ids,
            truth.shapes[of_image],
            truth.category_ids[of_image],
            iou,
        )
        columns.append(
            (image_detections.scores, image_detections.category_ids, np.where(best >= 0, best + first, -1), overlaps)
        )
    evaluated = np.repeat([image_detections is not None for image_detections in detections], np.diff(truth.first))
    scores, category_ids, objects, ious = (np.concatenate(column) for column in zip(*columns, strict=True))
    return Matches(scores, category_ids, objects, ious, evaluated)


def average_precisions(
    truth: GroundTruth, matches: Matches, min_overlap: float = MIN_OVERLAP, *, eleven_points: bool = False
) -> dict[str, float]:
    """Return the AP of each class by name; -1 for a class without an object to find."""
    best, result = np.where(matches.overlaps >= min_overlap, matches.objects, -1), {}
    for category, name in truth.categories.items():
        mine = matches.category_ids == category
        positives = int((matches.evaluated & ~truth.ignored & (truth.category_ids == category)).sum())
        result[name] = average_precision(
            matches.scores[mine], best[mine], truth.ignored, positives, eleven_points=eleven_points
        )
    return result


def mean_of_classes(by_class: Mapping[str, float]) -> float:
    """Return the mean over the classes that have objects to find; -1 if none has."""
    real = [value for value in by_class.values() if value >= 0]
    return float(np.mean(real)) if real else -1.0


def best_objects(
    shapes: Floats, labels: Ints, objects: Floats, object_labels: Ints, iou: Overlaps
) -> tuple[Ints, Floats]:
    """Return (D,): for each detection the object of its class with the largest IoU, -1 for none, and this IoU.

    `shapes`: (D, ...), `objects`: (G, ...). The first of several objects with the same IoU.
    """
    if not len(objects):
        return np.full(len(shapes), -1), np.zeros(len(shapes))
    overlaps = np.where(labels[:, None] == object_labels, iou(shapes, objects), 0)
    highest = overlaps.max(1)
    return np.where(highest > 0, overlaps.argmax(1), -1), highest


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
    true_positives = np.cumsum(right)
    precision = np.maximum.accumulate((true_positives / np.arange(1, len(best) + 1))[::-1])[::-1]
    if eleven_points:  # whole numbers: recall 3/10 reaches 0.3
        reached = np.searchsorted(10 * true_positives, np.arange(11) * positives)
        return float(np.append(precision, 0)[reached].mean())
    return float(precision[right].sum() / positives)


def _first_of_each(best: Ints) -> NDArray[np.bool_]:
    """Return (D,) flags: the first detection of an object."""
    objects, first = np.unique(best, return_index=True)
    right = np.zeros(len(best), np.bool_)
    right[first[objects >= 0]] = True
    return right


def iou_of_boxes(one: Floats, other: Floats) -> Floats:
    """Return (D, G) of boxes (D, 4) and (G, 4), XYXY in one unit."""
    low = np.maximum(one[:, None, :2], other[:, :2])
    high = np.minimum(one[:, None, 2:], other[:, 2:])
    shared = (high - low).clip(0).prod(2)
    together = area_of_boxes(one)[:, None] + area_of_boxes(other) - shared
    return np.asarray(np.divide(shared, together, out=np.zeros_like(shared), where=shared > 0))


def area_of_boxes(boxes: Floats) -> Floats:
    """Return (D,) of boxes (D, 4) XYXY."""
    return np.asarray((boxes[:, 2:] - boxes[:, :2]).prod(1))
