"""Large images: let Pillow open those that are meant, and find those of which the file has next to nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

ANY_NUMBER = 1 << 62
"""Of pixels, where only a header is read, or another decoder has checked the size."""

ENORMOUS = 1 << 27
"""Pixels of an image that is looked at more closely before it is decoded: 0.4 GB of RGB."""

_PIXELS_OF_BYTE = 1000
"""A photograph has a few. Even a single colour has 512 in a JPEG, and about 350 of RGB in a PNG."""

_lock = Lock()
_allowed: list[int] = []
_usual: list[int | None] = []


@contextmanager
def allow_pixels(pixels: int) -> Iterator[None]:
    """Let Pillow open and load images of so many pixels, in any thread, as long as the context is open."""
    with _lock:
        _allowed.append(pixels)
        _set_limit()
    try:
        yield
    finally:
        with _lock:
            _allowed.remove(pixels)
            _set_limit()


def _set_limit() -> None:
    from PIL import Image  # slow to import, and few images need it

    if not _usual:
        _usual.append(Image.MAX_IMAGE_PIXELS)
    usual = _usual[0]
    Image.MAX_IMAGE_PIXELS = None if usual is None else max([usual, *_allowed])
    if not _allowed:
        _usual.clear()


def too_few_bytes(width: int, height: int, length: int) -> str:
    """Return why a file of `length` bytes cannot hold an image, as the end of a sentence about it; "" if it may.

    Decoders allocate what a header says, and fill it with zeros or grey where the file ends: gigabytes.
    """
    if width * height <= max(ENORMOUS, _PIXELS_OF_BYTE * length):
        return ""
    return f"has {width} x {height} pixels in its header, too many for its {length:,} bytes"
