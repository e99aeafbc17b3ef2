"""Values that wait in a file until they are written, so that memory does not grow with them."""

from __future__ import annotations

import pickle
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator
from contextlib import closing, suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, Generic, TypeVar

_IN_MEMORY = 8 << 20  # bytes of values, as they are in the file
_MOST_WAITING = 10_000  # values

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SpoolError(OSError):
    """A temporary file cannot be written: the disk is full."""


class Spool:
    """A temporary file of values, plain ones that pickle knows. Small ones stay in memory. Close it."""

    def __init__(self, folder: Path) -> None:
        self._file: IO[bytes] = BytesIO()  # not a SpooledTemporaryFile, of which reads are calls of Python
        self._folder, self._end = str(folder), 0

    def close(self) -> None:
        """Remove the file."""
        with suppress(OSError):  # of what is still to be written, and is not needed
            self._file.close()

    def put(self, *values: Any) -> int:
        """Append values; return where the first one starts. Raises SpoolError."""
        start = self._end
        try:
            self._file.seek(start)
            self._file.write(b"".join([pickle.dumps(value, 5) for value in values]))
            if isinstance(self._file, BytesIO) and self._file.tell() > _IN_MEMORY:
                in_memory = self._file.getbuffer()
                self._file = TemporaryFile(dir=self._folder)  # noqa: SIM115, see close
                self._file.write(in_memory)
        except OSError as error:
            raise self._fault(error) from None
        self._end = self._file.tell()
        return start

    def get(self, start: int) -> Any:
        """Return the value at a place. `following` is then the one after it. Raises SpoolError."""
        try:
            self._file.seek(start)  # writes what was put
        except OSError as error:
            raise self._fault(error) from None
        return pickle.load(self._file)

    def following(self) -> Any:
        """Return the value after the one that was read last."""
        return pickle.load(self._file)

    def _fault(self, error: OSError) -> SpoolError:
        return SpoolError(error.errno, error.strerror, self._folder)

    def __iter__(self) -> Iterator[Any]:
        """Yield all values in their order; others may be read in between."""
        position = 0
        while position < self._end:
            value = self.get(position)
            position = self._file.tell()
            yield value


class Groups(Generic[K, V]):
    """Values by key, in a file where there are many: memory grows with the number of keys only. Close it."""

    def __init__(self, folder: Path) -> None:
        self._spool = Spool(folder)
        self._waiting: dict[K, list[V]] = {}
        self._count = 0
        self._stored: dict[K, int] = {}  # where the last part of a group is, which has the place of the one before it

    def close(self) -> None:
        """Remove the file."""
        self._spool.close()

    def add(self, key: K, value: V) -> None:
        """Append a value to a group. Raises SpoolError."""
        self._waiting.setdefault(key, []).append(value)
        self._count += 1
        if self._count > _MOST_WAITING:
            for other, values in self._waiting.items():
                self._stored[other] = self._spool.put((self._stored.get(other), values))
            self._waiting, self._count = {}, 0

    def pop(self, key: K) -> list[V]:
        """Remove a group and return its values, in their order."""
        parts = [self._waiting.pop(key, [])]
        self._count -= len(parts[0])
        place = self._stored.pop(key, None)
        while place is not None:
            place, values = self._spool.get(place)
            parts.append(values)
        return [value for part in reversed(parts) for value in part]


def grouped(pairs: Iterable[tuple[K, V]], counts: Counter[K], folder: Path) -> Iterator[tuple[K, list[V]]]:
    """Yield each key with its values, after the last one of them, which may be far from the first.

    counts: how many values each key has, which is used up. folder: for a temporary file. Raises SpoolError.
    """
    with closing(Groups[K, V](folder)) as groups:
        for key, value in pairs:
            groups.add(key, value)
            counts[key] -= 1
            if not counts[key]:
                del counts[key]
                yield key, groups.pop(key)
