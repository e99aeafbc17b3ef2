"""Read parts of large source images: those that are decoded whole and kept for a while, and touched tiles of TIFFs."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, UnidentifiedImageError

from detaug.arrays import Ints
from detaug.files.image_headers import PILLOW_ERRORS, ImageError, parse_image_header, upright
from detaug.files.large_images import allow_pixels, too_few_bytes
from detaug.sources.decoder import SourceDecoder
from detaug.sources.source import FolderSource, Source
from detaug.tiles.bands import part_of_bands
from detaug.tiles.tiled_tiff import TiledTiff, open_tiff

PILLOW_BYTES = 4
"""Bytes of a pixel of an RGB image in Pillow."""


def read_picture(source: Source, index: int, content: bytes | None = None) -> Image.Image:
    """Return a source image of a source as displayed, with the channels that Pillow reads. `content`: of the file.

    Raises OSError for one that does not decode, whose size is not the source's, or of which Pillow would lose bits.
    """
    if source.decodes:
        (pixels,) = source.contents(np.array([index]))
        return Image.fromarray(pixels)
    content = source.read(index) if content is None else content
    try:
        header = parse_image_header(BytesIO(content))
    except ImageError as error:
        raise OSError(str(error)) from None
    size = header.height, header.width
    if size != tuple(source.sizes[index]):
        raise OSError(source.explain_size(index, size))
    if fault := too_few_bytes(header.width, header.height, len(content)):
        raise OSError(fault)
    try:
        with allow_pixels(header.width * header.height):
            image: Image.Image = Image.open(BytesIO(content))
            if image.mode[:4] != "I;16" and any(";16" in str(tile[3]) for tile in getattr(image, "tile", ())):
                raise OSError("16 bits a channel, of which 8 would be left")
            image.load()
    except PILLOW_ERRORS as error:
        why = "" if isinstance(error, UnidentifiedImageError) else f" ({error})"
        raise OSError(header.pixels.fault(3, "uint8") or f"does not decode{why}") from None
    displayed: Image.Image = upright(image, header.orientation)
    if displayed.mode in ("P", "1"):
        return displayed.convert(
            "RGBA" if "transparency" in displayed.info else "RGB" if displayed.mode == "P" else "L"
        )
    return displayed


def part_of(image: Image.Image, window: Ints, size: Ints) -> Image.Image:
    """Return a tile of a source image: `window` x, y, width, height; scaled to `size` (height, width) if smaller.

    Scaled as `Resize` does, bilinear with antialiasing.
    """
    x, y, width, height = window.tolist()
    part = image.crop((x, y, x + width, y + height))
    sides = (int(size[1]), int(size[0]))
    return part if part.size == sides else part.resize(sides, Image.Resampling.BILINEAR)


class ImageParts:
    """Gives parts of the source images of a source, (H, W, bands) of its type. Of tiled TIFFs it reads those it needs.

    Other source images are decoded whole, and kept as long as all of them have no more than `memory` bytes.
    """

    def __init__(self, source: Source, memory: int) -> None:
        self._source, self._memory = source, memory
        self._kept: OrderedDict[int, Image.Image | NDArray[Any]] = OrderedDict()
        self._lock = Lock()
        self._decoder = None if source.pixel_format.is_rgb8 else SourceDecoder(source)
        self.tiff = lru_cache(256)(self._tiff)

    def __reduce__(self) -> Any:
        return ImageParts, (self._source, self._memory)

    def encoded(self, indices: Sequence[int]) -> dict[int, bytes]:
        """Return the files of source images that are decoded whole and are not kept.

        `indices`: of the source images of tiles. An object store, which downloads in the order of tiles, is asked in
        this order, with what comes several times.
        """
        if self._source.decodes or self._decoder:
            return {}
        with self._lock:
            absent = [index for index in indices if index not in self._kept]
        absent = [index for index in absent if self.tiff(index) is None]
        asked = [*dict.fromkeys(absent)] if self._source.files else absent
        contents = self._source.contents(np.array(asked)) if asked else []
        by_index = dict(zip(asked, contents, strict=True))
        return {index: content.tobytes() for index, content in by_index.items()}

    def parts(self, index: int, windows: Ints, sizes: Ints, content: bytes | None = None) -> list[NDArray[Any]]:
        """Return tiles of one source image: `windows` (K, 4), `sizes` (K, 2), see `Tiles`. Raises OSError."""
        tiff = self.tiff(index)
        if tiff is not None and (sizes[:, ::-1] == windows[:, 2:]).all():
            return tiff.parts(windows)
        image = self._whole(index, content)
        if isinstance(image, Image.Image):
            return [np.array(part_of(image, *tile)) for tile in zip(windows, sizes, strict=True)]
        return [part_of_bands(image, *tile) for tile in zip(windows, sizes, strict=True)]

    def _whole(self, index: int, content: bytes | None) -> Image.Image | NDArray[Any]:
        with self._lock:
            if index in self._kept:
                self._kept.move_to_end(index)
                return self._kept[index]
        image = self._decoder.decode(np.array([index]))[0] if self._decoder else self._rgb(index, content)
        with self._lock:
            self._kept[index] = image
            while sum(self._bytes(kept) for kept in self._kept) > self._memory:
                self._kept.popitem(last=False)
        return image

    def _rgb(self, index: int, content: bytes | None) -> Image.Image:
        image = read_picture(self._source, index, content)
        if image.mode[0] in "IF":
            raise OSError(f"has pixels of mode {image.mode}, more than 8 bits, which a batch would not have")
        return image.convert("RGB")

    def _bytes(self, index: int) -> int:
        pixels = self._source.pixel_format
        bytes_of_pixel = PILLOW_BYTES if pixels.is_rgb8 else pixels.channels * np.dtype(pixels.dtype).itemsize
        return bytes_of_pixel * int(self._source.pixels[index])

    def _tiff(self, index: int) -> TiledTiff | None:
        source = self._source
        in_folder = source.files or (isinstance(source, FolderSource) and not source.decodes)
        path = source.path(index) if in_folder else Path()
        if path.suffix.lower() not in (".tif", ".tiff"):
            return None
        try:
            return open_tiff(path, tuple(source.sizes[index].tolist()), source.pixel_format)
        except (ImportError, OSError, ValueError):
            return None  # read as a whole, with its own error
