"""Colour changes on the CPU, with torch. Images are (3, H, W) in 0..255; results are whole numbers.

On one thread torch compares and selects ten times slower than it adds, so that masks are numbers here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from detaug.ops import color as kinds
from detaug.ops.cpu_kernels import Array, round_to_bytes

TO_BYTES = 255.999 / 255
"""torchvision converts 0..1 to uint8 times 255.999, cut off: whole numbers in 0..255 stay."""

_GRAY = torch.tensor([[0.2989, 0.587, 0.114]], dtype=torch.float32, device="cpu")  # as torchvision's rgb_to_grayscale


def change_colors(image: Tensor, picture: Array | None = None, **numbers: Array) -> Tensor:
    """Change colours by a linear map, `color=`, or in steps, `steps=`: see `map_colors` and `change_in_steps`.

    `picture`: (2, 2), the first and last corner (y, x) of what is to change; None for all.
    """
    ((name, given),) = numbers.items()
    change = {"color": map_colors, "steps": change_in_steps}[name]
    if picture is None:
        return change(image, given)
    (top, left), (bottom, right) = picture.astype(int).tolist()
    window, changed = image[:, top:bottom, left:right], image.clone()
    if window.numel():
        changed[:, top:bottom, left:right] = change(window, given)
    return changed


def map_colors(image: Tensor, color: Array) -> Tensor:
    """Apply a linear map of RGB, (3, 4), round and clip.

    Channels come first: a product with three columns is fast where the pixels are its long axis.
    """
    factors, pixels = torch.from_numpy(color), image.contiguous().flatten(1).float()
    return round_to_bytes(torch.addmm(factors[:, 3:], factors[:, :3], pixels)).view(image.shape)


def change_in_steps(image: Tensor, steps: Array) -> Tensor:
    """Change brightness, contrast, saturation, hue and the order of the channels as torchvision does for uint8.

    `steps`: (11,), see `color.steps`.
    """
    pixels = image.contiguous().flatten(1).to(torch.float32, copy=True)
    pixels = pixels if image.dtype == torch.uint8 else round_to_bytes(pixels)
    for kind, amount in steps[:-3].reshape(-1, 2).tolist():
        if kind:
            pixels = _CHANGES[int(kind)](pixels, amount)
    channels = steps[-3:].astype(int).tolist()
    return (pixels if channels == [0, 1, 2] else pixels[channels]).view(image.shape)


# ------------------------------------------------- steps: (3, P) whole numbers, changed in place


def _gray(pixels: Tensor) -> Tensor:
    return torch.mm(_GRAY, pixels).floor_()


def _brightness(pixels: Tensor, factor: float) -> Tensor:
    return pixels.mul_(factor).clamp_(max=255).floor_()


def _contrast(pixels: Tensor, factor: float) -> Tensor:
    return _blend(pixels, _gray(pixels).mean(), factor)


def _saturation(pixels: Tensor, factor: float) -> Tensor:
    return _blend(pixels, _gray(pixels), factor)


def _blend(pixels: Tensor, other: Tensor, factor: float) -> Tensor:
    return pixels.mul_(factor).add_(other, alpha=1 - factor).clamp_(0, 255).floor_()


def _hue(pixels: Tensor, turn: float) -> Tensor:
    """Turn the hue in HSV, of which value and chroma stay.

    A channel is value - chroma * share. Its share goes from 0 to 1 and back over the circle of hues, each channel's a
    third of the circle after the one before.
    """
    red, green, blue = pixels
    value = torch.maximum(torch.maximum(red, green), blue)
    chroma = value - torch.minimum(torch.minimum(red, green), blue)
    angle = _sixths(red, green, blue, value, chroma).add_(6 * turn)
    angle.sub_((angle / 6).floor_().mul_(6))
    value.mul_(TO_BYTES)
    chroma.mul_(TO_BYTES)
    shares = [
        (angle - 3).abs_().neg_().add_(2).clamp_(0, 1),
        (angle - 2).abs_().sub_(1).clamp_(0, 1),
        (angle - 4).abs_().sub_(1).clamp_(0, 1),
    ]
    for channel, share in zip(pixels, shares, strict=True):
        torch.sub(value, share.mul_(chroma), out=channel)
    return pixels.floor_()


def _sixths(red: Tensor, green: Tensor, blue: Tensor, value: Tensor, chroma: Tensor) -> Tensor:
    """Return the hue, from red = 0 by way of green = 2 and blue = 4, in sixths of the circle; 0 for greys."""
    per_chroma = chroma.clamp(min=0.5).reciprocal_()
    not_red, not_green = (value - red).clamp_(max=1), (value - green).clamp_(max=1)  # 0 or 1
    at_green, at_blue = (blue - red).mul_(per_chroma).add_(2), (red - green).mul_(per_chroma).add_(4)
    return torch.lerp((green - blue).mul_(per_chroma), torch.lerp(at_green, at_blue, not_green), not_red)


_CHANGES: dict[int, Callable[[Tensor, float], Tensor]] = {
    kinds.BRIGHTNESS: _brightness,
    kinds.CONTRAST: _contrast,
    kinds.SATURATION: _saturation,
    kinds.HUE: _hue,
}
