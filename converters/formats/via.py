"""VGG Image Annotator: projects and exports of VIA 1 and 2 (json, CSV), projects of VIA 3.

Sources: via-2.x.y and via-3.x.y of https://gitlab.com/vgg/via, CodeDoc.md: shape_attributes; _VIA_RSHAPE.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

from detaug.converters.files.text import read_json, read_text
from detaug.converters.findings.finding import Finding
from detaug.converters.records.record import (
    Contents,
    Object,
    ObjectError,
    Record,
    Source,
    edges_of,
    ellipse,
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


class _Item(NamedTuple):
    """An image: its name, and its regions as they are in the file."""

    name: str
    regions: list[Any]
    attributes: dict[str, Any]


def read_via(source: Source) -> Contents:
    """Read projects and exports.

    The class of a region is its only attribute, or the one called class, label, name, category, type, object or
    species, or else its first one; the others are columns. Without any attribute in the file it is "object". Lines and
    points have no place.
    """
    return Contents(records_of_lists(source, lambda file: _records(file, [*_items(source, file)])))


def _items(source: Source, file: str) -> Iterator[_Item]:
    if file.lower().endswith(".csv"):
        yield from _items_of_table(read_text(source.folder / file))
        return
    document = object_of(read_json(source.folder / file), "a VIA json")
    if "metadata" in document and "file" in document:
        yield from _items_of_3(document)
        return
    for entry in object_of(document.get("_via_img_metadata", document), "_via_img_metadata").values():
        entry = object_of(entry, "an image")
        regions = entry.get("regions")
        regions = [*regions.values()] if isinstance(regions, dict) else list_of(regions, "regions")  # VIA 1
        attributes = entry.get("file_attributes")
        yield _Item(str(entry.get("filename") or ""), regions, attributes if isinstance(attributes, dict) else {})


def _items_of_table(text: str) -> Iterator[_Item]:
    """Yield the images of a CSV, whose attributes are json."""
    found: dict[str, _Item] = {}
    try:
        for row in csv.DictReader(io.StringIO(text, newline="")):
            values = {
                (key or "").strip().lstrip("#"): value or "" for key, value in row.items() if isinstance(value, str)
            }
            parsed = {key: json.loads(values.get(key) or "{}") for key in values if key.endswith("_attributes")}
            file_attributes = parsed.get("file_attributes")
            attributes = file_attributes if isinstance(file_attributes, dict) else {}
            item = found.setdefault(values.get("filename", ""), _Item(values.get("filename", ""), [], attributes))
            if parsed.get("region_shape_attributes"):
                shape, more = parsed["region_shape_attributes"], parsed.get("region_attributes")
                item.regions.append({"shape_attributes": shape, "region_attributes": more})
    except (csv.Error, ValueError, RecursionError) as error:
        raise ObjectError(f"is no table of VIA: {error}", "label-unreadable") from None
    yield from found.values()


def _items_of_3(document: dict[str, Any]) -> Iterator[_Item]:
    """Yield the images of a project of VIA 3: files are in views, which metadata belongs to."""
    attributes = object_of(document.get("attribute"), "attribute").items()
    names = {key: text_of(object_of(entry, "an attribute").get("aname"), "aname") for key, entry in attributes}
    found: dict[str, _Item] = {}
    for key, view in object_of(document.get("view"), "view").items():
        files = list_of(object_of(view, "a view").get("fid_list"), "fid_list")
        entry = object_of(document["file"], "file").get(str(files[0])) if files else None
        if entry and object_of(entry, "a file").get("type", 2) == 2:  # an image
            found[key] = _Item(str(entry.get("fname") or ""), [], {})
    for entry in map(object_of, object_of(document["metadata"], "metadata").values(), repeat("metadata")):
        item, numbers, values = found.get(str(entry.get("vid"))), entry.get("xy"), entry.get("av")
        if item and numbers:
            named = {names.get(key, key): value for key, value in values.items()} if isinstance(values, dict) else {}
            item.regions.append({"shape_attributes": numbers, "region_attributes": named})
    yield from found.values()


def _records(file: str, items: Sequence[_Item]) -> Iterator[Record]:
    keys = [key for item in items for region in item.regions for key in _attributes(region)]
    key = next((known for known in _CLASS_KEYS if known in map(str.lower, keys)), keys[0].lower() if keys else None)
    key = keys[0].lower() if len({*keys}) == 1 else key
    without = Finding(file, "class-none", after=NO_CLASS)
    for item in items:
        record = Record(file, [item.name] if item.name else [], columns=item.attributes)
        if not item.name:
            record.findings.append(Finding(file, "object-invalid", note="an image has no filename"))
        read_objects(record, enumerate(item.regions), partial(_object, record, key))
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
        found.edges, ring = ellipse(x, y, across, down[0] if down else across, degrees)
        found.rings = [ring]
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
