"""The things in the demo's images: balls, cars, fish, houses, mugs, trees.

A thing is drawn on a square canvas, at two to four times its size, and shrunk. Outlines are (K, 2) points
x, y in the unit square of the canvas, y downwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from detaug.arrays import Array
from detaug.demo.textures import Color, Random, grid, noise, pick, to_picture

Outline = Sequence[tuple[float, float]] | Array


class Sketch(NamedTuple):
    """The square RGBA canvas of a thing, and the random generator for it."""

    canvas: Image.Image
    rng: Random


def draw_thing(name: str, rng: Random, side: int) -> Image.Image:
    """Draw an RGBA sprite, about `side` pixels large, mirrored or not, tilted, and cropped to its pixels."""
    painter, tilt = THINGS[name]
    finer = 2 if side > 150 else 3 if side > 40 else 4
    canvas = Image.new("RGBA", (side * finer, side * finer))
    painter(Sketch(canvas, rng))
    if rng.random() < 0.5:
        canvas = canvas.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    canvas = canvas.rotate(rng.uniform(-tilt, tilt), Image.Resampling.BICUBIC, expand=True)
    sprite = canvas.reduce(finer)
    return sprite.crop(sprite.getchannel("A").getbbox())


def part(
    sketch: Sketch, outline: Outline, color: Color, *, shade: float = 0.2, rows: int = 0, bulge: float = 0
) -> None:
    """Fill an outline.

    shade: darkening from the top to the foot. rows: of boards, bricks or tiles, with dark joints. bulge: darkening of
    the sides, as on a cylinder lit from the left.
    """
    canvas, rng = sketch
    mask = fill(outline, canvas.width)
    if area := mask.getbbox():
        y, x = grid(area[3] - area[1], area[2] - area[0])
        light = 1 + shade * (0.5 - y) - bulge * 1.8 * np.abs(x - 0.36) ** 1.5 - 0.22 * (y * rows % 1 > 0.84)
        light = light + 0.05 * noise(rng, (len(y), x.size), 6 + canvas.width / 40)
        canvas.paste(to_picture(light[..., None] * np.array(color, np.float32)), area[:2], mask.crop(area))


def fill(outline: Outline, side: int) -> Image.Image:
    """Return a mask of the pixels in an outline, 255 inside."""
    mask = Image.new("L", (side, side))
    ImageDraw.Draw(mask).polygon([(x, y) for x, y in (np.asarray(outline) * side).tolist()], fill=255)
    return mask


def oval(x: float, y: float, rx: float, ry: float, start: float = 0, stop: float = 2 * np.pi) -> Array:
    t = np.linspace(start, stop, 72)
    return np.stack([x + rx * np.cos(t), y + ry * np.sin(t)], 1)


def box(x1: float, y1: float, x2: float, y2: float) -> Array:
    return np.array(((x1, y1), (x2, y1), (x2, y2), (x1, y2)))


def curve(*corners: tuple[float, float]) -> Array:
    """Return a smooth closed outline through `corners` (Catmull-Rom)."""
    p1 = np.array(corners)
    p0, p2, p3 = np.roll(p1, 1, 0), np.roll(p1, -1, 0), np.roll(p1, -2, 0)
    t = np.linspace(0, 1, 12, endpoint=False)[:, None, None]
    bend, twist = 2 * p0 - 5 * p1 + 4 * p2 - p3, 3 * p1 - p0 - 3 * p2 + p3
    line = p1 + ((p2 - p0) * t + bend * t**2 + twist * t**3) / 2
    return np.asarray(line.transpose(1, 0, 2).reshape(-1, 2))


def times(color: Color, factor: float) -> Color:
    return tuple(min(255.0, value * factor) for value in color)


def _ball(sketch: Sketch) -> None:
    """Draw a sphere with six randomly turned stripes, lit from the upper left."""
    (canvas, rng), side = sketch, sketch.canvas.width
    y, x = (2.05 * (axis - 0.5) for axis in grid(side, side))
    normal = np.stack(np.broadcast_arrays(x, y, np.sqrt(np.clip(1 - x**2 - y**2, 0, 1))), -1)
    rotated = normal @ np.linalg.qr(rng.normal(size=(3, 3)))[0].astype(np.float32)
    warm, cool = pick(rng, (226, 58, 52), (240, 120, 40)), pick(rng, (40, 112, 200), (30, 150, 120))
    colors = np.array([warm, (246, 244, 238), cool, (246, 244, 238), (246, 200, 54), (246, 244, 238)])
    stripe = (np.arctan2(rotated[..., 1], rotated[..., 0]) / (2 * np.pi) % 1 * 6).astype(int) % 6
    lit = np.clip(normal @ np.array((-0.45, -0.65, 0.61), np.float32), 0, 1)[..., None]
    canvas.paste(
        to_picture(colors[stripe] * (0.42 + 0.68 * lit) + 110 * lit**28), mask=to_picture(255 * (x**2 + y**2 <= 1))
    )


def _mug(sketch: Sketch) -> None:
    color = pick(sketch.rng, (236, 232, 222), (208, 62, 56), (232, 178, 60), (58, 110, 176), (70, 140, 104))
    part(sketch, np.r_[oval(0.68, 0.52, 0.26, 0.25), oval(0.68, 0.52, 0.165, 0.16)[::-1]], color, shade=0.5)
    part(
        sketch,
        np.r_[oval(0.38, 0.87, 0.31, 0.1, 0, np.pi), oval(0.38, 0.17, 0.35, 0.1, np.pi, 2 * np.pi)],
        color,
        bulge=1,
    )
    for y in sketch.rng.choice([0.36, 0.46, 0.56, 0.66], 2, replace=False):
        band = np.r_[oval(0.38, y, 0.32, 0.1, np.pi, 0), oval(0.38, y + 0.06, 0.32, 0.1, 0, np.pi)]
        part(sketch, band, (250, 246, 236), bulge=1)
    part(sketch, oval(0.38, 0.17, 0.35, 0.1), times(color, 1.2))
    part(sketch, oval(0.38, 0.19, 0.3, 0.07), pick(sketch.rng, (66, 40, 26), (150, 100, 60)), shade=-0.3)


def _house(sketch: Sketch) -> None:
    """Draw a gable front, a long side in perspective, a roof with tiles, a chimney."""
    wall = pick(sketch.rng, (232, 220, 196), (206, 150, 110), (190, 204, 212), (226, 200, 120), (186, 92, 74))
    roof = pick(sketch.rng, (156, 66, 48), (92, 84, 84), (120, 58, 50), (70, 88, 110))
    part(sketch, box(0.68, 0.06, 0.76, 0.3), times(roof, 0.8), rows=7)
    part(sketch, ((0.42, 0.5), (0.95, 0.52), (0.95, 0.92), (0.42, 0.97)), times(wall, 0.78), rows=11)
    part(sketch, ((0.06, 0.95), (0.06, 0.5), (0.24, 0.2), (0.42, 0.5), (0.42, 0.97)), wall, rows=12)
    part(sketch, ((0.22, 0.15), (0.8, 0.2), (0.99, 0.55), (0.43, 0.54)), roof, rows=9, shade=0.35)
    gable = ((0.22, 0.15), (0.25, 0.15), (0.46, 0.54), (0.42, 0.56), (0.235, 0.22), (0.05, 0.54), (0.01, 0.52))
    part(sketch, gable, times(roof, 1.25))
    for x, y, width, height in ((0.19, 0.34, 0.1, 0.14), (0.5, 0.63, 0.15, 0.17), (0.74, 0.63, 0.13, 0.16)):
        part(sketch, box(x, y, x + width, y + height), (244, 242, 234))
        for left in (x + 0.01, x + width / 2 + 0.005):
            part(sketch, box(left, y + 0.01, left + width / 2 - 0.015, y + height - 0.01), (96, 130, 160), shade=0.9)
    part(sketch, box(0.17, 0.64, 0.31, 0.96), pick(sketch.rng, (110, 62, 36), (50, 90, 80), (140, 36, 40)))


def _tree(sketch: Sketch) -> None:
    """Draw a trunk, and clumps of leaves, each from the dark ones at the back to those in the light."""
    rng, side, draw = sketch.rng, sketch.canvas.width, ImageDraw.Draw(sketch.canvas)
    trunk = curve((0.46, 0.98), (0.455, 0.7), (0.43, 0.5), (0.57, 0.5), (0.545, 0.7), (0.55, 0.98))
    part(sketch, trunk, pick(rng, (98, 70, 48), (120, 100, 80)), bulge=1)
    color = np.array(pick(rng, (78, 128, 48), (104, 140, 50), (60, 108, 62), (206, 128, 44)))
    clumps = rng.uniform(-1, 1, (26, 2)) * (0.3, 0.23) + (0.5, 0.36)
    for index, clump in enumerate(clumps[np.argsort(-clumps[:, 1])]):
        level, drawn = np.linspace(0, 1, 70), rng.random((70, 4))
        angle, reach = drawn[:, 0] * 2 * np.pi, 0.125 * (1.1 - level * 0.5) * drawn[:, 1] ** 0.5
        x = clump[0] + reach * np.cos(angle) - 0.03 * level
        y = clump[1] + reach * np.sin(angle) - 0.045 * level
        r, light = 0.008 + 0.013 * drawn[:, 2], (0.4 + 0.5 * level + 0.009 * index) * (0.8 + 0.4 * drawn[:, 3])
        leaves = (side * np.stack([x - r, y - r, x + r, y + r], axis=1)).tolist()
        for corners, tint in zip(leaves, (color * light[:, None]).clip(0, 255).astype(int).tolist(), strict=True):
            draw.ellipse(corners, fill=tuple(tint))


def _car(sketch: Sketch) -> None:
    color = pick(sketch.rng, (232, 232, 228), (196, 44, 44), (242, 186, 48), (44, 92, 164), (60, 130, 98))
    cabin = curve((0.2, 0.5), (0.33, 0.33), (0.47, 0.29), (0.62, 0.3), (0.73, 0.36), (0.83, 0.5), (0.5, 0.55))
    body = curve((0.015, 0.6), (0.03, 0.52), (0.12, 0.475), (0.27, 0.455), (0.5, 0.46), (0.75, 0.455), (0.93, 0.475),
                 (0.98, 0.53), (0.985, 0.63), (0.95, 0.675), (0.5, 0.69), (0.06, 0.675))  # fmt: skip
    part(sketch, cabin, color)
    part(sketch, body, color, shade=0.5)
    part(sketch, ((0.275, 0.465), (0.36, 0.36), (0.465, 0.33), (0.475, 0.465)), (74, 98, 116), shade=1.1)
    part(sketch, ((0.505, 0.465), (0.5, 0.33), (0.62, 0.335), (0.7, 0.38), (0.765, 0.465)), (74, 98, 116), shade=1.1)
    part(sketch, box(0.49, 0.47, 0.496, 0.65), times(color, 0.5))
    part(sketch, oval(0.055, 0.545, 0.035, 0.026), (252, 246, 214))
    part(sketch, oval(0.965, 0.55, 0.018, 0.035), (190, 30, 30))
    for x in (0.22, 0.77):
        for radius, shade in ((0.115, 38), (0.062, 200), (0.03, 120)):
            part(sketch, oval(x, 0.665, radius, radius), (shade, shade, shade + 4), shade=0.4)


def _fish(sketch: Sketch) -> None:
    color = pick(sketch.rng, (238, 132, 40), (246, 204, 60), (214, 80, 92), (120, 190, 150), (170, 130, 200))
    for fin in (curve((0.74, 0.5), (0.86, 0.4), (0.985, 0.3), (0.94, 0.5), (0.985, 0.7), (0.86, 0.6)),
                curve((0.28, 0.34), (0.42, 0.2), (0.6, 0.19), (0.72, 0.28), (0.66, 0.42), (0.4, 0.4)),
                curve((0.44, 0.66), (0.52, 0.79), (0.62, 0.78), (0.62, 0.62))):  # fmt: skip
        part(sketch, fin, times(color, 0.78), rows=8)
    flank = curve((0.015, 0.51), (0.1, 0.4), (0.27, 0.31), (0.48, 0.3), (0.66, 0.38), (0.8, 0.46), (0.8, 0.54),
                  (0.66, 0.62), (0.46, 0.7), (0.26, 0.69), (0.09, 0.6))  # fmt: skip
    part(sketch, flank, color, shade=0.6, rows=14)
    for x in (0.33, 0.5)[: sketch.rng.integers(0, 3)]:
        part(sketch, curve((x, 0.36), (x + 0.06, 0.36), (x + 0.08, 0.5), (x + 0.06, 0.64), (x, 0.64)), (250, 248, 240))
    part(sketch, curve((0.36, 0.5), (0.5, 0.46), (0.55, 0.54), (0.48, 0.63), (0.38, 0.57)), times(color, 0.78), rows=5)
    part(sketch, oval(0.15, 0.455, 0.042, 0.042), (250, 250, 246))
    part(sketch, oval(0.15, 0.455, 0.024, 0.024), (20, 22, 30))


THINGS: dict[str, tuple[Callable[[Sketch], None], float]] = {
    "ball": (_ball, 0),
    "car": (_car, 6),
    "fish": (_fish, 40),
    "house": (_house, 2),
    "mug": (_mug, 9),
    "tree": (_tree, 5),
}
"""The drawing function of each class, and the degrees by which it may be tilted."""
