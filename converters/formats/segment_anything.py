"""Segment Anything: a JSON file for each image, with the masks that a model found; also SA-1B.

Source: https://github.com/facebookresearch/segment-anything, README: Dataset.
"""

from __future__ import annotations

from typing import Any

from detaug.converters.records.record import (
    AnnotationFiles,
    Contents,
    Object,
    ObjectError,
    Record,
    contents_of_files,
    count_unread,
    id_of,
    list_of,
    names_beside,
    object_of,
    read_objects,
    text_of,
    whole_of,
)
from detaug.converters.records.segmentation import set_segmentation
from detaug.files.text import read_json
from detaug.findings.finding import shown

NO_CLASS = "object"
"""The class of all masks, which have none."""

_SHAPE = ("id", "bbox", "area", "segmentation")


def read_segment_anything(source: AnnotationFiles) -> Contents:
    """Read the masks (RLE) of each image; all are of the class object. Their further keys are columns."""
    return contents_of_files(source, _read, class_names=[NO_CLASS])


def _read(source: AnnotationFiles, record: Record) -> None:
    document = object_of(read_json(source.name(record.file)), "a JSON file of Segment Anything")
    image = object_of(document.get("image"), "image")
    record.names = names_beside(record.file, text_of(image.get("file_name"), "file_name"))
    record.tool_id = id_of(image.get("image_id"))
    count_unread(record, document, ("image", "annotations"))
    count_unread(record, image, ("image_id", "width", "height", "file_name"))
    width, height = (whole_of(str(image.get(key))) for key in ("width", "height"))
    if not width or not height:
        raise ObjectError("width and height of the image must be whole numbers from 1")
    record.size = (width, height)
    items = list_of(document.get("annotations"), "annotations")
    read_objects(record, items, lambda item: _object(item, record))


def _object(value: Any, record: Record) -> Object:
    entry = object_of(value, "an annotation")
    columns = {key: member for key, member in entry.items() if key not in _SHAPE}
    annotation = Object(NO_CLASS, columns=columns, tool_id=id_of(entry.get("id")))
    segmentation = entry.get("segmentation")  # its box is the one around it
    if not set_segmentation(annotation, segmentation, record):
        raise ObjectError(f"the segmentation must be rings or RLE, got {shown(segmentation)}")
    return annotation
