"""Values that wait in a file until they are written, so that memory does not grow with them."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from tempfile import SpooledTemporaryFile
from typing import IO, Any

_IN_MEMORY = 8 << 20  # bytes of values, as they are in the file


class Spool:
    """A temporary file of values, plain ones that pickle knows. Small ones stay in memory. Close it."""

    def __init__(self, folder: Path) -> None:
        self._file: IO[bytes] = SpooledTemporaryFile(max_size=_IN_MEMORY, mode="w+b", dir=str(folder))  # noqa: SIM115, see close
        self._folder, self._end = str(folder), 0

    def close(self) -> None:
        """Remove the file."""
        self._file.close()

    def put(self, *values: Any) -> int:
        """Append values; return where the first one starts. Raises OSError."""
        start = self._end
        try:
            self._file.seek(start)
            for value in values:
                self._file.write(pickle.dumps(value, 5))
        except OSError as error:  # of a full disk
            raise OSError(error.errno, error.strerror, self._folder) from None
        self._end = self._file.tell()
        return start

    def get(self, start: int) -> Any:
        """Return the value at a place. `following` is then the one after it."""
        self._file.seek(start)
        return pickle.load(self._file)

    def following(self) -> Any:
        """Return the value after the one that was read last."""
        return pickle.load(self._file)

    def __iter__(self) -> Iterator[Any]:
        """Yield all values in their order; others may be read in between."""
        at = 0
        while at < self._end:
            value = self.get(at)
            at = self._file.tell()
            yield value
