"""Convex polygons: what a box is once it has been turned. (..., V, 2) arrays of points (x, y), in order.

Points may repeat, so that polygons of different length share an array.
"""

from __future__ import annotations

from functools import reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Bools: TypeAlias = NDArray[np.bool_]

UNIT_SQUARE = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0], [0.0, 1.0]])

_TURNS = 2 * np.pi * (np.arange(64) + 0.5) / 64
UNIT_ELLIPSE = 0.5 + 0.5 * np.stack([np.cos(_TURNS), np.sin(_TURNS)], axis=1) / np.cos(np.pi / 64) ** 0.5
"""64 points: half a part in a thousand inside the unit square's ellipse, half a part outside."""


def from_boxes(boxes: Floats, shape: Floats = UNIT_SQUARE) -> Floats:
    """(..., V, 2): `shape`, in the unit square, stretched over each of the boxes (..., 4) XYXY."""
    start, end = boxes[..., None, :2], boxes[..., None, 2:]
    return np.asarray(start + shape * (end - start))


def hull(polygons: Floats) -> Floats:
    """(..., 4): the XYXY boxes around the polygons."""
    points = np.moveaxis(polygons, -2, 0)  # point by point: NumPy is slow where it reduces a short axis
    return np.concatenate([reduce(np.minimum, points), reduce(np.maximum, points)], axis=-1)


def area(polygons: Floats) -> Floats:
    """(...,), positive whichever way round the points go."""
    x, y = np.moveaxis(polygons, -1, 0)
    return np.asarray(abs((x * np.roll(y, -1, -1) - np.roll(x, -1, -1) * y).sum(-1)) / 2)


def transform(matrix: Floats, polygons: Floats) -> Floats:
    """The polygons (N, ..., 2) through the projective maps (N, 3, 3)."""
    x, y = np.moveaxis(polygons, -1, 0)  # NumPy is slow where the last axis is short
    rows = np.moveaxis(matrix, 0, 2).reshape(3, 3, len(matrix), *[1] * (x.ndim - 1))
    moved = [a * x + b * y + c for a, b, c in rows]
    return np.moveaxis(np.stack(moved[:2]) / moved[2], 0, -1)


def of_one_length(a: Floats, b: Floats) -> tuple[Floats, Floats]:
    """Both with as many points, the last one of the shorter ones repeated."""
    length = max(a.shape[-2], b.shape[-2])
    a, b = (np.concatenate([each, np.repeat(each[..., -1:, :], length - each.shape[-2], -2)], -2) for each in (a, b))
    return a, b


def clip(polygons: Floats) -> Floats:
    """What lies in the unit square; all points equal where nothing does. Sutherland and Hodgman 1974, on arrays."""
    for axis in (0, 1):
        polygons = _cut(polygons, polygons[..., axis])
        polygons = _cut(polygons, 1 - polygons[..., axis])
    return polygons


def _cut(polygons: Floats, inside: Floats) -> Floats:
    """What lies on the side where `inside`, (..., V), linear and given at the points, is not negative."""
    within, after = inside >= 0, np.roll(inside, -1, -1)
    crosses = within != (after >= 0)
    share = (inside / np.where(crosses, inside - after, 1))[..., None]
    crossing = polygons + share * (np.roll(polygons, -1, -2) - polygons)
    points = np.stack([polygons, crossing], axis=-2).reshape(*inside.shape[:-1], 2 * inside.shape[-1], 2)
    return _take(points, np.stack([within, crosses], axis=-1).reshape(points.shape[:-1]))


def _take(points: Floats, wanted: Bools) -> Floats:
    """The wanted points of each polygon, the first of them repeated where others have more."""
    count = wanted.sum(-1, keepdims=True)
    order = np.argsort(~wanted, axis=-1, kind="stable")[..., : max(count.max(initial=0), 1)]
    order = np.where(np.arange(order.shape[-1]) < count, order, order[..., :1])
    return np.take_along_axis(points, order[..., None], axis=-2)
