"""Render whole batches on a GPU in one kernel: Resize, a mosaic, color, Normalize; or the last two alone.

DALI needs three or four kernels for this. Each reads and writes all pixels and takes the whole GPU, so decoding stops
for as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.arguments import FILL
from detaug.arrays import Arrays, Ints
from detaug.boxes.views import Fill
from detaug.gpu.streams import bands_argument, launch, to_device
from detaug.ops.color_ops import ColorOp
from detaug.ops.mixing import PasteTiles
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.resize import Render, blends_at_border
from detaug.pixel_format import PixelFormat, for_bands
from detaug.recipes.recipe import PixelStep

_EVERYWHERE = 1e9
"""Pixels: larger than any image."""

REGISTERS = 128
"""Of a thread, at most: four programs then fit on a multiprocessor. The kernel for rotated views would take 168."""


@dataclass(frozen=True)
class FusedKernel:
    """Renders what a recipe planned, from decoded images to a batch, in one pass over the output."""

    region: str | None
    """Name of the recipe's input with the regions that Resize renders; None: the images are rendered already."""
    tiles: str | None
    """Name of the input with the tiles that are pasted, if the recipe pastes."""
    color: str | None
    """Name of the input with the linear color maps, or with the steps, if the recipe changes colors."""
    in_steps: bool
    """Whether the colors change in steps."""
    picture: str | None
    """Name of the input with the corners of what changes its colors, if that is not all."""
    to_source: str | None
    """Name of the input with the maps of output pixels to the source, if the views are turned."""
    edges: str | None
    """Name of the input with the edges at which rotated views are cut off, if they are."""
    fill: Fill
    blends_at_border: bool
    """Whether fill is around rotated views, see `resize.blends_at_border`."""
    normalize: Normalize
    pixels: PixelFormat
    device: torch.device

    @property
    def view(self) -> int:
        """Return how the images come to the kernel, see `triton_kernel`."""
        from detaug.gpu.triton_kernel import READY, ROTATED, STRAIGHT

        return (ROTATED if self.to_source else STRAIGHT) if self.region else READY

    @property
    def colors(self) -> int:
        """Return what happens to colors, see `triton_kernel`."""
        from detaug.gpu.triton_kernel import IN_STEPS, KEPT, MAPPED

        return (IN_STEPS if self.in_steps else MAPPED) if self.color else KEPT

    def tile_parameters(self, slots: Ints, sizes: Ints, inputs: Arrays) -> Ints:
        """Return the kernel's parameters of N images with T tiles each, (N, T, C), without the starts of their bytes.

        `slots` (N,): the position of each image in its group; `sizes` (N, 2): height, width of the sources, or of the
        images if they are rendered already; `inputs`: `Recipe.plan`'s.
        """
        parameters = self._of_views(inputs) if self.region else _of_whole_images(sizes, self.pixels.count)
        parameters["shown"][:, :, 1] = _EVERYWHERE
        # slots are in the place of starts until `to_device` knows these
        parameters["size"][:, 0], parameters["start"][:, 0] = sizes, slots
        parameters["fill"] = np.round(self.fill) if self.pixels.is_rgb8 else self.fill
        if self.tiles:
            parameters = _pasted_tiles(parameters, slots, inputs[self.tiles])
        mean, std = self.normalize.of_values(self.pixels)
        if self.color:
            self._set_colors(parameters, inputs[self.color], inputs)
        parameters["mean"], parameters["scale"] = mean, np.divide(1, std)
        return parameters.view(np.int64).reshape(*parameters.shape, -1)

    def _of_views(self, inputs: Arrays) -> NDArray[Any]:
        """Return parameters (N, 1) of what is shown of the sources, and where."""
        # Triton is installed where there is a GPU
        from detaug.gpu.triton_kernel import FILLED_AROUND, REPEATED_AROUND, tile_type

        assert self.region
        region, edges = inputs[self.region], inputs[self.edges].shape[2] if self.edges else 0
        parameters = np.zeros((len(region), 1), tile_type(edges if self.to_source else None, self.pixels.count))
        parameters["region"][:, 0, :3] = region[:, :3]
        parameters["region"][:, 0, 4] = region[:, -1]  # of three pairs too: the region then fills the whole image
        if region.shape[1] == 5:
            parameters["region"][:, 0, 3] = region[:, 3]
        if self.to_source:
            parameters["to_source"][:, 0] = inputs[self.to_source]
            parameters["margin"] = FILLED_AROUND if self.blends_at_border else REPEATED_AROUND
        if self.edges:
            parameters["edges"][:, 0] = inputs[self.edges]
        return parameters

    def _set_colors(self, parameters: NDArray[Any], color: NDArray[Any], inputs: Arrays) -> None:
        color = color.reshape(len(parameters), -1)
        parameters["color"][:, 0, : color.shape[-1]] = color
        parameters["picture"][:, 0, 1] = _EVERYWHERE
        if self.picture:
            parameters["picture"][:, 0] = inputs[self.picture]

    def to_device(self, parameters: Sequence[Ints], starts: Sequence[Ints]) -> list[Tensor]:
        """Copy the parameters of several groups to the device at once, with the `starts` (N,) of their images.

        A start is a byte of `decoded`, an address in memory, or what `in_copied` returns.
        """
        joined = np.concatenate(parameters)
        slots = [group[..., -1] for group in parameters]
        joined[..., -1] = np.concatenate([start[slot] for slot, start in zip(slots, starts, strict=True)])
        return list(to_device(joined, self.device).split_with_sizes([len(group) for group in parameters]))

    def render(self, decoded: Tensor, copied: Tensor, parameters: Tensor, canvas: tuple[int, int]) -> Tensor:
        """Return (N, bands, *canvas): the images at the top left, zeros beside them.

        `decoded`, `copied`: memory of source images, (height, width, bands) each, of bytes or float32. `parameters`:
        (N, T, C), as `to_device` returns them. If the images are rendered already, `decoded` has them, (N, *canvas,
        bands).
        """
        from detaug.gpu.triton_kernel import render, sum_grays

        images, tiles, length = parameters.shape
        memory_format = torch.channels_last if self.normalize.channels_last else torch.contiguous_format
        shape, dtype = (images, self.pixels.count, *canvas), self.normalize.torch_dtype
        out = torch.empty(shape, dtype=dtype, device=self.device, memory_format=memory_format)
        grays = torch.zeros(images if self.in_steps else 1, dtype=torch.int64, device=self.device)
        tensors = decoded, copied, parameters.view(torch.float32), parameters, grays
        how = images, tiles, 2 * length, *canvas
        options = {"VIEW": self.view, "maxnreg": REGISTERS}
        if self.in_steps:
            launch(sum_grays, self.device, *tensors, *how, **options)
        options |= {"COLORS": self.colors, **bands_argument(self.pixels.count)}
        launch(render, self.device, *tensors, out, *how, *out.stride(), **options)
        return out


def in_copied(offsets: Ints) -> Ints:
    """Return the starts of images that are at these bytes of `copied`."""
    return -1 - offsets


def _of_whole_images(sizes: Ints, bands: int) -> NDArray[Any]:
    """Return parameters (N, 1) of images that are rendered already."""
    from detaug.gpu.triton_kernel import tile_type

    parameters = np.zeros((len(sizes), 1), tile_type(bands=bands))
    parameters["region"][:, 0, 4] = sizes
    return parameters


def fuse(steps: Sequence[PixelStep], normalize: Normalize, pixels: PixelFormat, device: torch.device) -> FusedKernel:
    """Return the kernel that renders these steps of a recipe: `known_kind`s in their order.

    `normalize`: for steps without a Normalize. `pixels`: of the images.
    """
    by_kind: dict[Any, Any] = {known_kind(step): step for step in steps}
    render, tiles, color, last = (by_kind.get(kind) for kind in KNOWN_OPS)
    fill = render.op.fill_around(render.views) if render else None
    return FusedKernel(
        region=render.inputs["region"] if render else None,
        to_source=render.inputs.get("to_source") if render else None,
        edges=render.inputs.get("edges") if render else None,
        tiles=tiles.inputs["tiles"] if tiles else None,
        color=color.inputs.get("steps", color.inputs.get("color")) if color else None,
        in_steps="steps" in color.inputs if color else False,
        picture=color.inputs.get("picture") if color else None,
        fill=fill or for_bands(FILL, pixels),
        blends_at_border=render is not None and blends_at_border(render.views),
        normalize=last.op if last else normalize,
        pixels=pixels,
        device=device,
    )


KNOWN_OPS: tuple[type[Op], ...] = (Render, PasteTiles, ColorOp, Normalize)
"""The ops that the kernel renders, in this order."""


def known_kind(step: PixelStep) -> type[Op] | None:
    """Return the class of the op among the known ones; None for a subclass with a `dali_graph` of its own.

    Also None where only some pixels of tiles are pasted.
    """
    if "pixels" in step.inputs:
        return None
    return next((kind for kind in KNOWN_OPS if type(step.op).dali_graph is kind.dali_graph), None)


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
