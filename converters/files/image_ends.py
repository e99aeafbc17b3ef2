"""Find images that are cut off, by their end marker: without decoding a pixel."""

from __future__ import annotations

from detaug.converters.files.image_file import ImageFile, opened
from detaug.converters.files.image_headers import ImageHeader
from detaug.converters.files.paths import PathLike

_END_MARKERS = {"JPEG": b"\xff\xd9", "PNG": b"IEND\xaeB`\x82"}
_TAIL_BYTES = 64  # some cameras write a few bytes after the end


def is_cut_off(path: PathLike | ImageFile, header: ImageHeader) -> bool:
    """Return whether a JPEG or PNG lacks its end marker; False for other formats. Raises OSError.

    Reads the last bytes. Only where the marker is not among them, as in files padded with zeros or with a video after
    the picture, the rest is searched. The pixels of a JPEG cannot contain the marker; a thumbnail before them does.
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
