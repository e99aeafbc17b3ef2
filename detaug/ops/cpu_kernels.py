"""Run torch, Pillow and Numba inside DALI's graph on the CPU: several ops in one node, on the pipeline's threads.

DALI's own CPU operators are slow: 500 x 375 to 300 x 300 takes one core 140 us with torch, 860 with Pillow and 2,300
with `fn.resize`; a linear map of colors takes 60 us with Numba and 1,100 with `fn.coord_transform`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate, pad

from detaug.arrays import Array
from detaug.ops import pixel_loops
from detaug.pipelines.graph import Node
from detaug.pipelines.threads import apply_in_threads

CpuKernel: TypeAlias = Callable[..., Tensor]
"""A function of an image, (3, H, W) in 0..255 of any type and strides, and of an op's inputs; it returns the new image.
With `Op.any_bands` the image may also be (C, H, W) float32 in the units of the files.

The result has whole numbers if it is to be uint8.
"""


def apply_kernels(
    image: Node, kernels: Sequence[tuple[CpuKernel, dict[str, Node]]], layout: str = "HWC", *, as_is: bool = False
) -> Node:
    """Return the image after all kernels, each with its inputs: as uint8, or `as_is`, in the last kernel's type."""
    names = [list(inputs) for _, inputs in kernels]
    nodes = [node for _, inputs in kernels for node in inputs.values()]

    def sample(pixels: Array, *planned: Array) -> Array:
        values = iter(planned)
        fed = [(kernel, {name: next(values) for name in own}) for (kernel, _), own in zip(kernels, names, strict=True)]
        result = run_kernels(pixels, fed, as_is=as_is)
        return np.asarray((result.permute(1, 2, 0) if layout == "HWC" else result).contiguous().numpy())

    return apply_in_threads(sample, image, *nodes, layout=layout)


def run_kernels(pixels: Array, kernels: Sequence[tuple[CpuKernel, dict[str, Array]]], *, as_is: bool = False) -> Tensor:
    """Return an image (H, W, 3) as (3, H, W) after all kernels, each with its inputs; `as_is`: see `apply_kernels`."""
    image = torch.from_numpy(pixels).permute(2, 0, 1)
    with torch.autocast("cpu", enabled=False):  # it rounds products of matrices, such as colors, to 8 bits
        for kernel, inputs in kernels:
            image = kernel(image, **inputs)
    return image if as_is else image.to(torch.uint8)


# -------------------------------------------------------------------------------------------- kernels


def resize(image: Tensor, region: Array) -> Tensor:
    """Resize a window of the image, linear and antialiased. An image of other types than 8-bit RGB is float32.

    `region`: pairs (y, x), namely the window's first and last corner and its new size. The window is mirrored along an
    axis where the last corner comes before the first.
    """
    low, high = np.sort(region[:2], axis=0)
    on_pixels = not (region[:2] % 1).any()
    resample = _resize_whole_pixels if on_pixels else _resize_part_pixels
    if image.dtype == torch.float32:
        resample = _resize_floats
    image = resample(image, low, high, region[2].astype(int).tolist())
    flipped = (np.flatnonzero(region[0] > region[1]) + 1).tolist()
    return image.flip(flipped) if flipped else image


def _resize_whole_pixels(image: Tensor, low: Array, high: Array, size: list[int]) -> Tensor:
    """Copy a window that keeps its size. Resize others with torch.

    It is twice as fast if the channels come last and a batch's strides say so.
    """
    (top, left), (bottom, right) = low.astype(int).tolist(), high.astype(int).tolist()
    window = image.permute(1, 2, 0)[None, top:bottom, left:right].permute(0, 3, 1, 2)
    if size == [bottom - top, right - left]:
        return window.clone(memory_format=torch.channels_last)[0]
    window = window.contiguous(memory_format=torch.channels_last)
    return interpolate(window, size, mode="bilinear", antialias=True)[0]


def _resize_part_pixels(image: Tensor, low: Array, high: Array, size: list[int]) -> Tensor:
    """Resize with Pillow, which takes windows with borders inside pixels. It gets a crop, or it would read beyond."""
    (top, left), (bottom, right) = np.floor(low).astype(int).tolist(), np.ceil(high).astype(int).tolist()
    box = (*(low[::-1] - (left, top)).tolist(), *(high[::-1] - (left, top)).tolist())
    pillow = Image.fromarray(image[:, top:bottom, left:right].permute(1, 2, 0).contiguous().numpy())
    return torch.from_numpy(np.array(pillow.resize(size[::-1], Image.Resampling.BILINEAR, box=box))).permute(2, 0, 1)


def _resize_floats(image: Tensor, low: Array, high: Array, size: list[int]) -> Tensor:
    """Resize each band with Pillow, which copies a window of the output's size, also with NaN and infinity in it.

    Pillow sums in double precision: 6 bands of 512 x 512 to 300 x 300 take 4.5 ms, and torch takes 3.3, but is off by
    up to 1e-5 of the largest value, which is 0.9 of 65,535.
    """
    (top, left), (bottom, right) = np.floor(low).astype(int).tolist(), np.ceil(high).astype(int).tolist()
    window = image[:, top:bottom, left:right]
    box = (*(low[::-1] - (left, top)).tolist(), *(high[::-1] - (left, top)).tolist())
    bands = [Image.fromarray(band) for band in np.ascontiguousarray(window.numpy())]
    resized = [np.asarray(band.resize(size[::-1], Image.Resampling.BILINEAR, box=box)) for band in bands]
    return torch.from_numpy(np.stack(resized))


def resize_onto_canvas(image: Tensor, region: Array, fill: Sequence[float]) -> Tensor:
    """Resize a window of the image and put it on a canvas of `fill`.

    `region`: as in `resize`, then two more pairs (y, x): minus the window's offset on the canvas, and the canvas's
    size. The window lies wholly on the canvas, or wholly outside of it.
    """
    (y, x), (height, width) = (-region[3]).astype(int).tolist(), region[4].astype(int).tolist()
    outside = y >= height or x >= width
    if not outside and (region[2] == region[4]).all():
        return resize(image, region)
    values = torch.tensor(fill, dtype=torch.float32, device="cpu")
    row = (values if image.dtype == torch.float32 else values.round().byte()).repeat(width)
    canvas = row.expand(height, -1).contiguous().view(height, width, len(fill)).permute(2, 0, 1)
    if not outside:
        window = resize(image, region)
        canvas[:, y : y + window.shape[1], x : x + window.shape[2]] = window
    return canvas


def fill_outside(image: Tensor, edges: Array, fill: Sequence[float]) -> Tensor:
    """Return an image of bytes with `fill` outside of half planes: see `pixel_loops.fill_outside`."""
    pixels = image.permute(1, 2, 0).contiguous().numpy().copy()
    pixel_loops.fill_outside(pixels, np.asarray(edges, np.float32), np.asarray(fill, np.float32))
    return torch.from_numpy(pixels).permute(2, 0, 1)


def raise_to_power(image: Tensor, power: Array) -> Tensor:
    """Return an image of bytes whose values, as fractions of 255, are raised to a power."""
    table = (255 * (np.arange(256) / 255) ** float(power)).round().astype(np.uint8)
    return torch.from_numpy(table[image.permute(1, 2, 0).numpy()]).permute(2, 0, 1)


def coarsen(image: Tensor, coarse: Array) -> Tensor:
    """Return an image whose pixels are those of a coarser grid of this many rows and columns, repeated."""
    rows, columns = (_picked(side, int(cells)) for side, cells in zip(image.shape[1:], coarse, strict=True))
    return image[:, rows][:, :, columns]


def _picked(side: int, cells: int) -> Tensor:
    """Return where the middle of the cell is that each pixel lies in."""
    cell = (2 * torch.arange(side) + 1) * cells // (2 * side)
    return (2 * cell + 1) * side // (2 * cells)


def take_median(image: Tensor, side: int) -> Tensor:
    """Return an image of bytes whose values are the medians of squares of `side` pixels around them."""
    reach = side // 2
    padded = np.pad(image.permute(1, 2, 0).numpy(), ((reach, reach), (reach, reach), (0, 0)), "edge")
    medians = np.empty((image.shape[1], 3 * image.shape[2]), np.uint8)
    pixel_loops.take_median(padded.reshape(len(padded), -1), side, medians)
    return torch.from_numpy(medians.reshape(*image.shape[1:], 3)).permute(2, 0, 1)


def normalize(image: Tensor, mean: Tensor, std: Tensor, dtype: torch.dtype, canvas: Array | None = None) -> Tensor:
    """Return (image - mean) / std. `mean`, `std`: (C, 1, 1). `canvas`: (height, width) to pad it to with zeros."""
    planes = torch.from_numpy(np.ascontiguousarray(image.numpy()))  # NumPy transposes twice as fast as torch
    result = planes.to(torch.float32, copy=True).sub_(mean).div_(std)
    result = (round_to_bytes(result) if dtype == torch.uint8 else result).to(dtype)
    if canvas is None:
        return result
    height, width = canvas.astype(int).tolist()
    return pad(result, (0, width - result.shape[2], 0, height - result.shape[1]))


def round_to_bytes(image: Tensor) -> Tensor:
    """Round and clip to 0..255 in place: torch's cast to uint8 would truncate, and wrap around."""
    return image.round_().clamp_(0, 255)
