"""Ranges without width: an op with (x, x) draws x, and still does what it is for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from dali_pipelines import make
from nvidia.dali import fn

import detaug as da

SIZES = [(100, 200), (120, 90), (150, 150), (60, 240)]


def samples(n: int = 40) -> da.Samples:
    images = [np.zeros((*SIZES[at % len(SIZES)], 3), np.uint8) for at in range(n)]
    return da.batch(images, [[[10, 10, 50, 50]]] * n, seed=1)


@pytest.mark.parametrize(
    ("ratio", "tolerance"), [((1.0, 1.0), 1.0), ((0.5, 0.5), 1.0), ((0.99, 1.01), 2.0), ((1.2, 1.4), 1.0)]
)
def test_windows_have_a_narrow_aspect_ratio(ratio: tuple[float, float], tolerance: float) -> None:
    """Of nearly every image that has room for one; sides drawn apart never have one exact ratio."""
    op = da.RandomIoUCrop(aspect_ratio=ratio, allow_no_crop=False, thresholds=(0.0,))
    views = op(samples(400)).plan.views
    height, width = views.size.T
    full = np.array([SIZES[at % len(SIZES)] for at in range(400)], float)
    has_room = (ratio[1] * full[:, 0] > 0.3 * full[:, 1]) & (0.3 * ratio[0] * full[:, 0] < full[:, 1])
    cropped = (views.size != full).any(1)
    assert cropped[has_room].mean() > 0.95
    assert has_room.mean() >= 0.5
    low, high = ratio[0] * height - 2 * tolerance, ratio[1] * height + 2 * tolerance
    assert ((low <= width) & (width <= high))[cropped].all()
    assert len(np.unique(np.round(width[cropped]))) > 10  # sizes still differ
    assert (views.size >= 0.3 * full - 1).all()


def test_dalis_crop_has_a_narrow_aspect_ratio() -> None:
    def nodes() -> Any:
        boxes = fn.external_source(lambda: [np.float32([[0.1, 0.1, 0.6, 0.6]])] * 16)
        labels = fn.external_source(lambda: [np.int32([1])] * 16)
        image = fn.external_source(lambda: [np.zeros((100, 150, 3), np.uint8)] * 16, layout="HWC")
        options = {"aspect_ratio": (1.0, 1.0), "allow_no_crop": False, "thresholds": (0.0, 0.1)}
        return tuple(da.fn.random_bbox_crop(image, boxes, labels, **options)[:1])

    (images,) = make(nodes, 16).run()
    shapes = [images.at(at).shape[:2] for at in range(16)]
    assert all(abs(height - width) <= 2 for height, width in shapes)
    assert len(set(shapes)) > 4


FIXED: list[tuple[da.Op, str, float]] = [
    (da.RandomZoomOut(2.5, p=1, min_ratio=2.5), "ratio", 2.5),
    (da.RandomRotation((20, 20)), "angle", 20),
    (da.RandomAffine((-7, -7), scale=(0.8, 0.8), shear=(3, 3, 2, 2)), "scale", 0.8),
    (da.RandomResizedCrop((50, 50), scale=(0.5, 0.5), ratio=(1, 1)), "window", np.nan),
]


@pytest.mark.parametrize(("op", "name", "value"), FIXED, ids=lambda each: type(each).__name__)
def test_an_op_draws_the_one_value(op: da.Op, name: str, value: float) -> None:
    after = samples().then(op)
    drawn = after.params[0]
    if not np.isnan(value):
        assert np.unique(drawn[name]).tolist() == [value]
    assert all(np.isfinite(each).all() for each in drawn.values() if np.asarray(each).dtype.kind == "f")
    assert len(np.concatenate(after.boxes)) > 10


def test_erasing_of_one_size_erases() -> None:
    after = samples().then(da.Resize((100, 100)), da.RandomErasing(p=1, scale=(0.25, 0.25), ratio=(1, 1)))
    holes = after.plan.views.drawing_or_whole().layers.rectangle[:, -1]
    assert np.unique(holes[:, 2:] - holes[:, :2]).tolist() == [50]


@pytest.mark.parametrize(
    ("make_op", "message"),
    [
        (lambda: da.RandomRotation(-10), r"degrees must be \(smallest, largest\), or one number d from 0"),
        (lambda: da.RandomRotation((10, -10)), "degrees must be"),
        (lambda: da.RandomAffine(-1), "degrees must be"),
        (lambda: da.RandomAffine(shear=-5), "shear must be"),
        (lambda: da.RandomAffine(shear=(5, -5)), r"shear must be \(smallest, largest\), or one number from 0"),
        (lambda: da.RandomChoice([da.RandomHorizontalFlip(), da.RandomVerticalFlip()], ()), "probabilities must be 2"),
        (lambda: da.RandomZoomOut(2, min_ratio=3), "min_ratio must be from 1 to max_ratio, got 3"),
        (lambda: da.RandomZoomOut(2, min_ratio=0.5), "min_ratio must be from 1 to max_ratio"),
        (lambda: da.RandomIoUCrop(aspect_ratio=(0, 0)), "aspect_ratio must be"),
    ],
)
def test_ranges_that_are_none_are_refused(make_op: Any, message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        make_op()


def test_a_zoom_of_at_least_twice() -> None:
    ratio = samples(400).then(da.RandomZoomOut(4, p=1, min_ratio=2)).params[0]["ratio"]
    assert 2 <= ratio.min() < 2.1
    assert 3.9 < ratio.max() <= 4


@pytest.mark.parametrize(
    "ops", [[], [da.RandomHorizontalFlip(p=1)], [da.RandomVerticalFlip(p=1), da.Resize((375, 500))]]
)
def test_whole_coordinates_stay_whole(ops: list[da.Op]) -> None:
    """324 / 500 * 500 is 323.99999999999994, and a whole number that is cut off is then one less."""
    rng = np.random.default_rng(0)
    image = np.zeros((375, 500, 3), np.uint8)
    low = rng.integers(0, (250, 180), (500, 2))
    boxes = np.concatenate([low, low + rng.integers(1, 180, (500, 2))], axis=1).astype(float)
    found = da.batch([image], [boxes]).then(*ops).boxes[0]
    assert (found == np.round(found)).all()
    _, target = da.Compose(ops)(image, {"boxes": boxes, "labels": [1] * 500})
    assert (target["boxes"] == found).all()
    if not ops:
        assert (found == boxes).all()


def test_samples_take_pixel_ops_without_resize() -> None:
    image = np.full((20, 30, 3), 100, np.uint8)
    after = da.batch([image]).then(da.RandomInvert(p=1))
    assert (after.images[0] == 155).all()
    assert after.ops == (da.RandomInvert(p=1),)
    cropped = da.batch([image]).then(da.CenterCrop((10, 10))).then(da.RandomInvert(p=1))
    assert cropped.images[0].shape == (10, 10, 3)
