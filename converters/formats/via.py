"""VGG Image Annotator: projects and exports of VIA 1 and 2 (JSON, CSV), projects of VIA 3.

Sources: via-2.x.y and via-3.x.y of https://gitlab.com/vgg/via, CodeDoc.md: shape_attributes; _VIA_RSHAPE.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from itertools import chain
from typing import Any

from detaug.converters.formats.via_images import items_of_file
from detaug.converters.records.record import (
    AnnotationFiles,
    Contents,
    Object,
    ObjectError,
    Record,
    count_unread,
    edges_of,
    list_of,
    names_beside,
    number_of,
    numbers_of,
    object_of,
    part_of,
    read_objects,
    records_of_lists,
    ring_of_line,
    text_of,
    unused_shape,
)
from detaug.files.spool import Spool
from detaug.findings.finding import Finding

_CLASS_KEYS = ("class", "label", "name", "category", "type", "object", "species")
NO_CLASS = "object"
"""The class of the objects of a file whose regions have no attributes."""

_KEYS = {"rect": ("x", "y", "width", "height"), "circle": ("cx", "cy", "r"), "ellipse": ("cx", "cy", "rx", "ry")}
_OUTLINES = ("polygon", "extreme", "extreme_circle")
_POINT_KEYS = ("name", "all_points_x", "all_points_y")
_SHAPE_KEYS = {
    **{kind: ("name", *keys, *(("theta",) if kind == "ellipse" else ())) for kind, keys in _KEYS.items()},
    **dict.fromkeys((*_OUTLINES, "polyline"), _POINT_KEYS),
}
_ALL_SHAPE_KEYS = ("theta", *_POINT_KEYS, *(key for keys in _KEYS.values() for key in keys))
"""The keys of shape_attributes that are read, by the kind of the shape, and for other kinds."""
_KINDS_OF_3 = {
    1: "point",
    2: "rect",
    3: "circle",
    4: "ellipse",
    5: "line",
    6: "polyline",
    7: "polygon",
    8: "extreme",
    9: "extreme_circle",
}


def read_via(source: AnnotationFiles) -> Contents:
    """Read projects and exports.

    The class of a region is its only attribute, or the one called class, label, name, category, type, object or
    species, or else its first one; the others are columns. Without any attribute in the file it is "object". A line
    whose ends meet is a polygon; other lines and points have no place.
    """
    return Contents(records_of_lists(source, lambda file: _records(source, file)))


def _records(source: AnnotationFiles, file: str) -> Iterator[Record]:
    keys: dict[str, None] = {}
    options: dict[str, dict[str, str]] = {}
    with closing(Spool(source.temporary)) as images:  # all keys are known after the last image
        try:
            for item in items_of_file(source, file, options):
                for region in item.regions:
                    keys |= dict.fromkeys(_attributes(region))
                images.put(tuple(item))
        except RecursionError:
            raise ObjectError("is nested too deeply for a JSON file of annotations", "label-unreadable") from None
        key = next((known for known in _CLASS_KEYS if known in map(str.lower, keys)), None)
        key = next(iter(keys)).lower() if len(keys) == 1 or (keys and key is None) else key
        for name, regions, attributes, unread in images:
            record = Record(file, names_beside(file, name), called=name, columns=attributes, unread=Counter(unread))
            if not name:
                record.findings.append(Finding(file, "object-invalid", note="an image has no filename"))
            read_objects(record, enumerate(regions), partial(_object, record, key, options))
            if key is None and record.objects:
                record.findings.append(Finding(file, "class-none", after=NO_CLASS))
            yield record


def _attributes(region: Any) -> dict[str, Any]:
    attributes = region.get("region_attributes") if isinstance(region, dict) else None
    return attributes if isinstance(attributes, dict) else {}


def _object(
    record: Record, class_key: str | None, options: Mapping[str, Mapping[str, str]], item: tuple[int, Any]
) -> Object | None:
    index, region = item[0], object_of(item[1], "a region")
    columns = {key: _described(value, options.get(key, {})) for key, value in _attributes(region).items()}
    shape = region.get("shape_attributes")
    count_unread(record, region, ("shape_attributes", "region_attributes"))
    part_of(record, region, "region_attributes", dict)
    key = next((column for column in columns if column.lower() == class_key), None)
    name = NO_CLASS if class_key is None else text_of(_chosen(columns.pop(key, None) if key else None), "its class")
    annotation, (kind, numbers) = Object(name, columns=columns), _shape_of(shape)
    count_unread(record, shape, _SHAPE_KEYS.get(kind, _ALL_SHAPE_KEYS))
    if kind == "rect":
        x, y, width, height = numbers
        annotation.edges = x, y, x + width, y + height
    elif kind in ("circle", "ellipse"):
        degrees = math.degrees(number_of(shape.get("theta", 0), "theta")) if isinstance(shape, dict) else 0
        x, y, across, *down = numbers
        annotation.set_ellipse(x, y, across, down[0] if down else across, degrees)
    elif kind == "extreme_circle":
        x, y, radius = _circle_through(numbers)
        annotation.set_ellipse(x, y, radius, radius)
    elif kind in _OUTLINES:
        annotation.edges, annotation.rings = (edges_of(numbers), ()) if kind == "extreme" else (None, [numbers])
    elif kind == "polyline" and (ring := ring_of_line(record, index, numbers)):
        annotation.rings = [ring]
    else:
        unused_shape(record, index, kind[:40] or "empty shape")
        return None
    return annotation


def _circle_through(numbers: list[float]) -> tuple[float, float, float]:
    """Return the middle and the radius of the circle through the first three points. Raises ObjectError."""
    first, second, third = (complex(x, y) for x, y in zip(numbers[:6:2], numbers[1:6:2], strict=True))
    across, along = second - first, third - first
    turn = 2 * (across.conjugate() * along).imag
    if not turn:
        raise ObjectError("the points of a circle must not lie on one line")
    middle = (abs(across) ** 2 * along - abs(along) ** 2 * across) / (turn * 1j)
    return (first + middle).real, (first + middle).imag, abs(middle)


def _described(value: Any, options: Mapping[str, str]) -> Any:
    """Return a value, or checkboxes, with the descriptions of their options in place of numbers."""
    if isinstance(value, dict):
        return {options.get(key, key): checked for key, checked in value.items()}
    return options.get(value, value) if isinstance(value, str) else value


def _chosen(value: Any) -> Any:
    """Return the class of an attribute: checkboxes have {"cat": true}."""
    if not isinstance(value, dict):
        return value
    chosen = [name for name, is_chosen in value.items() if is_chosen]
    if len(chosen) > 1:
        raise ObjectError(f"a region must have one class, got {', '.join(chosen)[:60]}", "object-no-name")
    return chosen[0] if chosen else None


def _shape_of(shape: Any) -> tuple[str, list[float]]:
    """Return the kind and the numbers of a shape; of VIA 3 it is a list, the number of the kind in front of them."""
    if isinstance(shape, list):
        number, *numbers = numbers_of(shape or [0], "xy")
        kind = _KINDS_OF_3.get(int(number), str(number))
        if len(numbers) != len(_KEYS.get(kind, numbers)):
            raise ObjectError(f"xy of a {kind} must be {len(_KEYS[kind])} numbers, got {len(numbers)}")
        xs, ys = numbers[::2], numbers[1::2]
    else:
        shape = object_of(shape, "shape_attributes")
        kind = str(shape.get("name") or "")
        keys = _KEYS.get(kind, ())
        numbers = numbers_of(map(shape.get, keys), keys)
        xs, ys = shape.get("all_points_x"), shape.get("all_points_y")
    if kind not in (*_OUTLINES, "polyline"):
        return kind, numbers
    xs, ys, least = list_of(xs, "all_points_x"), list_of(ys, "all_points_y"), 3 if kind in _OUTLINES else 1
    if len(xs) != len(ys) or len(xs) < least:
        raise ObjectError(f"all_points_x and all_points_y must be at least {least} each, got {len(xs)} and {len(ys)}")
    return kind, numbers_of(chain.from_iterable(zip(xs, ys, strict=True)), "all_points_x and _y")
