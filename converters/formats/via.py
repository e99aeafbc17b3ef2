"""VGG Image Annotator: projects and exports of VIA 1 and 2 (json, CSV), projects of VIA 3.

Sources: via-2.x.y and via-3.x.y of https://gitlab.com/vgg/via, CodeDoc.md: shape_attributes; _VIA_RSHAPE.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Iterator
from functools import partial
from typing import Any

from detaug.converters.files.spool import grouped
from detaug.converters.findings.finding import Finding
from detaug.converters.formats.via_images import items_of_file
from detaug.converters.records.record import (
    Contents,
    Object,
    ObjectError,
    Record,
    Source,
    edges_of,
    list_of,
    number_of,
    numbers_of,
    object_of,
    read_objects,
    records_of_lists,
    text_of,
    unused_shape,
)

_CLASS_KEYS = ("class", "label", "name", "category", "type", "object", "species")
NO_CLASS = "object"
"""The class of the objects of a file whose regions have no attributes."""

_KEYS = {"rect": ("x", "y", "width", "height"), "circle": ("cx", "cy", "r"), "ellipse": ("cx", "cy", "rx", "ry")}
_SHAPES_OF_3 = {1: "point", 2: "rect", 3: "circle", 4: "ellipse", 5: "line", 6: "polyline", 7: "polygon", 8: "extreme"}


def read_via(source: Source) -> Contents:
    """Read projects and exports.

    The class of a region is its only attribute, or the one called class, label, name, category, type, object or
    species, or else its first one; the others are columns. Without any attribute in the file it is "object". Lines and
    points have no place.
    """
    return Contents(records_of_lists(source, lambda file: _records(source, file)))


def _records(source: Source, file: str) -> Iterator[Record]:
    items, counts, keys = items_of_file(source, file), Counter[Hashable](), dict[str, None]()
    for item in items():
        counts[item.key] += 1
        keys |= dict.fromkeys(key for region in item.regions for key in _attributes(region))
    key = next((known for known in _CLASS_KEYS if known in map(str.lower, keys)), None)
    key = next(iter(keys)).lower() if len(keys) == 1 or (keys and key is None) else key
    without = Finding(file, "class-none", after=NO_CLASS)
    for _, parts in grouped(((item.key, item) for item in items()), counts, source.temporary):
        name, attributes = parts[0].name, parts[0].attributes
        record = Record(file, [name] if name else [], columns=attributes)
        if not name:
            record.findings.append(Finding(file, "object-invalid", note="an image has no filename"))
        regions = (region for part in parts for region in part.regions)
        read_objects(record, enumerate(regions), partial(_object, record, key))
        if key is None and record.objects:
            record.findings.append(without)
        yield record


def _attributes(region: Any) -> dict[str, Any]:
    found = region.get("region_attributes") if isinstance(region, dict) else None
    return found if isinstance(found, dict) else {}


def _object(record: Record, class_key: str | None, item: tuple[int, Any]) -> Object | None:
    index, region = item[0], object_of(item[1], "a region")
    columns, shape = dict(_attributes(region)), region.get("shape_attributes")
    key = next((each for each in columns if each.lower() == class_key), None)
    name = NO_CLASS if class_key is None else text_of(_chosen(columns.pop(key, None) if key else None), "its class")
    shape = object_of(_shape_of_3(shape) if isinstance(shape, list) else shape, "shape_attributes")
    found, kind = Object(name, columns=columns), str(shape.get("name") or "")
    numbers = [number_of(shape.get(key), key) for key in _KEYS.get(kind, ())]
    if kind == "rect":
        x, y, width, height = numbers
        found.edges = x, y, x + width, y + height
    elif kind in ("circle", "ellipse"):
        degrees = math.degrees(number_of(shape.get("theta", 0), "theta"))
        x, y, across, *down = numbers
        found.set_ellipse(x, y, across, down[0] if down else across, degrees)
    elif kind in ("polygon", "extreme"):
        xs, ys = (list_of(shape.get(key), key) for key in ("all_points_x", "all_points_y"))
        if len(xs) != len(ys) or len(xs) < 3:
            raise ObjectError(f"all_points_x and all_points_y must be at least 3 each, got {len(xs)} and {len(ys)}")
        points = numbers_of((value for pair in zip(xs, ys, strict=True) for value in pair), "all_points_x and _y")
        found.edges, found.rings = (edges_of(points), ()) if kind == "extreme" else (None, [points])
    else:
        unused_shape(record, index, kind[:40])
        return None
    return found


def _chosen(value: Any) -> Any:
    """Return the class of an attribute: checkboxes have {"cat": true}."""
    if not isinstance(value, dict):
        return value
    chosen = [name for name, is_chosen in value.items() if is_chosen]
    if len(chosen) > 1:
        raise ObjectError(f"a region must have one class, got {', '.join(chosen)[:60]}", "object-no-name")
    return chosen[0] if chosen else None


def _shape_of_3(numbers: list[Any]) -> dict[str, Any]:
    """Return a shape of VIA 3, its number and its coordinates, as VIA 2 has it."""
    kind, *rest = numbers_of(numbers or [0], "xy")
    name = _SHAPES_OF_3.get(int(kind), str(kind))
    if len(rest) != len(_KEYS.get(name, rest)):
        raise ObjectError(f"xy of a {name} must be {len(_KEYS[name])} numbers, got {len(rest)}")
    points = {"all_points_x": rest[::2], "all_points_y": rest[1::2]}
    return {"name": name, **dict(zip(_KEYS.get(name, ()), rest, strict=False)), **points}
