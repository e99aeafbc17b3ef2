"""The images of CVAT's XML, and its shapes and skeletons, which tracks have, too."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from html import unescape
from operator import attrgetter
from typing import Any

import numpy as np

from detaug.coco.rings import mask_of_runs
from detaug.converters.records.groups import join_shapes
from detaug.converters.records.record import (
    Mask,
    Object,
    ObjectError,
    Record,
    hull_of,
    number_of,
    numbers_of,
    read_objects,
    ring_of_line,
    text_of,
    unused_shape,
    whole_of,
)
from detaug.converters.records.xml_elements import unread_attributes
from detaug.findings.finding import Finding, shown

SHAPES = frozenset({"box", "polygon", "polyline", "points", "ellipse", "mask", "cuboid", "skeleton"})

_CUBOID = tuple(f"{axis}{place}{side}" for side in (1, 2) for place in ("tl", "bl", "tr", "br") for axis in "xy")
"""The corners of a cuboid, of its front and its back."""

_SIDES = ("left", "top", "width", "height")

ATTRIBUTES = frozenset(
    (
        *("id", "name", "subset", "task_id", "width", "height", "label", "source", "group_id"),
        *("occluded", "outside", "keyframe", "frame", "z_order", "rotation", "points", "rle", "left", "top"),
        *("xtl", "ytl", "xbr", "ybr", "cx", "cy", "rx", "ry", *_CUBOID),
    )
)
"""Of images, tracks and shapes, those that are read, and those that say who drew a shape, and above what it lies."""


def read_image(element: Any, file: str) -> Record:
    """Return the record of an <image>."""
    name, subset, folder = element.get("name", ""), element.get("subset"), file.rpartition("/")[0]
    names = [f"{subset}/{name}", name] if subset else [name]
    record = Record(file, [*(f"{folder}/{path}" for path in names if folder), *names] if name else [])
    if not name:
        record.findings.append(Finding(file, "object-invalid", None, element.sourceline, note="an image has no name"))
    record.tool_id = whole_of(element.get("id"), 17)
    width, height = (whole_of(element.get(name)) for name in ("width", "height"))
    record.size = None if width is None or height is None else (width, height)
    record.columns = _tags(element)
    shapes = [child for child in element if child.tag in SHAPES]
    record.unread.update(unread_attributes(element, ATTRIBUTES))
    record.unread.update(name for child in element for name in unread_parts(child, {"tag"}))
    read_objects(record, shapes, lambda shape: read_shape(shape, shape.get("label"), record), attrgetter("sourceline"))
    _join_groups(record)
    return record


def unread_parts(element: Any, others: Collection[str]) -> Iterator[str]:
    """Yield what is not read of an element of an image or a track. others: tags beside those of shapes that are."""
    if element.tag not in SHAPES and element.tag not in others:
        yield f"<{element.tag}>"
        return
    yield from unread_attributes(element, ATTRIBUTES)
    for child in element if element.tag in SHAPES or element.tag == "tag" else ():  # of tracks they come by themselves
        if child.tag not in ("attribute", "points"):
            yield f"<{child.tag}> of <{element.tag}>"
        else:
            yield from unread_attributes(child, ATTRIBUTES)
            yield from (f"<{part.tag}> of <{child.tag}>" for part in child)
            if child.tag == "attribute" and not child.get("name"):
                yield "<attribute> without a name"


def _tags(element: Any) -> dict[str, Any]:
    """Return the tags of an image, and their attributes."""
    tags = [*element.iterchildren("tag")]
    columns = _values(child for tag in tags for child in tag.iterchildren("attribute"))
    return columns | ({"tags": [tag.get("label") for tag in tags]} if tags else {})


def _values(attributes: Iterable[Any]) -> dict[str, Any]:
    """Return the texts of <attribute>s by their names: several of one name are a list."""
    values: dict[str, list[str]] = {}
    for attribute in attributes:
        if name := attribute.get("name"):
            values.setdefault(name, []).append(attribute.text or "")
    return {name: texts[0] if len(texts) == 1 else texts for name, texts in values.items()}


def _join_groups(record: Record) -> None:
    """Join shapes of one class and one group to one object, as CVAT's own COCO JSON file does.

    Polygons, or masks, with at most one box, which is then the object's, or its rotated box, and at most one skeleton.
    Several boxes in a group are several objects.
    """
    groups: dict[tuple[str, int], list[Object]] = {}
    for shape in record.objects:
        if group_id := shape.columns.get("group_id"):
            groups.setdefault((shape.class_name, group_id), []).append(shape)
    for group in groups.values():
        boxes = [shape for shape in group if shape.edges and not shape.rings]
        corners, masks, rings, points = (
            [shape for shape in group if getattr(shape, name)] for name in ("corners", "masks", "rings", "key_points")
        )
        if len(group) < 2 or len(boxes) + len(corners) > 1 or len(points) > 1 or (masks and rings):
            continue
        own_box = None if len(rings) > 1 or (rings and points) else group[0].edges
        join_shapes(record, group, boxes[0].edges if boxes else own_box)
        group[0].columns = {name: value for name, value in group[0].columns.items() if name != "group_id"}
        record.objects = [shape for shape in record.objects if shape not in group[1:]]


def read_shape(element: Any, label: Any, record: Record) -> Object | None:
    """Return a shape as an object; None, with a finding, for one that has no place. Raises ObjectError."""
    annotation = Object(text_of(label, "label"), columns=_columns(element), line=element.sourceline)
    degrees = number_of(element.get("rotation", "0"), "rotation")
    if element.tag == "box":
        left, top, right, bottom = numbers_of(map(element.get, ("xtl", "ytl", "xbr", "ybr")), "xtl, ytl, xbr and ybr")
        annotation.set_box((left, top, right, bottom), degrees, (left + right) / 2, (top + bottom) / 2)
    elif element.tag == "polygon":
        annotation.rings = [_points(element, 3)]
    elif element.tag == "ellipse":
        x, y, across, down = numbers_of(map(element.get, ("cx", "cy", "rx", "ry")), "cx, cy, rx and ry")
        annotation.set_ellipse(x, y, across, down, degrees)
    elif element.tag == "mask":
        annotation.masks = [_mask(element)]
    elif element.tag == "polyline" and (ring := ring_of_line(record, None, _points(element, 1), element.sourceline)):
        annotation.rings = [ring]
    elif element.tag == "cuboid" and None not in (corners := [*map(element.get, _CUBOID)]):
        annotation.rings = [hull_of(numbers_of(corners, _CUBOID))]
    elif element.tag == "skeleton":
        points = [(text_of(point.get("label"), "label"), key_point(point)) for point in element.iterchildren("points")]
        annotation.key_points = dict(points)
        if len(annotation.key_points) < len(points):
            raise ObjectError(f"a skeleton must have each point once, got {shown([name for name, _ in points])}")
    else:
        unused_shape(record, None, element.tag, element.sourceline)
        return None
    return annotation


def _columns(element: Any) -> dict[str, Any]:
    columns = _values(element.iterchildren("attribute"))
    if (occluded := flag_of(element, "occluded")) is not None:
        columns["occluded"] = int(occluded)
    return columns | group_of(element)


def flag_of(element: Any, name: str) -> bool | None:
    """Return a flag of a shape, None where it has none. Raises ObjectError for anything but 0 and 1."""
    text = element.get(name)
    if text not in (None, "0", "1"):
        raise ObjectError(f"{name} must be 0 or 1, got {shown(text)}")
    return None if text is None else bool(text == "1")


def group_of(element: Any) -> dict[str, int]:
    """Return the group that a shape, or all shapes of a track, are in, as a column; {} for none. Raises ObjectError."""
    group_id = element.get("group_id") or ""
    if group_id and not group_id.isdecimal():
        raise ObjectError(f"group_id must be a whole number, got {shown(group_id)}")
    return {"group_id": int(group_id[:18])} if group_id else {}


def _points(element: Any, least: int) -> list[float]:
    """Return x, y, x, y, ... of "x,y;x,y;..."."""
    pairs = [pair.split(",") for pair in (element.get("points") or "").split(";")]
    if len(pairs) < least or any(len(pair) != 2 for pair in pairs):
        raise ObjectError(f"points must be at least {least} of x,y;x,y;..., got {str(element.get('points'))[:40]!r}")
    return numbers_of((number for pair in pairs for number in pair), "points")


def key_point(element: Any) -> tuple[float, float, int]:
    """Return a point of a skeleton: `outside` is not labeled, `occluded` is hidden. Raises ObjectError."""
    x, y = _points(element, 1)[:2]
    return x, y, 0 if flag_of(element, "outside") else 1 if flag_of(element, "occluded") else 2


def skeleton_of(svg: str, points: list[str]) -> list[tuple[int, int]]:
    """Return the edges of a skeleton between its points, from 1; [] where the drawing does not name them."""
    matches = (
        re.findall(r"""([\w-]+)=(?:"([^"]*)"|'([^']*)')""", tag) for tag in re.findall(r"<\w+[^<>]*>", svg[:100_000])
    )
    tags = [{name: unescape(one or other) for name, one, other in pairs} for pairs in matches]
    label_of = {
        tag["data-node-id"]: tag["data-label-name"] for tag in tags if {"data-node-id", "data-label-name"} <= {*tag}
    }
    pairs = [(label_of.get(tag.get("data-node-from", "")), label_of.get(tag.get("data-node-to", ""))) for tag in tags]
    return [(points.index(a) + 1, points.index(b) + 1) for a, b in pairs if a in points and b in points]


def _mask(element: Any) -> Mask:
    """Return a mask of runs along the rows of a rectangle, the first one outside of the object."""
    left, top, width, height = map(int, numbers_of(map(element.get, _SIDES), _SIDES))
    runs = numbers_of((element.get("rle") or "").split(","), "rle")
    if any(run % 1 for run in runs):
        raise ObjectError("the runs of a mask (rle) must be whole numbers")
    if min(runs) < 0 or min(width, height) < 1 or sum(runs) != width * height or sum(runs) > 1 << 28:
        raise ObjectError(f"the runs of a mask (rle) must fill its {width} x {height} pixels, they are {sum(runs):.0f}")
    return Mask(mask_of_runs(np.cumsum(runs).astype(np.int64), width, height).T, left, top)
