"""Pixel ops: each changes pixels after `Resize` and leaves the boxes where they are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math

from detaug import color
from detaug.arguments import Range, check, check_p, check_range, is_numbers
from detaug.recipe import Arrays, Node, Nodes, PixelOp
from detaug.views import Floats, Views


@dataclass(frozen=True)
class RandomPhotometricDistort(PixelOp):
    """SSD's colour distortion: brightness, contrast, saturation and hue, each with probability `p`.

    With `permute`, the order of the channels as well. Torchvision's ranges and order (contrast before saturation
    and hue, or after them, by a coin). Three things differ: contrast turns about 128, not about the image's mean
    gray; hue turns in YIQ, which keeps the luma, not in HSV; and all five are one linear map, clipped to 0..255
    once at its end and not rounded: the image becomes float32. `hue` is in turns, as in torchvision: 0.05 is 18
    degrees.
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

        contrast = color.contrast(factor(self.contrast, 1))
        early = (rng.random(n) < 0.5)[:, None, None]
        permute = rng.random((n, 1)) < self.p * self.permute
        order = np.where(permute, rng.permuted(np.tile(np.arange(3), (n, 1)), axis=1), np.arange(3))
        steps = [
            color.brightness(factor(self.brightness, 1)),
            np.where(early, contrast, color.IDENTITY),
            color.saturation(factor(self.saturation, 1)),
            color.hue(factor(self.hue, 0)),
            np.where(early, color.IDENTITY, contrast),
            color.permutation(order),
        ]
        return {"color": color.chain(*steps)}

    def paint(self, image: Node, planned: Nodes, views: Views) -> Node:
        image = fn.coord_transform(image, MT=planned["color"])
        return dali_math.max(dali_math.min(image, 255.0), 0.0)  # ten times as fast as DALI's clamp, on the CPU


@dataclass(frozen=True)
class Normalize(PixelOp):
    """(image / 255 - mean) / std as float32, channels first: the last op of a recipe.

    `mean`, `std`: three numbers each, of images in 0..1, as torchvision's. The defaults give images in 0..1,
    which is what torchvision's detectors want: they normalise inside.
    """

    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)

    stage = "output"

    def __post_init__(self) -> None:
        check("mean", self.mean, is_numbers(self.mean, 3), "three numbers: red, green, blue, of images in 0..1")
        positive = is_numbers(self.std, 3) and all(value > 0 for value in self.std)
        check("std", self.std, positive, "three numbers above 0: red, green, blue, of images in 0..1")

    def paint(self, image: Node, planned: Nodes, views: Views) -> Node:
        mean, std = ([value * 255 for value in values] for values in (self.mean, self.std))
        return fn.crop_mirror_normalize(image, mean=mean, std=std, dtype=types.FLOAT, output_layout="CHW")
