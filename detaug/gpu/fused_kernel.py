"""Render whole batches on a GPU in one kernel: Resize, a mosaic, colour, Normalize.

DALI needs three or four kernels for this. Each reads and writes all pixels and takes the whole GPU, so decoding stops
for as long.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.boxes.views import Fill, Ints
from detaug.gpu.streams import to_device
from detaug.ops.arguments import FILL
from detaug.ops.color_ops import ColorOp
from detaug.ops.mixing import PasteTiles
from detaug.ops.normalize import Normalize
from detaug.ops.op import Arrays, Op
from detaug.ops.recipe import Recipe
from detaug.ops.resize import Render

BLOCK = (8, 64)
"""(rows, columns) of the output that a program of the kernel renders at once: the fastest of eight on an H200."""

PROGRAMS_PER_PROCESSOR = 4
"""Programs for each of the GPU's multiprocessors: few enough to leave room for the decoder's kernels."""

OPTIONS = {"enable_fp_fusion": True}
"""Triton 3.9 warns without it, because 3.10 changes the default."""

_EVERYWHERE = 1e9
"""Pixels: larger than any image."""


@dataclass(frozen=True)
class FusedKernel:
    """Renders what a recipe planned, from decoded images to a batch, in one pass over the output."""

    region: str
    """Name of the recipe's input with the regions that Resize renders."""
    tiles: str | None
    """Name of the input with the tiles that are pasted, if the recipe pastes."""
    color: str | None
    """Name of the input with the linear colour maps, or with the steps, if the recipe changes colours."""
    in_steps: bool
    """Whether the colours change in steps."""
    picture: str | None
    """Name of the input with the corners of what changes its colours, if that is not all."""
    matrix: str | None
    """Name of the input with the maps of output pixels to the source, if the views are turned."""
    edges: str | None
    """Name of the input with the edges at which turned views are cut off, if they are."""
    fill: Fill
    normalize: Normalize
    device: torch.device

    def tile_parameters(self, slots: Ints, sizes: Ints, inputs: Arrays) -> Ints:
        """Return the kernel's parameters of N images with T tiles each, (N, T, C), without the starts of their bytes.

        `slots` (N,): the position of each image in its group; `sizes` (N, 2): height, width; `inputs`: `Recipe.plan`'s.
        """
        parameters = self._of_views(inputs)
        parameters["shown"][:, :, 1] = _EVERYWHERE
        parameters["size"][:, 0], parameters["start"][:, 0] = sizes, slots
        parameters["fill"] = np.round(self.fill)
        if self.tiles:
            parameters = _pasted_tiles(parameters, slots, inputs[self.tiles])
        mean, std = self.normalize.of_bytes()
        self._set_colors(parameters, inputs)
        parameters["mean"], parameters["scale"] = mean, np.divide(1, std)
        return parameters.view(np.int64).reshape(*parameters.shape, -1)

    def _of_views(self, inputs: Arrays) -> NDArray[Any]:
        """Return parameters (N, 1) of what is shown of the sources, and where."""
        from detaug.gpu.triton_kernel import tile_type  # Triton is installed where there is a GPU

        region, edges = inputs[self.region], inputs[self.edges].shape[2] if self.edges else 0
        parameters = np.zeros((len(region), 1), tile_type(edges if self.matrix else None))
        parameters["region"][:, 0, :3] = region[:, :3]
        parameters["region"][:, 0, 4] = region[:, -1]  # of three pairs too: the region then fills the whole image
        if region.shape[1] == 5:
            parameters["region"][:, 0, 3] = region[:, 3]
        if self.matrix:
            parameters["matrix"][:, 0] = inputs[self.matrix]
        if self.edges:
            parameters["edges"][:, 0] = inputs[self.edges]
        return parameters

    def _set_colors(self, parameters: NDArray[Any], inputs: Arrays) -> None:
        color = inputs[self.color].reshape(len(parameters), -1) if self.color else np.eye(3, 4).ravel()
        parameters["color"][:, 0, : color.shape[-1]] = color
        parameters["picture"][:, 0, 1] = _EVERYWHERE
        if self.picture:
            parameters["picture"][:, 0] = inputs[self.picture]

    def to_device(self, parameters: Sequence[Ints], starts: Sequence[Ints]) -> list[Tensor]:
        """Copy the parameters of several groups to the device at once, with the `starts` (N,) of their images.

        A start is a byte of `decoded`, an address in memory, or what `in_copied` returns.
        """
        joined = np.concatenate(parameters)
        slots = [each[..., -1] for each in parameters]
        joined[..., -1] = np.concatenate([start[slot] for slot, start in zip(slots, starts, strict=True)])
        return list(to_device(joined, self.device).split_with_sizes([len(each) for each in parameters]))

    def render(self, decoded: Tensor, copied: Tensor, parameters: Tensor, canvas: tuple[int, int]) -> Tensor:
        """Return (N, 3, *canvas): the images at the top left, zeros beside them.

        `decoded`, `copied`: bytes of source images, (height, width, 3) each. `parameters`: (N, T, C), as `to_device`
        returns them.
        """
        from detaug.gpu.triton_kernel import render, sum_grays

        images, tiles, length = parameters.shape
        memory_format = torch.channels_last if self.normalize.channels_last else torch.contiguous_format
        shape, dtype = (images, 3, *canvas), self.normalize.torch_dtype
        out = torch.empty(shape, dtype=dtype, device=self.device, memory_format=memory_format)
        grays = torch.zeros(images if self.in_steps else 1, dtype=torch.int64, device=self.device)
        given = decoded, copied, parameters.view(torch.float32), parameters, grays
        with as_current(self.device):
            how = images, tiles, 2 * length, *canvas
            if self.in_steps:
                sum_grays[_programs(self.device),](*given, *how, bool(self.matrix), *BLOCK, **OPTIONS)
            render[_programs(self.device),](
                *given, out, *how, *out.stride(), bool(self.matrix), self.in_steps, *BLOCK, **OPTIONS
            )
        return out


def in_copied(offsets: Ints) -> Ints:
    """Return the starts of images that are at these bytes of `copied`."""
    return -1 - offsets


def kernel_for(recipe: Recipe, device: torch.device) -> FusedKernel | None:
    """Return the kernel that renders all of the recipe on this device, if there is one."""
    kernel = fuse(recipe, device) if device.type == "cuda" else None
    return kernel if kernel and triton_works(kernel) else None


def fuse(recipe: Recipe, device: torch.device) -> FusedKernel | None:
    """Return the kernel that renders all of the recipe, if it can, whatever the device."""
    kinds = [_known_kind(step.op) for step in recipe.pixel_steps]
    steps: dict[Any, Any] = dict(zip(kinds, recipe.pixel_steps, strict=True))
    if kinds != [kind for kind in _KNOWN_OPS if kind in steps]:
        return None
    tiles, color, normalize = (steps.get(kind) for kind in _KNOWN_OPS[1:])
    return FusedKernel(
        region=steps[Render].inputs["region"],
        matrix=steps[Render].inputs.get("matrix"),
        edges=steps[Render].inputs.get("edges"),
        tiles=tiles.inputs["tiles"] if tiles else None,
        color=color.inputs.get("steps", color.inputs.get("color")) if color else None,
        in_steps="steps" in color.inputs if color else False,
        picture=color.inputs.get("picture") if color else None,
        fill=steps[Render].op.fill_around(steps[Render].views) or FILL,
        normalize=normalize.op if normalize else Normalize(dtype="uint8"),
        device=device,
    )


_KNOWN_OPS: tuple[type[Op], ...] = (Render, PasteTiles, ColorOp, Normalize)
"""The ops that the kernel renders, in this order."""


def _known_kind(op: Op) -> type[Op] | None:
    """Return the op's class among the known ones; None for a subclass with a `dali_graph` of its own."""
    return next((kind for kind in _KNOWN_OPS if type(op).dali_graph is kind.dali_graph), None)


def _pasted_tiles(parameters: NDArray[Any], slots: Ints, tiles: NDArray[Any]) -> NDArray[Any]:
    """Return (N, T): tiles, made of the whole images in `parameters` (N, 1), for the images that they are pasted into.

    `tiles`: the input of `mixing.PasteTiles`.
    """
    source, target, shape = tiles[:, 1], tiles[:, 2], tiles[:, 3]
    images = tiles[:, 0, :, 0] + (np.arange(len(slots)) - slots)[:, None]  # `tiles` counts from the start of the group
    pasted: NDArray[Any] = parameters.view(np.int64).take(images, 0).view(parameters.dtype)[..., 0]  # 10 x as fast
    pasted["region"][:, :, 3] += source - target
    pasted["shown"][:, :, 0], pasted["shown"][:, :, 1] = target, target + shape
    return pasted


_works_on: set[tuple[torch.device, bool, bool]] = set()
_reported: set[tuple[torch.device, type[Exception]]] = set()


def triton_works(kernel: FusedKernel) -> bool:
    """Return whether a kernel of this kind renders one pixel; without a C compiler Triton cannot build it.

    A failure is tried again by the next loader, since a disk or a memory may be full for a while. It is a warning once
    for each kind of error.
    """
    kind = kernel.device, kernel.in_steps, kernel.matrix is not None  # each of these is compiled by itself
    if kind in _works_on:
        return True
    try:
        _render_one_pixel(kernel)
    except Exception as error:  # noqa: BLE001 whatever it is, DALI's operators work
        _warn_once(kernel.device, error)
        return False
    _works_on.add(kind)
    return True


def _render_one_pixel(kernel: FusedKernel) -> None:
    kernel = replace(kernel, tiles=None, picture=None, edges=None)
    pixel = torch.zeros(3, dtype=torch.uint8, device=kernel.device)
    whole = np.array([[[0, 0], [1, 1], [1, 1], [0, 0], [1, 1]]])
    inputs = {kernel.region: whole, kernel.color or "": np.zeros((1, 11)), kernel.matrix or "": np.eye(3)[None]}
    parameters = kernel.tile_parameters(np.zeros(1, np.int64), np.ones((1, 2), np.int64), inputs)
    (on_gpu,) = kernel.to_device([parameters], [np.zeros(1, np.int64)])
    kernel.render(pixel, pixel, on_gpu, (1, 1))


def _warn_once(device: torch.device, error: Exception) -> None:
    if (device, type(error)) in _reported:
        return
    _reported.add((device, type(error)))
    warnings.warn(
        f"DALI's operators render, which is slower, because Triton does not work here ({error}); it needs a C compiler "
        "and Python's headers (gcc and python3-dev, as Debian and Ubuntu call them), and room for its cache; the next "
        "loader tries it again",
        stacklevel=3,
    )


@cache
def _programs(device: torch.device) -> int:
    if device.type == "cpu":
        return 1
    return PROGRAMS_PER_PROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count


def as_current(device: torch.device) -> AbstractContextManager[object]:
    """Make it torch's current device, where Triton runs kernels."""
    return nullcontext() if device.type == "cpu" else torch.cuda.device(device.index)
