"""Write images again that DALI's decoder does not read, or not with all their bands: as TIFFs of contiguous pixels.

DALI 2.4 reads no TIFF that stores one band after the other, nor one of many bands with an orientation, nor a PNG of
gray and alpha, and its decoders of images read no .npy, AVIF or HEIC. It inverts or converts TIFFs in which white is 0
or that have CIELAB, and does not turn RGBA. It ends the process for a gray JPEG that is to stay gray.
"""

from __future__ import annotations

import math
import struct
import zlib
from io import BytesIO
from typing import Any, BinaryIO, cast

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from detaug.arrays import Bytes
from detaug.errors import InputError
from detaug.files import heif
from detaug.files.image_file import BytesFile
from detaug.files.image_headers import ImageError, ImageHeader, parse_image_header
from detaug.files.large_images import allow_pixels
from detaug.files.pixel_types import read_npy_header
from detaug.packages import require

_KINDS = {"u": 1, "i": 2, "f": 3}  # TIFF's SampleFormat
_UNDECODABLE = np.zeros(1, np.uint8)


def as_decodable(content: Bytes, size: tuple[int, int] | None = None, *, as_rgb: bool = False) -> Bytes:
    """Return encoded bytes that DALI decodes to the same values: these, or those of a TIFF.

    `size`: the (height, width) that the image must have. One that has another, or is broken, becomes a byte that no
    decoder takes. `as_rgb`: whether DALI converts to 8-bit RGB; only AVIF and HEIC are written again then.
    Raises InputError if the package for planar TIFFs is not installed.
    """
    if as_rgb and not heif.format_of(content[:26].tobytes()):
        return content
    try:
        header = parse_image_header(cast(BinaryIO, BytesFile(content)))
        if size is not None and (header.height, header.width) != size:
            return _UNDECODABLE
        if header.format in heif.EXTENSIONS:
            with allow_pixels(header.width * header.height):
                pixels = np.asarray(heif.read_pixels(BytesIO(content.tobytes())))
            return contiguous_tiff(pixels, header.orientation)
        array = _array(content, header)
        return content if array is None else contiguous_tiff(array, header.orientation)
    except ImageError:
        return _UNDECODABLE
    except InputError:
        raise
    except Exception:  # noqa: BLE001  # the decoders of tifffile raise errors of their own
        return _UNDECODABLE


def _array(content: Bytes, header: ImageHeader) -> NDArray[Any] | None:
    """Return the pixels as they are stored, (H, W) or (H, W, C), of an image that DALI does not read; else None."""
    pixels = header.pixels
    if header.format == "TIFF":
        if not (pixels.planar or pixels.converted or header.orientation != 1):
            return None
        array = np.asarray(_tifffile().imread(BytesIO(content.tobytes()), key=0))
        return np.moveaxis(array, 0, 2) if pixels.planar else array
    if header.format == "NPY":
        return _npy_array(content)
    gray = header.format == "JPEG" and pixels.bands == 1
    gray_and_alpha = header.format == "PNG" and pixels.bands == 2
    rotated = header.format in ("PNG", "WEBP") and pixels.bands == 4 and header.orientation != 1
    if not (gray or gray_and_alpha or rotated):
        return None
    deep = gray_and_alpha and pixels.dtype == "uint16"
    image_file = BytesIO((_as_rgba(content) if deep else content).tobytes())
    with allow_pixels(header.width * header.height), Image.open(image_file, formats=[header.format]) as image:
        array = np.array(image.convert("L" if gray else "LA" if gray_and_alpha and not deep else "RGBA"))
    return array.view(">u2") if deep else array


def _npy_array(content: Bytes) -> NDArray[Any]:
    header = read_npy_header(cast(BinaryIO, BytesFile(content)))
    assert header is not None  # it was parsed before
    shape = header.shape[::-1] if header.by_columns else header.shape
    array = np.frombuffer(content, header.dtype, math.prod(shape), header.start).reshape(shape)
    return array.T if header.by_columns else array


def _as_rgba(png: Bytes) -> Bytes:
    """Return a PNG of gray and alpha, 16 bits each, as one of RGBA, 8 bits each: they are the same bytes.

    Pillow leaves out the lower 8 bits of the former.
    """
    head = png[:29].copy()
    head[24:26] = 8, 6  # bits and color type
    return np.concatenate([head, np.frombuffer(struct.pack(">I", zlib.crc32(head[12:29])), np.uint8), png[33:]])


def _tifffile() -> Any:
    what = "a TIFF that stores one band after the other, or rotated,"
    require(what, "tifffile", otherwise="save it with contiguous pixels")
    import tifffile

    return tifffile


def contiguous_tiff(array: NDArray[Any], orientation: int = 1) -> Bytes:
    """Return an uncompressed TIFF of an image (H, W) or (H, W, C), turned as an EXIF `orientation` says."""
    if orientation in (5, 6, 7, 8):
        array = array.swapaxes(0, 1)
    if orientation in (2, 3, 6, 7):
        array = array[:, ::-1]
    if orientation in (3, 4, 7, 8):
        array = array[::-1]
    (height, width), bands = array.shape[:2], array.shape[2] if array.ndim == 3 else 1
    pixels = np.ascontiguousarray(array, array.dtype.newbyteorder("<")).reshape(-1).view(np.uint8)
    several = {258: (bands, 8 * array.dtype.itemsize), 339: (bands, _KINDS[array.dtype.kind])}  # SHORTs
    several |= {338: (bands - 1, 0)} if bands > 1 else {}
    start = _ALIGNED + 6 * bands + -6 * bands % _ALIGNED
    single = {256: width, 257: height, 259: 1, 262: 1, 273: start, 277: bands, 278: height, 279: len(pixels), 284: 1}
    entries, more = [], b""
    for tag in sorted({*single, *several}):
        if tag in single:
            entries.append(struct.pack("<HHII", tag, 4, 1, single[tag]))
            continue
        count, value = several[tag]
        values = struct.pack(f"<{count}H", *[value] * count)
        inline = values.ljust(4, b"\0") if count <= 2 else struct.pack("<I", _ALIGNED + len(more))
        more += b"" if count <= 2 else values
        entries.append(struct.pack("<HHI", tag, 3, count) + inline)
    directory = b"II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(entries) + bytes(4)
    head = (directory.ljust(_ALIGNED, b"\0") + more).ljust(start, b"\0")
    return np.concatenate([np.frombuffer(head, np.uint8), pixels])


_ALIGNED = 256
"""Bytes that a directory fits in."""
