"""The scenes of the demo's pictures: meadow, street, table, water, beach.

A scene is a function (rng, width, height) -> the picture, and the height at which its ground begins, in 0..1.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageChops, ImageDraw, ImageFilter

from detaug.demo.textures import Array, Random, grid, ink, mix, noise, over, pick, points, to_picture


class Role(NamedTuple):
    """A class of things in a scene: their number (from, below), their size in front, relative to the picture's shorter
    side, and their depths (0 is the horizon, 1 the lower border)."""

    name: str
    number: tuple[int, int]
    scale: float
    depth: tuple[float, float] = (0.05, 1.0)


def _meadow(rng: Random, width: int, height: int) -> tuple[Image.Image, float]:
    shape, horizon = (height, width), rng.uniform(0.42, 0.52)
    depth = _depth(shape, horizon)
    blades, tufts = noise(rng, shape, 9, 4, stretch=0.35), noise(rng, shape, 60, 3, stretch=2)
    grass = mix((52, 84, 34), (146, 178, 80), 0.5 + 0.42 * (0.25 + depth) * blades + 0.21 * tufts)
    flowers = to_picture(255 * (rng.random(shape) > 1 - 0.004 * depth)).filter(ImageFilter.MaxFilter(3))
    petals = np.array(pick(rng, (246, 220, 90), (240, 240, 244), (214, 110, 160)))
    ground = over(petals, grass, np.asarray(flowers, np.float32) / 255)
    return _under_sky(rng, ground, horizon), horizon


def _street(rng: Random, width: int, height: int) -> tuple[Image.Image, float]:
    shape, horizon = (height, width), rng.uniform(0.44, 0.5)
    depth, (_, x) = _depth(shape, horizon), grid(*shape)
    grit, stains = noise(rng, shape, 5, 3), noise(rng, shape, 90, 3)
    asphalt = mix((70, 72, 78), (128, 128, 130), 0.5 + 0.3 * grit + 0.12 * stains)
    paving = mix((150, 144, 136), (196, 190, 180), 0.5 + 0.4 * noise(rng, shape, 8, 4))
    ground = over(paving, asphalt, (0.22 - depth) * 60 + 0 * x)
    kerb = (np.abs(depth - 0.23) < 0.012) + 0 * x
    dashes = (np.abs(depth - 0.62) < 0.022) & ((x * 4 + depth + rng.random()) % 1 < 0.55)
    ground = over(np.array((216, 214, 204)), ground, np.maximum(kerb, 0.85 * dashes))
    return _under_sky(rng, ground, horizon), horizon


def _table(rng: Random, width: int, height: int) -> tuple[Image.Image, float]:
    shape, horizon = (height, width), rng.uniform(0.34, 0.46)
    paint = pick(rng, (96, 78, 66), (66, 84, 92), (92, 92, 74))
    wall = mix(paint, (206, 190, 162), 0.45 + 0.5 * noise(rng, shape, 130, 2)) + _lamps(rng, width, height)
    grain = noise(rng, shape, 26, 5, stretch=14) + 0.35 * noise(rng, shape, 3, 2, stretch=20)
    wood = mix(pick(rng, (96, 58, 30), (120, 84, 48), (84, 62, 46)), (216, 168, 112), 0.5 + 0.4 * grain)
    board = _depth(shape, horizon) ** 0.7 * 5 % 1
    wood = over(np.array((48, 30, 18)), wood, 0.75 * (np.minimum(board, 1 - board) < 0.02))
    return to_picture(_below(horizon, wall, wood)), horizon


def _water(rng: Random, width: int, height: int) -> tuple[Image.Image, float]:
    shape, horizon = (height, width), rng.uniform(0.72, 0.82)
    y, x = grid(*shape)
    shallow = pick(rng, (66, 176, 196), (74, 160, 204), (90, 184, 170))
    sea = mix(shallow, (10, 54, 92), y * 1.15 + 0.12 * noise(rng, shape, 90, 5))
    angle = (x - rng.uniform(0.2, 0.8)) / (y + 0.25)
    rays = np.interp(angle, np.linspace(-5, 5, 400), noise(rng, (1, 400), 14, 3)[0]).clip(0)
    sea = sea + (rays * (1 - y) * 70 + noise(rng, shape, 10, 3) * 7)[..., None]
    sand = mix((92, 104, 92), (196, 190, 150), 0.5 + 0.35 * noise(rng, shape, 18, 5, stretch=3))
    return _weeds(rng, to_picture(_below(horizon, sea, sand)), horizon), horizon


def _beach(rng: Random, width: int, height: int) -> tuple[Image.Image, float]:
    shape, horizon = (height, width), rng.uniform(0.3, 0.4)
    y, shore = np.arange(height)[:, None], horizon + 0.16
    waves = noise(rng, shape, 7, 3, stretch=9)
    sea = mix((28, 96, 140), (120, 196, 206), _depth(shape, horizon) * 2.4 + 0.35 * waves)
    dunes = noise(rng, shape, 40, 4, stretch=2), noise(rng, shape, 4, 2)
    sand = mix((178, 146, 102), (244, 220, 178), 0.5 + 0.3 * dunes[0] + 0.2 * dunes[1])
    line = _ridge(rng, width, shore * height, 0.02 * height)
    ground = over(sand, _below(horizon, _sky(rng, width, height), sea), y - line)
    foam = np.exp(-(((y - line) / (0.012 * height)) ** 2)) * (0.75 + 0.4 * waves)
    return to_picture(over(np.array((248, 250, 250)), ground, foam)), shore


def _depth(shape: tuple[int, int], horizon: float) -> Array:
    """Return the depth of each pixel: 0 at the horizon, 1 at the lower border."""
    return np.broadcast_to(np.clip((grid(*shape)[0] - horizon) / (1 - horizon), 0, 1), shape)


def _below(horizon: float, upper: Array, lower: Array) -> Array:
    y = np.arange(len(upper))[:, None]
    return over(lower, upper, y - horizon * len(upper))


def _under_sky(rng: Random, ground: Array, horizon: float) -> Image.Image:
    """Draw a sky and two ranges of hills above the horizon."""
    height, width = ground.shape[:2]
    far, y = _sky(rng, width, height), np.arange(height)[:, None]
    for level, color in ((0.13, (128, 152, 172)), (0.05, (84, 118, 92))):
        hills = np.array(color) + noise(rng, (height, width), 14, 4)[..., None] * 16
        far = over(hills, far, y - _ridge(rng, width, (horizon - level) * height, 0.05 * height))
    return to_picture(_below(horizon, far, ground))


def _sky(rng: Random, width: int, height: int) -> Array:
    blue = pick(rng, (70, 130, 205), (96, 150, 210), (58, 104, 170))
    haze = pick(rng, (190, 216, 236), (238, 214, 190))
    cover = noise(rng, (height, width), height / 3, 6, stretch=2.2) * 1.3 - 0.25
    clouds = mix((205, 208, 216), (252, 252, 250), cover)
    return over(clouds, mix(blue, haze, grid(height, width)[0] * 1.6), cover * 1.6)


def _ridge(rng: Random, width: int, level: float, swing: float) -> Array:
    """Return (W,) the heights of a skyline or shore."""
    return np.asarray(level + swing * noise(rng, (1, width), width / 3, 5)[0])


def _lamps(rng: Random, width: int, height: int) -> Array:
    """Return pixels to add: lights far out of focus."""
    glow = Image.new("RGB", (width, height))
    for _ in range(14):
        x, y, r = rng.uniform(0, width), rng.uniform(0, height / 2), rng.uniform(0.02, 0.07) * width
        red, green, blue = (int(c) for c in rng.integers(20, 80, 3))
        lamp = Image.new("RGB", (width, height))
        ImageDraw.Draw(lamp).ellipse((x - r, y - r, x + r, y + r), fill=(red + 40, green + 20, blue))
        glow = ImageChops.add(glow, lamp)
    return np.asarray(glow.filter(ImageFilter.GaussianBlur(3)), np.float32)


def _weeds(rng: Random, picture: Image.Image, horizon: float) -> Image.Image:
    width, height = picture.size
    t = np.linspace(0, 1, 24)
    for foot in np.sort(rng.uniform(horizon, 0.98, 16)) * height:
        middle = rng.uniform(0, width) + np.sin(t * 7 + rng.uniform(0, 6)) * 0.03 * width * t
        half = 0.012 * width * (1 - t) ** 0.6 + 0.5
        y = foot - rng.uniform(0.15, 0.4) * height * t
        leaf = np.stack([np.r_[middle - half, (middle + half)[::-1]], np.r_[y, y[::-1]]], 1)
        color = pick(rng, (38, 104, 70), (60, 124, 60), (110, 88, 52), (30, 84, 84))
        ImageDraw.Draw(picture).polygon(points(leaf), fill=ink(color))
    return picture.filter(ImageFilter.GaussianBlur(1.2))


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
