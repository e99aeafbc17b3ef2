"""From an object of a record to its row: the box inside the image, and the keys of its shape, in pixels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from detaug.coco.boxes import DECIMALS, cut_to_image
from detaug.coco.rings import (
    are_flat,
    box_of_mask,
    cut_ring,
    keys_of_corners,
    keys_of_mask,
    keys_of_rings,
    points_of,
)
from detaug.coco.writer import OWN_KEYS, PREFIX, TOOL_ID, Box, whole, whole_numbers
from detaug.converters.records.record import Edges, Object, Record, edges_of
from detaug.files.text import joined_spaces
from detaug.findings.finding import Finding

_ROUNDING = 0.01  # pixels by which a polygon may leave its image because of the decimals it is written with


class Placed(NamedTuple):
    """An object in the pixels of its image."""

    class_name: str
    box: Box
    keys: dict[str, Any]
    """Of its shape: `segmentation`, `corners`, `area`."""
    key_points: Mapping[str, tuple[float, float, int]]
    """By name: x, y and visibility as COCO has them."""
    is_crowd: bool
    track: int | None
    columns: Mapping[str, Any]
    """Further keys of its row."""
    line: int | None
    object_index: int | None


_CROWD = frozenset({"iscrowd", "is_crowd"})
"""Columns that mark a crowd: COCO's name, which the way back writes, and that of CVAT and Datumaro."""

_FLAGS = frozenset({"difficult", "truncated", "occluded"})
_FLAG_TEXTS = {"0": 0, "1": 1, "false": 0, "true": 1, "no": 0, "yes": 1}

_DEEPEST = 50
"""Of values in values, in a column."""

_PLAIN, _FLOAT = frozenset({str, int, bool, type(None)}), frozenset({float})


def columns_of(columns: Mapping[str, Any], tool_id: int | str | None) -> dict[str, Any]:
    """Return the keys of a row that are its format's: the id in the labeling tool, and columns as JSON has them."""
    keys: dict[str, Any] = {} if tool_id is None else {TOOL_ID: tool_id}
    for name, value in columns.items():
        is_plain = type(value) in _PLAIN or (type(value) is float and isfinite(value))
        keys[f"{PREFIX}{name}" if name in OWN_KEYS else name] = value if is_plain else _plain(value)
    return keys


def _plain(value: Any, depth: int = 0) -> Any:
    """Return a value without NaN and infinity, which JSON does not have, and without what is nested endlessly."""
    if isinstance(value, float):
        return value if isfinite(value) else None
    if depth > _DEEPEST:
        return None
    if isinstance(value, dict):
        return {key: _plain(member, depth + 1) for key, member in value.items()}
    if isinstance(value, list):
        if _FLOAT.issuperset(map(type, value)) and isfinite(sum(value)):  # the usual ones need no call for each
            return value
        return [member if type(member) in _PLAIN else _plain(member, depth + 1) for member in value]
    return value


def _crowd_of(item: Object) -> tuple[bool, Mapping[str, Any]]:
    """Return whether an object is a crowd, and its columns without the one that says so."""
    if _CROWD.isdisjoint(item.columns):
        return item.is_crowd, item.columns
    values = {name: str(item.columns[name]).lower() for name in _CROWD & item.columns.keys()}
    marks = {name for name, value in values.items() if value in ("0", "1", "true", "false")}
    if not marks:
        return item.is_crowd, item.columns
    is_crowd = item.is_crowd or any(values[name] in ("1", "true") for name in marks)
    return is_crowd, {name: value for name, value in item.columns.items() if name not in marks}


def _with_flags(columns: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return columns with flags as 0 and 1: attributes of CVAT, VIA and others are text, and "0" would be true."""
    if _FLAGS.isdisjoint(columns):
        return columns
    flags = {name: columns[name] for name in _FLAGS & columns.keys()}
    return {**columns, **{name: _FLAG_TEXTS.get(str(flag).strip().lower(), flag) for name, flag in flags.items()}}


class Place(NamedTuple):
    """Puts the objects of one record into its image."""

    size: tuple[int, int]
    """(H, W) of the image."""
    scale: tuple[float, float]
    """Pixels of the image for 1 of x and of y."""
    record: Record
    """Its findings get those about objects."""

    def put(self, item: Object) -> Placed | None:
        """Return the object in pixels of the image; None, with a finding, if nothing of it is inside."""
        keys: dict[str, Any] = {}
        edges: Edges | None = None
        if item.edges:
            edges = self._scaled(item.edges)
            if edges[0] > edges[2] or edges[1] > edges[3]:
                edges = edges_of(edges)
                self.note("box-reversed", item, [*item.edges], [*edges])
        if item.masks or item.rings:
            keys, around = self._mask_keys(item) if item.masks else self.ring_keys(item)
            edges = edges or around
        if item.corners:
            of_corners = keys_of_corners(self._points(item.corners))
            if are_flat(of_corners["corners"]).any():
                self.note("box-empty", item, [*item.corners])
                return None
            keys = {**keys, "corners": of_corners["corners"]} if keys else of_corners
            edges = edges or edges_of(of_corners["segmentation"][0])
        points = item.key_points and {name: self._key_point(*point) for name, point in item.key_points.items()}
        if edges is None:
            seen = [number for x, y, visible in item.key_points.values() if visible for number in (x, y)]
            edges = self._scaled(edges_of(seen)) if seen else None
        box, kind = cut_to_image(edges, self.size) if edges else (None, "box-empty")
        if kind and (box is None or not keys):  # the cut of a polygon is its finding; corners may lie outside
            self.note(kind, item, edges and [*edges], whole_numbers(box) if box else None)
        if box is None:
            return None
        is_crowd, columns = _crowd_of(item)
        columns = _with_flags(columns)
        more = columns_of(columns, item.tool_id) if columns or item.tool_id is not None else {}
        return Placed(item.class_name, box, keys, points, is_crowd, item.track, more, item.line, item.object_index)

    def tidy_class_name(self, item: Object) -> None:
        """Join the spaces in the name of an object's class, with a finding."""
        name = joined_spaces(item.class_name)
        if name != item.class_name:
            self.note("name-spaces", item, item.class_name, name)
            item.class_name = name

    def note(self, kind: str, item: Object, before: object = None, after: object = None) -> None:
        """Append a finding about an object."""
        file = self.record.about(item.line)
        self.record.findings.append(Finding(file, kind, item.object_index, item.line, before, after))

    def _scaled(self, edges: Edges) -> Edges:
        (x, y), (left, top, right, bottom) = self.scale, edges
        return left * x, top * y, right * x, bottom * y

    def _key_point(self, x: float, y: float, visible: int) -> tuple[float, float, int]:
        if not visible:
            return 0, 0, 0
        x, y = x * self.scale[0] - 0.5, y * self.scale[1] - 0.5  # COCO counts pixels from 0 at their centers
        return whole(round(x, DECIMALS)), whole(round(y, DECIMALS)), visible

    def _points(self, numbers: Sequence[float]) -> Sequence[float]:
        """Return points x, y, x, y, ... in pixels of the image."""
        if self.scale == (1, 1):
            return numbers
        return [number * self.scale[index % 2] for index, number in enumerate(numbers)]

    def ring_keys(self, item: Object) -> tuple[dict[str, Any], Edges | None]:
        """Return the keys of the rings of an object, cut at the edges of the image, and the box around them."""
        height, width = self.size
        rings = [*map(self._points, item.rings)]
        keys = keys_of_rings(rings)
        left, top, right, bottom = edges = _edges_of_rings(keys["segmentation"])
        outside = max(-left, -top, right - width, bottom - height)
        if outside > 0:
            cut = (cut_ring(points_of(ring), width, height) for ring in rings)
            rings = [ring.ravel().tolist() for ring in cut if len(ring) > 2]
            if not rings:
                if item.edges:
                    self.note("outline-cut", item)
                return {}, edges_of(self._points(item.rings[0]))
            if outside > _ROUNDING:
                self.note("outline-cut", item)
            keys = keys_of_rings(rings)
            edges = _edges_of_rings(keys["segmentation"])
        return keys, edges

    def _mask_keys(self, item: Object) -> tuple[dict[str, Any], Edges | None]:
        """Return the keys of masks, and the box around them; those of another size than the image are left out."""
        if self.scale != (1, 1):
            self.note("mask-unusable", item)
            return {}, None
        pixels = np.zeros(self.size, bool)
        is_cut = False
        for mask in item.masks:
            top, left = (min(max(first, 0), side) for first, side in zip((mask.top, mask.left), self.size, strict=True))
            part = mask.pixels[max(-mask.top, 0) :, max(-mask.left, 0) :][: self.size[0] - top, : self.size[1] - left]
            if mask.top > self.size[0] or mask.left > self.size[1]:
                part = part[:0, :0]
            pixels[top : top + part.shape[0], left : left + part.shape[1]] |= part
            is_cut |= bool(part.sum() < mask.pixels.sum())
        if is_cut:
            self.note("outline-cut", item)
        elif not pixels.any():
            self.note("mask-unusable", item)
        return (keys_of_mask(pixels), box_of_mask(pixels)) if pixels.any() else ({}, None)


def _edges_of_rings(rings: Sequence[Sequence[float]]) -> Edges:
    return edges_of(rings[0] if len(rings) == 1 else [*chain.from_iterable(rings)])
