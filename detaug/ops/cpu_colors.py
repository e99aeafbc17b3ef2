"""Color changes on the CPU: linear maps of RGB, and torchvision's steps.

The loops are Numba's. With torch, which makes a pass over the pixels for each sum and product, the colors of the SSD
recipe take 840 us an image of 300 x 300, with these 130, and a linear map 490 and 60.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from detaug.arrays import Array
from detaug.ops import color_loops
from detaug.ops.cpu_kernels import round_to_bytes


def change_colors(image: Tensor, picture: Array | None = None, **numbers: Array) -> Tensor:
    """Change colors by a linear map, `color=`, or in steps, `steps=`: see `map_colors` and `change_in_steps`.

    `picture`: (2, 2), the first and last corner (y, x) of what is to change; None for all.
    """
    ((name, values),) = numbers.items()
    change = {"color": map_colors, "steps": change_in_steps}[name]
    if picture is None:
        return change(image, values)
    (top, left), (bottom, right) = picture.astype(int).tolist()
    window, changed = image[:, top:bottom, left:right], image.clone()
    if window.numel():
        changed[:, top:bottom, left:right] = change(window, values)
    return changed


def map_colors(image: Tensor, color: Array) -> Tensor:
    """Apply a linear map of RGB, (3, 4), round and clip."""
    return _changed("map_colors", image, color)


def change_in_steps(image: Tensor, steps: Array) -> Tensor:
    """Change brightness, contrast, saturation, hue and the order of the channels as torchvision does for uint8.

    `steps`: (11,), see `color.steps`.
    """
    return _changed("change_in_steps", image, steps)


def _changed(loop: str, image: Tensor, numbers: Array) -> Tensor:
    """Return an image (3, H, W) in 0..255 as uint8 after one of the loops."""
    image = image if image.dtype == torch.uint8 else round_to_bytes(image.clone()).to(torch.uint8)
    pixels = np.ascontiguousarray(image.permute(1, 2, 0).numpy())  # a copy only if the channels do not come last
    changed = np.empty_like(pixels)
    getattr(color_loops, loop)(pixels.reshape(-1), numbers.astype(np.float32), changed.reshape(-1))
    return torch.from_numpy(changed).permute(2, 0, 1)
