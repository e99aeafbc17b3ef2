"""What geometric ops draw: their ranges and probabilities."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import detaug as da

N = 20_000
RNG_SEED = 11


def drawn_by(op: da.Op) -> dict[str, np.ndarray]:
    return op.draw(np.random.default_rng(RNG_SEED), N)


def assert_uniform(values: np.ndarray, low: float, high: float) -> None:
    """Chi-square over 20 bins; 43.8 is passed once in a thousand times."""
    assert low <= values.min() and values.max() <= high  # noqa: PT018
    counts, _ = np.histogram(values, 20, (low, high))
    expected = values.size / 20
    assert ((counts - expected) ** 2 / expected).sum() < 43.8


def assert_rate(applied: np.ndarray, p: float) -> None:
    assert abs(applied.mean() - p) < 4 * np.sqrt(p * (1 - p) / len(applied))


@given(p=st.floats(0, 1), n=st.just(4000), seed=st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
@pytest.mark.parametrize("make", [da.RandomHorizontalFlip, da.RandomVerticalFlip])
def test_a_flip_happens_with_its_probability(make: type, p: float, n: int, seed: int) -> None:
    share = make(p=p).draw(np.random.default_rng(seed), n)["flip"].mean()
    assert abs(share - p) < 5 * np.sqrt(p * (1 - p) / n) + 1e-9


def test_zoom_out_draws_what_its_docstring_says() -> None:
    drawn = da.RandomZoomOut(max_ratio=3.0, p=0.4).draw(np.random.default_rng(0), 20000)
    applied = drawn["ratio"] > 1
    assert abs(applied.mean() - 0.4) < 0.02
    assert drawn["ratio"].max() <= 3
    assert abs(drawn["ratio"][applied].mean() - 2) < 0.02
    assert abs(drawn["offset"].mean() - 0.5) < 0.02


def test_rotation_draws_its_range() -> None:
    angle = drawn_by(da.RandomRotation((-10, 40), p=0.3))["angle"]
    assert_rate(angle != 0, 0.3)
    assert_uniform(angle[angle != 0], -10, 40)


def test_quarter_turns_are_alike() -> None:
    turns = drawn_by(da.RandomRotate90(p=0.6))["turns"]
    assert_rate(turns > 0, 0.6)
    for quarter in (1, 2, 3):
        assert_rate(turns == quarter, 0.2)


def test_affine_draws_its_ranges() -> None:
    drawn = drawn_by(da.RandomAffine((5, 9), (0.1, 0.4), (0.5, 0.9), (1, 2, -8, 4), p=0.7))
    applied = drawn["angle"] != 0
    assert_rate(applied, 0.7)
    assert_uniform(drawn["angle"][applied], 5, 9)
    assert_uniform(drawn["scale"][applied], 0.5, 0.9)
    for axis, most in enumerate((0.1, 0.4)):
        assert_uniform(drawn["translate"][applied, axis], -most, most)
    assert_uniform(drawn["shear"][applied, 0], 1, 2)
    assert_uniform(drawn["shear"][applied, 1], -8, 4)
    still = [np.unique(drawn[name][~applied]).tolist() for name in ("angle", "scale", "translate", "shear")]
    assert still == [[0], [1], [0], [0]]


def test_perspective_draws_its_corners() -> None:
    corners = drawn_by(da.RandomPerspective(0.6, p=0.4))["corners"]
    applied = corners.any((1, 2))
    assert_rate(applied, 0.4)
    for at in np.ndindex(4, 2):
        assert_uniform(corners[(applied, *at)], 0, 0.3)


def test_crops_draw_their_places() -> None:
    drawn = drawn_by(da.RandomCrop(8, p=0.2))
    assert_rate(drawn["crop"], 0.2)
    for axis in (0, 1):
        assert_uniform(drawn["offset"][:, axis], 0, 1)
    drawn = drawn_by(da.RandomBoxSafeCrop(p=0.9))
    assert_rate(drawn["crop"], 0.9)
    for name in ("start", "end"):
        assert_uniform(drawn[name], 0, 1)


def test_scale_jitter_draws_its_scale() -> None:
    drawn = drawn_by(da.ScaleJitter((9, 9), scale=(0.2, 1.7)))
    assert_rate(da.ScaleJitter((9, 9), p=0.4).draw(np.random.default_rng(RNG_SEED), N)["applied"], 0.4)
    assert_uniform(drawn["scale"], 0.2, 1.7)
    assert_uniform(drawn["offset"], 0, 1)


@pytest.mark.parametrize("square", [False, True])
def test_a_size_crop_is_that_of_detr(square: bool) -> None:
    """Its windows in pixels of the image of 20 x 40: whole ones, of sizes and at places that are equally likely."""
    cropped = da.RandomSizeCrop(16, 24, shortest_size=(20,), square=square)(
        da.batch([np.zeros((10, 20, 3), np.uint8)] * 2000, seed=5)
    )
    scale = cropped.matrix[:, [0, 1], [0, 1]] / 2  # of the output to the resized image
    sides = np.array([image.shape[1::-1] for image in cropped.images]) / scale
    starts = -cropped.matrix[:, :2, 2] / scale
    assert np.abs([sides - sides.round(), starts - starts.round()]).max() < 1e-6
    sides, starts = sides.round().astype(int), starts.round().astype(int)
    for axis, (length, largest) in enumerate(((40, 20 if square else 24), (20, 20))):
        assert_alike(sides[:, axis], 16, largest)
        for side in range(16, largest + 1):
            assert_alike(starts[sides[:, axis] == side, axis], 0, length - side)
    assert (sides[:, 0] == sides[:, 1]).all() == square


def assert_alike(values: np.ndarray, low: int, high: int) -> None:
    """Of whole numbers: each comes equally often, but for five standard deviations."""
    counts = np.bincount(values, minlength=high + 1)
    assert not counts[:low].any()
    expected = len(values) / (high + 1 - low)
    assert (np.abs(counts[low:] - expected) < 5 * np.sqrt(expected)).all()
    assert len(counts) == high + 1


def test_a_size_crop_keeps_what_is_smaller_and_takes_each_size() -> None:
    op = da.RandomSizeCrop(40, 60, shortest_size=(20, 30), p=0.3)
    drawn = drawn_by(op)
    assert_rate(drawn["applied"], 0.3)
    assert_rate(drawn["shortest"] == 0, 0.5)
    image = np.random.default_rng(0).integers(0, 256, (50, 50, 3), np.uint8)
    assert all(
        np.array_equal(each, image)
        for each in da.RandomSizeCrop(60, 70, shortest_size=None)(da.batch([image] * 4)).images
    )


@pytest.mark.parametrize("shortest", [None, (17,)])
@pytest.mark.parametrize("square", [False, True])
def test_a_size_crop_of_a_crop_lies_in_the_image(shortest: tuple[int, ...] | None, square: bool) -> None:
    """A crop leaves a view of parts of pixels, here of 20 of 30 pixels, which are 13.3 of 20."""
    first = da.RandomSizeCrop(20, 20, shortest_size=(30,), square=square)
    samples = first(da.batch([np.zeros((20, 40, 3), np.uint8)] * 300, [[[0, 0, 40, 20]]] * 300))
    after = da.RandomSizeCrop(4, 30, shortest_size=shortest, square=square)(samples)
    for matrix, image, (box,) in zip(after.matrix, after.images, after.boxes, strict=True):
        height, width = image.shape[:2]
        ends = np.array([[0, 0], [width, height]])
        window = (ends - matrix[:, 2]) / np.diag(matrix)
        assert (window[0] > -1e-6).all()
        assert (window[1] < (40 + 1e-6, 20 + 1e-6)).all()
        assert box == pytest.approx([0, 0, width, height], abs=0.5)


def test_sizes_are_alike() -> None:
    for op in (da.Resize([(8, 8), (9, 9), (7, 7), (6, 6)]), da.RandomShortestSize((8, 9, 7, 6))):
        for size in range(4):
            assert_rate(drawn_by(op)["size"] == size, 0.25)


@pytest.mark.parametrize("op", [
    da.RandomHorizontalFlip(p=0), da.RandomVerticalFlip(p=0), da.RandomRotate90(p=0), da.RandomZoomOut(p=0),
    da.RandomRotation(30, p=0), da.RandomAffine(30, p=0), da.RandomPerspective(p=0), da.RandomCrop(9, p=0),
    da.RandomBoxSafeCrop(p=0), da.RandomIoUCrop(p=0), da.ScaleJitter((9, 9), p=0), da.Pad(0), da.RandomAffine(0),
    da.RandomSizeCrop(p=0),
], ids=repr)  # fmt: skip
def test_an_op_that_was_not_drawn_leaves_all_as_it_is(op: da.Op, device: str) -> None:
    image = np.random.default_rng(0).integers(0, 256, (50, 70, 3), np.uint8)
    samples = op(da.batch([image] * 4, [[[3, 4, 50, 30]]] * 4, device=device))
    for each, boxes in zip(samples.images, samples.boxes, strict=True):
        assert np.array_equal(each, image)
        assert boxes == pytest.approx(np.array([[3, 4, 50, 30]]), abs=1e-9)
