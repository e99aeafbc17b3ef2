"""What the geometric ops move: for each image of a batch a view on it, and the boxes seen in that view.

This is NumPy in double precision, for a whole batch at once; the pixels come later, in one resample.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from detaug.boxes import polygons
from detaug.boxes.polygons import Bools as Bools
from detaug.boxes.polygons import Floats as Floats

Ints: TypeAlias = NDArray[np.int64]
Number = TypeVar("Number", bound=np.generic)
Fill: TypeAlias = tuple[float, ...]


@dataclass(frozen=True)
class Views:
    """N views. Geometric ops return new ones; nothing is changed in place.

    Until something turns a view, its axes are the source's, and a box is a box. From then on `turned` is true,
    each box has an outline, a polygon, and `boxes` are the hulls of those.
    """

    boxes: Floats
    """(N, M, 4) XYXY, relative to the view; inside it, in [0, 1]. Anything where there is no box."""
    labels: Ints
    """(N, M), 1..K; -1 where there is no box, or none any more."""
    visible: Floats
    """(N, M): which part of the object's area is left, 0..1."""
    matrix: Floats
    """(N, 3, 3): a point (x, y, 1) relative to the view -> source pixels, projective."""
    size: Floats
    """(N, 2): (height, width) of the view; in source pixels until `Resize`, in output pixels after it."""
    source_bounds: Floats
    """(N, 2, 2): the part of the source that may be seen, from (x0, y0) to (x1, y1) in pixels."""
    batch: Ints
    """(N,): which batch each image is in; images of one batch follow each other."""
    slot: Ints
    """(N,): where each image is among those that are painted at once, its batch or several."""
    fill: Fill | None = None
    """RGB, 0..255, of what lies beside it; None while the view cannot reach outside."""
    turned: bool = False
    """May the view's axes be others than the source's?"""
    projective: bool = False
    """May `matrix` be more than affine?"""
    outlines: Floats | None = None
    """(N, M, V, 2): polygons relative to the view, when a box has been turned by other than quarters."""
    clip_region: Floats | None = None
    """(N, V, 2): a polygon relative to the view, outside of which is fill, beside what `source_bounds` says."""
    epoch: int = 0

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, rows: slice | Ints) -> Views:
        """Some of the views."""
        values: dict[str, Any] = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays = {name: each[rows] for name, each in values.items() if isinstance(each, np.ndarray)}
        return Views(**{**values, **arrays})

    def replace_rows(self, rows: Ints, part: Views) -> Views:
        """These views, with those at `rows` as in `part`, and all that may be true of either."""
        both = replace(
            self,
            fill=part.fill or self.fill,
            turned=self.turned or part.turned,
            projective=self.projective or part.projective,
        )
        if self.outlines is not None or part.outlines is not None:
            ours, theirs = polygons.of_one_length(self.outlines_or_boxes(), part.outlines_or_boxes())
            both, part = replace(both, outlines=ours), replace(part, outlines=theirs)
        if self.clip_region is not None or part.clip_region is not None:
            ours, theirs = polygons.of_one_length(self.clip_region_or_all(), part.clip_region_or_all())
            both, part = replace(both, clip_region=ours), replace(part, clip_region=theirs)
        values = {name: each.copy() for name, each in vars(both).items() if isinstance(each, np.ndarray)}
        for name, array in values.items():
            array[rows] = getattr(part, name)[: len(rows)]
        return replace(both, **values)

    def outlines_or_boxes(self) -> Floats:
        """(N, M, V, 2): the boxes as polygons."""
        return polygons.from_boxes(self.boxes) if self.outlines is None else self.outlines

    def clip_region_or_all(self) -> Floats:
        """(N, V, 2): the clip_region, or one so large that nothing is outside."""
        everything = np.tile((polygons.UNIT_SQUARE - 0.5) * 1e4, (len(self), 1, 1))
        return everything if self.clip_region is None else self.clip_region

    # --------------------------------------------------------------------------------- looking elsewhere

    def crop_to(self, start: Floats, end: Floats) -> Views:
        """The views that span start..end of these: (N, 2) each, (x, y), relative.

        start > end along an axis mirrors it; below 0 and above 1 lies outside. Boxes are not clipped.
        """
        boxes = np.empty((4, *self.labels.shape))
        for axis in (0, 1):  # NumPy is slow where the last axis is short
            low, length = start[:, axis, None], (end - start)[:, axis, None]
            one, other = ((self.boxes[..., side] - low) / length for side in (axis, axis + 2))
            np.minimum(one, other, out=boxes[axis])
            np.maximum(one, other, out=boxes[axis + 2])
        return replace(
            self,
            boxes=boxes.transpose(1, 2, 0),
            matrix=part_matrix(self.matrix, start, end),
            size=self.size * abs(end - start)[:, ::-1],
            outlines=_rescaled(self.outlines, start, end),
            clip_region=_rescaled(self.clip_region, start, end),
        )

    def warp(
        self,
        change: Floats,
        size: Floats,
        fill: Fill,
        outline: Floats = polygons.UNIT_SQUARE,
        *,
        projective: bool = False,
    ) -> Views:
        """The views after a projective map of their pixels, in which they are then `size` (N, 2) (height, width).

        `change`: (N, 3, 3), from pixels of these views, (x, y), to pixels of the new ones. `outline`: the polygon
        in the unit square that stands for what is in a box, where none has been turned before. Boxes are not clipped.
        """
        views = replace(self.fill_outside(fill), projective=self.projective or projective)
        return views._warped(relative_map(change, self.size, size), size, outline)

    def _warped(self, change: Floats, size: Floats, outline: Floats) -> Views:
        outlines = polygons.from_boxes(self.boxes, outline) if self.outlines is None else self.outlines
        outlines = polygons.transform(change, outlines)
        return replace(
            self,
            boxes=polygons.hull(outlines),
            matrix=self.matrix @ inverse(change),
            size=size,
            turned=True,
            outlines=outlines,
            clip_region=None if self.clip_region is None else polygons.transform(change, self.clip_region),
        )

    def quarter_turns(self, turns: Ints) -> Views:
        """The views turned counter-clockwise by `turns` (N,) quarters."""
        change = _QUARTERS[turns % 4]
        return replace(
            self,
            boxes=polygons.hull(polygons.transform(change, polygons.from_boxes(self.boxes))),
            matrix=self.matrix @ _QUARTERS[-turns % 4],
            size=np.where((turns % 2 == 1)[:, None], self.size[:, ::-1], self.size),
            turned=True,
            outlines=None if self.outlines is None else polygons.transform(change, self.outlines),
            clip_region=None if self.clip_region is None else polygons.transform(change, self.clip_region),
        )

    def at_size(self, size: Floats) -> Views:
        """The same views, in other pixels: (N, 2) (height, width)."""
        return replace(self, size=size)

    def fill_outside(self, fill: Fill) -> Views:
        """What is out of view now is never seen again: `fill`, RGB 0..255, is there instead."""
        if not self.turned:
            return replace(self, source_bounds=np.sort(self.source_window(), axis=1), fill=fill)
        square = np.tile(polygons.UNIT_SQUARE, (len(self), 1, 1))
        return replace(
            self, clip_region=square if self.clip_region is None else polygons.clip(self.clip_region), fill=fill
        )

    def source_window(self) -> Floats:
        """(N, 2, 2): the part of the source in view, in pixels, from the view's (0, 0) to its (1, 1), if not turned."""
        return corners(self.matrix).clip(self.source_bounds[:, :1], self.source_bounds[:, 1:])

    def source_corners(self) -> Floats:
        """(N, 4, 2): where the view's four corners lie in the source, (x, y) pixels."""
        return polygons.transform(self.matrix, np.tile(polygons.UNIT_SQUARE, (len(self), 1, 1)))

    def overhang(self) -> float:
        """By how many source pixels the views reach outside what may be seen, at most."""
        corner = self.source_corners()
        return float(np.abs(corner - corner.clip(self.source_bounds[:, :1], self.source_bounds[:, 1:])).max(initial=0))

    # ------------------------------------------------------------------------------------------- boxes

    def clip(self, keep: Bools | None = None) -> Views:
        """The boxes cut off at the view's border: those that `keep`, (N, M), leaves, else those in view at all."""
        outlines = None if self.outlines is None else _clipped(self.outlines, self.labels >= 0)
        boxes = (self.boxes if outlines is None else polygons.hull(outlines)).clip(0, 1)
        before, after = _areas(self.boxes, self.outlines), _areas(boxes, outlines)
        left = np.minimum(np.where(before > 0, after, 1) / np.where(before > 0, before, 1), 1)
        clipped = replace(self, boxes=boxes, outlines=outlines, visible=self.visible * left)
        x0, y0, x1, y1 = boxes.transpose(2, 0, 1)
        return clipped.keep((x0 < x1) & (y0 < y1) if keep is None else keep)

    def keep(self, keep: Bools) -> Views:
        """The boxes that `keep`, (N, M), leaves, with their labels."""
        outlines = None if self.outlines is None else np.where(keep[..., None, None], self.outlines, 0)
        return replace(self, labels=np.where(keep, self.labels, -1), outlines=outlines)

    def shrink_boxes(self, boxes: Floats, share: Floats, least: float) -> Views:
        """Each box cut down to what is left of it, `boxes` (N, M, 4) XYXY pixels, if `share` (N, M) is `least` or more.

        `share`: which part of its area is left, 0..1. A box that is cut thinner than a pixel is dropped too. For
        ops after `Resize`: outlines are given up, for the boxes around them.
        """
        before, after = ((each[..., 2:] - each[..., :2]) for each in (self.pixel_boxes(), boxes))
        sliver = ((after < 1 - 1e-6) & (after < before - 1e-6)).any(2)
        relative = boxes / np.tile(self.size[:, ::-1], 2)[:, None]
        relative = np.where((share < 1)[..., None], relative, self.boxes)  # the whole ones to the last bit
        cut = replace(self, boxes=relative, visible=self.visible * share, outlines=None)
        return cut.keep((share >= least - 1e-9) & (share > 0) & ~sliver)

    def with_boxes_of(self, *others: Views) -> Views:
        """These views with the boxes of `others`, N views each, beside their own; for ops after `Resize`."""
        named = {name: [getattr(each, name) for each in (self, *others)] for name in ("boxes", "labels", "visible")}
        boxes, labels, visible = (np.concatenate(arrays, axis=1) for arrays in named.values())
        real = labels >= 0
        count = real.sum(1)
        return replace(
            self,
            boxes=padded(boxes[real], count, 0),
            labels=padded(labels[real], count, -1),
            visible=padded(visible[real], count, 1),
            outlines=None,
        )

    def pixel_boxes(self) -> Floats:
        """(N, M, 4) XYXY, in pixels of the view at its size."""
        sides = self.size.T[[1, 0, 1, 0]]
        return np.asarray((self.boxes.transpose(2, 0, 1) * sides[..., None]).transpose(1, 2, 0))

    # ---------------------------------------------------------------------------------------------- out

    def to_output(self) -> Floats:
        """Source pixels -> pixels of the view at its size: (N, 2, 3), or (N, 3, 3) for projective maps."""
        matrix = inverse(self.matrix)
        matrix[:, :2] *= self.size[:, ::-1, None]
        return np.asarray(matrix / matrix[:, 2:, 2:] if self.projective else matrix[:, :2])

    def packed(self) -> tuple[Floats, Ints, Ints]:
        """Boxes (N, M, 4) in pixels of the view and labels (N, M), the real ones first, and their counts (N,).

        M is the fullest image's count; behind the real ones, boxes are 0 and labels -1.
        """
        boxes, labels, count = self.unpadded()
        return padded(boxes, count, 0), padded(labels, count, -1), count

    def unpadded(self) -> tuple[Floats, Ints, Ints]:
        """Boxes (B, 4) in pixels of the view and labels (B,), of one image behind the other, and their counts (N,)."""
        real = self.labels >= 0
        count = real.sum(1)
        sides = np.repeat(self.size.T[[1, 0, 1, 0]], count, axis=1)
        boxes = self.boxes.transpose(2, 0, 1)[:, real] * sides  # NumPy is slow where the last axis is short
        return np.asarray(boxes.T), self.labels[real], count


def whole_images(boxes: Floats, labels: Ints, size: Floats) -> Views:
    """The views that are the whole images, one batch. `boxes`: (N, M, 4) XYXY, relative. `size`: (N, 2)."""
    size = np.asfortranarray(size)  # NumPy is slow where the last axis is short
    bounds = np.stack([np.zeros_like(size).T, size[:, ::-1].T]).transpose(2, 0, 1)
    matrix = view_matrix(bounds[:, 0], bounds[:, 1])
    batch, slot = np.zeros(len(boxes), np.int64), np.arange(len(boxes))
    return Views(boxes, labels, np.ones(labels.shape), matrix, size, bounds, batch, slot)


def pad_rows(rows: Sequence[NDArray[Number]], width: int, fill: float) -> NDArray[Number]:
    """(N, M, ...) from N arrays (M_i, ...), padded with `fill`; `width` is M."""
    padded = np.full((len(rows), width, *rows[0].shape[1:]), fill, rows[0].dtype)
    for at, row in enumerate(rows):
        padded[at, : len(row)] = row
    return padded


def padded(rows: NDArray[Number], count: Ints, fill: float) -> NDArray[Number]:
    """(N, M, ...) from the rows (B, ...) of N images, `count` (N,) of each; M is the largest of them."""
    real = np.arange(count.max(initial=0)) < count[:, None]
    array = np.full((*rows.shape[1:], *real.shape), fill, rows.dtype)
    array = np.moveaxis(array, (-2, -1), (0, 1))  # NumPy is slow where the last axis is short
    array[real] = rows
    return array


def start_offsets(lengths: Ints) -> Ints:
    """(N,): where each of N pieces of these lengths begins."""
    return np.asarray(np.cumsum(lengths) - lengths)


def pairs(first: Ints, rows: Ints) -> tuple[Ints, Ints]:
    """Each of `rows` with each of its boxes: (P,) positions in `rows`, and (P,) boxes.

    `first`, (R + 1,): the boxes of row r are first[r]:first[r + 1].
    """
    begin = first.take(rows)
    count = first.take(rows + 1) - begin
    end = np.cumsum(count)
    which = np.repeat(np.arange(len(rows)), count)
    return which, np.arange(len(which)) + (begin - end + count).take(which)


def view_matrix(start: Floats, end: Floats) -> Floats:
    """(N, 3, 3): the unit square -> start..end, (N, 2) each, (x, y)."""
    matrix = np.zeros((3, 3, len(start)))
    matrix[0, 0], matrix[1, 1] = (end - start).T
    matrix[:2, 2] = start.T
    matrix[2, 2] = 1
    return np.asarray(matrix.transpose(2, 0, 1))


def part_matrix(matrix: Floats, start: Floats, end: Floats) -> Floats:
    """(N, 3, 3): of the parts start..end, (N, 2) each, of views with this matrix."""
    columns = matrix.transpose(2, 1, 0)
    part = np.empty_like(columns)
    np.multiply(columns[:2], (end - start).T[:, None], out=part[:2])
    part[2] = columns[0] * start[:, 0] + columns[1] * start[:, 1] + columns[2]
    return np.asarray(part.transpose(2, 1, 0))


def inverse(matrix: Floats) -> Floats:
    """The inverse maps of (N, 3, 3) projective ones, by cofactors: a third of the time of LAPACK's, one by one."""
    (a, b, c), (d, e, f), (g, h, i) = matrix.transpose(1, 2, 0)
    rows = (
        (e * i - f * h, c * h - b * i, b * f - c * e),
        (f * g - d * i, a * i - c * g, c * d - a * f),
        (d * h - e * g, b * g - a * h, a * e - b * d),
    )
    determinant = a * rows[0][0] + b * rows[1][0] + c * rows[2][0]
    return np.asarray((np.array(rows) / determinant).transpose(2, 0, 1))


def corners(matrix: Floats) -> Floats:
    """(N, 2, 2): where the corners (0, 0) and (1, 1) of views that are not turned lie in the source, (x, y) pixels."""
    x, y, origin = matrix[:, :2].transpose(2, 1, 0)
    return np.asarray(np.stack([origin, x + y + origin]).transpose(2, 0, 1))


def invert(matrix: Floats) -> Floats:
    """The inverse maps of (N, 2, 3) affine or (N, 3, 3) projective ones, in the same form."""
    square = np.tile(np.eye(3), (len(matrix), 1, 1))
    square[:, : matrix.shape[1]] = matrix
    return inverse(square)[:, : matrix.shape[1]]


def relative_map(change: Floats, size: Floats, new_size: Floats) -> Floats:
    """(N, 3, 3), of relative points, from a map of pixels in views of `size` to pixels in views of `new_size`."""
    here, there = (np.concatenate([each[:, ::-1], np.ones((len(each), 1))], axis=1) for each in (size, new_size))
    return np.asarray(change * here[:, None] / there[..., None])


_QUARTERS = np.array(
    [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.0, 1.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 0.0, 1.0]],
        [[-1.0, 0.0, 1.0], [0.0, -1.0, 1.0], [0.0, 0.0, 1.0]],
        [[0.0, -1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
    ]
)
"""Turns by 0, 1, 2, 3 quarters counter-clockwise, y down, of the unit square onto itself."""


def _clipped(outlines: Floats, real: Bools) -> Floats:
    """(N, M, V, 2): what lies in the view of the real ones, (N, M); there are several times as many others."""
    left = polygons.clip(outlines[real])
    clipped = np.zeros((*real.shape, *left.shape[1:]))
    clipped[real] = left
    return clipped


def _rescaled(points: Floats | None, start: Floats, end: Floats) -> Floats | None:
    if points is None:
        return None
    start, length = ((each.reshape(-1, *[1] * (points.ndim - 2), 2)) for each in (start, end - start))
    return np.asarray((points - start) / length)


def _areas(boxes: Floats, outlines: Floats | None) -> Floats:
    if outlines is not None:
        return polygons.area(outlines)
    return np.asarray((boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1]))
