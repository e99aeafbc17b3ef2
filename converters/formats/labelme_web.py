"""The XML of the LabelMe web tool, one for each image; CVAT and Datumaro write it as LabelMe 3.0.

Source: https://github.com/CSAILVision/LabelMeAnnotationTool; cvat/apps/dataset_manager/formats/labelme.py of CVAT.
"""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from typing import Any

from detaug.converters.records.record import (
    AnnotationFiles,
    Contents,
    Object,
    ObjectError,
    Record,
    contents_of_files,
    edges_of,
    names_beside,
    numbers_of,
    read_objects,
    text_of,
    unused_shape,
    whole_of,
)
from detaug.converters.records.xml_elements import elements_of_xml, unread_attributes
from detaug.findings.finding import shown

_YES, _NO = ("1", "yes", "true"), ("0", "no", "false")
_KNOWN = frozenset(
    (
        *(
            "name",
            "deleted",
            "verified",
            "id",
            "date",
            "type",
            "viewpoint",
            "polygon",
            "segm",
            "occluded",
            "attributes",
        ),
        *("parts", "username", "crop"),
    )
)
"""Elements of an object that are read, or say nothing more. `parts` names objects that belong together."""
_ROOT = frozenset({"filename", "folder", "source", "imagesize", "object"})
"""Elements of a file that are read, or say nothing of its objects."""


_IN_OBJECTS = _KNOWN | {"pt", "x", "y"}


def read_labelme_web(source: AnnotationFiles) -> Contents:
    """Read the polygons of each XML; one of the type bounding_box is a box. Deleted objects are left out.

    `occluded` and the text of `attributes` are columns. Masks, <segm>, are files elsewhere, and have no place.
    """
    return contents_of_files(source, _read)


def _read(source: AnnotationFiles, record: Record) -> None:
    def objects() -> Iterator[Any]:
        for index, (_, element) in enumerate(elements_of_xml(source.name(record.file))):
            if not index:
                record.unread.update(unread_attributes(element.getparent()))
            if element.tag in _ROOT:
                record.unread.update(unread_attributes(element, inside=_IN_OBJECTS))
            if element.tag not in _ROOT:
                record.unread[f"<{element.tag}>"] += 1
            elif element.tag == "filename":
                record.names = names_beside(record.file, (element.text or "").strip())
            elif element.tag == "imagesize":
                width, height = (whole_of((element.findtext(tag) or "").strip()) for tag in ("ncols", "nrows"))
                record.size = (width, height) if width and height else None
            elif element.tag == "object":
                record.unread.update(f"<{child.tag}>" for child in element if child.tag not in _KNOWN)
                others = (child for child in element.iterfind("polygon/*") if child.tag not in ("pt", "username"))
                record.unread.update(f"<{child.tag}> in <polygon>" for child in others)
                yield element

    read_objects(record, objects(), lambda element: _object(record, element), attrgetter("sourceline"))


def _object(record: Record, element: Any) -> Object | None:
    """Return an object; None for a deleted one and, with a finding, for one without an area."""
    texts = {
        tag: (element.findtext(tag) or "").strip() for tag in ("name", "deleted", "occluded", "attributes", "type")
    }
    if texts["deleted"] in _YES:
        return None
    if texts["deleted"] not in (*_NO, ""):
        raise ObjectError(f"<deleted> must be 0 or 1, got {shown(texts['deleted'])}")
    annotation = Object(text_of(texts["name"], "name"), line=element.sourceline)
    annotation.columns = {"attributes": texts["attributes"]} if texts["attributes"] else {}
    if texts["occluded"] in (*_YES, *_NO):
        annotation.columns |= {"occluded": int(texts["occluded"] in _YES)}
    elif texts["occluded"]:
        record.unread["<occluded> that is not yes or no"] += 1
    pairs = [(point.findtext("x"), point.findtext("y")) for point in element.iterfind("polygon/pt")]
    numbers = numbers_of([(text or "").strip() for pair in pairs for text in pair], "x and y of a point")
    is_box = texts["type"] == "bounding_box"
    if len(pairs) < (2 if is_box else 3):
        kinds = {0: "segm" if element.find("segm") is not None else "empty polygon", 1: "point", 2: "line"}
        unused_shape(record, None, kinds[len(pairs)], element.sourceline)
        return None
    if is_box:
        annotation.edges = edges_of(numbers)
    else:
        annotation.rings = [numbers]
    return annotation
