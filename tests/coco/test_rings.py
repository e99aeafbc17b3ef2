"""Polygons: masks traced and joined are the same pixels; cut rings and smallest rectangles are those of Shapely."""

from __future__ import annotations

import numpy as np
import pytest
from even_odd import even_odd
from numpy.typing import NDArray
from shapely.geometry import MultiPoint, Polygon
from shapely.geometry import box as shapely_box

from detaug.coco import rings
from detaug.coco.outlines import decode_counts
from detaug.coco.rings import (
    area_of,
    cut_ring,
    join_rings,
    keys_of_mask,
    mask_of_runs,
    rings_of_mask,
    smallest_rectangle,
    without_overlaps,
)


def random_mask(seed: int) -> NDArray[np.bool_]:
    """Return noise, or in every third case a rectangle with holes of noise."""
    rng = np.random.default_rng(seed)
    mask = rng.random(rng.integers(3, 14, 2)) < rng.random()
    if seed % 3 == 0:
        mask[:] = True
        mask[1:-1, 1:-1] = rng.random((mask.shape[0] - 2, mask.shape[1] - 2)) < 0.5
    return mask


@pytest.mark.parametrize("seed", range(60))
def test_a_traced_mask_filled_again_is_the_mask(seed: int) -> None:
    mask = random_mask(seed)
    rings = rings_of_mask(mask)
    assert (even_odd(rings, mask.shape) == mask).all()
    assert not rings or (even_odd([join_rings(rings)], mask.shape) == mask).all()


@pytest.mark.parametrize("seed", range(60))
def test_rings_that_overlap_become_their_union(seed: int) -> None:
    """Up to five convex rings: their even-odd fill is the union, and rings apart from the others stay."""
    rng = np.random.default_rng(seed)
    rings = []
    for _ in range(rng.integers(1, 6)):
        angles = np.sort(rng.uniform(0, 2 * np.pi, rng.integers(3, 9)))
        ring = rng.uniform(-3, 33, 2) + rng.uniform(1, 9) * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        rings.append(ring)
    painted = [even_odd([ring + 20], (80, 80)) for ring in rings]
    found, traced = without_overlaps(rings)
    assert traced == bool((np.sum(painted, axis=0) > 1).any())
    assert (even_odd([ring + 20 for ring in found], (80, 80)) == np.any(painted, axis=0)).all()
    assert (even_odd([join_rings(found) + 20], (80, 80)) == np.any(painted, axis=0)).all()
    for ring, own in zip(rings, painted, strict=True):
        others = np.sum([each & own for each in painted], axis=0).max() > 1
        assert any(each is ring for each in found) == (not others)


def test_large_rings_cost_what_they_have_in_common(monkeypatch: pytest.MonkeyPatch) -> None:
    painted: list[int] = []
    paint = rings.paint_ring
    monkeypatch.setattr(rings, "paint_ring", lambda ring, window: painted.append(window) or paint(ring, window))
    square = np.array([[0.0, 0], [10, 0], [10, 10], [0, 10]])
    assert without_overlaps([square, square + 2_000])[1] is False
    assert painted == []
    frame = square * 200
    assert without_overlaps([frame, square + 2_001])[1] is False
    assert without_overlaps([frame, frame + 1_995])[1] is True
    assert painted[:2] == [(1_995, 1_995, 2_000, 2_000)] * 2


def test_pixels_that_meet_at_a_corner_are_two_rings() -> None:
    for mask in (np.eye(2, dtype=bool), np.eye(2, dtype=bool)[::-1]):
        assert [len(ring) for ring in rings_of_mask(mask)] == [4, 4]


def test_bridges_are_short() -> None:
    """Each bridge is walked twice, between the nearest points of the rings, whichever ring comes first."""
    square = np.array([[0.0, 0], [2, 0], [2, 2], [0, 2]])
    rings = [square, *(np.roll(square, 2, 0) + np.array([x, 0]) for x in (30, 10))]
    joined = join_rings(rings)
    assert np.hypot(*(np.roll(joined, -1, 0) - joined).T).sum() == pytest.approx(3 * 8 + 2 * (8 + 18))


@pytest.mark.parametrize("seed", range(20))
def test_runs_of_a_mask_are_the_mask(seed: int) -> None:
    mask = random_mask(seed)
    keys = keys_of_mask(mask)
    ends = np.cumsum(decode_counts(keys["segmentation"]["counts"]))
    assert (mask_of_runs(ends, *mask.shape) == mask).all()
    assert (keys["area"], keys["segmentation"]["size"]) == (mask.sum(), [*mask.shape])


@pytest.mark.parametrize("seed", range(60))
def test_smallest_rectangles_and_cut_rings_are_shapelys(seed: int) -> None:
    points = np.random.default_rng(seed).uniform(-5, 15, (3 + seed % 6, 2))
    corners = smallest_rectangle(points)
    assert area_of(corners) == pytest.approx(MultiPoint(points).minimum_rotated_rectangle.area)
    assert Polygon(corners).buffer(1e-6).contains(MultiPoint(points))
    hull = np.array(MultiPoint(points).convex_hull.exterior.coords)[:-1]
    cut = cut_ring(hull, 10, 8)
    expected = Polygon(hull).intersection(shapely_box(0, 0, 10, 8)).area
    assert (area_of(cut) if len(cut) else 0) == pytest.approx(expected)


@pytest.mark.parametrize("points", [[[3, 4]], [[3, 4], [3, 4]], [[1, 1], [5, 5]], [[1, 1], [2, 2], [5, 5]]])
def test_rectangles_around_points_on_a_line_have_no_area(points: list[list[float]]) -> None:
    corners = smallest_rectangle(np.array(points, float))
    assert area_of(corners) == pytest.approx(0)
    np.testing.assert_allclose([corners.min(0), corners.max(0)], [np.min(points, 0), np.max(points, 0)], atol=1e-9)


def test_a_cut_concave_ring_ends_where_its_parts_end() -> None:
    """Stars near a corner of the image: the box around what is left is that of Shapely's parts."""
    rng, image, angles = np.random.default_rng(0), shapely_box(0, 0, 10, 10), np.arange(24) * np.pi / 12
    for _ in range(300):
        star = rng.choice([0.0, 10.0], 2) + rng.uniform(-4, 4, 2)
        star = star + rng.uniform(0.5, 8, 24)[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
        cut, expected = cut_ring(star, 10, 10), Polygon(star).intersection(image)
        if expected.area:
            assert area_of(cut) == pytest.approx(expected.area, abs=1e-9)
            assert (*cut.min(0), *cut.max(0)) == pytest.approx(expected.bounds, abs=1e-9)
