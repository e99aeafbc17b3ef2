"""Rasterize masks on a GPU. The outlines of a source are copied there once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.arrays import Ints, start_offsets
from detaug.boxes.mask_table import MaskTable
from detaug.boxes.masks import PlacedObjects, label_map
from detaug.gpu.grids import OPTIONS, POINTS, FieldOnGpu, GridOnGpu
from detaug.gpu.streams import launch_programs, packed_to_device, to_device

VERTICES = 128
"""Vertices that a program places at once."""

ROWS, COLUMNS, WARPS, PROGRAMS = 32, 32, 1, 32
"""Sides of the blocks of points that a program samples, its warps of threads, and programs for each mask, at most: the
fastest of 13 on an H100. A row of a block is a word of 32 bits.
"""


class TableOnDevice(NamedTuple):
    """A `MaskTable` on a GPU."""

    points: Tensor
    first_point: Tensor
    first_ring: Tensor
    runs: Tensor
    first_run: Tensor
    run_boxes: Tensor
    heights: Tensor


_TABLES: WeakKeyDictionary[MaskTable, dict[torch.device, TableOnDevice]] = WeakKeyDictionary()


def table_on_device(table: MaskTable, device: torch.device) -> TableOnDevice:
    """Copy a table to a device, once."""
    tables = _TABLES.setdefault(table, {})
    if device not in tables:
        # without runs their boxes are never read
        outlines, boxes = table.outlines, table.run_boxes if table.has_runs.any() else table.run_boxes[:1]
        whole = outlines.first_point, outlines.first_ring, outlines.first_run, table.heights
        first_point, first_ring, first_run, heights = (array.astype(np.int32) for array in whole)
        arrays = outlines.points, first_point, first_ring, outlines.runs, first_run, boxes, heights
        tables[device] = TableOnDevice(*(torch.from_numpy(array).to(device) for array in arrays))
    return tables[device]


class ObjectsOnGpu:
    """The objects of several batches on a GPU, their outlines placed in the output."""

    def __init__(self, table: MaskTable, objects: PlacedObjects, device: torch.device) -> None:
        from detaug.gpu.mask_kernels import place

        self._device, count = device, len(objects)
        self._image, self._bent = objects.image, objects.bent
        self._field = None if objects.field is None else FieldOnGpu(objects.field, device)
        own = table_on_device(table, device)
        rings, points = table.outlines.first_ring, table.outlines.first_point
        lengths = points[rings[objects.rows + 1]] - points[rings[objects.rows]]
        vertices = int(lengths.sum())
        whole = objects.rows, objects.layer, np.append(start_offsets(lengths), vertices)
        parts: list[NDArray[Any]] = [objects.layers, objects.borders, *(array.astype(np.int32) for array in whole)]
        parts += [np.append(objects.stencils, np.uint8(0))]
        layers, borders, annotations, layer_of, starts, stencils = packed_to_device(parts, device)
        placed = torch.empty((2, max(vertices, 1)), dtype=torch.int32, device=device)
        hulls = torch.empty((max(count, 1), 5), dtype=torch.int32, device=device)
        if count:
            launch_programs(
                place, device, count, annotations, layer_of, layers, own.points, own.first_point, own.first_ring,
                own.first_run, own.run_boxes, starts, placed, hulls, VERTICES=VERTICES, **OPTIONS,
            )  # fmt: skip
        outlines = own.first_point, own.first_ring, own.runs, own.first_run, own.heights
        self._inputs = annotations, layer_of, layers, borders, stencils, placed, hulls, starts, *outlines
        self._sizes = objects.layers.shape[1], objects.borders.shape[1], vertices
        self.all = torch.arange(count, dtype=torch.int32, device=device)
        """(B,): the numbers of the objects."""

    def masks(self, objects: Tensor, grid: GridOnGpu) -> Tensor:
        """Return (R, rows, columns) bool: whether the points of the grid show each of `objects`, (R,) int32."""
        if self._bent.any():
            return self._bent_masks(objects, grid)
        return self._straight_masks(objects, grid)

    def _straight_masks(self, objects: Tensor, grid: GridOnGpu) -> Tensor:
        """Return the masks before fields bend outputs."""
        out = torch.zeros((len(objects), *grid.shape), dtype=torch.bool, device=self._device)
        self._sample(objects, grid, out, count=False)
        return out

    def areas(self, objects: Tensor, grid: GridOnGpu) -> Tensor:
        """Return (R,) int32: how many points of the grid show each object."""
        if self._bent.any():
            return self.masks(objects, grid).sum((1, 2), dtype=torch.int32)
        out = torch.zeros(len(objects), dtype=torch.int32, device=self._device)
        self._sample(objects, grid, out, count=True)
        return out

    def labels(self, objects: Tensor, grid: GridOnGpu, labels: NDArray[np.int32], counts: Sequence[int]) -> Tensor:
        """Return (N, rows, columns) int32: see `label_map`."""
        if self._bent.any():
            masks = self.masks(objects, grid).cpu().numpy()
            return to_device(label_map(masks, labels, list(counts)), self._device)
        from detaug.gpu.mask_kernels import label

        order = torch.argsort(self.areas(objects, grid), descending=True, stable=True)
        ranks = torch.empty_like(objects)
        ranks[order] = torch.arange(len(objects), dtype=torch.int32, device=self._device)
        first = np.concatenate([[0], np.cumsum(counts)]).astype(np.int32)
        together = to_device(np.concatenate([first, labels]), self._device)
        of_images, of_objects = together.split_with_sizes([len(first), len(labels)])
        out = torch.empty((len(counts), *grid.shape), dtype=torch.int32, device=self._device)
        if out.numel():
            blocks = len(counts) * -(-grid.shape[0] // ROWS) * -(-grid.shape[1] // COLUMNS)
            launch_programs(
                label, self._device, blocks, *self._inputs, objects, grid.y, grid.x, out, *self._sizes, *grid.shape,
                grid.cell, ranks, of_images, of_objects, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS, **OPTIONS,
            )  # fmt: skip
        return out

    def _bent_masks(self, objects: Tensor, grid: GridOnGpu) -> Tensor:
        """Return masks of outputs that a field bends: see `masks.rasterise`."""
        assert self._field is not None
        out = torch.zeros((len(objects), *grid.shape), dtype=torch.bool, device=self._device)
        numbers = objects.cpu().numpy()
        one_grid = grid.y.ndim == 1  # then all objects of an image have the same points
        straight, bent = np.flatnonzero(~self._bent[numbers]), np.flatnonzero(self._bent[numbers])
        if len(straight):
            chosen = to_device(straight, self._device)
            own = grid if one_grid else GridOnGpu(grid.y[chosen], grid.x[chosen])
            out[chosen] = self._straight_masks(objects[chosen], own)
        _, firsts, place = np.unique(
            self._image[numbers[bent]] if one_grid else bent, return_index=True, return_inverse=True
        )
        at_once = max(1, POINTS // max(1, grid.shape[0] * grid.shape[1]))
        for start in range(0, len(firsts), at_once):
            of_places = bent[firsts[start : start + at_once]]
            own = grid
            if not one_grid:
                rows = to_device(of_places, self._device)
                own = GridOnGpu(grid.y[rows], grid.x[rows])
            points = self._field.undistorted(self._image[numbers[of_places]], own)
            is_here = (place >= start) & (place < start + at_once)
            chosen = to_device(bent[is_here], self._device)
            out[chosen] = self._masks_of_points(objects[chosen], place[is_here] - start, points)
        return out

    def _masks_of_points(self, objects: Tensor, places: Ints, points: Tensor) -> Tensor:
        """Return (R, rows, columns): whether points show each of some objects. `places`: (R,) which of `points`."""
        from detaug.gpu.mask_kernels import sample_points

        shape = points.shape[2:]
        out = torch.zeros((len(objects), *shape), dtype=torch.bool, device=self._device)
        if out.numel():
            programs = min(PROGRAMS, -(-shape[0] // ROWS) * -(-shape[1] // COLUMNS))
            launch_programs(
                sample_points, self._device, len(objects) * programs, *self._inputs, objects,
                to_device(places.astype(np.int32), self._device), points, out, *self._sizes, *shape, programs,
                ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS, **OPTIONS,
            )  # fmt: skip
        return out

    def _sample(self, objects: Tensor, grid: GridOnGpu, out: Tensor, *, count: bool) -> None:
        from detaug.gpu.mask_kernels import sample

        if len(objects) and grid.shape[0] * grid.shape[1]:
            steps = (0 if coordinates.ndim == 1 else coordinates.shape[1] for coordinates in (grid.y, grid.x))
            programs = min(PROGRAMS, -(-grid.shape[0] // ROWS) * -(-grid.shape[1] // COLUMNS))
            launch_programs(
                sample, self._device, len(objects) * programs, *self._inputs, objects, grid.y, grid.x, out,
                *self._sizes, *grid.shape, *steps, grid.cell, programs,
                ROWS=ROWS, COLUMNS=COLUMNS, COUNT=count, num_warps=WARPS, **OPTIONS,
            )  # fmt: skip
