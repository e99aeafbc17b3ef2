"""The compiled loops of planning against the same rules in NumPy, on random boxes."""

from __future__ import annotations

import signal

import numpy as np
import pytest
from numpy.typing import NDArray

import detaug as da
from detaug.arrays import in_rooms, padded
from detaug.boxes import polygons
from detaug.boxes.views import Views, whole_images

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


def random_views(n: int, seed: int) -> Views:
    """Return views of images of 300 x 400 with 0 to 6 boxes each."""
    rng = np.random.default_rng(seed)
    start, labels = rng.uniform(0, 0.8, (n, 6, 2)), np.where(np.arange(6) < rng.integers(0, 7, n)[:, None], 1, -1)
    boxes = np.concatenate([start, np.minimum(start + rng.uniform(0.02, 0.6, (n, 6, 2)), 1)], axis=2)
    return whole_images(boxes, labels, np.tile([300.0, 400.0], (n, 1)))


def numbers(seed: int, counter: int) -> tuple[float, float]:
    """Return the halves of one output of SplitMix64, with Python's whole numbers."""
    bits = (seed + counter * 0x9E3779B97F4A7C15) % 2**64
    bits = (bits ^ bits >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    bits = (bits ^ bits >> 27) * 0x94D049BB133111EB % 2**64
    bits ^= bits >> 31
    return (bits >> 12) / 2**52, (bits % 2**32 << 20) / 2**52


def window_of(boxes: Array, seed: int, op: da.RandomIoUCrop) -> tuple[float, float, float, float]:
    """Search as SSD does, one window after the other, without leaving any out early."""
    low, high = op.scaling
    whole = boxes[:, 2:] - boxes[:, :2]
    limits = [*(whole / low).T, *(high / whole).T, whole.prod(1) / low**2]
    reachable = [iou for iou in sorted(op.thresholds) if iou <= np.min(limits, axis=0).max()]
    for number in range(8):
        choice = int(numbers(seed, number % 4)[number // 4] * (len(reachable) + op.allow_no_crop))
        if choice >= len(reachable):
            break
        for attempt in range(op.attempts * number, op.attempts * (number + 1)):
            sides = low + (high - low) * np.array(numbers(seed, 8 + 2 * attempt))
            if not op.aspect_ratio[0] <= sides[0] / sides[1] * 400 / 300 <= op.aspect_ratio[1]:
                continue
            start = np.array(numbers(seed, 9 + 2 * attempt)) * (1 - sides)
            pixels = np.array([400, 300])
            start, end = np.floor(start * pixels + 1e-6) / pixels, np.ceil((start + sides) * pixels - 1e-6) / pixels
            overlap = (np.minimum(boxes[:, 2:], end) - np.maximum(boxes[:, :2], start)).clip(0).prod(1)
            union = whole.prod(1) + (end - start).prod() - overlap
            middle = (boxes[:, :2] + boxes[:, 2:]) / 2
            inside = ((middle > start) & (middle < end)).all(1)
            if op.min_visibility is not None:
                inside = overlap >= op.min_visibility * whole.prod(1)
            if (inside & (overlap >= reachable[choice] * union)).any():
                return (*start, *end)
    return 0, 0, 1, 1


@pytest.mark.parametrize("op", [da.RandomIoUCrop(), da.RandomIoUCrop((0.5, 0.9), min_visibility=0.4, attempts=7)])
def test_windows_are_those_of_a_search_one_by_one(op: da.RandomIoUCrop) -> None:
    views = random_views(150, 0)
    seeds = np.random.default_rng(1).integers(1 << 64, size=150, dtype=np.uint64)
    found = op.adapt_draw(views, {"crop": np.ones(150, bool), "seed": seeds})["window"]
    for boxes, labels, seed, window in zip(views.boxes, views.labels, seeds.tolist(), found, strict=True):
        real = boxes[labels >= 0]
        expected = window_of(real, seed, op) if len(real) else (0, 0, 1, 1)
        np.testing.assert_allclose(window, expected, atol=1e-12)


@pytest.mark.parametrize("min_visibility", [0, 0.2])
def test_mosaics_move_boxes_as_numpy_does(min_visibility: float) -> None:
    """Each tile with each box of its image, clipped, moved, and dropped by the rule, some for being half a pixel."""
    views, op = random_views(256, 2), da.Mosaic(min_visibility=min_visibility)
    moved, planned = op.plan(views, op.draw(np.random.default_rng(3), 256))
    sides = np.array([400.0, 300.0])
    for image, tiles in enumerate(planned["tiles"]):
        expected = []
        for number, start, target, shape in zip(*tiles, strict=True):
            slot, corner, to, room = number[0], start[::-1], target[::-1], shape[::-1]
            boxes = views.boxes[slot][views.labels[slot] >= 0].reshape(-1, 2, 2) * sides
            clipped = boxes.clip(corner, corner + room)
            whole, left = boxes[:, 1] - boxes[:, 0], clipped[:, 1] - clipped[:, 0]
            stays = (left >= np.minimum(whole, 1)).all(1) & (left > 0).all(1)
            stays &= left.prod(1) >= min_visibility * whole.prod(1)
            expected += [*((clipped - corner + to)[stays] / sides).reshape(-1, 4)]
        found = moved.boxes[image][moved.labels[image] >= 0]
        assert len(found) == len(expected)
        order = [np.lexsort(np.round(each, 9).T) for each in (found, np.reshape(expected, (-1, 4)))]
        np.testing.assert_allclose(found[order[0]], np.reshape(expected, (-1, 4))[order[1]], atol=1e-12)


def test_boxes_are_cropped_and_clipped_as_numpy_does() -> None:
    views, rng = random_views(40, 4), np.random.default_rng(5)
    start, end = rng.uniform(0, 0.4, (40, 2)), rng.uniform(0.6, 1, (40, 2))
    start[::2], end[::2] = end[::2].copy(), start[::2].copy()  # mirrors
    real = views.labels >= 0
    corners = (views.boxes.reshape(40, 6, 2, 2) - start[:, None, None]) / (end - start)[:, None, None]
    whole = np.concatenate([corners.min(2), corners.max(2)], axis=2)
    cropped = views.crop_to(start, end)
    np.testing.assert_array_equal(cropped.boxes[real], whole[real])
    clipped, expected = cropped.clip(), whole.clip(0, 1)
    np.testing.assert_array_equal(clipped.boxes[real], expected[real])
    before, after = ((each[..., 2:] - each[..., :2]).prod(2) for each in (whole, expected))
    np.testing.assert_array_equal(clipped.visible[real], np.minimum(after / before, 1)[real])
    np.testing.assert_array_equal(clipped.labels >= 0, real & (expected[..., :2] < expected[..., 2:]).all(2))


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.bool_])
def test_rows_are_padded(dtype: type) -> None:
    count, room = np.array([2, 0, 3]), np.array([2, 1, 4])
    rows = np.arange(5).astype(dtype)
    one = np.ones(1, dtype)[0]
    joined = np.concatenate([rows[:2], [one], rows[2:], [one]]).astype(dtype)
    np.testing.assert_array_equal(in_rooms(rows, count, room, 1), joined)
    assert padded(np.stack([rows, rows], axis=1), count, 1).shape == (3, 3, 2)
    assert padded(rows[:0], np.zeros(0, np.int64), 1).shape == (0, 0)


def test_ctrl_c_in_a_loop_is_a_keyboard_interrupt() -> None:
    """Numba raises a SystemError from it. A timer's signal stands for Ctrl-C: the loop takes much longer than it."""
    from detaug.boxes import box_loops

    boxes, labels = np.zeros((1, 4_000_000, 4)), np.zeros((1, 4_000_000), np.int64)
    box_loops.clip(boxes[:, :1], labels[:, :1])

    def interrupted() -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        box_loops.clip(boxes, labels)

    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            interrupted()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
