"""Download pieces of objects before they are read, in the order in which they will be.

The order of an epoch is known when it begins. A window, the pieces that are needed first, is downloaded in any case; in
their place go the pieces that are needed last. What is beyond the window is downloaded as long as there is room.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from threading import Lock
from typing import NamedTuple

import numpy as np

from detaug.boxes.views import Bools, Ints
from detaug.sources.local_cache import CacheFull
from detaug.sources.object_store import REQUESTS
from detaug.sources.pieces import Pieces
from detaug.sources.source import DataError, Upcoming

WINDOW_SHARE = 1 / 8
"""The part of the cache that the window may take; the rest keeps what was read."""

AT_ONCE = 512
"""Pieces that are planned at once."""


class Plan(NamedTuple):
    """What to do next."""

    download: Ints
    """Pieces that are needed and not there, in the order in which they will be read."""
    removable: Ints
    """Pieces that are not in the window, the one that is needed last before the others."""
    valid_for: int
    """The next plan is due when so many more images were read."""


def plan(pieces: Ints, mine: Bools, present: Bools, lengths: Ints, limit: int, free: int) -> Plan:
    """Plan what to download and what may be removed.

    `pieces`: (R,) the piece of each of the next images. `mine`: (R,) whether this process reads it. `present`: (P,)
    which pieces are in the cache. `lengths`: (P,) bytes. `limit`, `free`: bytes of the cache, and of the room in it.
    """
    by_all, by_me = _next_use(pieces, len(lengths)), _next_use(np.where(mine, pieces, -1), len(lengths))
    order = np.argsort(by_me, kind="stable")[: np.count_nonzero(by_me < len(pieces))]
    before = np.cumsum(lengths[order]) - lengths[order]
    window = order[before < WINDOW_SHARE * limit]
    beyond = order[len(window) :]
    beyond = beyond[~present[beyond]]
    fits = beyond[np.cumsum(lengths[beyond]) <= free - lengths[window[~present[window]]].sum()]
    outside = present.copy()
    outside[window] = False
    removable = np.flatnonzero(outside)
    quarter = by_me[order[np.searchsorted(before, WINDOW_SHARE * limit / 4) :][:1]]
    return Plan(
        np.concatenate([window[~present[window]], fits])[:AT_ONCE],
        removable[np.argsort(-by_all[removable], kind="stable")],
        int(quarter[0]) if len(quarter) else len(pieces),
    )


def _next_use(pieces: Ints, count: int) -> Ints:
    """Return (count,) the position at which each piece comes first; len(pieces) for never. -1 is no piece."""
    first = np.full(count + 1, len(pieces))
    first[pieces[::-1]] = np.arange(len(pieces))[::-1]  # of several values the last one stays
    return first[:count]


class Prefetcher:
    """Downloads pieces in threads. `of_image`: (n,) the piece of each image."""

    def __init__(self, pieces: Pieces, of_image: Ints) -> None:
        self._pieces, self._of_image = pieces, of_image
        self._present, others = pieces.present()
        self._others = deque(others)
        self._failed = np.zeros(len(self._present), bool)
        self._upcoming: Iterator[Upcoming] = iter(())
        self._epochs: deque[Upcoming] = deque()
        self._queue: deque[int] = deque()
        self._removable: deque[int] = deque()
        self._running, self._plan_at, self._orders = 0, 0, 0
        self._error: BaseException | None = None
        self._lock = Lock()
        self._pool = ThreadPoolExecutor(REQUESTS, "detaug-prefetch")
        self._urgent = ThreadPoolExecutor(REQUESTS, "detaug-download")

    def start(self, upcoming: Iterator[Upcoming]) -> None:
        """Begin with another order of images."""
        with self._lock:
            self._upcoming, self._orders = upcoming, self._orders + 1
            self._epochs.clear()
            self._queue.clear()
            self._failed[:], self._error = False, None
        self._submit(self._plan)

    def stop(self) -> None:
        """Download nothing more."""
        self.start(iter(()))

    def read(self, indices: Ints) -> None:
        """Note that these images were read."""
        if self._error:
            raise self._error
        with self._lock:
            if not self._epochs:
                return
            self._go_behind(indices)
            due = self._left() <= self._plan_at
            if due:
                self._plan_at = -1
                self._failed[:] = False
        if due:
            self._submit(self._plan)

    def fetch(self, pieces: list[int]) -> list[memoryview | None]:
        """Download pieces now. Returns the bytes of those for which the cache has no room."""
        return list(self._urgent.map(self._fetch, pieces))

    def _fetch(self, piece: int) -> memoryview | None:
        try:
            self._pieces.download(piece, self._removed())
        except CacheFull:
            return self._pieces.read(piece)
        self._present[piece] = True
        return None

    # ------------------------------------------------------------------------------------------- the order

    def _go_behind(self, indices: Ints) -> None:
        """Go on behind the last of these images, if it is one of the next."""
        near = self._epochs[0].part(slice(64 * len(indices) + AT_ONCE))
        found = np.flatnonzero((near.indices == indices[-1]) & near.mine)
        if len(found):
            self._epochs[0] = self._epochs[0].part(slice(int(found[0]) + 1, None))
        if not self._epochs[0].mine.any():
            self._epochs.popleft()

    def _left(self) -> int:
        return sum(len(epoch.indices) for epoch in self._epochs)

    def _plan(self) -> None:
        """Plan the next downloads, and begin with them."""
        with self._lock:
            while len(self._epochs) < 2 and (epoch := next(self._upcoming, None)) is not None:
                self._epochs.append(epoch)
            epochs, orders, left = list(self._epochs), self._orders, self._left()
        if not epochs:
            return
        pieces = self._of_image[np.concatenate([epoch.indices for epoch in epochs])]
        mine, there = np.concatenate([epoch.mine for epoch in epochs]), self._present | self._failed
        planned = plan(pieces, mine, there, self._pieces.lengths, self._pieces.limit, self._pieces.free())
        with self._lock:
            if orders != self._orders:
                return
            self._queue = deque(planned.download.tolist())
            self._removable = deque(planned.removable.tolist())
            self._plan_at = left - planned.valid_for
        self._start_downloads()

    # ------------------------------------------------------------------------------------------- downloads

    def _start_downloads(self) -> None:
        with self._lock:
            count = min(REQUESTS - self._running, len(self._queue))
            pieces = [self._queue.popleft() for _ in range(count)]
            self._running += count
        for piece in pieces:
            self._submit(self._download, piece)

    def _download(self, piece: int) -> None:
        try:
            self._pieces.download(piece, self._removed())
            self._present[piece] = True
        except (CacheFull, DataError, FileNotFoundError):  # `fetch` will meet it again, and raise it
            self._failed[piece] = True
        with self._lock:
            self._running -= 1
            last = not self._running and not self._queue
        if last:
            self._plan()
        else:
            self._start_downloads()

    def _removed(self) -> Iterator[str]:
        """Yield the keys of pieces that may be removed: those of other data sets before those needed last."""
        while True:
            with self._lock:
                if self._others:
                    key = self._others.popleft()
                elif self._removable:
                    piece = self._removable.popleft()
                    key, self._present[piece] = self._pieces.key(piece), False
                else:
                    return
            yield key

    def _submit(self, task: Callable[..., None], *arguments: int) -> None:
        with suppress(RuntimeError):  # the interpreter ends
            self._pool.submit(task, *arguments).add_done_callback(self._keep_error)

    def _keep_error(self, task: Future[None]) -> None:
        """Let the next `read` raise the error of a task, which is none of an object."""
        self._error = self._error or task.exception()
