"""Numba's loop that makes room between rows: see `arrays.py`."""

from __future__ import annotations

from detaug.compiled import compiled


@compiled
def spread(rows, count, start, out):
    """Copy the bytes (B, K) of pieces, `count` (N,) rows each, to `out` (R, K), each piece from its `start` (N,) on."""
    place = 0
    for piece in range(len(count)):
        for at in range(start[piece], start[piece] + count[piece]):
            for byte in range(rows.shape[1]):
                out[at, byte] = rows[place, byte]
            place += 1
