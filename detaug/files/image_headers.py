"""Read sizes, EXIF orientations and end markers of images, without decoding a pixel.

DALI's decoders (2.4) apply the EXIF orientation of JPEG, PNG, WebP and TIFF and ignore XMP's. They read the first two
bytes of the tag's value whatever its type, ignore values outside 1 to 8, and use the last EXIF segment of a JPEG that
has several. Pillow differs in each of these points, so the orientation is read here.
"""

from __future__ import annotations

import errno
import struct
import zlib
from collections.abc import Sequence
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

from detaug.errors import InputError
from detaug.files import heif
from detaug.files.image_file import ImageFile, opened
from detaug.files.known_files import what_is
from detaug.files.large_images import ANY_NUMBER, allow_pixels, without_pillows_warnings
from detaug.files.paths import PathLike
from detaug.files.pixel_types import (
    JPEG_FRAMES,
    NPY_MAGIC,
    TIFF_MAGIC,
    PixelType,
    has_further_pages,
    read_jpeg2000_header,
    read_npy_header,
    read_pixel_type,
    read_tiff_header,
)
from detaug.machine.cores import available_cores
from detaug.machine.parallel import map_in_processes

# The order decides between two images with the same stem.
IMAGE_EXTENSIONS = (
    ".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".bmp", ".tif", ".tiff", ".webp", ".jp2",
    ".ppm", ".pgm", ".pnm", ".gif", ".avif", ".heic", ".heif",
)  # fmt: skip
DECODED_FORMATS = {
    "JPEG": {".jpg", ".jpeg", ".jpe", ".jfif"},
    "PNG": {".png"},
    "BMP": {".bmp"},
    "TIFF": {".tif", ".tiff"},
    "WEBP": {".webp"},
    "JPEG2000": {".jp2"},
    "PPM": {".ppm", ".pgm", ".pnm"},
    "AVIF": {*heif.EXTENSIONS["AVIF"]},
    "HEIC": {*heif.EXTENSIONS["HEIC"]},
    "NPY": {".npy"},  # for CocoReader(channels=, dtype=)
}

_HEAD_BYTES = 4096
_LONG_HEAD_BYTES = 1 << 18  # EXIF thumbnails and color profiles push the size past the first 4 KiB
_ORIENTATION_TAG = 0x0112
_PNG_PALETTE = 3  # IHDR's color type
_RGBA_OF_16_BITS = bytes([16, 6])  # IHDR's bits and color type
_PILLOW_FORMATS = ("BMP", "WEBP", "PPM", "GIF")
PILLOW_ERRORS = (
    OSError,
    SyntaxError,
    ValueError,
    LookupError,
    TypeError,
    ArithmeticError,
    EOFError,
    struct.error,
)
"""What Pillow raises for damaged files, beside Image.DecompressionBombError."""


class ImageHeader(NamedTuple):
    """The size, orientation and format of an image file."""

    width: int
    """Pixels as displayed, orientation applied; height too."""
    height: int
    stored_size: tuple[int, int]
    """(width, height) in pixels before the orientation is applied."""
    orientation: int
    format: str
    file_bytes: int
    head_crc: int
    palette_bits: int = 0
    """Bits per pixel of a PNG with a palette: 1, 2, 4 or 8; 0 for every other image."""
    pixels: PixelType = PixelType()
    has_more: bool = False
    """Whether the file has further images, which are not decoded: of an animation, or pages of a TIFF."""

    @property
    def fingerprint(self) -> tuple[int, int]:
        """Return (length, checksum of the beginning): equal for equal files, and rarely for others."""
        return self.file_bytes, self.head_crc


class ImageError(InputError):
    """An image whose header cannot be read, or in a format that DALI does not decode."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def read_image_header(path: PathLike | ImageFile) -> ImageHeader:
    """Read the header of an image: size in pixels as displayed, EXIF orientation, format.

    Reads the first kilobytes, never a pixel. Raises ImageError for a broken header and for a format that DALI does not
    decode.
    """
    try:
        with opened(path) as file:
            return parse_image_header(file)
    except OSError as error:
        raise ImageError("image-unreadable", f"cannot be read: {error.strerror or error}") from error


def usual_extension(image_format: str) -> str:
    """Return the extension, with its dot, that files of a format of DECODED_FORMATS usually have."""
    extensions = (*IMAGE_EXTENSIONS, ".npy")
    return next(extension for extension in extensions if extension in DECODED_FORMATS[image_format])


def read_fingerprint(path: PathLike | ImageFile) -> tuple[int, int]:
    """Read ImageHeader.fingerprint of a file of any kind. Raises OSError."""
    with opened(path) as file:
        head = file.read(_HEAD_BYTES)
        return file.seek(0, 2), zlib.crc32(head)


def parse_image_header(file: BinaryIO) -> ImageHeader:
    """Read the header of an image from an open file, or from a part of one, from its beginning.

    Raises ImageError as `read_image_header` does, and OSError.
    """
    head = file.read(_HEAD_BYTES)
    scanned = _scan(head, file)
    if scanned is None:
        raise ImageError("image-unreadable", _why_unreadable(head))
    if scanned.format not in DECODED_FORMATS:
        raise ImageError("image-format", f"is {scanned.format}, which DALI does not decode; save it as JPEG or PNG")
    width, height = scanned.stored_size
    if width < 1 or height < 1:
        raise ImageError("image-unreadable", f"has a header of {width} x {height} pixels")
    displayed = (height, width) if scanned.orientation in (5, 6, 7, 8) else (width, height)
    bits = head[24] if scanned.format == "PNG" and head[25] == _PNG_PALETTE else 0
    pixels, length = read_pixel_type(head, file), file.seek(0, 2)
    return ImageHeader(
        *displayed, scanned.stored_size, scanned.orientation, scanned.format, length, zlib.crc32(head), bits, pixels,
        scanned.has_more,
    )  # fmt: skip


class _Scanned(NamedTuple):
    format: str
    stored_size: tuple[int, int]
    """(width, height) in pixels, before the orientation is applied."""
    orientation: int
    has_more: bool = False
    """As of `ImageHeader`."""


def _scan(head: bytes, file: BinaryIO) -> _Scanned | None:
    if head[:2] == b"\xff\xd8":
        scanned = _scan_jpeg(head)
        # the frame header may lie behind long EXIF data and color profiles
        if scanned is None and len(head) == _HEAD_BYTES:
            scanned = _scan_jpeg(head + file.read(_LONG_HEAD_BYTES))
        if scanned is None and len(head) == _HEAD_BYTES:
            file.seek(0)
            scanned = _scan_jpeg(file.read(1 << 25))
        return scanned
    if head[:8] == b"\x89PNG\r\n\x1a\n":
        return _scan_png(head, file)
    if (image_format := heif.format_of(head)) is not None:
        if not heif.decodes(image_format):
            raise ImageError("image-format", heif.why_undecoded(image_format))
        scanned = _scan_with_pillow(file, ("AVIF", "HEIF"))
        is_sequence = head[8:12] in (b"avis", b"msf1", b"hevc", b"hevx")
        return None if scanned is None else scanned._replace(format=image_format, has_more=is_sequence)
    if head[:4] in TIFF_MAGIC:
        tiff = read_tiff_header(file)
        return _Scanned("TIFF", tiff.size, tiff.orientation, has_further_pages(file)) if tiff else None
    if head[4:8] == b"jP  " or head[:4] == b"\xff\x4f\xff\x51":
        jpeg2000 = read_jpeg2000_header(head, file)
        return _Scanned("JPEG2000", jpeg2000[0], 1) if jpeg2000 else None
    if head[:6] == NPY_MAGIC:
        npy = read_npy_header(file)
        return _Scanned("NPY", (npy.shape[1], npy.shape[0]), 1) if npy else None
    scanned = _scan_with_pillow(file)
    if scanned and scanned.format == "WEBP":  # the flag of animations in the extended header
        return scanned._replace(has_more=head[12:16] == b"VP8X" and bool(head[20] & 0x02))
    return scanned


def _why_unreadable(head: bytes) -> str:
    if not head:
        return "is empty (0 bytes)"
    if head[:2] == b"\xff\xd8":
        return "is a JPEG whose header is broken or cut off"
    return what_is("", head) or "is not an image that can be read"


def _scan_jpeg(data: bytes) -> _Scanned | None:
    """Walk the segments of a JPEG up to its first scan. Returns None where that is not within data."""
    position, size, orientation = 2, None, 1
    last = len(data) - 9
    while position <= last and data[position] == 0xFF:
        marker = data[position + 1]
        if marker == 0xFF:  # a fill byte
            position += 1
            continue
        if marker == 0xDA:
            return None if size is None else _Scanned("JPEG", size, orientation)
        length = data[position + 2] << 8 | data[position + 3]
        if length < 2 or marker < 0xC0 or 0xD0 <= marker <= 0xD9:  # markers without a length; DALI refuses them too
            return None
        if marker in JPEG_FRAMES:
            height, width = struct.unpack_from(">HH", data, position + 5)
            size = (width, height)
        elif marker == 0xE1 and data[position + 4 : position + 10] == b"Exif\0\0":
            orientation = exif_orientation(data[position + 10 : position + 2 + length])
        position += 2 + length
    return None


def _scan_png(head: bytes, file: BinaryIO) -> _Scanned | None:
    """Walk all chunks of a PNG, since eXIf may come after the pixels."""
    if len(head) < 33 or head[12:16] != b"IHDR":
        return None
    position, orientation, seen, is_animated = 33, 1, False, False
    while True:
        file.seek(position)
        chunk = file.read(8)
        if len(chunk) < 8 or chunk[4:] == b"IEND":
            if head[24:26] == _RGBA_OF_16_BITS and orientation in _TURNS:
                raise ImageError(
                    "image-format", "has 16-bit RGBA rotated by EXIF, which DALI reads unturned; save it upright"
                )
            width, height = struct.unpack_from(">II", head, 16)
            return _Scanned("PNG", (width, height), orientation, is_animated)
        length = int.from_bytes(chunk[:4], "big")
        if chunk[4:] == b"eXIf":
            if seen:
                raise ImageError("image-format", "has two eXIf chunks, which crash DALI's decoder; save it again")
            seen = True
            orientation = exif_orientation(file.read(min(length, 1 << 16)))
        is_animated |= chunk[4:] == b"acTL" and file.read(4) > b"\0\0\0\1"  # the number of frames
        position += 12 + length


def exif_orientation(tiff: bytes) -> int:
    """Return the orientation in an EXIF block, from its TIFF header on, as DALI reads it; 1 where there is none.

    May be a value outside 1 to 8, which DALI ignores. A directory that ends after the block is ignored.
    """
    order = {b"II*\0": "<", b"MM\0*": ">"}.get(tiff[:4])
    if order is None or len(tiff) < 8:
        return 1
    (directory,) = struct.unpack_from(order + "I", tiff, 4)
    if directory + 2 > len(tiff):
        return 1
    (count,) = struct.unpack_from(order + "H", tiff, directory)
    first, last = directory + 2, directory + 2 + 12 * (count - 1)
    if last + 10 > len(tiff):
        return 1
    for entry in range(first, last + 1, 12):
        tag, value = struct.unpack_from(order + "H6xH", tiff, entry)
        if tag == _ORIENTATION_TAG:
            return int(value)
    return 1


def read_orientation(file: BinaryIO) -> int:
    """Return the orientation of an image that DALI shows, from its beginning, where `file` is left; 1 of others."""
    try:
        return parse_image_header(file).orientation
    except ImageError:
        return 1
    finally:
        file.seek(0)


def upright(image: Any, orientation: int) -> Any:
    """Return an image of Pillow as displayed. `orientation`: of its header, which Pillow itself may read otherwise.

    Pillow rotates a TIFF when it decodes it, and then it has no orientation left; that of other formats stays.
    """
    from PIL import Image

    if image.format == "TIFF":
        image.load()
        orientation = image.getexif().get(0x0112, 1)
    turn = _TURNS.get(orientation)
    return image if turn is None else image.transpose(Image.Transpose[turn])


_TURNS = {
    2: "FLIP_LEFT_RIGHT",
    3: "ROTATE_180",
    4: "FLIP_TOP_BOTTOM",
    5: "TRANSPOSE",
    6: "ROTATE_270",
    7: "TRANSVERSE",
    8: "ROTATE_90",
}
"""Pillow's names of what shows an image of an orientation upright."""


def _scan_with_pillow(file: BinaryIO, formats: tuple[str, ...] = _PILLOW_FORMATS) -> _Scanned | None:
    from PIL import Image  # slow to import, and few images need it

    file.seek(0)
    try:
        with without_pillows_warnings(), allow_pixels(ANY_NUMBER):  # only the header is read
            image = Image.open(file, formats=formats)
            exif = image.info.get("exif", b"")
            return _Scanned(image.format or "", image.size, exif_orientation(exif.removeprefix(b"Exif\0\0")))
    except PILLOW_ERRORS:
        return None


SizeOrFault = tuple[int, int] | str
"""(height, width) as displayed, or why a file cannot be used: "is empty (0 bytes)"."""

FEW = 20_000
"""Files that one process reads in about a second: as long as others need to start."""
_CHUNK = 2_000
_NOT_THE_FILES_FAULT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def read_image_sizes(paths: Sequence[str]) -> list[SizeOrFault]:
    """Return the size of each image, from its header. Raises OSError where no file is at fault, such as ENOMEM."""
    processes = min(available_cores(), len(paths) // FEW + 1)
    if processes == 1:
        return _read_sizes(paths)
    chunks = (paths[start : start + _CHUNK] for start in range(0, len(paths), _CHUNK))
    return list(chain.from_iterable(map_in_processes(_read_sizes, chunks, processes)))


def _read_sizes(paths: Sequence[str]) -> list[SizeOrFault]:
    return [_read_size(path) for path in paths]


def _read_size(path: str) -> SizeOrFault:
    try:
        header = read_image_header(path)
    except ImageError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in _NOT_THE_FILES_FAULT:
            raise cause from None
        return str(error)
    return header.height, header.width


_END_MARKERS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82"}
_TAIL_BYTES = 64  # some cameras write a few bytes after the end


def is_cut_off(path: PathLike | ImageFile, header: ImageHeader) -> bool:
    """Return whether a JPEG or PNG lacks its end marker; False for other formats. Raises OSError.

    Reads the last bytes. Only where the marker is not among them, as in files padded with zeros or with a video after
    the image, the rest is searched. The pixels of a JPEG cannot contain the marker; a thumbnail before them does.
    """
    marker = _END_MARKERS.get(header.format)
    if marker is None:
        return False
    with opened(path) as file:
        file.seek(max(0, header.file_bytes - _TAIL_BYTES))
        if marker in file.read(_TAIL_BYTES):
            return False
        file.seek(0)
        data = file.read()
        return data.find(marker, _first_scan(data) if header.format == "JPEG" else 0) < 0


def _first_scan(jpeg: bytes) -> int:
    """Return the position at which the pixels of a JPEG begin."""
    position = 2
    while len(marker := jpeg[position : position + 2]) == 2 and marker != b"\xff\xda":
        length = int.from_bytes(jpeg[position + 2 : position + 4], "big")
        position += 1 if marker == b"\xff\xff" else 2 + length  # 1: a fill byte
    return position
