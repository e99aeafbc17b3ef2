"""`ScannedFolder`: images that were found in a folder, with the sizes of their headers."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path

import numpy as np

from detaug.arrays import Ints
from detaug.errors import InputError
from detaug.files import heif
from detaug.files.image_file import short_digest
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.paths import list_files
from detaug.sources.size_cache import Faults, FileTable, stat_files, with_sizes
from detaug.sources.source import FolderSource


def scan_images(folder: Path, *, cache: bool) -> tuple[FileTable, Ints, Faults]:
    """Return the images below a folder, their sizes and their faults. Raises InputError where there are none."""
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; it must hold the images")
    names = list_files(folder, IMAGE_EXTENSIONS, regular=False)  # links to nothing are named
    if not names:
        raise InputError(f"{folder}: has no images ({', '.join(IMAGE_EXTENSIONS)})")
    files = stat_files(folder.absolute(), names)
    return files, *with_sizes(folder.absolute(), folder.absolute(), files, cache=cache)


class ScannedFolder(FolderSource):
    """A source whose images no JSON file describes. A subclass calls `_take` after `Source.__init__`."""

    _faults: Faults
    _bytes: Ints

    def _take(self, files: FileTable, faults: Faults, remedy: str) -> None:
        """Take the files, of which those with `faults` are missing. Raises InputError if all are."""
        self.file_names, self._bytes, self._faults, self.remedy = files.names, files.status[:, 0], faults, remedy
        self.has_heif = heif.are_among(self.file_names)
        self.files = not self.has_heif
        self.missing = np.array(sorted(faults), np.int64)
        if len(self.missing) == len(self):
            self.check_files()

    def why_missing(self, index: int) -> str:
        """Return the reason why a missing image cannot be used: "is empty (0 bytes)"."""
        return self._faults[index]

    def explain_size(self, index: int, size: tuple[int, int]) -> str:
        """Return why an image of this size cannot be used: it changed, and maybe its length and date did not."""
        (height, width), before = size, self.sizes[index]
        was = f"it had {before[1]} x {before[0]} when its size was read"
        return f"has {width} x {height} pixels, {was}; touch the file, and make the {type(self).__name__} again"

    def check_files(self) -> None:
        """Raise InputError if an image cannot be used."""
        if self._faults:
            first, why = min(self._faults.items())
            raise InputError(
                f"{self.origin}: {len(self._faults)} of {len(self)} images cannot be used, the first is "
                f"{self.path(first)}, which {why}; {self.remedy}"
            )

    @cached_property
    def files_fingerprint(self) -> str:
        """Return a hash of the sizes of the files in bytes, as they were when the source was made."""
        return short_digest(self._bytes.tobytes())
