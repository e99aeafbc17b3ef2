"""Draw masks: transparent colors with outlines, with smooth edges at any size of the image."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from detaug.drawing.colors import Color
from detaug.drawing.images import as_array, to_image
from detaug.errors import InputError

Masks = NDArray[np.bool_]
Shares = NDArray[np.float32]

FILL = 0.4
"""Fraction of the color inside of an object."""

SHADE = 0.6
"""Fraction of black in the thin line around the outline, which is seen on a background of the class's color."""

FINE = 3
"""Samples along each side of a pixel."""

MOST_SAMPLES = 100_000_000
"""Of all objects of an image; with more, one sample per pixel is taken."""


def draw_masks(image: Any, masks: Any, colors: Sequence[Color]) -> Image.Image:
    """Return a copy of `image`, as `to_image` takes it, with M objects in their colors, small ones on large ones.

    `masks`: (M, H, W) bool, which are stretched over the image; or a function that takes a height and a width and
    returns masks of this size, which gives smooth outlines. `colors`: M of them.
    Raises InputError for masks of another shape or number.

    >>> square = np.zeros((1, 48, 64), bool)
    >>> square[0, 10:30, 10:30] = True
    >>> draw_masks(Image.new("RGB", (64, 48)), square, [(255, 0, 0)]).getpixel((20, 20))
    (102, 0, 0)
    """
    canvas = to_image(image)
    sampled = _sampled(masks, len(colors), canvas.height, canvas.width)
    if not sampled.size:
        return canvas
    fine = sampled.shape[1] // canvas.height
    pixels = np.asarray(canvas).astype(np.float32)
    width = max(1.0, sum(canvas.size) / 500)
    for number in np.argsort(-sampled.sum((1, 2)), kind="stable").tolist():
        window = _window(sampled[number], fine, round(width) + 2)
        part = pixels[window]
        mask = sampled[number][tuple(slice(span.start * fine, span.stop * fine) for span in window)]
        reach = round(width * fine)
        inner, outer = _grown(~mask, reach), _grown(mask, max(1, fine * 2 // 3))
        inside, line, shade = (_shares(area, fine) for area in (mask & ~inner, mask & inner, outer & ~mask))
        part *= 1 - SHADE * shade
        part += (np.float32(colors[number]) - part) * (FILL * inside + line)
    return Image.fromarray(pixels.round().astype(np.uint8))


def _sampled(masks: Any, count: int, height: int, width: int) -> Masks:
    """Return (M, height * f, width * f): the masks at the size of an image, f samples along each side of a pixel."""
    fine = FINE if count * height * width * FINE**2 <= MOST_SAMPLES else 1
    height, width = height * fine, width * fine
    array = as_array(masks(height, width) if callable(masks) else masks).astype(bool)
    if array.ndim != 3 or len(array) != count:
        raise InputError(f"masks must be (M, H, W), of {count} objects, got shape {array.shape}")
    if array.shape[1:] == (height, width) or not array.size:
        return array
    rows, columns = (
        ((np.arange(side) + 0.5) * own / side).astype(int)
        for side, own in zip((height, width), array.shape[1:], strict=True)
    )
    return array[:, rows[:, None], columns]


def _window(mask: Masks, fine: int, margin: int) -> tuple[slice, slice]:
    """Return the pixels around what is set in a mask of `fine` samples along a pixel; empty where nothing is."""
    spans = []
    for axis in (1, 0):
        positions = np.flatnonzero(mask.any(axis)) // fine
        first, last = (positions[0], positions[-1]) if len(positions) else (0, -1)
        spans.append(slice(max(0, int(first) - margin), min(mask.shape[1 - axis] // fine, int(last) + 1 + margin)))
    return spans[0], spans[1]


def _grown(mask: Masks, reach: int) -> Masks:
    """Return a mask grown by `reach` samples: by crosses and squares in turn, which make about a disc.

    What lies beyond the border of the image does not count, so that an outline ends there.
    """
    for step in range(reach):
        grown = mask.copy()
        grown[1:] |= mask[:-1]
        grown[:-1] |= mask[1:]
        across = grown.copy() if step % 2 else mask
        grown[:, 1:] |= across[:, :-1]
        grown[:, :-1] |= across[:, 1:]
        mask = grown
    return mask


def _shares(mask: Masks, fine: int) -> Shares:
    """Return (h, w, 1): the fraction of each pixel that is set."""
    height, width = mask.shape
    blocks = mask.reshape(height // fine, fine, width // fine, fine)
    return np.asarray(blocks.mean((1, 3), dtype=np.float32))[..., None]
