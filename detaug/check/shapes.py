"""Find what is wrong with polygons, corners of rotated boxes and keypoints.

A JSON of boxes trains all the same, so these are warnings. What `CocoReader` refuses when it is asked for shapes is
found by the functions that it reads them with: `read_outlines` and `read_key_points`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.check.mask_twins import mask_twins
from detaug.check.swapped_sides import swapped_sides
from detaug.coco.examine import TOLERANCE
from detaug.coco.key_points import (
    Fault,
    count_of_points,
    faults_of_category,
    names_of_points,
    places_in_mirror,
    read_key_points,
)
from detaug.coco.outlines import next_points, read_outlines
from detaug.coco.rings import are_flat, area_of, cut_ring, paint_ring
from detaug.coco.table import MIN_SIDE, THIN, Table
from detaug.errors import InputError
from detaug.findings.entries import Findings, from_messages
from detaug.findings.finding import shown

LARGEST_GAP = 2.0
"""Pixels between a side of a box and that of its polygon."""

_MOST_NEIGHBORS = 1000  # edges of a ring compared with each edge: a bound on time for absurd files


def check_shapes(table: Table) -> Iterator[Findings]:
    """Yield findings about the shapes of annotations whose image is known, and about the keypoints of categories."""
    rows = np.flatnonzero((table.image_index >= 0) & np.append(table.has_size, False)[table.image_index])
    entries = [table.row("annotations", index) for index in rows.tolist()]
    if any(entry.get("segmentation") or entry.get("corners") is not None for entry in entries):
        yield from _Outlines(table, rows, entries).findings()
    yield from _key_points(table, rows, entries)


def _findings(kind: str, rows: Ints, messages: Mapping[int, str]) -> Iterator[Findings]:
    """Yield the findings about annotations. messages: by position in `rows`."""
    if messages:
        yield from_messages(kind, "annotations", {int(rows[n]): text for n, text in messages.items()})


def _worst_first(kind: str, rows: Ints, badness: Floats, limit: float, text: str) -> Iterator[Findings]:
    """Yield the findings about annotations with a badness over the limit. text: with a place for the badness."""
    wrong = np.flatnonzero(badness > limit)
    order = wrong[np.argsort(-badness[wrong], kind="stable")]
    position_of = {int(rows[n]): n for n in order}
    if len(order):
        yield Findings(kind, "annotations", rows[order], lambda row: text.format(float(badness[position_of[row]])))


class _Outlines:
    """The polygons and corners of annotations."""

    def __init__(self, table: Table, rows: Ints, entries: list[dict[str, Any]]) -> None:
        self.table, self.rows, self.entries = table, rows, entries
        self.sizes = table.sizes[table.image_index[rows]]
        values = [[entry.get(key) for entry in entries] for key in ("segmentation", "corners")]
        self.outlines, self.faults = read_outlines(values[0], values[1], self.sizes[:, 0], self.sizes[:, 1])
        self.points = np.nan_to_num(self.outlines.points.astype(np.float64))
        self.corners = self.outlines.corners
        self.ring_row = np.repeat(np.arange(len(rows)), np.diff(self.outlines.first_ring))
        self.point_row = np.repeat(self.ring_row, np.diff(self.outlines.first_point))
        self.sound = np.ones(len(rows), bool)
        self.sound[[*self.faults.segmentation, *self.faults.corners]] = False
        self.has_corners: Bools = np.asarray(~np.isnan(self.corners).any((1, 2)))

    def findings(self) -> Iterator[Findings]:
        yield from _findings("segmentation-invalid", self.rows, self.faults.segmentation)
        yield from _findings("corners-invalid", self.rows, self.faults.corners)
        yield from self._short_rings()
        crossed = np.zeros(len(self.rows), bool)
        crossed[self.ring_row[crossing_rings(self.points, self.outlines.first_point)]] = True
        yield from self._those("segmentation-crossed", crossed & self.sound, "the edges of a ring cross each other")
        rotated = np.flatnonzero(self.has_corners)
        corners_crossed = np.zeros(len(self.rows), bool)
        corners_crossed[rotated] = crossing_rings(self.corners[rotated].reshape(-1, 2), np.arange(len(rotated) + 1) * 4)
        yield from self._those("corners-crossed", corners_crossed & self.sound, "the edges between the corners cross")
        yield from self._empty(crossed)
        yield from self._outside()
        yield from self._areas(crossed)
        yield from self._missing()
        around, known = self._around()
        yield from self._boxes(around, known)
        yield from self._twins(around, known)

    def _those(self, kind: str, wrong: Bools, text: str) -> Iterator[Findings]:
        if wrong.any():
            yield Findings(kind, "annotations", self.rows[wrong], lambda _: text)

    def _short_rings(self) -> Iterator[Findings]:
        short = {}
        for n, entry in enumerate(self.entries):
            rings = entry.get("segmentation")
            if isinstance(rings, list) and rings and self.sound[n] and min(map(len, rings)) < 6:
                shortest = min(rings, key=len)
                short[n] = f"a ring has fewer than three points and is left out: {shown(shortest)}"
        yield from _findings("segmentation-short", self.rows, short)

    def _empty(self, crossed: Bools) -> Iterator[Findings]:
        """Find shapes without an area, by the rule of boxes: readers leave their objects out."""
        flat = self.has_corners & are_flat(np.nan_to_num(self.corners))
        text = f"the corners have no area: a side of their rectangle is shorter than {MIN_SIDE} pixel"
        yield from self._those("corners-empty", flat, text)
        _, areas, around = _areas_of_rings(self.points, self.outlines.first_point, self.ring_row, len(self.rows))
        there = self.outlines.are_there(np.arange(len(self.rows)))
        leaves = np.zeros(len(self.rows), bool)
        leaves[self.point_row[_past(self.points, self.sizes[self.point_row, ::-1]) > 0]] = True
        for n in np.flatnonzero(leaves).tolist():
            height, width = self.sizes[n].tolist()
            areas[n] = sum(area_of(cut_ring(ring, width, height)) for ring in self._rings(n))
        empty = there & (areas + self.outlines.pixels_of_runs() <= THIN**2)
        sound = self.sound & ~crossed  # the halves of a ring that crosses itself may cancel each other
        yield from self._those("segmentation-empty", empty & sound, "the segmentation has no area in its image")
        thin = there & sound & ~empty & (2 * areas < around) & (self.outlines.pixels_of_runs() == 0)
        for n in np.flatnonzero(thin).tolist():  # a wider one has a pixel's center inside
            thin[n] = not any(_has_center(ring) for ring in self._rings(n))
        yield from self._those("segmentation-between", thin, "no pixel's center is inside of the segmentation")

    def _rings(self, n: int) -> list[Floats]:
        starts = self.outlines.first_point
        of_row = range(self.outlines.first_ring[n], self.outlines.first_ring[n + 1])
        return [self.points[starts[ring] : starts[ring + 1]] for ring in of_row]

    def _outside(self) -> Iterator[Findings]:
        sides = self.sizes[:, ::-1]
        past = _past(self.points, sides[self.point_row])
        outside = np.zeros(len(self.rows))
        np.maximum.at(outside, self.point_row, past)
        outside[self.has_corners | ~self.sound] = 0  # a rotated box at the edge has corners outside
        text = "the segmentation reaches {:.4g} pixels outside its image"
        yield from _worst_first("segmentation-outside", self.rows, outside, TOLERANCE, text)
        middle = np.where(self.has_corners[:, None], np.nan_to_num(self.corners).mean(1), 0)
        past = np.where(self.sound, _past(middle, sides), 0)
        text = "the middle of the corners is {:.4g} pixels outside its image"
        yield from _worst_first("corners-outside", self.rows, past, 0, text)

    def _areas(self, crossed: Bools) -> Iterator[Findings]:
        """Compare `area` with that of the polygon, from the largest ring's to the sum of all, and half a pixel more.

        Rings of an object may overlap; half a pixel along the polygon is what methods of counting differ by.
        """
        least, most, around = _areas_of_rings(self.points, self.outlines.first_point, self.ring_row, len(self.rows))
        runs = self.outlines.pixels_of_runs()
        least, most = np.maximum(least, runs), np.maximum(most, runs)
        areas: list[Any] = [entry.get("area") for entry in self.entries]
        area = np.array([float(area) if type(area) in (int, float) and abs(area) < 1e15 else np.nan for area in areas])
        off = np.maximum(least - area, area - most)
        off = np.where(self.sound & ~crossed & (most > 0) & ~np.isnan(area), off - around / 2 - most / 100 - 1, -1)
        wrong = np.flatnonzero(off > 0)
        order = wrong[np.argsort(-off[wrong], kind="stable")]
        position_of = {int(self.rows[n]): n for n in order}
        text = "area is {:.6g}, and that of the segmentation {:.6g}"
        if len(order):
            yield Findings(
                "segmentation-area",
                "annotations",
                self.rows[order],
                lambda row: text.format(float(area[position_of[row]]), float(most[position_of[row]])),
            )

    def _missing(self) -> Iterator[Findings]:
        """Find objects without a polygon where others have one."""
        there, crowd = self.outlines.are_there(np.arange(len(self.rows))), self.table.crowd[self.rows]
        has_segmentation = np.array([bool(entry.get("segmentation")) for entry in self.entries])
        if (there & ~crowd).any():
            text = "there is no segmentation, and others have one: its mask would be its box"
            yield from self._those("segmentation-missing", ~has_segmentation & ~crowd & ~self.has_corners, text)

    def _around(self) -> tuple[Floats, Bools]:
        """Return (A, 4) XYXY: the box around each polygon, or else around the corners; and which of them are known."""
        low, high = (np.full((len(self.rows), 2), limit) for limit in (np.inf, -np.inf))
        for points, row in ((self.points, self.point_row), self.outlines.corners_of_runs(self.sizes[:, 0])):
            np.minimum.at(low, row, points)
            np.maximum.at(high, row, points)
        only = self.has_corners & ~np.isfinite(low).all(1)
        low[only], high[only] = self.corners[only].min(1), self.corners[only].max(1)
        known = self.sound & np.isfinite(low).all(1) & self.table.has_box[self.rows]
        return np.concatenate([low, high], axis=1), known

    def _boxes(self, around: Floats, known: Bools) -> Iterator[Findings]:
        """Compare each box with the one around its polygon, or else around its corners, cut at the image's edges."""
        boxes = self.table.boxes[self.rows]
        limits = np.tile(self.sizes[:, ::-1], 2)
        gap = np.where(known, np.abs(around.clip(0, limits) - boxes).max(1, initial=0), 0)
        reaches_out = (around.clip(0, limits) != around).any(1)
        for n in np.flatnonzero((gap > LARGEST_GAP) & reaches_out).tolist():
            gap[n] = min(gap[n], self._gap_of_cut(n, boxes[n]))
        text = "a side of bbox is {:.4g} pixels from that of the box around its segmentation, or its corners"
        yield from _worst_first("segmentation-box", self.rows, gap, LARGEST_GAP, text)

    def _twins(self, around: Floats, known: Bools) -> Iterator[Findings]:
        own = known & self.outlines.are_there(np.arange(len(self.rows))) & ~self.table.crowd[self.rows]
        kept = np.flatnonzero(own & self.table.has_category[self.rows])
        rows = self.rows[kept]
        columns = self.table.boxes[rows], self.table.image_index[rows], self.table.category_ids[rows]
        twins = mask_twins(self.outlines.of(kept), around[kept], *columns, self.sizes[kept])
        if not twins:
            return
        messages, badness, like = dict[int, str](), dict[int, float](), dict[int, int]()
        for later, (earlier, iou) in twins.items():
            row, other = int(rows[later]), int(rows[earlier])
            name = shown(self.table.categories[int(self.table.category_ids[row])])
            messages[row] = f"{name} with the mask of annotations[{other}], IoU {iou:.2f}, and another bbox"
            badness[row], like[row] = iou, other
        yield from_messages("segmentation-repeated", "annotations", messages, badness=badness, like=like)

    def _gap_of_cut(self, n: int, box: Floats) -> float:
        """Return how far a box is from the one around the polygon that was cut first, as some programs do."""
        height, width = self.sizes[n].tolist()
        rings = self._rings(n) or [self.corners[n]]
        cut = np.concatenate([cut_ring(ring, width, height) for ring in rings])
        around = [*cut.min(0), *cut.max(0)] if len(cut) else [np.inf] * 4
        return float(np.abs(np.array(around) - box).max())


def _has_center(ring: Floats) -> bool:
    (left, top), (right, bottom) = np.floor(ring.min(0)).astype(int).tolist(), np.ceil(ring.max(0)).astype(int).tolist()
    return bool(paint_ring(ring, (left, top, right, bottom)).any())


def _past(points: Floats, sides: Ints) -> Floats:
    """Return (n,) by how many pixels points lie outside of images of these sides; negative for those inside."""
    return np.asarray(np.maximum(-points, points - sides).max(-1, initial=-np.inf))


def _areas_of_rings(points: Floats, first_point: Ints, ring_row: Ints, rows: int) -> tuple[Floats, Floats, Floats]:
    """Return (A,) the area of the largest ring of each annotation, that of all, and the length of their edges."""
    other = points[next_points(first_point)]
    ring = np.repeat(np.arange(len(ring_row)), np.diff(first_point))
    cross = points[:, 0] * other[:, 1] - other[:, 0] * points[:, 1]
    areas = np.abs(_sums(ring, cross, len(ring_row))) / 2
    least = np.zeros(rows)
    np.maximum.at(least, ring_row, areas)
    lengths = _sums(ring, np.hypot(*(other - points).T), len(ring_row))
    return least, _sums(ring_row, areas, rows), _sums(ring_row, lengths, rows)


def _sums(index: Ints, values: Floats, length: int) -> Floats:
    return np.bincount(index, values, length).astype(np.float64)


def crossing_rings(points: Floats, first_point: Ints) -> Bools:
    """Return (R,) which rings cross themselves; edges that touch do not cross.

    points: (P, 2) of all rings. first_point: (R + 1,). The edges of each ring are sorted by their left ends. Step k
    compares every edge with the k-th after it, until all begin right of its end.
    """
    crossed = np.zeros(len(first_point) - 1, bool)
    ring = np.repeat(np.arange(len(crossed)), np.diff(first_point))
    start, end = points, points[next_points(first_point)]
    order = np.lexsort((np.minimum(start[:, 0], end[:, 0]), ring))
    start, end, ring = start[order], end[order], ring[order]
    (left, top), (right, bottom) = np.minimum(start, end).T, np.maximum(start, end).T
    first = np.arange(len(ring))
    for step in range(1, _MOST_NEIGHBORS):
        # An edge leaves the sweep when the next one is of another ring or begins right of its end: the rest is too.
        first = first[first + step < len(ring)]
        first = first[
            (ring[first + step] == ring[first]) & (left[first + step] <= right[first]) & ~crossed[ring[first]]
        ]
        if not len(first):
            break
        one = first[(top[first + step] <= bottom[first]) & (bottom[first + step] >= top[first])]
        other = one + step
        apart = _sides(start[one], end[one], start[other], end[other]) < 0
        apart &= _sides(start[other], end[other], start[one], end[one]) < 0
        crossed[ring[one[apart]]] = True
    return crossed


@np.errstate(over="ignore", invalid="ignore")  # products of very large coordinates
def _sides(start: Floats, end: Floats, one: Floats, other: Floats) -> Floats:
    """Return (n,) negative numbers where two points are on the two sides of the line through start and end."""
    along = end - start
    turns = [along[:, 0] * (point - start)[:, 1] - along[:, 1] * (point - start)[:, 0] for point in (one, other)]
    return np.asarray(np.sign(turns[0]) * np.sign(turns[1]))


def _key_points(table: Table, rows: Ints, entries: list[dict[str, Any]]) -> Iterator[Findings]:
    categories = {index: table.row("categories", index) for index in range(len(table.coco.document["categories"]))}
    known = {row["id"]: len(names_of_points(row)) for row in categories.values() if type(row.get("id")) is int}
    values = [entry.get("keypoints") for entry in entries]
    points, faults = np.zeros((0, 0, 3)), dict[int, Fault]()
    if any(value is not None for value in values):
        counts = [known.get(number, 0) for number in table.category_ids[rows].tolist()]
        points, faults = read_key_points(values, counts)
    for kind in ("keypoints-number", "keypoints-visibility"):
        yield from _findings(kind, rows, {n: text for n, (of, text) in faults.items() if of == kind})
    if len(points):
        yield from _labeled_points(table, rows, entries, points, np.isin(np.arange(len(rows)), [*faults]))
    labeled = points[..., 2] > 0 if len(points) else np.zeros((len(rows), 0), np.bool_)
    with_ids = {index: row["id"] for index, row in categories.items() if type(row.get("id")) is int}
    counts_of = {
        index: count_of_points(labeled[table.category_ids[rows] == number]) for index, number in with_ids.items()
    }
    yield from _categories(categories, points.shape[1], counts_of)


def _labeled_points(
    table: Table, rows: Ints, entries: list[dict[str, Any]], points: Floats, faulty: Bools
) -> Iterator[Findings]:
    labeled = points[..., 2] > 0
    sides = table.sizes[table.image_index[rows], ::-1][:, None]
    places = points[..., :2] + 0.5  # COCO counts pixels
    past = np.where(labeled, _past(places, sides), 0).max(1, initial=0)
    text = "a labeled keypoint is {:.4g} pixels outside its image"
    yield from _worst_first("keypoints-outside", rows, past, TOLERANCE, text)
    counts = labeled.sum(1).tolist()
    stated = [entry.get("num_keypoints") for entry in entries]
    wrong = {
        n: f"num_keypoints is {shown(value)}, and {counts[n]} keypoints are labeled"
        for n, value in enumerate(stated)
        if value is not None and value != counts[n] and not faulty[n]
    }
    yield from _findings("keypoints-count", rows, wrong)
    yield from swapped_sides(table, rows, points)


def _categories(categories: Mapping[int, dict[str, Any]], count: int, counts: Mapping[int, int]) -> Iterator[Findings]:
    """Yield what is wrong with categories. counts: by position, how many points their objects have, so flips matter."""
    messages: dict[str, dict[int, str]] = {}
    for index, category in categories.items():
        faults = dict(faults_of_category(category, count))
        for kind, text in faults.items():
            messages.setdefault(kind, {})[index] = text
        if not faults and (own := counts.get(index, 0)):
            try:
                places_in_mirror(category, own)
            except InputError as error:
                messages.setdefault("keypoints-sides", {})[index] = str(error)
    for kind, of_kind in messages.items():
        yield from_messages(kind, "categories", of_kind)
