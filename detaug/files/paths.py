"""List the files of a folder, check and compare file names."""

from __future__ import annotations

import errno
import os
import stat
import unicodedata
from collections.abc import Iterable, Iterator
from pathlib import Path

PathLike = str | os.PathLike[str]

_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ENAMETOOLONG)
"""Errors of os.stat that say that a path leads to no file."""


def absolute(path: PathLike) -> Path:
    """Return a path from the root on, without ".."; links in it stay, unless a ".." behind one leads elsewhere."""
    plain, real = os.path.abspath(path), os.path.realpath(path)
    return Path(plain if os.path.realpath(plain) == real else real)


def identity(path: PathLike) -> tuple[int, int] | str:
    """Return what is equal for all names of a file or folder: links, hard links, and paths with ".."."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return os.path.realpath(path)
    return status.st_dev, status.st_ino


RUN_MARK = ".detaug-run"
"""An empty file in the folder of a training: what lies there was written by detaug, and is part of no dataset."""


def list_files(folder: Path, extensions: Iterable[str], *, regular: bool = True) -> list[str]:
    """Return the files below a folder with one of the extensions, in any case: relative paths, sorted.

    Leaves out hidden files and folders (macOS writes ._name.jpg beside name.jpg), and the folders of trainings below
    this one. regular: also leave out what is not a regular file: folders, fifos, links that lead nowhere.
    """
    wanted = tuple(extensions)
    return sorted(
        name for name, is_file in _walk(str(folder)) if name.lower().endswith(wanted) and (is_file or not regular)
    )


def _walk(top: str) -> Iterator[tuple[str, bool]]:
    """Yield each entry below a folder, and whether it is a regular file."""
    waiting, seen = [""], set()
    while waiting:
        prefix = waiting.pop()
        status = os.stat(os.path.join(top, prefix))
        if (status.st_dev, status.st_ino) in seen:  # a symbolic link to a folder above
            continue
        seen.add((status.st_dev, status.st_ino))
        with os.scandir(os.path.join(top, prefix)) as scanned:
            entries = list(scanned)
        if prefix and any(entry.name == RUN_MARK for entry in entries):
            continue
        for entry in entries:
            name = entry.name
            if name.startswith(".") or name == "__MACOSX":
                continue
            mode = _mode(entry)
            if mode == stat.S_IFDIR:
                waiting.append(f"{prefix}{name}/")
            yield prefix + name, mode == stat.S_IFREG


def _mode(entry: os.DirEntry[str]) -> int:
    """Return the kind of a directory entry as in st_mode, of a link that of its target; 0 where it has none."""
    try:
        if entry.is_file():  # without a system call, unless it is a link
            return stat.S_IFREG
        return stat.S_IFDIR if entry.is_dir() else 0
    except OSError:  # a link in a loop
        return 0


def regular_status(path: PathLike) -> os.stat_result | None:
    """Return the status of a regular file; None if there is none, or if no file can have this name.

    Raises OSError where the system cannot tell: os.path.isfile returns False there, and a file that is there would be
    taken for a missing one.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        if error.errno in _NO_FILE:
            return None
        raise
    except ValueError:  # a NUL in the name
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def require_file(path: PathLike) -> os.stat_result:
    """Return the status of a regular file. Raises OSError for others: a fifo would wait for ever, a device not end."""
    status = os.stat(path)
    mode = status.st_mode
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, "it is a folder", os.fspath(path))
    if not stat.S_ISREG(mode):
        raise OSError(errno.EINVAL, "it is not a regular file", os.fspath(path))
    return status


def stem_of(name: str) -> str:
    """Return a relative path without its extension: train/a.b.jpg -> train/a.b."""
    stem, _, extension = name.rpartition(".")  # quicker than os.path.splitext, which has the same result
    return stem if "/" not in extension and stem.rpartition("/")[2].strip(".") else name


def is_below(name: str) -> bool:
    """Return whether a path with slashes stays below its folder: relative, not empty, no ".." or NUL in it."""
    return name[:1] not in ("", "/") and "\0" not in name and "/../" not in f"/{name}/"


def last_part(path: str) -> str:
    """Return the file name of a path with slashes or, as Windows writes it, backslashes."""
    return path.strip().replace("\\", "/").rpartition("/")[2]


def folded(name: str) -> str:
    """Return a name for comparison without case, the same for composed and decomposed letters."""
    return name.casefold() if name.isascii() else unicodedata.normalize("NFC", name).casefold()


def in_any_case(path: PathLike) -> Path:
    """Return the existing path that differs from this one at most in case or Unicode form; without one, the path."""
    wanted = Path(path)
    if os.path.lexists(wanted) or wanted == wanted.parent:
        return wanted
    parent = in_any_case(wanted.parent)
    try:
        matches = sorted(name for name in os.listdir(parent) if folded(name) == folded(wanted.name))
    except (OSError, ValueError):  # no folder, or one that may not be listed; a NUL in its name
        matches = []
    return parent / matches[0] if matches else wanted
