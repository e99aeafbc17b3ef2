"""Convert arrays, tensors and batches to PIL images, and write one to a file."""

from __future__ import annotations

import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from detaug.errors import InputError
from detaug.files.atomic import write_atomically
from detaug.outputs.guards import MARK

LARGEST_NORMALIZED = 8.0
"""The largest value taken for a normalized one. ImageNet's mean and std make 2.64 of white; of 0..255, all but black
images have larger values."""

SLACK = 1e-3


class RgbImages(NamedTuple):
    """The images of a batch as RGB images, and a note on their colors, "" where they are true."""

    images: list[Image.Image]
    note: str


def to_image(
    pixels: Any,
    *,
    mean: Sequence[float] | float | None = None,
    std: Sequence[float] | float | None = None,
    white: float = 1.0,
    layout: str | None = None,
) -> Image.Image:
    """Convert one image of any kind to a new RGB PIL image.

    pixels: PIL image, or array or tensor (on any device) of (H, W), (H, W, C) or (C, H, W), C being 1 or 3;
        uint8, or float, in which `white` is white.
    mean, std: the arguments of `Normalize`, which is undone: one number or one a channel.
    layout: "HWC" or "CHW", for when the shape fits both; without it, (3, H, 3) is read as CHW.
    Raises InputError for another shape or type, and for floats so far outside [0, white] that mean, std or
    white must be missing.

    >>> to_image(np.zeros((3, 20, 30), np.float32)).size
    (30, 20)
    """
    if isinstance(pixels, Image.Image):
        return pixels.convert("RGB")
    array = _channels_last(as_array(pixels), layout)
    if array.dtype != np.uint8:
        array = _to_uint8(array.astype(np.float64), mean, std, white)
    return Image.fromarray(np.ascontiguousarray(np.broadcast_to(array, (*array.shape[:2], 3))))


def to_images(images: Sequence[Any]) -> RgbImages:
    """Convert the images of one batch to RGB images, without knowing the mean and std of its Normalize.

    Colors are true where all values are in 0..1 or 0..255. Other values come from a Normalize: they are stretched to
    0..255, all images alike. Of images (C, H, W) that are neither gray nor RGB the first bands are `stretched`.
    """
    if all(isinstance(image, Image.Image) for image in images):
        return RgbImages(list(images), "")
    arrays = [as_array(image) for image in images]
    if arrays[0].ndim == 3 and not {arrays[0].shape[0], arrays[0].shape[2]} & {1, 3}:
        return stretched(arrays)
    low, high = (float(extreme([extreme(array) for array in arrays])) for extreme in (np.min, np.max))
    if low >= -SLACK and (arrays[0].dtype == np.uint8 or not 1 + SLACK < high <= LARGEST_NORMALIZED):
        return RgbImages([to_image(array, white=1 if high <= 1 + SLACK else 255) for array in arrays], "")
    return RgbImages([to_image((array - low) / (high - low)) for array in arrays], "normalized, so in false colors")


PERCENTILES = (2, 98)
"""Of a band's values: what is black and what is white in `stretched`."""


def stretched(images: Sequence[Any], bands: Sequence[int] = ()) -> RgbImages:
    """Convert images of any bands, (C, H, W), to RGB images: each band from its 2nd to its 98th percentile.

    bands: positions of one band, for gray, or of three, for red, green and blue; by default the first three, or the
    first of one or two. The percentiles are those of all images together, without values that are not finite. Raises
    InputError for bands that the images do not have.
    """
    arrays = [as_array(image) for image in images]
    count = arrays[0].shape[0]
    chosen = tuple(bands) or (tuple(range(3)) if count >= 3 else (0,))
    if len(chosen) not in (1, 3) or not all(0 <= band < count for band in chosen):
        raise InputError(f"bands must be one or three positions in 0..{count - 1}, got {bands!r}")
    parts = [np.stack([array[band] for band in chosen], axis=2).astype(np.float64) for array in arrays]
    values = np.concatenate([part.reshape(-1, len(chosen)) for part in parts])
    limits = [np.percentile(band[np.isfinite(band)], PERCENTILES) for band in values.T]
    low, high = np.transpose(limits)
    scaled = [np.nan_to_num((part - low) / np.maximum(high - low, 1e-12)).clip(0, 1) for part in parts]
    shown = f"band {chosen[0]}" if len(chosen) == 1 else "bands {}, {}, {}".format(*chosen)
    return RgbImages([to_image(array) for array in scaled], f"{shown}, from the 2nd to the 98th percentile")


def as_array(values: Any) -> NDArray[Any]:
    """Return a NumPy array of anything array-like; tensors are copied from their device."""
    if hasattr(values, "detach"):
        values = values.detach()
        values = values.float() if values.is_floating_point() else values
    for fetch in ("cpu", "as_cpu"):
        values = getattr(values, fetch)() if hasattr(values, fetch) else values
    return np.asarray(values)


def _channels_last(array: NDArray[Any], layout: str | None) -> NDArray[Any]:
    if array.ndim == 2:
        return array[:, :, None]
    if array.ndim == 3 and layout != "HWC" and array.shape[0] in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[2] not in (1, 3) or 0 in array.shape:
        raise InputError(
            f"pixels must be one image, (H, W), (H, W, 1 or 3) or (1 or 3, H, W), got shape {array.shape}; "
            "take one image of a batch, batch.images[0]"
        )
    return array


def _to_uint8(pixels: NDArray[np.float64], mean: Any, std: Any, white: float) -> NDArray[np.uint8]:
    pixels = pixels * (1.0 if std is None else np.asarray(std)) + (0.0 if mean is None else np.asarray(mean))
    pixels = np.nan_to_num(pixels / white, posinf=1.0, neginf=0.0)
    low, high = float(pixels.min()) * white, float(pixels.max()) * white
    if low < -white or high > 2 * white:
        raise InputError(
            f"float pixels must be in 0..{white:g} (white={white:g}), got {low:.3g}..{high:.3g}; "
            "pass white=255, or the mean and std of Normalize"
        )
    return np.asarray((np.clip(pixels, 0, 1) * 255).round(), np.uint8)


FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"format": "PNG", "compress_level": 3},  # images take 4 % more than with 9, and 0.3 of the time
    ".jpg": {"format": "JPEG", "quality": 88, "subsampling": 0},
    ".jpeg": {"format": "JPEG", "quality": 88, "subsampling": 0},
    ".webp": {"format": "WEBP", "quality": 88},
}
"""Pillow's options by extension."""

PICTURES = tuple(FORMATS)

_SOFTWARE = 0x131  # EXIF's tag


def save_picture(image: Image.Image, path: str | os.PathLike[str]) -> Path:
    """Write an image, whole or not at all, in the format of its extension: .png, .jpg, .webp.

    Raises InputError for another extension, OSError where the folder cannot be written to.
    """
    encoded, exif = io.BytesIO(), Image.Exif()
    exif[_SOFTWARE] = MARK  # by which `output_files` knows an image of detaug again
    image.save(encoded, exif=exif, **_format_of(Path(path)))
    with encoded.getbuffer() as view:  # CPython 3.12.0 and 3.12.1 crash where an error keeps the view (gh-111049)
        write_atomically(path, [view])
    return Path(path)


def _format_of(path: Path) -> dict[str, Any]:
    """Return Pillow's options for a file of this name. Raises InputError for an unknown extension."""
    extension = path.suffix.lower()
    if extension not in FORMATS:
        raise InputError(f"{path} must end in {', '.join(FORMATS)}, got {path.suffix or 'no extension'!r}")
    return FORMATS[extension]
