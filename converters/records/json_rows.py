"""Rows of the json, from records whose objects lie in their images."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any, NamedTuple

from detaug.converters.coco.writer import ANNOTATION_FILE, OWN_KEYS, PREFIX, TOOL_ID, Row, annotation_row, category_rows
from detaug.converters.files.paths import last_part, stem_of
from detaug.converters.records.placing import Placed
from detaug.converters.records.record import Contents
from detaug.converters.records.record_image import RecordImage, StoredObjects

_DEEPEST = 50
"""Of values in values, in a column."""


class DataSet(NamedTuple):
    """What is written."""

    images: list[RecordImage]
    stored: StoredObjects
    class_names: list[str]
    listed: int
    """How many of them, from the first, are of a list; the others are sorted."""
    counts: Mapping[str, int]
    """Objects by class."""
    key_points: dict[str, list[str]]
    """By class."""
    contents: Contents


def _columns(columns: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{PREFIX}{name}" if name in OWN_KEYS else name: _plain(value) for name, value in columns.items()}


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value without NaN and infinity, which json does not have, and without what is nested endlessly."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if depth > _DEEPEST:
        return None
    if isinstance(value, dict):
        return {key: _plain(each, depth + 1) for key, each in value.items()}
    return [_plain(each, depth + 1) for each in value] if isinstance(value, list) else value


def videos_of(dataset: DataSet) -> dict[str, int]:
    """Return the id of each video."""
    names = (each.record.video for each in dataset.images if each.record and each.record.video)
    return {name: number for number, name in enumerate(dict.fromkeys(names), 1)}


def video_rows(dataset: DataSet) -> Iterator[Row]:
    """Yield the videos."""
    first = {each.record.video: each.header for each in reversed(dataset.images) if each.record}
    for name, number in videos_of(dataset).items():
        header = first[name]
        assert header is not None
        yield {"id": number, "name": name, "width": header.width, "height": header.height}


def image_rows(dataset: DataSet, folder: str) -> Iterator[Row]:
    """Yield the images, by their names below `folder`."""
    videos = videos_of(dataset)
    for image_id, each in enumerate(dataset.images, 1):
        assert each.header is not None
        name = each.name.removeprefix(folder)
        row = {"id": image_id, "file_name": name, "width": each.header.width, "height": each.header.height}
        if each.record:
            row |= _origin(each, dataset.contents.files) | _columns(each.record.columns)
            if each.record.video:
                row |= {"video_id": videos[each.record.video], "frame_id": each.record.frame}
        yield row


def _origin(image: RecordImage, files: int) -> dict[str, Any]:
    """Return the keys that say where the annotations of an image come from, if its name does not."""
    assert image.record is not None
    file, found = image.record.file, dict[str, Any]()
    name = last_part(image.name)
    if files > 1 and stem_of(last_part(file)) not in (name, stem_of(name)):
        found[ANNOTATION_FILE] = file
    return found if image.record.tool_id is None else found | {TOOL_ID: image.record.tool_id}


def annotation_rows(dataset: DataSet) -> Iterator[Row]:
    """Yield the objects, and then the regions in which nothing counts, each as a crowd of each class."""
    ids = {name: number for number, name in enumerate(dataset.class_names, 1)}
    tracks = [each.last_track for each in dataset.images if each.last_track is not None]
    free = count(max(tracks, default=0) + 1)  # either all annotations of a json have a track_id, or none has
    numbers = count(1)
    for image_id, each in enumerate(dataset.images, 1):
        for item in dataset.stored.objects(each):
            row = _object_row(item, next(numbers), image_id, ids[item.class_name])
            if item.key_points:
                points = [item.key_points.get(name, (0, 0, 0)) for name in dataset.key_points[item.class_name]]
                row["keypoints"] = [number for point in points for number in point]
                row["num_keypoints"] = sum(visible > 0 for _, _, visible in points)
            if tracks:
                row["track_id"] = next(free) if item.track is None else item.track
            yield row | _more(item)
    for region in region_rows(dataset):
        more = {"track_id": next(free)} if tracks else {}
        yield from ({**region, "id": next(numbers), "category_id": number, **more} for number in ids.values())


def region_rows(dataset: DataSet) -> Iterator[Row]:
    """Yield the regions in which nothing counts, without an id and a class."""
    for image_id, each in enumerate(dataset.images, 1):
        for item in dataset.stored.regions(each):
            yield _object_row(item._replace(is_crowd=True), 0, image_id, 0) | _more(item)


def _object_row(item: Placed, annotation_id: int, image_id: int, category_id: int) -> dict[str, Any]:
    return annotation_row(annotation_id, image_id, category_id, item.box, iscrowd=item.is_crowd) | item.keys


def _more(item: Placed) -> dict[str, Any]:
    """Return the keys of an object that are its format's."""
    return ({} if item.tool_id is None else {TOOL_ID: item.tool_id}) | _columns(item.columns)


def category_rows_of(dataset: DataSet) -> Iterator[Row]:
    """Yield the classes."""
    for row in category_rows(dataset.class_names):
        names = dataset.key_points.get(str(row["name"]))
        pairs = dataset.contents.skeletons.get(str(row["name"]))
        more: dict[str, object] = {"keypoints": names} if names else {}
        yield {**row, **more, **({"skeleton": [[*pair] for pair in pairs]} if names and pairs else {})}
