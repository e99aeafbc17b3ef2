"""Clips: which frames of a video they have, and which boxes of these are one object."""

from __future__ import annotations

from numbers import Integral
from typing import Literal, NamedTuple

import numpy as np

from detaug.arrays import Floats, Ints
from detaug.errors import AnnotationError, InputError

Last = Literal["drop", "pad", "shift"]


class FrameColumns(NamedTuple):
    """Where the images of a source, frames, are in their videos."""

    video_ids: Ints
    """(n,)"""
    frame_ids: Ints
    """(n,) the number of each frame in its video."""
    times: Floats
    """(n,) seconds from frame 0 of the video; nan where that is not known."""

    def of(self, images: Ints) -> FrameColumns:
        """Return where some of the images are."""
        return FrameColumns(self.video_ids[images], self.frame_ids[images], self.times[images])


class Tracks:
    """Which boxes are one object. `ids`: (A,) its number in its video, -1 in all where none is known.

    `counts`: (n,) the boxes of each image. Without numbers, the first boxes of all frames have one row, and so on.
    """

    def __init__(self, ids: Ints, counts: Ints) -> None:
        self.ids = ids
        image = np.repeat(np.arange(len(counts)), counts)
        position = np.arange(len(image)) - np.searchsorted(image, image)
        self._objects, self._object_of = np.unique(ids if (ids >= 0).any() else position, return_inverse=True)

    def rows(self, clip: Ints, boxes: Ints, clips: int) -> tuple[Ints, int]:
        """Return the row of each box, the same for an object in all of its clip, and the number of rows.

        `clip`: (B,) the clip of each of the `boxes`, ascending, 0..`clips` - 1.
        """
        objects = len(self._objects)
        distinct, row = np.unique(clip * objects + self._object_of[boxes], return_inverse=True)
        first = np.searchsorted(distinct, np.arange(clips + 1) * objects)
        return row - first[clip], int(np.diff(first).max(initial=0))


def check_clips(frames: int, stride: int, step: int, last: str) -> None:
    """Raise InputError for arguments of `clips_of_videos` that are wrong."""
    check_counts(frames=frames, stride=stride, step=step)
    if last not in ("drop", "pad", "shift"):
        raise InputError(f"last must be 'drop', 'pad' or 'shift', got {last!r}")


def check_counts(**values: int) -> None:
    """Raise InputError for arguments that are not whole numbers of at least 1."""
    for name, value in values.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")


def clips_of_videos(
    video_ids: Ints, frame_ids: Ints, frames: int, stride: int, step: int, last: Last, origin: str = "the videos"
) -> Ints:
    """Return (C, frames) the images of all clips, as positions in the columns (n,); arguments as in `ClipReader`.

    Raises AnnotationError if there are none. `origin`: what it names.
    """
    order = np.lexsort((frame_ids, video_ids))
    _, first = np.unique(video_ids[order], return_index=True)
    ends = np.append(first, len(order))[1:]
    offsets = np.arange(frames) * stride
    clips = [order[start + _clips_of(end - start, offsets, step, last)] for start, end in zip(first, ends, strict=True)]
    if not sum(map(len, clips)):
        raise AnnotationError(
            f"{origin}: a clip spans {offsets[-1] + 1} frames, the longest video has {max(ends - first)}; give fewer "
            "frames, a smaller stride, or last='pad'"
        )
    return np.concatenate(clips)


def _clips_of(length: int, offsets: Ints, step: int, last: Last) -> Ints:
    """Return (C, F) the frames of the clips of one video of `length` frames."""
    latest = length - 1 - int(offsets[-1])  # where a clip may begin
    starts = np.arange(0, length if last == "pad" else max(0, latest + 1), step)
    if last == "shift" and (not len(starts) or starts[-1] != latest):
        starts = np.append(starts, max(0, latest))
    clips: Ints = np.minimum(starts[:, None] + offsets, length - 1)
    return clips


def rows_of(video_of: Ints, videos: int) -> list[Ints]:
    """Return the rows of each video, as positions in `video_of`."""
    order = np.argsort(video_of, kind="stable")
    return np.split(order, np.searchsorted(video_of[order], np.arange(1, videos)))
