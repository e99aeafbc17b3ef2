"""`FolderSource`: images that are files of a folder."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from detaug.arrays import Bytes, Ints
from detaug.converters.files.paths import regular_status
from detaug.sources.source import Source, path_table

Status = tuple[int, int]
"""(bytes, time of the last change in ns) of a file."""


class FolderSource(Source):
    """A source whose images are files of one folder. A subclass sets both attributes."""

    folder: Path
    """Absolute: a later change of the working folder changes nothing."""
    file_names: Sequence[str]
    """n paths relative to the folder."""

    def path(self, index: int) -> Path:
        """Return the file of an image."""
        return self.folder / self.file_names[index]

    @cached_property
    def _path_table(self) -> Bytes:
        return path_table([os.path.join(self.folder, name) for name in self.file_names])

    def _names(self) -> bytes:
        return "\0".join(self.file_names).encode("utf-8", "surrogateescape") + b"\0" + super()._names()


def file_status(path: str) -> Status:
    """Return the length and date of a regular file; (-1, -1) for anything else. Raises OSError."""
    status = regular_status(path)
    return (status.st_size, status.st_mtime_ns) if status else (-1, -1)


def file_sizes(paths: Iterable[str]) -> Ints:
    """Return (N,) sizes in bytes; -1 for what is no file. Raises OSError."""
    return np.array([file_status(path)[0] for path in paths], np.int64)
