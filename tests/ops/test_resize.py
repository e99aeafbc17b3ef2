"""Resize and RandomShortestSize, on painted rectangles and against Pillow."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from painted import BLACK, RESAMPLED, assert_boxes_on_pixels, painted_batch
from PIL import Image

import detaug as da

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

TURNED = 1.5  # output pixels: the reader sees the tip of a rotated rectangle short by half a source pixel and more


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


def letterboxed(source: tuple[int, int], size: tuple[int, int], where: str) -> tuple[int, int, int, int]:
    """Return the rectangle (top, left, bottom, right) of a white image of `source` (H, W) in a letterbox of `size`."""
    image = da.Resize(size, letterbox=where, fill=BLACK)(da.batch([np.full((*source, 3), 255, np.uint8)])).images[0]  # type: ignore[arg-type]
    rows, columns = image.max((1, 2)).nonzero()[0], image.max((0, 2)).nonzero()[0]
    return int(rows[0]), int(columns[0]), int(rows[-1] + 1), int(columns[-1] + 1)


LETTERBOXES = [  # source, size; top, left, bottom, right: written down by hand
    ((480, 640), (640, 640), (80, 0, 560, 640)),
    ((425, 640), (640, 640), (107, 0, 532, 640)),  # 215 rows of fill: 107 above, 108 below
    ((427, 640), (640, 640), (106, 0, 533, 640)),
    ((640, 427), (640, 640), (0, 106, 640, 533)),
    ((375, 500), (320, 320), (40, 0, 280, 320)),
    ((333, 500), (320, 320), (53, 0, 266, 320)),  # 213.12 rows are 213, and 107 of fill 53 and 54
    ((500, 334), (321, 320), (0, 53, 321, 267)),  # 214.4 columns are 214, and 106 of fill 53 and 53
    ((9, 640), (64, 65), (31, 0, 32, 65)),  # 0.9 rows are 1
]


@pytest.mark.parametrize(("source", "size", "rectangle"), LETTERBOXES)
def test_an_odd_pixel_of_a_letterbox_is_below_or_to_the_right(
    source: tuple[int, int], size: tuple[int, int], rectangle: tuple[int, int, int, int]
) -> None:
    assert letterboxed(source, size, "center") == rectangle
    height, width = rectangle[2] - rectangle[0], rectangle[3] - rectangle[1]
    assert letterboxed(source, size, "top-left") == (0, 0, height, width)


def test_letterboxes_of_100_sizes_are_where_ultralytics_has_them() -> None:
    """Ultralytics 8.4: the sides are rounded, then half of the rest less a tenth of a pixel is at the left and top."""
    rng = np.random.default_rng(0)
    for source in rng.integers(40, 400, (100, 2)):
        size = tuple(rng.integers(40, 200, 2).tolist())
        ratio = min(size[0] / source[0], size[1] / source[1])
        height, width = (round(side * ratio) for side in source.tolist())
        top, left = round((size[0] - height) / 2 - 0.1), round((size[1] - width) / 2 - 0.1)
        assert letterboxed(tuple(source), size, "center") == (top, left, top + height, left + width)


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


def test_a_size_is_one_argument() -> None:
    with pytest.raises(TypeError, match=r"Resize takes \(height, width\) as one argument"):
        da.Resize(300, 300)  # type: ignore[misc]
