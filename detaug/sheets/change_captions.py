"""Describe the change an op made to an image, measured on the result, so that it works for any op."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

GRAY = np.array([0.299, 0.587, 0.114])
SAME = 0.01  # relative; Resize rounds to whole pixels


class Stage(NamedTuple):
    """An image between two ops: (H, W, 3) in 0..255, its number of boxes, its matrix from source pixels."""

    image: Array
    boxes: int
    matrix: Array

    @property
    def size(self) -> Array:
        """Return (width, height) in pixels."""
        height, width, _ = self.image.shape
        return np.array([width, height])


def describe_change(before: Stage, after: Stage) -> str:
    """Return a caption such as "mirrored left-right" or "window 62% x 48%, 3 of 5 boxes"; "as it was" for no change."""
    moves = list(_moves(before, after))
    pixels = [] if moves else list(_color_changes(before.image, after.image))
    boxes = [count_boxes(after.boxes, before.boxes)] if after.boxes != before.boxes else []
    return ", ".join(moves + pixels + boxes) or "as it was"


def count_boxes(boxes: int, before: int) -> str:
    """Return "3 of 5 boxes"; "9 boxes, were 5" after an op such as Mosaic; "no boxes" for 0 of 0."""
    if boxes > before:
        return f"{boxes} boxes, were {before}"
    return f"{boxes} of {before} boxes" if before else "no boxes"


# ---------------------------------------------------------------- geometry


def _moves(before: Stage, after: Stage) -> Iterator[str]:
    change = _square(after.matrix) @ np.linalg.inv(_square(before.matrix))
    change /= change[2, 2]
    if (np.abs(change[2, :2] * before.size) > SAME).any():
        yield "perspective changed"
    elif (np.abs(np.diag(np.fliplr(change[:2, :2]))) > SAME).any():
        yield from _turns(change[:2, :2])
    else:
        yield from _windows(before, after, np.linalg.inv(change))


def _turns(linear: Array) -> Iterator[str]:
    """Describe a (2, 2) map that turns or shears; positive angles are counter-clockwise on the screen."""
    if np.linalg.det(linear) < 0:
        yield "mirrored left-right"
        linear = linear @ np.diag([-1, 1])
    angle = np.degrees(np.arctan2(-linear[1, 0], linear[0, 0]))
    sides = np.linalg.norm(linear, axis=0)
    yield from [f"turned {angle:+.0f}°"] if abs(angle) >= 0.5 else []
    yield from ["sheared"] if abs(linear[:, 0] @ linear[:, 1]) > SAME * sides.prod() else []


def _windows(before: Stage, after: Stage, back: Array) -> Iterator[str]:
    """Describe a map without rotation; `back`: (3, 3), from pixels after the op to pixels before it."""
    start, end = (back[:2, 2] / before.size, (back[:2, :2] @ after.size + back[:2, 2]) / before.size)
    span, shift = np.abs(end - start), -np.minimum(start, end)
    yield from (f"mirrored {how}" for how, a, b in zip(("left-right", "top-bottom"), start, end, strict=True) if a > b)
    if (span > 1 + SAME).any():
        yield f"canvas {_by(*(f'{value:.2f}' for value in span))} times as large"
    elif (span < 1 - SAME).any():
        yield f"window {_by(*(f'{value:.0%}' for value in span))}"
    elif (np.abs(shift) > SAME).any():
        yield f"shifted {' x '.join(f'{value:+.0%}' for value in shift)}"
    if (np.abs(after.size - before.size * span) > 1 + span).any():
        yield f"{after.size[0]} x {after.size[1]} pixels"


def _by(width: str, height: str) -> str:
    return width if width == height else f"{width} x {height}"


def _square(matrix: Array) -> Array:
    """Extend (2, 3) or (3, 3) to (3, 3)."""
    return np.concatenate([matrix, np.eye(3)[len(matrix) :]])


# ---------------------------------------------------------------- pixels


def _color_changes(before: Array, after: Array) -> Iterator[str]:
    """Describe light as a difference, of 255; contrast and colour as factors."""
    light = (after @ GRAY).mean() - (before @ GRAY).mean()
    if abs(light) >= 1:
        yield f"light {light:+.0f}"
    for name, spread in (("contrast", _contrast), ("colour", _colorfulness)):
        old, new = spread(before), spread(after)
        if old > 0 and abs(new / old - 1) > SAME:
            yield f"{name} x {new / old:.2f}"


def _contrast(image: Array) -> float:
    return float((image @ GRAY).std())


def _colorfulness(image: Array) -> float:
    """Return the mean distance from grey."""
    return float(np.linalg.norm(image - (image @ GRAY)[:, :, None], axis=2).mean())
