"""Filters, histogram ops and other pixel ops that change some of the images and cost nothing for the others."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math

from detaug.arguments import Range, check, check_p, check_range, is_number, is_whole, is_wholes
from detaug.arrays import Arrays, Floats
from detaug.boxes.views import Views
from detaug.gpu.passes import GpuPass
from detaug.gpu.pixel_changes import AUTOCONTRAST, EQUALIZE, FILTER, LINEAR, POSTERIZE, SOLARIZE, OneChange
from detaug.gpu.pixel_passes import BlurPass, ChangePass, ClahePass
from detaug.ops.op import PixelOp
from detaug.pipelines.graph import Node, Nodes, apply_where, keep_type
from detaug.pixel_format import PixelFormat


def clamp(image: Node) -> Node:
    """Limit values to 0..255; the type stays."""
    return dali_math.max(dali_math.min(image, 255.0), 0.0)  # ten times as fast as DALI's clamp, on the CPU


def as_bytes(image: Node) -> Node:
    """Return the image as uint8: rounded and limited to 0..255."""
    return fn.cast(image, dtype=types.UINT8)


def filtered(image: Node, kernel: Node) -> Node:
    """Return the image filtered by a kernel (K, K) of its own; beyond the border it is reflected."""
    return fn.filter(image, kernel.gpu() if image.device == "gpu" else kernel)


@dataclass(frozen=True)
class RandomPixelOp(PixelOp):
    """Changes an image with probability `p`; the other images cost nothing, and the image's type stays.

    A subclass defines `change`, and `p` as its last field.
    """

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        p: float = getattr(self, "p")  # noqa: B009  # a field of each subclass
        return {"apply": rng.random(n) < p, **self.amounts(rng, n)}

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        """Draw the other inputs of `change`, by name."""
        return {}

    def constants(self, device: str) -> Nodes:
        """Return constants for `planned`: made in `change`, they would be as long as the whole batch."""
        return {}

    def change(self, image: Node, planned: Nodes) -> Node:
        """Return the changed image, of any type, in 0..255."""
        raise NotImplementedError(f"{type(self).__name__} must define change(image, planned)")

    def change_bands(self, image: Node, planned: Nodes, pixels: PixelFormat) -> Node:
        """Return the changed image, for an op with `any_bands`; it also gets 8-bit RGB, in 0..255."""
        return self.change(image, planned)

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        nodes = self.constants(image.device) | planned  # a container has made the constants already
        return apply_where(planned["apply"], image, nodes, keep_type(partial(self.change_bands, pixels=views.pixels)))


@dataclass(frozen=True)
class GaussianBlur(RandomPixelOp):
    """Blur with a Gaussian (torchvision's `GaussianBlur`).

    On the CPU it costs more than decoding: two passes with a window of up to 2 * ceil(3 * sigma) + 1 pixels.

    Args:
        kernel_size: Side of the window in pixels, odd; None: as many as sigma needs, 2 * ceil(3 * sigma) + 1.
        sigma: (smallest, largest) standard deviation in output pixels.
        p: Probability per image.

    >>> image = np.zeros((5, 5, 3), np.uint8)
    >>> image[:, 2] = 255
    >>> da.batch([image]).then(da.Resize((5, 5)), da.GaussianBlur(sigma=(1, 1), p=1)).images[0][2, :, 0]
    array([ 28,  63, 102,  63,  28], dtype=uint8)
    """

    any_bands: ClassVar[bool] = True

    kernel_size: int | None = None
    sigma: Range = (0.1, 2.0)
    p: float = 0.5

    def check_arguments(self) -> None:
        odd = self.kernel_size is None or (is_whole(self.kernel_size, 1) and self.kernel_size % 2 == 1)
        check("kernel_size", self.kernel_size, odd, "None or an odd number of pixels")
        check_range("sigma", self.sigma, 0, float("inf"))
        check("sigma", self.sigma, self.sigma[0] > 0, "above 0")
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"sigma": rng.uniform(*self.sigma, n)}

    def change(self, image: Node, planned: Nodes) -> Node:
        if self.kernel_size is None:
            return fn.gaussian_blur(image, sigma=planned["sigma"])
        return fn.gaussian_blur(image, sigma=planned["sigma"], window_size=self.kernel_size)

    def gpu_pass(self, views: Views) -> GpuPass:
        return BlurPass(self.kernel_size)


@dataclass(frozen=True)
class RandomAdjustSharpness(RandomPixelOp):
    """Sharpen or smooth the image with Pillow's 3 x 3 kernel (torchvision's `RandomAdjustSharpness`).

    Here the outermost pixels change too. On the CPU it costs about as much as decoding: nine multiplications for every
    value, in float32.

    Args:
        sharpness_factor: Above 1 sharpens, below 1 smooths, 0 most.
        p: Probability per image.

    >>> image = np.full((5, 5, 3), 100, np.uint8)
    >>> image[:, 2] = 200
    >>> da.batch([image]).then(da.Resize((5, 5)), da.RandomAdjustSharpness(2, p=1)).images[0][2, :, 0]
    array([100,  77, 246,  77, 100], dtype=uint8)
    """

    sharpness_factor: float
    p: float = 0.5

    def check_arguments(self) -> None:
        check("sharpness_factor", self.sharpness_factor, is_number(self.sharpness_factor, 0), "a number of at least 0")
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"kernel": np.tile(sharpness_kernel(np.array([self.sharpness_factor])), (n, 1, 1))}

    def change(self, image: Node, planned: Nodes) -> Node:
        return clamp(filtered(image, planned["kernel"]))

    def gpu_pass(self, views: Views) -> GpuPass:
        return ChangePass(OneChange(FILTER, "kernel"), views.pixels)


def sharpness_kernel(factor: Floats) -> Floats:
    """Return kernels (n, 3, 3) from factors (n,); 1 changes nothing."""
    smooth = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13
    same = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    return np.asarray(smooth + factor[:, None, None] * (same - smooth), np.float32)


@dataclass(frozen=True)
class JPEG(RandomPixelOp):
    """Add artifacts of JPEG compression (torchvision's `JPEG`, Albumentations' `ImageCompression`).

    Args:
        quality: (smallest, largest), whole numbers in 1..100; 100 is the best.
        p: Probability per image.

    >>> image = np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8)
    >>> for quality in (10, 50, 90):
    ...     after = da.batch([image]).then(da.Resize((64, 64)), da.JPEG((quality, quality), p=1)).images[0]
    ...     print(quality, np.abs(after - image.astype(float)).mean().round())  # how much a value changed
    10 61.0
    50 52.0
    90 47.0
    """

    quality: tuple[int, int] = (25, 95)
    p: float = 0.5

    def check_arguments(self) -> None:
        check_range("quality", self.quality, 1, 100)
        check("quality", self.quality, is_wholes(self.quality, 2), "two whole numbers")
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"quality": rng.integers(self.quality[0], self.quality[1] + 1, n)}

    def change(self, image: Node, planned: Nodes) -> Node:
        return fn.jpeg_compression_distortion(as_bytes(image), quality=planned["quality"])


@dataclass(frozen=True)
class RandomEqualize(RandomPixelOp):
    """Equalize the histogram of each channel (torchvision's `RandomEqualize`).

    The formula is OpenCV's; Pillow's and torchvision's first rounds down the histogram's step.

    Args:
        p: Probability per image.

    >>> image = np.uint8([[[100] * 3, [110] * 3, [111] * 3, [112] * 3]])  # one row of four grey pixels
    >>> da.batch([image]).then(da.Resize((1, 4)), da.RandomEqualize(p=1)).images[0][0, :, 0]
    array([  0,  85, 170, 255], dtype=uint8)
    """

    p: float = 0.5

    def check_arguments(self) -> None:
        check_p(self.p)

    def change(self, image: Node, planned: Nodes) -> Node:
        return fn.equalize(as_bytes(image))

    def gpu_pass(self, views: Views) -> GpuPass:
        return ChangePass(OneChange(EQUALIZE), views.pixels, has_levels=True)


@dataclass(frozen=True)
class CLAHE(RandomPixelOp):
    """Equalize the luma's histogram locally, with limited contrast (Albumentations' `CLAHE`).

    Source: Zuiderveld 1994, as implemented in OpenCV. On the CPU it costs more than decoding: it converts the color
    space twice, and each pixel mixes four tables.

    Args:
        clip_limit: How many times the mean a histogram's bin may have.
        tiles: (rows, columns) of the grid.
        p: Probability per image.

    >>> image = np.tile(np.arange(100, 164, dtype=np.uint8)[:, None, None], (1, 64, 3))  # from 100 to 163, downwards
    >>> after = da.batch([image]).then(da.Resize((64, 64)), da.CLAHE(p=1)).images[0]
    >>> print(after.min(), after.max())
    108 197
    """

    clip_limit: float = 4.0
    tiles: tuple[int, int] = (8, 8)
    p: float = 0.5

    def check_arguments(self) -> None:
        check("clip_limit", self.clip_limit, is_number(self.clip_limit, 0) and self.clip_limit > 0, "above 0")
        check("tiles", self.tiles, is_wholes(self.tiles, 2, low=1), "(rows, columns), whole numbers from 1")
        check_p(self.p)

    def change(self, image: Node, planned: Nodes) -> Node:
        rows, columns = self.tiles
        return fn.clahe(as_bytes(image), clip_limit=float(self.clip_limit), tiles_y=rows, tiles_x=columns)

    def gpu_pass(self, views: Views) -> GpuPass:
        return ClahePass(self.clip_limit, self.tiles)


@dataclass(frozen=True)
class RandomAutocontrast(RandomPixelOp):
    """Stretch each channel to 0..255 (torchvision's `RandomAutocontrast`).

    On the CPU it costs more than decoding: two passes find the extremes, one stretches, in float32.

    Args:
        p: Probability per image.

    >>> image = np.uint8([[[100] * 3, [110] * 3, [120] * 3, [130] * 3]])  # one row of four grey pixels
    >>> da.batch([image]).then(da.Resize((1, 4)), da.RandomAutocontrast(p=1)).images[0][0, :, 0]
    array([  0,  85, 170, 255], dtype=uint8)
    """

    p: float = 0.5

    def check_arguments(self) -> None:
        check_p(self.p)

    def change(self, image: Node, planned: Nodes) -> Node:
        image = fn.cast(image, dtype=types.FLOAT)
        low, high = fn.reductions.min(image, axes=[0, 1]), fn.reductions.max(image, axes=[0, 1])
        flat = fn.cast(high == low, dtype=types.FLOAT)  # a channel with a single value stays
        return (image - low * (1.0 - flat)) * (255.0 / (high - low + flat * 255.0))

    def gpu_pass(self, views: Views) -> GpuPass:
        return ChangePass(OneChange(AUTOCONTRAST), views.pixels, has_levels=True)


_INVERTED = np.column_stack([-np.eye(3), np.full(3, 255)]).ravel()
"""(3, 4), flat: the linear map of inverted colors."""


@dataclass(frozen=True)
class RandomInvert(RandomPixelOp):
    """Invert the colors, 255 - RGB (torchvision's `RandomInvert`).

    Args:
        p: Probability per image.

    >>> image = np.uint8([[[0] * 3, [100] * 3, [200] * 3]])  # one row of three grey pixels
    >>> da.batch([image]).then(da.Resize((1, 3)), da.RandomInvert(p=1)).images[0][0, :, 0]
    array([255, 155,  55], dtype=uint8)
    """

    p: float = 0.5

    def check_arguments(self) -> None:
        check_p(self.p)

    def change(self, image: Node, planned: Nodes) -> Node:
        return 255.0 - image

    def gpu_pass(self, views: Views) -> GpuPass:
        return ChangePass(OneChange(LINEAR, _INVERTED), views.pixels)


@dataclass(frozen=True)
class RandomPosterize(RandomPixelOp):
    """Keep only the highest bits of each channel's eight (torchvision's `RandomPosterize`).

    Args:
        bits: Number of bits to keep, 1..8.
        p: Probability per image.

    >>> image = np.uint8([[[0] * 3, [100] * 3, [200] * 3]])  # one row of three grey pixels
    >>> da.batch([image]).then(da.Resize((1, 3)), da.RandomPosterize(bits=2, p=1)).images[0][0, :, 0]
    array([  0,  64, 192], dtype=uint8)
    """

    bits: int
    p: float = 0.5

    def check_arguments(self) -> None:
        check("bits", self.bits, is_whole(self.bits, 1, 8), "a whole number in 1..8")
        check_p(self.p)

    def change(self, image: Node, planned: Nodes) -> Node:
        return as_bytes(image) & types.Constant(np.uint8(self._mask))

    def gpu_pass(self, views: Views) -> GpuPass:
        return ChangePass(OneChange(POSTERIZE, self._mask), views.pixels)

    @property
    def _mask(self) -> int:
        """Return the bits of a byte that stay."""
        return 256 - (1 << (8 - self.bits))


@dataclass(frozen=True)
class RandomSolarize(RandomPixelOp):
    """Invert large values (torchvision's `RandomSolarize`).

    On the CPU it costs more than decoding: several passes over the pixels in float32.

    Args:
        threshold: The smallest value that is inverted, 0..255.
        p: Probability per image.

    >>> image = np.uint8([[[0] * 3, [100] * 3, [200] * 3]])  # one row of three grey pixels
    >>> da.batch([image]).then(da.Resize((1, 3)), da.RandomSolarize(threshold=128, p=1)).images[0][0, :, 0]
    array([  0, 100,  55], dtype=uint8)
    """

    threshold: float
    p: float = 0.5

    def check_arguments(self) -> None:
        check("threshold", self.threshold, is_number(self.threshold, 0, 255), "in 0..255")
        check_p(self.p)

    def change(self, image: Node, planned: Nodes) -> Node:
        image = fn.cast(image, dtype=types.FLOAT)
        bright = fn.cast(image >= float(self.threshold), dtype=types.FLOAT)
        return image + bright * (255.0 - 2.0 * image)

    def gpu_pass(self, views: Views) -> GpuPass:
        return ChangePass(OneChange(SOLARIZE, self.threshold), views.pixels)
