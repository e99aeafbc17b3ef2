"""The outlines of a source, as masks are made from them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Ints
from detaug.converters.coco.outlines import OutlineColumns, next_points

RINGS = 100_000
"""Rings whose areas are computed at once."""


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
    def areas(self) -> NDArray[np.float32]:
        """Return (A,): source pixels that an outline has at least: its largest ring's, or the pixels of its runs."""
        outlines = self.outlines
        of_rings = np.concatenate([np.zeros(0, np.float32), *_areas_of_rings(outlines.points, outlines.first_point)])
        areas = np.zeros(len(self.heights), np.float32)
        np.maximum.at(areas, np.repeat(np.arange(len(areas)), np.diff(outlines.first_ring)), of_rings)
        owner = np.repeat(np.arange(len(areas)), np.diff(outlines.first_run))
        inside = (np.arange(len(owner)) - outlines.first_run[owner]) % 2 == 1
        lengths = np.diff(outlines.runs, prepend=0)[inside]
        return areas + np.bincount(owner[inside], lengths, len(areas)).astype(np.float32)

    @cached_property
    def has_runs(self) -> Bools:
        """Return (A,): which annotations are masks of run lengths."""
        return np.diff(self.outlines.first_run) > 0


def _areas_of_rings(points: NDArray[np.float32], first_point: Ints) -> Iterator[NDArray[np.float32]]:
    """Yield the areas of rings that do not cross themselves, some at a time to save memory."""
    for start in range(0, len(first_point) - 1, RINGS):
        first = first_point[start : start + RINGS + 1]
        if first[-1] == first[0]:
            yield np.zeros(len(first) - 1, np.float32)
            continue
        x, y = points[first[0] : first[-1]].T.astype(np.float64)
        after = next_points(first - first[0])
        twice = np.concatenate([[0], np.cumsum(x * y[after] - x[after] * y)])
        yield (np.abs(np.diff(twice[first - first[0]])) / 2).astype(np.float32)


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
