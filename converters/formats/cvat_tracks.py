"""The tracks of CVAT for video: a shape in each frame, or in key frames only."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from typing import Any

from detaug.converters.files.image_headers import IMAGE_EXTENSIONS
from detaug.converters.files.paths import last_part, list_files, stem_of
from detaug.converters.files.spool import Groups
from detaug.converters.findings.finding import Finding
from detaug.converters.formats.cvat_shapes import SHAPES, key_point, read_shape
from detaug.converters.records.record import Object, ObjectError, Record, Source, text_of, whole_of

Stored = Groups[tuple[str, int | None], tuple[list[Object], list[Finding]]]
"""What frames have, by the task and the number: tracks come one by one, and each has a part of a frame."""


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

    def _record(self, number: int) -> Record:
        """Return a record of a frame, which belongs to the video from now on."""
        self._numbers.add(number)
        image = self._images.get(number, f"frame_{number:06d}.PNG")
        return Record(self.file, [image], video=self.name, frame=number)

    def _store(self, record: Record) -> None:
        """Append what a record has to its frame."""
        if record.objects or record.findings:
            self._stored.add((self._task, record.frame), (record.objects, record.findings))

    def add(self, track: Any) -> None:
        """Add the shapes of a track to its frames."""
        track_id = whole_of(track.get("id"), 17)
        before: tuple[int, Object] | None = None
        points = self._points(track)
        for index, element in enumerate(child for child in track if child.tag in SHAPES):
            frame = whole_of(element.get("frame"))
            record = self._record(frame or 0)
            try:
                if frame is None:
                    raise ObjectError(f"frame must be a whole number, got {element.get('frame', '')[:20]!r}")
                found = None if element.get("outside") == "1" else read_shape(element, track.get("label"), record)
                if found and element.tag == "skeleton":
                    found.key_points = found.key_points or points.get(frame, {})
                    found = found if any(visible for _, _, visible in found.key_points.values()) else None
            except ObjectError as error:
                record.findings.append(Finding(self.file, error.kind, index, element.sourceline, note=str(error)))
            else:
                if before and (found or element.tag == "box"):
                    self._fill(before, (frame, found or before[1]))
                if found:
                    found.track = track_id
                    record.objects.append(found)
                before = (frame, found) if found else None
            self._store(record)

    def _points(self, track: Any) -> dict[int, dict[str, tuple[float, float, int]]]:
        """Return the points of a skeleton by frame and name, where they are tracks in its track: CVAT 2.1's form."""
        found: dict[int, dict[str, tuple[float, float, int]]] = {}
        for inner in track.iterchildren("track"):
            for index, each in enumerate(inner.iterchildren("points")):
                frame = whole_of(each.get("frame")) or 0
                try:
                    found.setdefault(frame, {})[text_of(inner.get("label"), "label")] = key_point(each)
                except ObjectError as error:
                    record = self._record(frame)
                    record.findings.append(Finding(self.file, error.kind, index, each.sourceline, note=str(error)))
                    self._store(record)
        return found

    def _fill(self, before: tuple[int, Object], after: tuple[int, Object]) -> None:
        """Add a box to each frame between two shapes of a track that has an image."""
        (first, one), (last, other) = before, after
        if one.edges is None or other.edges is None or one.rings or other.rings:
            return
        for number in range(first + 1, last) if last - first < len(self._images) * 2 else sorted(self._images):
            if number in self._images and first < number < last:
                share = (number - first) / (last - first)
                left, top, right, bottom = (a + share * (b - a) for a, b in zip(one.edges, other.edges, strict=True))
                record = self._record(number)
                edges = left, top, right, bottom
                record.objects.append(Object(one.class_name, edges, track=one.track, columns=one.columns))
                self._store(record)

    def records(self) -> Iterator[Record]:
        """Yield the frames in their order."""
        for at, number in enumerate(sorted(self._numbers)):
            record = self._record(number)
            for objects, findings in self._stored.pop((self._task, number)):
                record.objects += objects
                record.findings += findings
            if self._by_order and not at:
                record.findings.append(Finding(self.file, "frames-by-order", before=record.names[0], after=0))
            yield record
