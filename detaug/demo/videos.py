"""Draw short videos with tracks in MOTChallenge's form, for `detaug demo`: cars in a street and on a beach."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from PIL import Image

from detaug.demo.scenes import SCENES, Role
from detaug.demo.shapes import Sprite, cut_views, make_sprite, paste, pixels_of, tight_box
from detaug.demo.textures import photograph
from detaug.errors import InputError

__all__ = ["make_mot"]

SIZE = (480, 360)
FRAME_RATE = 25
CAR = 3
"""The number of the class in MOTChallenge's files."""


class Film(NamedTuple):
    """What a video shows."""

    name: str
    scene: int
    """Position in SCENES."""
    cars: int
    pan: int
    """Pixels by which the camera moves to the right with each frame."""


FILMS = (Film("street", 2, 5, 0), Film("beach", 4, 4, 2))


def make_mot(root: str | Path, frames: int = 30, seed: int = 0) -> Path:
    """Draw two videos into the folder `root` in MOTChallenge's form; return it.

    Each has a folder with img1, the frames, gt/gt.txt, and seqinfo.ini. A car
    has one id in all frames of its video; its box holds its pixels inside the frame, also those behind others.
    frames: of each video. seed: the same seed gives the same images and boxes.
    Files of the same name are overwritten. Raises InputError for less than 1 frame.

    >>> import tempfile
    >>> root = make_mot(tempfile.mkdtemp(), frames=2)
    >>> sorted(path.name for path in root.iterdir())
    ['beach', 'street']
    """
    if frames < 1:
        raise InputError(f"frames must be at least 1, got {frames}; the demo has 30")
    for film in FILMS:
        _write_film(Path(root) / film.name, film, frames, seed)
    return Path(root)


def _write_film(folder: Path, film: Film, frames: int, seed: int) -> None:
    for name in ("img1", "gt"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    for frame, (image, frame_lines) in enumerate(_draw(film, frames, seed), 1):
        image.save(folder / f"img1/{frame:06}.jpg", quality=90)
        lines += [f"{frame},{line}\n" for line in frame_lines]
    (folder / "gt/gt.txt").write_text("".join(lines), encoding="ascii")
    width, height = SIZE
    facts = {"name": film.name, "imDir": "img1", "frameRate": FRAME_RATE, "seqLength": frames}
    facts |= {"imWidth": width, "imHeight": height, "imExt": ".jpg"}
    text = "".join(f"{key}={value}\n" for key, value in facts.items())
    (folder / "seqinfo.ini").write_text(f"[Sequence]\n{text}", encoding="ascii")


def _draw(film: Film, frames: int, seed: int) -> Iterator[tuple[Image.Image, list[str]]]:
    """Yield each frame, and its lines of gt.txt but for the frame's number."""
    rng = np.random.default_rng([seed, film.scene, 2])
    paint_scene, roles = SCENES[film.scene]
    wide = SIZE[0] + film.pan * frames
    ground, horizon = paint_scene(rng, wide, SIZE[1])
    (role,) = (role._replace(scale=0.6 * role.scale) for role in roles if role.name == "car")
    cars = [_start(rng, role, row, film.cars, horizon) for row in range(film.cars)]
    speeds = rng.uniform(2, 7, film.cars) * rng.choice([-1, 1], film.cars)
    for frame in range(frames):
        image = ground.crop((film.pan * frame, 0, film.pan * frame + SIZE[0], SIZE[1]))
        shifts = [round(frame * (speed - film.pan)) for speed in speeds]
        moved = [car._replace(xy=(car.xy[0] + shift, car.xy[1])) for car, shift in zip(cars, shifts, strict=True)]
        for sprite in moved:
            paste(image, sprite)
        yield photograph(image, np.random.default_rng([seed, film.scene, 3])), _lines(moved)


def _start(rng: np.random.Generator, role: Role, row: int, count: int, horizon: float) -> Sprite:
    """Draw a car of the row `row` of this many, from the farthest to the nearest."""
    first, last = role.depth
    return make_sprite(rng, role, first + (last - first) * (row + rng.uniform(0.2, 0.8)) / count, SIZE, horizon)


def _lines(sprites: list[Sprite]) -> list[str]:
    """Return id, left, top (from 1), width, height, 1 for what counts, class, visibility of the cars in a frame."""
    lines = []
    for view in cut_views(sprites, SIZE):
        x1, y1, x2, y2 = tight_box(view.mask)
        visible = view.seen.sum() / pixels_of(view.sprite)
        track = sprites.index(view.sprite) + 1
        lines.append(f"{track},{x1 + 1:g},{y1 + 1:g},{x2 - x1:g},{y2 - y1:g},1,{CAR},{visible:.2f}")
    return lines
