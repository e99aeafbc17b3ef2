"""The one geometry record: a matrix from the view to the source image, and the one resample that renders it."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math

from detaug.sample import Node, Sample


def view_matrix(start: ArrayLike, end: ArrayLike) -> NDArray[np.float32]:
    """(N, 2, 3) matrices of views that span start..end of the old view; (N, 2) each, (x, y), relative.

    start > end along an axis mirrors it. Below 0 and above 1 lies outside the old view.
    """
    start, end = np.asarray(start, np.float64), np.asarray(end, np.float64)
    matrix = np.zeros((len(start), 2, 3), np.float32)
    matrix[:, [0, 1], [0, 1]] = end - start
    matrix[:, :, 2] = start
    return matrix


def compose(matrix: Node, view: Node) -> Node:
    """The record after an op: new view -> (view) -> old view -> (matrix) -> source pixels."""
    return fn.transforms.combine(view, matrix)


def corners(matrix: Node) -> Node:
    """(2, 2): where the view's corners (0, 0) and (1, 1) lie in the source image, (x, y) pixels."""
    return fn.coord_transform(types.Constant(np.array([[0, 0], [1, 1]], np.float32)), MT=matrix)


def swap_xy(points: Node) -> Node:
    """(K, 2) points (x, y) -> (y, x), and back."""
    return fn.coord_transform(points, M=[0.0, 1.0, 1.0, 0.0])


def move_boxes(boxes: Node, matrix: Node) -> Node:
    """(M, 4) XYXY boxes through a (2, 3) matrix that neither mirrors nor rotates."""
    points = fn.coord_transform(fn.reshape(boxes, shape=[-1, 2]), MT=matrix)
    return fn.reshape(points, shape=[-1, 4])


def shown(sample: Sample) -> Node:
    """(2, 2): what of the source image the view can show, from (x0, y0) to (x1, y1), in source pixels."""
    whole = corners(sample.source) if sample.shown is None else sample.shown
    if sample.matrix is sample.source:
        return whole
    (start, end), limits = _rows(corners(sample.matrix)), _rows(whole)
    return dali_math.clamp(fn.stack(dali_math.min(start, end), dali_math.max(start, end)), *limits)


def render(sample: Sample, size: Node) -> Sample:
    """Resample the view to an image of `size`: (2,) float32 (height, width), whole pixels.

    One antialiased linear resample. Source: half-pixel centres as Pillow, torchvision and DALI have them.
    """
    if sample.fill is None:
        start, end = _rows(swap_xy(corners(sample.matrix)))
        image = fn.resize(sample.image, roi_start=start, roi_end=end, size=size)
        return sample._replace(image=image, size=size, rendered=True)
    return _render_filled(sample, size, sample.fill)


def _render_filled(sample: Sample, size: Node, fill: tuple[float, ...]) -> Sample:
    """Resample the part of the view that shows the image, and lay it on a canvas of `fill`.

    The part takes a whole number of output pixels; boxes and matrix follow that rounding, so they stay exact.
    """
    size_xy = fn.reshape(swap_xy(fn.reshape(size, shape=[1, 2])), shape=[2])
    view = corners(sample.matrix)
    view_start, view_end = _rows(view)
    limits = corners(sample.source) if sample.shown is None else sample.shown
    seen = dali_math.clamp(view, *_rows(limits))  # in source pixels
    seen_in_view = (seen - view_start) / (view_end - view_start)
    old_start, old_end = _rows(seen_in_view)
    length = dali_math.max(_round((old_end - old_start) * size_xy), 1.0)
    start = dali_math.min(_round(old_start * size_xy), size_xy - length)

    seen_start, seen_end = _rows(seen)
    new_start, new_end = start / size_xy, (start + length) / size_xy
    moved = fn.transforms.crop(from_start=old_start, from_end=old_end, to_start=new_start, to_end=new_end)
    matrix = fn.transforms.crop(from_start=new_start, from_end=new_end, to_start=seen_start, to_end=seen_end)

    roi_start, roi_end = _rows(swap_xy(seen))
    start_yx, length_yx = _rows(swap_xy(fn.stack(start, length)))
    image = fn.resize(sample.image, roi_start=roi_start, roi_end=roi_end, size=length_yx)
    image = fn.slice(
        image, fn.cast(-start_yx, dtype=types.INT32), fn.cast(size, dtype=types.INT32),
        axes=[0, 1], out_of_bounds_policy="pad", fill_values=list(fill),
    )  # fmt: skip
    boxes = dali_math.clamp(move_boxes(sample.boxes, moved), 0.0, 1.0)
    return sample._replace(image=image, boxes=boxes, matrix=matrix, size=size, rendered=True, fill=None)


def _round(value: Node) -> Node:
    return dali_math.floor(value + 0.5)


def _rows(pair: Node) -> tuple[Node, Node]:
    return pair[0], pair[1]
