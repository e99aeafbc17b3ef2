"""The scenes of the demo's images: meadow, street, table, water, beach.

A scene is a function (rng, width, height) -> the image, and the height at which its ground begins, in 0..1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image

from detaug.arrays import Array
from detaug.demo.textures import Random, grid, mix, noise, pick, to_picture


class Role(NamedTuple):
    """A class of things in a scene: their number (from, below), their size in front, relative to the image's shorter
    side, and their depths (0 is the horizon, 1 the lower border)."""

    name: str
    number: tuple[int, int]
    scale: float
    depth: tuple[float, float] = (0.05, 1.0)


def _meadow(rng: Random, width: int, height: int) -> tuple[Image.Image, float]:
    horizon = rng.uniform(0.42, 0.52)
    depth, hills = _depth(width, height, horizon), _depth(width, height, horizon - 0.08)
    blades = noise(rng, (height, width), 9, stretch=0.35) * (0.25 + depth) + 0.5 * noise(rng, (height, width), 60, 3)
    far = mix(_sky(rng, width, height), (92, 126, 104), 40 * hills + noise(rng, (1, width), width / 3)[0] - 1)
    return to_picture(mix(far, mix((52, 84, 34), (146, 178, 80), 0.5 + 0.42 * blades), 400 * depth)), horizon


def _street(rng: Random, width: int, height: int) -> tuple[Image.Image, float]:
    horizon = rng.uniform(0.44, 0.5)
    depth, (_, x) = _depth(width, height, horizon), grid(height, width)
    grit = noise(rng, (height, width), 5, 3)
    paving = mix((150, 144, 136), (196, 190, 180), 0.5 + 0.5 * grit)
    asphalt = mix((70, 72, 78), (128, 128, 130), 0.5 + 0.5 * grit)
    dashes = (np.abs(depth - 0.62) < 0.022) & ((x * 4 + depth + rng.random()) % 1 < 0.55)
    ground = mix(mix(paving, asphalt, (depth - 0.22) * 60), (216, 214, 204), 0.85 * dashes)
    return to_picture(mix(_sky(rng, width, height), ground, 400 * depth)), horizon


def _table(rng: Random, width: int, height: int) -> tuple[Image.Image, float]:
    horizon = rng.uniform(0.34, 0.46)
    paint = pick(rng, (96, 78, 66), (66, 84, 92), (92, 92, 74))
    wall = mix(paint, (206, 190, 162), 0.45 + 0.5 * noise(rng, (height, width), 130))
    depth, grain = _depth(width, height, horizon), noise(rng, (height, width), 26, 5, stretch=14)
    wood = mix(pick(rng, (96, 58, 30), (120, 84, 48), (84, 62, 46)), (216, 168, 112), 0.5 + 0.5 * grain)
    joint = np.abs(depth**0.7 * 5 % 1 - 0.5) > 0.48
    return to_picture(mix(wall, mix(wood, (48, 30, 18), 0.75 * joint), 400 * depth)), horizon


def _water(rng: Random, width: int, height: int) -> tuple[Image.Image, float]:
    horizon, (y, x) = rng.uniform(0.72, 0.82), grid(height, width)
    shallow = pick(rng, (66, 176, 196), (74, 160, 204), (90, 184, 170))
    sea = mix(shallow, (10, 54, 92), y * 1.15 + 0.12 * noise(rng, (height, width), 90, 5))
    rays = np.sin(25 * (x - rng.uniform(0.2, 0.8)) / (y + 0.25)).clip(0)
    sea = sea + (rays * (1 - y) * 40 + 9 * noise(rng, (height, width), 10))[..., None]
    sand = mix((92, 104, 92), (196, 190, 150), 0.5 + 0.35 * noise(rng, (height, width), 18, 5, stretch=3))
    return to_picture(mix(sea, sand, 400 * _depth(width, height, horizon))), horizon


def _beach(rng: Random, width: int, height: int) -> tuple[Image.Image, float]:
    horizon = rng.uniform(0.3, 0.4)
    shore, depth = horizon + 0.16, _depth(width, height, horizon)
    waves, dunes = noise(rng, (height, width), 7, 3, stretch=9), noise(rng, (height, width), 16, stretch=2)
    sea = mix((28, 96, 140), (120, 196, 206), depth * 2.4 + 0.35 * waves)
    beyond = grid(height, width)[0] - shore - 0.02 * noise(rng, (1, width), width / 3)
    ground = mix(mix(_sky(rng, width, height), sea, 400 * depth), (248, 250, 250), 1 + 60 * beyond)
    return to_picture(mix(ground, mix((178, 146, 102), (244, 220, 178), 0.5 + 0.4 * dunes), 60 * beyond)), shore


def _depth(width: int, height: int, horizon: float) -> Array:
    """Return (H, W) the depth of each pixel: 0 at the horizon, 1 at the lower border."""
    return np.broadcast_to(np.clip((grid(height, width)[0] - horizon) / (1 - horizon), 0, 1), (height, width))


def _sky(rng: Random, width: int, height: int) -> Array:
    blue = pick(rng, (70, 130, 205), (96, 150, 210), (58, 104, 170))
    clouds = noise(rng, (height, width), height / 3, 6, stretch=2.2) * 2 - 0.4
    return mix(mix(blue, (214, 220, 226), grid(height, width)[0] * 1.6), (250, 250, 250), clouds)


Scene = Callable[[Random, int, int], tuple[Image.Image, float]]

SCENES: tuple[tuple[Scene, list[Role]], ...] = (
    (_meadow, [Role("house", (1, 2), 0.9, (0.05, 0.6)), Role("tree", (1, 4), 0.8),
               Role("ball", (1, 3), 0.22)]),
    (_table, [Role("mug", (1, 4), 0.6), Role("ball", (0, 3), 0.4), Role("car", (0, 2), 0.5)]),
    (_street, [Role("house", (1, 3), 1.4, (0, 0.17)), Role("tree", (0, 3), 1.3, (0, 0.19)),
               Role("car", (1, 4), 0.75, (0.25, 1)), Role("ball", (0, 2), 0.2, (0.25, 1))]),
    (_water, [Role("fish", (2, 7), 0.6)]),
    (_beach, [Role("ball", (1, 4), 0.35), Role("mug", (0, 3), 0.25), Role("car", (0, 2), 0.7, (0.3, 1))]),
)  # fmt: skip
