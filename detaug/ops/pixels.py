"""Pixel ops: each changes pixels after `Resize` and leaves the boxes where they are.

The image is uint8 between ops, as Resize leaves it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math

from detaug.boxes.views import Floats, Views
from detaug.ops import color
from detaug.ops import cpu_kernels as on_cpu
from detaug.ops.arguments import Range, check, check_p, check_range, is_numbers
from detaug.ops.dali_internals import apply_where, keep_type
from detaug.ops.noise import ramp, random_bits, uniform
from detaug.ops.op import Arrays, Node, Nodes, PixelOp

# ------------------------------------------------------------------------------------ colour, linear in RGB


class ColorMap(PixelOp):
    """One linear map of RGB for each image: `draw` returns it as "color", (n, 3, 4)."""

    def cpu_kernel(self, views: Views) -> on_cpu.CpuKernel:
        return on_cpu.color_mapped

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        return color_mapped(image, planned["color"])


@dataclass(frozen=True)
class RandomPhotometricDistort(ColorMap):
    """SSD's colour distortion: brightness, contrast, saturation and hue, each with probability `p`.

    With `permute`, the order of the channels as well. Torchvision's ranges and order (contrast before saturation
    and hue, or after them, by a coin). Three things differ: contrast turns about 128, not about the image's mean
    gray; hue turns in YIQ, which keeps the luma, not in HSV; and all five are one linear map, rounded and clipped to
    0..255 once, at its end. `hue` is in turns, as in torchvision: 0.05 is 18 degrees.

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

    def __post_init__(self) -> None:
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
    """Brightness, contrast, saturation and hue in random order, with probability `p` (torchvision's `ColorJitter`).

    Each is one number v, for factors from max(0, 1 - v) to 1 + v and hues from -v to v turns, or (smallest,
    largest). The formulas are those of `RandomPhotometricDistort`, which says where they differ from torchvision's.

    >>> samples = da.batch([np.full((4, 4, 3), (200, 100, 50), np.uint8)])
    >>> samples.then(da.Resize((4, 4)), da.ColorJitter(brightness=(1.2, 1.2))).images[0][0, 0]
    array([240, 120,  60], dtype=uint8)
    """

    brightness: float | Range = 0.0
    contrast: float | Range = 0.0
    saturation: float | Range = 0.0
    hue: float | Range = 0.0
    p: float = 1.0

    def __post_init__(self) -> None:
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
        steps = [np.stack(maps)[order[:, place], np.arange(n)] for place in range(4)]
        return {"color": color.chain(*steps)}


@dataclass(frozen=True)
class RandomHSV(ColorMap):
    """Ultralytics' `hsv_h`, `hsv_s` and `hsv_v`: gains drawn from -1..1 times these, with probability `p`.

    `hue`: a part of half a turn. `saturation`, `value`: factors from 1 - x to 1 + x. Ultralytics changes HSV
    values; here, as in DALI's `hsv`, hue turns and saturation scales in YIQ, in one linear map.

    >>> samples = da.batch([np.full((4, 4, 3), (200, 100, 50), np.uint8)] * 3)
    >>> [image[0, 0].tolist() for image in samples.then(da.Resize((4, 4)), da.RandomHSV()).images]
    [[161, 127, 108], [255, 104, 26], [255, 86, 17]]
    """

    hue: float = 0.015
    saturation: float = 0.7
    value: float = 0.4
    p: float = 1.0

    def __post_init__(self) -> None:
        for name in ("hue", "saturation", "value"):
            gain = getattr(self, name)
            check(name, gain, is_numbers([gain]) and 0 <= gain <= 1, "a number in 0..1")
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        gains = rng.uniform(-1, 1, (3, n)) * (rng.random(n) < self.p)
        gains *= np.array([[self.hue], [self.saturation], [self.value]])
        hue, saturation, value = gains
        return {"color": color.chain(color.hue(hue / 2), color.saturation(1 + saturation), color.brightness(1 + value))}


@dataclass(frozen=True)
class RandomGrayscale(ColorMap):
    """Gray, in three equal channels, with probability `p` (torchvision's `RandomGrayscale`).

    >>> samples = da.batch([np.full((4, 4, 3), (200, 100, 50), np.uint8)])
    >>> samples.then(da.Resize((4, 4)), da.RandomGrayscale(p=1)).images[0][0, 0]
    array([124, 124, 124], dtype=uint8)
    """

    p: float = 0.1

    def __post_init__(self) -> None:
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"color": color.saturation(np.where(rng.random(n) < self.p, 0.0, 1.0))}


@dataclass(frozen=True)
class RandomChannelPermutation(ColorMap):
    """The channels in a random order, with probability `p` (torchvision's `RandomChannelPermutation`).

    >>> samples = da.batch([np.full((4, 4, 3), (200, 100, 50), np.uint8)] * 3)
    >>> after = samples.then(da.Resize((4, 4)), da.RandomChannelPermutation(p=1))
    >>> [image[0, 0].tolist() for image in after.images]
    [[50, 200, 100], [50, 100, 200], [50, 200, 100]]
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        shuffled = rng.permuted(np.tile(np.arange(3), (n, 1)), axis=1)
        return {"color": color.permutation(np.where(rng.random((n, 1)) < self.p, shuffled, np.arange(3)))}


# ----------------------------------------------------------------- for some images, the others untouched


@dataclass(frozen=True)
class _RandomPixelOp(PixelOp):
    """Changes an image with probability `p`; others are not even looked at, and the type of the image stays."""

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        p: float = getattr(self, "p")  # noqa: B009  # the last field of each subclass
        return {"apply": rng.random(n) < p, **self.amounts(rng, n)}

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        """What else is drawn."""
        return {}

    def constants(self, device: str) -> Nodes:
        """What else `change` is to find in `planned`: a constant made inside of it would be there for all images."""
        return {}

    def change(self, image: Node, planned: Nodes) -> Node:
        """The image changed, of any type, in 0..255."""
        raise NotImplementedError(f"{type(self).__name__} must define change(image, planned)")

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        nodes = self.constants(image.device) | planned  # in a branch, those that RandomApply or its like planned
        return apply_where(planned["apply"], image, nodes, keep_type(self.change))


@dataclass(frozen=True)
class GaussianBlur(_RandomPixelOp):
    """Blur with a sigma drawn from `sigma`, in output pixels, with probability `p` (torchvision's `GaussianBlur`).

    `kernel_size`: pixels a side, odd; None is as many as sigma needs, 2 * ceil(3 * sigma) + 1.

    On the CPU it costs more than decoding: two passes with a window of up to 2 * ceil(3 * sigma) + 1 pixels.

    >>> image = np.zeros((5, 5, 3), np.uint8)
    >>> image[:, 2] = 255
    >>> da.batch([image]).then(da.Resize((5, 5)), da.GaussianBlur(sigma=(1, 1), p=1)).images[0][2, :, 0]
    array([ 28,  63, 102,  63,  28], dtype=uint8)
    """

    kernel_size: int | None = None
    sigma: Range = (0.1, 2.0)
    p: float = 0.5

    def __post_init__(self) -> None:
        odd = self.kernel_size is None or (type(self.kernel_size) is int and self.kernel_size % 2 == 1)
        check("kernel_size", self.kernel_size, odd and (self.kernel_size or 1) > 0, "None or an odd number of pixels")
        check_range("sigma", self.sigma, 0, float("inf"))
        check("sigma", self.sigma, self.sigma[0] > 0, "above 0")
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"sigma": rng.uniform(*self.sigma, n)}

    def change(self, image: Node, planned: Nodes) -> Node:
        if self.kernel_size is None:
            return fn.gaussian_blur(image, sigma=planned["sigma"])
        return fn.gaussian_blur(image, sigma=planned["sigma"], window_size=self.kernel_size)


@dataclass(frozen=True)
class RandomAdjustSharpness(_RandomPixelOp):
    """Sharpen (`sharpness_factor` above 1) or smooth (below 1; 0 most), with probability `p`.

    torchvision's `RandomAdjustSharpness`, Pillow's 3 x 3 kernel; they leave the outermost pixels as they are.

    On the CPU it costs about as much as decoding: nine multiplications for every value, in float32.

    >>> image = np.full((5, 5, 3), 100, np.uint8)
    >>> image[:, 2] = 200
    >>> da.batch([image]).then(da.Resize((5, 5)), da.RandomAdjustSharpness(2, p=1)).images[0][2, :, 0]
    array([100,  77, 246,  77, 100], dtype=uint8)
    """

    sharpness_factor: float
    p: float = 0.5

    def __post_init__(self) -> None:
        factor = self.sharpness_factor
        check("sharpness_factor", factor, is_numbers([factor]) and factor >= 0, "a number of at least 0")
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"kernel": np.tile(sharpness_kernel(np.array([self.sharpness_factor])), (n, 1, 1))}

    def change(self, image: Node, planned: Nodes) -> Node:
        kernel = planned["kernel"].gpu() if image.device == "gpu" else planned["kernel"]
        return clamped(fn.filter(image, kernel))


def sharpness_kernel(factor: Floats) -> Floats:
    """(n, 3, 3) from (n,) factors: 1 changes nothing."""
    smooth = np.array([[1, 1, 1], [1, 5, 1], [1, 1, 1]]) / 13
    same = np.array([[0, 0, 0], [0, 1, 0], [0, 0, 0]])
    return np.asarray(smooth + factor[:, None, None] * (same - smooth), np.float32)


@dataclass(frozen=True)
class JPEG(_RandomPixelOp):
    """Artefacts of JPEG compression, with probability `p` (torchvision's `JPEG`, Albumentations' ImageCompression).

    `quality`: (smallest, largest), whole numbers in 1..100; 100 is the best.

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

    def __post_init__(self) -> None:
        check_range("quality", self.quality, 1, 100)
        check("quality", self.quality, all(type(each) is int for each in self.quality), "two whole numbers")
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"quality": rng.integers(self.quality[0], self.quality[1] + 1, n)}

    def change(self, image: Node, planned: Nodes) -> Node:
        return fn.jpeg_compression_distortion(as_bytes(image), quality=planned["quality"])


@dataclass(frozen=True)
class RandomEqualize(_RandomPixelOp):
    """Equalise the histogram of each channel, with probability `p` (torchvision's `RandomEqualize`).

    By OpenCV's formula: Pillow's, which torchvision has too, rounds the step of the histogram down first.

    >>> image = np.uint8([[[100] * 3, [110] * 3, [111] * 3, [112] * 3]])  # one row of four gray pixels
    >>> da.batch([image]).then(da.Resize((1, 4)), da.RandomEqualize(p=1)).images[0][0, :, 0]
    array([  0,  85, 170, 255], dtype=uint8)
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        check_p(self.p)

    def change(self, image: Node, planned: Nodes) -> Node:
        return fn.equalize(as_bytes(image))


@dataclass(frozen=True)
class CLAHE(_RandomPixelOp):
    """Local histogram equalisation of the luma with limited contrast, with probability `p` (Albumentations' CLAHE).

    `clip_limit`: how far a histogram's bin may reach above the mean. `tiles`: (rows, columns) of the grid.
    Source: Zuiderveld 1994, as OpenCV has it.

    On the CPU it costs more than decoding: it goes to another colour space and back, and each pixel mixes four tables.

    >>> image = np.tile(np.arange(100, 164, dtype=np.uint8)[:, None, None], (1, 64, 3))  # from 100 to 163, downwards
    >>> after = da.batch([image]).then(da.Resize((64, 64)), da.CLAHE(p=1)).images[0]
    >>> print(after.min(), after.max())
    108 197
    """

    clip_limit: float = 4.0
    tiles: tuple[int, int] = (8, 8)
    p: float = 0.5

    def __post_init__(self) -> None:
        check("clip_limit", self.clip_limit, is_numbers([self.clip_limit]) and self.clip_limit > 0, "above 0")
        whole = is_numbers(self.tiles, 2) and all(type(each) is int and each >= 1 for each in self.tiles)
        check("tiles", self.tiles, whole, "(rows, columns), whole numbers from 1")
        check_p(self.p)

    def change(self, image: Node, planned: Nodes) -> Node:
        rows, columns = self.tiles
        return fn.clahe(as_bytes(image), clip_limit=float(self.clip_limit), tiles_y=rows, tiles_x=columns)


@dataclass(frozen=True)
class RandomAutocontrast(_RandomPixelOp):
    """Stretch each channel to 0..255, with probability `p` (torchvision's `RandomAutocontrast`).

    On the CPU it costs more than decoding: two passes look for the extremes, one stretches, in float32.

    >>> image = np.uint8([[[100] * 3, [110] * 3, [120] * 3, [130] * 3]])  # one row of four gray pixels
    >>> da.batch([image]).then(da.Resize((1, 4)), da.RandomAutocontrast(p=1)).images[0][0, :, 0]
    array([  0,  85, 170, 255], dtype=uint8)
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        check_p(self.p)

    def change(self, image: Node, planned: Nodes) -> Node:
        image = fn.cast(image, dtype=types.FLOAT)
        low, high = fn.reductions.min(image, axes=[0, 1]), fn.reductions.max(image, axes=[0, 1])
        flat = fn.cast(high == low, dtype=types.FLOAT)  # a channel of one value stays
        return (image - low * (1.0 - flat)) * (255.0 / (high - low + flat * 255.0))


@dataclass(frozen=True)
class RandomInvert(_RandomPixelOp):
    """255 - RGB, with probability `p` (torchvision's `RandomInvert`).

    >>> image = np.uint8([[[0] * 3, [100] * 3, [200] * 3]])  # one row of three gray pixels
    >>> da.batch([image]).then(da.Resize((1, 3)), da.RandomInvert(p=1)).images[0][0, :, 0]
    array([255, 155,  55], dtype=uint8)
    """

    p: float = 0.5

    def __post_init__(self) -> None:
        check_p(self.p)

    def change(self, image: Node, planned: Nodes) -> Node:
        return 255.0 - image


@dataclass(frozen=True)
class RandomPosterize(_RandomPixelOp):
    """Keep only the highest `bits` of each channel's eight, with probability `p` (torchvision's `RandomPosterize`).

    >>> image = np.uint8([[[0] * 3, [100] * 3, [200] * 3]])  # one row of three gray pixels
    >>> da.batch([image]).then(da.Resize((1, 3)), da.RandomPosterize(bits=2, p=1)).images[0][0, :, 0]
    array([  0,  64, 192], dtype=uint8)
    """

    bits: int
    p: float = 0.5

    def __post_init__(self) -> None:
        check("bits", self.bits, type(self.bits) is int and 1 <= self.bits <= 8, "a whole number in 1..8")
        check_p(self.p)

    def change(self, image: Node, planned: Nodes) -> Node:
        return as_bytes(image) & types.Constant(np.uint8(256 - (1 << (8 - self.bits))))


@dataclass(frozen=True)
class RandomSolarize(_RandomPixelOp):
    """Invert the values from `threshold` on, 0..255, with probability `p` (torchvision's `RandomSolarize`).

    On the CPU it costs more than decoding: several passes over the pixels in float32.

    >>> image = np.uint8([[[0] * 3, [100] * 3, [200] * 3]])  # one row of three gray pixels
    >>> da.batch([image]).then(da.Resize((1, 3)), da.RandomSolarize(threshold=128, p=1)).images[0][0, :, 0]
    array([  0, 100,  55], dtype=uint8)
    """

    threshold: float
    p: float = 0.5

    def __post_init__(self) -> None:
        check("threshold", self.threshold, is_numbers([self.threshold]) and 0 <= self.threshold <= 255, "in 0..255")
        check_p(self.p)

    def change(self, image: Node, planned: Nodes) -> Node:
        image = fn.cast(image, dtype=types.FLOAT)
        bright = fn.cast(image >= float(self.threshold), dtype=types.FLOAT)
        return image + bright * (255.0 - 2.0 * image)


@dataclass(frozen=True)
class GaussianNoise(_RandomPixelOp):
    """Add noise of mean `mean` and standard deviation `sigma`, both of images in 0..1, with probability `p`.

    torchvision's `GaussianNoise`. The noise of a pixel is a hash of its place and of a drawn seed (see `noise.py`),
    so that it is the same for any number of pipelines, on the CPU and on a GPU.

    On the CPU it costs about ten times as much as decoding: two hashes, a logarithm, a root and a cosine a value.

    >>> samples = da.batch([np.full((100, 100, 3), 100, np.uint8)])
    >>> noisy = samples.then(da.Resize((100, 100)), da.GaussianNoise(sigma=0.05, p=1)).images[0]
    >>> print(noisy.mean().round(), noisy.std().round())  # 0.05 of 255 is 12.75
    100.0 13.0
    """

    mean: float = 0.0
    sigma: float = 0.1
    p: float = 0.5

    def __post_init__(self) -> None:
        check("mean", self.mean, is_numbers([self.mean]), "a number")
        check("sigma", self.sigma, is_numbers([self.sigma]) and self.sigma >= 0, "a number of at least 0")
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"seed": rng.integers(1 << 32, size=(n, 2), dtype=np.uint32)}

    def constants(self, device: str) -> Nodes:
        return {"ramp": ramp(device)}

    def change(self, image: Node, planned: Nodes) -> Node:
        ramp, seed = planned["ramp"], planned["seed"]
        first, second = (uniform(random_bits(image, ramp, seed[at], channels=3)) for at in (0, 1))
        normal = dali_math.sqrt(dali_math.log(first) * -2.0) * dali_math.cos(second * (2 * np.pi))  # Box, Muller 1958
        return clamped(image + (normal * (self.sigma * 255.0) + self.mean * 255.0))


@dataclass(frozen=True)
class SaltAndPepperNoise(_RandomPixelOp):
    """Make a share `amount` of the pixels black or white, as many of each, with probability `p`.

    Albumentations' SaltAndPepper. The choice of pixels is a hash, as in `GaussianNoise`.

    On the CPU it costs more than decoding, for the hash and the passes over the pixels.

    >>> samples = da.batch([np.full((100, 100, 3), 100, np.uint8)])
    >>> noisy = samples.then(da.Resize((100, 100)), da.SaltAndPepperNoise((0.1, 0.1), p=1)).images[0]
    >>> print((noisy == 0).mean().round(2), (noisy == 255).mean().round(2))
    0.05 0.05
    """

    amount: Range = (0.01, 0.06)
    p: float = 0.5

    def __post_init__(self) -> None:
        check_range("amount", self.amount, 0, 1)
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        seed = rng.integers(1 << 32, size=n, dtype=np.uint32)
        return {"seed": seed, "amount": rng.uniform(*self.amount, n)}

    def constants(self, device: str) -> Nodes:
        return {"ramp": ramp(device)}

    def change(self, image: Node, planned: Nodes) -> Node:
        place = uniform(random_bits(image, planned["ramp"], planned["seed"], channels=1))
        black = fn.cast(place < planned["amount"] / 2.0, dtype=types.FLOAT)
        white = fn.cast(place > 1.0 - planned["amount"] / 2.0, dtype=types.FLOAT)
        return image * (1.0 - black - white) + 255.0 * white


# ----------------------------------------------------------------------------------------------- output


@dataclass(frozen=True)
class Normalize(PixelOp):
    """(image / 255 - mean) / std, channels first: the last op of a recipe.

    `mean`, `std`: three numbers each, of images in 0..1, as torchvision's; divide those of 0..255 by 255. The
    defaults give images in 0..1, which is what torchvision's detectors want: they normalise inside. `dtype`: "float32",
    "float16" or, with the default mean and std, "uint8": 0..255 as they are. `layout`: "CHW", or "channels_last": the
    batch's images are still (N, 3, H, W), in torch's channels_last memory format.

    >>> samples = da.batch([np.full((4, 6, 3), 255, np.uint8)])  # white
    >>> normalize = da.Normalize(da.presets.IMAGENET_MEAN, da.presets.IMAGENET_STD)
    >>> image = samples.then(da.Resize((4, 6)), normalize).images[0]
    >>> print(image.shape, image[:, 0, 0].round(2))
    (3, 4, 6) [2.25 2.43 2.64]
    """

    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)
    dtype: Literal["float32", "float16", "uint8"] = "float32"
    layout: Literal["CHW", "channels_last"] = "CHW"

    stage = "output"

    def __post_init__(self) -> None:
        shares = is_numbers(self.mean, 3) and all(0 <= value <= 1 for value in self.mean)
        check("mean", self.mean, shares, f"three numbers in 0..1: {_OF_SHARES}")
        positive = is_numbers(self.std, 3) and all(0 < value <= 1 for value in self.std)
        check("std", self.std, positive, f"three numbers above 0, at most 1: {_OF_SHARES}")
        check("dtype", self.dtype, self.dtype in _DTYPES, "'float32', 'float16' or 'uint8'")
        plain = tuple(self.mean) == (0, 0, 0) and tuple(self.std) == (1, 1, 1)
        check("dtype", self.dtype, self.dtype != "uint8" or plain, "'float32' or 'float16' with a mean or std")
        check("layout", self.layout, self.layout in ("CHW", "channels_last"), "'CHW' or 'channels_last'")

    @property
    def channels_last(self) -> bool:
        """Does it leave images (H, W, 3)?"""
        return self.layout == "channels_last"

    @property
    def output_layout(self) -> str:  # type: ignore[override]
        """DALI's name of the image's layout after it."""
        return "HWC" if self.channels_last else "CHW"

    def cpu_kernel(self, views: Views) -> on_cpu.CpuKernel:
        mean, std = (torch.from_numpy(np.array(values, np.float32)).view(3, 1, 1) for values in self.of_bytes())
        return partial(on_cpu.normalized, mean=mean, std=std, dtype=getattr(torch, self.dtype))

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        mean, std = self.of_bytes()
        canvas = {"crop": planned["canvas"], **_TO_CANVAS} if "canvas" in planned else {}
        dtype, layout = _DTYPES[self.dtype], self.output_layout
        return fn.crop_mirror_normalize(image, mean=mean, std=std, dtype=dtype, output_layout=layout, **canvas)

    def of_bytes(self) -> tuple[list[float], list[float]]:
        """Mean and std of images in 0..255; 0 and 1 where they stay so."""
        scale = 1 if self.dtype == "uint8" else 255
        return [value * scale for value in self.mean], [value * scale for value in self.std]


_OF_SHARES = "red, green, blue, of images in 0..1 (mean and std of images in 0..255: divide both by 255)"
_TO_CANVAS = {"crop_pos_x": 0.0, "crop_pos_y": 0.0, "out_of_bounds_policy": "pad", "fill_values": 0.0}
_DTYPES = {"float32": types.FLOAT, "float16": types.FLOAT16, "uint8": types.UINT8}


def color_mapped(image: Node, matrix: Node) -> Node:
    """The image through a linear map of RGB, (3, 4): bytes, rounded and clipped."""
    if image.device == "cpu":
        return on_cpu.painted(image, [(on_cpu.color_mapped, {"color": matrix})])
    return fn.coord_transform(image, MT=matrix, dtype=types.UINT8)


def clamped(image: Node) -> Node:
    return dali_math.max(dali_math.min(image, 255.0), 0.0)  # ten times as fast as DALI's clamp, on the CPU


def as_bytes(image: Node) -> Node:
    """uint8, rounded; values beyond 0..255 become 0 and 255."""
    return fn.cast(image, dtype=types.UINT8)


def _around_one(value: Any) -> Any:
    return (max(0.0, 1 - value), 1 + value) if is_numbers([value]) else value


def _around_zero(value: Any) -> Any:
    return (-value, value) if is_numbers([value]) else value
