"""List the files of a folder, and compare file names."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

PathLike = str | os.PathLike[str]


def list_files(folder: Path, extensions: Iterable[str]) -> list[str]:
    """Return the files below a folder with one of the extensions, in any case: relative paths, sorted.

    Leaves out hidden files and folders (macOS writes ._name.jpg beside name.jpg) and what is not a regular file.
    """
    wanted = tuple(extensions)
    return sorted(name for name in _walk(str(folder)) if name.lower().endswith(wanted))


def _walk(top: str) -> Iterator[str]:
    waiting, seen = [""], set()
    while waiting:
        prefix = waiting.pop()
        status = os.stat(os.path.join(top, prefix))
        if (status.st_dev, status.st_ino) in seen:  # a symbolic link to a folder above
            continue
        seen.add((status.st_dev, status.st_ino))
        with os.scandir(os.path.join(top, prefix)) as entries:
            for entry in entries:
                if entry.name.startswith(".") or entry.name == "__MACOSX":
                    continue
                if entry.is_dir():
                    waiting.append(f"{prefix}{entry.name}/")
                elif entry.is_file():
                    yield prefix + entry.name


def stem_of(name: str) -> str:
    """Return a relative path without its extension: train/a.b.jpg -> train/a.b."""
    return os.path.splitext(name)[0]


def last_part(path: str) -> str:
    """Return the file name of a path with slashes or, as Windows writes it, backslashes."""
    return path.strip().replace("\\", "/").rpartition("/")[2]


def folded(name: str) -> str:
    """Return a name for comparison without case, the same for composed and decomposed letters."""
    return name.casefold() if name.isascii() else unicodedata.normalize("NFC", name).casefold()
