"""CRC-32C: the checksum of TFRecord's records, and of each image in a shard."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from detaug.errors import InputError


class ImageChanged(OSError):
    """Raised for an image in a shard whose bytes are not those that its json was written for."""

    def __init__(self, offset: int, found: int, expected: int) -> None:
        super().__init__(
            f"its bytes, from {offset:,} on in the shard, are others than when the json was written: their CRC-32C is "
            f"{found:#010x} instead of {expected:#010x}; get the shard again, or convert it again"
        )


def load_crc32c() -> Callable[[Any], int]:
    """Return the function that computes the CRC-32C of bytes. Raises InputError if its package is not installed."""
    try:
        from google_crc32c import value
    except ImportError:
        raise InputError("shards need the package google-crc32c: pip install 'detaug[shards]'") from None
    function: Callable[[Any], int] = value
    return function
