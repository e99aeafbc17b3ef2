"""Ops against torchvision's kernels and draws, a second implementation by others.

Coordinates are compared with the parameters that were drawn, read off `samples.matrix`. Draws are compared as
distributions: two samples of n and m draws of one distribution differ by more than `1.95 * sqrt(1 / n + 1 / m)`
(Kolmogorov and Smirnov) once in a thousand times, and the seeds are fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from reference import import_torchvision
from seeds import slow

import detaug as da
from detaug.arrays import Arrays
from detaug.boxes.views import Views
from detaug.gpu.color_steps import CONTRAST, SATURATION
from detaug.ops.resize import OwnSize

SIZE = (240, 320)
BOXES = np.array([[0, 0, 320, 240], [100, 80, 200, 160], [10.25, 20.5, 11.25, 230], [300, 0, 320, 9.75]])

try:
    import_torchvision()
    from torchvision import tv_tensors
    from torchvision.transforms import v2
    from torchvision.transforms.v2 import functional as tv
except (ImportError, RuntimeError) as error:
    pytest.skip(f"torchvision, the reference, cannot be imported: {error}", allow_module_level=True)


# ------------------------------------------------------------------------------------------ coordinates


def photo(size: tuple[int, int] = SIZE) -> np.ndarray:
    """A smooth (H, W, 3) image, with detail of some pixels."""
    noise = np.random.default_rng(0).integers(0, 256, (size[0] // 10, size[1] // 10, 3), np.uint8)
    return np.asarray(Image.fromarray(noise).resize(size[::-1], Image.Resampling.BICUBIC))


def photos(n: int, seed: int = 0) -> da.Samples:
    return da.batch([photo()] * n, [BOXES] * n, [[1, 2, 3, 4]] * n, seed=seed)


def reference() -> tuple[Any, Any]:
    """Return the same image and boxes with torchvision's types, by which its kernels are chosen."""
    image = tv_tensors.Image(torch.from_numpy(photo().copy()).permute(2, 0, 1))
    return image, tv_tensors.BoundingBoxes(torch.from_numpy(BOXES), format="XYXY", canvas_size=SIZE)


def assert_same_boxes(boxes: np.ndarray, expected: Any) -> None:
    assert np.abs(boxes - np.asarray(expected)).max() < 1e-3  # pixels


def mean_difference(image: np.ndarray, expected: Any) -> float:
    return float(np.abs(image.astype(float) - np.asarray(expected.permute(1, 2, 0)).astype(float)).mean())


@pytest.mark.parametrize(
    ("op", "flip", "axis"),
    [(da.RandomHorizontalFlip(), tv.horizontal_flip, 0), (da.RandomVerticalFlip(), tv.vertical_flip, 1)],
    ids=["horizontal", "vertical"],
)
def test_flips(op: da.Op, flip: Callable[[Any], Any], axis: int) -> None:
    samples = op(photos(12))
    flipped = samples.matrix[:, axis, axis] < 0
    assert 0 < flipped.sum() < 12
    for image, boxes, was_flipped in zip(samples.images, samples.boxes, flipped, strict=True):
        expected = [flip(each) if was_flipped else each for each in reference()]
        assert mean_difference(image, expected[0]) == 0
        assert_same_boxes(boxes, expected[1])


@pytest.mark.parametrize("size", [(240, 320), (300, 300), (64, 500), (100, 41), 150, 320])
def test_resize(size: int | tuple[int, int]) -> None:
    samples = da.Resize(size)(photos(1))
    image, boxes = (tv.resize(each, [size] if isinstance(size, int) else size, antialias=True) for each in reference())
    assert samples.images[0].shape[:2] == tuple(image.shape[1:])
    assert mean_difference(samples.images[0], image) < 1
    assert_same_boxes(samples.boxes[0], boxes)


def test_resize_to_a_shorter_side_has_torchvisions_size() -> None:
    for height, width in [(948, 1909), (721, 298), (480, 640), (640, 427), (375, 500), (1, 7)]:
        image = np.zeros((height, width, 3), np.uint8)
        for size, max_size in [(800, 1333), (600, 1000), (37, 61)]:
            resized = da.Resize(size, max_size=max_size)(da.batch([image]))
            expected = tv.resize(torch.from_numpy(image).permute(2, 0, 1), [size], max_size=max_size, antialias=True)
            assert resized.images[0].shape[:2] == tuple(expected.shape[1:])


@pytest.mark.parametrize(("resize", "size"), [(256, 224), (160, 130), ((100, 150), (90, 91)), (96, (120, 60))])
def test_a_center_crop_of_the_resized_image(resize: Any, size: Any) -> None:
    """The last one is larger than the image, and torchvision's fill is black."""
    samples = photos(1).then(da.Resize(resize), da.CenterCrop(size, fill=(0.0, 0.0, 0.0)))
    both = v2.Compose([v2.Resize(resize, antialias=True), v2.CenterCrop(size)])
    image, boxes = both(*reference())
    assert samples.images[0].shape[:2] == tuple(image.shape[1:])
    assert mean_difference(samples.images[0], image) < 1
    visible = (np.asarray(boxes)[:, 2:] > np.asarray(boxes)[:, :2]).all(1)
    assert_same_boxes(samples.boxes[0], np.asarray(boxes)[visible])


@pytest.mark.parametrize("window", [(0, 0, 320, 240), (30, 40, 250, 200), (101, 7, 164, 231), (319, 239, 320, 240)])
def test_a_crop_in_whole_pixels(window: tuple[int, int, int, int]) -> None:
    samples = photos(1).then(Crop(window), da.Resize((96, 128)))
    x0, y0, x1, y1 = window
    image, boxes = (tv.resized_crop(each, y0, x0, y1 - y0, x1 - x0, [96, 128], antialias=True) for each in reference())
    assert mean_difference(samples.images[0], image) < 1
    assert_same_boxes(samples.boxes[0], tv.clamp_bounding_boxes(boxes)[samples.labels[0] - 1])


@dataclass(frozen=True)
class Crop(da.GeometricOp):
    """To a window of whole pixels, XYXY."""

    window: tuple[int, int, int, int]

    def move(self, views: Views, drawn: Arrays) -> Views:
        window = np.array(self.window) / np.tile(views.size[:, ::-1], 2)
        seen = views.crop_to(window[:, :2], window[:, 2:])
        return seen.clip((seen.labels >= 0) & (seen.boxes[..., :2] < 1).all(2) & (seen.boxes[..., 2:] > 0).all(2))


def test_random_iou_crop() -> None:
    samples = da.RandomIoUCrop(allow_no_crop=False)(photos(60)).then(da.Resize((300, 300)))
    cropped = 0
    for matrix, boxes, labels in zip(samples.matrix, samples.boxes, samples.labels, strict=True):
        (x0, y0), (x1, y1) = (np.array([[0, 0], [300, 300]]) - matrix[:, 2]) / matrix[[0, 1], [0, 1]]
        crop = tv.crop(reference()[1], y0, x0, y1 - y0, x1 - x0)
        centre = (BOXES[:, :2] + BOXES[:, 2:]) / 2
        stays = ((centre > (x0, y0)) & (centre < (x1, y1))).all(1)
        assert labels.tolist() == (np.flatnonzero(stays) + 1).tolist()
        assert_same_boxes(boxes, tv.resize(tv.clamp_bounding_boxes(crop), (300, 300))[stays])
        cropped += not np.allclose((x0, y0, x1, y1), (0, 0, 320, 240))
    assert cropped > 50


def test_zoom_out_is_pad() -> None:
    op = da.RandomZoomOut(p=1, fill=(250.0, 3.0, 99.0))
    samples = op(photos(8))
    for image, boxes, matrix in zip(samples.images, samples.boxes, samples.matrix, strict=True):
        assert matrix[:, :2] == pytest.approx(np.eye(2))
        left, top = np.round(matrix[:, 2]).astype(int).tolist()
        padding = [left, top, image.shape[1] - SIZE[1] - left, image.shape[0] - SIZE[0] - top]
        assert min(padding) >= 0
        expected, moved = (tv.pad(each, padding, fill=list(op.fill)) for each in reference())
        assert mean_difference(image, expected) == 0
        assert_same_boxes(boxes, moved)


def test_zoom_out_flip_and_resize_in_a_row() -> None:
    """One resample here, three steps there, and each rounds the image's offset: half a pixel, twice."""
    op = da.RandomZoomOut(max_ratio=2, p=1, fill=(0.0, 0.0, 0.0))
    samples = photos(8, seed=3).then(op, da.RandomHorizontalFlip(p=1), da.Resize((300, 300)))
    drawn = op.draw(np.random.default_rng(3), 8)
    for at, boxes in enumerate(samples.boxes):
        ratio = drawn["ratio"][at]
        canvas = np.round(np.array(SIZE[::-1]) * ratio).astype(int)
        left, top = np.round(drawn["offset"][at] * (ratio - 1) * SIZE[::-1]).astype(int).tolist()
        padding = [left, top, int(canvas[0]) - 320 - left, int(canvas[1]) - 240 - top]
        moved = tv.resize(tv.horizontal_flip(tv.pad(reference()[1], padding)), (300, 300))
        assert np.abs(boxes - np.asarray(moved)).max() < 1.5


# --------------------------------------------------------------------------------------------- the draws


def drawn_by(transform: Any, inputs: list[Any], n: int) -> list[dict[str, Any]]:
    """Return n draws of torchvision; `make_params` was `_get_params` until 0.21."""
    make_params = getattr(transform, "make_params", None) or transform._get_params
    torch.manual_seed(0)
    return [make_params(inputs) for _ in range(n)]


def assert_same_distribution(ours: Any, theirs: Any) -> None:
    a, b = np.sort(ours), np.sort(theirs)
    both = np.concatenate([a, b])
    distance = np.searchsorted(a, both, "right") / len(a) - np.searchsorted(b, both, "right") / len(b)
    assert np.abs(distance).max() < 1.95 * np.sqrt(1 / len(a) + 1 / len(b))


def assert_same_share(ours: Any, theirs: Any) -> None:
    """Compare two shares within 3.3 standard deviations."""
    share = np.mean([*ours, *theirs])
    deviation = np.sqrt(share * (1 - share) * (1 / len(ours) + 1 / len(theirs)))
    assert abs(np.mean(ours) - np.mean(theirs)) <= 3.3 * deviation + 1e-9


CANVAS = (750, 1000)
OBJECTS = {
    "two": [[100, 100, 400, 300], [600, 300, 800, 700]],
    "small": [[500, 350, 600, 450]],
    "the whole image": [[0, 0, 1000, 750]],
    "in a corner and small": [[0, 0, 120, 150], [500, 300, 530, 340]],
}


@pytest.mark.parametrize(
    "name", [name if name == "the whole image" else pytest.param(name, marks=pytest.mark.slow) for name in OBJECTS]
)
def test_iou_crop_draws_what_torchvision_draws(name: str) -> None:
    boxes = np.array(OBJECTS[name], float)
    given = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=CANVAS)
    theirs = [
        {"window": (0, 0, 1000, 750), "kept": len(boxes)}
        if not each
        else {
            "window": (each["left"], each["top"], each["left"] + each["width"], each["top"] + each["height"]),
            "kept": int(each["is_within_crop_area"].sum()),
        }
        for each in drawn_by(v2.RandomIoUCrop(), [given], 400)
    ]
    samples = da.RandomIoUCrop()(da.batch([np.zeros((*CANVAS, 3), np.uint8)] * 4000, [boxes] * 4000))
    ours = our_windows(samples)
    assert_same_windows(ours, np.array([each["window"] for each in theirs], float), boxes)
    assert_same_distribution([len(each) for each in samples.boxes], [each["kept"] for each in theirs])


def our_windows(samples: da.Samples) -> np.ndarray:
    """(N, 4) XYXY in source pixels: `matrix` at the view's own size in whole pixels stretches by less than one."""
    sides = np.array([np.round(samples.plan.views.size[at][::-1]) for at in range(len(samples))])
    diagonal = samples.matrix[:, [0, 1], [0, 1]]
    start = -samples.matrix[:, :, 2] / diagonal
    return np.concatenate([start, start + sides / diagonal], axis=1)


def assert_same_windows(ours: np.ndarray, theirs: np.ndarray, boxes: np.ndarray) -> None:
    whole_ours, whole_theirs = ((np.abs(each - (0, 0, 1000, 750)) < 1e-6).all(1) for each in (ours, theirs))
    assert_same_share(whole_ours, whole_theirs)
    ours, theirs = ours[~whole_ours], theirs[~whole_theirs]
    for measure in (left, top, width, height, aspect_ratio, lambda windows: best_iou(windows, boxes)):
        assert_same_distribution(measure(ours), measure(theirs))


def left(windows: np.ndarray) -> np.ndarray:
    return windows[:, 0]


def top(windows: np.ndarray) -> np.ndarray:
    return windows[:, 1]


def width(windows: np.ndarray) -> np.ndarray:
    return windows[:, 2] - windows[:, 0]


def height(windows: np.ndarray) -> np.ndarray:
    return windows[:, 3] - windows[:, 1]


def aspect_ratio(windows: np.ndarray) -> np.ndarray:
    return width(windows) / height(windows)


def best_iou(windows: np.ndarray, boxes: np.ndarray) -> np.ndarray:
    """(N,): the best IoU of any box with each window, by torchvision."""
    from torchvision.ops import box_iou

    return box_iou(torch.from_numpy(windows), torch.from_numpy(boxes)).amax(1).numpy()


@pytest.mark.parametrize("threshold", [0.1, 0.3, 0.5])
def test_iou_crop_keeps_a_box_that_reaches_its_threshold(threshold: float) -> None:
    boxes = np.array(OBJECTS["two"], float)
    op = da.RandomIoUCrop(thresholds=(threshold,), allow_no_crop=False)
    samples = op(da.batch([np.zeros((*CANVAS, 3), np.uint8)] * 1000, [boxes] * 1000))
    windows = our_windows(samples)
    cropped = (np.abs(windows - (0, 0, 1000, 750)) > 1e-6).any(1)
    assert cropped.mean() > 0.5
    assert best_iou(windows[cropped], boxes).min() >= threshold - 1e-9


def test_zoom_out_draws_what_torchvision_draws() -> None:
    given = tv_tensors.Image(torch.zeros(3, *CANVAS, dtype=torch.uint8))
    paddings = np.array([each["padding"] for each in drawn_by(v2.RandomZoomOut(p=1), [given], 2000)], float)
    room = paddings[:, :2] + paddings[:, 2:]
    drawn = da.RandomZoomOut(p=1).draw(np.random.default_rng(0), 4000)
    assert_same_distribution(drawn["ratio"], (room[:, 0] + 1000) / 1000)
    for axis in (0, 1):
        assert_same_distribution(drawn["offset"][:, axis], paddings[:, axis] / room[:, axis].clip(1))


@pytest.mark.parametrize(
    ("size", "scale", "ratio"),
    [
        ((300, 1000), (0.08, 1.0), (3 / 4, 4 / 3)),  # often no window fits
        *slow(
            (CANVAS, (0.08, 1.0), (3 / 4, 4 / 3)),
            ((1000, 400), (0.5, 1.25), (3 / 4, 4 / 3)),
            ((40, 30), (0.2, 0.9), (0.3, 3.0)),
        ),
    ],
)
def test_resized_crop_draws_what_torchvision_draws(size: tuple[int, int], scale: Any, ratio: Any) -> None:
    given = tv_tensors.Image(torch.zeros(3, *size, dtype=torch.uint8))
    drawn = drawn_by(v2.RandomResizedCrop(50, scale, ratio, antialias=True), [given], 2000)
    theirs = np.array([[each[name] for name in ("left", "top", "width", "height")] for each in drawn], float)
    theirs[:, 2:] += theirs[:, :2]
    samples = da.RandomResizedCrop(50, scale, ratio)(da.batch([np.zeros((*size, 3), np.uint8)] * 4000))
    ours = np.round(samples.params[0]["window"] * np.tile(size[::-1], 2), 6)
    for measure in (left, top, width, height, aspect_ratio):
        assert_same_distribution(measure(ours), measure(theirs))


def test_the_pixels_of_resized_crop() -> None:
    samples = da.RandomResizedCrop((96, 128))(photos(10))
    for image, boxes, labels, window in zip(
        samples.images, samples.boxes, samples.labels, samples.params[0]["window"], strict=True
    ):
        x0, y0, x1, y1 = np.round(window * (320, 240, 320, 240)).astype(int).tolist()
        expected = [tv.resized_crop(each, y0, x0, y1 - y0, x1 - x0, [96, 128], antialias=True) for each in reference()]
        assert mean_difference(image, expected[0]) < 1
        assert_same_boxes(boxes, np.asarray(expected[1])[labels - 1])


# ------------------------------------------------------------------------------------------------ color


def test_photometric_distort_draws_what_torchvision_draws() -> None:
    given = tv_tensors.Image(torch.zeros(3, 4, 4, dtype=torch.uint8))
    theirs = drawn_by(v2.RandomPhotometricDistort(), [given], 3000)
    ours = da.RandomPhotometricDistort().draw(np.random.default_rng(0), 4000)
    for kind, (name, neutral) in enumerate(NEUTRAL.items(), 1):
        factors = [each[f"{name}_factor"] for each in theirs]
        drawn = np.array([neutral if each is None else float(each) for each in factors])
        found = np.where(ours["kind"] == kind, ours["amount"] - neutral, 0).sum(1) + neutral
        assert_same_share(found == neutral, drawn == neutral)
        assert_same_distribution(np.round(found, 6), np.round(drawn, 6))
    both = (ours["kind"] == CONTRAST).any(1) & (ours["kind"] == SATURATION).any(1)
    before = (ours["kind"] == CONTRAST).argmax(1) < (ours["kind"] == SATURATION).argmax(1)
    assert_same_share(before[both], [each["contrast_before"] for each in theirs])


NEUTRAL = {"brightness": 1.0, "contrast": 1.0, "saturation": 1.0, "hue": 0.0}


def test_photometric_distort_permutes_as_torchvision_does() -> None:
    given = tv_tensors.Image(torch.zeros(3, 4, 4, dtype=torch.uint8))
    drawn = [each["channel_permutation"] for each in drawn_by(v2.RandomPhotometricDistort(), [given], 3000)]
    theirs = [(0, 1, 2) if each is None else tuple(torch.as_tensor(each).tolist()) for each in drawn]
    found = da.RandomPhotometricDistort().draw(np.random.default_rng(0), 4000)["channels"]
    ours = [tuple(each) for each in found.tolist()]
    assert set(ours) == set(theirs)
    for order in set(theirs):
        assert_same_share([each == order for each in ours], [each == order for each in theirs])


ADJUST: list[Callable[[Any, float], Any]] = [
    tv.adjust_brightness,
    tv.adjust_contrast,
    tv.adjust_saturation,
    tv.adjust_hue,
]
"""In the order of the kinds of steps, which count from 1."""


def adjusted(image: Any, drawn: Arrays, at: int) -> np.ndarray:
    """Change the colors of an image (3, H, W) with torchvision, by the steps that were drawn; return (H, W, 3)."""
    for kind, amount in zip(drawn["kind"][at], drawn["amount"][at], strict=True):
        image = ADJUST[kind - 1](image, float(amount)) if kind else image
    return np.asarray(image[drawn["channels"][at].tolist()].permute(1, 2, 0), np.float64)


STEPWISE = [
    da.RandomPhotometricDistort(),
    da.RandomPhotometricDistort(contrast=(0.0, 3.0), saturation=(0.0, 3.0), hue=(-0.5, 0.5), p=0.9),
    da.ColorJitter(0.4, 0.4, 0.4, 0.1),
    da.ColorJitter(2, 2, 2, 0.5, p=0.8),
]


@pytest.mark.parametrize("op", STEPWISE, ids=repr)
@pytest.mark.parametrize("blur", [False, True])
def test_colours_are_torchvisions(op: da.Op, blur: bool, device: str) -> None:
    """Given the same parameters, on average to 0.5 of 255. With a blur that does nothing, a GPU runs DALI's graph."""
    pictures = [photo((50, 70)), *(photo(SIZE) // shade for shade in (1, 2, 5)), np.full((9, 9, 3), 77, np.uint8)] * 4
    steps = [op, *([da.GaussianBlur(p=0)] if blur else [])]
    samples = da.batch(pictures, seed=3, device=device).then(OwnSize(), *steps)
    for at, (picture, image) in enumerate(zip(pictures, samples.images, strict=True)):
        expected = adjusted(torch.from_numpy(picture.copy()).permute(2, 0, 1), samples.params[1], at)
        difference = np.abs(np.asarray(image, np.float64) - expected)
        assert difference.mean() < 0.5, at
        assert difference.max() <= 8, at


LETTERBOX = da.Resize((300, 320), letterbox="center", fill=(9.0, 80.0, 200.0))


@pytest.mark.parametrize("op", [*STEPWISE, da.ColorJitter(0.9, exact=False), da.RandomHSV(), da.RandomGrayscale(p=1)])
@pytest.mark.parametrize("blur", [False, True])
def test_the_fill_keeps_its_colour(op: da.Op, blur: bool, device: str) -> None:
    """The mean gray, about which contrast changes, is that of the image alone."""
    steps = [op, *([da.GaussianBlur(p=0)] if blur else [])]
    samples = da.batch([photo()] * 8, seed=5, device=device).then(LETTERBOX, *steps)
    alone = da.batch([photo()] * 8, seed=5, device=device).then(da.Resize(SIZE), *steps)
    for image, inner in zip(samples.images, alone.images, strict=True):
        assert np.array_equal(image[30:270], inner)
        assert (np.concatenate([image[:30], image[270:]]) == (9, 80, 200)).all()


def test_a_picture_out_of_view_is_not_changed(device: str) -> None:
    away = da.batch([photo()], device=device).then(Away(), da.Resize((40, 50)), da.ColorJitter(brightness=(3, 3)))
    assert (np.asarray(away.images[0]) == (9, 80, 200)).all()


@dataclass(frozen=True)
class Away(da.GeometricOp):
    fill: tuple[float, float, float] = (9.0, 80.0, 200.0)

    def move(self, views: Views, drawn: Arrays) -> Views:
        start = np.full((len(views), 2), 3.0)
        return views.fill_outside(self.fill).crop_to(start, start + 1).clip()


@pytest.mark.parametrize(
    ("name", "factor", "adjust", "limit"),
    [
        ("brightness", 1.1, tv.adjust_brightness, 1),
        ("saturation", 0.5, tv.adjust_saturation, 1),
        ("saturation", 1.5, tv.adjust_saturation, 1),
        ("hue", 0.05, tv.adjust_hue, 12),  # a turn in YIQ here, in HSV there: 25 with the wrong sign, 14 unchanged
        ("hue", -0.05, tv.adjust_hue, 12),
    ],
)
def test_a_linear_map_is_near(name: str, factor: float, adjust: Callable[[Any, float], Any], limit: float) -> None:
    neutral = {each: (value, value) for each, value in NEUTRAL.items()}
    op = da.RandomPhotometricDistort(**{**neutral, name: (factor, factor)}, p=1, permute=False, exact=False)
    image = photos(1).then(da.Resize(SIZE), op).images[0]
    assert mean_difference(image, adjust(reference()[0], factor)) < limit


# ------------------------------------------------------------------------------------- turns and crops

BLACK = (0.0, 0.0, 0.0)
BILINEAR = {"interpolation": v2.InterpolationMode.BILINEAR}
FAR = 5000
"""Boxes this far inside a huge canvas, since torchvision clamps rotated boxes to the canvas, in several ways."""


def far_boxes() -> Any:
    return tv_tensors.BoundingBoxes(torch.from_numpy(BOXES) + FAR, format="XYXY", canvas_size=(10000, 10000))


def replayed(op: da.Op, n: int = 12, seed: int = 4) -> tuple[da.Samples, dict[str, np.ndarray]]:
    """Samples after `op`, and what it drew for them."""
    return op(photos(n, seed)), op.draw(np.random.default_rng(seed), n)


def assert_same_picture(samples: da.Samples, at: int, image: Any, boxes: Any, limit: float = 1.0) -> None:
    """Compare boxes that are not clipped to a thousandth of a pixel, and images to 1 of 255 on average."""
    height, width = samples.images[at].shape[:2]
    assert tuple(image.shape[1:]) == (height, width)
    expected = np.asarray(boxes)
    whole = (expected == expected.clip(0, (width, height) * 2)).all(1)
    ours = dict(zip(samples.labels[at].tolist(), samples.boxes[at], strict=True))
    assert whole.any()
    for label in np.flatnonzero(whole) + 1:
        assert np.abs(ours[label] - expected[label - 1]).max() < 1e-3
    assert mean_difference(samples.images[at], image) < limit


def test_rotation() -> None:
    samples, drawn = replayed(da.RandomRotation(40, fill=BLACK))
    for at, angle in enumerate(drawn["angle"].tolist()):
        boxes = tv.rotate(far_boxes(), angle, center=[FAR + 160.0, FAR + 120.0]) - FAR
        assert_same_picture(samples, at, tv.rotate(reference()[0], angle, **BILINEAR), boxes)


@pytest.mark.parametrize(("scale", "limit"), [((1.0, 1.4), 1), ((0.5, 1.0), 5)])
def test_affine(scale: tuple[float, float], limit: float) -> None:
    """Where it shrinks, the image is antialiased here and not there."""
    samples, drawn = replayed(da.RandomAffine(25, (0.1, 0.2), scale, (-15, 15, -10, 10), fill=BLACK))
    for at in range(len(samples)):
        angle, factor, shear = (drawn[name][at].tolist() for name in ("angle", "scale", "shear"))
        shift = np.round(drawn["translate"][at] * SIZE[::-1]).tolist()
        image = tv.affine(reference()[0], angle, shift, factor, shear, **BILINEAR)
        boxes = tv.affine(far_boxes(), angle, shift, factor, shear, center=[FAR + 160.0, FAR + 120.0]) - FAR
        assert_same_picture(samples, at, image, boxes, limit)


@pytest.mark.parametrize(("distortion", "limit"), [(0.1, 1), (0.6, 5)])
def test_perspective(distortion: float, limit: float) -> None:
    """torchvision's image kernel takes the corner pixels' centers, its box kernel the same numbers as they are."""
    samples, drawn = replayed(da.RandomPerspective(distortion, p=1, fill=BLACK))
    corners = np.array([[0, 0], [320, 0], [320, 240], [0, 240]])
    for at, inwards in enumerate(drawn["corners"]):
        ends = corners + inwards * (320, 240) * np.array([[1, 1], [-1, 1], [-1, -1], [1, -1]])
        boxes = tv.perspective(reference()[1], corners.tolist(), ends.tolist())
        image = tv.perspective(reference()[0], (corners - 0.5).tolist(), (ends - 0.5).tolist(), **BILINEAR)
        assert_same_picture(samples, at, image, boxes, limit)


@pytest.mark.parametrize("size", [(120, 200), (300, 400), (100, 500)])
def test_center_crop(size: tuple[int, int]) -> None:
    samples = da.CenterCrop(size, fill=BLACK)(photos(1))
    image = tv.center_crop(reference()[0], list(size))
    top, left = (240 - size[0]) // 2, (320 - size[1]) // 2
    assert mean_difference(samples.images[0], image) < 1e-3
    expected = tv.clamp_bounding_boxes(tv.crop(reference()[1], top, left, *size))
    for box, label in zip(samples.boxes[0], samples.labels[0], strict=True):
        assert np.abs(box - np.asarray(expected)[label - 1]).max() < 1e-3


def test_random_crop() -> None:
    samples = da.RandomCrop((150, 180), fill=BLACK)(photos(12))
    for image, boxes, labels, matrix in zip(samples.images, samples.boxes, samples.labels, samples.matrix, strict=True):
        left, top = np.round(-matrix[:, 2]).astype(int).tolist()
        expected = [tv.crop(each, top, left, 150, 180) for each in reference()]
        assert mean_difference(image, expected[0]) == 0
        moved = np.asarray(tv.clamp_bounding_boxes(expected[1]))
        seen = (moved[:, 2:] > moved[:, :2]).all(1)
        assert_same_boxes(boxes, moved[labels - 1])
        assert set(labels) >= set(np.flatnonzero(seen & ((moved[:, 2:] - moved[:, :2]).min(1) > 1)) + 1)


@pytest.mark.parametrize("padding", [5, (5, 9), (1, 2, 30, 4)])
def test_pad(padding: int | tuple[int, ...]) -> None:
    samples = da.Pad(padding, fill=(9.0, 8.0, 7.0))(photos(1))
    image, boxes = (
        tv.pad(each, [padding] if isinstance(padding, int) else list(padding), fill=[9, 8, 7]) for each in reference()
    )
    assert mean_difference(samples.images[0], image) == 0
    assert_same_boxes(samples.boxes[0], boxes)


@pytest.mark.parametrize("op", [da.RandomRotation((-10, 30)), da.RandomAffine(20, (0.1, 0.3), (0.5, 2), (-5, 9, 1, 3))])
def test_turns_draw_what_torchvision_draws(op: da.RandomRotation | da.RandomAffine) -> None:
    given = [tv_tensors.Image(torch.zeros(3, *CANVAS, dtype=torch.uint8))]
    ours = op.draw(np.random.default_rng(0), 4000)
    if isinstance(op, da.RandomRotation):
        theirs = drawn_by(v2.RandomRotation((-10, 30)), given, 2000)
        assert_same_distribution(ours["angle"], [each["angle"] for each in theirs])
        return
    theirs = drawn_by(v2.RandomAffine(20, (0.1, 0.3), (0.5, 2), (-5, 9, 1, 3)), given, 2000)
    assert_same_distribution(ours["angle"], [each["angle"] for each in theirs])
    assert_same_distribution(ours["scale"], [each["scale"] for each in theirs])
    for axis in (0, 1):
        shifts = np.round(ours["translate"][:, axis] * CANVAS[::-1][axis])
        assert_same_distribution(shifts, [each["translate"][axis] for each in theirs])
        assert_same_distribution(ours["shear"][:, axis], [each["shear"][axis] for each in theirs])


def test_perspective_draws_what_torchvision_draws() -> None:
    given = [tv_tensors.Image(torch.zeros(3, *CANVAS, dtype=torch.uint8))]
    theirs = drawn_by(v2.RandomPerspective(0.5, p=1), given, 2000)
    ours = da.RandomPerspective(0.5, p=1).draw(np.random.default_rng(0), 4000)["corners"]
    corners = corners_moved(theirs)
    for corner in range(4):
        for axis in (0, 1):
            assert abs(ours[:, corner, axis].mean() - corners[:, corner, axis].mean()) < 0.006
            assert ours[:, corner, axis].max() <= 0.25


def corners_moved(drawn: list[Any]) -> np.ndarray:
    """(n, 4, 2): how far each corner moved inwards, relative, from torchvision's eight coefficients."""
    height, width = CANVAS
    places = []
    for each in drawn:
        matrix = np.linalg.inv(np.array([*each["coefficients"], 1.0]).reshape(3, 3))
        corners = np.array([[0, 0, 1], [width - 1, 0, 1], [width - 1, height - 1, 1], [0, height - 1, 1.0]]) @ matrix.T
        places.append(corners[:, :2] / corners[:, 2:] / (width, height))
    moved = np.array(places)
    return np.where([[0, 0], [1, 0], [1, 1], [0, 1]], 1 - moved, moved)
