"""`PixelFormat`: how many bands the files of a source have, of what type, and which of them a batch gets."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import numpy as np

from detaug.arguments import FILL, check, check_rgb, is_whole, is_wholes

DType = Literal["uint8", "uint16", "float32"]

_WHITE = {"uint8": 255.0, "uint16": 65535.0, "float32": 1.0}


@dataclass(frozen=True)
class PixelFormat:
    """The pixels of a source, and of the images that a recipe gets.

    The default is 8-bit RGB: every file that DALI decodes is converted to it, as uint8. With anything else all files
    must have these bands of this type. They are decoded as they are; a recipe gets float32 in their own values.

    >>> pixels = da.PixelFormat(6, "uint16", bands=(3, 2, 1))
    >>> print(pixels, pixels.count, pixels.white)
    6 bands of uint16 3 65535.0
    """

    channels: int = 3
    """Bands of the files."""
    dtype: DType = "uint8"
    """Type of the values in the files."""
    bands: tuple[int, ...] | None = None
    """Positions, from 0, of the bands that are used, in this order; None for all."""
    scale: float | None = None
    """The value that ops take as 1, where their arguments are for images in 0..1; None for the type's."""

    def __post_init__(self) -> None:
        check("channels", self.channels, is_whole(self.channels, 1, 65535), "a whole number in 1..65535")
        check("dtype", self.dtype, self.dtype in get_args(DType), "'uint8', 'uint16' or 'float32'")
        if self.bands is not None:
            inside = is_wholes(self.bands, low=0) and max(self.bands) < self.channels
            check("bands", self.bands, inside, f"positions of bands, in 0..{self.channels - 1}, for {self.channels}")
            object.__setattr__(self, "bands", tuple(int(band) for band in self.bands))

    @property
    def is_rgb8(self) -> bool:
        """Return whether images are converted to 8-bit RGB."""
        return self.channels == 3 and self.dtype == "uint8" and self.bands is None

    @property
    def count(self) -> int:
        """Return the number of bands that are used."""
        return self.channels if self.bands is None else len(self.bands)

    @property
    def image_dtype(self) -> Literal["uint8", "float32"]:
        """Return the type of the images that a recipe gets."""
        return "uint8" if self.is_rgb8 else "float32"

    @property
    def image_bytes(self) -> int:
        """Return the bytes of a pixel of such an image."""
        return self.count * np.dtype(self.image_dtype).itemsize

    @property
    def white(self) -> float:
        """Return the value that ops take as 1."""
        return _WHITE[self.dtype] if self.scale is None else self.scale

    @property
    def decoded_bytes(self) -> int:
        """Return the bytes that a decoded pixel takes: with the bands of the file, and with those that are used."""
        return 3 if self.is_rgb8 else self.channels * np.dtype(self.dtype).itemsize + 4 * self.count

    def __str__(self) -> str:
        return f"{self.channels} {'band' if self.channels == 1 else 'bands'} of {self.dtype}"


RGB8 = PixelFormat()


def check_bands(name: str, values: tuple[float, ...], pixels: PixelFormat) -> None:
    """Raise InputError unless there is a number for each band, in 0..255 for 8-bit RGB."""
    if pixels.is_rgb8:
        check_rgb(name, values)
    else:
        right = len(values) == pixels.count or tuple(values) == FILL
        used = "" if pixels.bands is None else f", {pixels.count} of them used"
        check(name, values, right, f"a number for each band, in the values of the files, which have {pixels}{used}")


def for_bands(values: tuple[float, ...], pixels: PixelFormat) -> tuple[float, ...]:
    """Return what to fill with: these numbers, and 0 for the default, which is the mean color of images."""
    return values if pixels.is_rgb8 or tuple(values) != FILL else (0.0,) * pixels.count
