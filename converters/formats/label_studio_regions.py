"""The regions of a task of Label Studio. Coordinates are percent of the image.

Sources: https://labelstud.io/tags; converter/imports/coco.py of label-studio-sdk.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

from detaug.converters.records.groups import add_key_point
from detaug.converters.records.record import (
    Mask,
    Object,
    ObjectError,
    Record,
    id_of,
    number_of,
    numbers_of,
    object_of,
    points_of,
    read_objects,
    text_of,
    unused_shape,
)
from detaug.converters.records.rle_pack import unpack_mask

_ABOUT = ("choices", "textarea", "number", "rating", "labels", "relation", "taxonomy", "datetime", "pairwise")
"""Types of results without a shape: about the region of their id, or about the image."""


def read_regions(record: Record, results: list[dict[str, Any]]) -> None:
    """Read the regions of a task; results without a shape are about the region of their id."""
    regions: list[tuple[str, str, dict[str, Any]]] = []  # kind, id, result
    about: dict[str, list[dict[str, Any]]] = {}
    for each in results:
        kind, key = _kind(each), str(each.get("id", id(each)))
        about.setdefault(key, []).append(each)
        if kind or each.get("type") not in _ABOUT:
            regions.append((kind, key, each))
    sizes = [(each.get("original_width"), each.get("original_height")) for _, _, each in regions]
    size = next(((w, h) for w, h in sizes if type(w) is type(h) is int and min(w, h) > 0 and max(w, h) < 1e6), None)
    record.size, record.unit = size, size or (100, 100)
    by_id: dict[str, Object] = {}
    points: list[tuple[int, dict[str, Any]]] = []

    def parse(item: tuple[int, tuple[str, str, dict[str, Any]]]) -> Object | None:
        index, (kind, key, result) = item
        if key in by_id:  # the same region with its labels, of a tag of its own
            return None
        if kind == "keypoint":
            points.append((index, result))
            return None
        found = _object(record, index, kind, result, about[key])
        if found:
            by_id[key] = found
        return found

    read_objects(record, enumerate(regions), parse)
    read_objects(record, points, lambda item: _add_point(record, *item, by_id))
    of_regions = {str(each.get("id")) for _, _, each in regions}  # also of key points and of shapes that have no place
    record.columns = _columns([each for each in results if str(each.get("id")) not in of_regions], [])


def _kind(result: dict[str, Any]) -> str:
    """Return the kind of a region by its keys, "" where it has no shape."""
    value = result.get("value")
    if not isinstance(value, dict):
        return ""
    if "points" in value:
        return "polygon"
    if "radiusX" in value:
        return "ellipse"
    if "rle" in value:
        return "brush"
    if {"x", "y", "width", "height"} <= value.keys():
        return "rectangle"
    return "keypoint" if {"x", "y"} <= value.keys() else ""


def _object(
    record: Record, index: int, kind: str, result: dict[str, Any], about: list[dict[str, Any]]
) -> Object | None:
    value = object_of(result.get("value"), "value")
    if not kind:
        unused_shape(record, index, str(result.get("type"))[:40])
        return None
    if result.get("image_rotation"):
        raise ObjectError("image_rotation must be 0: turn the image back in Label Studio, and export again")
    labels = [name for each in about for name in labels_of(each)]
    name, columns = text_of(labels[0] if labels else None, "its label"), _columns(about, labels)
    found = Object(name, columns=columns, tool_id=id_of(result.get("id")))
    degrees = number_of(value.get("rotation") or 0, "rotation")
    if kind == "polygon":
        found.rings = [_in_pixels(record, points_of(value.get("points"), "points", 3))]
    elif kind == "brush":
        found.masks = [Mask(unpack_mask(value.get("rle"), record.size))]
    elif kind == "ellipse":
        x, y, across, down = _numbers(record, value, "x", "y", "radiusX", "radiusY")
        found.set_ellipse(x, y, across, down, degrees)
    else:
        x, y, width, height = _numbers(record, value, "x", "y", "width", "height")
        found.set_box((x, y, x + width, y + height), degrees, x, y)
    return found


def _numbers(record: Record, value: dict[str, Any], *keys: str) -> list[float]:
    """Return numbers of a value, along x and y in turn, in pixels."""
    return _in_pixels(record, numbers_of(map(value.get, keys), keys))


def _in_pixels(record: Record, numbers: Sequence[float]) -> list[float]:
    """Return numbers in percent of the width and the height, in turn, in the unit of the record."""
    return [number * side / 100 for number, side in zip(numbers, cycle(record.unit or (100, 100)), strict=False)]


def labels_of(result: dict[str, Any]) -> list[Any]:
    """Return the labels of a region: rectanglelabels, polygonlabels, labels and so on."""
    value = result.get("value")
    found = [value[key] for key in value if key.endswith("labels")] if isinstance(value, dict) else []
    return [name for names in found if isinstance(names, list) for name in names]


def _columns(about: list[dict[str, Any]], labels: list[Any]) -> dict[str, Any]:
    columns: dict[str, Any] = {"labels": labels} if len({*map(str, labels)}) > 1 else {}
    for each in about:
        value = each.get("value")
        for key in ("choices", "text", "number", "rating"):  # often together with the shape of the region
            if isinstance(value, dict) and key in value:
                entry = value[key]
                is_single = isinstance(entry, list) and len(entry) == 1
                columns[str(each.get("from_name") or key)] = entry[0] if is_single else entry
    return columns


def _add_point(record: Record, index: int, result: dict[str, Any], by_id: dict[str, Object]) -> None:
    """Make a point a key point of the region that it is in."""
    owner, labels, value = by_id.get(str(result.get("parentID"))), labels_of(result), result["value"]
    x, y = _numbers(record, value, "x", "y")
    name = text_of(labels[0] if labels else None, "its label")
    visible = 1 if value.get("hidden") is True else 2  # as its converter writes COCO's points
    add_key_point(record, index, [owner] if owner else [], name, (x, y, visible))
