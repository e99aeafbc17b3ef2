"""CVAT for images 1.1 and CVAT for video 1.1: XML of a task or a project.

Source: cvat/apps/dataset_manager/formats/cvat.py of CVAT 2, which writes both.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from copy import deepcopy
from functools import partial
from typing import Any

from detaug.converters.formats.cvat_images import (
    SHAPES,
    flag_of,
    group_of,
    key_point,
    read_image,
    read_shape,
    skeleton_of,
    unread_parts,
)
from detaug.converters.records.frames import Frames, KeyPoint, Stored
from detaug.converters.records.record import (
    AnnotationFiles,
    Contents,
    Object,
    ObjectError,
    Record,
    text_of,
    unread_elements,
    whole_of,
)
from detaug.converters.records.xml_elements import elements_of_xml
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.paths import last_part, list_files, stem_of
from detaug.findings.finding import Finding


def read_cvat(source: AnnotationFiles) -> Contents:
    """Read the images, or the tracks, of each XML.

    A box with a rotation has `corners`; an ellipse is a ring of 72 points; the points of a skeleton are keypoints.
    Attributes, `occluded` and `group_id` are columns; tags are a column of the image. Lines, cuboids and points that
    are in no skeleton have no place.
    """
    unread = Counter[str]()
    labels: dict[str, list[str]] = {}
    edges: dict[str, list[tuple[int, int]]] = {}
    for file in source.files:
        for name, points, pairs in _labels(_meta(source.name(file))):
            labels.setdefault(name, points)
            edges.setdefault(name, pairs)
    key_points = {name: points for name, points in labels.items() if points}
    return Contents(
        _records(source, unread),
        class_names=[*labels],
        key_points=key_points,
        skeletons=edges,
        findings=unread_elements(unread),
        video_names=partial(_video_names, source),
    )


def _video_names(source: AnnotationFiles) -> list[str]:
    """Return the names of the videos of all tracks, sorted."""
    names = set[str]()
    for file in source.files:
        with suppress(ObjectError):  # the records of the file say so
            tracks = (
                track
                for around, track in elements_of_xml(source.name(file), ("image", "track"), ("track",))
                if not around and track.tag == "track"
            )
            tasks = {track.get("task_id", "") for track in tracks}
            names |= {_name_of_video(file, _meta(source.name(file)), task) for task in tasks}
    return sorted(names)


def _name_of_video(file: str, meta: Any, task: str) -> str:
    name = "" if meta is None else (meta.findtext("./task/name") or meta.findtext("./project/name") or "")
    return " ".join([name.strip() or stem_of(last_part(file)), *([f"task {task}"] if task else [])])


def _records(source: AnnotationFiles, unread: Counter[str]) -> Iterator[Record]:
    for file in source.files:
        videos: dict[str, _Video] = {}
        with closing(Stored(source.temporary)) as stored:
            try:
                for around, element in elements_of_xml(source.name(file), inside=("track",)):
                    if element.tag == "image" and not around:
                        yield read_image(element, file)
                        continue
                    if not around and element.tag != "track":
                        unread.update([f"<{element.tag}>"] if element.tag not in ("version", "meta") else [])
                        continue
                    unread.update(unread_parts(element, ("track", "image")))
                    track = around[0] if around else element
                    task, subset = track.get("task_id", ""), track.get("subset", "")
                    if task not in videos:
                        videos[task] = _Video(source, file, _meta(source.name(file)), subset, task, stored)
                    videos[task].add(track, around, element)
            except ObjectError as error:
                yield Record(file, findings=[Finding(file, error.kind, note=str(error))])
                videos.clear()  # tracks are missing in their frames
            for video in videos.values():
                yield from video.records()


def _meta(path: str) -> Any:
    """Return the element <meta>; None where there is none, or the file cannot be read: its records say so."""
    try:
        with closing(elements_of_xml(path, ("meta", "image", "track"), ("track",))) as elements:
            around, first = next(elements, ((), None))
            return deepcopy(first) if first is not None and first.tag == "meta" and not around else None
    except ObjectError:
        return None


def _labels(meta: Any) -> Iterator[tuple[str, list[str], list[tuple[int, int]]]]:
    """Yield (name, names of keypoints, their skeleton) of the labels of a task or project, in their order."""
    labels = [] if meta is None else meta.findall(".//labels/label")
    labels = [label for label in labels if label.findtext("type") != "tag"]  # about whole images
    names = [(label.findtext("name") or "", label.findtext("parent"), label.findtext("svg") or "") for label in labels]
    for name, parent, svg in names:
        if name.strip() and not parent:
            points = [child for child, its_parent, _ in names if its_parent == name and child.strip()]
            yield name, points, skeleton_of(svg, points)


def _frames_of(meta: Any, task: str) -> range:
    """Return the numbers of the frames that the task, or the job, has, as far as the file tells."""
    tasks = [] if meta is None else [*meta.findall("./task"), *meta.findall("./job")]
    tasks += (
        []
        if meta is None
        else [candidate for candidate in meta.iterfind("./project/tasks/task") if candidate.findtext("id") == task]
    )
    texts = (tasks[0].findtext(f"./{end}_frame") if tasks else None for end in ("start", "stop"))
    first, last = map(whole_of, texts)
    return range(first or 0, sys.maxsize if last is None else last + 1)


class _Video:
    """The frames of one task, and the objects of its tracks.

    Frames are the images frame_000000.PNG and so on, which CVAT writes for videos; a task of images has their names,
    which are not in the XML, so they are numbered in their order. `outside` ends a track until its next shape; without
    it the last shape stays until the last frame of the task. Between two key frames of a file without the frames
    between them, boxes move and turn evenly. All this is as CVAT shows it.
    """

    def __init__(self, source: AnnotationFiles, file: str, meta: Any, subset: str, task: str, stored: Stored) -> None:
        self.file, folder = file, file.rpartition("/")[0]
        name = _name_of_video(file, meta, task)
        images = list_files(source.images, IMAGE_EXTENSIONS)
        for part in (folder, subset):
            images = [image for image in images if f"/{part}/" in f"/{image}"] or images if part else images
        numbered = {int(match[1]): image for image in images if (match := re.search(r"frame_(\d{1,9})\.\w+$", image))}
        self._by_order, by_number = not numbered, numbered or dict(enumerate(images))
        within = _frames_of(meta, task)
        self._frames = Frames(file, name, by_number, (number for number in by_number if number in within), stored)
        self._track: Any = None
        self._number = self._index = 0  # of the track in the file; of the next shape in it
        self._before: tuple[int, Object] | None = None

    def add(self, track: Any, around: Sequence[Any], element: Any) -> None:
        """Add a part of a track, or a track after its parts. around: the track, and a track of keypoints in it."""
        if track is not self._track:
            self._end_track()
            self._track, self._number, self._index = track, self._number + 1, 0
        frame, index = whole_of(element.get("frame")), None
        try:
            if len(around) == 1 and element.tag in SHAPES:
                index, self._index = self._index, self._index + 1
                self._add_shape(frame, element)
            elif len(around) == 2 and element.tag == "points":  # of a skeleton, in a track of its own: CVAT 2.1's form
                name = text_of(around[1].get("label"), "label")
                self._frames.add_point(frame or 0, self._number, KeyPoint(name, key_point(element)))
        except ObjectError as error:
            finding = Finding(self.file, error.kind, index, element.sourceline, note=str(error))
            self._frames.add(frame or 0, self._number, finding)

    def _end_track(self) -> None:
        """Let the last shape of the track stay until the last frame, if it is not outside."""
        if self._before:
            self._frames.add_after(self._number, self._before)
        self._before = None

    def _add_shape(self, frame: int | None, element: Any) -> None:
        if frame is None:
            raise ObjectError(f"frame must be a whole number, got {element.get('frame', '')[:20]!r}")
        record, shape = Record(self.file), None
        if not flag_of(element, "outside"):
            shape = read_shape(element, self._track.get("label"), record)
        if shape and "group_id" not in shape.columns:
            shape.columns = {**shape.columns, **group_of(self._track)}
        if self._before:
            self._frames.add_between(self._number, self._before, (frame, shape or self._before[1]))
        if shape:
            shape.track = whole_of(self._track.get("id"), 17)
        self._before = (frame, shape) if shape else None
        self._frames.add(frame, self._number, *record.findings, *([shape] if shape else []))

    def records(self) -> Iterator[Record]:
        """Yield the frames in their order."""
        self._end_track()
        for index, record in enumerate(self._frames.records()):
            if self._by_order and not index:
                record.findings.append(Finding(self.file, "frames-by-order", before=record.names[0], after=0))
            yield record
