"""LabelMe: a JSON file for each image, beside it. Also that of X-AnyLabeling, which has more kinds of shapes.

Sources: labelme/_label_file.py and examples/instance_segmentation/labelme2coco.py of LabelMe 5; X-AnyLabeling 3.
"""

from __future__ import annotations

import math
import posixpath
from typing import Any

from detaug.converters.records.groups import add_key_point, join_shapes
from detaug.converters.records.png_mask import mask_of_png
from detaug.converters.records.record import (
    AnnotationFiles,
    Contents,
    Mask,
    Object,
    ObjectError,
    Record,
    contents_of_files,
    count_unread,
    edges_of,
    hull_of,
    object_of,
    part_of,
    points_of,
    read_objects,
    ring_of_line,
    text_of,
    unused_shape,
)
from detaug.files.text import read_json

_ROTATED = ("oriented_rectangle", "rotation")
"""A rotated box: of LabelMe, of X-AnyLabeling."""

IGNORED = "__ignore__"
"""The label of regions that LabelMe's own converters ignore."""

_SHAPE_KEYS = frozenset(
    (
        *("label", "points", "group_id", "shape_type", "flags", "description", "mask", "attributes", "difficult"),
        *("line_color", "fill_color", "direction", "score"),
    )
)
"""Of a shape, those that are read, and those that say nothing more: of colors, and of the angle of its points."""

_FILE_KEYS = frozenset(
    (
        *("version", "flags", "shapes", "imagePath", "imageData", "imageHeight", "imageWidth", "checked"),
        *("lineColor", "fillColor"),
    )
)
"""Of a file, those that are read, and those that say nothing of its objects."""

CROWD = "iscrowd"
"""The flag of crowds, which `coco_to_labelme` writes."""


def read_labelme(source: AnnotationFiles) -> Contents:
    """Read the JSON file of each image.

    Shapes with one label and one group_id are one object, as in labelme2coco.py. A point is a keypoint of the object
    of its group_id; a `difficult` one is hidden. A line
    whose ends meet is a polygon; other lines, and points of no object, have no place. __ignore__ is the
    label of regions in which nothing counts.
    """
    return contents_of_files(source, _read)


def _read(source: AnnotationFiles, record: Record) -> None:
    document = read_json(source.name(record.file))
    if not isinstance(document, dict) or not isinstance(document.get("shapes"), list):
        raise ObjectError("is not LabelMe's JSON, which has a list of shapes; move it away")
    path = document.get("imagePath")
    if isinstance(path, str) and path:
        path = path.replace("\\", "/")
        record.names = (posixpath.normpath(posixpath.join(posixpath.dirname(record.file), path)), path)
    if document.get("imageData"):
        record.without_image = "the JSON file has it in imageData: labelme_export_json of LabelMe writes it as a file"
    width, height = document.get("imageWidth"), document.get("imageHeight")
    record.size = (width, height) if type(width) is type(height) is int else None
    record.columns = _flags(record, document)
    count_unread(record, document, _FILE_KEYS)
    for shape in document["shapes"]:
        count_unread(record, shape, _SHAPE_KEYS)
    _read_shapes(record, document["shapes"])


def _flags(record: Record, entry: dict[str, Any]) -> dict[str, Any]:
    flags = {key: value for key, value in part_of(record, entry, "flags", dict).items() if key != CROWD}
    return {"flags": flags} if any(flags.values()) else {}


def _read_shapes(record: Record, shapes: list[Any]) -> None:
    groups: dict[str, list[Object]] = {}
    points: list[tuple[int, dict[str, Any]]] = []

    def parse(item: tuple[int, Any]) -> Object | None:
        index, shape = item[0], object_of(item[1], "a shape")
        kind = shape.get("shape_type") or "polygon"
        if kind == "point":
            points.append((index, shape))
            return None
        annotation = _object(record, index, shape, kind)
        if annotation is None:
            unused_shape(record, index, str(kind)[:40])
            return None
        if shape.get("group_id") is None:
            return annotation
        group = groups.setdefault(repr(shape["group_id"]), [])
        same = next((other for other in group if _are_joined(annotation, other)), None)
        if same:
            annotation.object_index = index
            join_shapes(record, [same, annotation])
            return None
        group.append(annotation)
        return annotation

    read_objects(record, enumerate(shapes), parse)
    read_objects(record, points, lambda item: _add_point(record, item, groups))


def _object(record: Record, index: int, shape: dict[str, Any], kind: str) -> Object | None:
    """Return a shape as an object; None for a kind that has no place."""
    name, flags = text_of(shape.get("label"), "label"), shape.get("flags")
    crowd = flags.get(CROWD) if isinstance(flags, dict) else None
    count_unread(record, {} if crowd in (True, False) else {f"{CROWD} that is not true or false": crowd}, ())
    annotation = Object(
        name, is_crowd=crowd is True or crowd == 1, is_ignored=name == IGNORED, columns=_columns(record, shape)
    )
    if kind in ("polygon", "quadrilateral") or kind in _ROTATED:
        numbers = points_of(shape.get("points"), "points", 3)
        if kind in _ROTATED and len(numbers) == 8:
            annotation.corners = numbers
        else:
            annotation.rings = [numbers]
    elif kind == "rectangle":  # two corners in any order; of X-AnyLabeling four
        annotation.edges = edges_of(points_of(shape.get("points"), "points", 2))
    elif kind == "circle":  # its center, and a point on it
        x, y, *on_it = points_of(shape.get("points"), "points", 2)
        radius = math.dist((x, y), on_it[:2])
        annotation.set_ellipse(x, y, radius, radius)
    elif kind == "cuboid" and len(corners := points_of(shape.get("points"), "points", 3)) == 16:
        annotation.rings = [hull_of(corners)]
    elif kind == "linestrip" and (ring := ring_of_line(record, index, points_of(shape.get("points"), "points"))):
        annotation.rings = [ring]
    elif kind == "mask":
        left, top = points_of(shape.get("points"), "points")[:2]
        annotation.masks = [Mask(mask_of_png(shape.get("mask"), "mask"), round(left), round(top))]
    else:
        return None
    return annotation


def _columns(record: Record, shape: dict[str, Any]) -> dict[str, Any]:
    columns = {**part_of(record, shape, "attributes", dict), **_flags(record, shape)}
    if shape.get("description"):
        columns["description"] = shape["description"]
    if shape.get("score") is not None:  # of a model, in X-AnyLabeling
        columns["score"] = shape["score"]
    if isinstance(shape.get("difficult"), int):
        columns["difficult"] = int(shape["difficult"])
    else:
        part_of(record, shape, "difficult", int)
    return columns


def _are_joined(one: Object, other: Object) -> bool:
    outlines = [
        bool(annotation.masks)
        for annotation in (one, other)
        if not annotation.corners or annotation.rings or annotation.masks
    ]
    return one.class_name == other.class_name and len({*outlines}) < 2 and not (one.corners and other.corners)


def _add_point(record: Record, item: tuple[int, dict[str, Any]], groups: dict[str, list[Object]]) -> None:
    """Make a point a keypoint of the one object of its group."""
    index, shape = item
    x, y = points_of(shape.get("points"), "points")[:2]
    name, group_id = text_of(shape.get("label"), "label"), shape.get("group_id")
    owners = [] if group_id is None else groups.get(repr(group_id), [])
    add_key_point(record, index, owners, name, (x, y, 1 if shape.get("difficult") is True else 2))
