"""Decode the frames of videos in threads, before they are asked for, in the order in which they will be."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from itertools import takewhile
from threading import RLock

import numpy as np

from detaug.arrays import Bytes, Ints
from detaug.machine.cores import available_cores
from detaug.machine.threads import Threads
from detaug.storage.storage import Upcoming

Run = tuple[int, ...]
"""Frames of one video, as positions in the source, in the order of their numbers: what is decoded at once."""

BYTES_AHEAD = 1 << 30
"""Of the runs that are decoded before they are asked for; the last one may be beyond."""

RUNS_AHEAD = 64
"""Runs that are decoded before they are asked for, at most."""


SHORTEST = 8
"""Frames of a run, at least, where a clip could be one: a file is opened for each run."""


class FramesAhead:
    """Decodes runs of frames. `decode` returns the frames of a run; `lengths`: (n,) the bytes of each frame.

    `video_of`, `numbers`, `keys`: (n,) the video of each frame, its number there, and the key frame before it.
    `longest`: the frames of a run, at most.
    """

    def __init__(
        self,
        decode: Callable[[Run], list[Bytes]],
        video_of: Ints,
        numbers: Ints,
        keys: Ints,
        lengths: Ints,
        longest: int,
    ) -> None:
        self._decode, self._lengths, self._longest = decode, lengths, longest
        self._video_of, self._numbers, self._keys = video_of, numbers, keys
        self._pool = Threads(available_cores(), "detaug-video")
        self._runs: Iterator[Run] = iter(())
        self._ahead = deque[tuple[Run, Future[list[Bytes]]]]()
        self._bytes = 0
        self._lock = RLock()

    def start(self, upcoming: Iterator[Upcoming]) -> None:
        """Begin with another order of frames."""
        with self._lock:
            while self._ahead:
                self._pop().cancel()
            some = takewhile(lambda images: images.mine.any(), upcoming)  # ends where a loader has cached all frames
            self._runs = (run for images in some for run in self._runs_of(images.indices[images.mine]))
            self._fill()

    def get(self, indices: Ints) -> list[Bytes]:
        """Return frames. Raises the error of the first one that does not decode."""
        with self._lock:
            futures = [self._take(run) for run in self._runs_of(indices)]
            self._fill()
        try:
            return [frame for future in futures for frame in future.result()]
        finally:
            for future in futures:
                future.cancel()

    def _take(self, run: Run) -> Future[list[Bytes]]:
        """Return a run that was begun, and leave out those before it; one that was not, begin now."""
        position = next((position for position, (begun, _) in enumerate(self._ahead) if begun == run), None)
        if position is None:
            return self._pool.submit(self._decode, run)
        for _ in range(position):
            self._pop().cancel()
        return self._pop()

    def _pop(self) -> Future[list[Bytes]]:
        run, future = self._ahead.popleft()
        self._bytes -= int(self._lengths[[*run]].sum())
        return future

    def _fill(self) -> None:
        while len(self._ahead) < RUNS_AHEAD and self._bytes < BYTES_AHEAD and (run := next(self._runs, None)):
            self._ahead.append((run, self._pool.submit(self._decode, run)))
            self._bytes += int(self._lengths[[*run]].sum())

    def _runs_of(self, indices: Ints) -> list[Run]:
        """Split frames into runs: where the video changes, where the numbers do not ascend, and at the longest.

        Also at key frames, so that several threads decode one long clip, each from a key frame on.
        """
        if not len(indices):
            return []
        ends = (np.diff(self._video_of[indices]) != 0) | (np.diff(self._numbers[indices]) < 0)
        parts = np.split(indices, np.flatnonzero(ends) + 1)
        longest = self._longest
        clips = [part[start : start + longest] for part in parts for start in range(0, len(part), longest)]
        return [tuple(run.tolist()) for clip in clips for run in self._at_keys(clip)]

    def _at_keys(self, clip: Ints) -> list[Ints]:
        """Split frames of a video where another key frame comes before them, into runs of `SHORTEST` or more."""
        cuts = [0]
        for cut in (np.flatnonzero(np.diff(self._keys[clip])) + 1).tolist():
            if min(cut - cuts[-1], len(clip) - cut) >= SHORTEST:
                cuts.append(cut)
        return np.split(clip, cuts[1:])
