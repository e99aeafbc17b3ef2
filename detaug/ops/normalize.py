"""`Normalize`, the last op of a recipe."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Literal

import numpy as np
import torch
from nvidia.dali import fn, types

from detaug.arguments import check, is_number, is_numbers
from detaug.boxes.views import Views
from detaug.ops import cpu_kernels as on_cpu
from detaug.ops.op import PixelOp, text_without_added
from detaug.pipelines.graph import Node, Nodes
from detaug.pixel_format import RGB8, PixelFormat


@dataclass(frozen=True)
class Normalize(PixelOp):
    """Return (image / scale - mean) / std, channels first. It is the last op of a recipe.

    The defaults give images in 0..1, as torchvision's detectors expect: they normalize themselves. Of a reader with
    other bands, mean and std have a number for each band, of any size.

    Args:
        mean: Three numbers, for images in 0..1, as in torchvision; divide those for 0..255 by 255.
        std: As `mean`.
        dtype: "float32", "float16" or, with the default mean and std, "uint8", which leaves 0..255; or torch's dtype.
        memory_format: "contiguous" or "channels_last", or torch's memory format. The batch's images are (N, 3, H, W) in
            both.
        scale: For a reader with other bands or another type than 8-bit RGB, the value that becomes 1, and that other
            ops take as 1; None: 255, 65535 for uint16, 1 for float32.

    >>> samples = da.batch([np.full((4, 6, 3), 255, np.uint8)])  # white
    >>> normalize = da.Normalize(da.presets.IMAGENET_MEAN, da.presets.IMAGENET_STD)
    >>> image = samples.then(da.Resize((4, 6)), normalize).images[0]
    >>> print(image.shape, image[:, 0, 0].round(2))
    (3, 4, 6) [2.25 2.43 2.64]
    """

    mean: tuple[float, ...] = (0.0, 0.0, 0.0)
    std: tuple[float, ...] = (1.0, 1.0, 1.0)
    dtype: Literal["float32", "float16", "uint8"] | torch.dtype = "float32"
    memory_format: Literal["contiguous", "channels_last"] | torch.memory_format = "contiguous"
    scale: float | None = None

    stage = "output"
    any_bands: ClassVar[bool] = True

    def check_arguments(self) -> None:
        if self.scale is None:
            shares = is_numbers(self.mean) and all(0 <= value <= 1 for value in self.mean)
            check("mean", self.mean, shares, f"three numbers in 0..1: {_OF_SHARES}")
            positive = is_numbers(self.std) and all(0 < value <= 1 for value in self.std)
            check("std", self.std, positive, f"three numbers above 0, at most 1: {_OF_SHARES}")
        else:
            check("scale", self.scale, is_number(self.scale) and self.scale > 0, "None, or a number above 0")
            check("mean", self.mean, is_numbers(self.mean), "a number for each band, for images divided by scale")
            positive = is_numbers(self.std) and min(self.std) > 0
            check("std", self.std, positive, "a number above 0 for each band, for images divided by scale")
        check("dtype", self.dtype, self.dtype in _DTYPES, "'float32', 'float16' or 'uint8'")
        plain = tuple(self.mean) == _ZEROS and tuple(self.std) == _ONES
        check("dtype", self.dtype, self.dtype != "uint8" or plain, "'float32' or 'float16' with a mean or std")
        known = self.memory_format in ("contiguous", "channels_last")
        check("memory_format", self.memory_format, known, "'contiguous' or 'channels_last'")

    def __repr__(self) -> str:
        return text_without_added(self, "scale")

    def check_pixels(self, pixels: PixelFormat, label: str) -> None:
        if pixels.is_rgb8:
            rule = "left out: it is for a reader with other bands, or another type, than 8-bit RGB"
            check(f"{label}.scale", self.scale, self.scale is None, rule)
        else:
            rule = "'float32' or 'float16', for images of other bands, or another type, than 8-bit RGB"
            check(f"{label}.dtype", self.dtype, self.dtype != "uint8", rule)
        for name, plain in (("mean", _ZEROS), ("std", _ONES)):
            values = tuple(getattr(self, name))
            right = len(values) == pixels.count or values == plain
            check(f"{label}.{name}", values, right, f"{pixels.count} numbers, one for each band")

    @property
    def channels_last(self) -> bool:
        """Return whether it leaves images (H, W, 3)."""
        return self.memory_format == "channels_last"

    @property
    def torch_dtype(self) -> torch.dtype:
        """Return the type of the values after it."""
        return getattr(torch, str(self.dtype))  # type: ignore[no-any-return]

    @property
    def output_layout(self) -> str:  # type: ignore[override]
        """Return DALI's name for the layout of the image after it."""
        return "HWC" if self.channels_last else "CHW"

    def cpu_kernel(self, views: Views) -> on_cpu.CpuKernel:
        values = self.of_values(views.pixels)
        mean, std = (torch.from_numpy(np.array(numbers, np.float32)).view(-1, 1, 1) for numbers in values)
        return partial(on_cpu.normalize, mean=mean, std=std, dtype=self.torch_dtype)

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        mean, std = self.of_values(views.pixels)
        canvas = {"crop": planned["canvas"], **_TO_CANVAS} if "canvas" in planned else {}
        dtype, layout = _DTYPES[str(self.dtype)], self.output_layout
        return fn.crop_mirror_normalize(image, mean=mean, std=std, dtype=dtype, output_layout=layout, **canvas)

    def of_values(self, pixels: PixelFormat = RGB8) -> tuple[list[float], list[float]]:
        """Return mean and std for images in their own values, 0..255 for 8-bit RGB; for "uint8" they are 0 and 1."""
        scale = 1 if self.dtype == "uint8" else 255 if pixels.is_rgb8 else self.scale or pixels.white
        mean = self.mean if len(self.mean) == pixels.count else self.mean[:1] * pixels.count
        std = self.std if len(self.std) == pixels.count else self.std[:1] * pixels.count
        return [value * scale for value in mean], [value * scale for value in std]


_ZEROS, _ONES = (0.0, 0.0, 0.0), (1.0, 1.0, 1.0)


_OF_SHARES = "red, green, blue, for images in 0..1 (mean and std for images in 0..255: divide both by 255)"
_TO_CANVAS = {"crop_pos_x": 0.0, "crop_pos_y": 0.0, "out_of_bounds_policy": "pad", "fill_values": 0.0}
_DTYPES = {"float32": types.FLOAT, "float16": types.FLOAT16, "uint8": types.UINT8}
