"""Stretches: parts of videos that a GPU decodes at once, and from which several clips are cut."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from detaug.arrays import Ints
from detaug.sources.clips import rows_of
from detaug.sources.video_files import VideoError, VideoIndex


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
        found, first = np.zeros(len(self._video_of), np.int64), 0
        for rows, index in zip(rows_of(self._video_of, len(self.indexes)), self.indexes, strict=True):
            starts = [0] if isinstance(index, str) else starts_of_stretches(index, self._length)
            found[rows] = first + np.searchsorted(starts, self._numbers[rows], "right") - 1
            first += len(starts)
        return np.asarray(found[self.clips[:, 0]])

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
