"""Read parts of large pictures: whole pictures that are kept for a while, and the touched tiles of a tiled TIFF."""

from __future__ import annotations

from collections import OrderedDict
from functools import lru_cache
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from PIL import Image

from detaug.arrays import Bytes, Ints
from detaug.converters.files.image_headers import PILLOW_ERRORS, ImageError, parse_image_header, upright
from detaug.sources.source import Source

PILLOW_BYTES = 4
"""Bytes of a pixel of an RGB image in Pillow."""

_limit = Lock()


def read_picture(source: Source, index: int) -> Image.Image:
    """Return a picture of a source as displayed, with the channels that Pillow reads.

    Raises OSError for one that does not decode, whose size is not the source's, or of which Pillow would lose bits.
    """
    if source.decodes:
        (pixels,) = source.contents(np.array([index]))
        return Image.fromarray(pixels)
    content = source.read(index)
    try:
        header = parse_image_header(BytesIO(content))
    except ImageError as error:
        raise OSError(str(error)) from None
    size = header.height, header.width
    if size != tuple(source.sizes[index]):
        raise OSError(source.explain_size(index, size))
    try:
        image = _opened(content, header.width * header.height)
        if image.mode[:4] != "I;16" and any(";16" in str(tile[3]) for tile in getattr(image, "tile", ())):
            raise OSError("has 16 bits a channel, and its tiles would have 8")
        image.load()
    except PILLOW_ERRORS as error:
        raise OSError(f"does not decode ({error})" if not str(error).startswith("has ") else str(error)) from None
    if image.mode in ("P", "1"):
        image = image.convert("RGBA" if "transparency" in image.info else "RGB" if image.mode == "P" else "L")
    turned: Image.Image = upright(image, header.orientation)
    return turned


def _opened(content: bytes, pixels: int) -> Image.Image:
    """Open an image that may be larger than Pillow's limit, since its size is known to be right."""
    with _limit:
        before = Image.MAX_IMAGE_PIXELS
        try:
            Image.MAX_IMAGE_PIXELS = None if before is None else max(before, pixels)
            return Image.open(BytesIO(content))
        finally:
            Image.MAX_IMAGE_PIXELS = before


def part_of(picture: Image.Image, window: Ints, size: Ints) -> Image.Image:
    """Return a tile of a picture: `window` x, y, width, height; scaled to `size` (height, width), if that is smaller.

    Scaled as `Resize` does, bilinear with antialiasing.
    """
    x, y, width, height = window.tolist()
    part = picture.crop((x, y, x + width, y + height))
    sides = (int(size[1]), int(size[0]))
    return part if part.size == sides else part.resize(sides, Image.Resampling.BILINEAR)


class Pictures:
    """Gives parts of the pictures of a source as (H, W, 3) uint8 RGB. Of TIFFs in tiles it reads those it needs.

    Other pictures are decoded whole, and kept as long as all of them have no more than `memory` bytes.
    """

    def __init__(self, source: Source, memory: int) -> None:
        self._source, self._memory = source, memory
        self._kept: OrderedDict[int, Image.Image] = OrderedDict()
        self._lock = Lock()
        self.tiff = lru_cache(256)(self._tiff)

    def parts(self, index: int, windows: Ints, sizes: Ints) -> list[Bytes]:
        """Return tiles of one picture: `windows` (K, 4), `sizes` (K, 2), see `Tiles`. Raises OSError."""
        tiff = self.tiff(index)
        if tiff is not None and (sizes[:, ::-1] == windows[:, 2:]).all():
            return tiff.parts(windows)
        picture = self._whole(index)
        return [np.array(part_of(picture, *each)) for each in zip(windows, sizes, strict=True)]

    def _whole(self, index: int) -> Image.Image:
        with self._lock:
            if index in self._kept:
                self._kept.move_to_end(index)
                return self._kept[index]
        picture = read_picture(self._source, index)
        if picture.mode[0] in "IF":
            raise OSError(f"has pixels of mode {picture.mode}, more than 8 bits, which a batch would not have")
        picture = picture.convert("RGB")
        with self._lock:
            self._kept[index] = picture
            while sum(self._bytes(each) for each in self._kept) > self._memory:
                self._kept.popitem(last=False)
        return picture

    def _bytes(self, index: int) -> int:
        return PILLOW_BYTES * int(self._source.pixels[index])

    def _tiff(self, index: int) -> TiledTiff | None:
        source = self._source
        path = source.path(index) if source.files else Path()
        if path.suffix.lower() not in (".tif", ".tiff"):
            return None
        try:
            return open_tiff(path, tuple(source.sizes[index].tolist()))
        except (ImportError, OSError, ValueError):
            return None  # read as a whole, with its own error


class TiledTiff:
    """A TIFF that is stored in tiles, of which parts are read without the rest."""

    def __init__(self, path: Path, page: Any) -> None:
        self._path, self._page = path, page

    def parts(self, windows: Ints) -> list[Bytes]:
        """Return the pixels in windows (K, 4) x, y, width, height, each (height, width, 3) uint8. Raises OSError."""
        decoded: dict[int, Bytes] = {}
        try:
            with self._path.open("rb") as file:
                return [self._part(file, decoded, *window) for window in windows.tolist()]
        except (ValueError, RuntimeError, IndexError) as error:  # of imagecodecs
            raise OSError(f"does not decode ({error})") from None

    def _part(self, file: Any, decoded: dict[int, Bytes], x: int, y: int, width: int, height: int) -> Bytes:
        page = self._page
        rows, columns = page.tilelength, page.tilewidth
        across = -(-page.imagewidth // columns)
        part = np.empty((height, width, 3), np.uint8)
        for row in range(y // rows, -(-(y + height) // rows)):
            for column in range(x // columns, -(-(x + width) // columns)):
                at = row * across + column
                if at not in decoded:
                    decoded[at] = self._decode(file, at)
                top, left = row * rows, column * columns
                y0, x0 = max(y, top), max(x, left)
                y1, x1 = min(y + height, top + rows), min(x + width, left + columns)
                part[y0 - y : y1 - y, x0 - x : x1 - x] = decoded[at][y0 - top : y1 - top, x0 - left : x1 - left]
        return part

    def _decode(self, file: Any, at: int) -> Bytes:
        page = self._page
        if not page.databytecounts[at]:  # a tile without bytes, as GDAL leaves out empty ones
            return np.full((page.tilelength, page.tilewidth, 3), page.nodata, np.uint8)
        file.seek(page.dataoffsets[at])
        tile, _, _ = page.decode(file.read(page.databytecounts[at]), at, jpegtables=page.jpegtables)
        if tile is None:
            raise ValueError("a tile is damaged")
        return np.asarray(tile[0])


def open_tiff(path: Path, size: tuple[int, int]) -> TiledTiff | None:
    """Return a TIFF in tiles of 8-bit RGB, of `size` (height, width), upright; None for any other image.

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
    kind = page.is_tiled, page.dtype, page.samplesperpixel, int(page.planarconfig), page.imagedepth, orientation
    fits = page.compression == 1 or find_spec("imagecodecs") is not None
    fits &= kind == (True, np.uint8, 3, 1, 1, 1) and int(page.photometric) in (2, 6)  # RGB, YCbCr
    return TiledTiff(path, page) if fits and (page.imagelength, page.imagewidth) == size else None
