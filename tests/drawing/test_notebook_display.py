"""Images of batches and eager samples in a notebook: pixels in true colors, with boxes, bounded in size."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from coco_files import document, write, write_images
from numpy.typing import NDArray
from PIL import Image

import detaug as da
from detaug.drawing import page
from detaug.sheets import batch_sheet

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
COLOR = (200, 40, 90)


def has_color(png: bytes, color: tuple[int, int, int]) -> bool:
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"), int)
    return bool((np.abs(pixels - color).max(2) <= 2).sum() > 10_000)


def samples(n: int = 1) -> object:
    return da.batch([np.full((60, 80, 3), COLOR, np.uint8)] * n, [[[10, 10, 60, 40]]] * n)


def test_samples_show_true_colours_before_and_after_normalize() -> None:
    plain = samples()
    normalized = da.Normalize(MEAN, STD)(da.Resize((60, 80))(plain))
    assert has_color(plain._repr_png_(), COLOR)
    assert has_color(normalized._repr_png_(), COLOR)


def test_a_large_batch_shows_its_first_images_only() -> None:
    sizes = [Image.open(io.BytesIO(samples(n)._repr_png_())).size for n in (8, 30)]
    assert sizes[0][0] == sizes[1][0] < 1200
    assert sizes[1][1] < sizes[0][1] + 60 < 700


def test_a_loaders_batch_is_shown(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    for name in ("a.jpg", "b.jpg", "sub/c.png"):
        Image.new("RGB", (100, 80), COLOR).save(images / name)
    reader = da.CocoReader(images, write(tmp_path / "t.json", document()))
    with da.Loader(reader, [da.Resize((80, 100)), da.Normalize()], batch_size=2, device="cpu") as loader:
        batch = next(iter(loader))
    assert isinstance(batch.images, torch.Tensor)
    assert has_color(batch._repr_png_(), COLOR)


def test_a_padded_batch_has_its_padding_hatched_and_its_bright_images_bright(tmp_path: Path) -> None:
    """Normalized white beside the zeros of padding has no value below 0, and still is not in 0..255."""
    folder = write_images(tmp_path / "images")
    sizes = {"a.jpg": (100, 80), "b.jpg": (80, 100), "sub/c.png": (100, 100)}
    content = document()
    for row, (name, size) in zip(content["images"], sizes.items(), strict=True):
        row |= {"file_name": name, "width": size[0], "height": size[1]}
        Image.new("RGB", size, (255, 255, 255) if name == "a.jpg" else (0, 0, 0)).save(folder / name)
    content["annotations"] = []
    reader = da.CocoReader(folder, write(tmp_path / "t.json", content))
    ops = [da.Resize(240, max_size=400), da.Normalize(MEAN, STD)]
    batch = next(iter(da.Loader(reader, ops, batch_size=3, train=False, device="cpu")))
    assert batch.images.shape[2:] == (320, 320)
    for picture in (Image.open(io.BytesIO(batch._repr_png_())), batch_sheet(batch, ops=ops)):
        white, black, square = (_tile(picture, at) for at in range(3))
        side = len(white)
        image, beside = white[: side * 3 // 4 - 2, : side * 15 // 16 - 2], white[side * 3 // 4 + 2 :]
        assert (image > 200).all()
        assert beside.min() < 100 < 130 < beside.max()
        assert (black[: side * 15 // 16 - 2, : side * 3 // 4 - 2] < 60).all()
        assert (square[: side * 3 // 4 - 2, : side * 3 // 4 - 2] < 60).all()


def _tile(picture: Image.Image, at: int) -> NDArray[np.uint8]:
    """Cut out a tile of the only row, which is as wide as it is high."""
    pixels = np.asarray(picture.convert("RGB"))
    side = (pixels.shape[1] - 2 * page.MARGIN - 3 * page.GAP) // 3
    left = page.MARGIN + at * (side + page.GAP) + (page.GAP if at else 0)
    top = pixels.shape[0] - page.MARGIN - side
    return pixels[top : top + side, left : left + side]
