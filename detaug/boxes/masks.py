"""Rasterise masks: which pixels of the output show an object.

The rings of an object's outline go once, in double precision, through the map of its layer, and are rounded to whole
numbers of 1/256 pixel. A pixel is in the object if its centre is in a ring by the even-odd rule, in any of the rings.
For a mask of run lengths, and for an outline that reaches behind the horizon of a perspective, the centre of the pixel
goes back to the source. Then the pixel must show the object: its source must lie in the bounds of the layer, it must
lie in the clip region, and no later layer and no hole may cover it.

Positions in the source only decide what lies at an edge, so they are in single precision, which GPUs are fast in.
`detaug/gpu/mask_kernels.py` does the same on a GPU, and gives the same bits: every step is in whole numbers, or in
floating point in the same order and without fused products.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Floats, Ints, start_offsets
from detaug.boxes import polygons
from detaug.boxes.mask_table import MaskTable
from detaug.boxes.placement import Placement
from detaug.boxes.stencils import in_bits, joined_bits
from detaug.boxes.visible_part import NEAREST
from detaug.converters.coco.outlines import next_points
from detaug.converters.coco.rings import mask_of_runs, rings_of_mask

ONE = 256
"""Units of a pixel."""

FARTHEST = 1e6
"""Pixels: outlines with points farther away are tested in the source, as those behind a horizon are."""

FAR = 2**30
"""Units: farther away than all that is placed."""

TO_OUTPUT, TO_SOURCE, BOUNDS, RECTANGLE, COVERS, COPY, STENCIL, NUMBERS = 0, 9, 18, 22, 26, 27, 28, 32
"""Where the numbers of a layer start: maps, bounds, rectangle, whether it covers what is below, its copy, its stencil
(where that begins, -1 without one, its x, y and bytes a row); and how many they are."""


@dataclass(frozen=True, eq=False)
class Objects:
    """B objects in N output images of L layers each, as numbers that a GPU takes."""

    rows: Ints
    """(B,): the row of each in the outlines of the source."""
    layer: Ints
    """(B,): the number of its layer, among those of all images."""
    layers: Floats
    """(N, L, 32): see `TO_OUTPUT`."""
    borders: Floats
    """(N * L, V, 3): a, b, c of lines a x + b y + c >= 0, output pixels, that a layer is seen within; V may be 0."""
    stencils: NDArray[np.uint8]
    """The bits of all stencils."""

    def __len__(self) -> int:
        return len(self.rows)

    def of_layer(self, first: int, end: int) -> Floats:
        """Return (B, end - first): numbers of the layer of each object."""
        return np.asarray(self.layers.reshape(-1, NUMBERS)[self.layer, first:end])

    def part(self, objects: slice | Ints) -> Objects:
        """Return some of the objects, of the same images."""
        return Objects(self.rows[objects], self.layer[objects], self.layers, self.borders, self.stencils)


def objects_of(placement: Placement) -> Objects:
    """Return the objects that are placed."""
    layers, (n, count) = placement.layers, placement.layers.image.shape
    stencils, bits = joined_bits(layers.stencil, (n, count))
    parts = placement.inverse, layers.matrix, layers.source_bounds, layers.rectangle, layers.share >= 1, layers.copy
    numbers = np.concatenate([each.reshape(n, count, -1) for each in (*parts, stencils)], axis=2)
    region = np.zeros((n, count, 0, 2)) if layers.clip_region is None else layers.clip_region
    borders = _borders(region.reshape(n * count, -1, 2))
    return Objects(placement.rows, placement.image * count + placement.layer, numbers, borders, bits)


def _borders(region: Floats) -> Floats:
    """Return the lines (B, V, 3) that bound convex polygons (B, V, 2); nothing is within one without an area."""
    (x, y), (along_x, along_y) = (np.moveaxis(each, 2, 0) for each in (region, np.roll(region, -1, axis=1) - region))
    turn = polygons.turn_of(region)[:, None]
    constant = np.where(turn == 0, -1, turn * (along_y * x - along_x * y))
    return np.stack([-turn * along_y, turn * along_x, constant], axis=2)


class Grid(NamedTuple):
    """The points at which masks are sampled, in units: those of B objects, or one row for all."""

    y: Ints
    """(B or 1, R), ascending"""
    x: Ints
    """(B or 1, C), ascending"""

    @property
    def shape(self) -> tuple[int, int]:
        """Return R and C."""
        return self.y.shape[1], self.x.shape[1]

    def of(self, at: int) -> tuple[Ints, Ints]:
        """Return the points of one object: (R,) and (C,)."""
        return self.y[at if len(self.y) > 1 else 0], self.x[at if len(self.x) > 1 else 0]


def pixel_grid(height: int, width: int, stride: int) -> Grid:
    """Return the centres of pixels of `stride` x `stride` pixels, as many as fit into (height, width)."""
    y, x = ((np.arange(side // stride)[None] * 2 + 1) * (stride * ONE // 2) for side in (height, width))
    return Grid(y, x)


def cell_grid(box: Sequence[float], height: int, width: int) -> Grid:
    """Return the centres of `height` x `width` cells of a box, XYXY in pixels."""
    y, x = (
        to_units(start + (end - start) * (np.arange(cells)[None] + 0.5) / cells)
        for start, end, cells in ((box[1], box[3], height), (box[0], box[2], width))
    )
    return Grid(y, x)


def whole_objects(rows: Ints, height: int, width: int) -> Objects:
    """Return the objects of annotations `rows` of one image, (height, width) pixels, which is the output as it is."""
    identity, bounds = np.eye(3).ravel(), (0, 0, width, height)
    layer, no_bits = np.array([*identity, *identity, *bounds, *bounds, 1, 0, -1, 0, 0, 0]), np.zeros(0, np.uint8)
    return Objects(rows, np.zeros(len(rows), np.int64), layer.reshape(1, 1, NUMBERS), np.zeros((1, 0, 3)), no_bits)


def masks_within(table: MaskTable, objects: Objects, box: Sequence[float]) -> Callable[[int, int], Bools]:
    """Return a function that takes the height and width of a picture of a part of the output, `box` XYXY in pixels.

    It returns the masks in that part, (B, height, width).
    """
    return lambda height, width: rasterise(table, objects, cell_grid(box, height, width))


class Vertices(NamedTuple):
    """The vertices of the rings of B objects in units, concatenated, and the boxes around them."""

    x: Ints
    y: Ints
    """(Q,) each: in the output; of objects that are `behind`, in the source."""
    ring: Ints
    """(Q,): the number of each one's ring, ascending."""
    of_object: Ints
    """(Q,): 0..B - 1, ascending."""
    behind: Bools
    """(B,): whether an outline reaches behind the horizon, or too far away."""
    hull: Ints
    """(B, 4) XYXY: the box around each object, masks of run lengths too; empty without outline, all if `behind`."""


def place_vertices(table: MaskTable, objects: Objects) -> Vertices:
    """Return the vertices of objects, placed in the output."""
    rows = objects.rows
    chosen = table.outlines.of(rows)
    of_ring, rings = np.diff(chosen.first_point), np.diff(chosen.first_ring)
    ring = np.repeat(np.arange(len(of_ring)), of_ring)
    of_object = np.repeat(np.repeat(np.arange(len(rows)), rings), of_ring)
    source = chosen.points.T.astype(np.float64)
    with_runs = np.flatnonzero(table.has_runs[rows])
    corners = table.run_boxes[rows[with_runs]][:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 2).T.astype(np.float64)
    owner = np.concatenate([of_object, np.repeat(with_runs, 4)])
    to_output, points = objects.of_layer(TO_OUTPUT, TO_SOURCE).T[:, owner], np.concatenate([source, corners], axis=1)
    moved_x, moved_y, w = project(to_output, *points)
    far = ~((w > NEAREST) & (np.abs(moved_x) < FARTHEST) & (np.abs(moved_y) < FARTHEST))
    behind = np.bincount(owner[far], minlength=len(rows)) > 0
    x, y = to_units(moved_x), to_units(moved_y)
    hull = _hulls(x, y, owner, len(rows))
    hull[behind] = -FAR, -FAR, FAR, FAR
    x, y = x[: len(of_object)], y[: len(of_object)]
    in_source = behind[of_object]
    x[in_source], y[in_source] = (to_units(each[in_source]) for each in source)
    return Vertices(x, y, ring, of_object, behind, hull)


def _hulls(x: Ints, y: Ints, owner: Ints, count: int) -> Ints:
    """Return (count, 4) XYXY: the boxes around points, those of an owner one after the other.

    Around none it is FAR, FAR, -FAR, -FAR.
    """
    hull = np.tile([FAR, FAR, -FAR, -FAR], (count, 1))
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    if len(first):
        sides = [reduce.reduceat(each, first) for reduce in (np.minimum, np.maximum) for each in (x, y)]
        hull[owner[first]] = np.stack(sides, axis=1)
    return hull


Coordinates = NDArray[np.floating]


def project(matrix: Coordinates, x: Coordinates, y: Coordinates) -> tuple[Coordinates, Coordinates, Coordinates]:
    """Return x, y and depth of points after projective maps, nine numbers each, row by row."""
    a, b, c, d, e, f, g, h, i = matrix
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        w = (g * x + h * y) + i
        return ((a * x + b * y) + c) / w, ((d * x + e * y) + f) / w, w


def to_units(pixels: Coordinates) -> Ints:
    """Return coordinates in units, rounded; NaN is far away."""
    return np.floor(np.nan_to_num(pixels, nan=FARTHEST).clip(-FARTHEST, FARTHEST) * ONE + 0.5).astype(np.int64)


def rasterise(table: MaskTable, objects: Objects, grid: Grid) -> Bools:
    """Return (B, R, C): whether the points of the grid show each object."""
    masks = np.zeros((len(objects), *grid.shape), np.bool_)
    if not masks.size:
        return masks
    vertices = place_vertices(table, objects)
    windows = _windows(objects, vertices, grid)
    _fill_rings(masks, vertices, grid, windows)
    in_source = vertices.behind | table.has_runs[objects.rows]
    for at in np.flatnonzero(in_source | _may_be_hidden(objects, grid, windows)).tolist():
        window = slice(*windows.rows[at].tolist()), slice(*windows.columns[at].tolist())
        view = _View.of(objects, grid, at, window)
        if in_source[at]:
            masks[at][window] = _in_source(table, vertices, objects, at, view)
        masks[at][window] &= view.shown(objects, at)
    return masks


def label_map(masks: Bools, labels: NDArray[np.int32], counts: Sequence[int]) -> NDArray[np.int32]:
    """Return (N, R, C): the label of the object that each point shows, -1 for none; of several the smallest.

    `masks`: (B, R, C), and `labels` (B,), of the objects of N images, `counts` each. Of objects of one size it is the
    last.
    """
    result = np.full((len(counts), *masks.shape[1:]), -1, np.int32)
    image = np.repeat(np.arange(len(counts)), counts)
    for at in np.argsort(-masks.sum((1, 2)), kind="stable").tolist():
        result[image[at]][masks[at]] = labels[at]
    return result


def placed_outlines(table: MaskTable, placement: Placement) -> tuple[NDArray[np.float32], Ints, Ints]:
    """Return the outlines of B objects in output pixels: points (P, 2), the first of each ring, the first ring of each.

    Masks of run lengths have rings along the edges of their pixels, those of holes too.
    """
    rows = placement.rows
    chosen = table.outlines.of(rows)
    points, of_ring, rings = chosen.points.astype(np.float64), np.diff(chosen.first_point), np.diff(chosen.first_ring)
    for at in np.flatnonzero(table.has_runs[rows])[::-1].tolist():  # from the last one: earlier positions stay
        ends = chosen.runs[chosen.first_run[at] : chosen.first_run[at + 1]].astype(np.int64)
        height, ring = int(table.heights[rows[at]]), int(chosen.first_ring[at])
        traced = rings_of_mask(mask_of_runs(ends, height, int(ends[-1]) // height))
        points = np.insert(points, chosen.first_point[ring], np.concatenate([np.zeros((0, 2)), *traced]), axis=0)
        of_ring = np.insert(of_ring, ring, [len(each) for each in traced])
        rings[at] = len(traced)
    of_object = np.repeat(np.repeat(np.arange(len(rows)), rings), of_ring)
    x, y, _ = project(placement.to_output.reshape(-1, 9).T[:, of_object], *points.T)
    first_point, first_ring = (np.concatenate([[0], np.cumsum(each)]) for each in (of_ring, rings))
    return np.stack([x, y], axis=1).astype(np.float32), first_point, first_ring


def _fill_rings(masks: Bools, vertices: Vertices, grid: Grid, windows: Windows) -> None:
    """Fill the spans of points between the crossings of rings with the rows of the grid, in the windows."""
    (height, width), chosen = grid.shape, ~vertices.behind[vertices.of_object]
    x, y, ring, of_object = (each[chosen] for each in vertices[:4])
    after = next_points(np.append(np.flatnonzero(np.diff(ring, prepend=-1)), len(ring)))
    low, high = np.where(y <= y[after], np.arange(len(y)), after), np.where(y <= y[after], after, np.arange(len(y)))
    first, end = (_index(grid.y, of_object, y[each]).clip(*windows.rows[of_object].T) for each in (low, high))
    rows = end - first
    edge = np.repeat(np.arange(len(rows)), rows)
    row = np.arange(len(edge)) - start_offsets(rows)[edge] + first[edge]
    x0, y0 = x[low][edge], y[low][edge]
    dx, dy = (x[high] - x[low])[edge], (y[high] - y[low])[edge]
    owner = of_object[edge]
    at_y = grid.y[owner if len(grid.y) > 1 else 0, row]
    column = _index(grid.x, owner, x0 - (y0 - at_y) * dx // dy)  # the smallest whole x that is not left of the edge
    column = column.clip(*windows.columns[owner].T)
    start, stop = np.sort((ring[edge] * height + row) * (width + 1) + column).reshape(-1, 2).T
    line, length = start // (width + 1), stop - start
    object_of_ring = np.zeros(int(ring.max(initial=-1)) + 1, np.int64)
    object_of_ring[ring] = of_object
    begin = (object_of_ring[line // height] * height + line % height) * width + start % (width + 1)
    span = np.repeat(np.arange(len(length)), length)
    masks.reshape(-1)[np.arange(len(span)) + (begin - start_offsets(length))[span]] = True


def _index(points: Ints, owner: Ints, values: Ints) -> Ints:
    """Return (E,): how many of the points (B or 1, R) of their owners are below the values."""
    if len(points) == 1:
        return np.asarray(np.searchsorted(points[0], values))
    steps = np.diff(points, axis=1)
    if steps.size and (steps == steps[:, :1]).all():  # an eighth of the time of a search
        return np.asarray((-((points[owner, 0] - values) // steps[owner, 0])).clip(0, points.shape[1]))
    keys = (points + np.arange(len(points))[:, None] * (4 * FAR)).ravel()
    return np.asarray(np.searchsorted(keys, values.clip(-FAR, FAR) + owner * (4 * FAR)) - owner * points.shape[1])


class Windows(NamedTuple):
    """The parts of the grid outside of which nothing of an object is shown."""

    rows: Ints
    columns: Ints
    """(B, 2) each: the first and the end."""


def _windows(objects: Objects, vertices: Vertices, grid: Grid) -> Windows:
    """Return the windows: the boxes around objects, cut to the rectangles of their layers."""
    alone = ~_has_copies(objects)
    rectangle = np.ceil(objects.of_layer(RECTANGLE, COVERS) * ONE).clip(-FAR, FAR).astype(np.int64)
    rectangle = np.where(alone[:, None], rectangle, [-FAR, -FAR, FAR, FAR])
    owner, spans = np.arange(len(objects)), []
    for points, side in ((grid.y, 1), (grid.x, 0)):
        low = np.maximum(vertices.hull[:, side], rectangle[:, side])
        high = np.minimum(vertices.hull[:, side + 2] + 1, rectangle[:, side + 2])
        first, end = _index(points, owner, low), _index(points, owner, high)
        spans.append(np.stack([first, np.maximum(first, end)], axis=1))
    return Windows(*spans)


def covered(objects: Objects, x0: Coordinates, y0: Coordinates, x1: Coordinates, y1: Coordinates) -> Bools:
    """Return (B,): whether a later layer meets boxes of objects, given by their sides, (B,) each in output pixels."""
    image, number = np.divmod(objects.layer, objects.layers.shape[1])
    found = np.zeros(len(objects), bool)
    for at in range(1, objects.layers.shape[1]):
        left, top, right, bottom, covers = objects.layers[image, at, RECTANGLE:COPY].T
        meets = (x0 < right) & (x1 >= left) & (y0 < bottom) & (y1 >= top)
        found |= (number < at) & (covers > 0) & meets
    return found


def _has_copies(objects: Objects) -> Bools:
    """Return (B,): whether other layers show the same copy of the image of each object, in other rectangles."""
    copies = objects.layers[..., COPY]
    if (np.diff(np.sort(copies, axis=1), axis=1) > 0).all():
        return np.zeros(len(objects), np.bool_)
    sides = objects.layers[..., RECTANGLE:COVERS]
    used = np.asarray((sides[..., :2] < sides[..., 2:]).all(2))
    others = ((copies[:, :, None] == copies[:, None]) & used[:, None]).sum(2) - used
    return np.asarray(others.ravel()[objects.layer] > 0)


def _may_be_hidden(objects: Objects, grid: Grid, windows: Windows) -> Bools:
    """Return (B,): whether a part of each window may not show its object: fill, or what a later layer covers."""
    rows, columns = windows
    empty = (rows[:, 0] == rows[:, 1]) | (columns[:, 0] == columns[:, 1])
    own = np.arange(len(objects))[:, None] * (len(grid.x) > 1)
    (y0, y1), (x0, x1) = (
        points[own, (ends - [0, 1]).clip(0, points.shape[1] - 1)].T.astype(np.float32) / np.float32(ONE)
        for points, ends in ((grid.y, rows), (grid.x, columns))
    )
    hidden = np.ones(len(objects), bool) if objects.borders.shape[1] else _has_copies(objects)
    hidden |= covered(objects, x0, y0, x1, y1) | (objects.of_layer(STENCIL, NUMBERS)[:, 0] >= 0)
    matrix, bounds = (
        objects.of_layer(*part).astype(np.float32).T for part in ((TO_SOURCE, BOUNDS), (BOUNDS, RECTANGLE))
    )
    for x, y in ((x0, y0), (x1, y0), (x0, y1), (x1, y1)):
        hidden |= ~_in_bounds(bounds, *project(matrix, x, y))
    return np.asarray(hidden & ~empty)


def _in_bounds(bounds: Coordinates, x: Coordinates, y: Coordinates, w: Coordinates) -> Bools:
    left, top, right, bottom = bounds
    return np.asarray((w > 0) & (x >= left) & (x <= right) & (y >= top) & (y <= bottom))


class _View(NamedTuple):
    """Points of the grid in output pixels, and where they are in the source of one object; in single precision."""

    y: Coordinates
    x: Coordinates
    """(R,), (C,)"""
    source_x: Coordinates
    source_y: Coordinates
    depth: Coordinates
    """(R, C)"""

    @classmethod
    def of(cls, objects: Objects, grid: Grid, at: int, window: tuple[slice, slice]) -> _View:
        """Return the view of an object in a window."""
        y, x = (each[part].astype(np.float32) / np.float32(ONE) for each, part in zip(grid.of(at), window, strict=True))
        to_source = objects.part(slice(at, at + 1)).of_layer(TO_SOURCE, BOUNDS)[0].astype(np.float32)
        return cls(y, x, *project(to_source, x[None, :], y[:, None]))

    def shown(self, objects: Objects, at: int) -> Bools:
        """Return (R, C): where the source of the object is shown: not fill, and not below a later layer."""
        image, own = divmod(int(objects.layer[at]), objects.layers.shape[1])
        layers = objects.layers[image]
        shown = _in_bounds(layers[own, BOUNDS:RECTANGLE].astype(np.float32), self.source_x, self.source_y, self.depth)
        for a, b, c in objects.borders[objects.layer[at]].astype(np.float32):
            shown &= (a * self.x[None, :] + b * self.y[:, None]) + c >= 0
        on_top = np.zeros_like(shown)
        for x0, y0, x1, y1, covers, copy, *stencil in layers[:, RECTANGLE:]:
            if copy == layers[own, COPY] or covers:
                rows, columns = slice(*np.searchsorted(self.y, [y0, y1])), slice(*np.searchsorted(self.x, [x0, x1]))
                pasted = in_bits(objects.stencils, stencil, self.x[None, columns], self.y[rows, None])
                on_top[rows, columns] = np.where(pasted, copy == layers[own, COPY], on_top[rows, columns])
        return shown & on_top


def _in_source(table: MaskTable, vertices: Vertices, objects: Objects, at: int, view: _View) -> Bools:
    """Return (R, C): whether points are in an object, tested in its source."""
    row = int(objects.rows[at])
    runs = table.outlines.runs[table.outlines.first_run[row] : table.outlines.first_run[row + 1]]
    inside = np.zeros(view.depth.shape, np.bool_)
    if len(runs):
        height = table.heights[row]
        whole = (np.floor(np.nan_to_num(each).clip(-1, FARTHEST)) for each in (view.source_x, view.source_y))
        x, y = (each.astype(np.int64) for each in whole)
        position = x * height + np.minimum(y, height - 1)
        return np.asarray((np.searchsorted(runs, position, side="right") % 2 == 1) & (position < runs[-1]))
    x, y = to_units(view.source_x), to_units(view.source_y)
    mine = np.flatnonzero(vertices.of_object == at)
    for ring in np.unique(vertices.ring[mine]).tolist():
        vertex = mine[vertices.ring[mine] == ring]
        parity = np.zeros_like(inside)
        ends_x, ends_y = vertices.x[vertex].tolist(), vertices.y[vertex].tolist()
        for x0, y0, x1, y1 in zip(ends_x, ends_y, ends_x[1:] + ends_x[:1], ends_y[1:] + ends_y[:1], strict=True):
            if y0 > y1:
                x0, y0, x1, y1 = x1, y1, x0, y0
            parity ^= (y >= y0) & (y < y1) & ((x - x0) * (y1 - y0) >= (y - y0) * (x1 - x0))
        inside |= parity
    return inside
