"""Noise, colors and other textures of drawn images.

Textures are (H, W) arrays, pixels (H, W, 3) in 0..255.
"""

from __future__ import annotations

import numpy as np
from PIL import Image

from detaug.arrays import Array

Color = tuple[float, ...]
Random = np.random.Generator


def to_picture(pixels: Array) -> Image.Image:
    return Image.fromarray(np.clip(pixels + 0.5, 0, 255).astype(np.uint8))


def photograph(image: Image.Image, rng: Random) -> Image.Image:
    """Add what a camera would: a tint, darker corners, grain."""
    y, x = grid(image.height, image.width)
    tint = rng.uniform(0.94, 1.06, 3).astype(np.float32)
    light = 1.04 - 0.24 * ((x - 0.5) ** 2 + (y - 0.5) ** 2)
    grain = 4.5 * rng.standard_normal(light.shape, np.float32)
    return to_picture(np.asarray(image, np.float32) * light[..., None] * tint + grain[..., None])


def grid(height: int, width: int) -> tuple[Array, Array]:
    """Return y (H, 1) and x (1, W), the centers of the pixels in 0..1."""
    y = (np.arange(height, dtype=np.float32) + 0.5) / height
    x = (np.arange(width, dtype=np.float32) + 0.5) / width
    return y[:, None], x[None, :]


def noise(rng: Random, shape: tuple[int, int], cell: float, octaves: int = 4, stretch: float = 1) -> Array:
    """Return soft noise, about -1..1: lumps of `cell` pixels, `stretch` times as wide as high, and finer ones."""
    height, width = shape
    total = np.zeros(shape, np.float32)
    for octave in range(octaves):
        rows, columns = height / cell * 2**octave, width / cell / stretch * 2**octave
        lattice = rng.uniform(-1, 1, (int(rows) + 3, int(columns) + 3)).astype(np.float32)
        lumps = Image.fromarray(lattice).resize((width, height), Image.Resampling.BICUBIC, (0, 0, columns, rows))
        total += np.asarray(lumps) / 1.7**octave
    return total / 1.3


def mix(bottom: Color | Array, top: Color | Array, cover: Array) -> Array:
    """Blend two colors or images: `bottom` where cover is 0 or less, `top` where it is 1 or more."""
    low, high = np.asarray(bottom, np.float32), np.asarray(top, np.float32)
    return np.asarray(low + (high - low) * np.clip(cover, 0, 1)[..., None])


def pick(rng: Random, *colors: Color) -> Color:
    return colors[rng.integers(len(colors))]
