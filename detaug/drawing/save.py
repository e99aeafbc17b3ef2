"""Write a picture to a file."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

from PIL import Image

from detaug.converters.files.atomic import write_atomically
from detaug.converters.findings.errors import InputError

FORMATS: dict[str, dict[str, Any]] = {
    ".png": {"format": "PNG", "optimize": True},
    ".jpg": {"format": "JPEG", "quality": 88, "subsampling": 0},
    ".webp": {"format": "WEBP", "quality": 88},
}
"""Pillow's options by extension."""


def save_picture(picture: Image.Image, path: str | os.PathLike[str]) -> Path:
    """Write a picture, whole or not at all, in the format of its extension: .png, .jpg, .webp.

    Raises InputError for another extension, OSError where the folder cannot be written to.
    """
    encoded = io.BytesIO()
    picture.save(encoded, **_format_of(Path(path)))
    write_atomically(path, [encoded.getbuffer()])
    return Path(path)


def check_output(path: Path, *more: str) -> None:
    """Raise InputError before the work begins if a picture cannot be written to `path`.

    more: extensions that are allowed beside those of `save_picture`.
    """
    if path.suffix.lower() not in more:
        _format_of(path)
    if path.is_dir():
        raise InputError(f"output {path} is a folder; give the name of a picture")
    if not path.parent.is_dir():
        raise InputError(f"output folder {path.parent} does not exist; make it first")
    if not os.access(path.parent, os.W_OK):
        raise InputError(f"output folder {path.parent} cannot be written to")


def _format_of(path: Path) -> dict[str, Any]:
    """Return Pillow's options for a file of this name. Raises InputError for an unknown extension."""
    extension = path.suffix.lower().replace(".jpeg", ".jpg")
    if extension not in FORMATS:
        raise InputError(f"{path} must end in {', '.join(FORMATS)}, got {path.suffix or 'no extension'!r}")
    return FORMATS[extension]
