"""The frames of video files, as a source has them: all of some files, or those that a CocoVID JSON file names.

The numbers and times of the frames of a file are stored in the user's cache folder.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from detaug.arrays import Floats, Ints
from detaug.coco.annotation_cache import load_columns, save_columns
from detaug.coco.annotations import AnnotationError, Annotations, read_annotations
from detaug.coco.file_names import VIDEO_EXTENSIONS
from detaug.errors import InputError
from detaug.files import video_file
from detaug.files.addresses import check_on_disk
from detaug.files.image_file import short_digest
from detaug.files.paths import PathLike, list_files
from detaug.files.video_file import Coding, VideoIndex, import_av, index_or_reason
from detaug.machine.cores import available_cores
from detaug.machine.threads import Threads
from detaug.sources.clips import FrameColumns, Tracks, rows_of
from detaug.sources.coco_reader import source_columns, tracks_of
from detaug.sources.coco_shapes import WantedShapes
from detaug.storage.folder import file_status


class VideoFrames(NamedTuple):
    """n frames of V video files."""

    columns: dict[str, Any]
    """The arguments of `Source`."""
    frames: FrameColumns
    tracks: Tracks
    files: list[str]
    """Absolute paths."""
    indexes: list[VideoIndex | str]
    """The frames of each file, or the reason why it cannot be used."""
    video_of: Ints
    """(n,) the position in `files` of each frame."""


def frames_of_files(videos: PathLike | Sequence[PathLike], *, cache: bool) -> VideoFrames:
    """Return all frames of the videos in a folder or a list; one frame for a video that cannot be used."""
    origin, files, class_names, classes = find_videos(videos)
    indexes = read_indexes(files, cache=cache)
    counts, sizes, times = zip(*(_columns(index) for index in indexes), strict=True)
    video_of = np.repeat(np.arange(len(counts)), counts)
    numbers = np.concatenate([np.arange(count) for count in counts])
    columns = {
        "sizes": np.array(sizes)[video_of],
        "class_names": class_names,
        "classes": None if classes is None else classes[video_of],
        "origin": origin,
    }
    nothing = Tracks(np.zeros(0, np.int64), np.zeros(len(video_of), np.int64))
    return VideoFrames(
        columns, FrameColumns(video_of + 1, numbers, np.concatenate(times)), nothing, files, indexes, video_of
    )


def _columns(index: VideoIndex | str) -> tuple[int, tuple[int, int], Floats]:
    """Return the number of frames, their size and times; a stand-in for a video that cannot be used."""
    if isinstance(index, str):
        return 1, (1, 1), np.zeros(1)
    return len(index.stamps), index.size, index.times


def frames_of_annotations(
    videos: PathLike | Sequence[PathLike],
    annotations: PathLike,
    keys: Sequence[str],
    wanted: WantedShapes,
    *,
    cache: bool,
) -> VideoFrames:
    """Return the frames that a CocoVID JSON file has rows of. Raises AnnotationError where it does not fit the files.

    `keys`: of its annotations, which are columns; `wanted`: the shapes that are read.
    """
    folder, wanted_columns = _folder(videos, annotations), wanted.with_columns(keys)
    data = read_annotations(Path(annotations), columns=wanted_columns, outlines=wanted.outlines, cache=cache)
    _check_named(data)
    names = sorted({data.video_files[number] for number in data.video_ids.tolist()})
    position = {name: index for index, name in enumerate(names)}
    video_of = np.array([position[data.video_files[number]] for number in data.video_ids.tolist()], np.int64)
    files = [os.path.join(folder.absolute(), name) for name in names]
    indexes = read_indexes(files, cache=cache)
    times = _times(data, indexes, video_of)
    columns = FrameColumns(data.video_ids, data.frame_ids, times)
    arguments = source_columns(data, ~data.crowd, keys) | {"shapes": wanted.of(data, ~data.crowd)}
    return VideoFrames(arguments, columns, tracks_of(data), files, indexes, video_of)


def _folder(videos: PathLike | Sequence[PathLike], annotations: PathLike) -> Path:
    if not isinstance(videos, str | os.PathLike):
        raise InputError("with annotations, videos must be the folder that the file_name of a video is relative to")
    check_on_disk(videos)
    if not os.path.isdir(videos):
        raise InputError(f"{os.fspath(videos)}: no such folder; it must hold the videos that {annotations} names")
    return Path(videos)


def _check_named(data: Annotations) -> None:
    """Raise AnnotationError unless each image is a frame of a video that has a file."""
    if not len(data.video_ids):
        raise AnnotationError(f"{data.path}: no images; they are the frames of the videos")
    index = int(np.argmin(np.isin(data.video_ids, list(data.video_files))))
    if (number := int(data.video_ids[index])) not in data.video_files:
        what = f"the video {number} has none" if number >= 0 else f"the image {data.file_names[index]!r} is of no video"
        raise AnnotationError(
            f"{data.path}: each video must have the file_name of a video file, as 'a.mp4', and {what}; da.ClipReader "
            "reads frames that are image files"
        )


def _times(data: Annotations, indexes: Sequence[VideoIndex | str], video_of: Ints) -> Floats:
    """Return (n,) the seconds of each frame; nan in videos that cannot be used. Raises AnnotationError."""
    times = np.full(len(video_of), np.nan)
    for rows, index in zip(rows_of(video_of, len(indexes)), indexes, strict=True):
        if isinstance(index, VideoIndex):
            _check_fits(data, rows, index)
            times[rows] = index.times[data.frame_ids[rows]]
    return times


def _check_fits(data: Annotations, rows: Ints, index: VideoIndex) -> None:
    """Raise AnnotationError where the images at `rows` are not frames of their video."""
    name, count = data.video_files[int(data.video_ids[rows[0]])], len(index.stamps)
    others = rows[(data.sizes[rows] != index.size).any(1)]
    if len(others):
        (height, width), (h, w) = data.sizes[others[0]].tolist(), index.size
        raise AnnotationError(
            f"{data.path}: the images of {name} have {width} x {height} pixels, its frames {w} x {h}, turned as the "
            "file says"
        )
    if (latest := int(data.frame_ids[rows].max())) >= count:
        raise AnnotationError(f"{data.path}: frame_id {latest} of {name}, whose {count} frames are 0 to {count - 1}")


def keys_before(indexes: Sequence[VideoIndex | str], video_of: Ints, numbers: Ints) -> Ints:
    """Return (n,) how many key frames come before or at each frame of a video; 0 in videos that cannot be used."""
    keys = np.zeros(len(video_of), np.int64)
    for rows, index in zip(rows_of(video_of, len(indexes)), indexes, strict=True):
        if isinstance(index, VideoIndex):
            keys[rows] = np.searchsorted(index.keys, numbers[rows], "right")
    return keys


class Videos(NamedTuple):
    """Video files."""

    origin: str
    """What errors say where they come from."""
    files: list[str]
    """Absolute paths."""
    class_names: list[str]
    classes: Ints | None
    """(V,) the class of each, 0..K-1; None without classes."""


def find_videos(videos: PathLike | Sequence[PathLike]) -> Videos:
    """Return the videos of a folder, sorted, with the classes that sub-folders are; or those of a list.

    Raises InputError for no videos.
    """
    for video in [videos] if isinstance(videos, str | os.PathLike) else videos:
        check_on_disk(video)
    if not isinstance(videos, str | os.PathLike):
        files = _not_empty([os.path.abspath(video) for video in videos], "the list")
        return Videos("the list of videos", files, [], None)
    folder = Path(videos)
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give a folder of videos, or a list of files")
    names = _not_empty(list_files(folder, VIDEO_EXTENSIONS), str(folder))
    files = [os.path.join(folder.absolute(), name) for name in names]
    if not all("/" in name for name in names):
        return Videos(str(folder), files, [], None)
    of_files = [name.partition("/")[0] for name in names]
    class_names, classes = np.unique(of_files, return_inverse=True)
    return Videos(str(folder), files, class_names.tolist(), np.asarray(classes, np.int64))


def _not_empty(names: list[str], where: str) -> list[str]:
    if not names:
        raise InputError(f"{where}: no videos; their names end in {', '.join(VIDEO_EXTENSIONS)}")
    return names


def read_indexes(files: Sequence[str], *, cache: bool) -> list[VideoIndex | str]:
    """Return the frames of each file, or the reason why it cannot be used.

    Those of all files are one cache file, which is valid as long as the files' paths, lengths and dates are the same.
    """
    version, code = import_av().__version__, Path(video_file.__file__).read_bytes()
    key = short_digest(code, version.encode(), *(f"{file} {file_status(file)}".encode(*_AS_BYTES) for file in files))
    if cache and (saved := load_columns(Path(files[0]), key)) is not None:
        return _from_columns(saved)
    with Threads(available_cores()) as pool:  # FFmpeg reads outside of Python's lock
        indexes = pool.map(index_or_reason, files)
    good = [index for index in indexes if isinstance(index, VideoIndex)]
    if cache and len(good) == len(files):
        save_columns(Path(files[0]), key, _to_columns(good))
    return indexes


_AS_BYTES = "utf-8", "surrogateescape"
_NUMBERS = "stamps", "keys", "packets"


def _to_columns(indexes: Sequence[VideoIndex]) -> dict[str, Any]:
    facts = [
        [len(index.stamps), len(index.keys), len(index.packets), index.unit, *index.size, index.coding.turns]
        for index in indexes
    ]
    numbers = {name: np.concatenate([getattr(index, name) for index in indexes]) for name in _NUMBERS}
    formats = np.array([[index.coding.codec, index.coding.pixels] for index in indexes])
    return {**numbers, "facts": np.array(facts, np.float64), "formats": formats}


def _from_columns(saved: Any) -> list[VideoIndex | str]:
    facts, parts = saved["facts"], []
    for name, lengths in zip(_NUMBERS, facts[:, : len(_NUMBERS)].T, strict=True):
        parts.append(np.split(np.asarray(saved[name], np.int64), np.cumsum(lengths).astype(int)[:-1]))
    indexes: list[VideoIndex | str] = []
    for stamps, keys, packets, row, (codec, pixels) in zip(
        *parts, facts.tolist(), saved["formats"].tolist(), strict=True
    ):
        *_, unit, height, width, turns = row
        coding = Coding(codec, pixels, int(turns))
        indexes.append(VideoIndex(stamps, keys, unit, (int(height), int(width)), coding, packets))
    return indexes
