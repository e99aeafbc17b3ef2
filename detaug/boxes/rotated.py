"""Rotated boxes: the smallest rectangles around four corners, and the ways in which trainers count their angles."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

import numpy as np

from detaug.arguments import check
from detaug.arrays import Bools, Floats
from detaug.boxes import polygons
from detaug.boxes.placement import Placement
from detaug.boxes.visible_part import extremes_of, is_in_view, rings_of_polygons, vertices_of

Angle = Literal["le90", "le135", "oc", "yolo", "torchvision"]


def rotated_boxes(corners: Floats, placement: Placement, angle: Angle, *, visible: bool) -> Floats:
    """Return (B, 5): center x, y, width, height, angle of the smallest rectangles around corners (B, 4, 2) once placed.

    `corners`: source pixels. `angle`: see `Batch.rotated_boxes`. `visible`: cut them to what is in view.
    """
    check("angle", angle, angle in get_args(Angle), f"one of {', '.join(get_args(Angle))}")
    moved = placement.move(corners)
    direction = smallest_rectangle(moved)
    along = np.stack([np.cos(direction), np.sin(direction)], axis=1)
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    spans = [_extent(moved, axis) for axis in (along, across)]
    seen = _without_covered(placement, moved) if visible else placement
    if visible and len(cut := np.flatnonzero(~is_in_view(corners, moved, seen))):
        extremes = extremes_of(vertices_of(rings_of_polygons(corners[cut])), seen.some(cut))
        for span, axis in zip(spans, (along, across), strict=True):
            extent = extremes.extent(len(cut), axis[cut])
            span[cut] = np.where(np.isfinite(extent), extent, 0)
    middle = [span.mean(1)[:, None] * axis for span, axis in zip(spans, (along, across), strict=True)]
    sides = [span[:, 1] - span[:, 0] for span in spans]
    return np.concatenate([middle[0] + middle[1], in_form(sides[0], sides[1], direction, angle)], axis=1)


def is_seen(corners: Floats, placement: Placement, least: float) -> Bools:
    """Return (B,): whether rectangles around corners (B, 4, 2), source pixels, are in view as a whole, or with sides of
    at least `least` output pixels.
    """
    moved = placement.move(corners)
    seen = is_in_view(corners, moved, _without_covered(placement, moved))
    cut = np.flatnonzero(~seen)
    if len(cut):
        sides = rotated_boxes(corners[cut], placement.some(cut), "oc", visible=True)[:, 2:4]
        seen[cut] = (sides >= least).all(1)
    return seen


def _without_covered(placement: Placement, moved: Floats) -> Placement:
    """Return the placement of the visible part: where a later layer or a hole lies on a side, within that of the box.

    `moved`: (B, 4, 2) the corners, output pixels. Ops move the sides of boxes that are covered as a whole.
    """
    if placement.boxes is None or placement.layers.image.shape[1] == 1:
        return placement
    rectangle, around = placement.rectangles(), polygons.hull(moved)
    covered = placement.covered_sides(around)
    if placement.field is not None:  # the boxes are those after it
        covered &= ~placement.field.bends[placement.image, None]
    if not covered.any():
        return placement
    low, high = (
        np.maximum(rectangle[:, :2], placement.boxes[:, :2]),
        np.minimum(rectangle[:, 2:], placement.boxes[:, 2:]),
    )
    return replace(placement, windows=np.where(covered, np.concatenate([low, high], axis=1), rectangle))


def smallest_rectangle(corners: Floats) -> Floats:
    """Return (B,): the direction, in radians, clockwise on the screen, of a side of the smallest rectangle around each.

    One of its sides lies along an edge of the hull of the corners, so all six lines through two of them are tried.
    """
    x, y = np.moveaxis(corners, (2, 1), (0, 1))  # (4, B): NumPy is slow where the last axis is short
    first, second = np.triu_indices(4, 1)
    directions = np.arctan2(y[second] - y[first], x[second] - x[first])
    cos, sin = np.cos(directions), np.sin(directions)
    along, across = x[:, None] * cos + y[:, None] * sin, y[:, None] * cos - x[:, None] * sin  # (4, 6, B)
    areas = _span(along) * _span(across)
    smallest = np.argmin(np.round(areas, 6), axis=0)
    return np.asarray(np.take_along_axis(directions, smallest[None], axis=0)[0])


def _span(values: Floats) -> Floats:
    """Return the largest less the smallest along the first axis."""
    return np.asarray(np.maximum.reduce(values) - np.minimum.reduce(values))


def _extent(points: Floats, axis: Floats) -> Floats:
    """Return (B, 2): the smallest and largest coordinate of points (B, V, 2) along axes (B, 2)."""
    (x, y), (along_x, along_y) = np.moveaxis(points, (2, 1), (0, 1)), axis.T
    along = x * along_x + y * along_y
    return np.stack([np.minimum.reduce(along), np.maximum.reduce(along)], axis=1)


def in_form(width: Floats, height: Floats, direction: Floats, angle: Angle) -> Floats:
    """Return (B, 3): width, height and angle as a trainer counts them. `direction`: of the width, radians, clockwise.

    Sources: MMRotate's `RotatedBoxes.regularize_boxes`, Ultralytics' `xyxyxyxy2xywhr`, torchvision's CXCYWHR, which is
    Detectron2's.
    """
    if angle == "oc":
        swapped = (direction + np.pi / 2) % np.pi >= np.pi / 2
        direction = (direction + np.pi / 2) % (np.pi / 2) - np.pi / 2
    else:
        swapped = width < height
        start = -np.pi / 4 if angle in ("le135", "yolo") else -np.pi / 2
        direction = (direction + swapped * np.pi / 2 - start) % np.pi + start
    width, height = np.where(swapped, height, width), np.where(swapped, width, height)
    if angle == "torchvision":  # counter-clockwise
        direction = -np.rad2deg(direction)
    return np.stack([width, height, direction], axis=1)
