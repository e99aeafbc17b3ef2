"""Painting on a GPU in one kernel, for recipes that are a Resize, not turned, and at most one linear map of colours.

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
from torch import Tensor

from detaug.arguments import FILL
from detaug.pixels import ColorMap, Normalize
from detaug.recipe import Arrays, Op, Recipe
from detaug.resize import Render, Resize
from detaug.views import Fill, Ints

TILE = (8, 64)
"""(rows, columns) of the output that a program of the kernel paints at once: the fastest of eight on an H200."""

PROGRAMS = 4
"""For each of the GPU's processors: those that decode find room beside them."""


@dataclass(frozen=True)
class OneKernel:
    """Paints what a recipe planned, from decoded images to a batch, in one pass over the batch."""

    place: str
    """The input of the recipe that says where what goes."""
    color: str | None
    """The one with the linear maps of colour, if there is one."""
    fill: Fill
    normalize: Normalize
    device: torch.device

    def table(self, addresses: Ints, sizes: Ints, inputs: Arrays) -> Tensor:
        """What the kernel is told of N images, a row of (N, C) int64 for each, on the device.

        `addresses`, `sizes`: where there each image's (height, width, 3) bytes lie, and (N, 2) height, width. `inputs`:
        `Recipe.plan`'s.
        """
        from detaug.kernel import ROW  # Triton is there where there is a GPU

        table, place = np.zeros(len(sizes), ROW), inputs[self.place]
        table["place"][:, : place.shape[1]] = place
        if place.shape[1] == 3:  # the window takes all of the image
            table["place"][:, 4] = place[:, 2]
        mean, std = self.normalize.of_bytes()
        table["size"], table["address"] = sizes, addresses
        table["fill"], table["mean"], table["scale"] = np.round(self.fill), mean, np.divide(1, std)
        table["color"] = inputs[self.color] if self.color else np.eye(3, 4)
        rows = torch.from_numpy(table.view(np.int64).reshape(len(table), -1))
        return rows if self.device.type == "cpu" else rows.pin_memory().to(self.device, non_blocking=True)

    def paint(self, table: Tensor, canvas: tuple[int, int]) -> Tensor:
        """(N, 3, *canvas): the images of these rows of `table`, at the left and top, zeros beside them."""
        from detaug.kernel import paint

        layout = torch.channels_last if self.normalize.channels_last else torch.contiguous_format
        shape, dtype = (len(table), 3, *canvas), getattr(torch, self.normalize.dtype)
        out = torch.empty(shape, dtype=dtype, device=self.device, memory_format=layout)
        with _current(self.device):
            paint[_programs(self.device),](
                table.view(torch.float32), table, out, len(table), *canvas, *out.stride(), *TILE
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
    """The same, whatever the device is."""
    resize, *others = recipe.painting
    normalize: Any = others.pop().op if others and _paints_as(Normalize, others[-1].op) else Normalize(dtype="uint8")
    known = _paints_as(Render, resize.op) and all(_paints_as(ColorMap, step.op) for step in others)
    if not known or len(others) > 1 or resize.views.turned:
        return None
    render: Any = resize.op
    fill = render.beside(resize.views) or FILL
    return OneKernel(resize.inputs["place"], others[0].inputs["color"] if others else None, fill, normalize, device)


def _paints_as(kind: type[Op], op: Op) -> bool:
    return type(op).paint is kind.paint


@cache
def _triton_works(device: torch.device) -> bool:
    """Does it build the kernel here? It needs a C compiler."""
    kernel, image = one_kernel(Recipe((Resize((1, 1)),)), device), torch.zeros(3, dtype=torch.uint8, device=device)
    assert kernel
    whole = {kernel.place: np.array([[[0, 0], [1, 1], [1, 1]]])}
    try:
        kernel.paint(kernel.table(np.array([image.data_ptr()]), np.ones((1, 2), np.int64), whole), (1, 1))
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
    return nullcontext() if device.type == "cpu" else torch.cuda.device(device)
