"""What the values of panoptic maps become in a batch: rows of annotations, or the boxes of their image."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Ints
from detaug.boxes.layers import Layers
from detaug.maps.kinds import PanopticMap
from detaug.maps.segments import STUFF, VOID, Segments


class BoxesOfLayers(NamedTuple):
    """The boxes of N images, and the layers that they are of."""

    layers: Layers
    rows: Ints
    """(N, M): the annotation that each box is, -1 where padded."""
    layer: Ints
    """(N, M): the layer of each."""

    def of_copies(self, image: int) -> dict[tuple[int, int], int]:
        """Return the place of each box of an image, by its copy of a source image and its annotation."""
        copies = self.layers.copy[image, self.layer[image]].tolist()
        keys = zip(copies, self.rows[image].tolist(), strict=True)
        return {key: place for place, key in enumerate(keys) if key[1] >= 0}


def tables_of_layers(
    kind: PanopticMap,
    segments_of: Callable[[int], Segments | None],
    boxes: BoxesOfLayers,
    first_rows: Mapping[int, int] | Ints,
    annotations: int | None,
) -> tuple[Ints, NDArray[np.int32]]:
    """Return where the table of each layer begins, (N * L,), and all tables, see `map_loops.sample`.

    A segment whose box is not in the batch is void. `segments_of`: an image of the source. `first_rows`: the first
    annotation of each image of the source. `annotations`: how many it has, for tables of rows; None for tables of
    places in `Batch.boxes`, where stuff follows.
    """
    images = boxes.layers.image
    starts: Ints = np.zeros(images.size, np.int64)
    tables: list[NDArray[Any]] = [np.array([VOID])]
    end, room, is_thing = 1, boxes.rows.shape[1], np.array(kind.is_thing, bool)
    for number in range(len(images)):
        place_of, known = boxes.of_copies(number), dict[tuple[int, int], int]()
        for layer, image in enumerate(images[number].tolist()):
            segments = segments_of(image) if image >= 0 else None
            if segments is None:
                continue
            key = int(boxes.layers.copy[number, layer]), image
            if key not in known:
                rows = np.where(segments.row >= 0, segments.row + first_rows[image], segments.row)
                places = np.array([place_of.get((key[0], row), VOID) for row in rows.tolist()])
                if annotations is None:
                    table = _places(segments, places, is_thing, room)
                else:
                    table = np.where(places >= 0, rows, VOID)
                    table = np.where(segments.row == STUFF, annotations + segments.label, table)
                tables.append(table)
                known[key], end = end, end + len(table)
            starts[number * images.shape[1] + layer] = known[key]
    return starts, np.concatenate(tables).astype(np.int32)


def _places(segments: Segments, places: Ints, is_thing: Bools, room: int) -> Ints:
    """Return the place of each segment's box, and `room` and the class of stuff, which is one segment of an image."""
    is_stuff = ~is_thing[segments.label] & (segments.label >= 0) & ((places >= 0) | (segments.row == STUFF))
    return np.where(is_stuff, room + segments.label, places)
