"""Runs of decoded maps in a file that several processes read and extend at the same time.

A file is a sequence of blocks, each appended under a lock: a header, a row for each of its maps, and their runs. A
block that a killed process or a full disk left unfinished is not read, and the next one replaces it. The rows of a
block have a checksum, and so has each map: what is damaged is decoded again.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import weakref
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from shutil import disk_usage
from threading import Lock
from typing import Any, NamedTuple
from zlib import crc32

import numpy as np

from detaug.coco.annotation_cache import remove_oldest
from detaug.maps.values import Runs

MOST = 10 << 30
"""Bytes of all files of a folder together; COCO train2017 needs about 3 GB."""

LEAST_FREE = 1 << 30
"""Bytes of the disk that stay free."""

MAGIC = b"detaugR1"
HEADER = struct.Struct("<8sIQI")
"""MAGIC, rows, bytes of runs, checksum of the rows and of what stands before it."""
ROW = struct.Struct("<16s16sQIIIBI")
"""Name and state of a map, its place in the file, height, width, runs, bytes of a value, checksum of the runs."""
VALUE_TYPES: dict[int, np.dtype[Any]] = {1: np.dtype("<u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}
LENGTH_TYPE = np.dtype("<u2")


class MapKey(NamedTuple):
    """Which map it is: 16 bytes each."""

    name: bytes
    state: bytes
    """Equal as long as the map is the same."""

    @classmethod
    def of(cls, name: bytes, state: bytes) -> MapKey:
        """Return the key of a name and a state of any length."""
        return cls(*(blake2b(part, digest_size=16).digest() for part in (name, state)))


class RunFile:
    """Maps in a file, which threads and processes may use at the same time.

    It is read, not mapped into memory: the system's file cache has it once for all processes either way, and reading
    from a disk that fails is an error here, where a mapped file would end the process.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.writes = path, True
        """`writes`: whether maps are appended; not any more after an error."""
        self._lock = Lock()
        self._file = -1
        self._end = 0
        self._rows: dict[bytes, bytes] = {}
        self._bytes = self._replaced = 0

    def get(self, key: MapKey) -> Runs | None:
        """Return a map; None if the file does not have it."""
        with suppress(OSError):
            row = self._rows.get(key.name)
            if row is None or row[16:32] != key.state:
                with self._lock:
                    self._read_new()
                row = self._rows.get(key.name)
            if row is not None and row[16:32] == key.state:
                return self._read(row)
        return None

    def _read(self, row: bytes) -> Runs | None:
        name, _, start, height, width, count, value_bytes, checksum = ROW.unpack(row)
        content = os.pread(self._file, count * (LENGTH_TYPE.itemsize + value_bytes), start)
        if crc32(content) != checksum:  # also of a file that is shorter now
            self._rows.pop(name, None)
            return None
        lengths = np.frombuffer(content, LENGTH_TYPE, count)
        values = np.frombuffer(content, VALUE_TYPES[value_bytes], count, LENGTH_TYPE.itemsize * count)
        return Runs(values, lengths, (height, width))

    def append(self, maps: Iterable[tuple[MapKey, Runs]]) -> bool:
        """Append maps that are not there; return False, and do nothing, where another process is appending.

        Raises OSError if they cannot be appended; then `writes` is False.
        """
        with self._lock:
            try:
                return self._append(maps)
            except BlockingIOError:
                return False
            except OSError:
                self.writes = False
                raise

    def _append(self, maps: Iterable[tuple[MapKey, Runs]]) -> bool:
        if not self.writes:
            raise FileNotFoundError(errno.ENOENT, "it cannot be written", os.fspath(self.path))
        self.path.parent.mkdir(parents=True, exist_ok=True)
        # A file that was removed is not made again: two sources could remove each other's for ever.
        file = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if self._file < 0 else 0), 0o666)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._read_new()
            status = os.fstat(file)
            if not os.path.samestat(status, os.fstat(self._file)):
                raise FileNotFoundError(errno.ENOENT, "it was removed", os.fspath(self.path))
            new = {key.name: (key, runs) for key, runs in maps if not self._has(key)}
            if new:
                self._write(file, status.st_size, _block(new.values(), self._end))
                self._read_new()
        finally:
            os.close(file)
        with suppress(OSError):
            remove_oldest(self.path.parent, MOST)
        return True

    def _has(self, key: MapKey) -> bool:
        row = self._rows.get(key.name)
        return row is not None and row[16:32] == key.state

    def _write(self, file: int, size: int, block: bytes) -> None:
        if self._replaced > max(self._bytes, len(block)):  # most maps changed: the next process begins anew
            self.path.unlink()
            raise FileNotFoundError(errno.ENOENT, "it was outdated", os.fspath(self.path))
        if self._end + len(block) > MOST:
            raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), os.fspath(self.path))
        if disk_usage(self.path.parent).free < LEAST_FREE + len(block):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), os.fspath(self.path))
        if size > self._end:  # what was left unfinished
            os.ftruncate(file, self._end)
        try:
            rest, place = memoryview(block), self._end
            while rest:
                written = os.pwrite(file, rest, place)
                rest, place = rest[written:], place + written
        except OSError:
            with suppress(OSError):
                os.ftruncate(file, self._end)
            raise

    def _read_new(self) -> None:
        """Read the rows of blocks that were appended. Raises OSError where that is not possible."""
        if self._file < 0:
            try:
                self._file = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return
            weakref.finalize(self, os.close, self._file).atexit = False  # maps may be appended then
            with suppress(OSError):
                os.utime(self.path)  # used now
        size = os.fstat(self._file).st_size
        while self._end + HEADER.size <= size:
            header = os.pread(self._file, HEADER.size, self._end)
            magic, count, length, checksum = HEADER.unpack(header.ljust(HEADER.size))
            first = self._end + HEADER.size
            end = first + count * ROW.size + length
            if magic != MAGIC or end > size:
                return
            rows = os.pread(self._file, count * ROW.size, first)
            if crc32(rows, crc32(header[:-4])) != checksum:
                return
            for start in range(0, len(rows), ROW.size):
                row = rows[start : start + ROW.size]
                if (old := self._rows.get(row[:16])) is not None:
                    self._bytes -= _length(old)
                    self._replaced += _length(old)
                self._rows[row[:16]] = row
                self._bytes += _length(row)
            self._end = end


def _length(row: bytes) -> int:
    *_, count, value_bytes, _ = ROW.unpack(row)
    return int(count * (LENGTH_TYPE.itemsize + value_bytes))


def _block(maps: Iterable[tuple[MapKey, Runs]], place: int) -> bytes:
    """Return a block that will begin at this place of a file."""
    maps = [*maps]
    first = start = place + HEADER.size + len(maps) * ROW.size
    rows, contents = [], []
    for key, runs in maps:
        assert runs.lengths is not None
        value_type = VALUE_TYPES[next(size for size in VALUE_TYPES if int(runs.values.max()) >> 8 * size == 0)]
        content = runs.lengths.astype(LENGTH_TYPE).tobytes() + runs.values.astype(value_type).tobytes()
        rows.append(ROW.pack(*key, start, *runs.shape, len(runs.values), value_type.itemsize, crc32(content)))
        contents.append(content)
        start += len(content)
    header = HEADER.pack(MAGIC, len(rows), start - first, 0)[:-4]
    joined = b"".join(rows)
    return header + struct.pack("<I", crc32(joined, crc32(header))) + joined + b"".join(contents)
