"""Views: the part of each image that a recipe shows so far, and the boxes in it. Geometric ops move them.

A view is a projective map from the view to source pixels, not pixels: so any chain of flips, crops, rotations and
canvases ends in one map, and `Resize` resamples the image once. Coordinates are relative to the view, so that a crop is
a change of coordinates, whatever the image's size. As long as no op has turned the view, a box stays a box and costs
four numbers; from the first turn on it has a polygon too (see `polygons.py`). What an op puts outside of the view is
gone: a later op that shows it again shows fill. `source_bounds` stores this in source pixels, and `clip_region` for a
rotated view.

All is in double precision, for many images at once. Loops over boxes are Numba's, see `box_loops.py`. The rest is
NumPy, where a call costs much and a number little: keep the short axis (coordinates, rows of a matrix) first, since it
loops over the last one. Hence the transposes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Floats, Ints, in_order, padded
from detaug.boxes import box_loops, polygons
from detaug.boxes.fields import Field
from detaug.boxes.layers import Drawing, single_layer
from detaug.boxes.shapes import NO_SHAPES, Shapes
from detaug.errors import InputError
from detaug.pixel_format import RGB8, PixelFormat

Fill: TypeAlias = tuple[float, ...]


class BoxLimits(NamedTuple):
    """The sizes and shapes that boxes may have, in output pixels."""

    min_size: float = 0.0
    """Of width and height."""
    min_area: float = 0.0
    max_aspect_ratio: float = float("inf")
    """Of the longer to the shorter side."""

    def allow(self, boxes: Floats) -> Bools:
        """Return (...): whether boxes (..., 4) XYXY are within the limits."""
        sides = boxes[..., 2:] - boxes[..., :2]
        short, long = sides.min(-1), sides.max(-1)
        large = (short >= self.min_size - 1e-6) & (short * long >= self.min_area - 1e-6)
        return np.asarray(large & (long / short.clip(1e-9) <= self.max_aspect_ratio * (1 + 1e-9)))

    def together_with(self, other: BoxLimits) -> BoxLimits:
        """Return the limits that boxes within both have."""
        size, area = max(self.min_size, other.min_size), max(self.min_area, other.min_area)
        return BoxLimits(size, area, min(self.max_aspect_ratio, other.max_aspect_ratio))


NO_LIMITS = BoxLimits()


@dataclass(frozen=True)
class Views:
    """N images as a recipe shows them so far, with their boxes: what `move` of a `GeometricOp` gets and returns.

    Nothing is changed in place: the methods return new views, and so does `dataclasses.replace`. `len(views)` is N. M
    is the largest number of boxes of an image.

    Until an op rotates the view, its axes are the source's. `warp` gives each box a polygon. From then on
    `boxes` are the hulls of `outlines`, and an edit of `boxes` alone is lost: edit boxes before the turn, or drop the
    polygons too, by `replace(views, boxes=boxes, outlines=None)`. Drop boxes with `keep`, and change their number or
    order with `select_boxes`, which takes along all that belongs to a box.

    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class DropLow(da.GeometricOp):
    ...     min_height: float = 16.0
    ...     def move(self, views: da.Views, drawn) -> da.Views:
    ...         print(views.boxes, views.labels, views.size)
    ...         x0, y0, x1, y1 = views.pixel_boxes().transpose(2, 0, 1)
    ...         return views.keep(y1 - y0 >= self.min_height)
    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50], [0, 0, 30, 9]]])
    >>> print(DropLow()(samples).boxes[0])
    [[[0.1  0.1  0.3  0.5 ]
      [0.   0.   0.15 0.09]]] [[1 1]] [[100. 200.]]
    [[20. 10. 60. 50.]]
    """

    boxes: Floats
    """(N, M, 4) XYXY, relative to the view: 0..1 inside it. Any numbers where there is no box."""
    labels: Ints
    """(N, M), 1..K; -1 for padding and for dropped boxes."""
    visible: Floats
    """(N, M): the fraction of the object's area that is left, 0..1."""
    rows: Ints
    """(N, M): the row of each box in the columns of its source, `Source.columns`; any number if there is none."""
    matrix: Floats
    """(N, 3, 3): a point (x, y, 1) relative to the view -> source pixels, projective."""
    size: Floats
    """(N, 2): (height, width) of the view; in source pixels until `Resize`, in output pixels after it."""
    source_bounds: Floats
    """(N, 2, 2): (x0, y0) and (x1, y1) in source pixels; the source outside of this rectangle is never shown."""
    batch: Ints
    """(N,): the number of each image's batch; the images of a batch are consecutive."""
    slot: Ints
    """(N,): the position of each image among those that are rendered together, of one batch or several."""
    fill: Fill | None = None
    """A number for each band, RGB 0..255, of what lies outside of the source; None while the view cannot reach there,
    and for mixed images."""
    turned: bool = False
    """Whether the view's axes may differ from the source's."""
    projective: bool = False
    """Whether `matrix` may be more than affine."""
    fill_at_bounds: bool = False
    """Whether fill may begin at `source_bounds`, and not only at the sides of `clip_region`."""
    outlines: Floats | None = None
    """(N, M, V, 2): polygons relative to the view, which count instead of `boxes`; None until a turn by an angle."""
    clip_region: Floats | None = None
    """(N, V, 2): a polygon relative to the view; outside of it is fill, in addition to `source_bounds`."""
    epoch: int = 0
    """The number of the epoch, from 0."""
    drawing: Drawing | None = None
    """Where images lie in the output, once an op has mixed them or covered parts; None: each view is one layer."""
    layer_of_box: Ints | None = None
    """(N, M): the layer that each box is of; None: the first one."""
    field: Field | None = None
    """What bends the finished outputs; matrix, bounds and drawing are those of the undistorted ones."""
    frames: int = 1
    """The number of consecutive views that are frames of one clip, for which ops draw once."""
    limits: BoxLimits = NO_LIMITS
    """Boxes of the visible part of polygons are dropped at the end if they are outside of these."""
    min_mask_area: float = 1.0
    """Output pixels: boxes whose masks show fewer are dropped at the end, for a source with masks."""
    shapes: Shapes = NO_SHAPES
    """What the boxes have beside, by `rows`: no op moves it."""
    pixels: PixelFormat = RGB8
    """The bands and the type of the images: known where pixels are changed, and 8-bit RGB where boxes are planned."""

    def __len__(self) -> int:
        return len(self.boxes)

    def __getitem__(self, images: slice | Ints) -> Views:
        """Return the views of some images."""
        kinds = np.ndarray | Drawing | Field
        arrays: dict[str, Any] = {name: array[images] for name, array in vars(self).items() if isinstance(array, kinds)}
        return replace(self, **arrays)

    def first_frames(self) -> Views:
        """Return one view for each clip, that of its first frame, with the boxes of all its frames."""
        if self.frames == 1:
            return self
        shape = len(self) // self.frames, self.frames * self.labels.shape[1]
        arrays = self.box_arrays().items()
        joined: dict[str, Any] = {name: array.reshape(*shape, *array.shape[2:]) for name, array in arrays}
        return replace(self[:: self.frames], frames=1, **joined)

    def outlines_or_boxes(self) -> Floats:
        """Return (N, M, V, 2): the boxes as polygons."""
        return polygons.from_boxes(self.boxes) if self.outlines is None else self.outlines

    def clip_region_or_all(self) -> Floats:
        """Return (N, V, 2): the clip region, or one so large that nothing is outside."""
        everything = np.tile((polygons.UNIT_SQUARE - 0.5) * 1e4, (len(self), 1, 1))
        return everything if self.clip_region is None else self.clip_region

    def drawing_or_whole(self) -> Drawing:
        """Return where images lie in the output: by default each view is one layer."""
        whole = self.matrix, self.size, self.source_bounds, self.clip_region
        return self.drawing or Drawing(1, lambda: single_layer(*whole))

    def layer_of_box_or_first(self) -> Ints:
        """Return (N, M): the layer that each box is of."""
        return np.zeros_like(self.labels) if self.layer_of_box is None else self.layer_of_box

    # ------------------------------------------------------------------------------------ moving the view

    def crop_to(self, start: Floats, end: Floats) -> Views:
        """Crop the views to start..end, (N, 2) (x, y) each, relative.

        start > end mirrors an axis. Below 0 and above 1 is outside: call `fill_outside` first. Boxes are not clipped.
        """
        return replace(
            self,
            boxes=box_loops.crop(*in_order(self.boxes, self.labels, start, end)),
            matrix=part_matrix(self.matrix, start, end),
            size=self.size * abs(end - start)[:, ::-1],
            outlines=None if self.outlines is None else polygons.relative_to(self.outlines, start, end),
            clip_region=None if self.clip_region is None else polygons.relative_to(self.clip_region, start, end),
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
        """Turn, shear or distort the views. Boxes are not clipped.

        Args:
            change: (N, 3, 3), maps of (x, y, 1) in pixels of these views to pixels of the new ones.
            size: (N, 2), (height, width) of the new views in pixels.
            fill: RGB, 0..255, of what was outside of the views.
            outline: (V, 2), the shape of an object in a box not turned before, a polygon in the unit square.
            projective: Must be True if the last row of `change` is not (0, 0, 1).
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
        """Turn the views counter-clockwise by `turns` (N,) quarters."""
        change = _QUARTERS[turns % 4]
        # after quarter turns a box is a box: its hull is exact, and needs no polygon
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
        """Set the views' size in pixels, (N, 2) (height, width); what they show stays."""
        return replace(self, size=size)

    def fill_outside(self, fill: Fill) -> Views:
        """Replace all that is out of view now by `fill`, RGB 0..255."""
        if not self.turned:
            return replace(self, source_bounds=np.sort(self.source_window(), axis=1), fill=fill, fill_at_bounds=True)
        square = np.tile(polygons.UNIT_SQUARE, (len(self), 1, 1))
        region = square if self.clip_region is None else polygons.clip(self.clip_region)
        return replace(self, clip_region=region, fill=fill)

    def source_window(self) -> Floats:
        """Return (N, 2, 2): the view's corners (0, 0) and (1, 1), if not turned, in source pixels and bounds."""
        return corners(self.matrix).clip(self.source_bounds[:, :1], self.source_bounds[:, 1:])

    def source_corners(self) -> Floats:
        """Return (N, 4, 2): the view's four corners in the source, (x, y) pixels."""
        return polygons.transform(self.matrix, np.tile(polygons.UNIT_SQUARE, (len(self), 1, 1)))

    # ------------------------------------------------------------------------------------------- boxes

    def clip(self, keep: Bools | None = None) -> Views:
        """Clip boxes at the view's border. `keep` (N, M): the boxes that stay; None: those that are partly in view."""
        outlines = None if self.outlines is None else polygons.clip(self.outlines, self.labels >= 0)
        hulls = self.boxes if outlines is None else polygons.hull(outlines)
        boxes, left, seen = box_loops.clip(*in_order(hulls, self.labels))
        if self.outlines is not None and outlines is not None:
            before, after = polygons.area(self.outlines), polygons.area(outlines)
            left = np.minimum(np.where(before > 0, after, 1) / np.where(before > 0, before, 1), 1)
        clipped = replace(self, boxes=boxes, outlines=outlines, visible=self.visible * left)
        return clipped.keep(seen if keep is None else keep)

    def keep(self, keep: Bools) -> Views:
        """Drop the boxes where `keep`, (N, M), is False."""
        return replace(self, labels=np.where(keep, self.labels, -1))

    def shrink_boxes(self, boxes: Floats, share: Floats, min_share: float) -> Views:
        """Shrink boxes to what is left of them, `boxes` (N, M, 4) XYXY pixels. For ops after `Resize`.

        `share` (N, M): the fraction of the area that is left, 0..1. Boxes with less than `min_share` are dropped, and
        those that got thinner than a pixel. Polygons are discarded, their hulls stay.
        """
        before, after = ((corners[..., 2:] - corners[..., :2]) for corners in (self.pixel_boxes(), boxes))
        sliver = ((after < 1 - 1e-6) & (after < before - 1e-6)).any(2)
        relative = boxes / np.tile(self.size[:, ::-1], 2)[:, None]
        relative = np.where((share < 1)[..., None], relative, self.boxes)  # uncovered ones stay bit for bit
        cut = replace(self, boxes=relative, visible=self.visible * share, outlines=None)
        return cut.keep((share >= min_share - 1e-9) & (share > 0) & ~sliver)

    def with_boxes_of(self, *others: Views) -> Views:
        """Return these views with the boxes of `others`, N views each, added. For ops after `Resize`."""
        every = [replace(views, outlines=None).box_arrays() for views in (self, *others)]
        joined: dict[str, Any] = {name: np.concatenate([arrays[name] for arrays in every], axis=1) for name in every[0]}
        real = joined["labels"] >= 0
        return replace(self, **joined, fill=None, outlines=None).select_boxes(np.flatnonzero(real), real.sum(1))

    def box_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays (N, M, ...) that have a row for each box, by name."""
        return {name: array for name in _BOX_PADDING if (array := getattr(self, name)) is not None}

    def select_boxes(self, places: Ints, counts: Ints, **changed: NDArray[Any]) -> Views:
        """Return these views with some of the boxes, in another order, or several times.

        Args:
            places: (B,) positions in the flattened (N * M,) boxes.
            counts: (N,) how many of them each view gets.
            changed: (B, ...) arrays that replace those of the boxes, by name, such as `boxes`.
        """
        others = {name: array for name, array in self.box_arrays().items() if name not in changed}
        chosen = {name: array.reshape(-1, *array.shape[2:])[places] for name, array in others.items()} | changed
        arrays: dict[str, Any] = {name: padded(array, counts, _BOX_PADDING[name]) for name, array in chosen.items()}
        return replace(self, **arrays)

    def pixel_boxes(self) -> Floats:
        """Return (N, M, 4) XYXY, in pixels of the view."""
        sides = self.size.T[[1, 0, 1, 0]]
        return np.asarray((self.boxes.transpose(2, 0, 1) * sides[..., None]).transpose(1, 2, 0))

    # ------------------------------------------------------------------------------------------- results

    def to_output(self) -> Floats:
        """Return the maps from source pixels to pixels of the view: (N, 2, 3), or (N, 3, 3) if projective."""
        matrix = inverse(self.matrix)
        matrix[:, :2] *= self.size[:, ::-1, None]
        return np.asarray(matrix / matrix[:, 2:, 2:] if self.projective else matrix[:, :2])

    def packed(self) -> tuple[Floats, Ints, Ints]:
        """Return boxes (N, M, 4) in pixels of the view, labels (N, M) and counts (N,), real boxes first.

        M is the largest count; in the padding boxes are 0 and labels -1.
        """
        boxes, labels, count = self.unpadded()
        return padded(boxes, count, 0), padded(labels, count, -1), count

    def unpadded(self) -> tuple[Floats, Ints, Ints]:
        """Return boxes (B, 4) in pixels of the view and labels (B,), concatenated, and the images' counts (N,)."""
        boxes, labels, counts = box_loops.unpad(*in_order(self.boxes, self.labels, self.size))
        return boxes, labels, counts


_BOX_PADDING: dict[str, float] = {
    "boxes": 0, "labels": -1, "visible": 1, "rows": -1, "outlines": 0, "layer_of_box": 0
}  # fmt: skip
"""The fields of `Views` with a row for each box, and what pads them."""


def whole_images(
    boxes: Floats, labels: Ints, size: Floats, rows: Ints | None = None, shapes: Shapes = NO_SHAPES
) -> Views:
    """Return views of whole images, as one batch.

    `boxes`: (N, M, 4) XYXY, relative. `size`: (N, 2). `rows`: (N, M), by default the boxes are numbered in order.
    `shapes`: what belongs to these rows.
    """
    if rows is None:
        rows = np.cumsum(labels >= 0).reshape(labels.shape) - 1
    size = np.asfortranarray(size)  # the short axis first in memory
    bounds = np.stack([np.zeros_like(size).T, size[:, ::-1].T]).transpose(2, 0, 1)
    matrix = view_matrix(bounds[:, 0], bounds[:, 1])
    batch, slot = np.zeros(len(boxes), np.int64), np.arange(len(boxes))
    return Views(boxes, labels, np.ones(labels.shape), rows, matrix, size, bounds, batch, slot, shapes=shapes)


def replace_at(views: Views, images: Ints, other: Views) -> Views:
    """Return `views` with those at the indices `images` replaced by `other`, in order.

    Flags such as `turned` are then those of both. Without `images`, `other` is one view that only sets the flags.
    """
    both = replace(
        views,
        fill=other.fill or views.fill,
        turned=views.turned or other.turned,
        projective=views.projective or other.projective,
        fill_at_bounds=views.fill_at_bounds or other.fill_at_bounds,
    )
    if views.outlines is not None or other.outlines is not None:
        ours, theirs = polygons.pad_to_same_length(views.outlines_or_boxes(), other.outlines_or_boxes())
        both, other = replace(both, outlines=ours), replace(other, outlines=theirs)
    if views.clip_region is not None or other.clip_region is not None:
        ours, theirs = polygons.pad_to_same_length(views.clip_region_or_all(), other.clip_region_or_all())
        both, other = replace(both, clip_region=ours), replace(other, clip_region=theirs)
    if views.drawing is not None or other.drawing is not None:
        drawing = views.drawing_or_whole().replace_at(images, other.drawing_or_whole())
        both = replace(both, drawing=drawing, layer_of_box=views.layer_of_box_or_first())
        other = replace(other, layer_of_box=other.layer_of_box_or_first())
    if views.field is not None or other.field is not None:
        bends = [Field.none(either.size) if either.field is None else either.field for either in (views, other)]
        both = replace(both, field=bends[0].replace_at(images, bends[1]))
    values = {name: array.copy() for name, array in vars(both).items() if isinstance(array, np.ndarray)}
    for name, array in values.items():
        array[images] = getattr(other, name)[: len(images)]
    return replace(both, **values)


def rows_left(views: Views) -> Ints:
    """Return the `rows` (B,) of the boxes that are left, in the order of `Views.unpadded`.

    Raises InputError for a box that an op added, which has none: its label and columns would be those of another.
    """
    rows = views.rows[views.labels >= 0]
    if (rows < 0).any():
        raise InputError("an op added a box, which has no row among those that were given: use it in a Loader")
    return rows


def whole_where_close(pixels: Floats) -> Floats:
    """Return pixels, whole where they are but for rounding: 324 / 500 * 500 is a little less than 324. Never -0.0."""
    whole = np.round(pixels)
    return np.where(np.abs(pixels - whole) < 1e-9, whole, pixels) + 0.0


def class_labels(labels: Any, count: int) -> Ints:
    """Return labels as ops see them, (M,): whole numbers of at least 0; 0 for all others."""
    array = np.asarray(labels)
    whole = array.dtype.kind in "iu" and array.size == count
    return np.maximum(array.reshape(-1).astype(np.int64), 0) if whole else np.zeros(count, np.int64)


def view_matrix(start: Floats, end: Floats) -> Floats:
    """Return (N, 3, 3): maps of the unit square to start..end, (N, 2) (x, y) each."""
    matrix = np.zeros((3, 3, len(start)))
    matrix[0, 0], matrix[1, 1] = (end - start).T
    matrix[:2, 2] = start.T
    matrix[2, 2] = 1
    return np.asarray(matrix.transpose(2, 0, 1))


def part_matrix(matrix: Floats, start: Floats, end: Floats) -> Floats:
    """Return (N, 3, 3): the matrices of the parts start..end, (N, 2) each, of views with this matrix."""
    columns = matrix.transpose(2, 1, 0)
    part = np.empty_like(columns)
    np.multiply(columns[:2], (end - start).T[:, None], out=part[:2])
    part[2] = columns[0] * start[:, 0] + columns[1] * start[:, 1] + columns[2]
    return np.asarray(part.transpose(2, 1, 0))


def inverse(matrix: Floats) -> Floats:
    """Invert projective maps (N, 3, 3) by cofactors, in a third of the time of LAPACK, which takes one at a time."""
    (a, b, c), (d, e, f), (g, h, i) = matrix.transpose(1, 2, 0)
    rows = (
        (e * i - f * h, c * h - b * i, b * f - c * e),
        (f * g - d * i, a * i - c * g, c * d - a * f),
        (d * h - e * g, b * g - a * h, a * e - b * d),
    )
    determinant = a * rows[0][0] + b * rows[1][0] + c * rows[2][0]
    return np.asarray((np.array(rows) / determinant).transpose(2, 0, 1))


def corners(matrix: Floats) -> Floats:
    """Return (N, 2, 2): the corners (0, 0) and (1, 1) of views that are not turned, in source pixels (x, y)."""
    x, y, origin = matrix[:, :2].transpose(2, 1, 0)
    return np.asarray(np.stack([origin, x + y + origin]).transpose(2, 0, 1))


def invert(matrix: Floats) -> Floats:
    """Invert affine (N, 2, 3) or projective (N, 3, 3) maps; the result has the same form."""
    return inverse(square_maps(matrix))[:, : matrix.shape[1]]


def square_maps(matrix: Floats) -> Floats:
    """Return affine (N, 2, 3) or projective (N, 3, 3) maps as (N, 3, 3)."""
    square = np.tile(np.eye(3), (len(matrix), 1, 1))
    square[:, : matrix.shape[1]] = matrix
    return square


def mirrors(matrix: Floats) -> Bools:
    """Return (N,): whether affine (N, 2, 3) or projective (N, 3, 3) maps show their points as a mirror does."""
    (a, b, c), (d, e, f), *last = np.moveaxis(matrix, 0, 2)
    if not last:
        return np.asarray(a * e - b * d < 0)
    ((g, h, i),) = last
    return np.asarray(a * (e * i - f * h) - b * (d * i - f * g) + c * (d * h - e * g) < 0)


def relative_map(change: Floats, size: Floats, new_size: Floats) -> Floats:
    """Return (N, 3, 3), on relative points, of a map `change` from pixels of views of `size` to those of `new_size`."""
    here, there = (np.concatenate([sizes[:, ::-1], np.ones((len(sizes), 1))], axis=1) for sizes in (size, new_size))
    return np.asarray(change * here[:, None] / there[..., None])


_QUARTERS = np.array(
    [
        [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]],
        [[0.0, 1.0, 0.0], [-1.0, 0.0, 1.0], [0.0, 0.0, 1.0]],
        [[-1.0, 0.0, 1.0], [0.0, -1.0, 1.0], [0.0, 0.0, 1.0]],
        [[0.0, -1.0, 1.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]],
    ]
)
"""Maps of the unit square that turn it by 0, 1, 2, 3 quarters counter-clockwise, y down."""
