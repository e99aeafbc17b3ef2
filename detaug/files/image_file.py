"""The encoded bytes of an image, a file or a part of a shard: read and compare them."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b, sha256
from typing import Any, BinaryIO, NamedTuple, cast

from detaug.files.paths import PathLike, regular_status
from detaug.packages import require


class ImageFile(NamedTuple):
    """An image that is a file, or bytes [offset, offset + length) of a shard."""

    path: str
    offset: int = 0
    length: int | None = None
    """None: to the end."""
    crc32c: int | None = None
    """Of the bytes, if it is known."""

    def exists(self) -> bool:
        """Return whether the file, or the shard, is there. Raises OSError if the system cannot tell."""
        return regular_status(self.path) is not None

    def read(self) -> bytes:
        """Return the bytes. Raises OSError, and ImageChanged if `crc32c` is another one."""
        with opened(self) as file:
            data = file.read()
        if self.crc32c is not None and (checksum := load_crc32c()(data)) != self.crc32c:
            raise ImageChanged(self.offset, checksum, self.crc32c)
        return data


@contextmanager
def opened(image: PathLike | ImageFile) -> Iterator[BinaryIO]:
    """Open an image for reading, as if it were a file of its own. Raises OSError."""
    path, offset, length, _ = image if isinstance(image, ImageFile) else ImageFile(os.fspath(image))
    with open(path, "rb", buffering=0) as file:
        if length is None:
            yield cast(BinaryIO, file)
            return
        end = os.fstat(file.fileno()).st_size
        if end < offset + length:
            raise OSError(f"its shard has {end:,} bytes, and the image ends at {offset + length:,}")
        yield cast(BinaryIO, FileRange(file.fileno(), offset, length))


class FileRange(io.RawIOBase):
    """Bytes [offset, offset + length) of an open file descriptor; nothing outside is read.

    head: the first of these bytes, if they were read before.
    """

    def __init__(self, file: int, offset: int, length: int, head: bytes = b"") -> None:
        self._file, self._offset, self._length, self._head = file, offset, length, head
        self._position = 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most `size` bytes from the position on; all of them if it is negative or None."""
        left = max(0, self._length - self._position)
        size = left if size is None or size < 0 else min(size, left)
        start = self._position
        data = self._head[start : start + size]
        if len(data) < size:
            data = os.pread(self._file, size, self._offset + start)
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position; return it."""
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._length}[whence]
        if start + offset < 0:
            raise ValueError(f"position must be at least 0, got {start + offset}")  # as other files do
        self._position = start + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True


class BytesFile(io.RawIOBase):
    """Bytes as an open file, without the copy that io.BytesIO makes."""

    def __init__(self, content: Any) -> None:
        self._content, self._position = memoryview(content), 0

    def read(self, size: int | None = -1, /) -> bytes:
        """Read at most `size` bytes from the position on; all of them if it is negative or None."""
        end = len(self._content) if size is None or size < 0 else self._position + size
        data = self._content[self._position : end].tobytes()
        self._position += len(data)
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move the position; return it."""
        self._position = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: len(self._content)}[whence] + offset
        return self._position

    def tell(self) -> int:
        """Return the position."""
        return self._position

    def seekable(self) -> bool:
        """Return True."""
        return True

    def readable(self) -> bool:
        """Return True."""
        return True


class ImageChanged(OSError):
    """Raised for an image in a shard whose bytes are not those that its JSON file was written for."""

    def __init__(self, offset: int, actual: int, expected: int) -> None:
        super().__init__(
            f"its bytes, from {offset:,} on in the shard, are others than when the JSON file was written: their "
            f"CRC-32C is {actual:#010x} instead of {expected:#010x}; get the shard again, or convert it again"
        )


def load_crc32c() -> Callable[[Any], int]:
    """Return the function that computes the CRC-32C of bytes. Raises InputError if its package is not installed."""
    require("reading or writing shards", "google_crc32c")
    from google_crc32c import value

    function: Callable[[Any], int] = value
    return function


Fingerprint = tuple[int, int]
"""(length, checksum of the beginning) of a file: see ImageHeader.fingerprint."""


def digest(path: PathLike | ImageFile) -> bytes:
    """Return 16 bytes that are equal only for files with the same content."""
    state = blake2b(digest_size=16)
    with opened(path) as file:
        while block := file.read(1 << 20):
            state.update(block)
    return state.digest()


def short_digest(*parts: bytes) -> str:
    """Return 16 hexadecimal digits that are equal for the same bytes, whatever parts they come in."""
    return sha256(b"".join(parts)).hexdigest()[:16]
