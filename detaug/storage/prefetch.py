"""Download pieces of objects before they are read, in the order in which they will be.

The order of an epoch is known when it begins. A window, the pieces that are needed first, is downloaded in any case; in
their place go the pieces that are needed last. What is beyond the window is downloaded as long as there is room.
"""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import islice
from threading import RLock
from typing import NamedTuple
from weakref import WeakSet

import numpy as np

from detaug.arrays import Bools, Ints
from detaug.errors import DataError
from detaug.storage.local_cache import CacheFull
from detaug.storage.object_store import REQUESTS, run_in_threads, start_thread
from detaug.storage.pieces import Pieces
from detaug.storage.storage import Upcoming

WINDOW_SHARE = 1 / 8
"""The part of the cache that the window may take; the rest keeps what was read."""

AT_ONCE = 512
"""Pieces that are planned at once."""

NEAR = 8192
"""Images that may be passed over at once."""

MOST_ORDERS = 4
"""Orders that are known at once: those of a few loaders that read in turn."""


class Downloads(NamedTuple):
    """What to download next, and what may be removed."""

    download: Ints
    """Pieces that are needed and not there, in the order in which they will be read."""
    removable: Ints
    """Pieces that are not in the window, the one that is needed last before the others."""
    valid_for: int
    """The next plan is due when this many more images were read."""


def plan_downloads(pieces: Ints, mine: Bools, present: Bools, lengths: Ints, limit: int, free: int) -> Downloads:
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
    return Downloads(
        np.concatenate([window[~present[window]], fits])[:AT_ONCE],
        removable[np.argsort(-by_all[removable], kind="stable")],
        int(quarter[0]) if len(quarter) else len(pieces),
    )


def _next_use(pieces: Ints, count: int) -> Ints:
    """Return (count,) the position at which each piece comes first; len(pieces) for never. -1: without a piece."""
    first = np.full(count + 1, len(pieces))
    first[pieces[::-1]] = np.arange(len(pieces))[::-1]  # of several values the last one stays
    return first[:count]


class Order:
    """The images that a loader will read next, epoch by epoch."""

    def __init__(self, upcoming: Iterator[Upcoming]) -> None:
        self._upcoming, self.epochs = upcoming, deque[Upcoming]()

    @property
    def left(self) -> int:
        """Return how many images are left in the epochs that are known."""
        return sum(len(epoch.indices) for epoch in self.epochs)

    def look_ahead(self) -> bool:
        """Get to know the next two epochs. Returns False if there is none."""
        while len(self.epochs) < 2 and (epoch := next(self._upcoming, None)) is not None:
            self.epochs.append(epoch)
        return bool(self.epochs)

    def go_behind(self, indices: Ints) -> bool:
        """Go on behind these images of this process. Returns False if they are not among the next.

        Images between them may have been passed over, also all that are left of an epoch: a loader does not read those
        that it has decoded and kept.
        """
        for number, epoch in enumerate(self.epochs):
            if (end := _end_of(indices, epoch)) is not None:
                rest = epoch.part(slice(end, None))
                self.epochs = deque([*([rest] if rest.mine.any() else []), *islice(self.epochs, number + 1, None)])
                return True
        return False


def _end_of(indices: Ints, epoch: Upcoming) -> int | None:
    """Return the position behind these images in an epoch, between which others may be; None if they do not come so."""
    near = epoch.part(slice(64 * len(indices) + NEAR))
    own = np.flatnonzero(near.mine & np.isin(near.indices, indices))
    ends = np.flatnonzero(near.indices[own] == indices[-1]) + 1
    end = next((end for end in ends if np.array_equal(near.indices[own[:end]][-len(indices) :], indices)), None)
    return None if end is None else int(own[end - 1]) + 1


_PREFETCHERS: WeakSet[Prefetcher] = WeakSet()


@atexit.register
def _stop_all() -> None:
    """Begin no more downloads: the threads of requests wait for those that run."""
    for prefetcher in [*_PREFETCHERS]:
        prefetcher.stop()


class Prefetcher:
    """Downloads pieces in threads. `of_image`: (n,) the piece of each image.

    Several loaders may take turns, such as one for training and one for evaluation: the downloads follow the loader
    that read last.
    """

    def __init__(self, pieces: Pieces, of_image: Ints) -> None:
        self._pieces, self._of_image = pieces, of_image
        self._present, others = pieces.present()
        self._others = deque(others)
        self._failed = np.zeros(len(self._present), bool)
        self._orders = deque[Order](maxlen=MOST_ORDERS)
        self._queue, self._removable = deque[int](), deque[int]()
        self._running, self._plan_at = 0, -1
        self._error: BaseException | None = None
        self._lock = RLock()  # an order that is dropped may end its reader, which calls `stop`
        _PREFETCHERS.add(self)

    def start(self, upcoming: Iterator[Upcoming]) -> None:
        """Begin with another order of images."""
        with self._lock:
            self._follow(Order(upcoming))
            self._error = None
        self._start_thread(self._plan)

    def stop(self) -> None:
        """Download nothing more."""
        with self._lock:
            self._orders.clear()
            self._queue.clear()

    def read(self, indices: Ints) -> None:
        """Note that these images were read."""
        if self._error:
            raise self._error
        with self._lock:
            order = next((order for order in self._orders if order.go_behind(indices)), None)
            if order is None:
                return
            if order is not self._orders[0]:
                self._orders.remove(order)
                self._follow(order)
            elif order.left > self._plan_at:
                return
            self._plan_at = -1
            self._failed[:] = False
        self._start_thread(self._plan)

    def fetch(self, pieces: list[int]) -> list[memoryview | None]:
        """Download pieces now. Returns the bytes of those for which the cache has no room."""
        return run_in_threads(self._fetch, pieces)

    def _fetch(self, piece: int) -> memoryview | None:
        try:
            self._pieces.download(piece, self._removed())
        except CacheFull:
            return self._pieces.read(piece)
        self._present[piece] = True
        return None

    # ------------------------------------------------------------------------------------------- the order

    def _follow(self, order: Order) -> None:
        self._orders.appendleft(order)
        self._queue.clear()
        self._failed[:] = False

    def _plan(self) -> None:
        """Downloads the next downloads, and begin with them."""
        with self._lock:
            while self._orders and not self._orders[0].look_ahead():
                self._orders.popleft()
            if not self._orders:
                return
            order = self._orders[0]
            epochs, left = list(order.epochs), order.left
        pieces = self._of_image[np.concatenate([epoch.indices for epoch in epochs])]
        mine, there = np.concatenate([epoch.mine for epoch in epochs]), self._present | self._failed
        planned = plan_downloads(pieces, mine, there, self._pieces.lengths, self._pieces.limit, self._pieces.free())
        with self._lock:
            if not self._orders or order is not self._orders[0]:
                return
            self._queue = deque(planned.download.tolist())
            self._removable = deque(planned.removable.tolist())
            self._plan_at = left - planned.valid_for
        self._start_downloads()

    # ------------------------------------------------------------------------------------------- downloads

    def _start_downloads(self) -> None:
        with self._lock:
            count = min(REQUESTS - self._running, len(self._queue))
            self._running += count
        for _ in range(count):
            self._start_thread(self._download_all)

    def _download_all(self) -> None:
        """Download pieces until none is left; the last thread plans the next ones."""
        while (piece := self._next_piece()) is not None:
            try:
                self._pieces.download(piece, self._removed())
                self._present[piece] = True
            except (CacheFull, DataError, FileNotFoundError):  # `fetch` will meet it again, and raise it
                self._failed[piece] = True
            except BaseException as error:  # noqa: BLE001
                self._failed[piece], self._error = True, self._error or error

    def _next_piece(self) -> int | None:
        """Return the next piece; None if a thread of downloads may end."""
        with self._lock:
            if self._queue:
                return self._queue.popleft()
            self._running -= 1
            last = not self._running
        if last:
            self._plan()
        return None

    def _removed(self) -> Iterator[str]:
        """Yield the keys of pieces that may be removed: those of other datasets before those needed last."""
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

    def _start_thread(self, task: Callable[[], None]) -> None:
        with suppress(RuntimeError):  # the interpreter ends
            start_thread(lambda: self._keep_error(task))

    def _keep_error(self, task: Callable[[], None]) -> None:
        """Let the next `read` raise the error of a task, which is none of an object."""
        try:
            task()
        except BaseException as error:  # noqa: BLE001
            self._error = self._error or error
