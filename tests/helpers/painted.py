"""Painted rectangles: the position of a box is read off the pixels, not off the code under test.

An image has one rectangle in each of its three color channels, so rectangles may overlap and each can be read alone:
label k is channel k - 1.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

import detaug as da
from detaug.testing import read_box

Array = NDArray[np.float64]

SIZE = (96, 128)
BLACK = (0.0, 0.0, 0.0)

RESAMPLED = 0.5  # output pixels: the tolerance where images are resized


def paint(size: tuple[int, int], boxes: NDArray[np.int64]) -> NDArray[np.uint8]:
    """(H, W, 3): box k, XYXY whole pixels, is 255 in channel k on black."""
    image = np.zeros((*size, 3), np.uint8)
    for channel, (x0, y0, x1, y1) in enumerate(boxes):
        image[y0:y1, x0:x1, channel] = 255
    return image


def random_boxes(rng: np.random.Generator, size: tuple[int, int], smallest: int = 8) -> NDArray[np.int64]:
    """Three boxes of at least `smallest` pixels per side."""
    height, width = size
    sides = rng.integers(smallest, (width // 2, height // 2), (3, 2))
    start = rng.integers(0, (width, height) - sides + 1)
    return np.concatenate([start, start + sides], axis=1)


def centroid(channel: Array) -> Array:
    """(x, y) of a bright spot's center of mass: for rectangles too thin to have two edges."""
    total = channel.sum()
    y, x = np.indices(channel.shape) + 0.5
    return np.array([(x * channel).sum(), (y * channel).sum()]) / total


def painted_batch(seed: int, n: int = 8, smallest: int = 12, device: str = "cpu") -> da.Samples:
    rng = np.random.default_rng(seed)
    boxes = [random_boxes(rng, SIZE, smallest) for _ in range(n)]
    return da.batch([paint(SIZE, each) for each in boxes], boxes, [[1, 2, 3]] * n, seed=seed, device=device)


def assert_boxes_on_pixels(samples: da.Samples, tolerance: float) -> int:
    """Every box lies on its rectangle; returns how many were read."""
    read = 0
    for image, boxes, labels in zip(samples.images, samples.boxes, samples.labels, strict=True):
        for box, label in zip(boxes, labels, strict=True):
            seen = read_box(image[:, :, label - 1].astype(float))
            assert np.abs(seen - box).max() <= tolerance, f"box {box} but pixels {seen}, label {label}, {samples}"
            read += 1
    return read
