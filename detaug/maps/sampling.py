"""Sample maps: for each output pixel the value of the source pixel that is seen there; `gpu/maps.py` on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Floats, Ints
from detaug.boxes.fields import Field
from detaug.boxes.map_loops import sample
from detaug.boxes.masks import Grid
from detaug.maps.kinds import MapKind
from detaug.maps.values import MapValues, Runs

RIM = 0.5
"""Pixels outside of an image from which a field shows its outermost pixels, see `Field.undistorted_units`."""

Scene = tuple[Floats, Floats, NDArray[np.uint8], int]
"""See `PlacedObjects.scene`."""


class ShownMaps(NamedTuple):
    """What the images of a batch show of the maps of one name: K maps in N * L layers."""

    kind: MapKind
    scene: Scene
    """The layers of the images."""
    parts: tuple[Ints, NDArray[np.float32]]
    """See `Layers.parts_of_average`."""
    number: Ints
    """(N * L,): which map each layer shows, below 0 for none, see `Layers.of_source`."""
    tables: tuple[Ints, NDArray[np.int32]] | None = None
    """Where the table of each layer begins, (N * L,), and all tables, by which values become those of the batch."""
    field: Field | None = None
    """What bends the images."""


def each_once(maps: Sequence[MapValues]) -> tuple[list[Runs], Ints]:
    """Return the runs of K maps, and which of them are those of each (K,): tiles of an image have the same ones."""
    number: dict[int, int] = {}
    of_map = [number.setdefault(id(own.runs), len(number)) for own in maps]
    runs = {of_map[place]: own.runs for place, own in enumerate(maps)}
    return [runs[place] for place in range(len(number))], np.array(of_map, np.int64)


def places_of(maps: Sequence[MapValues]) -> Floats:
    """Return (K, 4): of each map the scale and the offset x, y of its image."""
    return np.array([(*own.scale, *own.offset) for own in maps], np.float64).reshape(-1, 4)


def sample_maps(shown: ShownMaps, maps: Sequence[MapValues], grid: Grid, *, pair: bool) -> tuple[NDArray[Any], ...]:
    """Return (N, R, C): the values that each image shows of K maps.

    With `pair`, also the value of what is averaged with it, and the share of the first.
    """
    (layers, _, _, count), kind = shown.scene, shown.kind
    runs, of_map = each_once(maps)
    pixels = [own.pixels() for own in runs]
    starts = np.cumsum([0, *map(len, pixels)])[of_map]
    joined = np.concatenate([*pixels, np.zeros(0, kind.dtype)]).astype(kind.dtype, copy=False)
    sizes = np.array([own.shape for own in maps], np.int64).reshape(-1, 2)
    of_maps = joined, starts, sizes, places_of(maps)
    tables: Any = shown.tables or (np.zeros(0, np.int64), np.zeros(0, kind.dtype))
    shape = len(layers) // count, *grid.shape
    out = np.empty(shape, kind.dtype)
    second, fraction = np.empty(shape if pair else 0, kind.dtype), np.empty(shape if pair else 0, np.float32)
    no_pair = np.empty((0, 0), kind.dtype), np.empty((0, 0), np.float32)
    straight = [np.ascontiguousarray(points) for points in np.broadcast_arrays(grid.y[0, :, None], grid.x)]
    for image in range(len(out)):
        y, x = straight
        if shown.field is not None and shown.field.bends[image]:
            x, y = shown.field.undistorted_units(image, grid.x[0], grid.y[0, :, None], rim=RIM)
        sample(
            shown.scene, shown.parts, image * count, shown.number, of_maps, tables, y, x, kind.erased == "keep",
            kind.is_linear, kind.dtype(kind.empty), out[image],
            *((second[image], fraction[image]) if pair else no_pair),
        )  # fmt: skip
    return (out, second, fraction) if pair else (out,)
