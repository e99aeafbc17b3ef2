"""Decode stretches of videos in threads before their clips are asked for, and keep each until its last clip was."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from torch import Tensor

from detaug.arrays import Ints
from detaug.sources.source import Upcoming
from detaug.sources.stretches import Stretches
from detaug.sources.video_files import VideoError


@dataclass
class _Stretch:
    """A stretch that is in memory, or on the way."""

    frames: Future[Tensor]
    clips: deque[int]
    """For each epoch that is known to need it, how many of its clips will still be asked for."""
    begun: bool = False
    """Whether one was asked for in the first of these epochs."""

    def count_clip(self) -> None:
        """Note that a clip was asked for."""
        self.clips[0] -= 1
        self.begun = bool(self.clips[0])
        if not self.begun:
            self.clips.popleft()


class StretchesAhead:
    """The stretches that the clips asked for next are in.

    `decode` returns given frames of one video, (F, H, W, 3) uint8 in the memory of a GPU. `threads` of them are decoded
    at a time, and as many before their first clip is asked for.
    """

    def __init__(self, stretches: Stretches, decode: Callable[[Ints], Tensor], threads: int) -> None:
        self._stretches, self._decode, self._threads = stretches, decode, threads
        self._pool = ThreadPoolExecutor(threads, "detaug-nvdec")
        self._next: Iterator[tuple[int, int]] = iter(())
        self._held: dict[int, _Stretch] = {}

    def start(self, upcoming: Iterator[Upcoming]) -> None:
        """Begin with another order of clips."""
        self._drop()
        self._next = (each for epoch in upcoming for each in self._uses(epoch.indices[epoch.mine]))
        self._fill()

    def get(self, indices: Ints) -> list[Tensor]:
        """Return the frames of clips, (H, W, 3) each. Raises VideoError, an OSError, for one that does not decode."""
        return [frame for clip in indices.reshape(-1, self._stretches.clips.shape[1]) for frame in self._clip(clip)]

    def close(self) -> None:
        """Drop everything, and wait for what is being decoded."""
        self._drop()
        self._pool.shutdown()

    def _clip(self, clip: Ints) -> list[Tensor]:
        number = self._stretches.of_first_frames[int(clip[0])]
        stretch = self._held.get(number) or _Stretch(self._submit(number), deque([1]))
        stretch.count_clip()
        if not stretch.clips:
            self._held.pop(number, None)
        self._fill()
        try:
            frames = stretch.frames.result()
        except VideoError:  # of another clip, maybe
            return [*self._decode(clip)]
        at = {index: at for at, index in enumerate(self._stretches.frames(number).tolist())}
        return [frames[at[index]] for index in clip.tolist()]

    def _uses(self, indices: Ints) -> Iterator[tuple[int, int]]:
        """Yield the stretches of clips in the order of their first clips, and how many clips each has."""
        clips = indices.reshape(-1, self._stretches.clips.shape[1])[:, 0].tolist()
        numbers = np.array([self._stretches.of_first_frames[clip] for clip in clips], np.int64)
        stretches, first, counts = np.unique(numbers, return_index=True, return_counts=True)
        order = np.argsort(first)
        yield from zip(stretches[order].tolist(), counts[order].tolist(), strict=True)

    def _fill(self) -> None:
        while sum(len(each.clips) - each.begun for each in self._held.values()) < self._threads:
            number, clips = next(self._next, (-1, 0))
            if not clips:
                return
            if number not in self._held:
                self._held[number] = _Stretch(self._submit(number), deque())
            self._held[number].clips.append(clips)

    def _submit(self, number: int) -> Future[Tensor]:
        return self._pool.submit(lambda: self._decode(self._stretches.frames(number)))

    def _drop(self) -> None:
        self._next = iter(())
        for each in self._held.values():
            each.frames.cancel()
        self._held.clear()
