"""Convex polygons: what boxes become when a view turns. Arrays (..., V, 2) of points (x, y), in order.

A turned box is no longer a box, and its hull is larger than it; clipping the hull at the view's border, or turning it
again, would make it larger still. So each box keeps its polygon through all ops, and its hull is taken at the end.
Clipping gives polygons of different lengths. To keep all of them in one array, shorter ones repeat a point, which
changes neither hull nor area.

Keep the short axis (points, coordinates) first: NumPy loops over the last one. Hence the `moveaxis` calls.
"""

from __future__ import annotations

from functools import reduce

import numpy as np

from detaug.arrays import Bools, Floats

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
    points = np.moveaxis(polygons, -2, 0)
    return np.concatenate([reduce(np.minimum, points), reduce(np.maximum, points)], axis=-1)


def area(polygons: Floats) -> Floats:
    """Return (...,), positive for both orientations."""
    x, y = np.moveaxis(polygons, -1, 0)
    return np.asarray(abs((x * np.roll(y, -1, -1) - np.roll(x, -1, -1) * y).sum(-1)) / 2)


def transform(matrix: Floats, polygons: Floats) -> Floats:
    """Transform polygons (N, ..., 2) by the projective maps (N, 3, 3)."""
    x, y = np.moveaxis(polygons, -1, 0)
    rows = np.moveaxis(matrix, 0, 2).reshape(3, 3, len(matrix), *[1] * (x.ndim - 1))
    moved = [a * x + b * y + c for a, b, c in rows]
    return np.moveaxis(np.stack(moved[:2]) / moved[2], 0, -1)


def side_of_line(start: Floats, end: Floats, points: Floats) -> Floats:
    """Return (...,) signed numbers: on which side of the lines from `start` to `end` points are, (..., 2) each."""
    along, to_point = end - start, points - start
    return np.asarray(along[..., 0] * to_point[..., 1] - along[..., 1] * to_point[..., 0])


def turn_of(polygons: Floats) -> Floats:
    """Return (...,): 1 for polygons that go clockwise on the screen, -1 for others, 0 for those without area."""
    x, y = np.moveaxis(polygons, -1, 0)
    return np.asarray(np.sign((x * np.roll(y, -1, -1) - np.roll(x, -1, -1) * y).sum(-1)))


def inside_convex(points: Floats, polygons: Floats) -> Bools:
    """Return (B, K): whether points (B, K, 2) are in convex polygons (B, V, 2), whichever way round these go."""
    side = side_of_line(polygons[:, None], np.roll(polygons, -1, axis=1)[:, None], points[:, :, None])
    return np.asarray((side >= 0).all(2) | (side <= 0).all(2))


def pad_to_same_length(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Repeat the last point of the shorter polygons, so that both have as many."""
    length = max(a.shape[-2], b.shape[-2])
    a, b = (np.concatenate([each, np.repeat(each[..., -1:, :], length - each.shape[-2], -2)], -2) for each in (a, b))
    return a, b


def clip(polygons: Floats) -> Floats:
    """Clip to the unit square; all points are equal where nothing is left. Sutherland and Hodgman 1974, on arrays."""
    for axis in (0, 1):
        polygons = cut(polygons, polygons[..., axis])
        polygons = cut(polygons, 1 - polygons[..., axis])
    return polygons


def cut(polygons: Floats, distance: Floats) -> Floats:
    """Cut off what lies on the negative side of a line. `distance` (..., V): of each point from the line, signed."""
    within, after = distance >= 0, np.roll(distance, -1, -1)
    crosses = within != (after >= 0)
    share = (distance / np.where(crosses, distance - after, 1))[..., None]
    crossing = polygons + share * (np.roll(polygons, -1, -2) - polygons)
    points = np.stack([polygons, crossing], axis=-2).reshape(*distance.shape[:-1], 2 * distance.shape[-1], 2)
    return _take(points, np.stack([within, crosses], axis=-1).reshape(points.shape[:-1]))


def _take(points: Floats, wanted: Bools) -> Floats:
    """Take the wanted points of each polygon, and repeat its first one where others have more."""
    count = wanted.sum(-1, keepdims=True)
    order = np.argsort(~wanted, axis=-1, kind="stable")[..., : max(count.max(initial=0), 1)]
    order = np.where(np.arange(order.shape[-1]) < count, order, order[..., :1])
    return np.take_along_axis(points, order[..., None], axis=-2)
