"""Create ML: a JSON file with the boxes of all images, by their middles, in pixels.

Source: https://developer.apple.com/documentation/createml/building-an-object-detector-data-source; Roboflow writes it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from detaug.converters.records.json_list import items_of_json
from detaug.converters.records.record import (
    AnnotationFiles,
    Contents,
    Object,
    Record,
    count_unread,
    list_of,
    names_beside,
    numbers_of,
    object_of,
    read_objects,
    records_of_lists,
    text_of,
)

_SIDES = ("x", "y", "width", "height")
_IMAGE_KEYS = ("image", "imagefilename", "filename", "annotations", "annotation")


def read_createml(source: AnnotationFiles) -> Contents:
    """Read the list of images; x and y are the middle of a box. Other keys of a box, and of an image, are columns."""

    def read(file: str) -> Iterator[Record]:
        for index, value in enumerate(items_of_json(source.name(file), "a Create ML JSON")):
            entry = object_of(value, f"entry {index}")
            name = entry.get("image") or entry.get("imagefilename") or entry.get("filename")
            called = text_of(name, f"image of entry {index}")
            columns = {key: member for key, member in entry.items() if key not in _IMAGE_KEYS}
            record = Record(file, names_beside(file, called), called=called, columns=columns)
            items = entry.get("annotations", entry.get("annotation"))
            items = list_of(items, f"annotations of entry {index}")
            read_objects(record, items, partial(_object, record))
            yield record

    return Contents(records_of_lists(source, read))


def _object(record: Record, value: Any) -> Object:
    entry = object_of(value, "an annotation")
    place = object_of(entry.get("coordinates"), "coordinates")
    count_unread(record, place, _SIDES)
    x, y, width, height = numbers_of(map(place.get, _SIDES), _SIDES)
    edges = x - width / 2, y - height / 2, x + width / 2, y + height / 2
    columns = {key: member for key, member in entry.items() if key not in ("label", "coordinates")}
    return Object(text_of(entry.get("label"), "label"), edges, columns=columns)
