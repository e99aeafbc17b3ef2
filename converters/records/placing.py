"""From an object of a record to its row: the box inside the image, and the keys of its shape, in pixels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from detaug.converters.coco.boxes import DECIMALS, cut_to_image
from detaug.converters.coco.rings import area_of, box_of_mask, cut_ring, keys_of_corners, keys_of_mask, points_of
from detaug.converters.coco.writer import Box, whole, whole_box
from detaug.converters.findings.finding import Finding
from detaug.converters.records.record import Edges, Object, Record, edges_of

_ROUNDING = 0.01  # pixels by which an outline may leave its image because of the decimals it is written with


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
    tool_id: int | str | None
    line: int | None
    object_index: int | None


_CROWD = frozenset({"iscrowd", "is_crowd"})
"""Columns that mark a crowd: COCO's name, which the way back writes, and that of CVAT and Datumaro."""


def _crowd_of(item: Object) -> tuple[bool, Mapping[str, Any]]:
    """Return whether an object is a crowd, and its columns without the one that says so."""
    if not item.columns:
        return item.is_crowd, item.columns
    values = {name: str(item.columns[name]).lower() for name in _CROWD & item.columns.keys()}
    marks = {name for name, value in values.items() if value in ("0", "1", "true", "false")}
    if not marks:
        return item.is_crowd, item.columns
    is_crowd = item.is_crowd or any(values[name] in ("1", "true") for name in marks)
    return is_crowd, {name: value for name, value in item.columns.items() if name not in marks}


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
        edges = self._scaled(item.edges) if item.edges else None
        if item.edges and (item.edges[0] > item.edges[2] or item.edges[1] > item.edges[3]):
            self.note("box-reversed", item, [*item.edges], edges and [*edges])
        if item.masks or item.rings:
            keys, around = self._mask_keys(item) if item.masks else self._ring_keys(item)
            edges = edges or around
        if item.corners:
            of_corners = keys_of_corners(points_of(item.corners) * self.scale)
            keys = {**keys, "corners": of_corners["corners"]} if keys else of_corners
            edges = edges or edges_of([number for corner in keys["corners"] for number in corner])
        key_points = {name: self._point(*point) for name, point in item.key_points.items()}
        if edges is None:
            seen = [number for x, y, visible in item.key_points.values() if visible for number in (x, y)]
            edges = self._scaled(edges_of(seen)) if seen else None
        box, kind = cut_to_image(edges, self.size) if edges else (None, "box-empty")
        if kind and (box is None or not keys):  # the cut of an outline is its finding; corners may lie outside
            self.note(kind, item, edges and [*edges], whole_box(box) if box else None)
        if box is None:
            return None
        is_crowd, columns = _crowd_of(item)
        rest = is_crowd, item.track, columns, item.tool_id, item.line, item.object_index
        return Placed(item.class_name, box, keys, key_points, *rest)

    def note(self, kind: str, item: Object, before: object = None, after: object = None) -> None:
        """Append a finding about an object."""
        file = self.record.about(item.line)
        self.record.findings.append(Finding(file, kind, item.object_index, item.line, before, after))

    def _scaled(self, edges: Edges) -> Edges:
        x, y = self.scale
        left, right = sorted((edges[0] * x, edges[2] * x))
        top, bottom = sorted((edges[1] * y, edges[3] * y))
        return left, top, right, bottom

    def _point(self, x: float, y: float, visible: int) -> tuple[float, float, int]:
        if not visible:
            return 0, 0, 0
        x, y = x * self.scale[0] - 0.5, y * self.scale[1] - 0.5  # COCO counts pixels from 0 at their centres
        return whole(round(x, DECIMALS)), whole(round(y, DECIMALS)), visible

    def _ring_keys(self, item: Object) -> tuple[dict[str, Any], Edges | None]:
        height, width = self.size
        rings, is_cut = [], False
        for ring in item.rings:
            points = points_of(ring) * self.scale
            xs, ys = points.T.tolist()  # for the few points of a ring, quicker than NumPy's minimum
            outside = max(-min(xs), -min(ys), max(xs) - width, max(ys) - height)
            if outside > 0:
                is_cut |= outside > _ROUNDING
                points = cut_ring(points, width, height)
            if len(points) > 2:
                rings.append(points.round(DECIMALS))
        if not rings:
            return {}, edges_of((points_of(item.rings[0]) * self.scale).ravel().tolist())
        if is_cut:
            self.note("outline-cut", item)
        area = sum(map(area_of, rings))
        segmentation = [[whole(number) for number in ring.ravel().tolist()] for ring in rings]
        keys = {"area": whole(round(area, DECIMALS)), "segmentation": segmentation}
        return keys, edges_of([number for ring in segmentation for number in ring])

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
        return (keys_of_mask(pixels), box_of_mask(pixels)) if pixels.any() else ({}, None)
