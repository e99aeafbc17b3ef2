"""`VideoReader`: clips of frames from video files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path

import numpy as np

from detaug.arguments import checks_names
from detaug.arrays import Bytes, Ints
from detaug.errors import InputError
from detaug.files.image_file import short_digest
from detaug.files.paths import PathLike
from detaug.files.video_file import VideoError, VideoIndex
from detaug.findings.finding import counted
from detaug.sources.clips import FrameColumns, Last, check_clips, check_counts, clips_of_videos
from detaug.sources.coco_reader import column_names
from detaug.sources.coco_shapes import FlipPairs, WantedShapes
from detaug.sources.source import Source
from detaug.storage.folder import file_sizes
from detaug.storage.storage import Upcoming
from detaug.video.decoding import decode_frames
from detaug.video.frames import frames_of_annotations, frames_of_files, keys_before
from detaug.video.frames_ahead import FramesAhead, Run
from detaug.video.stretches import Stretches


class VideoReader(Source):
    """Clips of `frames` frames, from video files. Needs PyAV: `pip install 'detaug[video]'`.

    A GPU decodes `stretch` frames of a video at once, or some more, up to a key frame, and several clips are cut from
    them; so in training, whatever decodes, the clips of a stretch come near each other: at any time from about 8
    stretches for each 8 clips of a batch. `stretch=1` shuffles all clips.

    The numbers and times of the frames are read once, and stored in ~/.cache/detaug if `cache`: of MP4, MOV and
    Matroska files without decoding, of others, as AVI and MPEG, by decoding each file.

    Files that are not videos that can be used are `missing`: `Loader` refuses or skips them. Raises InputError for a
    folder or a list without videos, AnnotationError, an InputError, for a JSON file that does not fit the files, and
    where no clip is left.

    Args:
        videos: A folder, or a list of files. If all videos of a folder are in sub-folders, the sorted names of these
            are the classes, and `ClipBatch.classes` has the class of each clip; else there is none.
        frames: Frames per clip.
        stride: A clip takes each `stride`-th frame, counted as a player shows them.
        step: A clip begins at each `step`-th frame; None: where the one before ends.
        last: See `ClipReader`.
        annotations: A CocoVID JSON file with boxes, whose `videos` have a `file_name` below the folder `videos`, and
            whose images are frames: `frame_id` is the number of a frame in its file, from 0. Clips are then made of the
            frames that the JSON file has, and classes, boxes and tracks are its own. `columns`, `keypoints`,
            `flip_pairs`, `masks`, `rotated` and `tight` say what else is read of it: see `CocoReader`.
        columns: See `CocoReader`, as for the next five.
        keypoints: Whether to read keypoints of `annotations`.
        flip_pairs: Keypoints that are swapped in a flipped clip.
        masks: Whether to read polygons and RLE.
        rotated: Whether to read rotated boxes.
        tight: Whether boxes are those of the visible part of their objects.
        stretch: Frames of a video that a GPU decodes at once, or some more, up to a key frame; several clips are cut
            from them. 1 shuffles all clips.
        nvdec: Whether a GPU decodes what its NVDEC can. Otherwise, for other codecs, on the CPU, and where the loader
            has a `cache`, PyAV decodes clip by clip, in as many threads as there are cores.
        cache: Whether the numbers and times of the frames are stored in ~/.cache/detaug.

    >>> import av
    >>> with av.open("gray.mp4", "w") as file:  # a video to read
    ...     stream = file.add_stream("mpeg4", rate=25, width=96, height=64)
    ...     for level in range(0, 250, 10):
    ...         frame = av.VideoFrame.from_ndarray(np.full((64, 96, 3), level, np.uint8), format="rgb24")
    ...         file.mux(stream.encode(frame))
    ...     file.mux(stream.encode())
    >>> reader = da.VideoReader(["gray.mp4"], frames=4, stride=2)
    >>> batch = next(iter(da.Loader(reader, [da.Resize((64, 96))], batch_size=1, train=False)))
    >>> print(len(reader.clips), "clips,", batch.images.shape, batch.frame, batch.time)
    3 clips, torch.Size([1, 4, 3, 64, 96]) tensor([[0, 2, 4, 6]]) tensor([[0.0000, 0.0800, 0.1600, 0.2400]], ...
    """

    frames: FrameColumns
    files, decodes = False, True

    @checks_names
    def __init__(
        self,
        videos: PathLike | Sequence[PathLike],
        *,
        frames: int = 16,
        stride: int = 1,
        step: int | None = None,
        last: Last = "drop",
        annotations: PathLike | None = None,
        columns: Sequence[str] = (),
        keypoints: bool = False,
        flip_pairs: FlipPairs = None,
        masks: bool = False,
        rotated: bool = False,
        tight: bool = False,
        stretch: int = 128,
        nvdec: bool = True,
        cache: bool = True,
    ) -> None:
        step = frames * stride if step is None else step
        check_clips(frames, stride, step, last)
        check_counts(stretch=stretch)
        wanted, names = WantedShapes(keypoints, flip_pairs, rotated, tight, masks), column_names(columns)
        if annotations is not None:
            video_frames = frames_of_annotations(videos, annotations, names, wanted, cache=cache)
        elif names or wanted.outlines or keypoints:
            raise InputError(
                "columns, keypoints, masks, rotated and tight are read of annotations: give a CocoVID JSON file"
            )
        else:
            video_frames = frames_of_files(videos, cache=cache)
        arguments, self.frames, self.tracks, self.video_files, self._indexes, self._video_of = video_frames
        super().__init__(**arguments)
        self.columns["track_id"] = self.tracks.ids
        self.remedy = "remove it, or write it again: ffmpeg -i IN OUT.mp4"
        unusable = np.flatnonzero([isinstance(index, str) for index in self._indexes])
        self.missing = np.flatnonzero(np.isin(self._video_of, unusable))
        if len(self.missing) == len(self):
            self.check_files()
        clips = clips_of_videos(*self.frames[:2], frames, stride, step, last, self.origin)
        self.clips = self._with_missing(clips)
        self.nvdec = nvdec
        where = self._indexes, self._video_of, self.frames.frame_ids
        self.stretches = Stretches(self.video_files, *where, self.clips, stretch)
        self.stretch_of_clip = self.stretches.of_clips
        decode = partial(_decode_run, self.video_files, *where)
        keys = keys_before(*where)
        self._ahead = FramesAhead(decode, self._video_of, self.frames.frame_ids, keys, 3 * self.pixels, frames)

    def __repr__(self) -> str:
        clips, videos = counted(len(self.clips), "clip"), counted(len(self.video_files), "video")
        classes = counted(len(self.class_names) - 1, "class", "classes")
        return f"VideoReader({self.origin!r})  # {clips} of {self.clips.shape[1]} frames, {videos}, {classes}"

    def path(self, index: int) -> Path:
        """Return the video file of a frame."""
        return Path(self.video_files[self._video_of[index]])

    def read(self, index: int) -> bytes:
        """Return a frame as an encoded image, PPM. Raises VideoError, an OSError, if it does not decode."""
        (frame,) = self._ahead.get(np.array([index]))
        height, width = frame.shape[:2]
        return b"P6\n%d %d\n255\n" % (width, height) + frame.tobytes()

    def contents(self, indices: Ints) -> list[Bytes]:
        """Return frames, (H, W, 3) uint8 RGB. Raises VideoError, an OSError, for one that does not decode."""
        return self._ahead.get(indices)

    def prefetch(self, upcoming: Iterator[Upcoming]) -> None:
        """Decode what will be read, up to 64 runs or a gigabyte ahead."""
        self._ahead.start(upcoming)

    def why_missing(self, index: int) -> str:
        """Return the reason why a video cannot be used: "has no video, but audio"."""
        return str(self._indexes[self._video_of[index]])

    def check_files(self) -> None:
        """Raise InputError if a video cannot be used."""
        if len(self.missing):
            first = int(self.missing[0])
            videos = len(np.unique(self._video_of[self.missing]))
            unusable = f"{videos} of {len(self.video_files)} videos cannot be used"
            raise InputError(
                f"{self.origin}: {unusable}, the first is {self.path(first)}, which {self.why_missing(first)}; "
                f"{self.remedy}"
            )

    @cached_property
    def files_fingerprint(self) -> str:
        """Return a hash of the sizes of the files in bytes."""
        return short_digest(file_sizes(self.video_files).tobytes())

    def _with_missing(self, clips: Ints) -> Ints:
        """Return (C, F) the clips, and one for each video that cannot be used and has none, so that it is named."""
        _, first = np.unique(self._video_of[self.missing], return_index=True)
        rest = self.missing[first][~np.isin(self.missing[first], clips)]
        return np.concatenate([clips, np.repeat(rest[:, None], clips.shape[1], 1)])

    def _names(self) -> bytes:
        return "\0".join(map(os.path.basename, self.video_files)).encode("utf-8", "surrogateescape") + super()._names()


def _decode_run(
    files: Sequence[str], indexes: Sequence[VideoIndex | str], video_of: Ints, numbers: Ints, run: Run
) -> list[Bytes]:
    """Return frames of one video."""
    video = int(video_of[run[0]])
    index = indexes[video]
    if isinstance(index, str):
        raise VideoError(index)
    return decode_frames(files[video], index, numbers[[*run]].tolist())
