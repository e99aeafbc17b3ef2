"""`ClipReader`: clips of frames, from a folder of images with a CocoVID JSON file."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detaug.arguments import checks_names
from detaug.coco.annotations import AnnotationError, Annotations
from detaug.files.paths import PathLike
from detaug.sources.clips import FrameColumns, Last, Tracks, check_clips, clips_of_videos
from detaug.sources.coco_reader import CocoReader, UnusedParents, tracks_of
from detaug.sources.coco_shapes import FlipPairs


class ClipReader(CocoReader):
    """Clips of several frames, from a folder with the frames of videos as images, and a CocoVID JSON file.

    The JSON file is a COCO JSON file with a list `videos` (id, and fps if known); its images have `video_id` and
    `frame_id`, its annotations the number of their object as `track_id` or `instance_id`. `Loader` shuffles clips,
    `batch_size` counts them, and the batches are of `ClipBatch`.

    Raises AnnotationError for a JSON file without videos, for a frame_id or a track_id that is there twice, for frames
    of several sizes in a video, and where no clip is left.

    Args:
        images: The folder that the JSON file's file names are relative to.
        annotations: The JSON file.
        frames: Frames per clip.
        stride: A clip takes each `stride`-th image of its video, in the order of `frame_id`.
        step: A clip begins at each `step`-th image.
        last: Clips that reach beyond the end of their video: "drop" them, "pad" them by repeating the last frame, or
            "shift" the last one back to end there; a video that is shorter than a clip is then padded.
        columns: Keys of the annotations that each box keeps; see `CocoReader`, as for all that follow.
        keypoints: Whether to read keypoints.
        flip_pairs: Keypoints that are swapped in a flipped clip.
        masks: Whether to read polygons and RLE.
        rotated: Whether to read rotated boxes.
        tight: Whether boxes are those of the visible part of their objects.
        unused_parents: "drop" leaves out categories that are supercategories of others and without annotations.
        cache: Whether to store the parsed content of a large JSON file.
        cache_folder: Where downloads from an object store are kept.
        cache_size: The most bytes of them.

    >>> reader = da.ClipReader("demo/MOT", "demo/clips.json", frames=4, stride=2)
    >>> loader: da.Loader[da.ClipBatch] = da.Loader(reader, [da.Resize((120, 160))], batch_size=2)
    >>> print(len(reader.clips), "clips,", next(iter(loader)))
    48 clips, ClipBatch(images (2, 4, 3, 120, 160) uint8 on cpu, 26 boxes)
    """

    frames: FrameColumns
    tracks: Tracks

    @checks_names
    def __init__(
        self,
        images: PathLike,
        annotations: PathLike,
        *,
        frames: int = 8,
        stride: int = 1,
        step: int = 1,
        last: Last = "drop",
        columns: Sequence[str] = (),
        keypoints: bool = False,
        flip_pairs: FlipPairs = None,
        masks: bool = False,
        rotated: bool = False,
        tight: bool = False,
        unused_parents: UnusedParents = "keep",
        cache: bool = True,
        cache_folder: PathLike | None = None,
        cache_size: str | int = "20GB",
    ) -> None:
        check_clips(frames, stride, step, last)
        super().__init__(
            images,
            annotations,
            columns=columns,
            keypoints=keypoints,
            flip_pairs=flip_pairs,
            masks=masks,
            rotated=rotated,
            tight=tight,
            unused_parents=unused_parents,
            cache=cache,
            cache_folder=cache_folder,
            cache_size=cache_size,
        )
        self.columns["track_id"] = self.tracks.ids
        self.clips = clips_of_videos(*self.frames[:2], frames, stride, step, last, str(self.annotations))

    def __repr__(self) -> str:
        videos, frames = len(np.unique(self.frames.video_ids)), self.clips.shape[1]
        content = f"{len(self.clips)} clips of {frames} frames, {videos} videos, {len(self)} images"
        return f"ClipReader({str(self.images)!r}, {str(self.annotations)!r})  # {content}"

    def _keep_columns(self, data: Annotations) -> None:
        if (data.video_ids < 0).any():
            raise AnnotationError(
                f"{data.path}: no videos; a CocoVID JSON file has a list of them, and its images video_id and frame_id"
            )
        self.frames = FrameColumns(data.video_ids, data.frame_ids, data.frame_ids / data.frame_rates)
        self.tracks = tracks_of(data)
