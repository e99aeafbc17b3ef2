"""Rasterise masks on a GPU. The outlines of a source are copied there once."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
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


def rasterise_on_gpu(table: MaskTable, objects: Objects, grid: Grid, device: torch.device) -> Tensor:
    """Return (B, R, C) bool on a GPU: whether the points of the grid show each object."""
    from detaug.gpu.mask_kernels import place, sample

    (height, width), count = grid.shape, len(objects)
    out = torch.empty((count, height, width), dtype=torch.bool, device=device)
    if not out.numel():
        return out
    own = table_on_device(table, device)
    numbers, layers, borders = (
        to_device(np.ascontiguousarray(each), device) for each in (objects.numbers, objects.layers, objects.borders)
    )
    rows = objects.rows
    lengths = table.outlines.first_point[table.outlines.first_ring[rows + 1]]
    lengths = lengths - table.outlines.first_point[table.outlines.first_ring[rows]]
    vertices = int(lengths.sum())
    starts = to_device(np.append(start_offsets(lengths), vertices).astype(np.int32), device)
    grid_y, grid_x = (to_device(np.ascontiguousarray(each, np.int32), device) for each in grid)
    placed = torch.empty((2, max(vertices, 1)), dtype=torch.int32, device=device)
    hulls = torch.empty((count, 5), dtype=torch.int32, device=device)
    of_runs = own.first_run, own.run_boxes
    launch_programs(
        place, device, count, numbers, own.points, own.first_point, own.first_ring, *of_runs, starts, placed, hulls,
        VERTICES=VERTICES, **OPTIONS,
    )  # fmt: skip
    blocks = count * -(-height // ROWS) * -(-width // COLUMNS)
    steps = (0 if len(each) == 1 else each.shape[1] for each in grid)
    launch_programs(
        sample, device, blocks, numbers, layers, borders, placed, hulls, own.first_point, own.first_ring, own.runs,
        own.first_run, starts, grid_y, grid_x, out, count, layers.shape[1], borders.shape[1], vertices, height, width,
        *steps, ROWS=ROWS, COLUMNS=COLUMNS, **OPTIONS,
    )  # fmt: skip
    return out
