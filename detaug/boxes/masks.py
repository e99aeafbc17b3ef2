"""Rasterize masks: which pixels of the output show an object.

The rings of an object's outline go once, in double precision, through the map of its layer, and are rounded to whole
numbers of 1/256 pixel. A pixel is in the object if its center is in a ring by the even-odd rule, in any of the rings.
For an RLE mask, and for an outline that reaches behind the horizon of a perspective, the center of the pixel
goes back to the source. Then the pixel must show the object: its source must lie in the bounds of the layer, it must
lie in the clip region, and no later layer and no hole may cover it.

Positions in the source only decide what lies at an edge, so they are in single precision, which GPUs are fast in.
The loops are `mask_loops.py`; `detaug/gpu/mask_kernels.py` does the same on a GPU, and gives the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Floats, Ints
from detaug.boxes import mask_loops, polygons
from detaug.boxes.fields import Field
from detaug.boxes.layers import Layers
from detaug.boxes.mask_table import MaskTable
from detaug.boxes.placement import Placement
from detaug.boxes.stencils import joined_bits
from detaug.boxes.units import COPY, FARTHEST, INTERVAL, NUMBERS, ONE, RECTANGLE
from detaug.coco.rings import mask_of_runs, rings_of_mask


@dataclass(frozen=True, eq=False)
class PlacedObjects:
    """B objects in N output images of L layers each, as numbers that a GPU takes."""

    rows: Ints
    """(B,): the row of each in the outlines of the source."""
    layer: Ints
    """(B,): the number of its layer, among those of all images."""
    layers: Floats
    """(N, L, 33): see `TO_OUTPUT`."""
    borders: Floats
    """(N * L, V, 3): a, b, c of lines a x + b y + c >= 0, output pixels, that a layer is seen within; V may be 0."""
    stencils: NDArray[np.uint8]
    """The bits of all stencils."""
    field: Field | None = None
    """What bends the outputs, once the layers are drawn."""

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def image(self) -> Ints:
        """Return (B,): the output image of each."""
        return np.asarray(self.layer // self.layers.shape[1])

    @cached_property
    def bent(self) -> Bools:
        """Return (B,): whether a field bends the output of each."""
        return np.zeros(len(self), bool) if self.field is None else self.field.bends[self.image]

    def of_layer(self, first: int, end: int) -> Floats:
        """Return (B, end - first): numbers of the layer of each object."""
        return np.asarray(self.layers.reshape(-1, NUMBERS)[self.layer, first:end])

    @cached_property
    def scene(self) -> tuple[Floats, Floats, NDArray[np.uint8], int]:
        """Return the layers (N * L, 33), their borders, all stencils, and L."""
        layers = np.ascontiguousarray(self.layers.reshape(-1, NUMBERS))
        return layers, np.ascontiguousarray(self.borders), self.stencils, self.layers.shape[1]

    def part(self, objects: slice | Ints) -> PlacedObjects:
        """Return some of the objects, of the same images."""
        return PlacedObjects(
            self.rows[objects], self.layer[objects], self.layers, self.borders, self.stencils, self.field
        )


def objects_of(placement: Placement) -> PlacedObjects:
    """Return the objects that are placed."""
    layers = placement.layers
    numbers, borders, bits = numbers_of(layers, placement.layers_to_output)
    layer = placement.image * layers.image.shape[1] + placement.layer
    return PlacedObjects(placement.rows, layer, numbers, borders, bits, placement.field)


def numbers_of(layers: Layers, to_output: Floats) -> tuple[Floats, Floats, NDArray[np.uint8]]:
    """Return `layers`, `borders` and `stencils` of `PlacedObjects`. `to_output`: (N, L, 3, 3), of each layer."""
    n, count = layers.image.shape
    stencils, bits = joined_bits(layers.stencil, (n, count))
    parts = (
        to_output,
        layers.to_source,
        layers.source_bounds,
        layers.rectangle,
        layers.interval,
        layers.copy,
    )
    flat = [array.reshape(n, count, math.prod(array.shape[2:])) for array in (*parts, stencils)]
    numbers: Floats = np.concatenate(flat, axis=2)
    if layers.clip_region is None:
        return numbers, np.zeros((n * count, 0, 3)), bits
    return numbers, _borders(layers.clip_region.reshape(n * count, -1, 2)), bits


def _borders(region: Floats) -> Floats:
    """Return the lines (B, V, 3) that bound convex polygons (B, V, 2); nothing is within one without an area."""
    (x, y), (along_x, along_y) = (
        np.moveaxis(vectors, 2, 0) for vectors in (region, np.roll(region, -1, axis=1) - region)
    )
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


def pixel_grid(height: int, width: int, stride: int) -> Grid:
    """Return the centers of pixels of `stride` x `stride` pixels, as many as fit into (height, width)."""
    y, x = ((np.arange(side // stride)[None] * 2 + 1) * (stride * ONE // 2) for side in (height, width))
    return Grid(y, x)


def cell_grid(box: Sequence[float], height: int, width: int) -> Grid:
    """Return the centers of `height` x `width` cells of a box, XYXY in pixels."""
    y, x = (
        to_units(start + (end - start) * (np.arange(cells)[None] + 0.5) / cells)
        for start, end, cells in ((box[1], box[3], height), (box[0], box[2], width))
    )
    return Grid(y, x)


def whole_objects(rows: Ints, height: int, width: int) -> PlacedObjects:
    """Return the objects of annotations `rows` of one image, (height, width) pixels, which is the output as it is."""
    identity, bounds = np.eye(3).ravel(), (0, 0, width, height)
    # maps, bounds, rectangle, interval, copy and no stencil: see `TO_OUTPUT`
    layer, no_bits = np.array([*identity, *identity, *bounds, *bounds, 0, 1, 0, -1, 0, 0, 0]), np.zeros(0, np.uint8)
    return PlacedObjects(
        rows, np.zeros(len(rows), np.int64), layer.reshape(1, 1, NUMBERS), np.zeros((1, 0, 3)), no_bits
    )


def masks_within(table: MaskTable, objects: PlacedObjects, box: Sequence[float]) -> Callable[[int, int], Bools]:
    """Return a function that takes the height and width of an image of a part of the output, `box` XYXY in pixels.

    It returns the masks in that part, (B, height, width).
    """
    return lambda height, width: rasterise(table, objects, cell_grid(box, height, width))


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


def rasterise(table: MaskTable, objects: PlacedObjects, grid: Grid) -> Bools:
    """Return (B, R, C): whether the points of the grid show each object."""
    if objects.bent.any():
        return _rasterise_bent(table, objects, grid)
    masks = np.zeros((len(objects), *grid.shape), np.bool_)
    if masks.size:
        own = table.arrays, objects.scene, objects.rows, objects.layer, ~_has_copies(objects)
        mask_loops.fill(*own, np.ascontiguousarray(grid.y, np.int64), np.ascontiguousarray(grid.x, np.int64), masks)
    return masks


def _rasterise_bent(table: MaskTable, objects: PlacedObjects, grid: Grid) -> Bools:
    """Do as `rasterise` for outputs that a field bends: its points are tested where they are before that."""
    field, image = objects.field, objects.image
    assert field is not None
    masks = np.zeros((len(objects), *grid.shape), np.bool_)
    one_grid = len(grid.y) == 1
    for number in np.unique(image if one_grid else np.arange(len(objects))).tolist():
        these = np.flatnonzero(image == number) if one_grid else np.array([number])
        own = objects.part(these)
        grid_here = grid if one_grid else Grid(grid.y[these], grid.x[these])
        if not own.bent.any():
            masks[these] = rasterise(table, replace(own, field=None), grid_here)
            continue
        x, y = field.undistorted_units(own.image[0], grid_here.x[0], grid_here.y[0, :, None])
        shown = np.zeros((len(these), *grid.shape), np.bool_)
        mask_loops.fill_points(table.arrays, own.scene, own.rows, own.layer, y, x, shown)
        masks[these] = shown
    return masks


def show_fewer(table: MaskTable, objects: PlacedObjects, boxes: Floats, pixels: float) -> Bools:
    """Return (B,): which objects show fewer pixels than these. `boxes`: (B, 4) XYXY output pixels that they lie in."""
    fewer = np.zeros(len(objects), np.bool_)
    whole = np.concatenate([np.floor(boxes[:, :2]), np.ceil(boxes[:, 2:])], axis=1).astype(np.int64)
    if objects.bent.any():
        for index in np.flatnonzero(objects.bent).tolist():
            x0, y0, x1, y1 = whole[index].tolist()
            y, x = (np.arange(start, end)[None] * ONE + ONE // 2 for start, end in ((y0, y1), (x0, x1)))
            fewer[index] = rasterise(table, objects.part(np.array([index])), Grid(y, x)).sum() < pixels
        straight = np.flatnonzero(~objects.bent)
        fewer[straight] = show_fewer(table, replace(objects.part(straight), field=None), boxes[straight], pixels)
        return fewer
    mask_loops.show_fewer(table.arrays, objects.scene, objects.rows, objects.layer, whole, pixels, fewer)
    return fewer


def label_map(masks: Bools, labels: NDArray[np.int32], counts: Sequence[int]) -> NDArray[np.int32]:
    """Return (N, R, C): the label of the object that each point shows, -1 for none; of several the smallest.

    `masks`: (B, R, C), and `labels` (B,), of the objects of N images, `counts` each. Of objects of one size it is the
    last.
    """
    result = np.full((len(counts), *masks.shape[1:]), -1, np.int32)
    image = np.repeat(np.arange(len(counts)), counts)
    for index in np.argsort(-masks.sum((1, 2)), kind="stable").tolist():
        result[image[index]][masks[index]] = labels[index]
    return result


def placed_outlines(table: MaskTable, placement: Placement) -> tuple[NDArray[np.float32], Ints, Ints]:
    """Return the outlines of B objects in output pixels: points (P, 2), the first of each ring, the first ring of each.

    RLE masks have rings along the edges of their pixels, those of holes too.
    """
    rows = placement.rows
    chosen = table.outlines.of(rows)
    points, of_ring, rings = chosen.points.astype(np.float64), np.diff(chosen.first_point), np.diff(chosen.first_ring)
    for index in np.flatnonzero(table.has_runs[rows])[::-1].tolist():  # from the last one: earlier positions stay
        ends = chosen.runs[chosen.first_run[index] : chosen.first_run[index + 1]].astype(np.int64)
        height, ring = int(table.heights[rows[index]]), int(chosen.first_ring[index])
        traced = rings_of_mask(mask_of_runs(ends, height, int(ends[-1]) // height))
        points = np.insert(points, chosen.first_point[ring], np.concatenate([np.zeros((0, 2)), *traced]), axis=0)
        of_ring = np.insert(of_ring, ring, [len(trace) for trace in traced])
        rings[index] = len(traced)
    first_point, first_ring = (np.concatenate([[0], np.cumsum(counts)]) for counts in (of_ring, rings))
    moved = moved_points(points, first_point, first_ring, placement)
    return moved.astype(np.float32), first_point, first_ring


def moved_points(points: Floats, first_point: Ints, first_ring: Ints, placement: Placement) -> Floats:
    """Return (P, 2): the points of the rings of B placed objects in output pixels. Starts as in `OutlineColumns`."""
    of_object = np.repeat(np.repeat(np.arange(len(placement.rows)), np.diff(first_ring)), np.diff(first_point))
    x, y, _ = project(placement.to_output.reshape(-1, 9).T[:, of_object], *points.T)
    moved = np.stack([x, y], axis=1).astype(np.float64)
    return moved if placement.field is None else placement.field.place(placement.image[of_object], moved)


def _has_copies(objects: PlacedObjects) -> Bools:
    """Return (B,): whether other layers show the same copy of the image of each object, in other rectangles."""
    copies = objects.layers[..., COPY]
    if (np.diff(np.sort(copies, axis=1), axis=1) > 0).all():
        return np.zeros(len(objects), np.bool_)
    sides = objects.layers[..., RECTANGLE:INTERVAL]
    used = np.asarray((sides[..., :2] < sides[..., 2:]).all(2))
    others = ((copies[:, :, None] == copies[:, None]) & used[:, None]).sum(2) - used
    return np.asarray(others.ravel()[objects.layer] > 0)
