"""Where the images of a json lie within shards: `shard`, `offset` and `length` of each image entry (decision 13)."""

from __future__ import annotations

import numpy as np

from detaug.converters.coco.columns import Rows, whole_numbers
from detaug.converters.coco.table import Ints
from detaug.converters.files.paths import is_below
from detaug.converters.findings.text import shown

KEYS = ("shard", "offset", "length")


def shard_places(rows: Rows) -> tuple[list[str], Ints]:
    """Return the shards' names, and (N, 3) for each image: position of its shard, offset and length in bytes.

    The position is -1 for an image that is a file. Appends findings about images whose place cannot be used.
    """
    values = rows.column("shard")
    places: Ints = np.tile([-1, 0, 0], (len(values), 1))
    if values.count(None) == len(values):
        return [], places
    named = np.array([isinstance(value, str) and is_below(value) for value in values], bool)
    offset, has_offset = whole_numbers(rows.column("offset"))
    length, has_length = whole_numbers(rows.column("length"), 1)
    is_file = np.array([value is None for value in values], bool)
    good = named & has_offset & has_length

    def describe(row: int) -> str:
        given = {key: rows.rows[row].get(key) for key in KEYS}
        return f"must have the path of a shard below the folder and whole numbers offset and length, got {shown(given)}"

    rows.note("image-shard", ~good & ~is_file, describe)
    positions: dict[str, int] = {}
    for at in np.flatnonzero(good).tolist():
        places[at] = positions.setdefault(values[at], len(positions)), offset[at], length[at]
    return list(positions), places
