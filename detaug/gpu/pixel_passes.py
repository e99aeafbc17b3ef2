"""Passes over rendered images that change pixels: colors and filters, noise, rectangles, other images."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from detaug.arguments import RGB
from detaug.arrays import Arrays, Floats, Ints
from detaug.boxes.views import Views
from detaug.gpu.cielab_tables import color_tables_on
from detaug.gpu.passes import (
    Tensors,
    blur_numbers,
    blurred,
    color_arguments,
    color_columns,
    launch_pass,
    numbers_of,
    rendered,
)
from detaug.gpu.pixel_changes import Changes
from detaug.gpu.streams import launch, launch_programs
from detaug.pixel_format import PixelFormat

# --------------------------------------------------------------------------------- colors and filters


@dataclass(frozen=True)
class ChangePass:
    """Changes colors, or filters 3 x 3 pixels, in one or several steps."""

    changes: Callable[[Arrays], Changes]
    """Returns the changes from what the op planned."""
    pixels: PixelFormat
    has_levels: bool = False
    """Whether a change depends on how many pixels of an image have each value."""

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        kinds, numbers = self.changes(inputs)
        if not self.pixels.is_rgb8:
            numbers[..., 1] = self.pixels.white
        return {f"{step}": numbers_of(views, kinds[:, step], numbers[:, step]) for step in range(kinds.shape[1])}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import change

        for numbers in parameters.values():
            images = rendered(change, images, numbers, self._tables(images, numbers))
        return images

    def _tables(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Return the new values of all levels, (N, 3, 256) uint8, for the images that need them."""
        from detaug.gpu.pixel_kernels import LEVELS, count_levels, make_tables

        if not self.has_levels:
            return images  # never read
        counts = torch.zeros((len(images), 3, LEVELS), dtype=torch.int32, device=images.device)
        tables = torch.empty_like(counts, dtype=torch.uint8)
        launch_pass(count_levels, images, numbers, counts)
        launch_programs(make_tables, images.device, 3 * len(images), numbers, counts, tables, numbers.shape[1])
        return tables


@dataclass(frozen=True)
class BlurPass:
    kernel_size: int | None

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        return {"numbers": blur_numbers(views, inputs, self.kernel_size)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        return blurred(images, parameters["numbers"])


@dataclass(frozen=True)
class ConvolvePass:
    """Filters each image with its own kernel."""

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        kernel = inputs["kernel"]
        reach = (kernel.shape[1] // 2) * (inputs["apply"] != 0)
        return {"numbers": numbers_of(views, reach, kernel.reshape(len(kernel), -1))}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import convolve

        numbers = parameters["numbers"]
        return rendered(convolve, images, numbers, SIDE=math.isqrt(numbers.shape[1] - 3))


@dataclass(frozen=True)
class MedianPass:
    kernel_size: int

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        return {"numbers": numbers_of(views, inputs["apply"])}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import take_median

        return rendered(take_median, images, parameters["numbers"], REACH=self.kernel_size // 2)


@dataclass(frozen=True)
class CoarsenPass:
    """Shows each image in fewer pixels of the same size."""

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        return {"numbers": numbers_of(views, inputs["apply"], inputs["coarse"])}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import coarsen

        return rendered(coarsen, images, parameters["numbers"])


@dataclass(frozen=True)
class ClahePass:
    clip_limit: float
    tiles: tuple[int, int]
    """(rows, columns)."""

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        sides, limit = self._sides_and_limits(views.size.astype(np.int64))
        area, one = sides.prod(1), np.float32(1)
        return {"numbers": numbers_of(views, inputs["apply"], sides, limit, one / sides.astype(np.float32), 255 / area)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.clahe_kernels import LEVELS, PIXELS, equalize, make_tables

        numbers, colors = parameters["numbers"], color_tables_on(images.device)
        rows, columns = self.tiles
        count, _, height, width = images.shape
        tables = torch.empty((count, rows * columns, LEVELS), dtype=torch.uint8, device=images.device)
        tensors = images, numbers, colors, tables
        exact = {"enable_fp_fusion": False}  # products and sums round as on the CPU, else a lightness may differ by 1
        sizes, device = (numbers.shape[1], height, width, rows, columns), images.device
        launch_programs(make_tables, device, count * rows * columns, *tensors, *sizes, PIXELS=PIXELS, **exact)
        launch(equalize, device, *tensors, count, *sizes, **exact)
        return images

    def _sides_and_limits(self, sizes: Ints) -> tuple[Ints, Floats]:
        """Return sides (N, 2) in pixels of the tiles, and the most pixels (N,) of a level, as OpenCV chooses them.

        If one side is not a multiple of its tiles, OpenCV enlarges both, each by at least a pixel.
        """
        tiles = np.array(self.tiles)
        beside = tiles - sizes % tiles
        beside[(sizes % tiles == 0).all(1)] = 0
        sides = (sizes + beside) // tiles
        area = sides.prod(1)
        limit = np.floor(np.float64(np.float32(self.clip_limit)) * area / 256)
        return sides, limit.clip(1, area)


# ----------------------------------------------------------------------------------------------- noise


@dataclass(frozen=True)
class NoisePass:
    """Adds salt and pepper to the fraction of pixels that was planned as "amount", or normal noise."""

    pixels: PixelFormat
    normal: tuple[float, float] | None = None
    """Mean and standard deviation, for images in 0..1."""

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        seeds = inputs["seed"].reshape(len(views), -1).astype(np.uint32)[:, [0, -1]]
        white = self.pixels.white
        amounts = (
            np.tile([value * white for value in self.normal], (len(views), 1)) if self.normal else inputs["amount"]
        )
        numbers = numbers_of(views, inputs["apply"], amounts, np.full(len(views), white))
        return {"numbers": numbers, "seeds": np.ascontiguousarray(seeds).view(np.int32)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import add_noise

        salt = self.normal is None
        return rendered(add_noise, images, parameters["numbers"], parameters["seeds"], SALT=salt)


# --------------------------------------------------------------------------- rectangles, other images


@dataclass(frozen=True)
class FillPass:
    """Fills the rectangles that were planned as "holes"."""

    pixels: PixelFormat
    value: RGB

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        holes = inputs["holes"]
        color = color_columns(self.pixels, self.value, len(holes))
        return {"holes": np.column_stack([holes.reshape(len(holes), -1), *color]).astype(np.float32)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import fill_rectangles

        whole = np.array(self.value, np.float64).round().tolist()
        color = color_arguments(self.pixels, whole)  # floats: Triton compiles a kernel for each integer
        launch_pass(fill_rectangles, images, parameters["holes"], **color)
        return images


@dataclass(frozen=True)
class AveragePass:
    """Averages each image with another one of the batch."""

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        return {"away": inputs["partner"].astype(np.int64) - views.slot, "share": inputs["share"].astype(np.float32)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        partner = torch.arange(len(images), device=images.device) + parameters["away"]
        share = parameters["share"].view(-1, 1, 1, 1)
        mixed = images * share + images[partner] * (1 - share)
        mixed = mixed.round_().to(torch.uint8) if images.dtype == torch.uint8 else mixed
        return mixed.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class PastePass:
    """Pastes some pixels of another image of the batch."""

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        away = inputs["tiles"][:, 0, 1, 0].astype(np.int64) - views.slot
        return {"away": away, "pixels": inputs["pixels"].view(np.int32)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        partner = torch.arange(len(images), device=images.device) + parameters["away"]
        bits = torch.arange(32, dtype=torch.int32, device=images.device)
        shown = (parameters["pixels"][..., None] >> bits & 1).flatten(2)[:, None, : images.shape[2], : images.shape[3]]
        shown = pad(shown, (0, images.shape[3] - shown.shape[3], 0, images.shape[2] - shown.shape[2]))
        return torch.where(shown > 0, images[partner], images).contiguous(memory_format=torch.channels_last)
