"""Merge the detections of one image in several views: weighted box fusion, or non-maximum suppression."""

from __future__ import annotations

from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from detaug.arrays import Floats, Ints
from detaug.boxes.polygons import turn_of
from detaug.evaluation.rotated import iou_of_quadrangles
from detaug.evaluation.voc_ap import iou_of_boxes

Merge: TypeAlias = Literal["wbf", "nms"]


class Fused(NamedTuple):
    """F objects that detections were merged to."""

    shapes: Floats
    """(F, 4) boxes XYXY, or (F, 4, 2) corners of rotated boxes."""
    labels: Ints
    members: list[Ints]
    """The rows of the detections that each one was merged from, the highest score first."""


def fuse(shapes: Floats, scores: Floats, labels: Ints, merge: Merge, min_iou: float) -> Fused:
    """Merge detections of each class that overlap, from the highest score on.

    "wbf" is weighted box fusion (Solovyev et al. 2021, https://arxiv.org/abs/1910.13302): a detection joins the object
    whose box so far has the largest IoU with it, above `min_iou`, and that box is the mean of its members by score.
    "nms" leaves the box as its best member has it.

    Args:
        shapes: (D, 4) boxes XYXY, or (D, 4, 2) corners of rotated boxes, of all views in pixels of one image.
        scores: (D,) at least 0.
        labels: (D,).
        merge: "wbf" or "nms".
        min_iou: The IoU above which two detections are of one object.
    """
    iou = iou_of_boxes if shapes.ndim == 2 else iou_of_quadrangles
    order = np.argsort(-scores, kind="stable")
    fused, names, members = list[Floats](), list[int](), list[list[int]]()
    for label in np.unique(labels).tolist():
        rows = order[labels[order] == label]
        boxes, own = np.empty((len(rows), *shapes.shape[1:])), list[list[int]]()
        for row in rows.tolist():
            overlaps = iou(shapes[row : row + 1], boxes[: len(own)])[0]
            best = int(overlaps.argmax()) if own else -1
            if best < 0 or overlaps[best] <= min_iou:
                boxes[len(own)] = shapes[row]
                own.append([row])
                continue
            own[best].append(row)
            if merge == "wbf":
                boxes[best] = weighted_mean(shapes[own[best]], scores[own[best]])
        fused += list(boxes[: len(own)])
        names += [label] * len(own)
        members += own
    return Fused(
        np.array(fused).reshape(-1, *shapes.shape[1:]),
        np.array(names, np.int64),
        [np.array(rows, np.int64) for rows in members],
    )


def fractions_of(scores: Floats) -> Floats:
    """Return scores (T,) as fractions of their sum; equal ones where all are 0."""
    scores = scores.clip(1e-12)
    return np.asarray(scores / scores.sum())


def weighted_mean(shapes: Floats, weights: Floats) -> Floats:
    """Return the mean of T boxes (T, 4), or of rotated boxes (T, 4, 2), which is one, by their weights (T,)."""
    weights = fractions_of(weights)
    if shapes.ndim == 2:
        return np.asarray(weights @ shapes)
    mean = np.tensordot(weights, _in_one_order(shapes), 1)
    # The mean of rectangles at several angles is a parallelogram: take its center, its sides' lengths and mean angle.
    along, down = (mean[1] - mean[0] + mean[2] - mean[3]) / 2, (mean[3] - mean[0] + mean[2] - mean[1]) / 2
    width, height = np.hypot(*along).clip(1e-12), np.hypot(*down).clip(1e-12)
    way = 1 if along[0] * down[1] >= along[1] * down[0] else -1
    axis = along / width + way * np.array([down[1], -down[0]]) / height
    axis = axis / np.hypot(*axis).clip(1e-12)
    sides = np.stack([width * axis, height * way * np.array([-axis[1], axis[0]])])
    return np.asarray(mean.mean(0) + np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) @ sides / 2)


def _in_one_order(corners: Floats) -> Floats:
    """Return quadrangles (T, 4, 2) that go round the way of the first one, from the corner nearest to its first.

    A flip turns the way round, and which corner a detector names first is up to it.
    """
    ways = turn_of(corners)
    corners = np.where((ways == ways[0])[:, None, None], corners, corners[:, ::-1])
    shifted = np.stack([np.roll(corners, shift, axis=1) for shift in range(4)])  # (4, T, 4, 2)
    distances = ((shifted - corners[0]) ** 2).sum((2, 3))
    return np.asarray(shifted[distances.argmin(0), np.arange(len(corners))])
