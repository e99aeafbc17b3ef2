"""Stretches: parts of videos that a GPU decodes at once, ahead of the clips that are cut from them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from torch import Tensor

from detaug.arrays import Ints
from detaug.files.video_file import VideoError, VideoIndex
from detaug.machine.threads import Threads
from detaug.sources.clips import rows_of
from detaug.storage.storage import Upcoming


class VideoPart(NamedTuple):
    """Some frames of a video file."""

    path: str
    frames: VideoIndex
    numbers: list[int]
    """Ascending."""


class Stretches:
    """The stretches 0..S-1 of some videos. A clip belongs to the one in which its first frame lies.

    `files`, `indexes`: of each video. `video_of`, `numbers`: (n,) the video of each frame of a source, and its number
    there. `clips`: (C, F) the frames of each clip, as positions in the source. `length`: see `VideoReader`.
    """

    def __init__(
        self,
        files: Sequence[str],
        indexes: Sequence[VideoIndex | str],
        video_of: Ints,
        numbers: Ints,
        clips: Ints,
        length: int,
    ) -> None:
        self.files, self.indexes, self._video_of, self._numbers = files, indexes, video_of, numbers
        self.clips, self._length = clips, length

    @cached_property
    def of_clips(self) -> Ints:
        """Return (C,) the stretch of each clip."""
        stretch_of_frame, first = np.zeros(len(self._video_of), np.int64), 0
        for rows, index in zip(rows_of(self._video_of, len(self.indexes)), self.indexes, strict=True):
            starts = [0] if isinstance(index, str) else starts_of_stretches(index, self._length)
            stretch_of_frame[rows] = first + np.searchsorted(starts, self._numbers[rows], "right") - 1
            first += len(starts)
        return np.asarray(stretch_of_frame[self.clips[:, 0]])

    @cached_property
    def of_first_frames(self) -> dict[int, int]:
        """Return the stretch of a clip by its first frame."""
        return dict(zip(self.clips[:, 0].tolist(), self.of_clips.tolist(), strict=True))

    def frames(self, stretch: int) -> Ints:
        """Return the frames that the clips of a stretch have, in the order of their numbers."""
        first, end = np.searchsorted(self._sorted[1], [stretch, stretch + 1])
        frames = np.unique(self.clips[self._sorted[0][first:end]])
        return np.asarray(frames[np.argsort(self._numbers[frames])])

    def part(self, frames: Ints) -> VideoPart:
        """Return where frames of one video are. Raises VideoError for a video that cannot be used."""
        video = int(self._video_of[frames[0]])
        index = self.indexes[video]
        if isinstance(index, str):
            raise VideoError(index)
        return VideoPart(self.files[video], index, self._numbers[frames].tolist())

    @cached_property
    def _sorted(self) -> tuple[Ints, Ints]:
        """Return the clips, stretch by stretch, and their stretches."""
        order = np.argsort(self.of_clips, kind="stable")
        return order, self.of_clips[order]


def starts_of_stretches(index: VideoIndex, length: int) -> list[int]:
    """Return the numbers of the frames with which the stretches of a video begin.

    A stretch ends at the first key frame after `length` frames, so that no frame is decoded for two of them. Where that
    makes it twice as long or longer, it is cut into equal parts.
    """
    cuts = [0]
    for key in index.keys.tolist():
        if key - cuts[-1] >= length:
            cuts.append(key)
    cuts.append(len(index.stamps))
    starts: list[int] = []
    for start, end in pairwise(cuts):
        parts = max(1, (end - start) // length)
        starts += (start + (end - start) * np.arange(parts) // parts).tolist()
    return starts


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
        self._pool = Threads(threads, "detaug-nvdec")
        self._next: Iterator[tuple[int, int]] = iter(())
        self._held: dict[int, _Stretch] = {}

    def start(self, upcoming: Iterator[Upcoming]) -> None:
        """Begin with another order of clips."""
        self._drop()
        self._next = (use for epoch in upcoming for use in self._uses(epoch.indices[epoch.mine]))
        self._fill()

    def get(self, indices: Ints) -> list[Tensor]:
        """Return the frames of clips, (H, W, 3) each. Raises VideoError, an OSError, for one that does not decode."""
        return [frame for clip in indices.reshape(-1, self._stretches.clips.shape[1]) for frame in self._clip(clip)]

    def close(self) -> None:
        """Drop everything, and wait for what is being decoded."""
        self._drop()
        self._pool.close()

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
        position_of = {index: position for position, index in enumerate(self._stretches.frames(number).tolist())}
        return [frames[position_of[index]] for index in clip.tolist()]

    def _uses(self, indices: Ints) -> Iterator[tuple[int, int]]:
        """Yield the stretches of clips in the order of their first clips, and how many clips each has."""
        clips = indices.reshape(-1, self._stretches.clips.shape[1])[:, 0].tolist()
        numbers = np.array([self._stretches.of_first_frames[clip] for clip in clips], np.int64)
        stretches, first, counts = np.unique(numbers, return_index=True, return_counts=True)
        order = np.argsort(first)
        yield from zip(stretches[order].tolist(), counts[order].tolist(), strict=True)

    def _fill(self) -> None:
        while sum(len(stretch.clips) - stretch.begun for stretch in self._held.values()) < self._threads:
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
        for stretch in self._held.values():
            stretch.frames.cancel()
        self._held.clear()
