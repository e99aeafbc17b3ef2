"""Colour ops that are one linear map of RGB for each image.

A chain of such ops is one matrix (see `color.py`), applied in one pass over the pixels. Images are uint8 between ops.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from nvidia.dali import fn, types

from detaug.boxes.views import Floats, Views
from detaug.ops import color
from detaug.ops import cpu_kernels as on_cpu
from detaug.ops.arguments import Range, check, check_p, check_range, is_number
from detaug.ops.filters import as_bytes
from detaug.ops.op import Arrays, Node, Nodes, PixelOp


def map_colors(image: Node, matrix: Node) -> Node:
    """Apply a linear map of RGB, (3, 4); the result is uint8, rounded and clipped."""
    if image.device == "cpu":
        return on_cpu.apply_kernels(image, [(on_cpu.map_colors, {"color": matrix})])
    return fn.coord_transform(as_bytes(image), MT=matrix, dtype=types.UINT8)


class ColorMap(PixelOp):
    """Applies one linear map of RGB to each image: `draw` returns it as "color", (n, 3, 4)."""

    def cpu_kernel(self, views: Views) -> on_cpu.CpuKernel:
        return on_cpu.map_colors

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        return map_colors(image, planned["color"])


@dataclass(frozen=True)
class RandomPhotometricDistort(ColorMap):
    """SSD's colour distortion: brightness, contrast, saturation and hue, each with probability `p`.

    With `permute`, also the order of the channels. Ranges and order are torchvision's (contrast comes before saturation
    and hue or after them, with equal chance). Three things differ: contrast scales about 128, not about the image's
    mean grey; hue turns in YIQ, which keeps the luma, not in HSV; and all five are one linear map, which is rounded and
    clipped to 0..255 once, at its end. `hue` is in turns, as in torchvision: 0.05 is 18 degrees.

    >>> samples = da.batch([np.full((4, 4, 3), (200, 100, 50), np.uint8)] * 3)
    >>> after = samples.then(da.Resize((4, 4)), da.RandomPhotometricDistort())
    >>> [image[0, 0].tolist() for image in after.images]
    [[200, 100, 50], [223, 91, 26], [203, 75, 11]]
    """

    brightness: Range = (0.875, 1.125)
    contrast: Range = (0.5, 1.5)
    saturation: Range = (0.5, 1.5)
    hue: Range = (-0.05, 0.05)
    p: float = 0.5
    permute: bool = True

    def check_arguments(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            check_range(name, getattr(self, name), 0, float("inf"))
        check_range("hue", self.hue, -0.5, 0.5)
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        def factor(bounds: Range, neutral: float) -> Floats:
            return np.where(rng.random(n) < self.p, rng.uniform(*bounds, n), neutral)

        contrast, early = factor(self.contrast, 1), rng.random(n) < 0.5
        permute = rng.random((n, 1)) < self.p * self.permute
        order = np.where(permute, rng.permuted(np.tile(np.arange(3), (n, 1)), axis=1), np.arange(3))
        steps = [
            color.brightness(factor(self.brightness, 1)),
            color.contrast(np.where(early, contrast, 1)),
            color.saturation(factor(self.saturation, 1)),
            color.hue(factor(self.hue, 0)),
            color.contrast(np.where(early, 1, contrast)),
            color.permutation(order),
        ]
        return {"color": color.chain(*steps)}


@dataclass(frozen=True)
class ColorJitter(ColorMap):
    """Change brightness, contrast, saturation and hue in random order, with probability `p`.

    torchvision's `ColorJitter`.
    Each is one number v, for factors from max(0, 1 - v) to 1 + v and hues from -v to v turns, or (smallest, largest).
    The formulas are those of `RandomPhotometricDistort`, which lists the differences from torchvision.

    >>> samples = da.batch([np.full((4, 4, 3), (200, 100, 50), np.uint8)])
    >>> samples.then(da.Resize((4, 4)), da.ColorJitter(brightness=(1.2, 1.2))).images[0][0, 0]
    array([240, 120,  60], dtype=uint8)
    """

    brightness: float | Range = 0.0
    contrast: float | Range = 0.0
    saturation: float | Range = 0.0
    hue: float | Range = 0.0
    p: float = 1.0

    def check_arguments(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            check_range(name, _around_one(getattr(self, name)), 0, float("inf"))
        check_range("hue", _around_zero(self.hue), -0.5, 0.5)
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        applied = rng.random(n) < self.p
        ranges = [_around_one(each) for each in (self.brightness, self.contrast, self.saturation)]
        brightness, contrast, saturation = (np.where(applied, rng.uniform(low, high, n), 1) for low, high in ranges)
        low, high = _around_zero(self.hue)
        turn = np.where(applied, rng.uniform(low, high, n), 0)
        maps = [color.brightness(brightness), color.contrast(contrast), color.saturation(saturation), color.hue(turn)]
        order = rng.permuted(np.tile(np.arange(4), (n, 1)), axis=1)
        steps = [np.stack(maps)[order[:, step], np.arange(n)] for step in range(4)]
        return {"color": color.chain(*steps)}


@dataclass(frozen=True)
class RandomHSV(ColorMap):
    """Change hue, saturation and value by random gains, with probability `p` (Ultralytics' `hsv_h`, `hsv_s`, `hsv_v`).

    Gains are drawn from -1..1 times these. `hue`: a fraction of half a turn. `saturation`, `value`: factors from 1 - x
    to 1 + x. Ultralytics changes HSV values; here, as in DALI's `hsv`, hue turns and saturation scales in YIQ, in one
    linear map.

    >>> samples = da.batch([np.full((4, 4, 3), (200, 100, 50), np.uint8)] * 3)
    >>> [image[0, 0].tolist() for image in samples.then(da.Resize((4, 4)), da.RandomHSV()).images]
    [[161, 127, 108], [255, 104, 26], [255, 86, 17]]
    """

    hue: float = 0.015
    saturation: float = 0.7
    value: float = 0.4
    p: float = 1.0

    def check_arguments(self) -> None:
        for name in ("hue", "saturation", "value"):
            gain = getattr(self, name)
            check(name, gain, is_number(gain, 0, 1), "a number in 0..1")
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        gains = rng.uniform(-1, 1, (3, n)) * (rng.random(n) < self.p)
        gains *= np.array([[self.hue], [self.saturation], [self.value]])
        hue, saturation, value = gains
        return {"color": color.chain(color.hue(hue / 2), color.saturation(1 + saturation), color.brightness(1 + value))}


@dataclass(frozen=True)
class RandomGrayscale(ColorMap):
    """Make the three channels equal, grey, with probability `p` (torchvision's `RandomGrayscale`).

    >>> samples = da.batch([np.full((4, 4, 3), (200, 100, 50), np.uint8)])
    >>> samples.then(da.Resize((4, 4)), da.RandomGrayscale(p=1)).images[0][0, 0]
    array([124, 124, 124], dtype=uint8)
    """

    p: float = 0.1

    def check_arguments(self) -> None:
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"color": color.saturation(np.where(rng.random(n) < self.p, 0.0, 1.0))}


@dataclass(frozen=True)
class RandomChannelPermutation(ColorMap):
    """Put the channels in a random order, with probability `p` (torchvision's `RandomChannelPermutation`).

    >>> samples = da.batch([np.full((4, 4, 3), (200, 100, 50), np.uint8)] * 3)
    >>> after = samples.then(da.Resize((4, 4)), da.RandomChannelPermutation(p=1))
    >>> [image[0, 0].tolist() for image in after.images]
    [[50, 200, 100], [50, 100, 200], [50, 200, 100]]
    """

    p: float = 0.5

    def check_arguments(self) -> None:
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        shuffled = rng.permuted(np.tile(np.arange(3), (n, 1)), axis=1)
        return {"color": color.permutation(np.where(rng.random((n, 1)) < self.p, shuffled, np.arange(3)))}


def _around_one(value: Any) -> Any:
    """Return (smallest, largest) factor; one number v is (1 - v, 1 + v)."""
    return (max(0.0, 1 - value), 1 + value) if is_number(value) else value


def _around_zero(value: Any) -> Any:
    """Return (smallest, largest) hue; one number v is (-v, v)."""
    return (-value, value) if is_number(value) else value
