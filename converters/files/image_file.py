"""The encoded bytes of an image: a file, or a part of a shard."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, NamedTuple, cast

from detaug.converters.files.checksums import ImageChanged, load_crc32c
from detaug.converters.files.paths import PathLike, regular_status
from detaug.converters.files.ranges import FileRange


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
        if self.crc32c is not None and (found := load_crc32c()(data)) != self.crc32c:
            raise ImageChanged(self.offset, found, self.crc32c)
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
