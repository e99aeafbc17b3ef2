"""Read how many bands an image file has, and of what type its values are, from its header.

The loader decodes to 8-bit RGB unless its reader says otherwise, and DALI's decoders cut in silence what does not fit:
16 bits become 8, of more than three bands the first three are left. A band that a file declares as alpha is left out by
every reader of RGB, and is not counted as lost.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Collection, Iterator
from itertools import islice
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from detaug.errors import InputError
from detaug.findings.finding import counted

TIFF_MAGIC = {b"II*\0": "<", b"MM\0*": ">", b"II+\0": "<", b"MM\0+": ">"}
_TIFF_VALUES = {1: "B", 3: "H", 4: "I", 16: "Q"}  # BYTE, SHORT, LONG, LONG8
_TIFF_KINDS = {1: "uint", 2: "int", 3: "float", 4: "uint"}  # SampleFormat; 4 is "undefined"
_BLACK_IS_ZERO, _RGB, _PALETTE, _SEPARATED, _YCBCR = 1, 2, 3, 5, 6  # PhotometricInterpretation
_PNG_BANDS = {0: 1, 2: 3, 3: 3, 4: 2, 6: 4}  # by color type; a palette has RGB


RGB8 = (3, "uint8")
"""The channels and dtype of a reader that converts all images to 8-bit RGB."""

DTYPES = ("uint8", "uint16", "float32")
"""Types that a reader can have."""


class PixelType(NamedTuple):
    """The bands of an image, and the type of their values."""

    bands: int = 3
    """Of a palette and of CMYK the three that they are converted to."""
    dtype: str = "uint8"
    """NumPy's name for it; of less than 8 bits uint8, of 12 bits uint12, but for JPEG 2000, which has them in 16."""
    alpha: bool = False
    """Whether the last band is declared as alpha."""
    planar: bool = False
    """Whether a TIFF stores one band after the other."""
    rgb: bool = True
    """Whether a file does not say that its bands are other colors than red, green and blue."""
    cmyk: bool = False
    converted: bool = False
    """Whether a TIFF has white as 0, or CIELAB: DALI converts those values, or refuses them."""

    @property
    def loss(self) -> str:
        """Return what 8-bit RGB would lose, as the end of a sentence about the file; "" if nothing."""
        bands = self.bands - self.alpha
        left = 1 if bands == 2 or (self.planar and not self.rgb) else 3  # DALI reads the first of other planes only
        if self.dtype != "uint8":
            return f"has {counted(bands, 'band')} of type {self.dtype}, of which 8-bit RGB would be left"
        return f"has {counted(bands, 'band')}, of which {left} would be left" if bands > left else ""

    def fault(self, channels: int, dtype: str, *, as_is: bool = False) -> str:
        """Return why a reader with these arguments cannot use the image, and what to do; "" if it can.

        It is the end of a sentence about the file. as_is: whether 3 and "uint8" means three bands of the file, too, not
        what becomes RGB.
        """
        if (channels, dtype) == RGB8 and not as_is:
            return f"{self.loss}; {self._remedy}" if self.loss else ""
        if self.cmyk:
            return "has CMYK, which only a reader of 8-bit RGB converts; save it like the others"
        if (self.bands, self.dtype) == (channels, dtype):
            return ""
        expected = f"the reader has channels={channels}, dtype={dtype!r}"
        return f"has {counted(self.bands, 'band')} of type {self.dtype}, and {expected}; save it like the others"

    @property
    def _remedy(self) -> str:
        if self.dtype in DTYPES:
            return f'read it with CocoReader(channels={self.bands}, dtype="{self.dtype}"), or save it as 8-bit RGB'
        return "save it as 8-bit RGB, or as uint16 or float32 for CocoReader(channels=, dtype=)"


class TiffHeader(NamedTuple):
    """The first image of a TIFF."""

    size: tuple[int, int]
    """(width, height) as stored."""
    orientation: int
    pixels: PixelType


NPY_MAGIC = b"\x93NUMPY"


class NpyHeader(NamedTuple):
    """The header of an array (H, W) or (H, W, C) in a .npy file."""

    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    by_columns: bool
    """Whether the first axis changes fastest, as in Fortran."""
    start: int
    """Where the values begin."""

    @property
    def pixels(self) -> PixelType:
        return PixelType(self.shape[2] if len(self.shape) == 3 else 1, self.dtype.newbyteorder("=").name)


def read_npy_header(file: BinaryIO) -> NpyHeader | None:
    """Return the header, None for other arrays and for a broken file.

    Its text is not left to NumPy, which has Python's parser read it: in threads that fails now and then, with a
    SystemError if the garbage collector runs meanwhile (seen in Python 3.11).
    """
    file.seek(0)
    head = file.read(12)
    # version 1 has a length of 2 bytes, later ones of 4
    start = 10 if head[6:7] == b"\1" else 12
    length = int.from_bytes(head[8:start], "little")
    file.seek(start)
    text = file.read(length) if length <= _LONGEST_NPY_HEADER else b""
    matches = [pattern.search(text) for pattern in (_NPY_TYPE, _NPY_ORDER, _NPY_SHAPE)]
    if len(text) < length or None in matches:
        return None
    (of_type, by_columns, sides) = (match[1].decode() for match in matches if match)
    shape = tuple(int(side) for side in re.findall(r"\d+", sides))
    if len(shape) not in (2, 3) or not all(shape):
        return None
    return NpyHeader(shape, np.dtype(of_type), by_columns == "True", start + length)


_LONGEST_NPY_HEADER = 10_000  # as NumPy has it
_NPY_TYPE = re.compile(rb"""['"]descr['"]\s*:\s*['"]([<>|=]?(?:[ui][1248]|f[248]))['"]""")
_NPY_ORDER = re.compile(rb"""['"]fortran_order['"]\s*:\s*(True|False)""")
_NPY_SHAPE = re.compile(rb"""['"]shape['"]\s*:\s*\(([\d\s,L]*)\)""")


def read_pixel_type(head: bytes, file: BinaryIO) -> PixelType:
    """Return the bands and the type of an image; 8-bit RGB for what is broken or of another format. Raises OSError.

    `head`: the first bytes of `file`, 64 at least.
    """
    if head[:2] == b"\xff\xd8":
        if pixels := _of_jpeg(head):
            return pixels
        file.seek(0)
        return _of_jpeg(file.read(1 << 18)) or PixelType()
    if head[:8] == b"\x89PNG\r\n\x1a\n" and len(head) > 25:
        bits, color = head[24], head[25]
        return PixelType(_PNG_BANDS.get(color, 3), "uint16" if bits == 16 else "uint8", alpha=color in (4, 6))
    if head[:4] in TIFF_MAGIC:
        tiff = read_tiff_header(file)
        return tiff.pixels if tiff else PixelType()
    if head[4:8] == b"jP  " or head[:4] == b"\xff\x4f\xff\x51":
        jpeg2000 = read_jpeg2000_header(head, file)
        return jpeg2000[1] if jpeg2000 else PixelType()
    if head[:6] == NPY_MAGIC:
        npy = read_npy_header(file)
        return npy.pixels if npy else PixelType()
    if head[:2] in (b"P5", b"P6", b"P2", b"P3"):
        return _of_pnm(head)
    if head[8:16] == b"WEBPVP8X" or head[8:16] == b"WEBPVP8L":
        # the bit that declares an alpha channel
        alpha = head[20] & 0x10 if head[15] == ord("X") else head[24] & 0x10
        return PixelType(4, alpha=True) if alpha else PixelType()
    return PixelType()


def refuse_loss(path: object, file: BinaryIO) -> None:
    """Raise InputError for an image that 8-bit RGB would cut. `file`: open at its start, where it is left."""
    fault = read_pixel_type(file.read(4096), file).fault(*RGB8)
    if fault:
        raise InputError(f"{path} {fault}")
    file.seek(0)


def _of_jpeg(data: bytes) -> PixelType | None:
    """Return the type of a JPEG, None where its frame header is not within `data`."""
    position = 2
    while data[position : position + 1] == b"\xff" and position + 10 <= len(data):
        marker = data[position + 1]
        if marker in JPEG_FRAMES:
            bands, bits = data[position + 9], data[position + 4]
            return PixelType(min(bands, 3), _type_name("uint", bits), cmyk=bands > 3)
        position += 1 if marker == 0xFF else 2 + (data[position + 2] << 8 | data[position + 3])  # 1: a fill byte
    return None


JPEG_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""Markers of frame headers, which have the size."""


def _of_pnm(head: bytes) -> PixelType:
    lines = [line.partition(b"#")[0] for line in head.splitlines()]
    words = b" ".join(lines).split(maxsplit=4)
    largest = int(words[3]) if len(words) > 3 and words[3].isdigit() else 255
    return PixelType(3 if head[1:2] in (b"6", b"3") else 1, _type_name("uint", largest.bit_length()))


def _type_name(kind: str, bits: int) -> str:
    return "uint8" if kind == "uint" and bits <= 8 else f"{kind}{bits}"


# ------------------------------------------------------------------------------------------------- TIFF


def read_tiff_header(file: BinaryIO) -> TiffHeader | None:
    """Return the header of a TIFF or BigTIFF, None for a broken one. Raises OSError."""
    try:
        directory = next(_tiff_directories(file))
        return _tiff_header({tag: values for tag, values in _tiff_tags(file, directory, _TIFF_TAGS) if values})
    except (struct.error, KeyError, OverflowError, ValueError, StopIteration):
        return None


def has_further_pages(file: BinaryIO) -> bool:
    """Return whether a TIFF has pages after the first one: images that are neither smaller copies nor masks of it.

    The tag 254, NewSubfileType, says what a directory is: bit 0 a reduced image, as in a Cloud Optimized GeoTIFF, bit 2
    a mask (TIFF 6.0, section 8). Raises OSError.
    """
    try:
        for directory in islice(_tiff_directories(file), 1, None):
            (kind,) = dict(_tiff_tags(file, directory, {_KIND_OF_PAGE})).get(_KIND_OF_PAGE, (0,))
            if not kind & 0b101:
                return True
    except (struct.error, OverflowError, ValueError):
        pass  # a broken directory: the first image is read all the same
    return False


def _tiff_header(tags: dict[int, tuple[int, ...]]) -> TiffHeader | None:
    size = tags[256][0], tags[257][0]
    bands, photometric = tags.get(277, (1,))[0], tags.get(262, (1,))[0]
    bits, kinds = set(tags.get(258, (1,))), set(tags.get(339, (1,)))
    kind = _TIFF_KINDS.get(kinds.pop(), "unknown") if len(kinds) == 1 else "unknown"
    name = _type_name(kind, bits.pop()) if len(bits) == 1 else "of several types"
    extra = tags.get(338, ())
    alpha = bool(extra) and extra[-1] in (1, 2)  # ExtraSamples: associated or unassociated alpha
    planar = tags.get(284, (1,))[0] == 2 and bands > 1
    if photometric in (_PALETTE, _SEPARATED, _YCBCR):
        extra_bands = bands - {_PALETTE: 1, _SEPARATED: 4, _YCBCR: 3}[photometric]
        bands = 3 + max(0, extra_bands)
    rgb, black_is_zero = photometric in (_RGB, _PALETTE, _SEPARATED, _YCBCR), photometric == _BLACK_IS_ZERO
    pixels = PixelType(bands, name, alpha, planar, rgb, photometric == _SEPARATED, not (rgb or black_is_zero))
    return TiffHeader(size, tags.get(274, (1,))[0], pixels)


class _TiffDirectory(NamedTuple):
    """The rows of a directory as they are in the file: a tag, the type, the number and the place of its values each."""

    order: str
    number: str
    """The format of offsets: that of BigTIFF is longer."""
    rows: bytes


def _tiff_directories(file: BinaryIO) -> Iterator[_TiffDirectory]:
    """Yield the directories of a TIFF, one for each image in it. Raises struct.error and OSError."""
    file.seek(0)
    head = file.read(16)
    order, big = TIFF_MAGIC[head[:4]], head[2:3] == b"+" or head[3:4] == b"+"
    number, count, entry = ("Q", "Q", 20) if big else ("I", "H", 12)
    (start,) = struct.unpack_from(order + number, head, 8 if big else 4)
    seen: set[int] = set()  # a broken chain may be a circle
    while start and start not in seen and len(seen) < _MOST_DIRECTORIES:
        seen.add(start)
        file.seek(start)
        (entries,) = struct.unpack(order + count, file.read(struct.calcsize(order + count)))
        rows, following = file.read(entry * min(entries, 4096)), file.read(struct.calcsize(number))
        yield _TiffDirectory(order, number, rows)
        (start,) = struct.unpack(order + number, following)


def _tiff_tags(
    file: BinaryIO, directory: _TiffDirectory, wanted: Collection[int]
) -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield the tags of a directory that are wanted and whose values are whole numbers."""
    (order, number, rows), length_of_offset = directory, struct.calcsize(directory.number)
    entry = 4 + 2 * length_of_offset
    for start in range(0, len(rows) - entry + 1, entry):
        tag, kind, length = struct.unpack_from(f"{order}HH{number}", rows, start)
        if tag in wanted and kind in _TIFF_VALUES and length <= 4096:
            form = f"{order}{length}{_TIFF_VALUES[kind]}"
            inline = rows[start + entry - length_of_offset : start + entry]
            if struct.calcsize(form) > len(inline):
                file.seek(struct.unpack(order + number, inline)[0])
                inline = file.read(struct.calcsize(form))
            yield tag, struct.unpack_from(form, inline)


_MOST_DIRECTORIES = 64
"""Directories to look at."""

_KIND_OF_PAGE = 254
_TIFF_TAGS = frozenset({256, 257, 258, 262, 274, 277, 284, 338, 339})


# --------------------------------------------------------------------------------------------- JPEG 2000


def read_jpeg2000_header(head: bytes, file: BinaryIO) -> tuple[tuple[int, int], PixelType] | None:
    """Return (width, height) and the type of a JPEG 2000, None for a broken one. `head`: the first bytes of `file`."""
    try:
        start, palette, alpha = (0, False, False) if head[:2] == b"\xff\x4f" else _jp2_boxes(file)
        file.seek(start)
        code = file.read(64)
        if code[:4] != b"\xff\x4f\xff\x51":
            return None
        right, bottom, left, top = struct.unpack_from(">4I", code, 8)
        bands, depth = struct.unpack_from(">HB", code, 40)
        bits, kind = (depth & 0x7F) + 1, "int" if depth & 0x80 else "uint"
        bits = 16 if 8 < bits < 16 else bits  # the decoder returns them unchanged
        return (right - left, bottom - top), PixelType(3 if palette else bands, _type_name(kind, bits), alpha)
    except struct.error:
        return None


def _jp2_boxes(file: BinaryIO) -> tuple[int, bool, bool]:
    """Return where the codestream of a JP2 begins, whether it has a palette, and an alpha band."""
    position, palette, alpha = 0, False, False
    for _ in range(1000):
        file.seek(position)
        box = file.read(16)
        length, name = struct.unpack_from(">I4s", box)
        start = 16 if length == 1 else 8
        if length == 1:
            (length,) = struct.unpack_from(">Q", box, 8)
        if name == b"jp2c":
            return position + start, palette, alpha
        if name == b"jp2h":
            file.seek(position + start)
            inner = file.read(min(length, 1 << 20))
            palette = b"pclr" in inner
            alpha = _has_opacity(inner)
        if length < start:  # to the end of the file, or broken
            break
        position += length
    raise struct.error


def _has_opacity(boxes: bytes) -> bool:
    """Return whether a channel definition of a JP2 header, its last one, is opacity."""
    position = boxes.find(b"cdef")
    if position < 0:
        return False
    (channels,) = struct.unpack_from(">H", boxes, position + 4)
    kinds = {struct.unpack_from(">HH", boxes, position + 6 + 6 * index) for index in range(min(channels, 256))}
    return bool(kinds) and max(kinds)[1] in (1, 2)
