"""The frames of a video whose objects come track by track."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

import numpy as np

from detaug.coco.rings import turned_box
from detaug.converters.records.record import Object, Record
from detaug.files.spool import Groups
from detaug.findings.finding import Finding


class KeyPoint(NamedTuple):
    """A point of a skeleton that comes apart from it."""

    name: str
    point: tuple[float, float, int]
    """x, y and COCO's visibility."""


Stored = Groups[tuple[str, int], tuple[int, Object | Finding | KeyPoint]]
"""What frames have, each with the number of its track, by the video and the number of the frame. Close it."""


class Frames:
    """The frames of one video. What they have waits in a file: memory grows with the number of frames only."""

    def __init__(
        self, file: str, video: str, images: Mapping[int, str], numbers: Iterable[int], stored: Stored
    ) -> None:
        """images: their names by the number of the frame. numbers: of frames that belong to the video in any case."""
        self._file, self._video, self._images, self._stored = file, video, images, stored
        self._numbers = {*numbers}
        self._with_image = sorted(number for number in self._numbers if number in images)

    def add(self, frame: int, track: int, *items: Object | Finding) -> None:
        """Add what a frame has of a track. It belongs to the video from now on, also without items."""
        self._numbers.add(frame)
        for item in items:
            self._stored.add((self._video, frame), (track, item))

    def add_point(self, frame: int, track: int, point: KeyPoint) -> None:
        """Add a point of the skeleton that the track has in a frame, before or after it."""
        self._stored.add((self._video, frame), (track, point))

    def add_between(self, track: int, before: tuple[int, Object], after: tuple[int, Object]) -> None:
        """Add a box to each frame with an image between two shapes, (frame, object), of a track: it moves evenly.

        Where one of them is not a box, a finding has the number of these frames.
        """
        (first, one), (last, other) = before, after
        # Of shapes that are far apart, only the images are looked through, not all the numbers between.
        near = range(first + 1, last) if last - first < len(self._images) * 2 else sorted(self._images)
        between = [frame for frame in near if frame in self._images and first < frame < last]
        start, end = _rotated_box(one), _rotated_box(other)
        if start is None or end is None:
            if between:
                note = f"track {track}: nothing is known of it between the frames {first} and {last}"
                self.add(first, track, Finding(self._file, "track-gap", note=note, count=len(between)))
            return
        turn = (end[4] - start[4] + 180) % 360 - 180  # the shorter way round
        for frame in between:
            share = (frame - first) / (last - first)
            x, y, width, height = (a + share * (b - a) for a, b in zip(start[:4], end[:4], strict=True))
            moved = Object(one.class_name, track=one.track, columns=one.columns)
            edges = x - width / 2, y - height / 2, x + width / 2, y + height / 2
            moved.set_box(edges, (start[4] + share * turn) % 360, x, y)
            self.add(frame, track, moved)

    def add_after(self, track: int, last: tuple[int, Object]) -> None:
        """Add the last shape, (frame, object), of a track to all later frames of the video that have an image."""
        frame, item = last
        for later in self._with_image[bisect_right(self._with_image, frame) :]:
            self.add(later, track, item)

    def records(self) -> Iterator[Record]:
        """Yield the frames in their order. A skeleton has the points of its track; without any it is left out."""
        for frame in sorted(self._numbers):
            image = self._images.get(frame, f"frame_{frame:06d}.PNG")
            record = Record(self._file, [image], video=self._video, frame=frame)
            objects: list[tuple[int, Object]] = []
            points: dict[int, dict[str, tuple[float, float, int]]] = {}
            for track, item in self._stored.pop((self._video, frame)):
                if isinstance(item, Object):
                    objects.append((track, item))
                elif isinstance(item, KeyPoint):
                    points.setdefault(track, {})[item.name] = item.point
                else:
                    record.findings.append(item)
            for track, item in objects:
                is_skeleton = not (item.edges or item.rings or item.corners or item.masks)
                if is_skeleton:
                    item.key_points = item.key_points or points.get(track, {})
                if not is_skeleton or any(visible for _, _, visible in item.key_points.values()):
                    record.objects.append(item)
            yield record


def _rotated_box(item: Object) -> tuple[float, float, float, float, float] | None:
    """Return x, y of the center, width, height and degrees of a box; None for another shape."""
    if item.rings or item.masks or item.key_points:
        return None
    if item.corners:
        return turned_box(np.reshape(item.corners, (4, 2)))
    if item.edges is None:
        return None
    left, top, right, bottom = item.edges
    return (left + right) / 2, (top + bottom) / 2, right - left, bottom - top, 0.0
