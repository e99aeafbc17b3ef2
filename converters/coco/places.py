"""Where the images of a json lie within shards (decision 13): `shard`, `offset` and `length` of each image entry.

`crc32c` of an entry is the CRC-32C of the image's bytes. A json may lack it; then nothing notices that they changed.
"""

from __future__ import annotations

import numpy as np

from detaug.converters.coco.columns import Rows, whole_numbers
from detaug.converters.coco.table import Ints
from detaug.converters.files.paths import is_below
from detaug.converters.findings.text import shown

KEYS = ("shard", "offset", "length", "crc32c")

_LARGEST_CRC = 2**32 - 1


def shard_places(rows: Rows) -> tuple[list[str], Ints, Ints]:
    """Return the shards' names, (N, 3) position of each image's shard, offset and length in bytes, and (N,) CRC-32C.

    The position is -1 for an image that is a file, the CRC-32C where it is not known. Appends findings about images
    whose place cannot be used.
    """
    values = rows.column("shard")
    places: Ints = np.tile([-1, 0, 0], (len(values), 1))
    checksums: Ints = np.full(len(values), -1)
    if values.count(None) == len(values):
        return [], places, checksums
    named = np.array([isinstance(value, str) and is_below(value) for value in values], bool)
    offset, has_offset = whole_numbers(rows.column("offset"))
    length, has_length = whole_numbers(rows.column("length"), 1)
    is_file = np.array([value is None for value in values], bool)
    crc32c, has_crc32c = whole_numbers(rows.column("crc32c"), high=_LARGEST_CRC)
    without_crc32c = np.array([value is None for value in rows.column("crc32c")], bool)
    good = named & has_offset & has_length & (has_crc32c | without_crc32c)
    checksums[good & has_crc32c] = crc32c[good & has_crc32c]

    def describe(row: int) -> str:
        given = {key: rows.rows[row].get(key) for key in KEYS}
        rule = "must have the path of a shard below the folder and whole numbers offset, length and crc32c"
        return f"{rule}, got {shown(given)}"

    rows.note("image-shard", ~good & ~is_file, describe)
    positions: dict[str, int] = {}
    for at in np.flatnonzero(good).tolist():
        places[at] = positions.setdefault(values[at], len(positions)), offset[at], length[at]
    return list(positions), places, checksums
