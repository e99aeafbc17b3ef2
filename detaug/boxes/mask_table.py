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
        """Return the largest part of each mask. How much a crop leaves of it at least is computed from these."""
        outlines, count = self.outlines, len(self.heights)
        of_rings = [_moments(outlines.points, part) for part in _parts(outlines.first_point)]
        moments = np.concatenate([np.zeros((0, 7), np.float32), *of_rings])
        order = np.lexsort((moments[:, 0], np.repeat(np.arange(count), np.diff(outlines.first_ring))))
        last = outlines.first_ring[1:][np.diff(outlines.first_ring) > 0] - 1
        result = np.zeros((count, 7), np.float32)
        result[np.diff(outlines.first_ring) > 0] = moments[order[last]]
        rows = np.flatnonzero(self.has_runs)
        result[rows, 0] = outlines.pixels_of_runs()[rows]
        result[rows, 1:3] = np.nan
        result[rows, 3:] = self.run_boxes[rows]
        return Cores(result[:, 0], result[:, 1:3], result[:, 3:])

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
    sides = [reduce.reduceat(each, begin) for reduce in (np.minimum, np.maximum) for each in (x, y)]
    result[real, 3:] = np.stack(sides, axis=1)
    return result.astype(np.float32)


def boxes_of_runs(outlines: OutlineColumns, heights: Ints) -> NDArray[np.float32]:
    """Return (A, 4) XYXY: the boxes around masks of run lengths; zeros where there is none."""
    low, high = (np.full((len(heights), 2), limit) for limit in (np.inf, -np.inf))
    points, row = outlines.corners_of_runs(heights)
    np.minimum.at(low, row, points)
    np.maximum.at(high, row, points)
    return np.where(np.isfinite(low).all(1)[:, None], np.concatenate([low, high], axis=1), 0).astype(np.float32)
