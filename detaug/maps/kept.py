"""Keep the runs of maps that were decoded: in a file of the user's cache folder, else in memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from threading import Lock
from typing import Any
from weakref import WeakValueDictionary, finalize

from detaug.maps.run_file import MapKey, RunFile
from detaug.maps.values import Runs

KEPT = 2 << 30
"""Bytes of maps that a source keeps in memory, where there is no file: about 100,000 of those of COCO."""

BLOCK = 1 << 20
"""Bytes of maps that are written together. Fewer get no file: they are decoded in half a second."""

Unsaved = dict[int, tuple[MapKey, Runs]]


class KeptRuns:
    """The maps of a source, by the positions of their images, that were decoded before."""

    def __init__(self, dtype: Any, path: Path | None) -> None:
        """`dtype`: of their values; `path`: the file, which need not be there; None to keep maps in memory alone."""
        self._dtype, self._path = dtype, path
        self._file = None if path is None else RunFile(path)
        self._memory: Unsaved = {}
        self._bytes = self._since_last = 0
        self._in_use: WeakValueDictionary[int, Runs] = WeakValueDictionary()
        self._lock = Lock()
        if self._file is not None:
            finalize(self, _save_rest, self._memory, self._file)

    def __reduce__(self) -> tuple[type[KeptRuns], tuple[Any, Path | None]]:
        """Leave maps behind: another process reads the file, or decodes what it needs."""
        return KeptRuns, (self._dtype, self._path)

    def at_hand(self, index: int) -> Runs | None:
        """Return a map that is in memory."""
        kept = self._memory.get(index)
        return self._in_use.get(index) if kept is None else kept[1]

    def load(self, index: int, key: MapKey) -> Runs | None:
        """Return a map that is in the file."""
        runs = None if self._file is None else self._file.get(key)
        return None if runs is None else self._shared(index, replace(runs, values=runs.values.astype(self._dtype)))

    def add(self, index: int, key: MapKey, runs: Runs) -> Runs:
        """Keep a map that was decoded. Returns it, or the same one of another thread."""
        full: Mapping[int, tuple[MapKey, Runs]] = {}
        with self._lock:
            if index in self._memory:
                return self._memory[index][1]
            if self._bytes < KEPT:
                self._memory[index] = key, runs
                self._bytes += runs.nbytes
                self._since_last += runs.nbytes
            if self._since_last >= BLOCK and self._file is not None and self._file.writes:
                self._since_last, full = 0, self._memory.copy()
        if full:
            self._save(full)
        return self._shared(index, runs)

    def _save(self, maps: Mapping[int, tuple[MapKey, Runs]]) -> None:
        """Move maps from memory to the file; they stay if another process is writing, or none can."""
        assert self._file is not None
        with suppress(OSError):
            if self._file.append(maps.values()):
                with self._lock:
                    for index in maps:
                        if (kept := self._memory.pop(index, None)) is not None:
                            self._bytes -= kept[1].nbytes

    def _shared(self, index: int, runs: Runs) -> Runs:
        """Return the one object of all that use this map now: tiles of an image have their pixels once."""
        with self._lock:
            return self._in_use.setdefault(index, runs)


def _save_rest(maps: Unsaved, file: RunFile) -> None:
    """Append maps when the source, or the process, ends. Waits a second at most: several processes end together."""
    if maps and file.writes and file.path.exists():
        with suppress(OSError):
            for _ in range(20):
                if file.append(maps.copy().values()):
                    return
                time.sleep(0.05)
