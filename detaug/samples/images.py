"""Images as datasets hold them: PIL, NumPy, torch and torchvision's tv_tensors, in and out."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from detaug.errors import InputError

Pixels = NDArray[np.uint8]

_KINDS = "a PIL image, an array (H, W, 3), or a tensor or tv_tensors.Image (3, H, W)"


def read_image(image: Any) -> Pixels:
    """Return an image as (H, W, 3) uint8, which may share its memory. Values of floats, 0..1, are rounded to k / 255.

    Raises InputError for images of another shape, type or range, and TypeError for what is not an image.
    """
    if isinstance(image, Image.Image):
        if image.mode != "RGB":
            remedy = "scale it to 8 bits before" if image.mode[0] in "IF" else "give"  # Pillow would clip at 255
            raise InputError(f"the image must be of mode RGB, got {image.mode}: {remedy} image.convert('RGB')")
        return np.array(image)
    if isinstance(image, np.ndarray):
        return _read_array(image, "(H, W, 3)", image.shape[2:] == (3,) and image.ndim == 3)
    if isinstance(image, Tensor):
        if image.device.type != "cpu":
            raise InputError(f"the image must be on the CPU, got {image.device}: a Loader works on the GPU")
        values = image.detach().as_subclass(Tensor)
        pixels = (values.float() if values.is_floating_point() else values).numpy()
        rows_first = pixels.transpose(1, 2, 0) if pixels.ndim == 3 else pixels
        return _read_array(rows_first, "(3, H, W)", image.ndim == 3 and len(image) == 3)
    raise TypeError(f"the image must be {_KINDS}, got {type(image).__name__}")


def like_image(image: Any, rendered: Tensor, *, normalized: bool) -> Any:
    """Return the rendered image, (3, H, W), as what `image` is. Normalized images are tensors, or tv_tensors.Image."""
    if isinstance(image, Tensor):
        result = rendered.contiguous()
        if not normalized and image.dtype != torch.uint8:
            result = result.to(image.dtype).div_(255)
        return wrap_like(image, result) if is_tv_tensor(image) else result
    if normalized:
        return rendered.contiguous()
    rows_first = rendered.permute(1, 2, 0).contiguous().numpy()
    if isinstance(image, Image.Image):
        return Image.fromarray(rows_first)
    return rows_first if image.dtype == np.uint8 else rows_first.astype(image.dtype) / image.dtype.type(255)


def is_tv_tensor(value: Any) -> bool:
    """Return whether a value is one of torchvision's tv_tensors, which it cannot be before they are imported."""
    module = sys.modules.get("torchvision.tv_tensors")
    return module is not None and isinstance(value, module.TVTensor)


def wrap_like(value: Tensor, result: Tensor, **attributes: Any) -> Any:
    """Return a tensor as a tv_tensor of the class of `value`, with its attributes but for these."""
    return sys.modules["torchvision.tv_tensors"].wrap(result, like=value, **attributes)


def _read_array(array: NDArray[Any], layout: str, fits: bool) -> Pixels:
    kind = array.dtype.kind
    if not fits or not array.size or not (array.dtype == np.uint8 or kind == "f"):
        shape = array.shape if layout.startswith("(H") or array.ndim != 3 else (array.shape[2], *array.shape[:2])
        raise InputError(f"the image must be {layout}, uint8 or floats in 0..1, got {shape} {array.dtype}")
    if kind != "f":
        return np.require(array, requirements=["C", "W"])  # torch warns of arrays that cannot be written
    low, high = array.min(), array.max()
    if not (low >= 0 and high <= 1):
        raise InputError(f"an image of floats must be in 0..1, got {low:g}..{high:g}: divide by 255, or give uint8")
    return np.ascontiguousarray((array * array.dtype.type(255)).round().astype(np.uint8))
