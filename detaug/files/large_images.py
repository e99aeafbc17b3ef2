"""What Pillow warns of and refuses, in any thread; images of which the file has next to nothing."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import Lock

ANY_NUMBER = 1 << 62
"""Of pixels, where only a header is read, or another decoder has checked the size."""

ENORMOUS = 1 << 27
"""Pixels of an image that is looked at more closely before it is decoded: 0.4 GB of RGB."""

_PIXELS_OF_BYTE = 1000
"""An image has a few. Even a single color has 512 in a JPEG, and about 350 of RGB in a PNG."""

_PILLOWS_MODULES = r"(PIL|pillow_\w+)\b(?#detaug)"
"""The comment makes the filter another one than any that a user sets."""

_lock = Lock()
_silent: list[bool] = []
_allowed: list[int] = []
_usual: list[int | None] = []


@contextmanager
def allow_pixels(pixels: int) -> Iterator[None]:
    """Let Pillow open and load images of this many pixels, in any thread, as long as the context is open."""
    with _lock:
        _allowed.append(pixels)
        _set_limit()
    try:
        yield
    finally:
        with _lock:
            _allowed.remove(pixels)
            _set_limit()


@contextmanager
def without_pillows_warnings() -> Iterator[None]:
    """Ignore the warnings of Pillow, in any thread, as long as the context is open.

    `warnings.catch_warnings` is for one thread: of two, the last one to leave restores the filters of the other.
    """
    with _lock:
        if not _silent:
            warnings.filterwarnings("ignore", module=_PILLOWS_MODULES)
        _silent.append(True)
    try:
        yield
    finally:
        with _lock:
            _silent.pop()
            if not _silent:
                own = [entry for entry in warnings.filters if getattr(entry[3], "pattern", None) == _PILLOWS_MODULES]
                for entry in own:
                    with suppress(ValueError):  # by now removed by `warnings.resetwarnings`
                        warnings.filters.remove(entry)  # type: ignore[attr-defined]


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

    Decoders allocate what a header says, and fill it with zeros or gray where the file ends: gigabytes.
    """
    if width * height <= max(ENORMOUS, _PIXELS_OF_BYTE * length):
        return ""
    return f"has {width} x {height} pixels in its header, too many for its {length:,} bytes"
