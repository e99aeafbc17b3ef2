"""`FolderSource`: images that are files of a folder."""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from detaug.arrays import Bytes
from detaug.sources.source import Source, path_table


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
