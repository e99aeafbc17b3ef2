"""Rotated boxes: the smallest rectangles around four corners, and the ways in which trainers count their angles."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from detaug.arguments import check
from detaug.arrays import Floats
from detaug.boxes.placement import Placement
from detaug.boxes.visible_part import extremes_of, vertices_of_polygons

Angle = Literal["le90", "le135", "oc", "yolo", "torchvision"]


def rotated_boxes(corners: Floats, placement: Placement, angle: Angle, *, visible: bool) -> Floats:
    """Return (B, 5): centre x, y, width, height, angle of the smallest rectangles around corners (B, 4, 2) once placed.

    `corners`: source pixels. `angle`: see `Batch.rotated_boxes`. `visible`: cut them to what is in view.
    """
    check("angle", angle, angle in get_args(Angle), f"one of {', '.join(get_args(Angle))}")
    moved = placement.move(corners)
    direction = smallest_rectangle(moved)
    along = np.stack([np.cos(direction), np.sin(direction)], axis=1)
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    if visible:
        extremes = extremes_of(vertices_of_polygons(corners), placement)
        spans = [extremes.extent(len(corners), axis) for axis in (along, across)]
        seen = np.isfinite(spans[0][:, :1])
        spans = [np.where(seen, span, 0) for span in spans]
    else:
        spans = [_extent(moved, axis) for axis in (along, across)]
    middle = [span.mean(1)[:, None] * axis for span, axis in zip(spans, (along, across), strict=True)]
    sides = [span[:, 1] - span[:, 0] for span in spans]
    return np.concatenate([middle[0] + middle[1], in_form(sides[0], sides[1], direction, angle)], axis=1)


def smallest_rectangle(corners: Floats) -> Floats:
    """Return (B,): the direction, in radians, clockwise on the screen, of a side of the smallest rectangle around each.

    One of its sides lies along an edge of the hull of the corners, so all six lines through two of them are tried.
    """
    first, second = np.triu_indices(4, 1)
    edges = corners[:, second] - corners[:, first]
    directions = np.arctan2(edges[..., 1], edges[..., 0])
    areas = []
    for angle in directions.T:
        along = np.stack([np.cos(angle), np.sin(angle)], axis=1)
        sides = [_extent(corners, axis) for axis in (along, np.stack([-along[:, 1], along[:, 0]], axis=1))]
        areas.append((sides[0][:, 1] - sides[0][:, 0]) * (sides[1][:, 1] - sides[1][:, 0]))
    return np.take_along_axis(directions, np.argmin(np.round(np.stack(areas, axis=1), 6), axis=1)[:, None], axis=1)[
        :, 0
    ]


def _extent(points: Floats, axis: Floats) -> Floats:
    """Return (B, 2): the smallest and largest coordinate of points (B, V, 2) along axes (B, 2)."""
    along = (points * axis[:, None]).sum(2)
    return np.stack([along.min(1), along.max(1)], axis=1)


def in_form(width: Floats, height: Floats, direction: Floats, angle: Angle) -> Floats:
    """Return (B, 3): width, height and angle as a trainer counts them. `direction`: of the width, radians, clockwise.

    Sources: MMRotate's `RotatedBoxes.regularize_boxes`, Ultralytics' `xyxyxyxy2xywhr`, torchvision's CXCYWHR, which is
    Detectron2's.
    """
    if angle == "oc":
        turned = (direction + np.pi / 2) % np.pi >= np.pi / 2
        direction = (direction + np.pi / 2) % (np.pi / 2) - np.pi / 2
    else:
        turned = width < height
        start = -np.pi / 4 if angle in ("le135", "yolo") else -np.pi / 2
        direction = (direction + turned * np.pi / 2 - start) % np.pi + start
    width, height = np.where(turned, height, width), np.where(turned, width, height)
    if angle == "torchvision":  # counter-clockwise
        direction = -np.rad2deg(direction)
    return np.stack([width, height, direction], axis=1)
