"""What cameras do to images: gamma, a lost channel, blur by motion and out of focus, medians, coarse pixels."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math

from detaug.arguments import Range, check, check_p, check_range, is_number, is_whole, is_wholes
from detaug.arrays import Arrays, Floats, Ints
from detaug.boxes.views import Views
from detaug.gpu.passes import GpuPass
from detaug.gpu.pixel_changes import GAMMA, OneChange
from detaug.gpu.pixel_passes import ChangePass, CoarsenPass, ConvolvePass, MedianPass
from detaug.ops.color_ops import ColorOp
from detaug.ops.cpu_kernels import apply_kernels, coarsen, raise_to_power, take_median
from detaug.ops.filters import RandomPixelOp, as_bytes, clamp, filtered
from detaug.pipelines.graph import Node, Nodes
from detaug.pixel_format import PixelFormat


@dataclass(frozen=True)
class RandomGamma(RandomPixelOp):
    """Raise values, as fractions of the largest one, to a random power (Albumentations' `RandomGamma`).

    Black and white stay; negative values of images with other bands stay too.

    Args:
        gamma: (smallest, largest) power: below 1 dark parts become lighter, above 1 darker. Albumentations' gamma_limit
            is in percent.
        p: Probability per image.

    >>> image = np.full((4, 4, 3), 64, np.uint8)
    >>> for gamma in (0.5, 2):
    ...     print(da.batch([image]).then(da.Resize((4, 4)), da.RandomGamma((gamma, gamma), p=1)).images[0][0, 0, 0])
    128
    16
    """

    any_bands: ClassVar[bool] = True

    gamma: Range = (0.8, 1.2)
    p: float = 0.5

    def check_arguments(self) -> None:
        check_range("gamma", self.gamma, 0, float("inf"))
        check("gamma", self.gamma, self.gamma[0] > 0, "above 0")
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"gamma": rng.uniform(*self.gamma, n)}

    def change_bands(self, image: Node, planned: Nodes, pixels: PixelFormat) -> Node:
        if image.device == "cpu" and pixels.is_rgb8:
            return apply_kernels(as_bytes(image), [(raise_to_power, {"power": planned["gamma"]})])
        image = fn.cast(image, dtype=types.FLOAT)
        share = dali_math.max(image, 0.0) / float(pixels.white)
        return dali_math.pow(share, planned["gamma"]) * float(pixels.white) + dali_math.min(image, 0.0)

    def gpu_pass(self, views: Views) -> GpuPass:
        return ChangePass(OneChange(GAMMA, "gamma"), views.pixels)


@dataclass(frozen=True)
class ChannelDropout(ColorOp):
    """Set one or two of the three channels to one value (Albumentations' `ChannelDropout`).

    Args:
        channels: (fewest, most) channels that are lost.
        value: What they become, 0..255.
        p: Probability per image.

    >>> samples = da.batch([np.full((4, 4, 3), (200, 100, 50), np.uint8)] * 3)
    >>> after = samples.then(da.Resize((4, 4)), da.ChannelDropout(p=1))
    >>> [image[0, 0].tolist() for image in after.images]
    [[200, 0, 50], [200, 100, 0], [0, 100, 50]]
    """

    channels: tuple[int, int] = (1, 1)
    value: float = 0.0
    p: float = 0.5

    def check_arguments(self) -> None:
        check_range("channels", self.channels, 1, 2)
        check("channels", self.channels, is_wholes(self.channels, 2), "two whole numbers")
        check("value", self.value, is_number(self.value, 0, 255), "a number in 0..255")
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        count = np.where(rng.random(n) < self.p, rng.integers(self.channels[0], self.channels[1] + 1, n), 0)
        lost = rng.permuted(np.tile(np.arange(3), (n, 1)), axis=1) < count[:, None]
        maps = np.zeros((n, 3, 4))
        maps[:, range(3), range(3)] = ~lost
        maps[:, :, 3] = lost * self.value
        return {"color": maps}


class KernelBlur(RandomPixelOp):
    """Blurs with a kernel that is drawn for each image: `amounts` returns "kernel", (n, K, K), of one K for all."""

    any_bands: ClassVar[bool] = True

    def change_bands(self, image: Node, planned: Nodes, pixels: PixelFormat) -> Node:
        blurred = filtered(image, planned["kernel"])
        return clamp(blurred) if pixels.is_rgb8 else blurred


@dataclass(frozen=True)
class MotionBlur(KernelBlur):
    """Blur along a line through each pixel, at any angle (Albumentations' `MotionBlur`).

    The line is as wide as a pixel, antialiased. On the CPU lines of up to 7 pixels cost less than decoding, those of 15
    several times as much.

    Args:
        kernel_size: (shortest, longest) line, odd numbers of output pixels.
        p: Probability per image.

    >>> image = np.zeros((9, 9, 3), np.uint8)
    >>> image[4, 4] = 250
    >>> after = da.batch([image]).then(da.Resize((9, 9)), da.MotionBlur((5, 5), p=1)).images[0]
    >>> print(after[..., 0].max(), after[..., 0].sum())  # a point became a line of five pixels
    58 250
    """

    kernel_size: tuple[int, int] = (3, 7)
    p: float = 0.5

    def check_arguments(self) -> None:
        _check_sides(self.kernel_size)
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        lengths = 2 * rng.integers(self.kernel_size[0] // 2, self.kernel_size[1] // 2 + 1, n) + 1
        return {"kernel": line_kernels(lengths, rng.uniform(0, np.pi, n), self.kernel_size[1])}

    def gpu_pass(self, views: Views) -> GpuPass:
        return ConvolvePass()


@dataclass(frozen=True)
class Defocus(KernelBlur):
    """Blur with a disc, as a lens that is out of focus (Hendrycks, Dietterich 2019; Albumentations' `Defocus`).

    On the CPU discs of a radius of up to 3 cost less than decoding, those of 10 several times as much.

    Args:
        radius: (smallest, largest) radius of the disc in output pixels; its edge is antialiased.
        p: Probability per image.

    >>> image = np.zeros((9, 9, 3), np.uint8)
    >>> image[4, 4] = 250
    >>> da.batch([image]).then(da.Resize((9, 9)), da.Defocus((1.5, 1.5), p=1)).images[0][4, :, 0]
    array([ 0,  0,  0, 34, 34, 34,  0,  0,  0], dtype=uint8)
    """

    radius: Range = (1.0, 3.0)
    p: float = 0.5

    def check_arguments(self) -> None:
        check_range("radius", self.radius, 0, 50)
        check("radius", self.radius, self.radius[0] > 0, "above 0")
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"kernel": disc_kernels(rng.uniform(*self.radius, n), self.radius[1])}

    def gpu_pass(self, views: Views) -> GpuPass:
        return ConvolvePass()


@dataclass(frozen=True)
class MedianBlur(RandomPixelOp):
    """Replace each value by the median of those around it (Albumentations' `MedianBlur`).

    Beyond the border the outermost pixels repeat, as in OpenCV. On the CPU it costs about as much as decoding, and with
    9 x 9 pixels several times that.

    Args:
        kernel_size: Side of the square in output pixels, odd.
        p: Probability per image.

    >>> image = np.full((5, 5, 3), 100, np.uint8)
    >>> image[2, 2] = 255  # noise
    >>> print(da.batch([image]).then(da.Resize((5, 5)), da.MedianBlur(3, p=1)).images[0].max())
    100
    """

    kernel_size: int = 3
    p: float = 0.5

    def check_arguments(self) -> None:
        odd = is_whole(self.kernel_size, 3, MOST_MEDIAN) and self.kernel_size % 2 == 1
        check("kernel_size", self.kernel_size, odd, f"an odd number of pixels in 3..{MOST_MEDIAN}")
        check_p(self.p)

    def change(self, image: Node, planned: Nodes) -> Node:
        side = self.kernel_size
        if image.device == "gpu":
            return fn.experimental.median_blur(as_bytes(image), window_size=[side, side])

        return apply_kernels(as_bytes(image), [(partial(take_median, side=side), {})])

    def gpu_pass(self, views: Views) -> GpuPass:
        return MedianPass(self.kernel_size)


@dataclass(frozen=True)
class Downscale(RandomPixelOp):
    """Show an image of a lower resolution in as many pixels (Albumentations' `Downscale`).

    Pixels are picked and repeated, not smoothed.

    Args:
        scale: (smallest, largest) fraction of the height and of the width.
        p: Probability per image.

    >>> image = np.tile(np.arange(0, 80, 10, dtype=np.uint8)[:, None], (8, 1, 3))
    >>> da.batch([image]).then(da.Resize((8, 8)), da.Downscale((0.25, 0.25), p=1)).images[0][0, :, 0]
    array([20, 20, 20, 20, 60, 60, 60, 60], dtype=uint8)
    """

    any_bands: ClassVar[bool] = True

    scale: Range = (0.25, 0.5)
    p: float = 0.5

    def check_arguments(self) -> None:
        check_range("scale", self.scale, 0, 1)
        check("scale", self.scale, self.scale[0] > 0, "above 0")
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"scale": rng.uniform(*self.scale, n)}

    def graph_inputs(self, views: Views, drawn: Arrays) -> Arrays:
        coarse = np.maximum((views.size * drawn["scale"][:, None]).round(), 1)
        return {"apply": drawn["apply"], "coarse": coarse.astype(np.float32)}

    def change_bands(self, image: Node, planned: Nodes, pixels: PixelFormat) -> Node:
        if image.device == "cpu":
            source = as_bytes(image) if pixels.is_rgb8 else image
            return apply_kernels(source, [(coarsen, {"coarse": planned["coarse"]})], as_is=True)
        size = fn.cast(image.shape()[:2], dtype=types.FLOAT)
        coarse = fn.resize(image, size=planned["coarse"], interp_type=types.INTERP_NN)
        return fn.resize(coarse, size=size, interp_type=types.INTERP_NN)

    def gpu_pass(self, views: Views) -> GpuPass:
        return CoarsenPass()


MOST_MEDIAN = 9
"""Pixels, the largest side of MedianBlur."""


def _check_sides(sides: tuple[int, int]) -> None:
    check_range("kernel_size", sides, 3, 101)
    odd = is_wholes(sides, 2) and all(side % 2 == 1 for side in sides)
    check("kernel_size", sides, odd, "two odd numbers")


def line_kernels(lengths: Ints, angles: Floats, side: int) -> Floats:
    """Return kernels (n, side, side), in whose middle is a line of this many pixels: lengths (n,), angles (n,) radians.

    The line is points per pixel apart, each of which is shared by the four pixels around it.
    """
    point = np.arange(side)
    along = point - (lengths[:, None] - 1) / 2
    y, x = (side // 2 + along * turn(angles)[:, None] for turn in (np.sin, np.cos))
    rows, columns = (np.maximum(0, 1 - np.abs(position[..., None] - point)) for position in (y, x))
    on_line = (point < lengths[:, None]) / lengths[:, None]
    return np.asarray(np.einsum("np,npr,npc->nrc", on_line, rows, columns), np.float32)


def disc_kernels(radii: Floats, largest: float) -> Floats:
    """Return kernels (n, side, side), in whose middle is a disc of each radius (n,); the side fits the `largest`."""
    reach = int(np.ceil(largest + 0.5)) - 1
    offset = np.arange(-reach, reach + 1)
    distance = np.hypot(offset[:, None], offset)
    kernels = np.clip(radii[:, None, None] + 0.5 - distance, 0, 1)
    return np.asarray(kernels / kernels.sum((1, 2), keepdims=True), np.float32)
