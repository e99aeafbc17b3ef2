"""What an op did to an image, in a few words: measured on the result, so that it holds for any op."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.views import invert

Array = NDArray[Any]

GRAY = np.array([0.299, 0.587, 0.114])
SAME = 0.01  # relative; Resize rounds to whole pixels


class Stage(NamedTuple):
    """An image between two ops: (H, W, 3) in 0..255, how many boxes it has, and its (2, 3) matrix from the source."""

    image: Array
    boxes: int
    matrix: Array

    @property
    def size(self) -> Array:
        """(width, height) in pixels."""
        height, width, _ = self.image.shape
        return np.array([width, height])


def what_changed(before: Stage, after: Stage) -> str:
    """A caption such as "mirrored left-right" or "window 62 % x 48 %, 3 of 5 boxes"; "as it was" for nothing."""
    moves = list(_moves(before, after))
    pixels = [] if moves else list(_color_changes(before.image, after.image))
    boxes = [f"{after.boxes} of {before.boxes} boxes"] if after.boxes != before.boxes else []
    return ", ".join(moves + pixels + boxes) or "as it was"


# ---------------------------------------------------------------- geometry


def _moves(before: Stage, after: Stage) -> Iterator[str]:
    start, end = _view(before, after)
    span = np.abs(end - start)
    yield from (f"mirrored {how}" for how, a, b in zip(("left-right", "top-bottom"), start, end, strict=True) if a > b)
    if (span > 1 + SAME).any():
        yield f"canvas {_by(*(f'{value:.2f}' for value in span))} times as large"
    elif (span < 1 - SAME).any():
        yield f"window {_by(*(f'{value:.0%}' for value in span))}"
    elif (before.size != after.size).any():
        yield f"{after.size[0]} x {after.size[1]} pixels"


def _by(width: str, height: str) -> str:
    return width if width == height else f"{width} x {height}"


def _view(before: Stage, after: Stage) -> tuple[Array, Array]:
    """Where the corners of the image after the op lie in the one before it, (x, y), relative."""
    corners = np.stack([np.zeros(2), after.size])
    source = _through(invert(after.matrix[None])[0], corners)
    start, end = _through(before.matrix, source) / before.size
    return start, end


def _through(matrix: Array, points: Array) -> Array:
    return np.asarray(points @ matrix[:, :2].T + matrix[:, 2])


# ---------------------------------------------------------------- pixels


def _color_changes(before: Array, after: Array) -> Iterator[str]:
    """Light as a difference, of 255; contrast and colour as factors."""
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
    """The mean distance from gray."""
    return float(np.linalg.norm(image - (image @ GRAY)[:, :, None], axis=2).mean())
