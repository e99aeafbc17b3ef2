"""What a notebook shows of a batch and of eager samples: the pixels, in true colours, with boxes, bounded in size."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import torch
from coco_files import document, write, write_images
from PIL import Image

import detaug as da

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
