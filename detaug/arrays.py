"""Types of arrays, and arrays whose rows have different lengths: concatenated, or padded."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from detaug.compiled import compiled

Array: TypeAlias = NDArray[Any]
Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Bytes: TypeAlias = NDArray[np.uint8]
Arrays: TypeAlias = dict[str, NDArray[Any]]
"""Arrays by name, whose first axis is the batch: what an op drew, or the inputs of a DALI graph."""

Number = TypeVar("Number", bound=np.generic)


def padded(rows: NDArray[Number], count: Ints, fill: float) -> NDArray[Number]:
    """Return (N, M, ...) from concatenated rows (B, ...) of N images, `count` (N,) each; M is the largest count."""
    most = int(count.max(initial=0))
    return in_rooms(rows, count, np.full(len(count), most), fill).reshape(len(count), most, *rows.shape[1:])


def in_rooms(rows: NDArray[Number], count: Ints, room: Ints, fill: float) -> NDArray[Number]:
    """Return (R, ...): rows (B, ...) of N images, `count` (N,) each, with `fill` after them up to `room` (N,) rows."""
    result = np.full((room.sum(), *rows.shape[1:]), fill, rows.dtype)
    if rows.size:
        of_bytes = [array.reshape(len(array), -1).view(np.uint8) for array in (np.ascontiguousarray(rows), result)]
        _spread(of_bytes[0], count.astype(np.int64), start_offsets(room).astype(np.int64), of_bytes[1])
    return result


@compiled
def _spread(rows: Any, count: Any, start: Any, out: Any) -> None:
    """Copy the bytes (B, K) of pieces, `count` (N,) rows each, to `out` (R, K), each piece from its `start` (N,) on."""
    place = 0
    for piece in range(len(count)):
        for row in range(start[piece], start[piece] + count[piece]):
            for byte in range(rows.shape[1]):
                out[row, byte] = rows[place, byte]
            place += 1


def start_offsets(lengths: Ints) -> Ints:
    """Return (N,): the offsets at which N concatenated pieces of these lengths start."""
    return np.asarray(np.cumsum(lengths) - lengths)


def consecutive_slices(lengths: Sequence[int]) -> list[slice]:
    """Return the slices of concatenated pieces of these lengths."""
    return [slice(end - length, end) for end, length in zip(accumulate(lengths), lengths, strict=True)]


def pairs(first: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Pair each of `rows` with each of its boxes. Returns (P,) positions in `rows` and (P,) box indices.

    `first`, (R + 1,): the boxes of row r are first[r]:first[r + 1].
    """
    begin = first.take(rows)
    count = first.take(rows + 1) - begin
    end = np.cumsum(count)
    which = np.repeat(np.arange(len(rows)), count)
    return which, np.arange(len(which)) + (begin - end + count).take(which)


def in_order(*arrays: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the arrays in C order: a loop is compiled again for each other layout."""
    return [np.ascontiguousarray(array) for array in arrays]
