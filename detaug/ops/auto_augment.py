"""RandAugment and TrivialAugmentWide: each image draws some ops and their strengths.

Ops, strengths and draws are torchvision's (`transforms/v2/_auto_augment.py`), which does not support boxes; here boxes
follow. Shears, shifts and rotations move the view before `Resize`; the color ops run directly after it, with the same
draw, on the images that drew them. So the fill around the image is colored too, and sharpness works on output pixels.
Contrast scales about 128, not about the image's mean gray, equalisation is OpenCV's (see `RandomEqualize`), pixels are
resampled once, by `Resize`. The image's type stays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np
from nvidia.dali import fn, types

from detaug.arguments import FILL, RGB, check, check_rgb, is_whole
from detaug.arrays import Arrays, Floats, Ints
from detaug.boxes.views import Views, replace_at
from detaug.gpu.passes import GpuPass
from detaug.gpu.pixel_changes import (
    AUTOCONTRAST,
    EQUALIZE,
    FILTER,
    LINEAR,
    NOTHING,
    NUMBERS,
    POSTERIZE,
    SOLARIZE,
    Changes,
)
from detaug.gpu.pixel_passes import ChangePass
from detaug.ops import color
from detaug.ops.affine import about_centre, rotation, shearing
from detaug.ops.color_ops import map_colors
from detaug.ops.filters import RandomAutocontrast, RandomEqualize, as_bytes, clamp, sharpness_kernel
from detaug.ops.op import GeometricOp, PixelOp
from detaug.pipelines.graph import Node, Nodes, apply_where, keep_type

MOVES = ("ShearX", "ShearY", "TranslateX", "TranslateY", "Rotate")
LINEAR_OPS = ("Brightness", "Color", "Contrast")
OPS = ("Identity", *MOVES, *LINEAR_OPS, "Sharpness", "Posterize", "Solarize", "AutoContrast", "Equalize")
SIGNED = (*MOVES, *LINEAR_OPS, "Sharpness")


class Largest(NamedTuple):
    """The strengths in the last bin; those in the first are 0. Solarize goes from 1 to 0."""

    shear: float
    """The tangent of the angle."""
    shift: float
    """A fraction of the image's side if `relative`, else pixels."""
    relative: bool
    degrees: float
    factor: float
    """What is added to 1: brightness, saturation, contrast, sharpness."""
    bits: int
    """The number of the eight bits that are removed."""

    def strengths(self, bins: int) -> Floats:
        """Return the strengths of all ops and bins, (ops, bins)."""
        up, none = np.linspace(0, 1, bins), np.zeros(bins)
        moves = [self.shear * up] * 2 + [self.shift * up] * 2 + [self.degrees * up]
        bits = 8 - np.round(np.arange(bins) / ((bins - 1) / self.bits))
        return np.stack([none, *moves, *[self.factor * up] * 4, bits, 1 - up, none, none])


class AutoAugment(GeometricOp):
    """Draws ops and strengths, and moves the views. A subclass chooses the bin of each strength."""

    any_bands: ClassVar[bool] = False
    largest: ClassVar[Largest]
    fill: RGB
    num_ops: int
    num_magnitude_bins: int

    @property
    def color_steps(self) -> ColorSteps | None:
        """Return the color ops, which run directly after Resize with the numbers that this op drew."""
        return ColorSteps(self.num_ops)

    def bins(self, rng: np.random.Generator, n: int) -> Ints:
        """Draw (n, num_ops): the bin of each op's strength."""
        raise NotImplementedError(f"{type(self).__name__} must define bins(rng, n)")

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        op = rng.integers(len(OPS), size=(n, self.num_ops))
        sign = np.where(is_any(SIGNED, op) & (rng.random(op.shape) < 0.5), -1, 1)
        return {"op": op, "strength": sign * self.largest.strengths(self.num_magnitude_bins)[op, self.bins(rng, n)]}

    def move(self, views: Views, drawn: Arrays) -> Views:
        for op, strength in zip(drawn["op"].T, drawn["strength"].T, strict=True):
            views = self._move_once(views, op, strength)
        return views

    def _move_once(self, views: Views, op: Ints, strength: Floats) -> Views:
        moved = np.flatnonzero(is_any(MOVES, op))
        images = moved if len(moved) else np.zeros(1, np.int64)  # one, so that `fill` and `turned` are always set
        change = self._change(op[images], strength[images], views.size[images])
        return replace_at(views, moved, views[images].warp(change, views.size[images], self.fill).clip())

    def _change(self, op: Ints, strength: Floats, size: Floats) -> Floats:
        """Return maps of pixels (n, 3, 3): shear about the top left, rotation about the center, whole-pixel shift."""
        shear_x, shear_y, shift_x, shift_y, degrees = (np.where(is_any((name,), op), strength, 0) for name in MOVES)
        change = about_centre(rotation(-degrees), size, size)
        change[:, :2, :2] @= shearing(np.degrees(np.arctan(np.stack([shear_x, shear_y], axis=1))))
        shift = np.stack([shift_x, shift_y], axis=1) * (size[:, ::-1] if self.largest.relative else 1)
        change[:, :2, 2] += np.trunc(shift)
        return change


@dataclass(frozen=True)
class RandAugment(AutoAugment):
    """Run some of 14 ops in order, all with one strength (Cubuk et al. 2019; torchvision's `RandAugment`).

    The strongest are shears of 0.3, shifts of 150/331 of the side, rotations of 30 degrees, factors of 1 - 0.9 and 1 +
    0.9, 4 bits. It comes before `Resize`. Unlike torchvision's, color ops follow `Resize`, contrast scales about 128,
    and equalization is OpenCV's. On the CPU it costs about five times as much as decoding: mostly for filling what an
    earlier move cut off, pixel by pixel along slanted edges (none with `num_ops=1`), the rest for color ops.

    Args:
        num_ops: Number of ops per image.
        magnitude: The strength, 0 to `num_magnitude_bins` - 1.
        num_magnitude_bins: Number of strengths.
        fill: RGB 0..255 beside the image.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)] * 3, boxes=[[[20, 10, 60, 50]]] * 3)
    >>> after = samples.then(da.RandAugment(), da.Resize((100, 200)))
    >>> for boxes in after.boxes:
    ...     print(boxes.round().tolist())
    [[20.0, 10.0, 60.0, 50.0]]
    [[47.0, 10.0, 87.0, 50.0]]
    [[20.0, 23.0, 60.0, 63.0]]
    """

    num_ops: int = 2
    magnitude: int = 9
    num_magnitude_bins: int = 31
    fill: RGB = FILL

    largest = Largest(shear=0.3, shift=150 / 331, relative=True, degrees=30, factor=0.9, bits=4)

    def check_arguments(self) -> None:
        check("num_ops", self.num_ops, is_whole(self.num_ops, 1), "a whole number of at least 1")
        _check_bins(self.num_magnitude_bins)
        inside = is_whole(self.magnitude, 0, self.num_magnitude_bins - 1)
        check("magnitude", self.magnitude, inside, f"a whole number in 0..{self.num_magnitude_bins - 1}")
        check_rgb("fill", self.fill)

    def bins(self, rng: np.random.Generator, n: int) -> Ints:
        return np.full((n, self.num_ops), self.magnitude)


@dataclass(frozen=True)
class TrivialAugmentWide(AutoAugment):
    """Run one of 14 ops, with a random strength (Müller, Hutter 2021; torchvision's `TrivialAugmentWide`).

    The strongest are shears of 0.99, shifts of 32 pixels of the view before `Resize`, rotations of 135 degrees, factors
    of 1 - 0.99 and 1 + 0.99, 6 bits: made for classification, and strong for boxes. It comes before `Resize` and
    differs from torchvision's as `RandAugment` does. On the CPU it costs about as much as decoding, for its color ops.

    Args:
        num_magnitude_bins: Number of strengths, from which one is sampled.
        fill: RGB 0..255 beside the image.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)] * 4, boxes=[[[20, 10, 60, 50]]] * 4)
    >>> after = samples.then(da.TrivialAugmentWide(), da.Resize((100, 200)))
    >>> for boxes in after.boxes:  # three drew a colour op
    ...     print(boxes.round().tolist())
    [[20.0, 10.0, 60.0, 50.0]]
    [[20.0, 10.0, 60.0, 50.0]]
    [[20.0, 10.0, 60.0, 50.0]]
    [[43.0, 10.0, 83.0, 50.0]]
    """

    num_magnitude_bins: int = 31
    fill: RGB = FILL

    largest = Largest(shear=0.99, shift=32, relative=False, degrees=135, factor=0.99, bits=6)
    num_ops: ClassVar[int] = 1  # type: ignore[misc]

    def check_arguments(self) -> None:
        _check_bins(self.num_magnitude_bins)
        check_rgb("fill", self.fill)

    def bins(self, rng: np.random.Generator, n: int) -> Ints:
        return rng.integers(self.num_magnitude_bins, size=(n, 1))


@dataclass(frozen=True)
class ColorSteps(PixelOp):
    """The color ops that RandAugment or TrivialAugmentWide drew."""

    num_ops: int

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        op, strength = drawn["op"], drawn["strength"]
        return views, {
            "apply": np.stack([is_any(change.ops, op) for change in CHANGES], axis=2),
            "color": _color(op, strength),
            "kernel": sharpness_kernel(1 + strength.ravel()).reshape(*op.shape, 3, 3),
            "mask": 256 - (1 << (8 - np.where(is_any(("Posterize",), op), strength, 8).astype(np.int64))),
            "threshold": 255 * strength,
        }

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        for step in range(self.num_ops):
            for index, change in enumerate(CHANGES):
                nodes = {change.input: planned[change.input][step]} if change.input else {}
                image = apply_where(planned["apply"][step, index], image, nodes, keep_type(change.change))
        return image

    def gpu_pass(self, views: Views) -> GpuPass:
        return ChangePass(_changes_of_steps, views.pixels, has_levels=True)


def is_any(names: tuple[str, ...], op: Ints) -> np.ndarray[tuple[int, ...], np.dtype[np.bool_]]:
    """Return whether each op is one of `names`. `op`: indices in OPS, of any shape."""
    return np.isin(op, [OPS.index(name) for name in names])


def _color(op: Ints, strength: Floats) -> Floats:
    """Return the linear color maps (n, num_ops, 3, 4)."""
    brightness, saturation, contrast = (1 + np.where(is_any((name,), op), strength, 0).ravel() for name in LINEAR_OPS)
    maps = color.chain(color.brightness(brightness), color.saturation(saturation), color.contrast(contrast))
    return maps.reshape(*op.shape, 3, 4)


def _sharpen(image: Node, nodes: Nodes) -> Node:
    return clamp(fn.filter(image, nodes["kernel"].gpu() if image.device == "gpu" else nodes["kernel"]))


def _posterize(image: Node, nodes: Nodes) -> Node:
    return as_bytes(image) & fn.cast(nodes["mask"], dtype=types.UINT8)


def _solarize(image: Node, nodes: Nodes) -> Node:
    image = fn.cast(image, dtype=types.FLOAT)
    return image + fn.cast(image >= nodes["threshold"], dtype=types.FLOAT) * (255.0 - 2.0 * image)


def _changes_of_steps(inputs: Arrays) -> Changes:
    """Return what the kernel of a GPU does in each step. `inputs`: what `ColorSteps` planned."""
    applied = inputs["apply"] != 0
    kinds = np.where(applied.any(2), np.array([change.kind for change in CHANGES])[applied.argmax(2)], NOTHING)
    numbers = np.zeros((*kinds.shape, NUMBERS))
    for change in CHANGES:
        if change.input:
            values = inputs[change.input].reshape(*kinds.shape, -1)
            numbers[..., : values.shape[-1]] += values * (kinds == change.kind)[..., None]
    return kinds, numbers


class _Change(NamedTuple):
    """A change of pixels."""

    kind: int
    """What the kernel of a GPU calls it."""
    ops: tuple[str, ...]
    """The ops that it does."""
    input: str
    """The planned array that it takes; "": none."""
    change: Callable[[Node, Nodes], Node]


CHANGES = (
    _Change(LINEAR, LINEAR_OPS, "color", lambda image, nodes: map_colors(image, nodes["color"])),
    _Change(FILTER, ("Sharpness",), "kernel", _sharpen),
    _Change(POSTERIZE, ("Posterize",), "mask", _posterize),
    _Change(SOLARIZE, ("Solarize",), "threshold", _solarize),
    _Change(AUTOCONTRAST, ("AutoContrast",), "", RandomAutocontrast().change),
    _Change(EQUALIZE, ("Equalize",), "", RandomEqualize().change),
)


def _check_bins(bins: int) -> None:
    check("num_magnitude_bins", bins, is_whole(bins, 2), "a whole number of at least 2")
