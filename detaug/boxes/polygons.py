"""Convex polygons: what boxes become when a view turns. Arrays (..., V, 2) of points (x, y), in order.

A rotated box is no longer a box, and its hull is larger than it; clipping the hull at the view's border, or turning it
again, would make it larger still. So each box keeps its polygon through all ops, and its hull is taken at the end.
Clipping gives polygons of different lengths. To keep all of them in one array, shorter ones repeat a point, which
changes neither hull nor area.

Most of it runs in Numba's loops, which make no arrays in between and release Python's lock.
"""

from __future__ import annotations

from math import prod

import numpy as np

from detaug.arrays import Bools, Floats, in_order
from detaug.boxes import polygon_loops

UNIT_SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])

_ANGLES = 2 * np.pi * (np.arange(64) + 0.5) / 64
UNIT_ELLIPSE = 0.5 + 0.5 * np.stack([np.cos(_ANGLES), np.sin(_ANGLES)], axis=1) / np.cos(np.pi / 64) ** 0.5
"""The unit square's ellipse as 64 points, which deviates by half a part in a thousand to both sides."""


def from_boxes(boxes: Floats, shape: Floats = UNIT_SQUARE) -> Floats:
    """Return (..., V, 2): `shape`, a polygon in the unit square, stretched over each of the boxes (..., 4) XYXY."""
    start, end = boxes[..., None, :2], boxes[..., None, 2:]
    return np.asarray(start + shape * (end - start))


def hull(polygons: Floats) -> Floats:
    """Return (..., 4): the XYXY boxes around the polygons."""
    return np.asarray(polygon_loops.hulls(_rows(polygons)).reshape(*polygons.shape[:-2], 4))


def area(polygons: Floats) -> Floats:
    """Return (...,), positive for both orientations."""
    return np.asarray(polygon_loops.areas(_rows(polygons)).reshape(polygons.shape[:-2]))


def transform(matrix: Floats, polygons: Floats) -> Floats:
    """Transform polygons (N, ..., 2) by the projective maps (N, 3, 3)."""
    points = _by_image(polygons)
    moved = np.empty(points.shape)
    polygon_loops.transform(np.ascontiguousarray(matrix), points, moved)
    return moved.reshape(polygons.shape)


def relative_to(points: Floats, start: Floats, end: Floats) -> Floats:
    """Return points (N, ..., 2) relative to the parts start..end, (N, 2) each, of what they are relative to."""
    by_image = _by_image(points)
    moved = np.empty(by_image.shape)
    polygon_loops.relative(by_image, *in_order(start, end - start), moved)
    return moved.reshape(points.shape)


def side_of_line(start: Floats, end: Floats, points: Floats) -> Floats:
    """Return (...,) signed numbers: on which side of the lines from `start` to `end` points are, (..., 2) each."""
    along, to_point = end - start, points - start
    return np.asarray(along[..., 0] * to_point[..., 1] - along[..., 1] * to_point[..., 0])


def turn_of(polygons: Floats) -> Floats:
    """Return (...,): 1 for polygons that go clockwise on the screen, -1 for others, 0 for those without area."""
    x, y = np.moveaxis(polygons, -1, 0)
    return np.asarray(np.sign((x * np.roll(y, -1, -1) - np.roll(x, -1, -1) * y).sum(-1)))


def pad_to_same_length(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Repeat the last point of the shorter polygons, so that both have as many."""
    length = max(a.shape[-2], b.shape[-2])
    a, b = (
        np.concatenate([polygon, np.repeat(polygon[..., -1:, :], length - polygon.shape[-2], -2)], -2)
        for polygon in (a, b)
    )
    return a, b


def clip(polygons: Floats, real: Bools | None = None) -> Floats:
    """Clip to the unit square; all points are equal where nothing is left. Sutherland and Hodgman 1974.

    `real` (...,): which are clipped; the others become zeros. By default all.
    """
    rows = _rows(polygons)
    left = polygon_loops.clip(rows, np.ones(len(rows), np.bool_) if real is None else real.ravel())
    return np.asarray(left.reshape(*polygons.shape[:-2], *left.shape[1:]))


def cut(polygons: Floats, distance: Floats) -> Floats:
    """Cut off what lies on the negative side of a line. `distance` (..., V): of each point from the line, signed."""
    left = polygon_loops.cut_each(_rows(polygons), np.ascontiguousarray(distance).reshape(-1, distance.shape[-1]))
    return np.asarray(left.reshape(*polygons.shape[:-2], *left.shape[1:]))


def _rows(polygons: Floats) -> Floats:
    """Return (B, V, 2)."""
    return np.ascontiguousarray(polygons).reshape(-1, *polygons.shape[-2:])


def _by_image(points: Floats) -> Floats:
    """Return points (N, ..., 2) as (N, P, 2)."""
    return np.ascontiguousarray(points).reshape(len(points), prod(points.shape[1:-1]), 2)
