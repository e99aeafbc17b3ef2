"""Findings about image files, the same for every format."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from detaug.converters.files.image_headers import DALI_FORMATS, ImageHeader
from detaug.converters.files.paths import regular_status
from detaug.converters.findings.finding import Finding


def missing_images(names: Mapping[int, str], images: Path | None) -> Iterator[tuple[int, Finding]]:
    """Yield (position, finding) for each image that is not in the folder; nothing without a folder. Raises OSError."""
    for at, name in names.items() if images else ():
        if regular_status(os.path.join(images or "", name)) is None:
            yield at, Finding(name, "image-missing", note=f"is not in {images}")


def header_findings(image: str, file: str, header: ImageHeader) -> Iterator[Finding]:
    """Yield findings about an image's header. file: the image's name in the findings."""
    extension = os.path.splitext(image)[1].lower()
    if extension not in DALI_FORMATS[header.format]:
        yield Finding(file, "image-extension", before=extension, after=header.format)
    if not 1 <= header.orientation <= 8:
        yield Finding(file, "orientation-invalid", before=header.orientation, after=1)
