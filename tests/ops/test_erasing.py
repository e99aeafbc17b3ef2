"""RandomErasing and GridMask, on images whose pixels encode their origin."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from coded import NOWHERE, coded_batch, pieces
from seeds import slow

import detaug as da

SIZE = (80, 100)
RESIZE = da.Resize(SIZE)
EXACT = 0.01

ERASING = da.RandomErasing(p=0.7, scale=(0.02, 0.6), value=NOWHERE)
MASK = da.GridMask(p=0.7, ratio=0.6, size=(9, 50), value=NOWHERE)


def assert_boxes_are_what_is_left(before: da.Samples, op: da.Op, max_hidden: float) -> int:
    """Compare with the objects that the rule keeps, each with the hull of its pixels. Return how many shrank."""
    after, cut = before.then(op), 0
    for at, image in enumerate(after.images):
        left = [p for p in pieces(image, before) if p.image == at and p.share >= 1 - max_hidden - 1e-9]
        assert sorted(after.labels[at].tolist()) == sorted(piece.label for piece in left)
        found = dict(zip(after.labels[at].tolist(), after.boxes[at], strict=True))
        for piece in left:
            assert np.abs(found[piece.label] - piece.box).max() < EXACT, piece
            cut += not any(np.abs(found[piece.label] - box).max() < EXACT for box in before.boxes[at])
    return cut


@pytest.mark.parametrize("op", [MASK, *slow(ERASING)], ids=lambda op: type(op).__name__)
@pytest.mark.parametrize("n", [32, *slow(1, 2)])
def test_boxes_are_the_hull_of_what_is_left(op: da.Op, n: int, device: str) -> None:
    cut = 0
    for seed in range(1 + 64 // n):
        cut += assert_boxes_are_what_is_left(coded_batch(seed, n, SIZE, device).then(RESIZE), op, 0.7)
    assert cut >= 5


@pytest.mark.parametrize("max_hidden", [0.3, *slow(0.0, 1.0)])
def test_max_hidden_decides_which_boxes_are_dropped(max_hidden: float) -> None:
    before = coded_batch(1, 32, SIZE).then(RESIZE)
    for op in (
        da.RandomErasing(p=1, scale=(0.1, 0.5), value=NOWHERE, max_hidden=max_hidden),
        da.GridMask(p=1, size=(20, 60), value=NOWHERE, max_hidden=max_hidden),
    ):
        assert_boxes_are_what_is_left(before, op, max_hidden)


def test_the_erased_rectangle_is_torchvisions_draw() -> None:
    n, op = 20000, da.RandomErasing(p=0.3)
    samples = da.Resize((60, 50))(da.batch([np.zeros((60, 50, 3), np.uint8)] * 2))
    views = samples.plan.views[np.zeros(n, np.int64)]
    _, planned = op.plan(views, op.draw(np.random.default_rng(0), n))
    (corner, shape), area = np.swapaxes(planned["holes"], 0, 1), 60 * 50
    erased = shape[:, 0] > 0
    assert abs(erased.mean() - 0.3) < 0.01
    corner, shape = corner[erased], shape[erased]
    assert ((corner >= 0) & (corner + shape <= (60, 50))).all()
    assert (shape < (60, 50)).all()
    assert abs((corner / ((60, 50) - shape)).mean() - 0.5) < 0.01

    rng, expected = np.random.default_rng(1), []
    while len(expected) < n:  # torchvision.transforms.RandomErasing.get_params
        for _ in range(10):
            erase, ratio = area * rng.uniform(0.02, 0.33), np.exp(rng.uniform(np.log(0.3), np.log(3.3)))
            h, w = round(np.sqrt(erase * ratio)), round(np.sqrt(erase / ratio))
            if h < 60 and w < 50:
                expected.append((h, w))
                break
    limit = 1.95 * np.sqrt(1 / n + 1 / len(shape))  # Kolmogorov and Smirnov, once in a thousand times
    for axis in (0, 1):
        both = np.sort(np.concatenate([shape[:, axis], np.array(expected)[:, axis]]))
        ours, theirs = (
            np.searchsorted(np.sort(a), both, side="right") / len(a)
            for a in (shape[:, axis], np.array(expected)[:, axis])
        )
        assert np.abs(ours - theirs).max() < limit


def test_an_image_too_small_for_the_rectangle_does_not_change() -> None:
    op = da.RandomErasing(p=1, scale=(1, 1), ratio=(1, 1))
    before = coded_batch(0, 2, (50, 50)).then(da.Resize((50, 50)))
    after = before.then(op)
    assert all(np.array_equal(a, b) for a, b in zip(before.images, after.images, strict=True))


def test_the_grid_is_squares_at_one_distance(device: str) -> None:
    seen = set()
    for seed in range(80):
        samples = coded_batch(seed, 1, SIZE, device).then(RESIZE, da.GridMask(1, 0.4, (10, 20), NOWHERE))
        hidden = (samples.images[0] == 255).all(2)
        across, down = hidden.any(0), hidden.any(1)
        assert np.array_equal(hidden, down[:, None] & across)
        for line in (across, down):
            start = np.flatnonzero(np.diff(line.astype(int)) == 1) + 1
            (distance,) = set(np.diff(start).tolist())
            end = np.flatnonzero(np.diff(line.astype(int)) == -1) + 1
            side = {int(end[end > s][0] - s) for s in start if (end > s).any()}
            assert 10 <= distance <= 20
            assert side == {round(0.4 * distance)}
            seen.add(distance)
    assert seen == set(range(10, 21))


def test_a_box_in_a_square_goes_and_one_beside_it_stays() -> None:
    y, x = np.mgrid[0:80, 0:100].reshape(2, -1)
    boxes = np.stack([x, y, x + 1, y + 1], axis=1)  # a box for each pixel
    samples = da.batch([np.zeros((*SIZE, 3), np.uint8)], [boxes], [np.arange(1, len(boxes) + 1)])
    samples = samples.then(RESIZE, da.GridMask(p=1, size=(10, 30), value=NOWHERE))
    assert samples.labels[0].tolist() == (np.flatnonzero(samples.images[0][..., 0].ravel() == 0) + 1).tolist()


@pytest.mark.parametrize("op", [da.RandomErasing, da.GridMask])
def test_p_is_the_share_of_images_and_0_changes_nothing(op: Any, device: str) -> None:
    before = coded_batch(0, 4, SIZE, device).then(RESIZE)
    after = before.then(op(p=0))
    for name in ("images", "boxes", "labels"):
        assert all(np.array_equal(a, b) for a, b in zip(getattr(before, name), getattr(after, name), strict=True))
    assert np.array_equal(before.matrix, before.then(op(p=1)).matrix)
    drawn = op(p=0.3).draw(np.random.default_rng(0), 20000)
    assert abs(drawn["erase" if op is da.RandomErasing else "mask"].mean() - 0.3) < 0.01


@pytest.mark.parametrize("op", [da.RandomErasing(p=1, value=(1, 2, 3)), da.GridMask(p=1, value=(1, 2, 3))], ids=repr)
def test_value_is_the_colour_also_in_floats(op: da.Op, device: str) -> None:
    photo = da.batch([np.full((300, 300, 3), 200, np.uint8)], device=device)
    for chain in ([op], [da.RandomPhotometricDistort(p=0), op]):
        colors = np.unique(photo.then(da.Resize((300, 300)), *chain).images[0].reshape(-1, 3).round(3), axis=0)
        assert colors.tolist() == [[1, 2, 3], [200, 200, 200]]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: da.RandomErasing(p=1.5), "p must be a probability"),
        (lambda: da.RandomErasing(scale=(0.5, 0.1)), r"scale must be \(smallest, largest\)"),
        (lambda: da.RandomErasing(ratio=(0, 1)), "ratio must be"),
        (lambda: da.RandomErasing(value=0), "value must be three numbers"),
        (lambda: da.RandomErasing(max_hidden=2), "max_hidden must be a fraction"),
        (lambda: da.GridMask(ratio=1), "ratio must be"),
        (lambda: da.GridMask(size=50), "size must be"),
        (lambda: da.GridMask(size=(1, 50)), "size must be"),
        (lambda: da.GridMask(value=()), "value must be three numbers"),
    ],
)
def test_wrong_arguments_are_refused(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()
