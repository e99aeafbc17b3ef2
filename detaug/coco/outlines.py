"""Read COCO's `segmentation` of objects: polygons, or the RLE of a mask, as ragged arrays."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Ints
from detaug.findings.finding import shown

LARGEST = 1e15
"""Pixels: a larger coordinate is not a number that one could compute with."""


class OutlineColumns(NamedTuple):
    """The shapes of A annotations: rings of polygons, or the runs of a mask; an annotation may have neither."""

    points: NDArray[np.float32]
    """(P, 2) x, y of all rings, concatenated, in pixels of the image."""
    first_point: Ints
    """(R + 1,): ring r has the points first_point[r] to first_point[r + 1]."""
    first_ring: Ints
    """(A + 1,): annotation a has the rings first_ring[a] to first_ring[a + 1]."""
    runs: NDArray[np.int32]
    """(Q,) where runs of pixels end, counted down the columns of the image, first a run outside of the object."""
    first_run: Ints
    """(A + 1,)"""
    corners: NDArray[np.float64]
    """(A, 4, 2) the corners of rotated boxes; NaN where an annotation has none."""

    def are_there(self, rows: Ints) -> NDArray[np.bool_]:
        """Return whether annotations have a polygon."""
        starts = self.first_ring, self.first_run
        return np.asarray(np.any([first[rows + 1] > first[rows] for first in starts], axis=0))

    def of(self, rows: Ints) -> OutlineColumns:
        """Return the polygons of some annotations, in this order."""
        ring_starts, rings = _take(self.first_ring, rows)
        point_starts, points = _take(self.first_point, rings)
        run_starts, runs = _take(self.first_run, rows)
        runs_and_corners = self.runs[runs], run_starts, self.corners[rows]
        return OutlineColumns(self.points[points], point_starts, ring_starts, *runs_and_corners)

    def object_runs(self) -> tuple[Ints, Ints, Ints]:
        """Return the annotation, the start and the end of each run of pixels of an object."""
        row = np.repeat(np.arange(len(self.first_run) - 1), np.diff(self.first_run))
        number = np.arange(len(self.runs)) - self.first_run[row]
        end = self.runs.astype(np.int64)
        start = np.where(number > 0, np.roll(end, 1), 0)
        inside = (number % 2 == 1) & (end > start)
        return row[inside], start[inside], end[inside]

    def pixels_of_runs(self) -> NDArray[np.float64]:
        """Return (A,): how many pixels RLE masks have."""
        row, start, end = self.object_runs()
        return np.bincount(row, end - start, len(self.first_run) - 1).astype(np.float64)

    def corners_of_runs(self, heights: Ints) -> tuple[NDArray[np.float64], Ints]:
        """Return the first and last corner (2 Q, 2) of the box around each run of pixels, and their annotations.

        `heights`: (A,) of the images.
        """
        row, start, end = self.object_runs()
        height = heights[row]
        left, right = start // height, (end - 1) // height + 1
        in_one = right - left == 1
        top, bottom = np.where(in_one, start % height, 0), np.where(in_one, (end - 1) % height + 1, height)
        points = np.concatenate([np.stack([left, top], axis=1), np.stack([right, bottom], axis=1)])
        return points.astype(np.float64), np.tile(row, 2)

    def with_rings(self, rows: Ints, rings: NDArray[np.float64]) -> OutlineColumns:
        """Return these polygons with a ring (R, V, 2) for each of the annotations `rows`, ascending, that have none."""
        if not len(rows):
            return self
        before = self.first_ring[rows]
        number, length = np.diff(self.first_ring), np.insert(np.diff(self.first_point), before, rings.shape[1])
        number[rows] = 1
        positions = np.repeat(self.first_point[before], rings.shape[1])
        points = np.insert(self.points, positions, rings.reshape(-1, 2).astype(np.float32), axis=0)
        return self._replace(points=points, first_point=_starts(length), first_ring=_starts(number))


def outlines_of_masks(masks: NDArray[np.bool_]) -> OutlineColumns:
    """Return the polygons of A masks (A, H, W) as runs."""
    ends = [ends_of_runs(mask) for mask in masks]
    count, starts = len(masks), _starts(len(mask_ends) for mask_ends in ends)
    nothing = np.zeros(count + 1, np.int64)
    runs = np.concatenate([np.zeros(0, np.int64), *ends]).astype(np.int32)
    return OutlineColumns(
        np.zeros((0, 2), np.float32), np.zeros(1, np.int64), nothing, runs, starts, np.full((count, 4, 2), np.nan)
    )


def ends_of_runs(mask: NDArray[np.bool_]) -> Ints:
    """Return where runs of pixels of a mask (H, W) end, down its columns, first one outside of the object."""
    flat = mask.ravel(order="F")
    changes = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    return np.concatenate([[0] if flat.size and flat[0] else [], changes, [flat.size]]).astype(np.int64)


def ends_of_part(mask: NDArray[np.bool_], corner: tuple[int, int], size: tuple[int, int]) -> Ints:
    """Return the runs, as those of `ends_of_runs`, of a mask of an image of `size` (height, width) that is all False
    but for a part of it, `mask` (h, w), whose first pixel is at `corner` (x, y).
    """
    (left, top), (height, width) = corner, size
    steps = np.diff(np.pad(mask.astype(np.int8), ((1, 1), (0, 0))), axis=0).T  # (w, h + 1)
    starts, ends = (np.nonzero(steps == step) for step in (1, -1))
    begin, end = ((left + column) * height + top + row for column, row in (starts, ends))
    apart = np.append(begin[1:] > end[:-1], True)  # from the bottom of a column to the top of the next
    begin, end = begin[np.append(True, apart[:-1])[: len(begin)]], end[apart[: len(end)]]
    runs = np.stack([begin, end], axis=1).ravel()
    return runs if len(runs) and runs[-1] == height * width else np.append(runs, height * width)


def next_points(first_point: Ints) -> Ints:
    """Return (P,) the position of the point after each one of its ring, of (R + 1,) starts of rings."""
    after = np.arange(1, int(first_point[-1]) + 1)
    lengths = np.diff(first_point)
    after[first_point[1:][lengths > 0] - 1] = first_point[:-1][lengths > 0]
    return after


def join_outlines(parts: Sequence[OutlineColumns]) -> OutlineColumns:
    """Return the polygons of concatenated annotations."""
    return OutlineColumns(
        np.concatenate([part.points for part in parts]),
        _joined([part.first_point for part in parts]),
        _joined([part.first_ring for part in parts]),
        np.concatenate([part.runs for part in parts]),
        _joined([part.first_run for part in parts]),
        np.concatenate([part.corners for part in parts]),
    )


def _joined(starts: Sequence[Ints]) -> Ints:
    return _starts(np.concatenate([np.diff(first) for first in starts]))


def _take(starts: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Return the starts of some pieces once they are concatenated, and the positions of what they have."""
    lengths = (starts[1:] - starts[:-1])[rows]
    new = np.concatenate([[0], np.cumsum(lengths)])
    if (np.diff(rows) > 0).all():
        chosen = np.zeros(len(starts) - 1, np.bool_)
        chosen[rows] = True
        return new, np.flatnonzero(np.repeat(chosen, np.diff(starts)))
    return new, np.arange(new[-1]) + np.repeat(starts[rows] - new[:-1], lengths)


class OutlineFaults(NamedTuple):
    """What is wrong with keys of annotations, by row."""

    segmentation: dict[int, str]
    corners: dict[int, str]


def read_outlines(
    segmentations: Sequence[Any], corners: Sequence[Any], heights: Ints, widths: Ints
) -> tuple[OutlineColumns, OutlineFaults]:
    """Return the polygons of annotations, and what is wrong with some; these have none.

    `segmentations`, `corners`: A values of a JSON file each; None for none. `heights`, `widths`: (A,) of the images.
    Rings of fewer than three points are left out.
    """
    faults = OutlineFaults({}, {})
    segmentations = [
        value if value is None or type(value) in (list, dict) else rings_of(value) for value in segmentations
    ]
    lists = [value if isinstance(value, list) else [] for value in segmentations]
    # three pairs of numbers in one ring would pass as three rings of a point each
    if not _are_rings(lists) or min(map(len, chain.from_iterable(lists)), default=6) < 6:
        lists = [*map(rings_of, lists)]
    if not _are_rings(lists):
        faults.segmentation.update((row, fault) for row, rings in enumerate(lists) if (fault := fault_of_rings(rings)))
        lists = [[] if row in faults.segmentation else rings for row, rings in enumerate(lists)]
    nothing = np.zeros(0, np.int64)
    runs = [nothing] * len(lists)
    for row, value in enumerate(segmentations):
        if value and not isinstance(value, list):
            runs[row], fault = read_runs(value, int(heights[row]), int(widths[row]))
            if fault:
                faults.segmentation[row] = fault
    row_of = np.repeat(np.arange(len(lists)), np.fromiter(map(len, lists), np.int64, len(lists)))
    flat = list(chain.from_iterable(lists))
    lengths = np.fromiter(map(len, flat), np.int64, len(flat))
    if (lengths < 6).any():
        flat = [ring for ring in flat if len(ring) >= 6]
        row_of, lengths = row_of[lengths >= 6], lengths[lengths >= 6]
    # A coordinate that float32 cannot hold becomes infinite, which is a fault below.
    with np.errstate(over="ignore"):
        points = np.fromiter(chain.from_iterable(flat), np.float32, int(lengths.sum())).reshape(-1, 2)
    far = np.flatnonzero(~(np.abs(points) <= LARGEST).all(1))
    points[far] = 0
    ring_of_far = np.unique(np.searchsorted(np.cumsum(lengths // 2), far, side="right"))
    faults.segmentation.update(dict.fromkeys(row_of[ring_of_far].tolist(), _NOT_FINITE))
    return OutlineColumns(
        points,
        _starts(lengths // 2),
        _starts(np.bincount(row_of, minlength=len(lists))),
        np.concatenate([*runs, nothing]).astype(np.int32),
        _starts([len(ends) for ends in runs]),
        _read_corners(corners, faults.corners),
    ), faults


def rings_of(value: Any) -> Any:
    """Return a segmentation as COCO has it, [[x, y, x, y, ...], ...], of other forms of rings; else the value itself.

    These are one ring as a flat list, rings of pairs [x, y], and tuples, arrays and NumPy's numbers instead of lists.
    An array is one ring, (n, 2) or flat; others may be masks.
    """
    if isinstance(value, np.ndarray) and (
        value.dtype.kind not in "iuf" or (value.ndim != 1 and value.shape[1:] != (2,))
    ):
        return value
    value = _plain(value)
    if not isinstance(value, list) or not value:
        return value
    if all(type(item) in (int, float) for item in value):
        return [value]
    if _are_pairs(value):
        return [[*chain.from_iterable(value)]]
    return [[*chain.from_iterable(ring)] if _are_pairs(ring) else ring for ring in value]


def _are_pairs(ring: Any) -> bool:
    """Return whether a ring is at least three pairs of numbers, not a list of numbers."""
    if not isinstance(ring, list) or len(ring) < 3:
        return False
    return all(isinstance(pair, list) and len(pair) == 2 and {*map(type, pair)} <= {int, float} for pair in ring)


def _plain(value: Any, depth: int = 3) -> Any:
    """Return lists and numbers of Python for tuples, arrays and numbers of NumPy; deeper ones than rings stay."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return [_plain(item, depth - 1) for item in value] if depth and isinstance(value, list | tuple) else value


def _read_corners(values: Sequence[Any], faults: dict[int, str]) -> NDArray[np.float64]:
    corners = np.full((len(values), 4, 2), np.nan)
    for row, value in enumerate(values):
        if value is not None:
            try:
                corners[row] = np.array(value, np.float64).reshape(4, 2)
            except (ValueError, TypeError, OverflowError):
                faults[row] = f"corners must be four pairs [x, y], got {shown(value)}"
                continue
            if not (np.abs(corners[row]) < 1e15).all():  # so that products of them are finite
                faults[row] = "corners must be finite numbers below 1e15"
    return corners


def _starts(lengths: Iterable[int]) -> Ints:
    return np.concatenate([[0], np.cumsum(np.fromiter(lengths, np.int64))])


_NOT_FINITE = "a ring of the segmentation must be finite numbers"


def _are_rings(lists: Sequence[Sequence[Any]]) -> bool:
    """Return whether all lists of rings are right: at once, which takes a third of the time."""
    flat = list(chain.from_iterable(lists))
    if not set(map(type, flat)) <= {list} or any(len(ring) % 2 for ring in flat):
        return False
    types = set(map(type, chain.from_iterable(flat)))
    return types == {float} or (types <= {int, float} and not fault_of_rings(flat))


def fault_of_rings(rings: Sequence[Any]) -> str:
    """Return what is wrong with rings; "" where nothing is."""
    for ring in rings:
        if not isinstance(ring, list) or len(ring) % 2 or not set(map(type, ring)) <= {int, float}:
            return f"a ring of the segmentation must be a list of x, y, x, y, ..., got {shown(ring)}"
        if ring and (max(ring) > LARGEST or min(ring) < -LARGEST):
            return _NOT_FINITE
    return ""


def read_runs(value: Any, height: int, width: int) -> tuple[Ints, str]:
    """Return where the runs of an RLE end, and what is wrong with it."""
    nothing = np.zeros(0, np.int64)
    if not isinstance(value, dict) or "counts" not in value:
        return nothing, f"the segmentation must be rings or RLE, got {shown(value)}"
    size = _plain(value.get("size"))
    if size != [height, width]:
        return nothing, f"the size of the RLE is {shown(size)}, that of the image {[height, width]}"
    counts = value["counts"]
    try:
        lengths = decode_counts(counts) if isinstance(counts, str | bytes) else np.array(counts, np.int64)
    except (ValueError, TypeError, OverflowError, IndexError):
        return nothing, f"the counts of the RLE cannot be read: {shown(counts)}"
    if lengths.ndim != 1 or (lengths < 0).any() or lengths.sum() != height * width:
        total = height * width
        return nothing, f"the counts of the RLE add up to {lengths.sum()}, the image has {total} pixels"
    return np.cumsum(lengths), ""


def box_of_runs(ends: Ints, height: int) -> tuple[int, int, int, int] | None:
    """Return the left, top, right and bottom edge of the pixels of a mask of runs; None for a mask without any."""
    start, end = ends[: len(ends) // 2 * 2].reshape(-1, 2).T
    start, end = start[end > start], end[end > start]
    if not len(start):
        return None
    left, right = start // height, (end - 1) // height
    in_one = left == right
    top, bottom = np.where(in_one, start % height, 0), np.where(in_one, (end - 1) % height + 1, height)
    return int(left.min()), int(top.min()), int(right.max()) + 1, int(bottom.max())


def decode_counts(text: str | bytes) -> Ints:
    """Return the RLE that COCO's compressed text has: 5 bits a letter, differences from the last but one run.

    Source: rleFrString in common/maskApi.c of https://github.com/cocodataset/cocoapi.
    """
    letters = np.frombuffer(text.encode() if isinstance(text, str) else text, np.uint8).astype(np.int64) - 48
    if not len(letters):
        return letters
    # the last letter must not say that another follows
    if ((letters < 0) | (letters > 63)).any() or letters[-1] & 32:
        raise ValueError("not a text of RLE")
    ends = np.flatnonzero((letters & 32) == 0)
    starts = np.concatenate([[0], ends[:-1] + 1])
    number = np.repeat(np.arange(len(ends)), ends - starts + 1)
    shift = 5 * (np.arange(len(letters)) - starts[number])
    values = np.bincount(number, (letters & 31) << shift).astype(np.int64)
    values -= ((letters[ends] >> 4) & 1) << (shift[ends] + 5)  # the highest bit is the sign
    values[1::2], values[2::2] = np.cumsum(values[1::2]), np.cumsum(values[2::2])
    return values


def encode_counts(lengths: Ints) -> str:
    """Return RLE as COCO's compressed text, which `decode_counts` reads."""
    (text,) = encode_many_counts(lengths, np.array([0, len(lengths)]))
    return text


def encode_many_counts(lengths: Ints, first: Ints) -> list[str]:
    """Return the RLE of M masks as COCO's compressed texts. Mask m has those from first[m] to first[m + 1]."""
    place = np.arange(len(lengths)) - np.repeat(first[:-1], np.diff(first))
    values = lengths.astype(np.int64)
    # the first three are written as they are
    later = np.flatnonzero(place > 2)
    values[later] -= lengths[later - 2]
    letters, more = list[NDArray[np.uint8]](), np.ones(len(values), np.bool_)
    while more.any():
        bits, values = values & 31, values >> 5
        another = values != np.where(bits & 16, -1, 0)
        letters.append(np.where(more, (bits | 32 * another) + 48, 0).astype(np.uint8))  # 0: no letter
        more &= another
    table = np.stack(letters, axis=1) if letters else np.zeros((0, 1), np.uint8)
    text = table[table > 0].tobytes().decode("ascii")
    ends = _starts((table > 0).sum(1))[first].tolist()
    return [text[start:end] for start, end in pairwise(ends)]
