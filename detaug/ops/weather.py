"""Weather and light that lie over an image: shadows, fog, rain."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math
from torch import Tensor

from detaug.arguments import (
    RGB,
    Range,
    check,
    check_p,
    check_range,
    check_rgb,
    is_number,
    is_numbers,
    is_whole,
    is_wholes,
)
from detaug.arrays import Arrays, Floats
from detaug.boxes.views import Views
from detaug.gpu.passes import GpuPass
from detaug.gpu.weather_passes import FogPass, RainPass, ShadowPass
from detaug.ops import weather_loops
from detaug.ops.cpu_kernels import apply_kernels
from detaug.ops.filters import RandomPixelOp, as_bytes
from detaug.pipelines.graph import Node, Nodes
from detaug.pipelines.threads import apply_in_threads
from detaug.pixel_format import PixelFormat

Shares = NDArray[np.float32]
"""(H, W), the fraction that what lies over an image has in each pixel, in 0..1."""


class WeatherOverlay(RandomPixelOp):
    """Lays something over images, by a map of its fractions that `add_shares` makes of the planned inputs.

    On the CPU a loop does it. On a GPU, and for other bands, the map is made on the CPU, and DALI does the rest.
    """

    level: ClassVar[float] = 0.0
    """The value of what is mixed in, in all channels."""

    def add_shares(self, shares: Shares, **inputs: Any) -> None:
        """Write the shares, which are 0 before. `inputs`: those of `graph_inputs` but "apply"."""
        raise NotImplementedError(f"{type(self).__name__} must define add_shares(shares, **inputs)")

    def change_bands(self, image: Node, planned: Nodes, pixels: PixelFormat) -> Node:
        inputs = {name: node for name, node in planned.items() if name != "apply"}
        if image.device == "cpu" and pixels.is_rgb8:
            return apply_kernels(as_bytes(image), [(self._mixed, inputs)])

        def of_image(shape: NDArray[np.int64], *values: NDArray[Any]) -> Shares:
            return self._map(shape[:2], dict(zip(inputs, values, strict=True)))[..., None]

        shares = apply_in_threads(of_image, image.shape(), *inputs.values())
        shares = shares.gpu() if image.device == "gpu" else shares
        return self.laid_over(image, shares)

    def laid_over(self, image: Node, shares: Node) -> Node:
        """Return the image with what lies over it, as a node of DALI."""
        return image * (1.0 - shares) + shares * self.level

    def lay_over(self, pixels: NDArray[np.uint8], shares: Shares) -> None:
        """Do the same with pixels (H, W, 3), in place."""
        color = np.full(3, self.level, np.float32)
        weather_loops.lay_over(pixels.reshape(-1), shares.reshape(-1), color, np.float32(1), np.float32(1))

    def _map(self, size: Any, inputs: Arrays) -> Shares:
        """Return the fractions in an image of this size (H, W)."""
        shares = np.zeros(size, np.float32)
        self.add_shares(shares, **inputs)
        return shares

    def _mixed(self, image: Tensor, **inputs: NDArray[Any]) -> Tensor:
        pixels = image.permute(1, 2, 0).contiguous().numpy().copy()
        self.lay_over(pixels, self._map(image.shape[1:], inputs))
        return torch.from_numpy(pixels).permute(2, 0, 1)


@dataclass(frozen=True)
class RandomShadow(WeatherOverlay):
    """Darken random polygons (Albumentations' `RandomShadow`).

    The corners are anywhere in the region, so sides cross, and where two loops of a polygon overlap the image stays
    light.

    Args:
        region: XYXY of the part of the image where the polygons are, in 0..1.
        count: (fewest, most) polygons.
        corners: Corners of each polygon.
        intensity: (smallest, largest) fraction of the light that a shadow takes away.
        p: Probability per image.

    >>> samples = da.batch([np.full((100, 100, 3), 200, np.uint8)])
    >>> image = samples.then(da.Resize((100, 100)), da.RandomShadow(count=(1, 1), p=1)).images[0]
    >>> print(np.unique(image), (image[:50] == 200).all())
    [100 200] True
    """

    any_bands: ClassVar[bool] = True

    region: tuple[float, float, float, float] = (0.0, 0.5, 1.0, 1.0)
    count: tuple[int, int] = (1, 2)
    corners: int = 5
    intensity: Range = (0.5, 0.5)
    p: float = 0.5

    def check_arguments(self) -> None:
        within = is_numbers(self.region, 4) and min(self.region) >= 0 and max(self.region) <= 1
        within = within and self.region[0] < self.region[2] and self.region[1] < self.region[3]
        check("region", self.region, within, "(x0, y0, x1, y1) in 0..1, with x0 < x1 and y0 < y1")
        check_range("count", self.count, 1, MOST_SHADOWS)
        check("count", self.count, is_wholes(self.count, 2), "two whole numbers")
        corners = is_whole(self.corners, 3, MOST_CORNERS)
        check("corners", self.corners, corners, f"a whole number in 3..{MOST_CORNERS}")
        check_range("intensity", self.intensity, 0, 1)
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        most = self.count[1]
        there = np.arange(most) < rng.integers(self.count[0], most + 1, n)[:, None]
        x0, y0, x1, y1 = self.region
        corners = rng.random((n, most, self.corners, 2)) * (x1 - x0, y1 - y0) + (x0, y0)
        return {"intensity": rng.uniform(*self.intensity, (n, most)) * there, "corners": corners}

    def graph_inputs(self, views: Views, drawn: Arrays) -> Arrays:
        return {**drawn, "corners": drawn["corners"] * views.size[:, None, None, ::-1]}

    def add_shares(self, shares: Shares, **inputs: Any) -> None:
        for corners, intensity in zip(inputs["corners"], inputs["intensity"], strict=True):
            weather_loops.add_polygon(shares, corners, intensity)

    def gpu_pass(self, views: Views) -> GpuPass:
        return ShadowPass(self.corners)


@dataclass(frozen=True)
class RandomFog(WeatherOverlay):
    """Mix with white, most in the middle, and blur (Albumentations' `RandomFog`).

    The clouds of Albumentations are discs, whose radius grows with the density; here as many are painted on average,
    and as a smooth field. The blur is Albumentations', whose window is a thirtieth of the shorter side. On the CPU it
    costs a few times as much as decoding, because of the blur.

    Args:
        density: (smallest, largest), in 0..1.
        alpha: Fraction of white in one of the many clouds, at a density of 1.
        p: Probability per image.

    >>> samples = da.batch([np.full((100, 100, 3), 100, np.uint8)])
    >>> image = samples.then(da.Resize((100, 100)), da.RandomFog((1, 1), p=1)).images[0]
    >>> print(image[:10].mean().round(), image[45:55, 45:55].mean().round())
    129.0 221.0
    """

    level: ClassVar[float] = 255.0

    density: Range = (0.3, 1.0)
    alpha: float = 0.08
    p: float = 0.5

    def check_arguments(self) -> None:
        check_range("density", self.density, 0, 1)
        check("density", self.density, self.density[0] > 0, "above 0")
        check("alpha", self.alpha, is_number(self.alpha, 0, 1), "a fraction of white in 0..1")
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {
            "density": rng.uniform(*self.density, n),
            "noise": rng.standard_normal((n, FOG_CELLS + 2, FOG_CELLS + 2)),
        }

    def graph_inputs(self, views: Views, drawn: Arrays) -> Arrays:
        """Return the fractions of white at the middles of the cells, and the blur's sigma, which is OpenCV's."""
        density = drawn["density"][:, None, None]
        clouds = clouds_over(views.size, drawn["density"])
        number = (clouds + np.sqrt(clouds) * smooth(drawn["noise"])).clip(0)
        window = np.floor(views.size.min(1) / 30).clip(3)
        window += 1 - window % 2
        return {
            "apply": drawn["apply"],
            "grid": 1 - (1 - self.alpha * density) ** number,
            "sigma": 0.3 * ((window - 1) / 2 - 1) + 0.8,
        }

    def add_shares(self, shares: Shares, **inputs: Any) -> None:
        weather_loops.interpolate(shares, inputs["grid"])

    def change_bands(self, image: Node, planned: Nodes, pixels: PixelFormat) -> Node:
        sigma = planned["sigma"]
        mixed = super().change_bands(image, {name: planned[name] for name in ("apply", "grid")}, pixels)
        return fn.gaussian_blur(as_bytes(mixed), sigma=sigma)

    def gpu_pass(self, views: Views) -> GpuPass:
        return FogPass(FOG_CELLS)


FOG_CELLS = 20
"""Cells of an image's fog, along each side: three of them are the diameter of Albumentations' discs."""


def smooth(noise: Floats) -> Floats:
    """Return normal numbers (N, K, K), of which neighbors are alike, from independent ones, (N, K + 2, K + 2)."""
    down = noise[:, :-2] + 2 * noise[:, 1:-1] + noise[:, 2:]
    return np.asarray((down[:, :, :-2] + 2 * down[:, :, 1:-1] + down[:, :, 2:]) / 6)


def clouds_over(sizes: Floats, density: Floats) -> Floats:
    """Return how many of Albumentations' discs lie over the middle of each cell on average, (N, cells, cells).

    `sizes`: (N, 2) height, width; `density`: (N,). The discs are drawn in up to ten rectangles with sides of 1, 0.9,
    0.81, ... of the image's, as long as these are longer than `region`, a third of the width times the density. An area
    of region^2 has 10 * density discs. Their radii are whole pixels below a tenth of the shorter side times the
    density, and at least half of that.
    """
    middle = np.abs((2 * np.arange(FOG_CELLS) + 1) / FOG_CELLS - 1)
    away = np.maximum(middle[:, None], middle)[..., None]  # from the middle of the image, 1 at the border
    side = 0.9 ** np.arange(10)
    region = np.floor(sizes[:, 1] // 3 * density).clip(1)
    drawn = side > (region / sizes.min(1))[:, None, None, None]
    most = np.floor(0.1 * sizes.min(1) * density).clip(2)
    fewest = (most // 2).clip(1)
    radius_squared = (_sum_of_squares(most) - _sum_of_squares(fewest)) / (most - fewest)
    per_size = 10 * density / region**2 * np.pi * radius_squared
    return np.asarray(per_size[:, None, None] * ((away < side) & drawn).sum(3))


def _sum_of_squares(below: Floats) -> Floats:
    """Return the sum of the squares of all whole numbers below this one."""
    return (below - 1) * below * (2 * below - 1) / 6


@dataclass(frozen=True)
class RandomRain(WeatherOverlay):
    """Add blurred streaks, and darken the image (Albumentations' `RandomRain`).

    The frames of a clip have streaks of their own.

    Args:
        slant: (smallest, largest): how far a streak goes to the right, in output pixels.
        length: How far it goes down, in output pixels; None: an eighth of the height.
        width: Pixels.
        color: RGB 0..255, which is added where a streak is, before the blur.
        blur: Side of a square in pixels, over which streaks are averaged; 1: without a blur.
        brightness: Factor of the whole image.
        density: Streaks for each pixel of the height; Albumentations' types of rain have 1/4 ("drizzle"), 1/3, 1
            ("heavy") and 2 ("torrential").
        p: Probability per image.

    >>> samples = da.batch([np.full((100, 100, 3), 100, np.uint8)])
    >>> image = samples.then(da.Resize((100, 100)), da.RandomRain((0, 0), density=0.01, p=1)).images[0]
    >>> print(image.min(), image.max())  # 100 * 0.7, and one streak, of (100 + 200 / 7) * 0.7
    70 90
    """

    noise_seeds = ("seed",)

    slant: Range = (-10.0, 10.0)
    length: int | None = None
    width: int = 1
    color: RGB = (200.0, 200.0, 200.0)
    blur: int = 7
    brightness: float = 0.7
    density: float = 1 / 3
    p: float = 0.5

    def check_arguments(self) -> None:
        check_range("slant", self.slant, -MOST_SLANT, MOST_SLANT)
        check("length", self.length, self.length is None or is_whole(self.length, 1), "None or a whole number from 1")
        for name in ("width", "blur"):
            check(name, getattr(self, name), is_whole(getattr(self, name), 1, 99), "a whole number in 1..99")
        check_rgb("color", self.color)
        check("brightness", self.brightness, is_number(self.brightness, 0, 1), "a factor in 0..1")
        check("density", self.density, is_number(self.density, 0, 10) and self.density > 0, "above 0, at most 10")
        check_p(self.p)

    def amounts(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"slant": rng.uniform(*self.slant, n), "seed": rng.integers(1 << 32, size=n, dtype=np.uint32)}

    def graph_inputs(self, views: Views, drawn: Arrays) -> Arrays:
        """Return (N, 2), how far streaks go to the right and down, and (N, K, 2), x and y of their upper ends."""
        height = views.size[:, 0]
        length = np.maximum(height // 8, 1) if self.length is None else np.full(len(views), float(self.length))
        count = np.where(drawn["apply"], np.maximum(np.round(height * self.density), 1), 0).astype(int)
        ends = np.full((len(views), max(count.max(), 1), 2), NOWHERE)
        for image in np.flatnonzero(count):
            below = views.size[image, ::-1] - (0, min(length[image], height[image] - 1))
            ends[image, : count[image]] = np.random.default_rng(drawn["seed"][image]).random((count[image], 2)) * below
        return {"apply": drawn["apply"], "streak": np.column_stack([drawn["slant"], length]), "ends": ends}

    def add_shares(self, shares: Shares, **inputs: Any) -> None:
        for x, y in inputs["ends"]:
            weather_loops.add_streak(shares, x, y, *inputs["streak"], np.float32(self.width), np.float32(self.blur))

    def laid_over(self, image: Node, shares: Node) -> Node:
        color = types.Constant(np.array(self.color, np.float32), device=image.device)
        return dali_math.min(image + dali_math.min(shares, 1.0) * color, 255.0) * self.brightness

    def lay_over(self, pixels: NDArray[np.uint8], shares: Shares) -> None:
        color, brightness = np.array(self.color, np.float32), np.float32(self.brightness)
        weather_loops.lay_over(pixels.reshape(-1), shares.reshape(-1), color, np.float32(0), brightness)

    def gpu_pass(self, views: Views) -> GpuPass:
        return RainPass(self.color, self.width, self.blur, self.brightness)


MOST_SLANT = 1000.0
"""Pixels that a streak may go to the right."""

NOWHERE = -1e6
"""Position in pixels of streaks that are not there."""

MOST_SHADOWS, MOST_CORNERS = 20, 20
"""Polygons of an image, and corners of a polygon."""
