"""Read parts of a TIFF that is stored in tiles, as Cloud Optimized GeoTIFFs are, and decode no others."""

from __future__ import annotations

from importlib import import_module
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Ints
from detaug.packages import is_installed
from detaug.pixel_format import PixelFormat

_PLANES = 2  # PlanarConfiguration
_BLACK_IS_ZERO, _RGB_COLORS = 1, (2, 6)  # PhotometricInterpretation: RGB and YCbCr


class TiledTiff:
    """A TIFF that is stored in tiles, of which parts are read without the rest."""

    def __init__(self, path: Path, page: Any) -> None:
        self._path, self._page = path, page

    def parts(self, windows: Ints) -> list[NDArray[Any]]:
        """Return the pixels in windows (K, 4) x, y, width, height, each (height, width, bands). Raises OSError."""
        decoded: dict[int, NDArray[Any]] = {}
        try:
            with self._path.open("rb") as file:
                return [self._part(file, decoded, *window) for window in windows.tolist()]
        except (ValueError, RuntimeError, IndexError) as error:  # of imagecodecs
            raise OSError(f"does not decode ({error})") from None

    def _part(
        self, file: Any, decoded: dict[int, NDArray[Any]], x: int, y: int, width: int, height: int
    ) -> NDArray[Any]:
        page = self._page
        rows, columns = page.tilelength, page.tilewidth
        across = -(-page.imagewidth // columns)
        of_plane = -(-page.imagelength // rows) * across
        bands, together = page.samplesperpixel, 1 if page.planarconfig == _PLANES else page.samplesperpixel
        part = np.empty((height, width, bands), page.dtype)
        steps = range(y // rows, -(-(y + height) // rows)), range(x // columns, -(-(x + width) // columns))
        for plane, row, column in product(range(bands // together), *steps):
            number = plane * of_plane + row * across + column
            if number not in decoded:
                decoded[number] = self._decode(file, number, together)
            top, left = row * rows, column * columns
            y0, x0 = max(y, top), max(x, left)
            y1, x1 = min(y + height, top + rows), min(x + width, left + columns)
            into = part[y0 - y : y1 - y, x0 - x : x1 - x, plane * together : (plane + 1) * together]
            into[...] = decoded[number][y0 - top : y1 - top, x0 - left : x1 - left]
        return part

    def _decode(self, file: Any, number: int, bands: int) -> NDArray[Any]:
        page = self._page
        if not page.databytecounts[number]:  # a tile without bytes, as GDAL leaves out empty ones
            return np.full((page.tilelength, page.tilewidth, bands), page.nodata, page.dtype)
        file.seek(page.dataoffsets[number])
        tile, _, _ = page.decode(file.read(page.databytecounts[number]), number, jpegtables=page.jpegtables)
        if tile is None:
            raise ValueError("a tile is damaged")
        return np.asarray(tile[0])


def open_tiff(path: Path, size: tuple[int, int], pixels: PixelFormat) -> TiledTiff | None:
    """Return a TIFF in tiles, of `size` (height, width) and with these bands, upright; None for any other image.

    Raises ImportError without tifffile, OSError and ValueError for a damaged file.
    """
    tifffile = import_module("tifffile")
    try:
        with tifffile.TiffFile(path) as file:
            page = file.pages[0]
            orientation = page.tags.valueof(274, 1)
            page.dataoffsets, page.jpegtables, page.decode  # noqa: B018  they are read while the file is open
    except (tifffile.TiffFileError, IndexError, KeyError) as error:
        raise ValueError(str(error)) from None
    kind = page.is_tiled, page.dtype, page.bitspersample, page.samplesperpixel, page.imagedepth, orientation
    dtype = np.dtype(pixels.dtype)
    fits = kind == (True, dtype, 8 * dtype.itemsize, pixels.channels, 1, 1)
    fits &= int(page.photometric) in (_RGB_COLORS if pixels.is_rgb8 else (_BLACK_IS_ZERO, *_RGB_COLORS))
    fits &= not pixels.is_rgb8 or int(page.planarconfig) != _PLANES
    fits &= page.compression == 1 or is_installed("imagecodecs")
    return TiledTiff(path, page) if fits and (page.imagelength, page.imagewidth) == size else None
