"""Write a picture to a file."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from PIL import Image

from detaug.converters.conversion.arguments import MARK
from detaug.converters.files.atomic import write_atomically
from detaug.errors import InputError

FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"format": "PNG", "optimize": True},
    ".jpg": {"format": "JPEG", "quality": 88, "subsampling": 0},
    ".jpeg": {"format": "JPEG", "quality": 88, "subsampling": 0},
    ".webp": {"format": "WEBP", "quality": 88},
}
"""Pillow's options by extension."""

PICTURES = tuple(FORMATS)

_SOFTWARE = 0x131  # EXIF's tag


def save_picture(picture: Image.Image, path: str | os.PathLike[str]) -> Path:
    """Write a picture, whole or not at all, in the format of its extension: .png, .jpg, .webp.

    Raises InputError for another extension, OSError where the folder cannot be written to.
    """
    encoded = io.BytesIO()
    picture.save(encoded, exif=_exif_with_mark(), **_format_of(Path(path)))
    write_atomically(path, [encoded.getbuffer()])
    return Path(path)


def _exif_with_mark() -> Image.Exif:
    """Return EXIF data by which `output_files` knows a picture of detaug again."""
    exif = Image.Exif()
    exif[_SOFTWARE] = MARK
    return exif


def _format_of(path: Path) -> dict[str, Any]:
    """Return Pillow's options for a file of this name. Raises InputError for an unknown extension."""
    extension = path.suffix.lower()
    if extension not in FORMATS:
        raise InputError(f"{path} must end in {', '.join(FORMATS)}, got {path.suffix or 'no extension'!r}")
    return FORMATS[extension]
