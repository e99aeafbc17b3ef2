"""Draw ships at sea from above, at any angle, with rotated boxes and outlines, for `detaug demo`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw, ImageFilter

from detaug.arrays import Array
from detaug.coco.rings import keys_of_corners, keys_of_rings
from detaug.coco.writer import whole_numbers
from detaug.demo.coco import Drawn, write_pictures
from detaug.demo.shapes import SIZES
from detaug.demo.textures import Random, mix, noise, photograph, pick, to_picture
from detaug.demo.things import Outline, Sketch, box, curve, oval, part, times
from detaug.errors import InputError

__all__ = ["make_ships"]

FINER = 3
"""Ships are drawn this many times larger, and shrunk."""

WAKE = (-1.4, -1.25, -1.1, -0.95, -0.8)
"""Ends of the parts of a wake, in lengths of the ship, the faintest first."""

CONTAINERS = ((196, 72, 56), (60, 112, 168), (226, 168, 60), (96, 140, 96), (214, 210, 200), (150, 92, 60))


class Ship(NamedTuple):
    """A ship: its class, its center in pixels of the image, its length and width in pixels, the angle of its bow."""

    name: str
    center: Array
    length: float
    width: float
    angle: float
    """Radians, clockwise from x."""

    def place(self, points: Outline) -> Array:
        """Return points of the image from those of the ship: x from -0.5, the stern, to 0.5, y too across it."""
        c, s = np.cos(self.angle), np.sin(self.angle)
        return np.asarray(points) * (self.length, self.width) @ np.array(((c, s), (-s, c))) + self.center


def make_ships(root: str | Path, images: int = 12, seed: int = 0) -> Path:
    """Draw images of ships from above into the folder `root`/ships, and write `root`/ships.json; return the JSON file.

    Classes are boat and ship. Each has `corners`, from the left of the stern clockwise as seen from above, the outline
    of its hull and the box around that. The same seed gives the same files, and image n does not depend on how many
    there are. Raises InputError for less than 1 image.

    >>> import tempfile
    >>> make_ships(tempfile.mkdtemp(), images=1).name
    'ships.json'
    """
    if images < 1:
        raise InputError(f"images must be at least 1, got {images}; the demo has 12")
    categories = [{"id": 1, "name": "boat"}, {"id": 2, "name": "ship"}]
    return write_pictures(Path(root), "ships", categories, (paint_ships(n, seed) for n in range(images)))


def paint_ships(n: int, seed: int = 0) -> Drawn:
    """Draw image number `n` with its ships."""
    rng, (width, height) = np.random.default_rng([6, seed, n]), SIZES[n % len(SIZES)]
    image, ships = _sea(rng, width, height), [*_fleet(rng, width, height)]
    for ship in ships:
        _paint_wake(image, ship)
    for ship in ships:
        paint_ship(image, ship, rng)
    return Drawn(photograph(image, np.random.default_rng([7, seed, n])), [_keys(ship) for ship in ships])


def _keys(ship: Ship) -> dict[str, Any]:
    ring = ship.place(hull(ship)).round(2)
    (x0, y0), (x1, y1) = ring.min(0).tolist(), ring.max(0).tolist()
    bbox = whole_numbers((x0, y0, round(x1 - x0, 2), round(y1 - y0, 2)))
    corners = keys_of_corners(ship.place(box(-0.5, -0.5, 0.5, 0.5)).ravel())["corners"]
    return {"category_id": 1 + (ship.name == "ship"), "bbox": bbox, "corners": corners, **keys_of_rings([ring])}


def _fleet(rng: Random, width: int, height: int) -> Iterator[Ship]:
    """Yield ships that lie in the image, apart from each other."""
    most, taken = rng.integers(3, 10), list[tuple[Array, float]]()
    for _ in range(60):
        name = ("boat", "ship")[rng.integers(2)]
        length = rng.uniform(*{"boat": (34, 62), "ship": (110, 200)}[name])
        around = length / 2 + 3
        center = rng.uniform((around, around), (width - around, height - around))
        if len(taken) < most and all(np.hypot(*(center - position)) > around + other for position, other in taken):
            taken.append((center, around))
            ratio = rng.uniform(0.3, 0.38) if name == "boat" else rng.uniform(0.17, 0.24)
            yield Ship(name, center, length, length * ratio, rng.uniform(-np.pi, np.pi))


# ---------------------------------------------------------------- pixels


def _sea(rng: Random, width: int, height: int) -> Image.Image:
    shape = (height, width)
    deep = pick(rng, (16, 62, 92), (22, 76, 98), (12, 70, 84))
    swell, ripples = noise(rng, shape, 90, 4, stretch=1.6), noise(rng, shape, 7, 3, stretch=2.5)
    water = mix(deep, (64, 142, 156), 0.35 + 0.3 * swell + 0.16 * ripples)
    return to_picture(mix(water, (236, 244, 244), 2.2 * ripples * (swell + 0.4) - 1.7))


def _paint_wake(image: Image.Image, ship: Ship) -> None:
    """Draw foam behind a ship and along its sides."""
    foam = Image.new("L", image.size)
    draw = ImageDraw.Draw(foam)
    trail = [(((-0.45, -0.4), (-0.45, 0.4), (end, -0.8 * end), (end, 0.8 * end)), 140 + 90 * end) for end in WAKE]
    parts: list[tuple[Outline, float]] = [*trail, (hull(ship) * 1.12, 150)]
    for outline, light in parts:
        draw.polygon([tuple(point) for point in ship.place(outline).tolist()], fill=round(light))
    image.paste((226, 240, 242), mask=foam.filter(ImageFilter.GaussianBlur(1 + ship.width / 10)))


def hull(ship: Ship) -> Array:
    """Return the outline of a ship from above, in its own coordinates."""
    bow = 0.3 if ship.name == "ship" else 0.05
    side = np.array([(x, 0.5 * (1 - ((x - bow) / (0.5 - bow)) ** 2)) for x in np.linspace(bow, 0.5, 9)[:-1]])
    half = np.concatenate([((-0.5, 0.34), (-0.46, 0.46), (-0.38, 0.5)), side])
    return np.concatenate([half, ((0.5, 0.0),), half[::-1] * (1, -1)])


def paint_ship(canvas: Image.Image, ship: Ship, rng: Random) -> None:
    """Draw a ship with its shadow on the water."""
    start = np.floor(ship.center - ship.length / 2 - 2)
    side = int(np.ceil(ship.length)) + 6
    sketch = Sketch(Image.new("RGBA", (side * FINER, side * FINER)), rng)

    def add(outline: Outline, color: tuple[float, ...], shade: float = 0.15) -> None:
        part(sketch, (ship.place(outline) - start) / side, color, shade=shade)

    ring = hull(ship)
    if ship.name == "ship":
        _paint_freighter(add, ring, rng)
    else:
        _paint_boat(add, ring, rng)
    image = sketch.canvas.reduce(FINER)
    place = (int(start[0]), int(start[1]))
    shadow = Image.new("L", canvas.size)
    shadow.paste(image.getchannel("A").point(lambda value: value // 2), (place[0] + 3, place[1] + 3))
    canvas.paste((4, 18, 30), mask=shadow.filter(ImageFilter.GaussianBlur(2)))
    canvas.paste(image, place, image)


def _paint_freighter(add: Any, ring: Array, rng: Random) -> None:
    """Draw a hull, a deck, rows of containers, and a bridge near the stern."""
    color = pick(rng, (60, 66, 78), (148, 54, 46), (40, 84, 112), (58, 96, 74))
    add(ring, color)
    add(ring * (0.965, 0.84), times(color, 1.45))
    for x in np.arange(-0.24, 0.32, 0.085):
        for y in np.arange(-0.36, 0.3, 0.18):
            if rng.random() < 0.85:
                add(box(x, y, x + 0.075, y + 0.165), pick(rng, *CONTAINERS))
    add(box(-0.42, -0.36, -0.3, 0.36), (236, 236, 230))
    add(box(-0.32, -0.42, -0.29, 0.42), (206, 210, 212))
    add(box(-0.41, -0.12, -0.36, 0.12), times(color, 1.2))


def _paint_boat(add: Any, ring: Array, rng: Random) -> None:
    """Draw a white hull, a wooden or blue deck, a windscreen and seats."""
    add(ring, (240, 240, 236))
    add(ring * (0.86, 0.7) - (0.02, 0), pick(rng, (176, 124, 78), (70, 120, 170), (196, 70, 62)))
    add(curve((0.16, -0.3), (0.24, 0), (0.16, 0.3), (0.1, 0.3), (0.16, 0), (0.1, -0.3)), (60, 84, 104))
    for y in (-0.17, 0.17):
        add(oval(-0.06, y, 0.06, 0.12), (232, 224, 206))
    add(box(-0.5, -0.13, -0.38, 0.13), (52, 54, 62))
