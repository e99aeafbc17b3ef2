"""Find images that the decoder must not see: each once, from its first bytes, before it is decoded.

Of some it would lose bands or bits; others say that they are enormous, and are next to nothing.
"""

from __future__ import annotations

import os
from typing import Any, BinaryIO, cast

import numpy as np

from detaug.arrays import Bools, Bytes, Ints
from detaug.files.image_file import BytesFile
from detaug.files.large_images import ENORMOUS, too_few_bytes
from detaug.files.pixel_types import PixelType, read_pixel_type
from detaug.loading.bad_files import BadFiles, BadFilesFound
from detaug.sources.source import Source

_HEAD_BYTES = 4096
_JPEG_ENDINGS = np.frombuffer(b".jpgjpeg.jpejfif", np.uint32)


class PixelCheck:
    """Reads the type of the images of a source, but for JPEGs, which have 8 bits: with files, by their names."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._unknown: Bools = np.full(len(source), not source.decodes)

    def check(self, indices: Ints, encoded: dict[str, Any]) -> None:
        """Check images that are decoded for the first time. `encoded`: the inputs of the decoder, by name.

        Raises BadFilesFound for those that must not be decoded. A file that cannot be read is left to the decoder.
        """
        unknown = self._unknown[indices]
        if not unknown.any():
            return
        positions = np.flatnonzero(unknown)
        bad, expected = BadFiles(), self._source.pixel_format
        for position in positions[self._source.pixels[indices[positions]] > ENORMOUS].tolist():
            index, length = int(indices[position]), _length(encoded, position)
            height, width = self._source.sizes[index].tolist()
            if length and (fault := too_few_bytes(width, height, length)):
                bad[index] = f"{self._source.path(index)} {fault}"
        if "path" in encoded:
            positions = positions[~_named_jpeg(encoded["path"][positions])]
        for position in positions.tolist():
            pixels = (
                _type_of_file(encoded["path"][position])
                if "path" in encoded
                else _type_of_bytes(encoded["bytes"][position])
            )
            if pixels and (fault := pixels.fault(expected.channels, expected.dtype, as_is=not expected.is_rgb8)):
                index = int(indices[position])
                bad[index] = f"{self._source.path(index)} {fault}"
        if bad:
            raise BadFilesFound(bad)
        self._unknown[indices] = False


def _length(encoded: dict[str, Any], position: int) -> int:
    """Return the bytes of an image; 0 for one that is not read, or not there."""
    if "path" not in encoded:
        content = np.asarray(encoded["bytes"][position])
        return len(content) if len(content) > 1 else 0
    try:
        return os.stat(_name(encoded["path"][position])).st_size
    except OSError:
        return 0


def _named_jpeg(paths: Bytes) -> Bools:
    """Return (N,): which paths, (N, longest) padded with zeros, end like those of JPEGs."""
    ends = (paths != 0).sum(1)[:, None] + np.arange(-4, 0)
    letters = np.take_along_axis(paths, ends.clip(0), 1) | 0x20  # in lower case
    return np.isin(np.ascontiguousarray(letters).view(np.uint32)[:, 0], _JPEG_ENDINGS)


def _name(path: Bytes) -> str:
    return os.fsdecode(path.tobytes().rstrip(b"\0"))


def _type_of_file(path: Bytes) -> PixelType | None:
    try:
        with open(_name(path), "rb", buffering=0) as file:
            return read_pixel_type(file.read(_HEAD_BYTES), file)
    except OSError:
        return None


def _type_of_bytes(content: Any) -> PixelType | None:
    """Return the type of an image; None for a byte, which is what is not read, or is broken."""
    data = np.asarray(content)
    if len(data) <= 1:
        return None
    head = data[:_HEAD_BYTES].tobytes()
    return read_pixel_type(head, cast(BinaryIO, BytesFile(data)))
