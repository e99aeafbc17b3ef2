"""`ClipReader`: clips of frames, from a folder of images with a CocoVID json."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from numbers import Integral
from typing import Literal

import numpy as np

from detaug.boxes.views import Ints, Views, pairs, whole_images
from detaug.converters.coco.annotations import AnnotationError, Annotations
from detaug.converters.files.digests import short_digest
from detaug.converters.files.paths import PathLike
from detaug.converters.findings.errors import InputError
from detaug.sources.coco_reader import CocoReader
from detaug.sources.source import FrameColumns

Last = Literal["drop", "pad", "shift"]


class ClipReader(CocoReader):
    """Clips of `frames` frames, from a folder with the frames of videos as images, and a CocoVID json.

    The json is a COCO json with a list `videos` (id, and fps if known); its images have `video_id` and `frame_id`, its
    annotations the number of their object as `track_id` or `instance_id`. `Loader` shuffles clips, `batch_size` counts
    them, and yields `ClipBatch`es. Everything else, as the arguments and sources of images, is as in `CocoReader`.

    `stride`: a clip takes each `stride`-th image of its video, in the order of `frame_id`. `step`: a clip begins at
    each `step`-th image. `last`: what becomes of clips that reach beyond the end of their video: "drop" them, "pad"
    them by repeating the last frame, or "shift" the last one back to end there; a video that is shorter than a clip is
    then padded.

    Raises AnnotationError for a json without videos, for a frame_id or a track_id that is there twice, for frames of
    several sizes in a video, and where no clip is left.

    >>> reader = da.ClipReader("demo/MOT", "demo/clips.json", frames=4, stride=2)
    >>> loader: da.Loader[da.ClipBatch] = da.Loader(reader, [da.Resize((120, 160))], batch_size=2)
    >>> print(len(reader.clips), "clips,", next(iter(loader)))
    48 clips, ClipBatch(images (2, 4, 3, 120, 160) uint8 on cpu, 32 boxes)
    """

    frames: FrameColumns

    def __init__(
        self,
        images: PathLike,
        annotations: PathLike,
        *,
        frames: int = 8,
        stride: int = 1,
        step: int = 1,
        last: Last = "drop",
        cache: bool = True,
        cache_folder: PathLike | None = None,
        cache_size: str | int = "20GB",
    ) -> None:
        check_clips(frames, stride, step, last)
        super().__init__(images, annotations, cache=cache, cache_folder=cache_folder, cache_size=cache_size)
        self.clips = clips_of_videos(self.frames.video_ids, self.frames.frame_ids, frames, stride, step, last)
        if not len(self.clips):
            span, longest = (frames - 1) * stride + 1, np.unique(self.frames.video_ids, return_counts=True)[1].max()
            raise AnnotationError(
                f"{self.annotations}: a clip spans {span} frames, the longest video has {longest}; give fewer frames, "
                "a smaller stride, or last='pad'"
            )

    def __repr__(self) -> str:
        videos, frames = len(np.unique(self.frames.video_ids)), self.clips.shape[1]
        content = f"{len(self.clips)} clips of {frames} frames, {videos} videos, {len(self)} images"
        return f"ClipReader({str(self.images)!r}, {str(self.annotations)!r})  # {content}"

    def clip_views(self, indices: Ints) -> Views:
        """Return the whole images of clips, F consecutive `indices` each; an object has one row in all of its clip."""
        frames = self.clips.shape[1]
        image, box = pairs(self._box_offsets, indices)
        keys = image // frames * len(self._objects) + self._object_of[box]
        distinct, row = np.unique(keys, return_inverse=True)
        first = np.searchsorted(distinct, np.arange(len(indices) // frames + 1) * len(self._objects))
        row -= first[image // frames]
        shape = len(indices), int(np.diff(first).max(initial=0))
        boxes, labels, tracks = np.zeros((*shape, 4)), np.full(shape, -1), np.full(shape, -1)
        boxes[image, row], labels[image, row] = self._boxes[box], self._labels[box]
        tracks[image, row] = self._tracks[box]
        views = whole_images(boxes, labels, self.sizes[indices].astype(np.float64))
        return replace(views, tracks=tracks, frames=frames)

    @cached_property
    def fingerprint(self) -> str:
        """Return a hash that is equal for the same clips of the same images, boxes and classes."""
        return short_digest(super().fingerprint.encode(), self.clips.tobytes(), self._tracks.tobytes())

    def _keep_columns(self, data: Annotations) -> None:
        if (data.video_ids < 0).any():
            raise AnnotationError(
                f"{data.path}: no videos; a CocoVID json has a list of them, and video_id and frame_id in its images"
            )
        self.frames = FrameColumns(data.video_ids, data.frame_ids, data.frame_ids / data.frame_rates)
        image = np.repeat(np.arange(len(data.image_ids)), np.diff(data.first))[~data.crowd]
        self._tracks = data.track_ids[~data.crowd]
        position = np.arange(len(image)) - np.searchsorted(image, image)
        tracked = (self._tracks >= 0).any()
        self._objects, self._object_of = np.unique(self._tracks if tracked else position, return_inverse=True)


def check_clips(frames: int, stride: int, step: int, last: str) -> None:
    """Raise InputError for arguments of `clips_of_videos` that are wrong."""
    for name, value in {"frames": frames, "stride": stride, "step": step}.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < 1:
            raise InputError(f"{name} must be a whole number of at least 1, got {value!r}")
    if last not in ("drop", "pad", "shift"):
        raise InputError(f"last must be 'drop', 'pad' or 'shift', got {last!r}")


def clips_of_videos(video_ids: Ints, frame_ids: Ints, frames: int, stride: int, step: int, last: Last) -> Ints:
    """Return (C, frames) the images of all clips, as positions in the columns (n,); arguments as in `ClipReader`."""
    order = np.lexsort((frame_ids, video_ids))
    _, first = np.unique(video_ids[order], return_index=True)
    ends = np.append(first, len(order))[1:]
    offsets = np.arange(frames) * stride
    clips = [order[start + _clips_of(end - start, offsets, step, last)] for start, end in zip(first, ends, strict=True)]
    return np.concatenate(clips)


def _clips_of(length: int, offsets: Ints, step: int, last: Last) -> Ints:
    """Return (C, F) the frames of the clips of one video of `length` frames."""
    latest = length - 1 - int(offsets[-1])  # where a clip may begin
    starts = np.arange(0, length if last == "pad" else max(0, latest + 1), step)
    if last == "shift" and (not len(starts) or starts[-1] != latest):
        starts = np.append(starts, max(0, latest))
    clips: Ints = np.minimum(starts[:, None] + offsets, length - 1)
    return clips
