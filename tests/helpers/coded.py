"""Images in which each pixel encodes its origin: red is the image, green x and blue y of the source.

So the output alone shows what an op did, and what is left of each object, and where.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

import detaug as da

STEP = 7
"""Red of image i is 1 + 7 i, for up to 32 images."""

NOWHERE = (255.0, 255.0, 255.0)
"""The color of pixels from no image."""


class Piece(NamedTuple):
    """The visible part of an object: its label, the hull XYXY of its pixels, and its fraction of the object, 0..1."""

    image: int
    label: int
    box: tuple[float, ...]
    share: float


def coded(image: int, size: tuple[int, int]) -> NDArray[np.uint8]:
    y, x = np.indices(size)
    return np.stack([np.full(size, 1 + STEP * image), x, y], axis=2).astype(np.uint8)


def coded_batch(seed: int, n: int, size: tuple[int, int] = (80, 100), device: str = "cpu") -> da.Samples:
    """Return n coded images with 0 to 6 boxes of 1 to 50 whole pixels per side; label 10 i + k is box k of image i."""
    rng = np.random.default_rng(seed)
    boxes = []
    for _ in range(n):
        sides = rng.integers(1, 51, (rng.integers(0, 7), 2))
        start = rng.integers(0, np.array(size[::-1]) - sides + 1)
        boxes.append(np.concatenate([start, start + sides], axis=1))
    labels = [10 * at + np.arange(1, len(each) + 1) for at, each in enumerate(boxes)]
    return da.batch([coded(at, size) for at in range(n)], boxes, labels, seed=seed, device=device)


def origins(image: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return (H, W, 3): image, x, y of the source; image -1 where the pixel comes from none."""
    origin = image.astype(np.int64)
    assert np.array_equal(origin, image), "a pixel that is not a source pixel"
    nowhere = (image == 255).all(2)
    assert ((origin[..., 0] - 1) % STEP == 0)[~nowhere].all(), "a pixel that is not a source pixel"
    origin[..., 0] = np.where(nowhere, -1, (origin[..., 0] - 1) // STEP)
    return origin


def pieces(image: NDArray[np.uint8], samples: da.Samples) -> Iterator[Piece]:
    """Yield the visible parts of the objects of `samples` in an output image, one for each tile of it."""
    origin = origins(image)
    y, x = np.indices(image.shape[:2])
    tile = np.stack([origin[..., 0], x - origin[..., 1], y - origin[..., 2]], axis=2)
    for which in np.unique(tile[origin[..., 0] >= 0], axis=0):
        here = (tile == which).all(2)
        for box, label in zip(samples.boxes[which[0]], samples.labels[which[0]], strict=True):
            x0, y0, x1, y1 = box
            centre_x, centre_y = origin[..., 1] + 0.5, origin[..., 2] + 0.5
            inside = (centre_x > x0) & (centre_x < x1) & (centre_y > y0) & (centre_y < y1)
            rows, columns = np.nonzero(here & inside)
            if len(rows):
                hull = tuple(map(float, (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1)))
                yield Piece(int(which[0]), int(label), hull, len(rows) / ((x1 - x0) * (y1 - y0)))
