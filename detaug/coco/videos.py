"""The videos of a CocoVID JSON, whose images are frames: `videos` and the rows' `video_id`, `frame_id`, `track_id`.

MMTracking and MMDetection write `instance_id` for `track_id`. Both are whole numbers that an object has in all frames
of its video.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.arrays import Bools, Ints
from detaug.coco.columns import Rows, whole_numbers
from detaug.coco.file_names import video_files_of
from detaug.coco.table import Coco, VideoColumns
from detaug.findings.finding import shown

TRACK_KEYS = ("track_id", "instance_id")


def video_columns(coco: Coco, images: Rows, objects: Rows, image_index: Ints, sizes: Ints) -> VideoColumns:
    """Return the columns, and append findings about rows that cannot be used. `image_index`: (A,), `sizes`: (N, 2)."""
    nothing = np.full(len(images.rows), -1)
    if not coco.has_videos:
        return VideoColumns(nothing, nothing, np.full(len(nothing), np.nan), np.full(len(objects.rows), -1), {})
    videos = Rows(coco, "videos", images.findings)
    rates, files = _by_id(videos)
    video_ids, known = _video_ids(images, rates)
    frame_ids, numbered = _frame_ids(images, video_ids, known)
    _note_other_sizes(images, video_ids, known, sizes)
    rate = np.array([rates.get(video, np.nan) for video in video_ids.tolist()])
    track_ids = _track_ids(objects, image_index)
    return VideoColumns(np.where(known, video_ids, -1), np.where(numbered, frame_ids, -1), rate, track_ids, files)


def _by_id(videos: Rows) -> tuple[dict[int, float], dict[int, str]]:
    """Return by the id of each video its frames per second, nan where it has none, and its file, if it is one."""
    ids, good = videos.whole_numbers("id", "video-id")
    videos.note_repeated_ids("video-id", ids, good)
    rates, files = videos.column("fps"), video_files_of(videos)
    first = {int(ids[row]): row for row in reversed(np.flatnonzero(good).tolist())}
    return {number: _rate(rates[row]) for number, row in first.items()}, {
        number: files[row] for number, row in first.items() if files[row]
    }


def _rate(value: Any) -> float:
    return float(value) if type(value) in (int, float) and 0 < value < 1e15 else float("nan")


def _video_ids(images: Rows, rates: dict[int, float]) -> tuple[Ints, Bools]:
    values = images.column("video_id")
    ids, is_whole = whole_numbers(values)
    known = is_whole & np.isin(ids, np.array(list(rates), np.int64))
    images.note("video-id", ~known, lambda row: f"video_id {shown(values[row])} is not the id of a video")
    return ids, known & images.present


def _frame_ids(images: Rows, video_ids: Ints, known: Bools) -> tuple[Ints, Bools]:
    values = images.column("frame_id")
    numbers, good = whole_numbers(values)
    rule = "frame_id must be a whole number, which no other image of the video has, got "
    repeated = _repeated(good & known, video_ids, numbers)
    images.note("frame-id", ~good | repeated, lambda row: rule + shown(values[row]))
    return numbers, good & ~repeated


def _note_other_sizes(images: Rows, video_ids: Ints, known: Bools, sizes: Ints) -> None:
    """Note the frames of another size than most of their video have; of equally many, than the first one has."""
    if not len(sizes):  # a finding of its own
        return
    _, first, video = np.unique(video_ids, return_index=True, return_inverse=True)
    kinds, kind = np.unique(sizes, axis=0, return_inverse=True)
    votes = np.zeros((len(first), len(kinds)))
    np.add.at(votes, (video, kind.reshape(-1)), 1)
    votes[np.arange(len(first)), kind.reshape(-1)[first]] += 0.5
    expected = kinds[votes.argmax(1)][video]

    def describe(row: int) -> str:
        (height, width), (h, w) = sizes[row], expected[row]
        return f"a frame of {width} x {height} pixels in a video of {w} x {h}"

    images.note("video-sizes", known & (sizes != expected).any(1), describe)


def _track_ids(objects: Rows, image_index: Ints) -> Ints:
    """Return (A,); -1 for all if none has one."""
    key = next((key for key in TRACK_KEYS if any(key in row for row in objects.rows)), TRACK_KEYS[0])
    values = objects.column(key)
    if values.count(None) == len(values):
        return np.full(len(values), -1)
    ids, good = whole_numbers(values)
    objects.note("track-id", ~good, lambda row: f"{key} must be a whole number, got {shown(values[row])}")
    repeated = _repeated(good & (image_index >= 0), image_index, ids)
    objects.note("track-repeated", repeated, lambda row: f"{key} {values[row]} is taken by another box of the frame")
    return np.where(good, ids, -1)


def _repeated(rows: Bools, groups: Ints, numbers: Ints) -> Bools:
    """Return (R,): whether an earlier one of the `rows` has the same number in the same group."""
    candidates = np.flatnonzero(rows)
    order = candidates[np.lexsort((candidates, numbers[candidates], groups[candidates]))]
    equal = (groups[order][1:] == groups[order][:-1]) & (numbers[order][1:] == numbers[order][:-1])
    repeated = np.zeros(len(rows), bool)
    repeated[order[1:][equal]] = True
    return repeated
