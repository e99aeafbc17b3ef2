"""Sample maps on a GPU, where their runs are not unpacked. Those of maps that were shown stay there, up to a limit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.arrays import Bools, Floats, Ints, start_offsets
from detaug.gpu.grids import OPTIONS, POINTS, FieldOnGpu, GridOnGpu
from detaug.gpu.streams import StreamGuard, launch_programs, packed_to_device
from detaug.maps.sampling import RIM, ShownMaps, each_once, places_of
from detaug.maps.segments import Segments
from detaug.maps.values import MapValues
from detaug.sources.source import Source

ROWS, COLUMNS, WARPS = 8, 64, 4
"""Sides of the blocks of points that a program samples, and its warps of threads."""

MOST, FRACTION = 8 << 30, 16
"""Bytes of the maps of a source that stay on a device, at most, and the part of its memory, 1 / FRACTION: 118,000 maps
with 18 runs in each of 480 rows, as those of COCO, take 5 GB."""


class MapsOnGpu(NamedTuple):
    """K maps on a device."""

    rows: Ints
    """(K, 7): the addresses of the ends of their runs, of the values, and of the run in which each row begins; the most
    runs of a row; height and width of the map; whether it has a pixel for each of its image. A map of depths has a
    value for each pixel instead of runs."""
    places: Floats
    """(K, 4): see `places_of`."""
    tensors: list[Tensor]
    """The memory."""


def to_gpu(maps: Sequence[MapValues], dtype: Any, device: torch.device) -> MapsOnGpu:
    """Copy maps to a device at once."""
    runs, of_map = each_once(maps)
    nothing: NDArray[Any] = np.zeros(0, np.int32)
    ends = [nothing if own.lengths is None else np.cumsum(own.lengths, dtype=np.int32) for own in runs]
    rows = [_first_runs(own_ends, *own.shape) for own, own_ends in zip(runs, ends, strict=True)]
    together: list[list[NDArray[Any]]] = [ends, [own.values for own in runs], rows]
    tensors = packed_to_device(
        [
            np.concatenate([nothing.astype(one_type), *parts]).astype(one_type, copy=False)
            for parts, one_type in zip(together, (np.int32, dtype, np.int32), strict=True)
        ],
        device,
    )
    addresses = [
        tensor.data_ptr() + tensor.itemsize * start_offsets(np.array([len(part) for part in parts], np.int64))
        for tensor, parts in zip(tensors, together, strict=True)
    ]
    most = [int(np.diff(own).max(initial=0)) for own in rows]
    columns = [*addresses, most, *np.array([own.shape for own in runs], np.int64).reshape(-1, 2).T]
    table: Ints = np.stack([np.asarray(column, np.int64) for column in columns], axis=1)[of_map]
    places = places_of(maps)
    is_plain = (places == (1, 1, 0, 0)).all(1, keepdims=True)
    return MapsOnGpu(np.concatenate([table, is_plain], axis=1), places, tensors)


def _first_runs(ends: NDArray[np.int32], height: int, width: int) -> NDArray[np.int32]:
    """Return (H + 1,): the run in which each row of pixels begins, and the last one; (0,) without runs."""
    if not len(ends):
        return np.zeros(0, np.int32)
    first = np.searchsorted(ends, np.arange(height + 1, dtype=np.int32) * width, side="right")
    return first.clip(max=len(ends) - 1).astype(np.int32)


class MapTable:
    """The maps of a source that are on a device."""

    def __init__(self, source: Source, device: torch.device) -> None:
        self.device = device
        self.known: Bools = np.zeros(len(source), bool)
        """(n,): of which images all maps are here."""
        self._types = {name: own.kind.dtype for name, own in source.maps.items()}
        self._rows: dict[str, Ints] = {name: np.zeros((len(source), 7), np.int64) for name in self._types}
        self._places: dict[str, Floats] = {name: np.zeros((len(source), 4)) for name in self._types}
        self._segments: dict[tuple[str, int], Segments | None] = {}
        self._tensors: list[Tensor] = []
        total = torch.cuda.get_device_properties(device).total_memory
        self._free = min(MOST, total // FRACTION)
        self._guard = StreamGuard(device)
        self._guarded: dict[int, int] = {}

    def add(self, maps: Mapping[int, Mapping[str, MapValues]]) -> None:
        """Copy the maps of images, by their positions in the source, while there is room."""
        new = [image for image, own in maps.items() if own and not self.known[image]]
        if self._free <= 0 or not new:
            return
        for name, dtype in self._types.items():
            own = [maps[image][name] for image in new]
            rows, self._places[name][new], tensors = to_gpu(own, dtype, self.device)
            self._rows[name][new] = rows
            self._tensors += tensors
            self._free -= sum(tensor.untyped_storage().nbytes() for tensor in tensors)
            self._segments |= {(name, image): values.segments for image, values in zip(new, own, strict=True)}
        self.known[new] = True
        self._guard = StreamGuard(self.device)

    def maps(self, name: str, images: Ints) -> MapsOnGpu:
        """Return the maps of known images, for work on the current stream."""
        stream = torch.cuda.current_stream(self.device).cuda_stream
        self._guard.wait(*self._tensors[self._guarded.get(stream, 0) :])
        self._guarded[stream] = len(self._tensors)
        return MapsOnGpu(self._rows[name][images], self._places[name][images], [])

    def segments(self, name: str, image: int) -> Segments | None:
        """Return what the values of the map of a known image are."""
        return self._segments[name, image]


_TABLES: WeakKeyDictionary[Source, dict[torch.device, MapTable]] = WeakKeyDictionary()


def map_table(source: Source, device: torch.device) -> MapTable | None:
    """Return the maps of a source on a device: of all its loaders. None for the CPU, and for a source without maps."""
    if device.type != "cuda" or not source.maps:
        return None
    tables = _TABLES.setdefault(source, {})
    if device not in tables:
        tables[device] = MapTable(source, device)
    return tables[device]


def sample_on_gpu(
    shown: ShownMaps, maps: MapsOnGpu, grid: GridOnGpu, device: torch.device, *, pair: bool
) -> tuple[Tensor, ...]:
    """Return what `sample_maps` returns, with the same bits, on a device."""
    from detaug.gpu.map_kernels import sample

    (layers, borders, stencils, count), kind = shown.scene, shown.kind
    first_table, tables = shown.tables or (np.zeros(1, np.int64), np.zeros(1, np.int32))
    n = len(layers) // count
    arrays: list[NDArray[Any]] = [layers, borders, np.append(stencils, np.uint8(0)), *shown.parts]
    arrays += [shown.number.astype(np.int32), maps.places, maps.rows, first_table.astype(np.int32), tables]
    bends = np.zeros(n, bool) if shown.field is None else shown.field.bends
    straight, bent = np.flatnonzero(~bends), np.flatnonzero(bends)
    *on_device, images = packed_to_device([*arrays, np.concatenate([straight, bent]).astype(np.int32)], device)
    dtype = torch.from_numpy(np.empty(0, kind.dtype)).dtype
    out = torch.empty((n, *grid.shape), dtype=dtype, device=device)
    second = torch.empty_like(out) if pair else out
    fraction = torch.empty(out.shape, dtype=torch.float32, device=device) if pair else out
    blocks = -(-grid.shape[0] // ROWS) * -(-grid.shape[1] // COLUMNS)

    def launch(images: Tensor, y: Tensor, x: Tensor) -> None:
        launch_programs(
            sample, device, len(images) * blocks, *on_device, images, y, x, out, second, fraction,
            shown.parts[1].shape[1], count, borders.shape[1], *grid.shape, kind.empty,
            AVERAGED=shown.parts[1].shape[1] > 1, HAS_TABLES=shown.tables is not None, LINEAR=kind.is_linear,
            KEEPS_ERASED=kind.erased == "keep", POINTS=y is x, PAIR=pair, ROWS=ROWS, COLUMNS=COLUMNS, num_warps=WARPS,
            **OPTIONS,
        )  # fmt: skip

    if blocks and len(straight):
        launch(images[: len(straight)], grid.y, grid.x)
    if blocks and len(bent):
        assert shown.field is not None
        moved, at_once = FieldOnGpu(shown.field, device), max(1, POINTS // (grid.shape[0] * grid.shape[1]))
        for start in range(0, len(bent), at_once):
            points = moved.undistorted(bent[start : start + at_once], grid, RIM)
            launch(images[len(straight) + start :][: len(points)], points, points)
    return (out, second, fraction) if pair else (out,)
