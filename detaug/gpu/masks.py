"""Rasterise masks on a GPU. The outlines of a source are copied there once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.arrays import start_offsets
from detaug.boxes.mask_table import MaskTable
from detaug.boxes.masks import Grid, Objects
from detaug.gpu.streams import launch_programs, to_device

VERTICES = 128
"""Vertices that a program places at once."""

ROWS, COLUMNS = 32, 64
"""Sides of the blocks of points that a program samples."""

OPTIONS = {"enable_fp_fusion": False}
"""NumPy rounds products before it adds."""


class TableOnDevice(NamedTuple):
    """A `MaskTable` on a GPU."""

    points: Tensor
    first_point: Tensor
    first_ring: Tensor
    runs: Tensor
    first_run: Tensor
    run_boxes: Tensor


_TABLES: WeakKeyDictionary[MaskTable, dict[torch.device, TableOnDevice]] = WeakKeyDictionary()


def table_on_device(table: MaskTable, device: torch.device) -> TableOnDevice:
    """Copy a table to a device, once."""
    tables = _TABLES.setdefault(table, {})
    if device not in tables:
        outlines, boxes = table.outlines, table.run_boxes if table.has_runs.any() else table.run_boxes[:1]
        starts = (each.astype(np.int32) for each in (outlines.first_point, outlines.first_ring, outlines.first_run))
        first_point, first_ring, first_run = starts
        arrays = outlines.points, first_point, first_ring, outlines.runs, first_run, boxes
        tables[device] = TableOnDevice(*(torch.from_numpy(each).to(device) for each in arrays))
    return tables[device]


class MasksOnGpu:
    """The masks of B objects at the points of a grid, rasterised on a GPU."""

    def __init__(self, table: MaskTable, objects: Objects, grid: Grid, device: torch.device) -> None:
        from detaug.gpu.mask_kernels import place

        self._count, self._grid, self._device = len(objects), grid, device
        own = table_on_device(table, device)
        numbers, layers, borders = (
            to_device(np.ascontiguousarray(each), device) for each in (objects.numbers, objects.layers, objects.borders)
        )
        rings, points = table.outlines.first_ring, table.outlines.first_point
        lengths = points[rings[objects.rows + 1]] - points[rings[objects.rows]]
        vertices = int(lengths.sum())
        starts = to_device(np.append(start_offsets(lengths), vertices).astype(np.int32), device)
        placed = torch.empty((2, max(vertices, 1)), dtype=torch.int32, device=device)
        hulls = torch.empty((self._count, 5), dtype=torch.int32, device=device)
        if self._count:
            launch_programs(
                place, device, self._count, numbers, own.points, own.first_point, own.first_ring, own.first_run,
                own.run_boxes, starts, placed, hulls, VERTICES=VERTICES, **OPTIONS,
            )  # fmt: skip
        outlines = own.first_point, own.first_ring, own.runs, own.first_run
        points_of_grid = (to_device(np.ascontiguousarray(each, np.int32), device) for each in grid)
        self._inputs = numbers, layers, borders, placed, hulls, starts, *outlines, *points_of_grid
        self._sizes = layers.shape[1], borders.shape[1], vertices, *grid.shape

    def masks(self) -> Tensor:
        """Return (B, R, C) bool: whether the points of the grid show each object."""
        out = torch.empty((self._count, *self._grid.shape), dtype=torch.bool, device=self._device)
        self._sample(out, count=False)
        return out

    def areas(self) -> Tensor:
        """Return (B,) int32: how many points of the grid show each object."""
        out = torch.zeros(self._count, dtype=torch.int32, device=self._device)
        self._sample(out, count=True)
        return out

    def labels(self, labels: NDArray[np.int32], counts: Sequence[int]) -> Tensor:
        """Return (N, R, C) int32: see `label_map`."""
        from detaug.gpu.mask_kernels import label

        order = torch.argsort(self.areas(), descending=True, stable=True)
        ranks = torch.empty(self._count, dtype=torch.int32, device=self._device)
        ranks[order] = torch.arange(self._count, dtype=torch.int32, device=self._device)
        first = to_device(np.concatenate([[0], np.cumsum(counts)]).astype(np.int32), self._device)
        out = torch.empty((len(counts), *self._grid.shape), dtype=torch.int32, device=self._device)
        labels_of_objects = to_device(labels, self._device)
        if blocks := self._blocks(len(counts)):
            launch_programs(
                label, self._device, blocks, *self._inputs, out, *self._sizes, ranks, first, labels_of_objects,
                ROWS=ROWS, COLUMNS=COLUMNS, **OPTIONS,
            )  # fmt: skip
        return out

    def _sample(self, out: Tensor, *, count: bool) -> None:
        from detaug.gpu.mask_kernels import sample

        if blocks := self._blocks(self._count):
            steps = (0 if len(each) == 1 else each.shape[1] for each in self._grid)
            launch_programs(
                sample, self._device, blocks, *self._inputs, out, *self._sizes, *steps,
                ROWS=ROWS, COLUMNS=COLUMNS, COUNT=count, **OPTIONS,
            )  # fmt: skip

    def _blocks(self, planes: int) -> int:
        """Return how many blocks of points there are in planes of the size of the grid."""
        height, width = self._grid.shape
        return planes * -(-height // ROWS) * -(-width // COLUMNS)
