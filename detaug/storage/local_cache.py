"""Keep downloaded pieces of objects as files of a folder, up to a number of bytes. Several processes may share it.

A piece has a key, which is the name of its file. A process that writes it holds a lock, which ends with the process;
the others wait. What is read is whole: a file is renamed when it is complete, and one of another length is not used.
The file `bytes_used` has the size of all pieces; a process that starts counts them again.
"""

from __future__ import annotations

import fcntl
import os
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import disk_usage
from threading import Lock
from typing import BinaryIO

import numpy as np
import torch

from detaug.arrays import Bytes
from detaug.errors import DataError, InputError

MOST_MAPS = 16_384
"""Of 65,530 that a process may have."""

PARTIAL = ".partial"
SHARE_OF_FREE = 0.9
"""The cache never takes more of what is free on the disk when it is opened."""


class CacheFull(Exception):
    """Raised where a piece has no room and none may be removed for it."""


class LocalCache:
    """Pieces in a folder. `limit`: bytes of all pieces.

    Raises InputError if the folder cannot be written.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        self.folder, self._maps, self._maps_lock = folder, OrderedDict[str, Bytes](), Lock()
        with explained_folder(folder):
            folder.mkdir(parents=True, exist_ok=True)
            with self._used():
                self.keys = self._count()
        self.limit = min(limit, self.used() + int(SHARE_OF_FREE * disk_usage(folder).free))

    def read(self, key: str, length: int) -> Bytes | None:
        """Return a copy of a piece; None if it is not there whole."""
        try:
            content = np.fromfile(self._path(key), np.uint8)
        except OSError:
            return None
        return content if len(content) == length else None

    def map(self, key: str, length: int) -> Bytes | None:
        """Return a piece that stays mapped into memory; None if it is not there whole."""
        with self._maps_lock:
            if key in self._maps:
                self._maps.move_to_end(key)
                return self._maps[key]
        path = self._path(key)
        if not _has_length(path, length):
            return None
        try:
            mapped: Bytes = torch.from_file(str(path), size=length, dtype=torch.uint8).numpy()
        except (OSError, RuntimeError):  # another process removed it
            return None
        with self._maps_lock:
            self._maps[key] = mapped
            if len(self._maps) > MOST_MAPS:
                self._maps.popitem(last=False)
        return mapped

    def fill(self, key: str, length: int, fetch: Callable[[], memoryview], removable: Iterator[str]) -> None:
        """Write a piece, unless it is there. `removable`: keys of pieces that may be removed for it, in this order.

        Raises CacheFull if they are not enough, and DataError if the disk is full or does not work.
        """
        path = self._path(key)
        with self._locked(path.with_name(f"{key}{PARTIAL}")) as (file, partial):
            if not _has_length(path, length):
                with self._reserved(file, length, removable):
                    content = fetch()
                    with self._disk_errors():
                        _overwrite(file, content)
                        os.replace(partial, path)

    @contextmanager
    def _reserved(self, file: BinaryIO, length: int, removable: Iterator[str]) -> Iterator[None]:
        """Make room for a piece, which is given back after an error."""
        self._reserve(file, length, removable)
        try:
            yield
        except BaseException:
            with self._used() as used:
                used.add(-length)
                file.truncate(0)
            raise

    def _reserve(self, file: BinaryIO, length: int, removable: Iterator[str]) -> None:
        with self._used() as used:
            while used.bytes + length > self.limit:
                key = next(removable, None)
                if key is None:
                    raise CacheFull
                used.add(-self._remove(key))
            used.add(length)
            file.truncate(length)  # a process that starts now counts it

    def discard(self, key: str) -> None:
        """Remove a piece."""
        with self._used() as used:
            used.add(-self._remove(key))

    def _remove(self, key: str) -> int:
        """Remove a piece, and return its size."""
        with self._maps_lock:
            self._maps.pop(key, None)
        path = self._path(key)
        try:
            size = path.stat().st_size
            path.unlink()
        except OSError:  # another process was faster
            return 0
        return size

    def used(self) -> int:
        """Return the bytes of all pieces."""
        with self._used() as used:
            return used.bytes

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / key

    def _count(self) -> list[str]:
        """Return the keys of all pieces, those that changed first before the others, and note their size."""
        pieces, unfinished = [], 0
        for entry in self.folder.glob("??/*"):
            if entry.suffix == PARTIAL:
                unfinished += _bytes_of_unfinished(entry)
            else:
                pieces.append((entry.stat().st_mtime_ns, entry.name, entry.stat().st_size))
        with open(self.folder / "bytes_used", "r+b") as file:
            _Used(file).set(unfinished + sum(size for _, _, size in pieces))
        return [key for _, key, _ in sorted(pieces)]

    @contextmanager
    def _used(self) -> Iterator[_Used]:
        """Hold the lock of the number of bytes."""
        with open(self.folder / "bytes_used", "a+b") as file:
            _share(file.fileno(), self.folder)
            fcntl.flock(file, fcntl.LOCK_EX)
            with open(self.folder / "bytes_used", "r+b") as writable:
                yield _Used(writable)

    @contextmanager
    def _locked(self, partial: Path) -> Iterator[tuple[BinaryIO, Path]]:
        """Open the file of an unfinished piece when no other thread or process has it, and remove it afterwards."""
        while True:
            with self._disk_errors():
                make_shared_folder(partial.parent, self.folder)
                file = os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT, 0o666), "r+b", buffering=0)
            with file:
                _share(file.fileno(), self.folder)
                fcntl.flock(file, fcntl.LOCK_EX)
                if not _is_at(file, partial):  # renamed or removed while this one waited
                    continue
                try:
                    yield file, partial
                finally:
                    if _is_at(file, partial):  # not renamed
                        partial.unlink()
                return

    @contextmanager
    def _disk_errors(self) -> Iterator[None]:
        try:
            yield
        except PermissionError as error:
            raise DataError(f"cache_folder {self.folder}: {_permission_text(error)}") from None
        except OSError as error:
            raise DataError(
                f"cache_folder {self.folder}: {error.strerror or error}; free some space, or give the reader another "
                "cache_folder or a smaller cache_size"
            ) from None


@contextmanager
def explained_folder(folder: Path) -> Iterator[None]:
    """Raise InputError for a folder that cannot be written."""
    try:
        yield
    except PermissionError as error:
        raise InputError(f"cache_folder {folder}: {_permission_text(error)}") from None
    except OSError as error:
        raise InputError(
            f"cache_folder {folder} cannot be written ({error.strerror}); give a folder on a local disk"
        ) from None


def make_shared_folder(folder: Path, top: Path) -> None:
    """Make a folder below the cache folder `top` for the users who may write there, whatever their umask is."""
    with suppress(FileExistsError):
        folder.mkdir()
        folder.chmod(top.stat().st_mode & 0o2777)  # not the sticky bit: all of them may remove pieces


def _share(descriptor: int, top: Path) -> None:
    """Let the users who may write to the cache folder write to this file, if it is of this user."""
    mode, status = top.stat().st_mode & 0o666, os.fstat(descriptor)
    if status.st_uid == os.geteuid() and status.st_mode & 0o777 != mode:
        os.fchmod(descriptor, mode)


def _permission_text(error: PermissionError) -> str:
    return (
        f"{error.strerror} for {error.filename}; another user made it: let its owner run chmod -R g+rwX on the folder "
        "(a+rwX for all users), or give another cache_folder"
    )


class _Used:
    """The number in the file `bytes_used`."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        content = file.read()
        self.bytes = int(content) if content.isdigit() else 0  # of a new or damaged file: it is counted again

    def add(self, count: int) -> None:
        self.set(self.bytes + count)

    def set(self, count: int) -> None:
        self.bytes = max(0, count)
        self._file.seek(0)
        self._file.write(b"%d" % self.bytes)
        self._file.truncate()
        self._file.flush()


def _is_at(file: BinaryIO, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _overwrite(file: BinaryIO, content: memoryview) -> None:
    while content:
        content = content[file.write(content) :]


def _has_length(path: Path, length: int) -> bool:
    try:
        return path.stat().st_size == length
    except FileNotFoundError:
        return False


def _bytes_of_unfinished(partial: Path) -> int:
    """Return the size of an unfinished piece, and remove that of a process that was killed."""
    with suppress(FileNotFoundError), open(partial, "r+b") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            partial.unlink()
        except OSError:  # it is being downloaded, or was finished just now
            return os.fstat(file.fileno()).st_size
    return 0
