"""The shapes of the annotations of a COCO json that is converted: rings, corners of rotated boxes, key points."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from detaug.converters.coco.annotations import remedy_of
from detaug.converters.coco.key_points import names_of_points, read_key_points
from detaug.converters.coco.outlines import read_outlines
from detaug.converters.coco.rings import mask_of_runs, rings_of_mask, smallest_rectangle
from detaug.converters.coco.rows import CocoRows
from detaug.converters.coco.table import Floats
from detaug.converters.findings.finding import Finding


class Outlines(NamedTuple):
    """The outlines of annotations, by position in the json; those without one are missing."""

    rings: dict[int, list[Floats]]
    """Polygons, and the edges of masks, those of holes too: each (n, 2) x, y in pixels."""
    corners: dict[int, Floats]
    """(4, 2)"""
    traced: int
    """How many are of masks."""

    def rotated_box(self, at: int) -> Floats | None:
        """Return (4, 2): `corners`, an outline of four points, or the smallest rectangle around the outline."""
        if at in self.corners or at not in self.rings:
            return self.corners.get(at)
        rings = self.rings[at]
        return rings[0] if len(rings) == 1 and len(rings[0]) == 4 else smallest_rectangle(np.concatenate(rings))


def outlines_of(rows: CocoRows) -> tuple[CocoRows, Outlines, list[Finding]]:
    """Return the outlines of the annotations; those with a wrong one are left out, with a finding."""
    positions = rows.boxes.tolist()
    entries = [rows.table.row("annotations", at) for at in positions]
    height, width = rows.table.sizes[rows.table.image_index[rows.boxes]].T
    segmentations, corners = ([entry.get(key) for entry in entries] for key in ("segmentation", "corners"))
    read, faults = read_outlines(segmentations, corners, height, width)
    found = Outlines({}, {}, int((np.diff(read.first_run) > 0).sum()))
    for row, at in enumerate(positions):
        ends = read.runs[read.first_run[row] : read.first_run[row + 1]].astype(np.int64)
        rings = rings_of_mask(mask_of_runs(ends, int(height[row]), int(width[row]))) if len(ends) else []
        for ring in range(read.first_ring[row], read.first_ring[row + 1]):
            rings.append(read.points[read.first_point[ring] : read.first_point[ring + 1]].astype(np.float64))
        if rings:
            found.rings[at] = rings
        if not np.isnan(read.corners[row]).any():
            found.corners[at] = read.corners[row]
    wrong = faults.segmentation | faults.corners
    left, findings = _without(rows, {positions[row]: fault for row, fault in wrong.items()})
    return left, found, findings


def key_points_of(rows: CocoRows) -> tuple[CocoRows, dict[int, Floats], list[Finding]]:
    """Return (K, 3) x, y, visibility of each annotation, as in the json; those with wrong ones are left out."""
    positions = rows.boxes.tolist()
    names = {row["id"]: len(names_of_points(row)) for row in rows.table.coco.document["categories"]}
    known = [names[number] for number in rows.table.category_ids[rows.boxes].tolist()]
    values = [rows.table.row("annotations", at).get("keypoints") for at in positions]
    points, faults = read_key_points(values, known)
    left, findings = _without(rows, {positions[row]: fault for row, (_, fault) in faults.items()})
    return left, dict(zip(positions, points, strict=True)), findings


def _without(rows: CocoRows, faults: Mapping[int, str]) -> tuple[CocoRows, list[Finding]]:
    path = rows.table.path
    notes = [f"{rows.table.entry('annotations', at)}{fault}; {remedy_of(path)}" for at, fault in faults.items()]
    return rows.without((), faults), [Finding(str(path), "entry-invalid", note=note) for note in notes]
