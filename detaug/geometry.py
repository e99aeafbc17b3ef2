"""Geometric ops: each looks at the images in another way and leaves the pixels to `Resize`.

An op is a frozen dataclass: `draw` returns its random numbers for a batch, `move` the views after it.
`RandomZoomOut` is a short one to learn from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from detaug.arguments import check, check_p, is_numbers
from detaug.recipe import Arrays, GeometricOp
from detaug.views import Views


@dataclass(frozen=True)
class _RandomFlip(GeometricOp):
    p: float = 0.5

    axis: ClassVar[int]

    def __post_init__(self) -> None:
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"flip": rng.random(n) < self.p}

    def move(self, views: Views, drawn: Arrays) -> Views:
        start = np.zeros((len(views), 2))
        start[:, self.axis] = drawn["flip"]  # a mirrored view goes from 1 to 0
        end = np.ones((len(views), 2))
        end[:, self.axis] -= drawn["flip"]
        return views.look(start, end)


class RandomHorizontalFlip(_RandomFlip):
    """Mirror left and right with probability `p` (DALI: flip, bb_flip)."""

    axis = 0


class RandomVerticalFlip(_RandomFlip):
    """Mirror top and bottom with probability `p` (DALI: flip, bb_flip)."""

    axis = 1


@dataclass(frozen=True)
class RandomZoomOut(GeometricOp):
    """Put the image at a random place of a canvas up to `max_ratio` times as wide and high, with probability `p`.

    SSD's expansion (Liu et al. 2016), torchvision's `RandomZoomOut`, DALI's paste and bbox_paste. The canvas
    keeps the image's aspect ratio; `fill` is its colour, RGB 0..255.
    """

    max_ratio: float = 4.0
    p: float = 0.5
    fill: tuple[float, float, float] = (123.0, 117.0, 104.0)

    def __post_init__(self) -> None:
        large = 1 <= self.max_ratio < float("inf")
        check("max_ratio", self.max_ratio, large, "at least 1 (1 leaves the image as it is)")
        check_p(self.p)
        in_range = is_numbers(self.fill, 3) and all(0 <= value <= 255 for value in self.fill)
        check("fill", self.fill, in_range, "three numbers in 0..255: red, green, blue")

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        ratio = np.where(rng.random(n) < self.p, rng.uniform(1, self.max_ratio, n), 1)
        return {"ratio": ratio, "place": rng.random((n, 2))}  # place 0: at the left or top, 1: at the right or bottom

    def move(self, views: Views, drawn: Arrays) -> Views:
        ratio = drawn["ratio"][:, None]
        start = -drawn["place"] * (ratio - 1)
        return replace(views.look(start, start + ratio), shown=np.sort(views.seen(), axis=1), fill=self.fill)
