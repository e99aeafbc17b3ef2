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
    """The maps of one name that the images of a batch show."""

    kind: MapKind
    scene: Scene
    """The layers of the images."""
    parts: tuple[Ints, NDArray[np.float32]]
    """See `Layers.parts_of_average`."""
    number: Ints
    """(N * L,): which map each layer shows, below 0 for none, see `Layers.of_source`."""
    maps: Sequence[MapValues]
    tables: tuple[Ints, NDArray[np.int32]] | None = None
    """Where the table of each layer begins, (N * L,), and all tables, by which values become those of the batch."""
    field: Field | None = None
    """What bends the images."""

    @property
    def places(self) -> Floats:
        """Return (K, 4): of each map the scale and the offset x, y of its image."""
        return np.array([(*own.scale, *own.offset) for own in self.maps] or [(1, 1, 0, 0)], np.float64)

    def runs(self) -> tuple[list[Runs], Ints]:
        """Return all runs once, and which of them are those of each map (K,): tiles of an image have the same ones."""
        number: dict[int, int] = {}
        of_map = [number.setdefault(id(own.runs), len(number)) for own in self.maps]
        runs = {of_map[place]: own.runs for place, own in enumerate(self.maps)}
        return [runs[place] for place in range(len(number))], np.array(of_map, np.int64)


def sample_maps(shown: ShownMaps, grid: Grid, *, pair: bool) -> tuple[NDArray[Any], ...]:
    """Return (N, R, C): the values that each image shows.

    With `pair`, also the value of what is averaged with it, and the share of the first.
    """
    (layers, _, _, count), kind = shown.scene, shown.kind
    runs, of_map = shown.runs()
    pixels = [own.pixels() for own in runs]
    starts = np.cumsum([0, *map(len, pixels)])[of_map] if pixels else np.zeros(1, np.int64)
    joined = np.concatenate([*pixels, np.zeros(0, kind.dtype)]).astype(kind.dtype, copy=False)
    maps = joined, starts, np.array([own.shape for own in shown.maps] or [(0, 0)], np.int64), shown.places
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
            shown.scene, shown.parts, image * count, shown.number, maps, tables, y, x, kind.erased == "keep",
            kind.is_linear, kind.dtype(kind.empty), out[image],
            *((second[image], fraction[image]) if pair else no_pair),
        )  # fmt: skip
    return (out, second, fraction) if pair else (out,)
