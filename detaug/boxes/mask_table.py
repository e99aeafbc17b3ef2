"""The outlines of a source, as masks are made from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Ints
from detaug.converters.coco.outlines import OutlineColumns, next_points

RINGS = 100_000
"""Rings that are measured at once."""


@dataclass(frozen=True, eq=False)
class MaskTable:
    """The outlines of the A annotations of a source, and what else masks need of them."""

    outlines: OutlineColumns
    heights: Ints
    """(A,): the height of the source image of each."""
    run_boxes: NDArray[np.float32]
    """(A, 4) XYXY, source pixels: the boxes around masks of run lengths; zeros for others."""

    @classmethod
    def of(cls, outlines: OutlineColumns, heights: Ints) -> MaskTable:
        """Return the table of outlines. `heights`: (A,) of the source images."""
        return cls(outlines, heights, boxes_of_runs(outlines, heights))

    @cached_property
    def cores(self) -> Cores:
        """Return a part of each mask, by which is known how much of it a crop leaves at least."""
        outlines, count = self.outlines, len(self.heights)
        of_rings = [_moments(outlines.points, part) for part in _parts(outlines.first_point)]
        moments = np.concatenate([np.zeros((0, 7), np.float32), *of_rings])
        order = np.lexsort((moments[:, 0], np.repeat(np.arange(count), np.diff(outlines.first_ring))))
        last = outlines.first_ring[1:][np.diff(outlines.first_ring) > 0] - 1
        result = np.zeros((count, 7), np.float32)
        result[np.diff(outlines.first_ring) > 0] = moments[order[last]]
        rows = np.flatnonzero(self.has_runs)
        result[rows, 0] = self._pixels_of_runs()[rows]
        result[rows, 1:3] = np.nan
        result[rows, 3:] = self.run_boxes[rows]
        return Cores(result[:, 0], result[:, 1:3], result[:, 3:])

    def _pixels_of_runs(self) -> NDArray[np.float32]:
        """Return (A,): how many pixels masks of run lengths have."""
        outlines = self.outlines
        owner = np.repeat(np.arange(len(self.heights)), np.diff(outlines.first_run))
        place = np.arange(len(owner)) - outlines.first_run[owner]
        lengths = np.diff(outlines.runs, prepend=0)
        lengths[place == 0] = 0
        return np.bincount(owner, np.where(place % 2 == 1, lengths, 0), len(self.heights)).astype(np.float32)

    @cached_property
    def has_runs(self) -> Bools:
        """Return (A,): which annotations are masks of run lengths."""
        return np.diff(self.outlines.first_run) > 0


class Cores(NamedTuple):
    """The largest ring of each of A outlines, or its mask of run lengths, in source pixels."""

    area: NDArray[np.float32]
    """(A,)"""
    middle: NDArray[np.float32]
    """(A, 2) x, y of the centre of mass; NaN where it is not known."""
    box: NDArray[np.float32]
    """(A, 4) XYXY"""


def _parts(first_point: Ints) -> Iterator[Ints]:
    """Yield the starts of rings, and the end, of some rings at a time, to save memory."""
    for start in range(0, len(first_point) - 1, RINGS):
        yield first_point[start : start + RINGS + 1]


def _moments(points: NDArray[np.float32], first: Ints) -> NDArray[np.float32]:
    """Return (R, 7): area, centre of mass and box of rings that do not cross themselves. `first`: (R + 1,) starts."""
    result = np.zeros((len(first) - 1, 7))
    if first[-1] == first[0]:
        return result.astype(np.float32)
    x, y = points[first[0] : first[-1]].T.astype(np.float64)
    starts = first - first[0]
    after, real = next_points(starts), starts[1:] > starts[:-1]
    begin = starts[:-1][real]
    cross = x * y[after] - x[after] * y
    twice, *moments = (np.add.reduceat(each, begin) for each in (cross, (x + x[after]) * cross, (y + y[after]) * cross))
    result[real, 0] = np.abs(twice) / 2
    with np.errstate(divide="ignore", invalid="ignore"):
        result[real, 1:3] = np.stack(moments, axis=1) / (3 * twice)[:, None]
    for side, (reduce, along) in enumerate(((np.minimum, x), (np.minimum, y), (np.maximum, x), (np.maximum, y))):
        result[real, 3 + side] = reduce.reduceat(along, begin)
    return result.astype(np.float32)


def boxes_of_runs(outlines: OutlineColumns, heights: Ints) -> NDArray[np.float32]:
    """Return (A, 4) XYXY: the boxes around masks of run lengths; zeros where there is none."""
    boxes = np.zeros((len(heights), 4), np.float32)
    owner = np.repeat(np.arange(len(heights)), np.diff(outlines.first_run))
    place = np.arange(len(owner)) - outlines.first_run[owner]
    starts = np.concatenate([[0], outlines.runs[:-1]]).astype(np.int64)
    inside = (place % 2 == 1) & (outlines.runs > starts)
    owner, start, last = owner[inside], starts[inside], outlines.runs[inside].astype(np.int64) - 1
    if not len(owner):
        return boxes
    height = heights[owner]
    wraps = start // height != last // height
    top, bottom = np.where(wraps, 0, start % height), np.where(wraps, height, last % height + 1)
    first = np.flatnonzero(np.diff(owner, prepend=-1))
    sides = [
        reduce.reduceat(each, first)
        for reduce, each in (
            (np.minimum, start // height),
            (np.minimum, top),
            (np.maximum, last // height + 1),
            (np.maximum, bottom),
        )
    ]
    boxes[owner[first]] = np.stack(sides, axis=1)
    return boxes
