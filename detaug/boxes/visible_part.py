"""The visible part of outlines: its extent along the axes of the output, or along other directions.

An outline, convex or not, is seen through a convex region of the output: the rectangle of its layer, the bounds of its
source and the clip region. The extreme points of the visible part are ends of the outline's edges once these are cut to
the region, and corners of the region that lie in the outline. So nothing is clipped as a polygon, which for concave
ones would add bridges that are not there. Edges are cut in homogeneous coordinates, so that a perspective's horizon is
one more border.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Floats, Ints, pairs, start_offsets
from detaug.boxes import outline_loops, polygons
from detaug.boxes.fields import cut_to_images
from detaug.boxes.placement import Placement
from detaug.boxes.units import EDGE
from detaug.coco.outlines import OutlineColumns, next_points


class Rings(NamedTuple):
    """The outlines of B objects: object b has the rings first_ring[b]:last_ring[b]."""

    points: NDArray[Any]
    """(P, 2) source pixels, float32 or float64; rings of other objects may be among them."""
    first_point: Ints
    """(R + 1,): ring r has the points first_point[r]:first_point[r + 1]."""
    first_ring: Ints
    """(B,)"""
    last_ring: Ints
    """(B,)"""

    def some(self, objects: Ints) -> Rings:
        """Return the outlines of some objects."""
        return self._replace(first_ring=self.first_ring[objects], last_ring=self.last_ring[objects])


class Vertices(NamedTuple):
    """The vertices of the rings of B objects, concatenated."""

    points: Floats
    """(Q, 2) source pixels."""
    ring: Ints
    """(Q,): the number of each one's ring."""
    following: Ints
    """(Q,): the position of the next vertex of the ring."""
    of_object: Ints
    """(Q,): 0..B - 1, ascending."""

    def in_pieces(self, pieces: Ints) -> Vertices:
        """Return the same rings with more vertices: the edge from each one is cut into equal pieces, `pieces` (Q,)."""
        share = (np.arange(pieces.sum()) - np.repeat(start_offsets(pieces), pieces)) / np.repeat(pieces, pieces)
        start, end = (np.repeat(self.points[chosen], pieces, axis=0) for chosen in (slice(None), self.following))
        ring, of_object = np.repeat(self.ring, pieces), np.repeat(self.of_object, pieces)
        first = np.flatnonzero(np.diff(ring, prepend=-1, append=-1))
        return Vertices(start + share[:, None] * (end - start), ring, next_points(first), of_object)


class Extremes(NamedTuple):
    """Points of the output, among them all extreme points of the visible part of B objects."""

    points: Floats
    """(P, 2) output pixels."""
    of_object: Ints
    """(P,): 0..B - 1."""

    def extent(self, count: int, axis: Floats) -> Floats:
        """Return (B, 2): the smallest and the largest coordinate along axes (B, 2); inf, -inf where nothing is seen."""
        extents = np.tile([np.inf, -np.inf], (count, 1))
        outline_loops.extend(self.points, self.of_object, axis, extents)
        return extents

    def boxes(self, count: int) -> Floats:
        """Return (B, 4) XYXY; inf, inf, -inf, -inf where nothing is seen."""
        x, y = (self.extent(count, np.tile(axis, (count, 1))) for axis in ([1.0, 0.0], [0.0, 1.0]))
        return np.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], axis=1)


class _Regions(NamedTuple):
    """What of the output B objects are seen through, as `outline_loops` takes it."""

    windows: Floats
    """(B, 8): the rectangle in the output and the bounds in the source, XYXY each."""
    corners: Floats
    """(B, V, 2): the clip region in the output; V is 0 where there is none."""
    turns: Floats
    """(B,): which way round it goes."""


def rings_of(outlines: OutlineColumns, rows: Ints, height: Ints) -> Rings:
    """Return the outlines of annotations `rows`, (B,).

    `height`: (B,) of the images. A mask has one ring, along the tops of its columns and back along their bottoms, as if
    each column were filled.
    """
    masks = np.flatnonzero(outlines.first_run[rows + 1] > outlines.first_run[rows])
    if not len(masks):
        return Rings(outlines.points, outlines.first_point, outlines.first_ring[rows], outlines.first_ring[rows + 1])
    chosen = outlines.of(rows)
    runs = (chosen.runs[chosen.first_run[index] : chosen.first_run[index + 1]] for index in masks.tolist())
    around = [ring_of_runs(own_runs, int(height[index])) for index, own_runs in zip(masks.tolist(), runs, strict=True)]
    ends = chosen.first_point[-1] + np.cumsum([len(ring) for ring in around])
    first, last = chosen.first_ring[:-1].copy(), chosen.first_ring[1:].copy()
    first[masks] = len(chosen.first_point) - 1 + np.arange(len(masks))
    last[masks] = first[masks] + 1
    return Rings(np.concatenate([chosen.points, *around]), np.append(chosen.first_point, ends), first, last)


def rings_of_polygons(corners: Floats) -> Rings:
    """Return polygons (B, V, 2) as rings."""
    count, sides = corners.shape[:2]
    number = np.arange(count + 1)
    return Rings(np.ascontiguousarray(corners).reshape(-1, 2), number * sides, number[:-1], number[1:])


def vertices_of(rings: Rings) -> Vertices:
    """Return the vertices of outlines."""
    counts = rings.last_ring - rings.first_ring
    of_ring = np.repeat(np.arange(len(counts)), counts)
    chosen = np.arange(len(of_ring)) + (rings.first_ring - start_offsets(counts))[of_ring]
    ring, places = pairs(rings.first_point, chosen)
    ends = np.cumsum(rings.first_point[chosen + 1] - rings.first_point[chosen])
    return Vertices(rings.points[places].astype(np.float64), ring, next_points(np.append(0, ends)), of_ring[ring])


def ring_of_runs(ends: NDArray[np.int32], height: int) -> Floats:
    """Return (V, 2): a ring along the tops of the columns of a mask and back along their bottoms."""
    if len(ends) < 2:
        return np.zeros((0, 2))
    starts, stops = ends[:-1:2].astype(np.int64), ends[1::2].astype(np.int64)
    starts, stops = starts[stops > starts], stops[stops > starts]
    if not len(starts):
        return np.zeros((0, 2))
    first, last = starts // height, (stops - 1) // height
    spans, bottom_of_last = last > first, (stops - 1) % height + 1
    between = [np.arange(one + 1, other) for one, other in zip(first, last, strict=True)]
    columns = np.concatenate([first, last, *between])  # a run may go on from the bottom of a column to the next top
    whole = len(columns) - 2 * len(first)
    tops = np.concatenate([starts % height, np.where(spans, 0, starts % height), np.zeros(whole, np.int64)])
    bottoms = np.concatenate([np.where(spans, height, bottom_of_last), bottom_of_last, np.full(whole, height)])
    column, column_of = np.unique(columns, return_inverse=True)
    top, bottom = np.full(len(column), height), np.zeros(len(column), np.int64)
    np.minimum.at(top, column_of, tops)
    np.maximum.at(bottom, column_of, bottoms)
    x = np.stack([column, column + 1], axis=1).ravel()
    along = np.stack([x, np.repeat(top, 2)], axis=1)
    back = np.stack([x, np.repeat(bottom, 2)], axis=1)[::-1]
    return np.concatenate([along, back]).astype(np.float64)


def seen_boxes(rings: Rings, placement: Placement) -> Floats:
    """Return (B, 4) XYXY: the boxes of the visible part of outlines; inf, inf, -inf, -inf where nothing is.

    Most outlines lie in the view as a whole: only the others are cut to it, which takes ten times as long.
    """
    if placement.field is None:
        boxes, everything = np.empty((len(placement.rows), 4)), np.arange(len(placement.rows))
        regions = _regions_of(placement, everything)
        outline_loops.see(*rings, placement.to_output, placement.to_source, *regions, boxes)
        return boxes
    boxes, whole = _enclosed(rings, placement)
    cut = np.flatnonzero(~whole | placement.field.bends[placement.image])
    if len(cut):
        boxes[cut] = extremes_of(vertices_of(rings.some(cut)), placement.some(cut)).boxes(len(cut))
    return boxes


def is_in_view(points: Floats, moved: Floats, placement: Placement) -> Bools:
    """Return (B,): whether polygons (B, V, 2), in source pixels and `moved` to the output, are in view as a whole."""
    _, whole = _enclosed(rings_of_polygons(points), placement)
    return whole if placement.field is None else whole & placement.field.shows(placement.image, moved).all(1)


def _enclosed(rings: Rings, placement: Placement) -> tuple[Floats, Bools]:
    """Return the boxes (B, 4) of outlines before a field, and whether they are in view as a whole, (B,)."""
    count = len(placement.rows)
    boxes, whole, regions = np.empty((count, 4)), np.empty(count, np.bool_), _regions_of(placement, np.arange(count))
    outline_loops.enclose(*rings, placement.to_output, regions.windows, regions.corners, boxes, whole)
    return boxes, whole


def _regions_of(placement: Placement, objects: Ints) -> _Regions:
    layers, own = placement.layers, (placement.image[objects], placement.layer[objects])
    windows = np.concatenate([placement.rectangles()[objects], layers.source_bounds[own].reshape(-1, 4)], axis=1)
    corners = np.zeros((len(objects), 0, 2)) if layers.clip_region is None else layers.clip_region[own]
    return _Regions(windows, np.ascontiguousarray(corners), polygons.turn_of(corners))


def extremes_of(vertices: Vertices, placement: Placement) -> Extremes:
    """Return points, with all extreme points of the visible part of the outlines; later layers do not count."""
    vertices = in_short_pieces(vertices, placement)
    count, of_object = len(placement.rows), vertices.of_object
    start, end = np.empty((2, len(of_object), 2))
    seen, cuts = np.empty(len(of_object), np.bool_), np.zeros(count, np.bool_)
    regions, edges = _regions_of(placement, np.arange(count)), (vertices.points, vertices.following, of_object)
    slack = 0.0 if placement.field is None else EDGE  # rounded, an edge on a border lies beside it
    outline_loops.cut_edges(*edges, placement.to_output, *regions, slack, start, end, seen, cuts)
    start, end, objects = start[seen], end[seen], np.flatnonzero(cuts)
    corners, in_outline = _corners_in_outlines(vertices, placement, objects)
    owners = np.broadcast_to(objects[:, None], in_outline.shape)
    if placement.field is not None:
        borders = in_outline, in_outline & np.roll(in_outline, -1, axis=1)  # as points, and to the next one
        after = np.roll(corners, -1, axis=1)
        start = np.concatenate([start, *(corners[border] for border in borders)])
        end = np.concatenate([end, corners[borders[0]], after[borders[1]]])
        of_segment = np.concatenate([of_object[seen], *(owners[border] for border in borders)])
        return _bent(start, end, of_segment, vertices, placement)
    of_points = np.concatenate([of_object[seen], of_object[seen], owners[in_outline]])
    return Extremes(np.concatenate([start, end, corners[in_outline]]), of_points)


def _bent(start: Floats, end: Floats, of_object: Ints, vertices: Vertices, placement: Placement) -> Extremes:
    """Return the ends of short segments of the undistorted output once a field bends them and the output cuts them.

    `start`, `end` (P, 2), `of_object` (P,). Corners of the output that show the objects are extreme points too.
    """
    field = placement.field
    assert field is not None
    image = placement.image[of_object]
    start, end = (field.place(image, ends) for ends in (start, end))
    seen, start, end = cut_to_images(start, end, field.size[image])
    objects = np.unique(of_object[~seen])
    corners = polygons.UNIT_SQUARE * field.size[placement.image[objects], None, ::-1]
    image = placement.image[objects, None]
    before = np.stack(field.undistorted(image, corners[..., 0], corners[..., 1]), axis=-1)
    in_source = polygons.transform(placement.to_source[objects], before)
    shown, regions = np.empty(before.shape[:2], np.bool_), _regions_of(placement, objects)
    number = np.repeat(np.arange(len(objects)), 4)
    points = before.reshape(-1, 2), in_source.reshape(-1, 2), number
    outline_loops.are_in_view(*points, placement.to_output[objects], *regions, shown.ravel())
    shown &= _in_outlines(in_source, objects, vertices)
    return Extremes(
        np.concatenate([start[seen], end[seen], corners[shown]]),
        np.concatenate([of_object[seen], of_object[seen], objects[number[shown.ravel()]]]),
    )


def in_short_pieces(vertices: Vertices, placement: Placement) -> Vertices:
    """Return the vertices with as many between them as a field needs that bends the edges."""
    if placement.field is None:
        return vertices
    moved = placement.some(vertices.of_object).move_in_layers(vertices.points[:, None])[:, 0]
    lengths = np.hypot(*(moved[vertices.following] - moved).T)
    return vertices.in_pieces(placement.field.pieces(placement.image[vertices.of_object], lengths))


def _corners_in_outlines(vertices: Vertices, placement: Placement, objects: Ints) -> tuple[Floats, Bools]:
    """Return the corners (B, V, 2) of the regions of some objects, and which lie in their outlines, (B, V)."""
    to_source = placement.to_source[objects]
    region = outline_loops.regions(to_source, *_regions_of(placement, objects))
    if placement.field is not None:
        after, image = np.roll(region, -1, axis=1), placement.image[objects]
        longest = np.hypot(*np.moveaxis(after - region, 2, 0)).max(1, initial=0)
        pieces = placement.field.pieces(image, longest)[:, None]  # an object's own: neighbors must not change its box
        place = np.minimum(np.arange(pieces.max(initial=1)), pieces - 1)  # the last one is repeated to pad
        steps = (after - region)[:, :, None] * (place / pieces)[:, None, :, None]
        region = (region[:, :, None] + steps).reshape(len(region), region.shape[1] * place.shape[1], 2)
    return region, _in_outlines(polygons.transform(to_source, region), objects, vertices)


def _in_outlines(points: Floats, objects: Ints, vertices: Vertices) -> Bools:
    """Return (B, K): whether points (B, K, 2) in source pixels lie in the outlines of these objects, ascending."""
    inside = np.zeros(points.shape[:2], np.bool_)
    first, last = (np.searchsorted(vertices.of_object, objects, side=side) for side in ("left", "right"))
    outline_loops.contain(points, first, last, vertices.points, vertices.ring, vertices.following, inside)
    return inside
