"""The things in the demo's pictures: balls, cars, fish, houses, mugs, trees.

A thing is drawn on a square canvas, at two to four times its size, and shrunk. Outlines are (K, 2) points
x, y in the unit square of the canvas, y downwards.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from PIL import Image, ImageChops, ImageDraw

from detaug.demo.textures import Array, Color, Random, grid, ink, mix, noise, pick, points, times, to_picture

Outline = Sequence[tuple[float, float]] | Array
Pattern = Callable[[Array, Array], Array]


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
    sketch: Sketch,
    outline: Outline,
    color: Color,
    *,
    shade: float = 0.2,
    bulge: float = 0.0,
    pattern: Pattern | None = None,
    inside: Image.Image | None = None,
) -> Image.Image:
    """Fill an outline; return its mask, as large as the canvas.

    shade: darkening from the top to the foot. bulge: darkening of the sides, as on a cylinder
    lit from the left. pattern: brightness, a function of y and x in 0..1 over the part. inside: a mask that
    limits the painting.
    """
    canvas, rng = sketch
    mask = Image.new("L", canvas.size)
    ImageDraw.Draw(mask).polygon(points(np.asarray(outline) * canvas.width), fill=255)
    mask = mask if inside is None else ImageChops.multiply(mask, inside)
    area = mask.getbbox()
    if area:
        shape = area[3] - area[1], area[2] - area[0]
        light = _light(shape, shade, bulge, pattern) + 0.05 * noise(rng, shape, 6 + canvas.width / 40)
        canvas.paste(to_picture(light[..., None] * np.array(color, np.float32)), area[:2], mask.crop(area))
    return mask


def _light(shape: tuple[int, int], shade: float, bulge: float, pattern: Pattern | None) -> Array:
    y, x = grid(*shape)
    light = 1 + shade * (0.5 - y) - bulge * 1.8 * np.abs(x - 0.36) ** 1.5
    return np.asarray(light * (1 if pattern is None else pattern(y, x)))


def oval(x: float, y: float, rx: float, ry: float, start: float = 0, stop: float = 2 * np.pi) -> Array:
    t = np.linspace(start, stop, 72)
    return np.stack([x + rx * np.cos(t), y + ry * np.sin(t)], 1)


def curve(*corners: tuple[float, float]) -> Array:
    """Return a smooth closed outline through `corners` (Catmull-Rom)."""
    p1 = np.array(corners)
    p0, p2, p3 = np.roll(p1, 1, 0), np.roll(p1, -1, 0), np.roll(p1, -2, 0)
    t = np.linspace(0, 1, 12, endpoint=False)[:, None, None]
    bend, twist = 2 * p0 - 5 * p1 + 4 * p2 - p3, 3 * p1 - p0 - 3 * p2 + p3
    line = p1 + ((p2 - p0) * t + bend * t**2 + twist * t**3) / 2
    return np.asarray(line.transpose(1, 0, 2).reshape(-1, 2))


def within(corners: Outline, x1: float, y1: float, x2: float, y2: float) -> Array:
    """Return a rectangle, in 0..1, on the quadrilateral `corners` (clockwise from its top left)."""
    a, b, c, d = np.asarray(corners)
    spots = ((x1, y1), (x2, y1), (x2, y2), (x1, y2))
    return np.array([(a * (1 - u) + b * u) * (1 - v) + (d * (1 - u) + c * u) * v for u, v in spots])


def box(x1: float, y1: float, x2: float, y2: float) -> Array:
    return np.array(((x1, y1), (x2, y1), (x2, y2), (x1, y2)))


def rows(count: int) -> Pattern:
    """Return a pattern of boards, bricks or tiles: `count` rows with dark joints."""

    def pattern(y: Array, x: Array) -> Array:
        upright = (x * count + np.floor(y * count) * 0.5) % 1 < 0.12
        return np.asarray(1 - 0.22 * (y * count % 1 < 0.16) - 0.08 * upright)

    return pattern


# ---------------------------------------------------------------- ball


def _ball(sketch: Sketch) -> None:
    """Draw a sphere with a randomly turned pattern, lit from the upper left."""
    (canvas, rng), side = sketch, sketch.canvas.width
    y, x = (2.05 * (axis - 0.5) for axis in grid(side, side))
    z = np.sqrt(np.clip(1 - x**2 - y**2, 0, 1))
    normal = np.stack(np.broadcast_arrays(x, y, z), -1)
    turn = np.linalg.qr(rng.normal(size=(3, 3)))[0].astype(np.float32)
    pattern = (_beach_ball, _football, _basketball)[rng.integers(3)]
    lit = np.clip(normal @ np.array((-0.45, -0.65, 0.61), np.float32), 0, 1)[..., None]
    pixels = pattern(normal @ turn, rng) * (0.42 + 0.68 * lit) + 110 * lit**28
    pixels = pixels + 4 * noise(rng, (side, side), 8, 3)[..., None]
    canvas.paste(to_picture(pixels), mask=to_picture(255 * (x**2 + y**2 <= 1)))


def _beach_ball(normal: Array, rng: Random) -> Array:
    white, warm, cool = (246, 244, 238), ((226, 58, 52), (240, 120, 40)), ((40, 112, 200), (30, 150, 120))
    colors = np.array([pick(rng, *warm), white, pick(rng, *cool), white, (246, 200, 54), white])
    turn = np.arctan2(normal[..., 1], normal[..., 0]) / (2 * np.pi) % 1
    pixels = colors[(turn * 6).astype(int) % 6]
    pixels[np.abs(normal[..., 2]) > 0.95] = 246
    return np.asarray(pixels)


def _football(normal: Array, rng: Random) -> Array:
    """Draw dark patches at the 12 corners of an icosahedron, and seams half way between them."""
    golden = (1 + 5**0.5) / 2
    corners = np.array([(0, a, b * golden) for a in (-1, 1) for b in (-1, 1)]) / np.hypot(1, golden)
    corners = np.concatenate([np.roll(corners, k, 1) for k in range(3)])
    near = np.sort(normal @ corners.T, -1)
    pixels = np.full(normal.shape, 240.0)
    pixels[near[..., -1] - near[..., -2] < 0.025] = 120
    pixels[near[..., -1] > 0.93] = pick(rng, (34, 34, 40), (30, 60, 150), (170, 30, 40))
    return pixels


def _basketball(normal: Array, rng: Random) -> Array:
    x, y, _ = np.moveaxis(normal, -1, 0)
    seams = np.minimum(np.abs(x), np.abs(y)) < 0.028
    arcs = np.abs(np.abs(x) - 0.42 - 0.35 * y**2) < 0.028
    leather = pick(rng, (216, 112, 44), (200, 92, 40), (190, 204, 60))
    return mix(leather, (54, 34, 28), 1.0 * (seams | arcs))


# ---------------------------------------------------------------- mug


def _mug(sketch: Sketch) -> None:
    rng, reds, blues = (
        sketch.rng,
        ((208, 62, 56), (232, 178, 60)),
        ((58, 110, 176), (70, 140, 104), (120, 88, 150)),
    )
    color = pick(rng, (236, 232, 222), *reds, *blues)
    part(sketch, np.r_[oval(0.68, 0.52, 0.26, 0.25), oval(0.68, 0.52, 0.165, 0.16)[::-1]], color, shade=0.5)
    outline = np.r_[oval(0.38, 0.87, 0.31, 0.1, 0, np.pi), oval(0.38, 0.17, 0.35, 0.1, np.pi, 2 * np.pi)]
    body = part(sketch, outline, color, bulge=1.1)
    decoration = pick(rng, (250, 246, 236), (250, 214, 120), (40, 44, 60))
    (_heart if rng.random() < 0.4 else _bands)(sketch, body, decoration)
    part(sketch, oval(0.38, 0.17, 0.35, 0.1), times(color, 1.2))
    part(sketch, oval(0.38, 0.175, 0.315, 0.083), times(color, 0.6), shade=-0.5)
    drink = pick(rng, (66, 40, 26), (150, 100, 60), (170, 80, 30))
    part(sketch, oval(0.38, 0.195, 0.28, 0.06), drink, shade=-0.3)


def _heart(sketch: Sketch, body: Image.Image, color: Color) -> None:
    t = np.linspace(0, 2 * np.pi, 72)
    x, y = 16 * np.sin(t) ** 3, 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
    part(sketch, np.stack([0.38 + x / 90, 0.57 - y / 95], 1), color, inside=body)


def _bands(sketch: Sketch, body: Image.Image, color: Color) -> None:
    for y in sketch.rng.choice([0.36, 0.46, 0.56, 0.66, 0.76], 2, replace=False):
        band = np.r_[oval(0.38, y, 0.4, 0.1, np.pi, 0), oval(0.38, y + 0.06, 0.4, 0.1, 0, np.pi)]
        part(sketch, band, color, bulge=1.1, inside=body)


# ---------------------------------------------------------------- house


def _house(sketch: Sketch) -> None:
    """Draw a gable front, a long side in perspective, a roof with tiles, a chimney."""
    rng = sketch.rng
    wall = pick(rng, (232, 220, 196), (206, 150, 110), (190, 204, 212), (226, 200, 120), (186, 92, 74))
    roof = pick(rng, (156, 66, 48), (92, 84, 84), (120, 58, 50), (70, 88, 110))
    boards = rows(int(rng.integers(8, 14)))
    side = ((0.42, 0.5), (0.95, 0.52), (0.95, 0.92), (0.42, 0.97))
    front = ((0.06, 0.95), (0.06, 0.5), (0.24, 0.2), (0.42, 0.5), (0.42, 0.97))
    gable = (
        (0.22, 0.15),
        (0.25, 0.15),
        (0.46, 0.54),
        (0.42, 0.56),
        (0.235, 0.22),
        (0.05, 0.54),
        (0.01, 0.52),
    )
    part(sketch, box(0.68, 0.06, 0.76, 0.3), times(roof, 0.8), pattern=rows(7))
    part(sketch, side, times(wall, 0.78), pattern=boards)
    part(sketch, front, wall, pattern=boards)
    part(sketch, ((0.22, 0.15), (0.8, 0.2), (0.99, 0.55), (0.43, 0.54)), roof, pattern=rows(9), shade=0.35)
    part(sketch, gable, times(roof, 1.25))
    for window in (
        box(0.19, 0.34, 0.29, 0.48),
        within(side, 0.12, 0.28, 0.4, 0.68),
        within(side, 0.58, 0.28, 0.86, 0.68),
    ):
        _window(sketch, window)
    part(sketch, box(0.17, 0.64, 0.31, 0.96), pick(rng, (110, 62, 36), (50, 90, 80), (140, 36, 40)))
    part(sketch, oval(0.285, 0.81, 0.012, 0.012), (236, 210, 120))


def _window(sketch: Sketch, corners: Array) -> None:
    part(sketch, corners, (244, 242, 234))
    for x in (0.1, 0.54):
        for y in (0.08, 0.53):
            part(sketch, within(corners, x, y, x + 0.36, y + 0.39), (96, 130, 160), shade=0.9)


# ---------------------------------------------------------------- tree


def _tree(sketch: Sketch) -> None:
    trunk = curve((0.46, 0.98), (0.455, 0.7), (0.43, 0.5), (0.57, 0.5), (0.545, 0.7), (0.55, 0.98))
    part(sketch, trunk, pick(sketch.rng, (98, 70, 48), (120, 100, 80)), bulge=1.0, pattern=_bark)
    (_leaves if sketch.rng.random() < 0.65 else _conifer)(sketch)


def _bark(y: Array, x: Array) -> Array:
    return np.asarray(1 - 0.2 * (np.sin(x * 40 + np.sin(y * 14) * 2) > 0.4))


def _leaves(sketch: Sketch) -> None:
    """Draw clumps of leaves, each from the dark ones at the back to those in the light."""
    rng, side, draw = sketch.rng, sketch.canvas.width, ImageDraw.Draw(sketch.canvas)
    color = pick(rng, (78, 128, 48), (104, 140, 50), (60, 108, 62), (206, 128, 44))
    clumps = rng.uniform(-1, 1, (26, 2)) * (0.3, 0.23) * rng.uniform(0.75, 1.1, (26, 1)) + (0.5, 0.36)
    for k, (x, y) in enumerate(clumps[np.argsort(-clumps[:, 1])]):
        for level in np.linspace(0, 1, 70):
            angle, reach = rng.uniform(0, 2 * np.pi), 0.125 * (1.1 - level * 0.5) * rng.uniform(0, 1) ** 0.5
            cx, cy = x + reach * np.cos(angle) - 0.03 * level, y + reach * np.sin(angle) - 0.045 * level
            r = rng.uniform(0.008, 0.021)
            light = (0.4 + 0.5 * level + 0.009 * k) * rng.uniform(0.8, 1.2)
            spot = [side * v for v in (cx - r, cy - r, cx + r, cy + r)]
            draw.ellipse(spot, fill=ink(times(color, light)))


def _conifer(sketch: Sketch) -> None:
    color = pick(sketch.rng, (40, 84, 56), (52, 96, 50), (36, 76, 72))
    t = np.linspace(-1, 1, 15)
    for k, top in enumerate(np.linspace(0.58, 0.02, 6)):
        ragged = 0.02 * (np.arange(15) % 2) + sketch.rng.uniform(-0.012, 0.012, 15)
        hem = np.stack([0.5 + (0.36 - 0.05 * k) * t, top + 0.26 - 0.05 * t**2 + ragged], 1)
        layer = np.r_[[(0.5, top)], hem[::-1]]
        part(sketch, layer, times(color, 0.85 + 0.06 * k), shade=-0.5, bulge=0.9, pattern=_needles)


def _needles(y: Array, x: Array) -> Array:
    return np.asarray(1 + 0.16 * np.sin(x * 50 + y * 9) * np.sin(y * 30))


# ---------------------------------------------------------------- car


def _car(sketch: Sketch) -> None:
    warm, cool = ((196, 44, 44), (242, 186, 48)), ((44, 92, 164), (60, 130, 98), (150, 156, 164))
    color = pick(sketch.rng, (232, 232, 228), *warm, *cool)
    part(sketch, CABIN, color, shade=0.3)
    part(sketch, BODY, color, pattern=_gloss)
    for pane in (((0.275, 0.465), (0.36, 0.36), (0.465, 0.33), (0.475, 0.465)),
                 ((0.505, 0.465), (0.5, 0.33), (0.62, 0.335), (0.7, 0.38), (0.765, 0.465))):  # fmt: skip
        part(sketch, pane, (74, 98, 116), shade=1.1)
    for line in (box(0.49, 0.47, 0.496, 0.65), box(0.775, 0.47, 0.781, 0.65), box(0.53, 0.515, 0.585, 0.528)):
        part(sketch, line, times(color, 0.5))
    part(sketch, oval(0.055, 0.545, 0.035, 0.026), (252, 246, 214))
    part(sketch, oval(0.965, 0.55, 0.018, 0.035), (190, 30, 30))
    for x in (0.22, 0.77):
        _wheel(sketch, x, 0.665)


CABIN = curve((0.2, 0.5), (0.33, 0.33), (0.47, 0.29), (0.62, 0.3), (0.73, 0.36), (0.83, 0.5), (0.5, 0.55))
BODY = curve((0.015, 0.6), (0.03, 0.52), (0.12, 0.475), (0.27, 0.455), (0.5, 0.46), (0.75, 0.455),
             (0.93, 0.475), (0.98, 0.53), (0.985, 0.63), (0.95, 0.675), (0.5, 0.69),
             (0.06, 0.675))  # fmt: skip


def _gloss(y: Array, x: Array) -> Array:
    return np.asarray(1.12 - 0.3 * (y > 0.42) * y - 0.12 * (np.abs(y - 0.42) < 0.03) + 0 * x)


def _wheel(sketch: Sketch, x: float, y: float) -> None:
    for radius, color in (
        (0.115, (38, 38, 42)),
        (0.1, (26, 26, 28)),
        (0.062, (196, 198, 204)),
        (0.05, (120, 124, 130)),
    ):
        part(sketch, oval(x, y, radius, radius), color, shade=0.4)
    for turn in np.arange(5) * 0.4 * np.pi + sketch.rng.uniform(0, 1):
        along, across = np.array(((np.cos(turn), np.sin(turn)), (-np.sin(turn), np.cos(turn))))
        spoke = (
            -0.01 * across,
            0.056 * along - 0.007 * across,
            0.056 * along + 0.007 * across,
            0.01 * across,
        )
        part(sketch, np.add(spoke, (x, y)), (214, 216, 220))


# ---------------------------------------------------------------- fish


def _fish(sketch: Sketch) -> None:
    rng, warm = sketch.rng, ((238, 132, 40), (246, 204, 60), (214, 80, 92))
    color = pick(rng, *warm, (72, 142, 204), (120, 190, 150), (170, 130, 200))
    for fin in FINS:
        part(sketch, fin, times(color, 0.78), pattern=_fan)
    body = part(sketch, FLANK, color, shade=-0.25, pattern=_scales)
    stripe = pick(rng, (250, 248, 240), (40, 48, 66), (250, 220, 120))
    for x in (0.3, 0.5, 0.67)[: rng.integers(0, 4)]:
        band = np.add(((0, 0.2), (0.06, 0.2), (0.085, 0.5), (0.06, 0.8), (0, 0.8), (0.03, 0.5)), (x, 0))
        part(sketch, curve(*points(band)), stripe, pattern=_scales, inside=body)
    side_fin = curve((0.36, 0.5), (0.5, 0.46), (0.55, 0.54), (0.48, 0.63), (0.38, 0.57))
    part(sketch, side_fin, times(color, 0.78), pattern=_fan)
    for radius, eye in ((0.042, (250, 250, 246)), (0.024, (20, 22, 30)), (0.009, (255, 255, 255))):
        part(sketch, oval(0.15, 0.455, radius, radius), eye)
    part(sketch, curve((0.02, 0.53), (0.07, 0.56), (0.11, 0.555), (0.07, 0.575)), times(color, 0.4))


FLANK = curve((0.015, 0.51), (0.1, 0.4), (0.27, 0.31), (0.48, 0.3), (0.66, 0.38), (0.8, 0.46), (0.8, 0.54),
              (0.66, 0.62), (0.46, 0.7), (0.26, 0.69), (0.09, 0.6))  # fmt: skip
FINS = (
    curve((0.74, 0.5), (0.86, 0.4), (0.985, 0.3), (0.94, 0.5), (0.985, 0.7), (0.86, 0.6)),
    curve((0.28, 0.34), (0.42, 0.2), (0.6, 0.19), (0.72, 0.28), (0.66, 0.42), (0.4, 0.4)),
    curve((0.44, 0.66), (0.52, 0.79), (0.62, 0.78), (0.62, 0.62)),
)


def _fan(y: Array, x: Array) -> Array:
    return np.asarray(1 + 0.14 * np.sin(26 * (y - 0.5) / (x + 0.35)))


def _scales(y: Array, x: Array) -> Array:
    row = np.floor(y * 16)
    u, v = (x * 22 + 0.5 * (row % 2)) % 1 - 0.5, y * 16 % 1
    return np.asarray(1.25 - 0.55 * y - 0.13 * (np.hypot(u, v) > 0.55) + np.clip(y - 0.75, 0, 1))


THINGS: dict[str, tuple[Callable[[Sketch], None], float]] = {
    "ball": (_ball, 0),
    "car": (_car, 6),
    "fish": (_fish, 40),
    "house": (_house, 2),
    "mug": (_mug, 9),
    "tree": (_tree, 5),
}
"""The drawing function of each class, and the degrees by which it may be tilted."""
