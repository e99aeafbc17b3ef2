"""The shapes of CVAT's XML, of images and of tracks."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.converters.coco.rings import mask_of_runs
from detaug.converters.records.record import (
    Mask,
    Object,
    ObjectError,
    Record,
    number_of,
    numbers_of,
    text_of,
    unused_shape,
)

SHAPES = frozenset({"box", "polygon", "polyline", "points", "ellipse", "mask", "cuboid", "skeleton"})


def read_shape(element: Any, label: Any, record: Record) -> Object | None:
    """Return a shape as an object; None, with a finding, for one that has no place. Raises ObjectError."""
    found = Object(text_of(label, "label"), columns=_columns(element), line=element.sourceline)
    degrees = number_of(element.get("rotation", "0"), "rotation")
    if element.tag == "box":
        left, top, right, bottom = numbers_of(map(element.get, ("xtl", "ytl", "xbr", "ybr")), "xtl, ytl, xbr and ybr")
        found.set_box((left, top, right, bottom), degrees, (left + right) / 2, (top + bottom) / 2)
    elif element.tag == "polygon":
        found.rings = [_points(element, 3)]
    elif element.tag == "ellipse":
        x, y, across, down = numbers_of(map(element.get, ("cx", "cy", "rx", "ry")), "cx, cy, rx and ry")
        found.set_ellipse(x, y, across, down, degrees)
    elif element.tag == "mask":
        found.masks = [_mask(element)]
    elif element.tag == "skeleton":
        found.key_points = key_points_of(element)
    else:
        unused_shape(record, None, element.tag, element.sourceline)
        return None
    return found


def _columns(element: Any) -> dict[str, Any]:
    attributes = [(each.get("name"), each.text or "") for each in element.iterchildren("attribute")]
    columns: dict[str, Any] = {name: text for name, text in attributes if name}
    if element.get("occluded") in ("0", "1"):
        columns["occluded"] = int(element.get("occluded"))
    if (element.get("group_id") or "").isdecimal():
        columns["group_id"] = int(element.get("group_id")[:18])
    return columns


def _points(element: Any, least: int) -> list[float]:
    """Return x, y, x, y, ... of "x,y;x,y;..."."""
    pairs = [pair.split(",") for pair in (element.get("points") or "").split(";")]
    if len(pairs) < least or any(len(pair) != 2 for pair in pairs):
        raise ObjectError(f"points must be at least {least} of x,y;x,y;..., got {str(element.get('points'))[:40]!r}")
    return numbers_of((number for pair in pairs for number in pair), "points")


def key_points_of(element: Any) -> dict[str, tuple[float, float, int]]:
    """Return the points of a skeleton by name. Raises ObjectError."""
    return {text_of(each.get("label"), "label"): key_point(each) for each in element.iterchildren("points")}


def key_point(element: Any) -> tuple[float, float, int]:
    """Return a point of a skeleton: one that is outside is not labelled, one that is occluded hidden."""
    x, y = _points(element, 1)[:2]
    return x, y, 0 if element.get("outside") == "1" else 1 if element.get("occluded") == "1" else 2


def _mask(element: Any) -> Mask:
    """Return a mask of runs along the rows of a rectangle, the first one outside of the object."""
    left, top, width, height = (int(number_of(element.get(key), key)) for key in ("left", "top", "width", "height"))
    runs = numbers_of((element.get("rle") or "").split(","), "rle")
    if any(run % 1 for run in runs):
        raise ObjectError("the runs of a mask (rle) must be whole numbers")
    if min(runs) < 0 or min(width, height) < 1 or sum(runs) != width * height or sum(runs) > 1 << 28:
        raise ObjectError(f"the runs of a mask (rle) must fill its {width} x {height} pixels, they are {sum(runs):.0f}")
    return Mask(mask_of_runs(np.cumsum(runs).astype(np.int64), width, height).T, left, top)
