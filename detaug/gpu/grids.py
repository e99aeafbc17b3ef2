"""The points of outputs on a GPU, and where they come from where a field bends outputs."""

from __future__ import annotations

from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from detaug.arrays import Ints
from detaug.boxes.fields import Field
from detaug.boxes.masks import Grid, pixel_grid
from detaug.boxes.units import ONE
from detaug.gpu.streams import launch_programs, to_device

POINTS = 1 << 25
"""Points of bent outputs that are moved at once: 8 bytes each."""

MOVED_ROWS, MOVED_COLUMNS, MOVERS, WARPS = 8, 32, 256, 1
"""Sides of the blocks of points that a program moves, programs for each output, at most, and their warps of threads."""

OPTIONS = {"enable_fp_fusion": False}
"""NumPy rounds products before it adds."""


class GridOnGpu(NamedTuple):
    """The points at which masks are sampled, in units."""

    y: Tensor
    x: Tensor
    """int32: (rows,) and (columns,) for all objects, or (R, rows) and (R, columns)."""
    cell: int = 0
    """Units from each point to the next; 0 if that differs."""

    @property
    def shape(self) -> tuple[int, int]:
        """Return the numbers of rows and columns."""
        return self.y.shape[-1], self.x.shape[-1]


def grid_on_gpu(grid: Grid, device: torch.device) -> GridOnGpu:
    """Copy a grid to a device."""
    y, x = (to_device(np.ascontiguousarray(coordinates, np.int32), device) for coordinates in grid)
    return GridOnGpu(y[0], x[0]) if len(y) == 1 else GridOnGpu(y, x)


@lru_cache(maxsize=64)
def pixel_grid_on_gpu(height: int, width: int, stride: int, device: torch.device) -> GridOnGpu:
    """Copy the grid of pixels to a device, once."""
    return grid_on_gpu(pixel_grid(height, width, stride), device)._replace(cell=stride * ONE)


class FieldOnGpu:
    """A field on a GPU."""

    def __init__(self, field: Field, device: torch.device) -> None:
        self._field, self._device = field, device

    @cached_property
    def _on_device(self) -> tuple[Tensor, Tensor]:
        numbers = np.column_stack([self._field.size, self._field.lens, self._field.spacing])
        in_rows = np.ascontiguousarray(numbers, np.float64), np.ascontiguousarray(self._field.control)
        return to_device(in_rows[0], self._device), to_device(in_rows[1], self._device)

    def undistorted(self, images: Ints, grid: GridOnGpu, rim: float = 0.0) -> Tensor:
        """Return (P, 2, rows, columns): y and x from which the points of P images come.

        `rim`: as of `Field.undistorted_units`.
        """
        from detaug.gpu.mask_kernels import undistort

        out = torch.empty((len(images), 2, *grid.shape), dtype=torch.int32, device=self._device)
        if out.numel():
            steps = (0 if coordinates.ndim == 1 else coordinates.shape[1] for coordinates in (grid.y, grid.x))
            programs = min(MOVERS, -(-grid.shape[0] // MOVED_ROWS) * -(-grid.shape[1] // MOVED_COLUMNS))
            launch_programs(
                undistort, self._device, len(images) * programs, *self._on_device,
                to_device(images.astype(np.int32), self._device), grid.y.contiguous(), grid.x.contiguous(), out,
                *self._field.control.shape[1:3], *grid.shape, *steps, programs, SHIFTS=bool(self._field.control.any()),
                RIM=rim, ROWS=MOVED_ROWS, COLUMNS=MOVED_COLUMNS, num_warps=WARPS, **OPTIONS,
            )  # fmt: skip
        return out
