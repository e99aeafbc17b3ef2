"""Noise ops, whose white noise is computed in the DALI graph from seeds that NumPy drew.

DALI's own random ops draw from a stream of their pipeline, so an image's noise would depend on the number of
pipelines. Here it is a hash of the pixel's position and of the image's seed, equal on the CPU and on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math

from detaug.arguments import Range, check, check_p, check_range, is_number
from detaug.arrays import Arrays
from detaug.boxes.views import Views
from detaug.gpu.passes import GpuPass
from detaug.gpu.pixel_passes import NoisePass
from detaug.ops.filters import RandomPixelOp, clamp
from detaug.pipelines.graph import Node, Nodes
from detaug.pixel_format import PixelFormat

STEP = 1 << 9
"""Numbers in `ramp`. More take longer to build: DALI makes a list of them."""


def ramp(device: str) -> Node:
    """Return the constant 0, 1, 2, ... that `count_to` needs."""
    return types.Constant(np.arange(STEP, dtype=np.uint32), device=device)


def count_to(end: Any, ramp: Node) -> Node:
    """Return 0, 1, 2, ... before `end`, a scalar of at most STEP ** 2, as (end,) uint32."""
    rows = fn.slice(ramp, start=0, shape=end // STEP + 1, axes=[0])
    numbers = fn.expand_dims(rows, axes=[1]) * _number(STEP) + fn.expand_dims(ramp, axes=[0])
    return fn.slice(fn.reshape(numbers, shape=[-1]), start=0, shape=end, axes=[0])


def random_bits(image: Node, ramp: Node, seed: Node, channels: int) -> Node:
    """Return random bits (H, W, channels) uint32 for an image (H, W, C) and a scalar uint32 seed.

    The hash multiplies and xors alternately; constants of xxHash (Collet) and Wellons' hash prospector, "lowbias32".
    """
    height, width = (fn.cast(image.shape()[axis], dtype=types.INT32) for axis in (0, 1))
    y, x, c = (count_to(length, ramp) for length in (height, width, channels))
    y, x, c = fn.expand_dims(y, axes=[1, 2]), fn.expand_dims(x, axes=[0, 2]), fn.expand_dims(c, axes=[0, 1])
    bits = y * _number(0x9E3779B1) + x * _number(0x85EBCA77) + c * _number(0xC2B2AE3D)
    bits = bits + (seed.gpu() if image.device == "gpu" else seed)
    for shift, factor in ((16, 0x21F0AAAD), (15, 0x735A2D97)):
        bits = (bits ^ (bits // _number(1 << shift))) * _number(factor)
    return bits ^ (bits // _number(1 << 15))


def uniform(bits: Node) -> Node:
    """Return float32 numbers above 0 and at most 1."""
    return (fn.cast(bits // _number(1 << 8), dtype=types.FLOAT) + 1.0) / float(1 << 24)


def _number(value: int) -> Node:
    return types.Constant(np.uint32(value))


@dataclass(frozen=True)
class GaussianNoise(RandomPixelOp):
    """Add noise to images in 0..1 (torchvision's `GaussianNoise`).

    The noise of a pixel is a hash of its position and of a random seed, so it is the same for any number of pipelines,
    on the CPU and on a GPU. On the CPU it costs about ten times as much as decoding: two hashes, a logarithm, a root
    and a cosine per value.

    Args:
        mean: Mean of the noise, where 1 is white.
        sigma: Its standard deviation.
        p: Probability per image.

    >>> samples = da.batch([np.full((100, 100, 3), 100, np.uint8)])
    >>> noisy = samples.then(da.Resize((100, 100)), da.GaussianNoise(sigma=0.05, p=1)).images[0]
    >>> print(noisy.mean().round(), noisy.std().round())  # 0.05 of 255 is 12.75
    100.0 13.0
    """

    noise_seeds = ("seed",)
    any_bands: ClassVar[bool] = True

    mean: float = 0.0
    sigma: float = 0.1
    p: float = 0.5

    def check_arguments(self) -> None:
        check("mean", self.mean, is_number(self.mean), "a number")
        check("sigma", self.sigma, is_number(self.sigma, 0), "a number of at least 0")
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"seed": rng.integers(1 << 32, size=(n, 2), dtype=np.uint32)}

    def constants(self, device: str) -> Nodes:
        return {"ramp": ramp(device)}

    def change_bands(self, image: Node, planned: Nodes, pixels: PixelFormat) -> Node:
        ramp, seed = planned["ramp"], planned["seed"]
        first, second = (uniform(random_bits(image, ramp, seed[index], channels=pixels.count)) for index in (0, 1))
        normal = dali_math.sqrt(dali_math.log(first) * -2.0) * dali_math.cos(second * (2 * np.pi))  # Box, Muller 1958
        noisy = image + (normal * (self.sigma * pixels.white) + self.mean * pixels.white)
        return clamp(noisy) if pixels.is_rgb8 else noisy

    def gpu_pass(self, views: Views) -> GpuPass:
        return NoisePass(views.pixels, (self.mean, self.sigma))


@dataclass(frozen=True)
class SaltAndPepperNoise(RandomPixelOp):
    """Make some pixels black or white, half of them each (Albumentations' `SaltAndPepper`).

    A hash chooses the pixels, as in `GaussianNoise`. On the CPU it costs more than decoding, because of the hash and
    the passes over the pixels.

    Args:
        amount: (smallest, largest) fraction of the pixels.
        p: Probability per image.

    >>> samples = da.batch([np.full((100, 100, 3), 100, np.uint8)])
    >>> noisy = samples.then(da.Resize((100, 100)), da.SaltAndPepperNoise((0.1, 0.1), p=1)).images[0]
    >>> print((noisy == 0).mean().round(2), (noisy == 255).mean().round(2))
    0.05 0.05
    """

    noise_seeds = ("seed",)
    any_bands: ClassVar[bool] = True

    amount: Range = (0.01, 0.06)
    p: float = 0.5

    def check_arguments(self) -> None:
        check_range("amount", self.amount, 0, 1)
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        seed = rng.integers(1 << 32, size=n, dtype=np.uint32)
        return {"seed": seed, "amount": rng.uniform(*self.amount, n)}

    def constants(self, device: str) -> Nodes:
        return {"ramp": ramp(device)}

    def change_bands(self, image: Node, planned: Nodes, pixels: PixelFormat) -> Node:
        number = uniform(random_bits(image, planned["ramp"], planned["seed"], channels=1))
        black = fn.cast(number < planned["amount"] / 2.0, dtype=types.FLOAT)
        white = fn.cast(number > 1.0 - planned["amount"] / 2.0, dtype=types.FLOAT)
        return image * (1.0 - black - white) + pixels.white * white

    def gpu_pass(self, views: Views) -> GpuPass:
        return NoisePass(views.pixels)
