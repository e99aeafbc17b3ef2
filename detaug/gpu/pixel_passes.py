"""Passes of a GPU over rendered images: the ops that the fused kernel does not know, each in a kernel or two.

A pass takes images (N, 3, H, W) uint8 with channels last, in which an image fills the top left of (H, W), and returns
such images; it may overwrite its input. Its parameters are arrays with a row for each image, which say what happens to
it; they go to the device with those of the fused kernel. `pass_of` finds the pass of an op.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, cast

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from detaug.arrays import Floats, Ints
from detaug.boxes.views import Views
from detaug.gpu.cielab_tables import color_tables_on
from detaug.gpu.pixel_changes import CHANGES_OF, Changes
from detaug.gpu.streams import launch, launch_programs
from detaug.ops.auto_augment import ColorSteps
from detaug.ops.camera import Defocus, Downscale, MedianBlur, MotionBlur
from detaug.ops.copy_paste import CopyPaste
from detaug.ops.erasing import GridMask, RandomErasing
from detaug.ops.filters import CLAHE, GaussianBlur, RandomAutocontrast, RandomEqualize
from detaug.ops.mixing import MixUp
from detaug.ops.noise import GaussianNoise, SaltAndPepperNoise
from detaug.ops.op import Arrays, Op
from detaug.ops.recipe import PixelStep
from detaug.ops.weather import FOG_CELLS, RandomFog, RandomRain, RandomShadow

Tensors = dict[str, Tensor]


class Pass(Protocol):
    """Changes the images of a batch."""

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        """Return arrays with a row for each image, by name. `inputs`: `Recipe.plan`'s."""
        ...

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        """Return the images after it. `parameters`: those arrays, on the device."""
        ...


def _launch(kernel: Any, images: Tensor, numbers: Tensor, *tensors: Tensor, **more: Any) -> None:
    """Run a kernel on all pixels of the images. `numbers`: a row for each image; `more`: arguments by name."""
    count, _, height, width = images.shape
    launch(kernel, images.device, images, numbers, *tensors, count, numbers.shape[1], height, width, **more)


def _rendered(kernel: Any, images: Tensor, numbers: Tensor, *tensors: Tensor, **more: Any) -> Tensor:
    """Return new images, which a kernel writes after its other tensors: see `_launch`."""
    changed = torch.empty_like(images)
    _launch(kernel, images, numbers, *tensors, changed, **more)
    return changed


def _own(step: PixelStep, inputs: Arrays) -> Arrays:
    """Return what the op of a step planned, by the op's own names."""
    return {name: inputs[each] for name, each in step.inputs.items()}


def _numbers(views: Views, *columns: Any) -> Floats:
    """Return (N, C) float32: heights and widths of the images, then the columns, (N,) or (N, K) each."""
    return np.ascontiguousarray(np.column_stack([views.size, *columns]), np.float32)


# --------------------------------------------------------------------------------- colours and filters


@dataclass(frozen=True)
class _Change:
    """Changes colours, or filters 3 x 3 pixels, in one or several steps."""

    changes: Callable[[Any, Arrays], Changes]
    """One of `CHANGES_OF`."""
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        kinds, numbers = self.changes(self.step.op, _own(self.step, inputs))
        return {f"{at}": _numbers(views, kinds[:, at], numbers[:, at]) for at in range(kinds.shape[1])}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import change

        for numbers in parameters.values():
            images = _rendered(change, images, numbers, self._tables(images, numbers))
        return images

    def _tables(self, images: Tensor, numbers: Tensor) -> Tensor:
        """Return the new values of all levels, (N, 3, 256) uint8, for the images that need them."""
        from detaug.gpu.pixel_kernels import LEVELS, count_levels, make_tables

        if not isinstance(self.step.op, ColorSteps | RandomAutocontrast | RandomEqualize):
            return images  # never read
        counts = torch.zeros((len(images), 3, LEVELS), dtype=torch.int32, device=images.device)
        tables = torch.empty_like(counts, dtype=torch.uint8)
        _launch(count_levels, images, numbers, counts)
        launch_programs(make_tables, images.device, 3 * len(images), numbers, counts, tables, numbers.shape[1])
        return tables


@dataclass(frozen=True)
class _Blur:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own, op = _own(self.step, inputs), cast(GaussianBlur, self.step.op)
        sigma = own["sigma"].astype(np.float64).clip(1e-3)  # 0 where a container left it out
        reach = np.ceil(3 * sigma) if op.kernel_size is None else np.full(len(sigma), op.kernel_size // 2)
        return {"numbers": _numbers(views, reach * own["apply"], sigma)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        return _blurred(images, parameters["numbers"])


def _blurred(images: Tensor, numbers: Tensor) -> Tensor:
    """Return the images after `pixel_kernels.blur` along both axes."""
    from detaug.gpu.pixel_kernels import blur

    half = torch.empty_like(images, dtype=torch.float32)
    _launch(blur, images, numbers, half, DOWN=False)
    _launch(blur, half, numbers, images, DOWN=True)
    return images


@dataclass(frozen=True)
class _Convolve:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own = _own(self.step, inputs)
        kernel = own["kernel"]
        reach = (kernel.shape[1] // 2) * (own["apply"] != 0)
        return {"numbers": _numbers(views, reach, kernel.reshape(len(kernel), -1))}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import convolve

        numbers = parameters["numbers"]
        return _rendered(convolve, images, numbers, SIDE=math.isqrt(numbers.shape[1] - 3))


@dataclass(frozen=True)
class _Median:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        return {"numbers": _numbers(views, _own(self.step, inputs)["apply"])}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import take_median

        op = cast(MedianBlur, self.step.op)
        return _rendered(take_median, images, parameters["numbers"], REACH=op.kernel_size // 2)


@dataclass(frozen=True)
class _Coarsen:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own = _own(self.step, inputs)
        return {"numbers": _numbers(views, own["apply"], own["coarse"])}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import coarsen

        return _rendered(coarsen, images, parameters["numbers"])


@dataclass(frozen=True)
class _CLAHE:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        sides, limit = _tiles(views.size.astype(np.int64), cast(CLAHE, self.step.op))
        area = sides.prod(1)
        apply, one = _own(self.step, inputs)["apply"], np.float32(1)
        return {"numbers": _numbers(views, apply, sides, limit, one / sides.astype(np.float32), 255 / area)}

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
        own, op = _own(self.step, inputs), cast(Any, self.step.op)
        seeds = own["seed"].reshape(len(views), -1).astype(np.uint32)[:, [0, -1]]
        given = own["amount"] if "amount" in own else np.tile([op.mean * 255, op.sigma * 255], (len(views), 1))
        return {"numbers": _numbers(views, own["apply"], given), "seeds": np.ascontiguousarray(seeds).view(np.int32)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import add_noise

        salt = isinstance(self.step.op, SaltAndPepperNoise)
        return _rendered(add_noise, images, parameters["numbers"], parameters["seeds"], SALT=salt)


# ------------------------------------------------------------------------------------ shadows, weather


@dataclass(frozen=True)
class _Shadow:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own = _own(self.step, inputs)
        shadows = np.concatenate(
            [own["intensity"][..., None], own["corners"].reshape(*own["corners"].shape[:2], -1)], 2
        )
        return {"numbers": _numbers(views, own["apply"], shadows.reshape(len(views), -1))}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.weather_kernels import add_shadows

        _launch(add_shadows, images, parameters["numbers"], CORNERS=cast(RandomShadow, self.step.op).corners)
        return images


@dataclass(frozen=True)
class _Fog:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own = _own(self.step, inputs)
        sigma = own["sigma"].clip(1e-3)  # 0 where a container left it out
        blur = _numbers(views, np.ceil(3 * sigma) * own["apply"], sigma)
        return {"numbers": _numbers(views, own["apply"], own["grid"].reshape(len(views), -1)), "blur": blur}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.weather_kernels import add_fog

        _launch(add_fog, images, parameters["numbers"], CELLS=FOG_CELLS)
        return _blurred(images, parameters["blur"])


@dataclass(frozen=True)
class _Rain:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own = _own(self.step, inputs)
        streak = own["streak"].clip([-np.inf, 1e-3])  # 0 where a container left it out
        return {"numbers": _numbers(views, own["apply"], streak, own["ends"].reshape(len(views), -1))}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.weather_kernels import add_rain

        op = cast(RandomRain, self.step.op)
        red, green, blue = op.color  # all are floats, or Triton would compile a kernel for each number
        more = {"brightness": op.brightness, "thickness": float(op.width), "blur": float(op.blur)}
        _launch(add_rain, images, parameters["numbers"], red=red, green=green, blue=blue, **more)
        return images


# --------------------------------------------------------------------------- rectangles, other images


@dataclass(frozen=True)
class _FillRectangles:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        holes = _own(self.step, inputs)["holes"]
        return {"holes": holes.reshape(len(holes), -1).astype(np.float32)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        from detaug.gpu.pixel_kernels import fill_rectangles

        op: Any = self.step.op
        red, green, blue = np.array(op.value, np.float64).round().tolist()  # as integers: a kernel for each colour
        _launch(fill_rectangles, images, parameters["holes"], red=red, green=green, blue=blue)
        return images


@dataclass(frozen=True)
class _MixUp:
    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own = _own(self.step, inputs)
        return {"away": own["partner"].astype(np.int64) - views.slot, "share": own["share"].astype(np.float32)}

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        partner = torch.arange(len(images), device=images.device) + parameters["away"]
        share = parameters["share"].view(-1, 1, 1, 1)
        mixed = (images * share + images[partner] * (1 - share)).round_().to(torch.uint8)
        return mixed.contiguous(memory_format=torch.channels_last)


@dataclass(frozen=True)
class _PastePixels:
    """Pastes some pixels of another image."""

    step: PixelStep

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        own = _own(self.step, inputs)
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
    RandomFog: _Fog,
    RandomRain: _Rain,
    RandomShadow: _Shadow,
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


_METHODS = ("draw", "amounts", "adapt_draw", "graph_inputs", "plan", "dali_graph", "change", "change_bands")
