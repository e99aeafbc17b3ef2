"""Sample maps on a GPU: their runs go there with what a batch shows of them, and are not unpacked."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from detaug.arrays import Ints, start_offsets
from detaug.gpu.grids import OPTIONS, POINTS, FieldOnGpu, GridOnGpu
from detaug.gpu.streams import launch_programs, packed_to_device, to_device
from detaug.maps.sampling import RIM, ShownMaps

ROWS, COLUMNS, WARPS = 8, 64, 4
"""Sides of the blocks of points that a program samples, and its warps of threads."""


def sample_on_gpu(shown: ShownMaps, grid: GridOnGpu, device: torch.device, *, pair: bool) -> tuple[Tensor, ...]:
    """Return what `sample_maps` returns, with the same bits, on a device."""
    from detaug.gpu.map_kernels import sample

    (layers, borders, stencils, count), kind = shown.scene, shown.kind
    runs, of_map = shown.runs()
    lengths = [own.lengths for own in runs if own.lengths is not None]
    first = start_offsets(np.array([len(own.values) for own in runs], np.int64))
    numbers = [(first[place], len(runs[place].values), *runs[place].shape) for place in of_map]
    first_table, tables = shown.tables or (np.zeros(1, np.int64), np.zeros(1, np.int32))
    *before, values, starts, all_tables, run_lengths = packed_to_device(
        [
            layers,
            borders,
            np.append(stencils, np.uint8(0)),
            *shown.parts,
            shown.number.astype(np.int32),
            shown.places,
            np.array(numbers or [(0, 0, 0, 0)], np.int64),
            np.concatenate([*(own.values for own in runs), np.zeros(1, kind.dtype)]),
            first_table.astype(np.int32),
            tables,
            np.concatenate([*lengths, np.zeros(1, np.uint16)]).view(np.int16),  # few of torch's functions take uint16
        ],
        device,
    )
    ends = torch.cumsum(run_lengths.to(torch.int32) & 0xFFFF, 0, dtype=torch.int32)
    n = len(layers) // count
    out = torch.empty((n, *grid.shape), dtype=values.dtype, device=device)
    second = torch.empty_like(out) if pair else out
    fraction = torch.empty(out.shape, dtype=torch.float32, device=device) if pair else out
    blocks = -(-grid.shape[0] // ROWS) * -(-grid.shape[1] // COLUMNS)

    def launch(images: Ints, y: Tensor, x: Tensor) -> None:
        launch_programs(
            sample, device, len(images) * blocks, *before, ends, values, starts, all_tables,
            to_device(images.astype(np.int32), device), y, x, out, second, fraction, shown.parts[1].shape[1], count,
            borders.shape[1], *grid.shape, kind.empty, HAS_RUNS=bool(lengths), HAS_TABLES=shown.tables is not None,
            LINEAR=kind.is_linear, KEEPS_ERASED=kind.erased == "keep", POINTS=y is x, PAIR=pair, ROWS=ROWS,
            COLUMNS=COLUMNS, num_warps=WARPS, **OPTIONS,
        )  # fmt: skip

    bends = np.zeros(n, bool) if shown.field is None else shown.field.bends
    straight, bent = np.flatnonzero(~bends), np.flatnonzero(bends)
    if blocks and len(straight):
        launch(straight, grid.y, grid.x)
    if blocks and len(bent):
        assert shown.field is not None
        moved, at_once = FieldOnGpu(shown.field, device), max(1, POINTS // (grid.shape[0] * grid.shape[1]))
        for start in range(0, len(bent), at_once):
            points = moved.undistorted(bent[start : start + at_once], grid, RIM)
            launch(bent[start : start + at_once], points, points)
    return (out, second, fraction) if pair else (out,)
