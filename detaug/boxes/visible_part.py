"""The visible part of outlines: its extent along the axes of the output, or along other directions.

An outline, convex or not, is seen through a convex region of the output: the rectangle of its layer, the bounds of its
source and the clip region. The extreme points of what is seen are ends of the outline's edges once these are cut to the
region, and corners of the region that lie in the outline. So nothing is clipped as a polygon, which for concave ones
would add bridges that are not there. Edges are cut in homogeneous coordinates, so that a perspective's horizon is one
more border.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Floats, Ints, start_offsets
from detaug.boxes import polygons
from detaug.boxes.fields import cut_to_pictures
from detaug.boxes.placement import Placement
from detaug.boxes.units import NEAREST
from detaug.converters.coco.outlines import OutlineColumns, next_points


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

    def some(self, objects: Ints) -> Vertices:
        """Return the vertices of some objects, ascending, which are then 0, 1 and so on."""
        chosen = np.isin(self.of_object, objects)
        place = np.cumsum(chosen) - 1
        return Vertices(
            self.points[chosen],
            self.ring[chosen],
            place[self.following[chosen]],
            np.searchsorted(objects, self.of_object[chosen]),
        )

    def in_pieces(self, pieces: Ints) -> Vertices:
        """Return the same rings with more vertices: the edge from each one is cut into equal pieces, `pieces` (Q,)."""
        share = (np.arange(pieces.sum()) - np.repeat(start_offsets(pieces), pieces)) / np.repeat(pieces, pieces)
        start, end = (np.repeat(self.points[at], pieces, axis=0) for at in (slice(None), self.following))
        ring, of_object = np.repeat(self.ring, pieces), np.repeat(self.of_object, pieces)
        return _in_order(start + share[:, None] * (end - start), ring, of_object)


class Extremes(NamedTuple):
    """Points of the output, among them all extreme points of what is seen of B objects."""

    points: Floats
    """(P, 2) output pixels."""
    of_object: Ints
    """(P,): 0..B - 1."""

    def extent(self, count: int, axis: Floats) -> Floats:
        """Return (B, 2): the smallest and the largest coordinate along axes (B, 2); inf, -inf where nothing is seen."""
        along = (self.points * axis[self.of_object]).sum(1)
        low, high = np.full(count, np.inf), np.full(count, -np.inf)
        np.minimum.at(low, self.of_object, along)
        np.maximum.at(high, self.of_object, along)
        return np.stack([low, high], axis=1)

    def boxes(self, count: int) -> Floats:
        """Return (B, 4) XYXY; inf, inf, -inf, -inf where nothing is seen."""
        x, y = (self.extent(count, np.tile(axis, (count, 1))) for axis in ([1.0, 0.0], [0.0, 1.0]))
        return np.stack([x[:, 0], y[:, 0], x[:, 1], y[:, 1]], axis=1)


def vertices_of(outlines: OutlineColumns, rows: Ints, height: Ints) -> Vertices:
    """Return the vertices of the outlines of annotations `rows`, (B,).

    `height`: (B,) of the images. A mask has one ring, along the tops of its columns and back along their bottoms, as if
    each column were filled.
    """
    has_runs = outlines.first_run[rows + 1] > outlines.first_run[rows]
    chosen = outlines.of(rows)
    lengths, rings = np.diff(chosen.first_point), np.diff(chosen.first_ring)
    points, ring = [chosen.points.astype(np.float64)], [np.repeat(np.arange(len(lengths)), lengths)]
    of_object = [np.repeat(np.repeat(np.arange(len(rows)), rings), lengths)]
    for at in np.flatnonzero(has_runs).tolist():
        around = ring_of_runs(chosen.runs[chosen.first_run[at] : chosen.first_run[at + 1]], int(height[at]))
        points.append(around)
        ring.append(np.full(len(around), len(lengths) + at))
        of_object.append(np.full(len(around), at))
    return _in_order(np.concatenate(points), np.concatenate(ring), np.concatenate(of_object))


def vertices_of_polygons(corners: Floats) -> Vertices:
    """Return the vertices of polygons (B, V, 2)."""
    count, sides = corners.shape[:2]
    number = np.repeat(np.arange(count), sides)
    return _in_order(corners.reshape(-1, 2), number, number)


def _in_order(points: Floats, ring: Ints, of_object: Ints) -> Vertices:
    if (np.diff(of_object) < 0).any():  # masks come after polygons
        order = np.lexsort((ring, of_object))
        points, ring, of_object = points[order], ring[order], of_object[order]
    first = np.flatnonzero(np.diff(ring, prepend=-1))
    return Vertices(points, ring, next_points(np.append(first, len(ring))), of_object)


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
    column, at = np.unique(columns, return_inverse=True)
    top, bottom = np.full(len(column), height), np.zeros(len(column), np.int64)
    np.minimum.at(top, at, tops)
    np.maximum.at(bottom, at, bottoms)
    x = np.stack([column, column + 1], axis=1).ravel()
    along = np.stack([x, np.repeat(top, 2)], axis=1)
    back = np.stack([x, np.repeat(bottom, 2)], axis=1)[::-1]
    return np.concatenate([along, back]).astype(np.float64)


def seen_boxes(vertices: Vertices, placement: Placement) -> Floats:
    """Return (B, 4) XYXY: the boxes of what is seen of outlines; inf, inf, -inf, -inf where nothing is.

    Most outlines lie in the view as a whole: only the others are cut to it, which takes ten times as long.
    """
    boxes = np.tile([np.inf, np.inf, -np.inf, -np.inf], (len(placement.rows), 1))
    objects, first = np.unique(vertices.of_object, return_index=True)
    if not len(objects):
        return boxes
    counts = np.diff(np.append(first, len(vertices.points)))
    x, y = vertices.points.T
    (a, b, c), (d, e, f), (g, h, i) = np.moveaxis(placement.to_output[objects], 0, 2).repeat(counts, axis=2)
    moved_x, moved_y, w = a * x + b * y + c, d * x + e * y + f, g * x + h * y + i
    in_front = np.minimum.reduceat(w, first) > NEAREST
    w = np.maximum(w, NEAREST)
    hulls = [
        reduce.reduceat(along, first)
        for reduce in (np.minimum, np.maximum)
        for along in (moved_x / w, moved_y / w, x, y)
    ]
    low, source_low, high, source_high = (np.stack(hulls[at : at + 2], axis=1) for at in (0, 2, 4, 6))
    whole = in_front & _is_in_region(low, high, source_low, source_high, placement.some(objects))
    if placement.field is not None:
        whole &= ~placement.field.bends[placement.image[objects]]
    boxes[objects[whole]] = np.concatenate([low, high], axis=1)[whole]
    cut = objects[~whole]
    if len(cut):
        boxes[cut] = extremes_of(vertices.some(cut), placement.some(cut)).boxes(len(cut))
    return boxes


def is_in_view(points: Floats, moved: Floats, placement: Placement) -> Bools:
    """Return (B,): whether polygons (B, V, 2), in source pixels and `moved` to the output, are in view as a whole."""
    if placement.field is not None:
        in_layers = replace(placement, field=None)
        whole = is_in_view(points, placement.move_in_layers(points), in_layers)
        return whole & placement.field.shows(placement.image, moved).all(1)
    low, high = np.split(polygons.hull(moved), 2, axis=1)
    source_low, source_high = np.split(polygons.hull(points), 2, axis=1)
    return _is_in_region(low, high, source_low, source_high, placement)


def _is_in_region(low: Floats, high: Floats, source_low: Floats, source_high: Floats, placement: Placement) -> Bools:
    """Return (B,): whether hulls are in view as a whole: their low and high corners, (B, 2), output and source."""
    layers, image, layer = placement.layers, placement.image, placement.layer
    rectangle, bounds = layers.rectangle[image, layer], layers.source_bounds[image, layer]
    inside = (low >= rectangle[:, :2]).all(1) & (high <= rectangle[:, 2:]).all(1)
    inside &= (source_low >= bounds[:, 0]).all(1) & (source_high <= bounds[:, 1]).all(1)
    if layers.clip_region is not None:
        corners = polygons.from_boxes(np.concatenate([low, high], axis=1))
        inside &= polygons.inside_convex(corners, layers.clip_region[image, layer]).all(1)
    return np.asarray(inside)


def extremes_of(vertices: Vertices, placement: Placement) -> Extremes:
    """Return points among which are all extreme points of what is seen of the outlines; later layers do not count."""
    vertices = in_short_pieces(vertices, placement)
    of_object, following = vertices.of_object, vertices.following
    points = np.concatenate([vertices.points, np.ones((len(vertices.points), 1))], axis=1)
    moved = np.einsum("qij,qj->qi", placement.to_output[of_object], points)
    inside = _signed_distances(moved, vertices.points, of_object, placement)
    start, end = inside, inside[:, following]
    with np.errstate(divide="ignore", invalid="ignore"):
        share = start / (start - end)
    first = np.where((start < 0) & (end >= 0), share, 0).max(0)
    last = np.where((start >= 0) & (end < 0), share, 1).min(0)
    seen = ~((start < 0) & (end < 0)).any(0) & (first <= last)
    ends = [moved + at[:, None] * (moved[following] - moved) for at in (first, last)]
    start, end = (each[seen, :2] / each[seen, 2:] for each in ends)
    objects = np.unique(of_object[(inside < 0).any(0)])
    corners, in_outline = _corners_in_outlines(vertices, placement, objects)
    owners = np.broadcast_to(objects[:, None], in_outline.shape)
    if placement.field is not None:
        borders = in_outline, in_outline & np.roll(in_outline, -1, axis=1)  # as points, and to the next one
        after = np.roll(corners, -1, axis=1)
        start = np.concatenate([start, *(corners[each] for each in borders)])
        end = np.concatenate([end, corners[borders[0]], after[borders[1]]])
        of_segment = np.concatenate([of_object[seen], *(owners[each] for each in borders)])
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
    start, end = (field.place(image, each) for each in (start, end))
    seen, start, end = cut_to_pictures(start, end, field.size[image])
    objects = np.unique(of_object[~seen])
    corners = polygons.UNIT_SQUARE * field.size[placement.image[objects], None, ::-1]
    image = placement.image[objects, None]
    before = np.stack(field.undistorted(image, corners[..., 0], corners[..., 1]), axis=-1)
    layers, own = placement.layers, (placement.image[objects], placement.layer[objects])
    points = polygons.transform(layers.matrix[own], before).reshape(-1, 2)
    number = np.repeat(objects, 4)
    moved = np.concatenate([before.reshape(-1, 2), np.ones((len(number), 1))], axis=1)
    shown = (_signed_distances(moved, points, number, placement) >= 0).all(0)
    shown &= _in_outlines(points.reshape(-1, 4, 2), objects, vertices).ravel()
    return Extremes(
        np.concatenate([start[seen], end[seen], corners.reshape(-1, 2)[shown]]),
        np.concatenate([of_object[seen], of_object[seen], number[shown]]),
    )


def in_short_pieces(vertices: Vertices, placement: Placement) -> Vertices:
    """Return the vertices with as many between them as a field needs that bends the edges."""
    if placement.field is None:
        return vertices
    moved = placement.some(vertices.of_object).move_in_layers(vertices.points[:, None])[:, 0]
    lengths = np.hypot(*(moved[vertices.following] - moved).T)
    return vertices.in_pieces(placement.field.pieces(placement.image[vertices.of_object], lengths))


def _signed_distances(moved: Floats, points: Floats, of_object: Ints, placement: Placement) -> Floats:
    """Return (J, Q): how far inside of each border of the region each vertex is, not in one unit.

    The short axis is the first: NumPy is slow where the last one is short.
    """
    layers, image, layer = placement.layers, placement.image[of_object], placement.layer[of_object]
    x, y, w = moved.T
    x0, y0, x1, y1 = layers.rectangle[image, layer].T
    low, high = np.moveaxis(layers.source_bounds[image, layer], 1, 0)
    borders = [w - NEAREST, x - x0 * w, x1 * w - x, y - y0 * w, y1 * w - y]
    borders += [*(points - low).T, *(high - points).T]
    if layers.clip_region is not None:
        corners = layers.clip_region[image, layer]
        along = np.roll(corners, -1, axis=1) - corners
        turn = polygons.turn_of(corners)[:, None]
        across = along[..., 0] * (y[:, None] - corners[..., 1] * w[:, None])
        across -= along[..., 1] * (x[:, None] - corners[..., 0] * w[:, None])
        borders += [*(turn * across).T]
    return np.stack(borders)


def _corners_in_outlines(vertices: Vertices, placement: Placement, objects: Ints) -> tuple[Floats, Bools]:
    """Return the corners (B, V, 2) of the regions of some objects, and which lie in their outlines, (B, V)."""
    region = _regions(placement, objects)
    if placement.field is not None:
        after, image = np.roll(region, -1, axis=1), placement.image[objects]
        longest = np.hypot(*np.moveaxis(after - region, 2, 0)).max(1, initial=0)
        pieces = placement.field.pieces(image, longest).max(initial=1)
        share = np.arange(pieces)[:, None] / pieces
        steps = (after - region)[:, :, None] * share
        region = (region[:, :, None] + steps).reshape(len(region), region.shape[1] * int(pieces), 2)
    layers, image, layer = placement.layers, placement.image[objects], placement.layer[objects]
    return region, _in_outlines(polygons.transform(layers.matrix[image, layer], region), objects, vertices)


def _in_outlines(points: Floats, objects: Ints, vertices: Vertices) -> Bools:
    """Return (B, K): whether points (B, K, 2) in source pixels lie in the outlines of these objects, ascending."""
    from detaug.boxes import outline_loops  # with Numba, which takes a quarter of a second

    first, last = (np.searchsorted(vertices.of_object, objects, side=side) for side in ("left", "right"))
    inside = np.zeros(points.shape[:2], np.bool_)
    outline_loops.contain(points, first, last, vertices.points, vertices.ring, vertices.following, inside)
    return inside


def _regions(placement: Placement, objects: Ints) -> Floats:
    """Return (B, V, 2): the convex polygons of the output through which objects are seen; a point where nothing is."""
    layers, image, layer = placement.layers, placement.image[objects], placement.layer[objects]
    region = polygons.from_boxes(layers.rectangle[image, layer])
    matrix, bounds = layers.matrix[image, layer], layers.source_bounds[image, layer]
    for axis in (0, 1):
        for side, sign in ((0, 1), (1, -1)):
            in_source = polygons.transform(matrix, region)[..., axis]
            distance = sign * (in_source - bounds[:, side, axis, None])
            region = region if (distance >= 0).all() else polygons.cut(region, distance)
    if layers.clip_region is not None:
        corners = layers.clip_region[image, layer]
        turn = polygons.turn_of(corners)[:, None]
        for at in range(corners.shape[1]):
            start, end = corners[:, at, None], corners[:, (at + 1) % corners.shape[1], None]
            region = polygons.cut(region, turn * polygons.side_of_line(start, end, region))
    return region
