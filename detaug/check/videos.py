"""Open the video files of a JSON file: which cannot be used, and which images are not frames of theirs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from detaug.arrays import Ints
from detaug.check.images import Header, rows_of_videos
from detaug.coco.table import Table
from detaug.files.video_file import VideoIndex, index_or_reason
from detaug.findings.entries import Findings, Where, from_messages
from detaug.findings.finding import counted, shown
from detaug.machine.cores import available_cores
from detaug.machine.threads import Threads


def check_videos(table: Table, folder: Path, headers: Sequence[Header], rows: Sequence[int]) -> Iterator[Findings]:
    """Yield findings about the videos that the images at `rows` are frames of, unless these are files of their own.

    Reads each video once, and decodes its first frame. Raises InputError if PyAV is not installed.
    """
    frames: dict[int, list[int]] = {}
    for image in rows:
        number = int(table.videos.video_ids[image])
        name = table.videos.files.get(number)
        if headers[image] is None and name is not None and (folder / name).is_file():
            frames.setdefault(number, []).append(image)
    if not frames:
        return
    with Threads(available_cores()) as threads:  # FFmpeg reads outside of Python's lock
        indexes = threads.map(lambda number: index_or_reason(str(folder / table.videos.files[number])), [*frames])
    positions = rows_of_videos(table)
    messages: dict[tuple[str, Where], dict[int, str]] = {}
    for (number, images), index in zip(frames.items(), indexes, strict=True):
        if isinstance(index, str):
            reason = f"its file {shown(table.videos.files[number])} {index}"
            messages.setdefault(("video-unusable", "videos"), {})[positions[number]] = reason
            continue
        for kind, image, message in _faults(table, np.array(images), index):
            messages.setdefault((kind, "images"), {})[image] = message
    for (kind, where), of_kind in messages.items():
        yield from_messages(kind, where, of_kind)


def _faults(table: Table, images: Ints, index: VideoIndex) -> Iterator[tuple[str, int, str]]:
    """Yield (kind, position, message) of the images that are not frames of their video, or of another size."""
    numbers, count = table.videos.frame_ids[images], len(index.stamps)
    for image, number in zip(images[numbers >= count].tolist(), numbers[numbers >= count].tolist(), strict=True):
        yield "frame-missing", image, f"frame_id {number}, and the video has {counted(count, 'frame')}, counted from 0"
    others = table.has_size[images] & (table.sizes[images] != index.size).any(1)
    for image in images[others].tolist():
        (height, width), (h, w) = table.sizes[image].tolist(), index.size
        yield "size-wrong", image, f"{width} x {height} in the JSON file, {w} x {h} in the file"
