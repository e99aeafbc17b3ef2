"""A part of an open file, read as a file of its own."""

from __future__ import annotations

import io
import os


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
