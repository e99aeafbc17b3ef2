"""Painting on a GPU in one kernel: a Resize that does not turn, a mosaic, a linear map of colours, Normalize.

DALI needs three or four kernels for that, each of which reads and writes all pixels, takes all of the GPU, and so stops
decoding for as long.
"""

from __future__ import annotations

import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.boxes.views import Fill, Ints
from detaug.gpu.streams import on_device
from detaug.ops.arguments import FILL
from detaug.ops.mixing import PasteTiles
from detaug.ops.op import Arrays, Op
from detaug.ops.pixels import ColorMap, Normalize
from detaug.ops.recipe import Recipe
from detaug.ops.resize import Render, Resize

TILE = (8, 64)
"""(rows, columns) of the output that a program of the kernel paints at once: the fastest of eight on an H200."""

PROGRAMS = 4
"""For each of the GPU's processors: those that decode find room beside them."""

OPTIONS = {"enable_fp_fusion": True}
"""Triton 3.9 warns where this is not said, since 3.10 has another default."""


@dataclass(frozen=True)
class OneKernel:
    """Paints what a recipe planned, from decoded images to a batch, in one pass over the batch."""

    region: str
    """The input of the recipe that says where what goes."""
    tiles: str | None
    """The one that says what is pasted of which images, if there is one."""
    color: str | None
    """The one with the linear maps of colour, likewise."""
    fill: Fill
    normalize: Normalize
    device: torch.device

    def table(self, at: Ints, sizes: Ints, inputs: Arrays) -> Ints:
        """What the kernel is told of N images of T parts each, (N, T, C), before it is known where their bytes begin.

        `at` (N,): which of the images of its run each is; `sizes` (N, 2): height, width; `inputs`: `Recipe.plan`'s.
        """
        from detaug.gpu.triton_kernel import ROW  # Triton is there where there is a GPU

        table, region = np.zeros((len(sizes), 1), ROW), inputs[self.region]
        table["region"][:, 0, : region.shape[1]] = region
        if region.shape[1] == 3:  # the window takes all of the image
            table["region"][:, 0, 4] = region[:, 2]
        table["shown"][:, :, 1] = _ALL
        table["size"][:, 0], table["offset"][:, 0], table["fill"] = sizes, at, np.round(self.fill)
        if self.tiles:
            table = _pasted(table, at, inputs[self.tiles])
        mean, std = self.normalize.of_bytes()
        table["color"][:, 0] = inputs[self.color] if self.color else np.eye(3, 4)
        table["mean"], table["scale"] = mean, np.divide(1, std)
        return table.view(np.int64).reshape(*table.shape, -1)

    def with_offsets(self, tables: list[Ints], offsets: list[Ints]) -> list[Tensor]:
        """Tables of runs on the device, copied there at once, whose images' bytes begin at `offsets`, (N,) of each."""
        table = np.concatenate(tables)
        table[..., -1] = np.concatenate([at[each[..., -1]] for each, at in zip(tables, offsets, strict=True)])
        return list(on_device(table, self.device).split_with_sizes([len(each) for each in tables]))

    def paint(self, sources: Tensor, table: Tensor, canvas: tuple[int, int]) -> Tensor:
        """(N, 3, *canvas): the images of N rows of `table`, at the left and top, zeros beside them.

        `sources`: bytes, in which each source has (height, width, 3) from its offset on.
        """
        from detaug.gpu.triton_kernel import paint

        images, parts, _ = table.shape
        layout = torch.channels_last if self.normalize.channels_last else torch.contiguous_format
        shape, dtype = (images, 3, *canvas), getattr(torch, self.normalize.dtype)
        out = torch.empty(shape, dtype=dtype, device=self.device, memory_format=layout)
        with _current(self.device):
            paint[_programs(self.device),](
                sources, table.view(torch.float32), table, out, images, parts, *canvas, *out.stride(), *TILE, **OPTIONS
            )
        return out


def kernel_of(recipe: Recipe, device: torch.device) -> OneKernel | None:
    """The kernel that paints all of the recipe on this device, if there is one."""
    kernel = one_kernel(recipe, device) if device.type == "cuda" else None
    return kernel if kernel and _triton_works(device) else None


def may_join(recipe: Recipe, kernel: OneKernel | None) -> bool:
    """Can a pipeline work on several batches as one? Their images have one size, or get theirs behind the pipeline."""
    return recipe.one_size or kernel is not None


def one_kernel(recipe: Recipe, device: torch.device) -> OneKernel | None:
    """The kernel that paints all of the recipe, if there is one, whatever the device is."""
    kinds = [
        next((kind for kind in _KNOWN if type(step.op).dali_graph is kind.dali_graph), None)
        for step in recipe.pixel_steps
    ]
    steps: dict[Any, Any] = dict(zip(kinds, recipe.pixel_steps, strict=True))
    if kinds != [kind for kind in _KNOWN if kind in steps] or steps[Render].views.turned:
        return None
    tiles, color, normalize = (steps.get(kind) for kind in _KNOWN[1:])
    return OneKernel(
        region=steps[Render].inputs["region"],
        tiles=tiles.inputs["tiles"] if tiles else None,
        color=color.inputs["color"] if color else None,
        fill=steps[Render].op.fill_around(steps[Render].views) or FILL,
        normalize=normalize.op if normalize else Normalize(dtype="uint8"),
        device=device,
    )


_KNOWN: tuple[type[Op], ...] = (Render, PasteTiles, ColorMap, Normalize)
"""What the kernel does, in this order; an op may have a `paint` of its own, then it is none of them."""

_ALL = 1e9
"""Pixels: beyond any image."""


def _pasted(table: NDArray[Any], at: Ints, tiles: NDArray[Any]) -> NDArray[Any]:
    """(N, T): the rows (N, 1) of whole images as parts of those into which they are pasted; see `mixing.PasteTiles`."""
    source, target, shape = tiles[:, 1], tiles[:, 2], tiles[:, 3]
    rows = tiles[:, 0, :, 0] + (np.arange(len(at)) - at)[:, None]  # `tiles` counts from the first image of the run
    pasted: NDArray[Any] = table.view(np.int64).take(rows, 0).view(table.dtype)[..., 0]  # as numbers: ten times as fast
    pasted["region"][:, :, 3] += source - target
    pasted["shown"][:, :, 0], pasted["shown"][:, :, 1] = target, target + shape
    return pasted


@cache
def _triton_works(device: torch.device) -> bool:
    """Does it build the kernel here? It needs a C compiler."""
    kernel, pixel = one_kernel(Recipe((Resize((1, 1)),)), device), torch.zeros(3, dtype=torch.uint8, device=device)
    assert kernel
    whole = {kernel.region: np.array([[[0, 0], [1, 1], [1, 1]]])}
    try:
        table = kernel.table(np.zeros(1, np.int64), np.ones((1, 2), np.int64), whole)
        (on_gpu,) = kernel.with_offsets([table], [np.zeros(1, np.int64)])
        kernel.paint(pixel, on_gpu, (1, 1))
    except Exception as error:  # noqa: BLE001 whatever it is, DALI can do it
        warnings.warn(
            f"DALI's operators paint, which takes longer, since Triton does not work here ({error}); it needs a C "
            "compiler and Python's headers: gcc and python3-dev, as Debian and Ubuntu call them",
            stacklevel=2,
        )
        return False
    return True


@cache
def _programs(device: torch.device) -> int:
    return PROGRAMS * torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 1


def _current(device: torch.device) -> AbstractContextManager[object]:
    """Triton runs kernels on torch's current device."""
    return nullcontext() if device.type == "cpu" else torch.cuda.device(device.index)
