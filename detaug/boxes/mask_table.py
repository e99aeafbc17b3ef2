"""The outlines of a source, as masks are made from them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Ints
from detaug.coco.outlines import OutlineColumns, next_points


@dataclass(frozen=True, eq=False)
class MaskTable:
    """The outlines of the A annotations of a source, and what else masks need of them."""

    outlines: OutlineColumns
    heights: Ints
    """(A,): the height of the source image of each."""
    run_boxes: NDArray[np.float32]
    """(A, 4) XYXY, source pixels: the boxes around RLE masks; zeros for others."""

    @classmethod
    def of(cls, outlines: OutlineColumns, heights: Ints) -> MaskTable:
        """Return the table of outlines. `heights`: (A,) of the source images."""
        return cls(outlines, heights, boxes_of_runs(outlines, heights))

    @property
    def arrays(self) -> tuple[NDArray[Any], ...]:
        """Return all arrays, as `mask_loops` takes them."""
        outlines = self.outlines
        rings = outlines.points, outlines.first_point, outlines.first_ring
        return *rings, outlines.runs, outlines.first_run, self.run_boxes, self.heights

    @cached_property
    def areas(self) -> NDArray[np.float32]:
        """Return (A,): the area of the largest ring of each object, or of its mask of RLE, in source pixels."""
        outlines, count = self.outlines, len(self.heights)
        result = outlines.pixels_of_runs().astype(np.float32)
        first, real = outlines.first_point, np.diff(outlines.first_point) > 0
        if real.any():
            x, y = outlines.points.T
            after = next_points(first)
            # `reduceat` knows no empty rings
            twice = np.add.reduceat(x * y[after] - x[after] * y, first[:-1][real], dtype=np.float64)
            owner = np.repeat(np.arange(count), np.diff(outlines.first_ring))
            np.maximum.at(result, owner[real], (np.abs(twice) / 2).astype(np.float32))
        return result

    @cached_property
    def has_runs(self) -> Bools:
        """Return (A,): which annotations are RLE masks."""
        return np.diff(self.outlines.first_run) > 0


def boxes_of_outlines(outlines: OutlineColumns, heights: Ints) -> NDArray[np.float32]:
    """Return (A, 4) XYXY: the boxes around rings or masks; zeros where there is nothing."""
    around = boxes_of_runs(outlines, heights)
    first = outlines.first_point[outlines.first_ring]
    some = np.flatnonzero(np.diff(first) > 0)
    if len(some):
        low, high = (reduce.reduceat(outlines.points, first[some]) for reduce in (np.minimum, np.maximum))
        around[some] = np.concatenate([low, high], axis=1)
    return around


def boxes_of_runs(outlines: OutlineColumns, heights: Ints) -> NDArray[np.float32]:
    """Return (A, 4) XYXY: the boxes around RLE masks; zeros where there is none."""
    low, high = (np.full((len(heights), 2), limit) for limit in (np.inf, -np.inf))
    points, row = outlines.corners_of_runs(heights)
    np.minimum.at(low, row, points)
    np.maximum.at(high, row, points)
    return np.where(np.isfinite(low).all(1)[:, None], np.concatenate([low, high], axis=1), 0).astype(np.float32)
