"""Every op against pixels it painted itself, and against a second implementation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from painted import centroid, paint, random_boxes
from PIL import Image

import detaug as da
from detaug.boxes.views import Views
from detaug.testing import read_box

BLACK = (0.0, 0.0, 0.0)
SIZE = (96, 128)

EXACT = 0.01  # output pixels: flips, and zoom-out at the canvas's own size
RESAMPLED = 0.5  # output pixels: whatever was resized
TURNED = 1.5  # output pixels: the reader sees the tip of a turned rectangle short by half a source pixel and more

GEOMETRIC = [
    da.RandomHorizontalFlip(p=0.5),
    da.RandomVerticalFlip(p=0.5),
    da.RandomZoomOut(max_ratio=2.0, p=0.7, fill=BLACK),
    da.RandomIoUCrop(),
    da.RandomIoUCrop(min_visibility=0.3, thresholds=(0.3, 0.7), allow_no_crop=False),
    da.RandomBoxSafeCrop(p=0.7),
    da.Pad((3, 9), fill=BLACK),
    da.PadToMultiple(50, fill=BLACK),
]

CROPS = [
    da.CenterCrop((80, 150), fill=BLACK),
    da.RandomCrop(70, fill=BLACK),
    da.ScaleJitter((96, 128), scale=(0.7, 1.5), fill=BLACK),
]

TURNS = [
    da.RandomRotation(30, fill=BLACK),
    da.RandomRotation((20, 70), expand=True, fill=BLACK),
    da.RandomAffine(20, (0.1, 0.1), (0.7, 1.3), (-10, 10, -10, 10), fill=BLACK),
    da.RandomPerspective(0.4, p=1, fill=BLACK),
]


def painted_batch(seed: int, n: int = 8, smallest: int = 12, device: str = "cpu") -> da.eager.Samples:
    rng = np.random.default_rng(seed)
    boxes = [random_boxes(rng, SIZE, smallest) for _ in range(n)]
    return da.batch([paint(SIZE, each) for each in boxes], boxes, [[1, 2, 3]] * n, seed=seed, device=device)


def assert_boxes_on_pixels(samples: da.eager.Samples, tolerance: float) -> int:
    """Every box lies on its rectangle; returns how many were read."""
    read = 0
    for image, boxes, labels in zip(samples.images, samples.boxes, samples.labels, strict=True):
        for box, label in zip(boxes, labels, strict=True):
            seen = read_box(image[:, :, label - 1].astype(float))
            assert np.abs(seen - box).max() <= tolerance, f"box {box} but pixels {seen}, label {label}, {samples}"
            read += 1
    return read


@pytest.mark.parametrize(
    "op",
    [
        da.RandomHorizontalFlip(p=1),
        da.RandomVerticalFlip(p=1),
        da.RandomRotate90(p=1),
        da.RandomZoomOut(p=1, fill=BLACK),
        da.Pad(7, fill=BLACK),
        da.PadToMultiple(64, fill=BLACK),
        da.CenterCrop((200, 150), fill=BLACK),
    ],
    ids=lambda op: type(op).__name__,
)
def test_exact_ops_move_boxes_with_pixels(op: da.Op, device: str) -> None:
    for seed in range(5):
        assert assert_boxes_on_pixels(op(painted_batch(seed, device=device)), EXACT) == 24


@pytest.mark.parametrize("op", [*CROPS, *TURNS], ids=repr)
@pytest.mark.parametrize("letterbox", [None, "center", "top-left"])
def test_crops_and_turns_move_boxes_with_pixels(op: da.Op, letterbox: Any, device: str) -> None:
    samples = da.Resize((200, 220), letterbox=letterbox, fill=BLACK)(op(painted_batch(1, smallest=30, device=device)))
    assert assert_boxes_on_pixels(samples, TURNED) >= 16


@pytest.mark.parametrize("size", [(96, 128), (60, 90), (300, 300), (41, 211), 64, 150])
def test_resize_moves_boxes_with_pixels(size: int | tuple[int, int], device: str) -> None:
    samples = da.Resize(size)(painted_batch(1, smallest=24, device=device))
    assert assert_boxes_on_pixels(samples, RESAMPLED) == 24
    assert samples.images[0].shape[:2] == (size if isinstance(size, tuple) else (size, size * 128 // 96))


def test_several_sizes_are_drawn_for_the_whole_batch() -> None:
    found = set()
    for seed in range(20):
        samples = da.Resize([(100, 120), (150, 150)])(painted_batch(seed, smallest=24))
        (shape,) = {image.shape[:2] for image in samples.images}
        assert assert_boxes_on_pixels(samples, RESAMPLED) == 24
        found.add(shape)
    assert found == {(100, 120), (150, 150)}


def test_a_shortest_size_is_drawn_for_the_whole_batch() -> None:
    op = da.RandomShortestSize((60, 90, 120), max_size=150)
    shapes = [{image.shape[:2] for image in op(painted_batch(seed)).images} for seed in range(30)]
    assert all(len(each) == 1 for each in shapes)
    assert set.union(*shapes) == {(60, 80), (90, 120), (112, 150)}


def test_resize_to_a_shorter_side_obeys_max_size() -> None:
    samples = da.Resize(90, max_size=100)(painted_batch(1))
    assert samples.images[0].shape == (75, 100, 3)
    assert assert_boxes_on_pixels(samples, RESAMPLED)


@pytest.mark.parametrize("min_visibility", [None, 0.4])
def test_iou_crop_moves_boxes_with_pixels(min_visibility: float | None, device: str) -> None:
    read = 0
    for seed in range(10):
        samples = da.RandomIoUCrop(min_visibility=min_visibility)(painted_batch(seed, device=device))
        read += assert_boxes_on_pixels(da.Resize((200, 200))(samples), RESAMPLED)
    assert read > 100


@pytest.mark.parametrize("seed", range(200))
def test_random_chains_move_boxes_with_pixels(seed: int, device: str) -> None:
    rng = np.random.default_rng(seed)
    samples = painted_batch(seed, smallest=24, device=device)
    for at in rng.integers(0, len(GEOMETRIC), rng.integers(2, 6)):
        samples = samples.then(GEOMETRIC[at])
    size = (int(rng.integers(150, 320)), int(rng.integers(150, 320)))
    read = assert_boxes_on_pixels(da.Resize(size)(samples), RESAMPLED)
    assert read >= len(samples)  # a chain never loses all boxes of an image


@pytest.mark.parametrize("op", GEOMETRIC, ids=repr)
def test_one_pixel_boxes_stay_on_their_pixel(op: da.Op, device: str) -> None:
    rng = np.random.default_rng(3)
    start = rng.integers(0, (128, 96), (16, 1, 2))
    boxes = np.concatenate([start, start + 1], axis=2)
    samples = da.batch([paint(SIZE, each) for each in boxes], boxes, [[1]] * 16, device=device)
    samples = da.Resize((192, 256))(op(samples))
    for image, box, (label,) in zip(samples.images, samples.boxes, samples.labels, strict=True):
        seen = centroid(image[:, :, label - 1].astype(float))
        assert np.abs(seen - (box[0, :2] + box[0, 2:]) / 2).max() <= RESAMPLED


@pytest.mark.parametrize("op", [*GEOMETRIC, da.Resize((50, 60)), da.Resize(50)], ids=repr)
def test_an_image_without_boxes_passes(op: da.Op, device: str) -> None:
    samples = op(da.batch([np.full((40, 50, 3), 9, np.uint8)] * 3, [[], [[1, 2, 30, 20]], []], device=device))
    assert [boxes.shape for boxes in samples.boxes] == [(0, 4), (1, 4), (0, 4)]
    assert [labels.shape for labels in samples.labels] == [(0,), (1,), (0,)]


def test_iou_crop_keeps_the_image_whole_where_every_window_would_lose_its_boxes() -> None:
    corner = [[0, 0, 1, 1]]  # a window of half the side hardly ever holds the centre of the corner's pixel
    op = da.RandomIoUCrop(thresholds=(0.9,), scaling=(0.3, 0.5), allow_no_crop=False)
    samples = op(da.batch([np.zeros((100, 100, 3), np.uint8)] * 32, [corner] * 32))
    assert all(len(boxes) == 1 for boxes in samples.boxes)


def test_iou_crop_drops_by_the_rule_that_was_set() -> None:
    for min_visibility in (None, 0.5, 0.9):
        samples = painted_batch(7, n=32)
        op = da.RandomIoUCrop(thresholds=(0.0,), min_visibility=min_visibility, allow_no_crop=False)
        cropped = op(samples)
        for source, matrix, size, labels in zip(
            samples.source_boxes, cropped.matrix, [i.shape for i in cropped.images], cropped.labels, strict=True
        ):
            moved = (source.reshape(-1, 2) @ matrix[:, :2].T + matrix[:, 2]).reshape(-1, 4)
            clipped = np.clip(moved, 0, (size[1], size[0]) * 2)
            centre = (moved[:, :2] + moved[:, 2:]) / 2
            visible = np.prod(clipped[:, 2:] - clipped[:, :2], 1) / np.prod(moved[:, 2:] - moved[:, :2], 1)
            inside = ((centre > 1e-6) & (centre < np.subtract((size[1], size[0]), 1e-6))).all(1)
            stays = inside if min_visibility is None else visible >= min_visibility
            if stays.any():
                assert labels.tolist() == (np.flatnonzero(stays) + 1).tolist()


def pillow_reference(image: np.ndarray, window: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Crop to `window` (XYXY source pixels) and resize in one step, by Pillow."""
    resized = Image.fromarray(image).resize(size[::-1], Image.Resampling.BILINEAR, box=tuple(window))
    return np.asarray(resized).astype(float)


@pytest.mark.parametrize("size", [(64, 64), (300, 200), (37, 150)])
def test_crop_flip_and_resize_is_pillows_one_resample(size: tuple[int, int], device: str) -> None:
    noise = np.random.default_rng(0).integers(0, 256, (24, 32, 3), np.uint8)
    photo = np.asarray(Image.fromarray(noise).resize((320, 240), Image.Resampling.BICUBIC))
    samples = da.batch([photo] * 8, [[[100, 80, 200, 160]]] * 8, device=device)
    samples = da.Resize(size)(da.RandomHorizontalFlip(p=1)(da.RandomIoUCrop(allow_no_crop=False)(samples)))
    for image, matrix in zip(samples.images, samples.matrix, strict=True):
        corners = (np.array([[0, 0], size[::-1]]) - matrix[:, 2]) / matrix[[0, 1], [0, 1]]
        window = np.concatenate([corners.min(0), corners.max(0)]).clip(0, (320, 240, 320, 240))
        difference = np.abs(image - pillow_reference(photo, window, size)[:, ::-1])
        assert difference.mean() < (1 if device == "cpu" else 2)


def test_zoom_out_shows_the_image_and_nothing_but_fill_around_it(device: str) -> None:
    photo = np.random.default_rng(0).integers(0, 200, (40, 60, 3), np.uint8)
    samples = da.RandomZoomOut(p=1, fill=(250.0, 240.0, 230.0))(da.batch([photo] * 6, device=device))
    for image, matrix in zip(samples.images, samples.matrix, strict=True):
        x, y = np.round(matrix[:, 2]).astype(int)
        assert np.array_equal(image[y : y + 40, x : x + 60], photo)
        image[y : y + 40, x : x + 60] = (250, 240, 230)
        assert (image == (250, 240, 230)).all()


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


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: da.RandomHorizontalFlip(p=1.5), "p must be a probability in 0..1, got 1.5"),
        (lambda: da.RandomVerticalFlip(p=-1), "p must be a probability"),
        (lambda: da.RandomZoomOut(max_ratio=0.5), "max_ratio must be at least 1"),
        (lambda: da.RandomZoomOut(fill=(0, 0, 300)), "fill must be three numbers"),
        (lambda: da.RandomIoUCrop(thresholds=()), "thresholds must be one or more IoUs"),
        (lambda: da.RandomIoUCrop(scaling=(0.9, 0.3)), "scaling must be"),
        (lambda: da.RandomIoUCrop(min_visibility=2), "min_visibility must be"),
        (lambda: da.RandomIoUCrop(attempts=0), "attempts must be a whole number of at least 1"),
        (lambda: da.Resize((0, 300)), "size must be"),
        (lambda: da.Resize((300,)), "size must be"),
        (lambda: da.Resize(True), "size must be"),
        (lambda: da.Normalize(0.5), "mean must be"),
        (lambda: da.Normalize(mean=(123, 117, 104)), r"mean must be .* in 0\.\.1: .* divide both by 255"),
        (lambda: da.Normalize(mean=(-0.1, 0, 0)), r"mean must be three numbers in 0\.\.1"),
        (lambda: da.Normalize((0.5,) * 3, (58.4, 57.1, 57.4)), r"std must be .* at most 1: .* divide both by 255"),
        (lambda: da.RandomZoomOut(fill=0), "fill must be"),
        (lambda: da.RandomZoomOut(max_ratio=float("inf")), "max_ratio must be"),
        (lambda: da.Resize((300, 300), max_size=400), "max_size must be left out"),
        (lambda: da.Resize(300, max_size=200), "max_size must be at least size"),
        (lambda: da.Normalize(std=(0, 1, 1)), "std must be three numbers above 0"),
        (lambda: da.RandomPhotometricDistort(hue=(-1, 1)), "hue must be"),
    ],
)
def test_a_wrong_argument_is_refused_by_name(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@dataclass(frozen=True)
class Look(da.GeometricOp):
    """A user's op that looks at a part of the view, or beside it."""

    start: float
    end: float

    def move(self, views: Views, drawn: dict) -> Views:
        sides = np.ones((len(views), 2))
        return views.crop_to(self.start * sides, self.end * sides)


def test_a_look_outside_without_a_fill_is_refused() -> None:
    with pytest.raises(ValueError, match=r"Look.*looks outside"):
        _ = da.Resize((9, 9))(Look(1.5, 2.5)(painted_batch(0))).images


def test_a_box_out_of_view_goes_with_its_label() -> None:
    samples = da.batch([np.zeros((100, 100, 3), np.uint8)], [[[0, 0, 20, 20], [60, 60, 80, 90]]], [[1, 2]])
    samples = da.Resize((50, 50))(Look(0.5, 1.0)(samples))
    assert samples.labels[0].tolist() == [2]
    assert samples.boxes[0][0] == pytest.approx([10, 10, 30, 40])


@pytest.mark.parametrize("ops", [[], [da.RandomHorizontalFlip(p=1)], [da.RandomRotation(30), da.Resize((30, 30))]])
def test_boxes_and_matrices_lie_in_one_piece(ops: list[da.Op]) -> None:
    samples = da.batch([np.zeros((40, 50, 3), np.uint8)] * 3, [[[1, 2, 30, 20], [5, 5, 20, 20]]] * 3).then(*ops)
    assert all(each.flags.c_contiguous for each in [*samples.boxes, samples.matrix])


def test_two_fills_are_refused() -> None:
    with pytest.raises(ValueError, match="all fills of a recipe must be the same"):
        da.RandomZoomOut(fill=(1, 1, 1))(da.RandomZoomOut(fill=(2, 2, 2))(painted_batch(0)))


def test_a_fill_may_be_a_list_and_pixel_ops_may_have_their_own() -> None:
    @dataclass(frozen=True)
    class Paint(da.PixelOp):
        fill: int = 7

    zoom = da.RandomZoomOut(fill=[1, 2, 3], p=1)
    assert painted_batch(0).then(zoom, zoom, da.Resize((9, 9)), Paint()).images[0].shape == (9, 9, 3)


@pytest.mark.parametrize("boxes", [[[[1, 2, 3, 4, 5]]], [[1, 2, 3, 4, 5, 6, 7, 8]]])
def test_boxes_of_another_shape_are_refused(boxes: list) -> None:
    with pytest.raises(ValueError, match=r"boxes\[0\] must be"):
        da.batch([np.zeros((9, 9, 3), np.uint8)], boxes)


def test_an_op_in_the_wrong_place_says_where_it_belongs() -> None:
    samples = painted_batch(0)
    with pytest.raises(ValueError, match="must come after Resize"):
        da.RandomPhotometricDistort()(samples)
    with pytest.raises(ValueError, match="must come before Resize"):
        da.RandomHorizontalFlip()(da.Resize((9, 9))(samples))
    with pytest.raises(ValueError, match="Normalize, which must be the last op"):
        da.RandomPhotometricDistort()(da.Normalize()(da.Resize((9, 9))(samples)))


@pytest.mark.parametrize("image", [np.zeros((9, 9, 3), np.uint8), [[0]], None])
def test_an_op_on_a_bare_image_says_what_it_runs_on(image: object) -> None:
    with pytest.raises(TypeError, match=r"ops run on da\.batch\(\[image\]"):
        da.RandomHorizontalFlip()(image)  # type: ignore[type-var]


def test_a_size_is_one_argument() -> None:
    with pytest.raises(TypeError, match="positional"):
        da.Resize(300, 300)  # type: ignore[misc]


def test_every_op_is_in_a_test() -> None:
    from pathlib import Path

    text = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    ops = [name for name in da.__all__ if isinstance(getattr(da, name), type) and issubclass(getattr(da, name), da.Op)]
    assert [name for name in ops if f"da.{name}(" not in text and not name.endswith("Op")] == []
