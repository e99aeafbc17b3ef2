"""Cut JPEGs between their blocks of 8 x 8 pixels: the tiles keep the coefficients, and so lose nothing.

The package jpeglib, which has libjpeg in its wheel, reads and writes the coefficients; it knows files, no bytes.
"""

from __future__ import annotations

import os
from importlib import import_module
from io import BytesIO
from pathlib import Path
from tempfile import NamedTemporaryFile

import numpy as np
from PIL.JpegImagePlugin import JpegImageFile

from detaug.arrays import Ints
from detaug.files.image_headers import PILLOW_ERRORS, ImageError, parse_image_header
from detaug.packages import require

ALIGN = 16
"""Pixels between places where a JPEG can be cut: its usual blocks of colors are of 8 or 16."""


def check_package() -> None:
    """Raise InputError if jpeglib is not installed."""
    require("quality='keep'", "jpeglib", otherwise="give a number")


def can_cut(content: bytes) -> bool:
    """Return whether an image is a JPEG of gray or of brightness and colors, not turned, whose blocks fit `ALIGN`."""
    if content[:2] != b"\xff\xd8":
        return False
    try:
        with JpegImageFile(BytesIO(content)) as image:
            names, factors = [layer[0] for layer in image.layer], np.array([layer[1:3] for layer in image.layer])
            is_rgb = image.info.get("adobe_transform", 1) == 0 or bytes(names) == b"RGB"
            fits = image.mode in ("L", "RGB") and image.bits == 8 and not is_rgb
        fits &= bool((factors[0] == factors.max(0)).all() and set(factors.ravel()) <= {1, 2})
        return fits and parse_image_header(BytesIO(content)).orientation == 1
    except (*PILLOW_ERRORS, ImageError):
        return False


class JpegBlocks:
    """The coefficients of a JPEG. `folder`: where a file may be for a moment."""

    def __init__(self, content: bytes, folder: Path) -> None:
        self._library = import_module("jpeglib")
        with NamedTemporaryFile(dir=folder, suffix=".jpg") as file:
            file.write(content)
            file.flush()
            try:
                self._jpeg = self._library.read_dct(file.name)
                self._jpeg.load()
            except OSError:  # names the file here
                raise OSError("is a JPEG that jpeglib does not read; give another quality than 'keep'") from None

    def save(self, window: Ints, path: Path) -> None:
        """Write the part in a window x, y, width, height, whose x and y are multiples of `ALIGN`."""
        x, y, width, height = window.tolist()
        jpeg, parts = self._jpeg, []
        factors = np.asarray(jpeg.samp_factor)  # blocks of each component, down and across, in a unit of the grid
        for own, blocks in zip(factors, (jpeg.Y, jpeg.Cb, jpeg.Cr), strict=False):
            sides = 8 * factors[0] // own  # pixels of a block
            first, end = np.array([y, x]) // sides, -(-np.array([y + height, x + width]) // sides)
            parts.append(blocks[first[0] : end[0], first[1] : end[1]])
        tile = self._library.from_dct(*parts, qt=jpeg.qt, quant_tbl_no=jpeg.quant_tbl_no)
        tile.height, tile.width, tile.samp_factor = height, width, jpeg.samp_factor
        tile.write_dct(os.fspath(path))
