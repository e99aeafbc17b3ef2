"""Passes of a GPU over rendered images: the ops that the fused kernel does not know, each in a kernel or two.

A pass takes images (N, 3, H, W) uint8 with channels last, in which an image fills the top left of (H, W), and returns
such images; it may overwrite its input. Of other bands than 8-bit RGB they are (N, bands, H, W) float32. Its parameters
are arrays with a row for each image, which say what happens to it; they go to the device with those of the fused
kernel. `pass_of` finds the pass of an op.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from detaug.arrays import Floats, Ints
from detaug.boxes.views import Views
from detaug.gpu.cielab_tables import color_tables_on
from detaug.gpu.distortion_passes import DistortionPass
from detaug.gpu.passes import (
    Pass,
    Tensors,
    blur_numbers,
    blurred,
    color_arguments,
    color_columns,
    launch_pass,
    numbers_of,
    own_inputs,
    rendered,
)
from detaug.gpu.pixel_changes import CHANGES_OF, Changes
from detaug.gpu.streams import launch, launch_programs
from detaug.gpu.weather_passes import FogPass, RainPass, ShadowPass
from detaug.ops.auto_augment import ColorSteps
from detaug.ops.camera import Defocus, Downscale, MedianBlur, MotionBlur
from detaug.ops.copy_paste import CopyPaste
from detaug.ops.distortion import ElasticTransform, OpticalDistortion
from detaug.ops.erasing import GridMask, RandomErasing
from detaug.ops.filters import CLAHE, GaussianBlur, RandomAutocontrast, RandomEqualize
from detaug.ops.mixing import MixUp
from detaug.ops.noise import GaussianNoise, SaltAndPepperNoise
from detaug.ops.op import Arrays, Op
from detaug.ops.recipe import PixelStep
from detaug.ops.weather import RandomFog, RandomRain, RandomShadow

# --------------------------------------------------------------------------------- colours and filters


@dataclass(frozen=True)
class _Change:
    """Changes colours, or filters 3 x 3 pixels, in one or several steps."""

    changes: Callable[[Any, Arrays], Changes]
    """One of `CHANGES_OF`."""
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        kinds, numbers = self.changes(self.step.op, own_inputs(self.step, inputs))
        if not self.step.views.pixels.is_rgb8:
            numbers[..., 1] = self.step.views.pixels.white
        return {f"{at}": numbers_of(views, kinds[:, at], numbers[:, at]) for at in range(kinds.shape[1])}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import change

        for numbers in parameters.values():
            images = rendered(change, images, numbers, self._tables(images, numbers))
        return images

    def _tables(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Return the new values of all levels, (N, 3, 256) uint8, for the images that need them."""
        from detaug.gpu.pixel_kernels import LEVELS, count_levels, make_tables

        if not isinstance(self.step.op, ColorSteps | RandomAutocontrast | RandomEqualize):
            return images  # never read
        counts = torch.zeros((len(images), 3, LEVELS), dtype=torch.int32, device=images.device)
        tables = torch.empty_like(counts, dtype=torch.uint8)
        launch_pass(count_levels, images, numbers, counts)
        launch_programs(make_tables, images.device, 3 * len(images), numbers, counts, tables, numbers.shape[1])
        return tables


@dataclass(frozen=True)
class _Blur:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        op = cast(GaussianBlur, self.step.op)
        return {"numbers": blur_numbers(views, own_inputs(self.step, inputs), op.kernel_size)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        return blurred(images, parameters["numbers"])


@dataclass(frozen=True)
class _Convolve:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own = own_inputs(self.step, inputs)
        kernel = own["kernel"]
        reach = (kernel.shape[1] // 2) * (own["apply"] != 0)
        return {"numbers": numbers_of(views, reach, kernel.reshape(len(kernel), -1))}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import convolve

        numbers = parameters["numbers"]
        return rendered(convolve, images, numbers, SIDE=math.isqrt(numbers.shape[1] - 3))


@dataclass(frozen=True)
class _Median:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        return {"numbers": numbers_of(views, own_inputs(self.step, inputs)["apply"])}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import take_median

        op = cast(MedianBlur, self.step.op)
        return rendered(take_median, images, parameters["numbers"], REACH=op.kernel_size // 2)


@dataclass(frozen=True)
class _Coarsen:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own = own_inputs(self.step, inputs)
        return {"numbers": numbers_of(views, own["apply"], own["coarse"])}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import coarsen

        return rendered(coarsen, images, parameters["numbers"])


@dataclass(frozen=True)
class _CLAHE:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        sides, limit = _tiles(views.size.astype(np.int64), cast(CLAHE, self.step.op))
        area = sides.prod(1)
        apply, one = own_inputs(self.step, inputs)["apply"], np.float32(1)
        return {"numbers": numbers_of(views, apply, sides, limit, one / sides.astype(np.float32), 255 / area)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.clahe_kernels import LEVELS, PIXELS, equalize, make_tables

        numbers, colors = parameters["numbers"], color_tables_on(images.device)
        rows, columns = cast(CLAHE, self.step.op).tiles
        count, _, height, width = images.shape
        tables = torch.empty((count, rows * columns, LEVELS), dtype=torch.uint8, device=images.device)
        given = images, numbers, colors, tables
        exact = {"enable_fp_fusion": False}  # products and sums round as on the CPU, else a lightness may differ by 1
        sizes, device = (numbers.shape[1], height, width, rows, columns), images.device
        launch_programs(make_tables, device, count * rows * columns, *given, *sizes, PIXELS=PIXELS, **exact)
        launch(equalize, device, *given, count, *sizes, **exact)
        return images


def _tiles(sizes: Ints, op: CLAHE) -> tuple[Ints, Floats]:
    """Return sides (N, 2) in pixels of CLAHE's tiles, and the most pixels (N,) of a level, as OpenCV chooses them.

    If one side is no multiple of its tiles, OpenCV enlarges both, each by at least a pixel.
    """
    tiles = np.array(op.tiles)
    beside = tiles - sizes % tiles
    beside[(sizes % tiles == 0).all(1)] = 0
    sides = (sizes + beside) // tiles
    area = sides.prod(1)
    limit = np.floor(np.float64(np.float32(op.clip_limit)) * area / 256)
    return sides, limit.clip(1, area)


# ----------------------------------------------------------------------------------------------- noise


@dataclass(frozen=True)
class _Noise:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own, op = own_inputs(self.step, inputs), cast(Any, self.step.op)
        seeds = own["seed"].reshape(len(views), -1).astype(np.uint32)[:, [0, -1]]
        white = self.step.views.pixels.white
        given = own["amount"] if "amount" in own else np.tile([op.mean * white, op.sigma * white], (len(views), 1))
        numbers = numbers_of(views, own["apply"], given, np.full(len(views), white))
        return {"numbers": numbers, "seeds": np.ascontiguousarray(seeds).view(np.int32)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import add_noise

        salt = isinstance(self.step.op, SaltAndPepperNoise)
        return rendered(add_noise, images, parameters["numbers"], parameters["seeds"], SALT=salt)


# --------------------------------------------------------------------------- rectangles, other images


@dataclass(frozen=True)
class _FillRectangles:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        holes = own_inputs(self.step, inputs)["holes"]
        color = color_columns(self.step.views.pixels, cast(Any, self.step.op).value, len(holes))
        return {"holes": np.column_stack([holes.reshape(len(holes), -1), *color]).astype(np.float32)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import fill_rectangles

        whole = np.array(cast(Any, self.step.op).value, np.float64).round().tolist()
        color = color_arguments(self.step.views.pixels, whole)  # floats: Triton compiles a kernel for each integer
        launch_pass(fill_rectangles, images, parameters["holes"], **color)
        return images


@dataclass(frozen=True)
class _MixUp:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own = own_inputs(self.step, inputs)
        return {"away": own["partner"].astype(np.int64) - views.slot, "share": own["share"].astype(np.float32)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        partner = torch.arange(len(images), device=images.device) + parameters["away"]
        share = parameters["share"].view(-1, 1, 1, 1)
        mixed = images * share + images[partner] * (1 - share)
        mixed = mixed.round_().to(torch.uint8) if images.dtype == torch.uint8 else mixed
        return mixed.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class _PastePixels:
    """Pastes some pixels of another image."""

    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own = own_inputs(self.step, inputs)
        return {"away": own["tiles"][:, 0, 1, 0].astype(np.int64) - views.slot, "pixels": own["pixels"].view(np.int32)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        partner = torch.arange(len(images), device=images.device) + parameters["away"]
        bits = torch.arange(32, dtype=torch.int32, device=images.device)
        shown = (parameters["pixels"][..., None] >> bits & 1).flatten(2)[:, None, : images.shape[2], : images.shape[3]]
        shown = pad(shown, (0, images.shape[3] - shown.shape[3], 0, images.shape[2] - shown.shape[2]))
        return torch.where(shown > 0, images[partner], images).contiguous(memory_format=torch.channels_last)


# ------------------------------------------------------------------------------------------ which pass


_MAKERS: dict[type[Op], Callable[[PixelStep], Pass]] = {
    **{kind: partial(_Change, changes) for kind, changes in CHANGES_OF.items()},
    CLAHE: _CLAHE,
    Defocus: _Convolve,
    Downscale: _Coarsen,
    MedianBlur: _Median,
    MotionBlur: _Convolve,
    GaussianBlur: _Blur,
    GaussianNoise: _Noise,
    SaltAndPepperNoise: _Noise,
    ElasticTransform: DistortionPass,
    OpticalDistortion: DistortionPass,
    RandomFog: FogPass,
    RandomRain: RainPass,
    RandomShadow: ShadowPass,
    RandomErasing: _FillRectangles,
    GridMask: _FillRectangles,
    MixUp: _MixUp,
    CopyPaste: _PastePixels,
}


def pass_of(step: PixelStep) -> Pass | None:
    """Return the pass of a step's op, if it has one."""
    found = [kind for kind in _MAKERS if _changes_pixels_as(step.op, kind)]
    return _MAKERS[found[0]](step) if found else None


def _changes_pixels_as(op: Op, kind: type[Op]) -> bool:
    """Return whether an op is of this class, or of a subclass that plans and changes pixels with the same methods.

    Other plans may have inputs that only DALI's operators take, such as a sigma for each axis.
    """
    methods = [(getattr(type(op), name, None), getattr(kind, name, None)) for name in _METHODS]
    return isinstance(op, kind) and all(own is known for own, known in methods)


_METHODS = ("draw", "amounts", "adapt_draw", "graph_inputs", "plan", "dali_graph", "change", "change_bands", "field")
