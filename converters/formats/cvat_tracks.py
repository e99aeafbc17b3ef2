"""The tracks of CVAT for video: a shape in each frame, or in key frames only."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import Any

from detaug.converters.files.image_headers import IMAGE_EXTENSIONS
from detaug.converters.files.paths import last_part, list_files, stem_of
from detaug.converters.findings.finding import Finding
from detaug.converters.formats.cvat_shapes import SHAPES, key_point, read_shape
from detaug.converters.records.frames import Frames, KeyPoint, Stored
from detaug.converters.records.record import Object, ObjectError, Record, Source, text_of, whole_of


class Video:
    """The frames of one task, and the objects of its tracks.

    Frames are the images frame_000000.PNG and so on, which CVAT writes for videos; a task of images has their names,
    which are not in the XML, so they are numbered in their order. `outside` ends a track until its next shape. Between
    two key frames of a file without the frames between them, boxes move evenly, as CVAT shows them.
    """

    def __init__(self, source: Source, file: str, meta: Any, subset: str, task: str, stored: Stored) -> None:
        self.file, folder = file, file.rpartition("/")[0]
        name = "" if meta is None else (meta.findtext("./task/name") or meta.findtext("./project/name") or "")
        name = " ".join([name.strip() or stem_of(last_part(file)), *([f"task {task}"] if task else [])])
        images = list_files(source.images, IMAGE_EXTENSIONS)
        for part in (folder, subset):
            images = [image for image in images if f"/{part}/" in f"/{image}"] or images if part else images
        numbered = {int(found[1]): image for image in images if (found := re.search(r"frame_(\d{1,9})\.\w+$", image))}
        self._by_order, by_number = not numbered, numbered or dict(enumerate(images))
        texts = (None if meta is None else meta.findtext(f"./task/{each}_frame") for each in ("start", "stop"))
        first, last = map(whole_of, texts)
        within = range(first or 0, sys.maxsize if last is None else last + 1)
        self._frames = Frames(file, name, by_number, (number for number in by_number if number in within), stored)
        self._track: Any = None
        self._number = self._index = 0  # of the track in the file; of the next shape in it
        self._before: tuple[int, Object] | None = None

    def add(self, around: Sequence[Any], element: Any) -> None:
        """Add a part of a track, or a track after its parts. around: the track, and a track of key points in it."""
        track = around[0] if around else element
        if track is not self._track:
            self._track, self._number, self._index, self._before = track, self._number + 1, 0, None
        if len(around) == 1 and element.tag in SHAPES:
            self._add_shape(element)
            self._index += 1
        elif len(around) == 2 and element.tag == "points":
            self._add_point(around[1].get("label"), element)

    def _add_shape(self, element: Any) -> None:
        frame, record, found = whole_of(element.get("frame")), Record(self.file), None
        try:
            if frame is None:
                raise ObjectError(f"frame must be a whole number, got {element.get('frame', '')[:20]!r}")
            if element.get("outside") != "1":
                found = read_shape(element, self._track.get("label"), record)
        except ObjectError as error:
            finding = Finding(self.file, error.kind, self._index, element.sourceline, note=str(error))
            self._frames.add(frame or 0, self._number, finding)
            return
        if self._before and (found or element.tag == "box"):
            self._frames.add_between(self._number, self._before, (frame, found or self._before[1]))
        if found:
            found.track = whole_of(self._track.get("id"), 17)
        self._before = (frame, found) if found else None
        self._frames.add(frame, self._number, *record.findings, *([found] if found else []))

    def _add_point(self, label: Any, element: Any) -> None:
        """Add a point of a skeleton that is in a track of its own: CVAT 2.1's form."""
        frame = whole_of(element.get("frame")) or 0
        try:
            self._frames.add_point(frame, self._number, KeyPoint(text_of(label, "label"), key_point(element)))
        except ObjectError as error:
            finding = Finding(self.file, error.kind, None, element.sourceline, note=str(error))
            self._frames.add(frame, self._number, finding)

    def records(self) -> Iterator[Record]:
        """Yield the frames in their order."""
        for at, record in enumerate(self._frames.records()):
            if self._by_order and not at:
                record.findings.append(Finding(self.file, "frames-by-order", before=record.names[0], after=0))
            yield record
