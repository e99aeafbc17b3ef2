"""Distortions of finished images: the only maps that move boxes and are not a matrix (see `detaug/boxes/fields.py`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from nvidia.dali import fn, types
from torch import Tensor

from detaug.arguments import FILL, RGB, Range, check, check_fill, check_p, check_range, is_number
from detaug.arrays import Arrays
from detaug.boxes.bent import bend
from detaug.boxes.fields import STRONGEST, Field
from detaug.boxes.views import Views
from detaug.gpu.distortion_passes import DistortionPass
from detaug.gpu.passes import GpuPass
from detaug.ops import distortion_loops
from detaug.ops.cpu_kernels import apply_kernels
from detaug.ops.filters import RandomPixelOp
from detaug.pipelines.graph import Node, Nodes
from detaug.pipelines.threads import apply_in_threads
from detaug.pixel_format import PixelFormat, for_bands

Places = NDArray[np.float32]


class Distortion(RandomPixelOp):
    """Bends finished images with their annotations. A subclass makes the field.

    Pixels are resampled once more, so a recipe has one distortion, after all that moves or covers parts of the image.
    """

    bends: ClassVar[bool] = True
    any_bands: ClassVar[bool] = True

    numbers: ClassVar[tuple[str, ...]]
    """Names of what it sets of a `Field`."""

    fill: RGB

    @property
    def fills(self) -> tuple[tuple[float, ...], ...]:
        return (tuple(self.fill),)

    def field(self, views: Views, drawn: Arrays) -> Field:
        """Return the fields of the images, which leave those as they are that did not draw the op."""
        raise NotImplementedError(f"{type(self).__name__} must define field(views, drawn)")

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        field = self.field(views, drawn)
        return bend(views, field), {"apply": field.bends, **{name: getattr(field, name) for name in self.numbers}}

    def change_bands(self, image: Node, planned: Nodes, pixels: PixelFormat) -> Node:
        inputs = {name: node for name, node in planned.items() if name != "apply"}
        fill = np.array(for_bands(self.fill, pixels), np.float32)
        if image.device == "cpu":
            return apply_kernels(image, [(partial(resample, fill=fill), inputs)], as_is=True)

        def of_image(shape: NDArray[np.int64], *values: NDArray[Any]) -> Places:
            return places_to_remap(shape, **dict(zip(inputs, values, strict=True)))

        places = apply_in_threads(of_image, image.shape(), *inputs.values(), layout="CHW").gpu()
        x, y, inside = places[0], places[1], fn.expand_dims(places[2], axes=[2])
        remap = partial(fn.experimental.remap, pixel_origin="center")
        image = fn.cast(image, dtype=types.FLOAT)
        if pixels.count == 3:
            moved = remap(fn.reshape(image, layout="HWC"), x, y)
        else:
            bands = [image[:, :, index : index + 1] for index in range(pixels.count)]
            moved = fn.cat(*(remap(fn.reshape(band, layout="HWC"), x, y) for band in bands), axis=2)
        color = types.Constant(fill, device="gpu")
        return color + (moved - color) * inside


NO_CONTROL = np.zeros((0, 4, 2), np.float32)
"""Of fields that shift nothing."""


def resample(
    image: Tensor, lens: Any = 0.0, control: Any = NO_CONTROL, spacing: Any = 1.0, *, fill: NDArray[np.float32]
) -> Tensor:
    """Return an image (C, H, W), bytes or float32, through a field."""
    pixels = image.permute(1, 2, 0).contiguous().numpy()
    out, whole = np.empty_like(pixels), pixels.dtype == np.uint8
    field = np.float32(lens), np.asarray(control), np.float32(spacing)
    distortion_loops.resample(pixels, *field, fill, np.float32(0.5 if whole else 0), out)
    return torch.from_numpy(out).permute(2, 0, 1)


def places_to_remap(shape: NDArray[np.int64], lens: Any = 0.0, control: Any = NO_CONTROL, spacing: Any = 1.0) -> Places:
    """Return (3, H, W): where pixels come from, x and y counted from the first pixel's center, and 1 where inside."""
    height, width = shape[:2].tolist()
    places = np.empty((height, width, 2), np.float32)
    for y in range(height):
        distortion_loops.find_places(places[y], y, height, np.float32(lens), np.asarray(control), np.float32(spacing))
    inside = ((places >= 0) & (places < (width, height))).all(2)
    x, y = np.moveaxis((places - np.float32(0.5)).clip(0, (width - 1, height - 1)), 2, 0)
    return np.stack([x, y, inside]).astype(np.float32)


@dataclass(frozen=True)
class OpticalDistortion(Distortion):
    """Bend the image as a lens does (Albumentations' `OpticalDistortion`, mode "camera").

    A pixel at (x, y) from the center, as fractions of width and height, shows what was at (x, y) (1 + k r^2 + k r^4),
    r^2 = x^2 + y^2: OpenCV's camera with the coefficients k1 = k2 = k, and the image's width and height as focal
    lengths.

    It bends the finished image, so it comes after Resize and ops that mix or cover images, once in a recipe. A box
    becomes the hull of its bent polygon, to 0.1 pixels. The matrix stays: it is that of the image before.

    Args:
        distort: (smallest, largest) coefficient k, in -0.3..1. Below 0 the image grows towards its corners, above 0 it
            shrinks. Below -4/11 corners would fold over, hence -0.3.
        fill: RGB 0..255 beside an image that shrinks.
        p: Probability per image.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> samples = samples.then(da.Resize((100, 200)), da.OpticalDistortion((0.5, 0.5)))
    >>> print(samples.boxes[0].round(1))
    [[25.8 13.5 63.5 50. ]]
    """

    numbers: ClassVar[tuple[str, ...]] = ("lens",)

    distort: Range = (-0.05, 0.05)
    fill: RGB = FILL
    p: float = 1.0

    def check_arguments(self) -> None:
        check_range("distort", self.distort, STRONGEST, 1)
        check_fill("fill", self.fill)
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"lens": rng.uniform(*self.distort, n)}

    def field(self, views: Views, drawn: Arrays) -> Field:
        lens = np.where(drawn["apply"], drawn["lens"], 0.0)
        return replace(Field.none(views.size), lens=lens)

    def gpu_pass(self, views: Views) -> GpuPass:
        return DistortionPass(views.pixels, self.fill)


@dataclass(frozen=True)
class ElasticTransform(Distortion):
    """Shift the parts of the image by random distances (torchvision's `ElasticTransform`).

    The shifts are those of torchvision on a square image in their mean size, alpha / (4 sqrt(3 pi) sigma) pixels as a
    standard deviation, 0.8 by default, and in how alike neighbors are: there noise in -1..1 for each pixel, blurred by
    a Gaussian of `sigma`; here such noise for each point of a grid, sqrt(3) sigma apart, between which cubic B-splines
    lead, which are as wide as the Gaussian (Rueckert et al. 1999, free-form deformations). So the map has an inverse,
    by which boxes, masks and points follow.

    It bends the finished image, so it comes after Resize and ops that mix or cover images, once in a recipe. A box
    becomes the hull of its bent polygon, to 0.1 pixels. The matrix stays: it is that of the image before.

    Args:
        alpha: Strength of the shifts, at most 2.82 sigma^2, or the image could fold (Choi, Lee 2000).
        sigma: Output pixels over which shifts are alike, at least 1.
        fill: RGB 0..255 where the shifts lead beyond the border.
        p: Probability per image.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> samples = samples.then(da.Resize((100, 200)), da.ElasticTransform(alpha=250, sigma=10))
    >>> print(samples.boxes[0].round(1))
    [[18.8 11.8 61.8 50.7]]
    """

    numbers: ClassVar[tuple[str, ...]] = ("control", "spacing")

    alpha: float = 50.0
    sigma: float = 5.0
    fill: RGB = FILL
    p: float = 1.0

    def check_arguments(self) -> None:
        check("sigma", self.sigma, is_number(self.sigma, 1, 1e4), "a number of output pixels, at least 1")
        check("alpha", self.alpha, is_number(self.alpha, 0), "a number of at least 0")
        most = largest_alpha(self.sigma)
        rule = f"at most {most:g} with sigma={self.sigma:g}, beyond which the image could fold"
        check("alpha", self.alpha, self.alpha <= most, rule)
        check_fill("fill", self.fill)
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"seed": rng.integers(1 << 32, size=n, dtype=np.uint32)}

    def field(self, views: Views, drawn: Arrays) -> Field:
        spacing, most = SPACING * self.sigma, SHIFT * self.alpha / self.sigma
        points = np.floor(views.size / spacing).astype(np.int64) + 4  # in rows and in columns
        control = np.zeros((len(views), *points.max(0), 2), np.float32)
        if most > 0:
            for image in np.flatnonzero(drawn["apply"]):
                rows, columns = points[image]
                noise = np.random.default_rng(drawn["seed"][image]).random((rows, columns, 2), np.float32)
                control[image, :rows, :columns] = (2 * noise - 1) * np.float32(most)
        return replace(Field.none(views.size), control=control, spacing=np.full(len(views), spacing))

    def gpu_pass(self, views: Views) -> GpuPass:
        return DistortionPass(views.pixels, self.fill)


SPACING = 3**0.5
"""The distance between control points for a sigma of 1: the variance of a cubic B-spline is a third of its square."""

SHIFT = 315 / 151 / (4 * np.pi**0.5)
"""The largest shift of a control point for an alpha and a sigma of 1.

torchvision's noise in -1..1 has the variance 1/3, and 1/(4 pi sigma^2) of it is left after the blur; in an image of
W pixels, on which -1..1 lies, it is times alpha / W and W / 2. The squares of the B-splines' weights sum to 151/315 on
average along each axis, so a shift in -s..s has the variance s^2/3 (151/315)^2 between control points.
"""


def largest_alpha(sigma: float) -> float:
    """Return the largest alpha for a sigma, rounded down: shifts are then 0.48 of the distance of control points."""
    return float(np.floor(100 * 0.48 * SPACING * sigma**2 / SHIFT) / 100)
