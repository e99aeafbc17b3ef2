"""The compiled loops of planning against the same rules in NumPy, on random boxes."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from detaug.boxes import polygons

Array = NDArray[np.float64]


def cut(points: Array, distance: Array) -> Array:
    """Cut convex polygons (B, V, 2) by Sutherland and Hodgman's rule, on padded arrays."""
    within, after = distance >= 0, np.roll(distance, -1, -1)
    crosses = within != (after >= 0)
    share = (distance / np.where(crosses, distance - after, 1))[..., None]
    both = np.stack([points, points + share * (np.roll(points, -1, -2) - points)], axis=-2)
    wanted = np.stack([within, crosses], axis=-1).reshape(len(points), -1)
    count = wanted.sum(-1, keepdims=True)
    order = np.argsort(~wanted, axis=-1, kind="stable")[:, : max(count.max(), 1)]
    order = np.where(np.arange(order.shape[-1]) < count, order, order[:, :1])
    return np.take_along_axis(both.reshape(len(points), -1, 2), order[..., None], axis=-2)


def distinct(polygon: Array) -> Array:
    """Return the points of a polygon without those that repeat the point before them, or the first one at the end."""
    polygon = polygon[np.append(True, (np.diff(polygon, axis=0) != 0).any(1))]
    return polygon[:-1] if len(polygon) > 1 and (polygon[-1] == polygon[0]).all() else polygon


@pytest.mark.parametrize("sides", [3, 4, 11, 64])
def test_polygons_are_clipped_as_by_numpy(sides: int) -> None:
    """Bit for bit, among them polygons wholly outside and inside of the square."""
    rng = np.random.default_rng(sides)
    angle = np.sort(rng.uniform(0, 2 * np.pi, (500, sides)))
    circle = np.stack([np.cos(angle), np.sin(angle)], axis=2)
    whole = rng.uniform(-0.3, 1.3, (500, 1, 2)) + circle * rng.uniform(0.02, 0.9, (500, 1, 1))
    expected = whole
    for axis in (0, 1):
        expected = cut(expected, expected[..., axis])
        expected = cut(expected, 1 - expected[..., axis])
    clipped = polygons.clip(whole)
    for one, other in zip(clipped, expected, strict=True):
        np.testing.assert_array_equal(distinct(one), distinct(other))
    low, high = expected.min(1), expected.max(1)
    np.testing.assert_array_equal(polygons.hull(clipped), np.concatenate([low, high], axis=1))
    (x, y), (next_x, next_y) = np.moveaxis(clipped, 2, 0), np.moveaxis(np.roll(clipped, -1, axis=1), 2, 0)
    np.testing.assert_allclose(polygons.area(clipped), abs((x * next_y - next_x * y).sum(1)) / 2, atol=1e-15)
    assert polygons.clip(whole, np.arange(500) < 3)[3:].any() == 0
    np.testing.assert_array_equal(polygons.clip(whole, np.arange(500) < 3)[:3, :3], polygons.clip(whole[:3])[:, :3])
