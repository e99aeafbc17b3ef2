"""Passes of a GPU over rendered images: what each is, and what they share.

An op says its pass in `Op.gpu_pass`. Passes of detaug's own ops are in `pixel_passes`, `weather_passes` and
`distortion_passes`. They import their kernels when they run, since Triton is only there where a GPU is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from detaug.arrays import Arrays, Floats
from detaug.boxes.views import Views
from detaug.gpu.streams import bands_argument, launch
from detaug.pixel_format import PixelFormat, for_bands

Tensors = dict[str, Tensor]


class GpuPass(Protocol):
    """Changes the rendered images of a batch on a GPU."""

    def parameters(self, views: Views, inputs: Arrays) -> Arrays:
        """Return arrays with one row per image, by name, which go to the device with those of all other passes.

        `views`: N images after the recipe; `inputs`: what the op's `plan` returned, by name.
        """
        ...

    def run(self, images: Tensor, parameters: Tensors) -> Tensor:
        """Return the images after it, of the same shape and type; it may overwrite `images`.

        `images`: (N, 3, H, W) uint8, channels last in memory; (N, bands, H, W) float32 in the values of the files for
        other bands than 8-bit RGB. Each image fills the top left; pixels beside it do not matter. `parameters`: the
        arrays, on the device.
        """
        ...


def launch_pass(kernel: Any, images: Tensor, numbers: Tensor, *tensors: Tensor, **more: Any) -> None:
    """Run a kernel on all pixels of the images. `numbers`: a row for each image; `more`: arguments by name."""
    count, bands, height, width = images.shape
    sizes = count, numbers.shape[1], height, width
    launch(kernel, images.device, images, numbers, *tensors, *sizes, **more, **bands_argument(bands))


def rendered(kernel: Any, images: Tensor, numbers: Tensor, *tensors: Tensor, **more: Any) -> Tensor:
    """Return new images, which a kernel writes after its other tensors: see `launch_pass`."""
    changed = torch.empty_like(images)
    launch_pass(kernel, images, numbers, *tensors, changed, **more)
    return changed


def numbers_of(views: Views, *columns: Any) -> Floats:
    """Return (N, C) float32: heights and widths of the images, then the columns, (N,) or (N, K) each."""
    return np.ascontiguousarray(np.column_stack([views.size, *columns]), np.float32)


def color_arguments(pixels: PixelFormat, color: Sequence[float]) -> dict[str, float]:
    """Return the color as arguments of a kernel, which of other bands than 8-bit RGB does not read them."""
    values = color if pixels.is_rgb8 else (0, 0, 0)
    return dict(zip(("red", "green", "blue"), map(float, values), strict=True))


def color_columns(pixels: PixelFormat, color: Sequence[float], count: int) -> list[Floats]:
    """Return the color for the ends of a kernel's rows of numbers, (count, C), where it is not an argument."""
    return [] if pixels.is_rgb8 else [np.tile(for_bands(tuple(color), pixels), (count, 1))]


def blur_numbers(views: Views, own: Arrays, kernel_size: int | None = None) -> Floats:
    """Return the numbers of `blurred`, of an op's inputs "sigma" and "apply".

    `kernel_size`: side of the window; None is as far as three sigma.
    """
    sigma = own["sigma"].astype(np.float64).clip(1e-3)  # 0 where a container left it out
    reach = np.ceil(3 * sigma) if kernel_size is None else np.full(len(sigma), kernel_size // 2)
    return numbers_of(views, reach * own["apply"], sigma)


def blurred(images: Tensor, numbers: Tensor) -> Tensor:
    """Return the images after `pixel_kernels.blur` along both axes."""
    from detaug.gpu.pixel_kernels import blur

    half = torch.empty_like(images, dtype=torch.float32)
    launch_pass(blur, images, numbers, half, DOWN=False)
    launch_pass(blur, half, numbers, images, DOWN=True)
    return images
