"""The shapes of the annotations of a converted COCO JSON file: rings, masks, corners of rotated boxes, keypoints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Floats, Ints
from detaug.coco.annotations import remedy_of
from detaug.coco.key_points import names_of_points, read_key_points
from detaug.coco.outlines import read_outlines
from detaug.coco.rings import box_of_mask, mask_of_runs, points_of, rings_of_mask, smallest_rectangle
from detaug.coco.rows import CocoRows
from detaug.coco.writer import OWN_KEYS, PREFIX
from detaug.findings.finding import Finding, shown

SHAPE_KEYS = frozenset({"segmentation", "corners", "area", "keypoints", "num_keypoints"})
"""The keys of annotations that a `Shape` has."""


class Outlines(NamedTuple):
    """The polygons of annotations, by position in the JSON file; those without one are missing."""

    rings: dict[int, list[Floats]]
    """Polygons, and the edges of masks, those of holes too: each (n, 2) x, y in pixels."""
    corners: dict[int, Floats]
    """(4, 2)"""
    runs: dict[int, Ints]
    """Of masks: where runs of pixels end, down the columns of the image, the first one outside of the object."""

    def rotated_box(self, position: int) -> Floats | None:
        """Return (4, 2): `corners`, a polygon of four points, or the smallest rectangle around the polygon."""
        if position in self.corners or position not in self.rings:
            return self.corners.get(position)
        rings = self.rings[position]
        return rings[0] if len(rings) == 1 and len(rings[0]) == 4 else smallest_rectangle(np.concatenate(rings))


def outlines_of(rows: CocoRows, *, trace: bool = True) -> tuple[CocoRows, Outlines, list[Finding]]:
    """Return the polygons of the annotations; those with a wrong one are left out, with a finding.

    trace: masks become rings, too.
    """
    positions = rows.boxes.tolist()
    entries = [rows.table.row("annotations", position) for position in positions]
    height, width = rows.table.sizes[rows.table.image_index[rows.boxes]].T
    segmentations, corners = ([entry.get(key) for entry in entries] for key in ("segmentation", "corners"))
    polygons, faults = read_outlines(segmentations, corners, height, width)
    wrong = faults.segmentation | faults.corners
    outlines = Outlines({}, {}, {})
    for row, position in enumerate(positions):
        ends = polygons.runs[polygons.first_run[row] : polygons.first_run[row + 1]].astype(np.int64)
        if len(ends):
            outlines.runs[position] = ends
        rings = rings_of_mask(mask_of_runs(ends, int(height[row]), int(width[row]))) if len(ends) and trace else []
        if polygons.first_ring[row] < polygons.first_ring[row + 1] and row not in wrong:
            rings += [points_of(ring) for ring in segmentations[row] or () if len(ring) >= 6]  # in double precision
        if rings:
            outlines.rings[position] = rings
        if not np.isnan(polygons.corners[row]).any():
            outlines.corners[position] = polygons.corners[row]
    left, findings = _without(rows, {positions[row]: fault for row, fault in wrong.items()})
    return left, outlines, findings


def key_points_of(rows: CocoRows) -> tuple[CocoRows, dict[int, Floats], list[Finding]]:
    """Return (K, 3) x, y, visibility of each annotation, as in the JSON file; those with wrong ones are left out."""
    positions = rows.boxes.tolist()
    names = {row["id"]: len(names_of_points(row)) for row in rows.table.coco.document["categories"]}
    known = [names[number] for number in rows.table.category_ids[rows.boxes].tolist()]
    values = [rows.table.row("annotations", position).get("keypoints") for position in positions]
    points, faults = read_key_points(values, known)
    left, findings = _without(rows, {positions[row]: fault for row, (_, fault) in faults.items()})
    return left, dict(zip(positions, points, strict=True)), findings


def _without(rows: CocoRows, faults: Mapping[int, str]) -> tuple[CocoRows, list[Finding]]:
    path = rows.table.path
    notes = [
        f"{rows.table.entry('annotations', position)}{fault}; {remedy_of(path)}" for position, fault in faults.items()
    ]
    return rows.without((), faults), [Finding(str(path), "entry-invalid", note=note) for note in notes]


class Shape(NamedTuple):
    """All that one annotation has, in continuous pixels: for formats that keep more than boxes."""

    class_name: str
    size: tuple[int, int]
    """(height, width) of the image."""
    edges: tuple[float, float, float, float]
    """Left, top, right, bottom of its box."""
    rings: list[Floats]
    mask: NDArray[np.bool_] | None
    """(H, W) of the image."""
    corners: Floats | None
    """(4, 2) of a rotated box. A ring that is the same is not among the rings."""
    key_points: dict[str, tuple[float, float, int]]
    """By name, in the order of the category: x, y and COCO's visibility; none if none of them is labeled."""
    is_crowd: bool
    columns: dict[str, Any]
    """Further keys, by the names that they had before COCO's own were in the way."""

    @property
    def has_own_box(self) -> bool:
        """Return whether the box is not the one around the polygon, the mask or the corners."""
        points = np.concatenate(self.rings) if self.rings else self.corners
        if self.mask is not None:
            points = np.array(box_of_mask(self.mask), np.float64).reshape(2, 2)
        if points is None:
            return False
        around = np.concatenate([points.min(0), points.max(0)]).clip(0, self.size[::-1] * 2)
        return bool(np.abs(around - self.edges).max() > 1e-3)


class CocoShapes(NamedTuple):
    """The shapes of the annotations of a JSON file."""

    rows: CocoRows
    outlines: Outlines
    key_points: dict[int, Floats]
    point_names: dict[int, list[str]]
    """By category id."""

    def unordered_points(self) -> Iterator[Finding]:
        """Yield a finding for each class with several keypoints, of which a format has the names alone."""
        table = self.rows.table
        labeled = [position for position, points in self.key_points.items() if len(points) > 1 and points[:, 2].any()]
        for category in sorted({*table.category_ids[labeled].tolist()}):
            note = f"class {shown(table.categories[category])}: {', '.join(self.point_names[category])}"
            yield Finding(str(table.path), "points-order", note=note)

    def of(self, position: int) -> Shape:
        """Return the shape of an annotation."""
        table, rings = self.rows.table, self.outlines.rings.get(position, [])
        height, width = table.sizes[table.image_index[position]].tolist()
        corners, ends = self.outlines.corners.get(position), self.outlines.runs.get(position)
        mask = None if ends is None else mask_of_runs(ends, height, width)
        names = self.point_names[int(table.category_ids[position])]
        points = self.key_points[position] + (0.5, 0.5, 0)  # COCO counts pixels
        named = {name: (x, y, int(v)) for name, (x, y, v) in zip(names, points.tolist(), strict=False)}
        left, top, right, bottom = table.boxes[position].tolist()
        return Shape(
            self.rows.class_name(position),
            (height, width),
            (left, top, right, bottom),
            [] if corners is not None and is_ring_of(rings, corners) else rings,
            mask if mask is not None and mask.any() else None,
            corners,
            named if points[:, 2].any() else {},
            bool(table.crowd[position]),
            {_own_name(key): value for key, value in table.row("annotations", position).items() if key not in OWN_KEYS},
        )

    @property
    def columns(self) -> frozenset[str]:
        """Return the further keys that annotations have."""
        keys = (self.rows.table.row("annotations", position).keys() for position in self.rows.boxes.tolist())
        return frozenset().union(*keys) - OWN_KEYS


def _own_name(key: str) -> str:
    """Return the name of a column before it got a prefix, since COCO has the name."""
    name = key.removeprefix(PREFIX)
    return name if name in OWN_KEYS else key


def is_ring_of(rings: list[Floats], corners: Floats) -> bool:
    """Return whether rings are one, of the same four points in the same order as `corners` (4, 2)."""
    return len(rings) == 1 and rings[0].shape == corners.shape and np.allclose(rings[0], corners, atol=1e-3)


def shapes_of(rows: CocoRows) -> tuple[CocoRows, CocoShapes, list[Finding]]:
    """Return the shapes of the annotations; those with a wrong one are left out, with a finding."""
    rows, outlines, faults = outlines_of(rows, trace=False)
    rows, points, more_faults = key_points_of(rows)
    count = max((len(own_points) for own_points in points.values()), default=0)
    numbers = [str(number) for number in range(1, count + 1)]
    names = {row["id"]: names_of_points(row) or numbers for row in rows.table.coco.document["categories"]}
    return rows, CocoShapes(rows, outlines, points, names), [*faults, *more_faults]
