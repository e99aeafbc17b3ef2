"""Color ops: linear maps of RGB, or torchvision's steps. Images are uint8 between ops.

They leave the fill around an image as it is, unless an op turned the image, or mixed it with others.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from nvidia.dali import fn, types

from detaug.arguments import Range, check, check_p, check_range, is_number, is_numbers
from detaug.arrays import Arrays, Floats, Ints
from detaug.boxes.views import Views, corners
from detaug.gpu.color_steps import BRIGHTNESS, CONTRAST, HUE, NOTHING, SATURATION
from detaug.ops import color, cpu_colors
from detaug.ops import cpu_kernels as on_cpu
from detaug.ops.color_graph import change_in_steps, only_in_image
from detaug.ops.filters import as_bytes
from detaug.ops.op import PixelOp
from detaug.pipelines.graph import Node, Nodes


def map_colors(image: Node, matrix: Node) -> Node:
    """Apply a linear map of RGB, (3, 4); the result is uint8, rounded and clipped."""
    if image.device == "cpu":
        return on_cpu.apply_kernels(image, [(cpu_colors.map_colors, {"color": matrix})])
    return fn.coord_transform(as_bytes(image), MT=matrix, dtype=types.UINT8)


class ColorOp(PixelOp):
    """Changes the colors of the image, not of the fill around it.

    `draw` returns a linear map of RGB as "color", (n, 3, 4); or `graph_inputs` returns torchvision's steps as "steps",
    (n, 11), see `color.steps`.
    """

    def graph_inputs(self, views: Views, drawn: Arrays) -> Arrays:
        return drawn | _picture(views)

    def cpu_kernel(self, views: Views) -> on_cpu.CpuKernel:
        return cpu_colors.change_colors

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        name, change = ("steps", change_in_steps) if "steps" in planned else ("color", map_colors)
        if "picture" not in planned:
            return change(image, planned[name])
        return only_in_image(as_bytes(image), planned[name], planned["picture"], change, views.fill or ())


def _picture(views: Views) -> Arrays:
    """Return one input, (n, 2, 2): the first and last corner (y, x) of the image in the output, if fill is around it.

    Resize has moved the view so that they are whole pixels. An image that is out of view has an area of 0.
    """
    if views.fill is None or views.turned:
        return {}
    origin, opposite = corners(views.matrix).swapaxes(0, 1)
    shown = np.sort((views.source_bounds - origin[:, None]) / (opposite - origin)[:, None], axis=1).clip(0, 1)
    return {"picture": (shown[:, :, ::-1] * views.size[:, None]).round()}


class StepwiseColorOp(ColorOp):
    """Changes colors in steps: `draw` returns their "kind" and "amount", (n, 4), and the order of the "channels"."""

    exact: bool

    def graph_inputs(self, views: Views, drawn: Arrays) -> Arrays:
        changes = drawn["kind"], drawn["amount"], drawn["channels"]
        planned = {"steps": color.steps(*changes)} if self.exact else {"color": color.linear_map(*changes)}
        return super().graph_inputs(views, planned)


@dataclass(frozen=True)
class RandomPhotometricDistort(StepwiseColorOp):
    """SSD's color distortion: brightness, contrast, saturation and hue (torchvision's `RandomPhotometricDistort`).

    As in torchvision, contrast comes before saturation and hue or after them, with equal chance; it is about the
    image's own mean gray; and after each step values are cut off to whole numbers in 0..255. The mean gray is that of
    the visible part of the image.

    Args:
        brightness: (smallest, largest) factor.
        contrast: (smallest, largest) factor.
        saturation: (smallest, largest) factor.
        hue: (smallest, largest) rotation in HSV, in full rotations: 0.05 is 18 degrees.
        p: Probability of each of the four changes, per image.
        permute: Whether the order of the channels changes too, with probability `p`.
        exact: False for one linear map in place of the steps, for DALI's operators on a GPU, which take 0.7 ms for the
            steps: contrast is about 128, hue rotates in YIQ, which keeps the luma, and the result is rounded and
            clipped once.

    >>> samples = da.batch([np.full((4, 4, 3), (200, 100, 50), np.uint8)] * 3)
    >>> after = samples.then(da.Resize((4, 4)), da.RandomPhotometricDistort())
    >>> [image[0, 0].tolist() for image in after.images]
    [[200, 100, 50], [223, 92, 26], [209, 80, 17]]
    """

    brightness: Range = (0.875, 1.125)
    contrast: Range = (0.5, 1.5)
    saturation: Range = (0.5, 1.5)
    hue: Range = (-0.05, 0.05)
    p: float = 0.5
    permute: bool = True
    exact: bool = True

    def check_arguments(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            check_range(name, getattr(self, name), 0, float("inf"))
        check_range("hue", self.hue, -0.5, 0.5)
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        def drawn(bounds: Range, neutral: float) -> Floats:
            return np.where(rng.random(n) < self.p, rng.uniform(*bounds, n), neutral)

        contrast, early = drawn(self.contrast, 1), rng.random(n) < 0.5
        permute = rng.random((n, 1)) < self.p * self.permute
        channels = np.where(permute, rng.permuted(np.tile(np.arange(3), (n, 1)), axis=1), np.arange(3))
        brightness, saturation, hue = drawn(self.brightness, 1), drawn(self.saturation, 1), drawn(self.hue, 0)
        amounts = np.stack([brightness, contrast, saturation, hue], axis=1)
        order = np.where(early[:, None], [0, 1, 2, 3], [0, 2, 3, 1])
        return _in_order(amounts, order) | {"channels": channels}


@dataclass(frozen=True)
class ColorJitter(StepwiseColorOp):
    """Change brightness, contrast, saturation and hue in random order (torchvision's `ColorJitter`).

    The formulas are those of `RandomPhotometricDistort`.

    Args:
        brightness: One number v for factors from max(0, 1 - v) to 1 + v, or (smallest, largest).
        contrast: As `brightness`.
        saturation: As `brightness`.
        hue: One number v for -v to v, or (smallest, largest): in full rotations, at most 0.5.
        p: Probability per image.
        exact: See `RandomPhotometricDistort`.

    >>> samples = da.batch([np.full((4, 4, 3), (200, 100, 50), np.uint8)])
    >>> samples.then(da.Resize((4, 4)), da.ColorJitter(brightness=(1.2, 1.2))).images[0][0, 0]
    array([240, 120,  60], dtype=uint8)
    """

    brightness: float | Range = 0.0
    contrast: float | Range = 0.0
    saturation: float | Range = 0.0
    hue: float | Range = 0.0
    p: float = 1.0
    exact: bool = True

    def check_arguments(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            _check_strength(name, getattr(self, name), 0, float("inf"))
        _check_strength("hue", self.hue, -0.5, 0.5)
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        applied = rng.random(n) < self.p
        ranges = [_around_one(strength) for strength in (self.brightness, self.contrast, self.saturation)]
        factors = [np.where(applied, rng.uniform(low, high, n), 1) for low, high in ranges]
        low, high = _around_zero(self.hue)
        turn = np.where(applied, rng.uniform(low, high, n), 0)
        order = rng.permuted(np.tile(np.arange(4), (n, 1)), axis=1)
        return _in_order(np.stack([*factors, turn], axis=1), order) | {"channels": np.tile(np.arange(3), (n, 1))}


def _in_order(amounts: Floats, order: Ints) -> Arrays:
    """Return the steps, those that change nothing marked as such.

    `amounts` (n, 4): factors of brightness, contrast and saturation, and turns of hue. `order` (n, 4): their columns.
    """
    kinds = np.where(
        amounts == (1, 1, 1, 0),
        NOTHING,
        (BRIGHTNESS, CONTRAST, SATURATION, HUE),
    )
    return {"kind": np.take_along_axis(kinds, order, 1), "amount": np.take_along_axis(amounts, order, 1)}


@dataclass(frozen=True)
class RandomHSV(ColorOp):
    """Change hue, saturation and value by random gains (Ultralytics' `hsv_h`, `hsv_s`, `hsv_v`).

    Gains are sampled from -1..1 times the arguments. Ultralytics changes HSV values; here, as in DALI's `hsv`, hue
    rotates and saturation scales in YIQ, in one linear map.

    Args:
        hue: Largest gain, as a fraction of half a rotation.
        saturation: x for factors from 1 - x to 1 + x.
        value: x for factors from 1 - x to 1 + x.
        p: Probability per image.

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
class RandomGrayscale(ColorOp):
    """Make the three channels equal, gray (torchvision's `RandomGrayscale`).

    Args:
        p: Probability per image.

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
class RandomChannelPermutation(ColorOp):
    """Put the channels in a random order (torchvision's `RandomChannelPermutation`).

    Args:
        p: Probability per image.

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


def _check_strength(name: str, value: Any, low: float, high: float) -> None:
    """Check one number, for a range around the neutral value, or a range."""
    rule = f"a number within 0..{high}, or (smallest, largest) within {low}..{high}"
    in_order = is_numbers(value, 2) and low <= value[0] <= value[1] <= high
    check(name, value, is_number(value, 0, high) or in_order, rule)


def _around_one(value: Any) -> Any:
    """Return (smallest, largest) factor; one number v is (1 - v, 1 + v)."""
    return (max(0.0, 1 - value), 1 + value) if is_number(value) else value


def _around_zero(value: Any) -> Any:
    """Return (smallest, largest) hue; one number v is (-v, v)."""
    return (-value, value) if is_number(value) else value
