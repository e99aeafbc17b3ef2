"""The tracks of CVAT for video: a shape in each frame, or in key frames only."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from detaug.converters.files.image_headers import IMAGE_EXTENSIONS
from detaug.converters.files.paths import last_part, list_files, stem_of
from detaug.converters.files.spool import Groups
from detaug.converters.findings.finding import Finding
from detaug.converters.formats.cvat_shapes import SHAPES, key_point, read_shape
from detaug.converters.records.record import Object, ObjectError, Record, Source, text_of, whole_of

Point = tuple[str, tuple[float, float, int]]
"""The name of a key point, and the point."""

Stored = Groups[tuple[str, int], tuple[int, "Object | Finding | Point"]]
"""What frames have, by the task and the frame's number: tracks come one by one, and each has a part of a frame.

Each value has the number of its track in the file before it.
"""


class Video:
    """The frames of one task, and the objects of its tracks.

    Frames are the images frame_000000.PNG and so on, which CVAT writes for videos; a task of images has their names,
    which are not in the XML, so they are numbered in their order. `outside` ends a track until its next shape. Between
    two key frames of a file without the frames between them, boxes move evenly, as CVAT shows them.
    """

    def __init__(self, source: Source, file: str, meta: Any, subset: str, task: str, stored: Stored) -> None:
        self.file, folder = file, file.rpartition("/")[0]
        self._task, self._stored = task, stored
        name = "" if meta is None else (meta.findtext("./task/name") or meta.findtext("./project/name") or "")
        self.name = " ".join([name.strip() or stem_of(last_part(file)), *([f"task {task}"] if task else [])])
        images = list_files(source.images, IMAGE_EXTENSIONS)
        for part in (folder, subset):
            images = [image for image in images if f"/{part}/" in f"/{image}"] or images if part else images
        numbered = {int(found[1]): image for image in images if (found := re.search(r"frame_(\d{1,9})\.\w+$", image))}
        self._by_order = not numbered
        self._images = numbered or dict(enumerate(images))
        texts = (None if meta is None else meta.findtext(f"./task/{each}_frame") for each in ("start", "stop"))
        first, last = map(whole_of, texts)
        within = range(first or 0, sys.maxsize if last is None else last + 1)
        self._numbers = {number for number in self._images if number in within}
        self._track: Any = None
        self._id: int | None = None
        self._number = self._index = 0  # of the track in the file; of the next shape in it
        self._before: tuple[int, Object] | None = None

    def add(self, around: Sequence[Any], element: Any) -> None:
        """Add a part of a track, or a track after its parts. around: the track, and a track of key points in it."""
        track = around[0] if around else element
        if track is not self._track:
            self._track, self._id = track, whole_of(track.get("id"), 17)
            self._number, self._index, self._before = self._number + 1, 0, None
        if len(around) == 1 and element.tag in SHAPES:
            self._add_shape(element)
            self._index += 1
        elif len(around) == 2 and element.tag == "points":
            self._add_point(around[1].get("label"), element)

    def _store(self, frame: int, items: Iterable[Object | Finding | Point]) -> None:
        """Store what the track has in a frame, which belongs to the video from now on."""
        self._numbers.add(frame)
        for item in items:
            self._stored.add((self._task, frame), (self._number, item))

    def _add_shape(self, element: Any) -> None:
        frame, record, found = whole_of(element.get("frame")), Record(self.file), None
        try:
            if frame is None:
                raise ObjectError(f"frame must be a whole number, got {element.get('frame', '')[:20]!r}")
            if element.get("outside") != "1":
                found = read_shape(element, self._track.get("label"), record)
        except ObjectError as error:
            note = Finding(self.file, error.kind, self._index, element.sourceline, note=str(error))
            self._store(frame or 0, [note])
            return
        if found:
            found.track = self._id
        if self._before and (found or element.tag == "box"):
            self._fill(self._before, (frame, found or self._before[1]))
        self._before = (frame, found) if found else None
        self._store(frame, [*record.findings, *([found] if found else [])])

    def _add_point(self, label: Any, element: Any) -> None:
        """Add a point of a skeleton that is in a track of its own: CVAT 2.1's form."""
        frame = whole_of(element.get("frame")) or 0
        try:
            self._store(frame, [(text_of(label, "label"), key_point(element))])
        except ObjectError as error:
            self._store(frame, [Finding(self.file, error.kind, None, element.sourceline, note=str(error))])

    def _fill(self, before: tuple[int, Object], after: tuple[int, Object]) -> None:
        """Add a box to each frame between two shapes of a track that has an image."""
        (first, one), (last, other) = before, after
        if one.edges is None or other.edges is None or one.rings or other.rings:
            return
        for number in range(first + 1, last) if last - first < len(self._images) * 2 else sorted(self._images):
            if number in self._images and first < number < last:
                share = (number - first) / (last - first)
                left, top, right, bottom = (a + share * (b - a) for a, b in zip(one.edges, other.edges, strict=True))
                edges = left, top, right, bottom
                self._store(number, [Object(one.class_name, edges, track=one.track, columns=one.columns)])

    def records(self) -> Iterator[Record]:
        """Yield the frames in their order."""
        for at, number in enumerate(sorted(self._numbers)):
            image = self._images.get(number, f"frame_{number:06d}.PNG")
            record = Record(self.file, [image], video=self.name, frame=number)
            self._read(record, self._stored.pop((self._task, number)))
            if self._by_order and not at:
                record.findings.append(Finding(self.file, "frames-by-order", before=image, after=0))
            yield record

    def _read(self, record: Record, values: Iterable[tuple[int, Object | Finding | Point]]) -> None:
        """Append what is stored of a frame to its record; skeletons get the points of their track."""
        objects: list[tuple[int, Object]] = []
        points: dict[int, dict[str, tuple[float, float, int]]] = {}
        for number, item in values:
            if isinstance(item, Object):
                objects.append((number, item))
            elif isinstance(item, Finding):
                record.findings.append(item)
            else:
                points.setdefault(number, {})[item[0]] = item[1]
        for number, item in objects:
            is_skeleton = not (item.edges or item.rings or item.corners or item.masks)
            if is_skeleton:
                item.key_points = item.key_points or points.get(number, {})
            if not is_skeleton or any(visible for _, _, visible in item.key_points.values()):
                record.objects.append(item)
