"""Compare files by their content."""

from __future__ import annotations

from hashlib import blake2b

from detaug.converters.files.paths import PathLike


def digest(path: PathLike) -> bytes:
    """16 bytes that are the same for files with the same content, and for no others."""
    summed = blake2b(digest_size=16)
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            summed.update(block)
    return summed.digest()
