"""Read the sizes of many image files, in several processes."""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from itertools import chain

from detaug.converters.files.image_headers import ImageError, read_image_header
from detaug.converters.files.processes import map_in_processes
from detaug.converters.machine import available_cores

SizeOrFault = tuple[int, int] | str
"""(height, width) as displayed, or why a file cannot be used: "is empty (0 bytes)"."""

FEW = 20_000
"""Files that one process reads in about a second: as long as others need to start."""
_CHUNK = 2_000
_NOT_THE_FILES_FAULT = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


def read_image_sizes(paths: Sequence[str]) -> list[SizeOrFault]:
    """Return the size of each image, from its header. Raises OSError where no file is at fault, such as ENOMEM."""
    processes = min(available_cores(), len(paths) // FEW + 1)
    if processes == 1:
        return _read_sizes(paths)
    return list(chain.from_iterable(map_in_processes(_read_sizes, _chunks(paths), processes)))


def _chunks(paths: Sequence[str]) -> Iterator[Sequence[str]]:
    return (paths[at : at + _CHUNK] for at in range(0, len(paths), _CHUNK))


def _read_sizes(paths: Sequence[str]) -> list[SizeOrFault]:
    return [_read_size(path) for path in paths]


def _read_size(path: str) -> SizeOrFault:
    try:
        header = read_image_header(path)
    except ImageError as error:
        cause = error.__cause__
        if isinstance(cause, OSError) and cause.errno in _NOT_THE_FILES_FAULT:
            raise cause from None
        return str(error)
    return header.height, header.width
