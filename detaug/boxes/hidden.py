"""Drop boxes whose masks no longer show, or show too few pixels.

It is decided while batches are planned, before a pixel is decoded, so counts of boxes are known without waiting for a
GPU. Most boxes need no look at their outlines: even if all that was cut off their boxes were of the object, enough of
it would be left. Of the others some points are sampled, and only where these do not suffice are all pixels counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.boxes.mask_table import MaskTable
from detaug.boxes.masks import ONE, Grid, Objects, objects_of, rasterise
from detaug.boxes.placement import Placement
from detaug.boxes.shapes import Shapes
from detaug.boxes.views import Views

SAMPLES = 12
"""Points along each side of a box that are sampled."""


def drop_hidden(views: Views, shapes: Shapes) -> Views:
    """Return the views, after all ops, without boxes of which fewer than `views.min_mask_area` mask pixels are seen."""
    if not shapes.has_masks or views.min_mask_area <= 0:
        return views
    table, (image, place) = shapes.mask_table, np.nonzero(views.labels >= 0)
    if not len(image):
        return views
    placement, (boxes, _, _) = Placement.of_views(views), views.unpadded()
    (a, b, _), (d, e, _), depth = np.moveaxis(placement.to_output, 0, 2)
    visible = views.visible[image, place]
    whole_box = (boxes[:, 2:] - boxes[:, :2]).prod(1) / visible.clip(1e-9)
    least = table.areas[placement.rows] * np.abs(a * e - b * d) - (1 - visible) * whole_box
    enough = (least > 2 * views.min_mask_area + 16) & (depth == [[0], [0], [1]]).all(0)
    unsure = np.flatnonzero(~enough)
    if not len(unsure):
        return views
    hidden = unsure[_show_fewer(table, objects_of(placement).part(unsure), boxes[unsure], views.min_mask_area)]
    keep = np.ones(views.labels.shape, bool)
    keep[image[hidden], place[hidden]] = False
    return views.keep(keep)


def _show_fewer(table: MaskTable, objects: Objects, boxes: Floats, pixels: float) -> Bools:
    """Return (B,): which objects show fewer pixels than these. `boxes`: (B, 4) XYXY output pixels that they lie in."""
    start, end = np.floor(boxes[:, :2]).astype(np.int64), np.ceil(boxes[:, 2:]).astype(np.int64)
    step = np.maximum(1, -(-(end - start) // SAMPLES))  # (B, 2)
    found = rasterise(table, objects, _grid(start + step // 2, step, (SAMPLES, SAMPLES))).sum((1, 2))
    fewer = np.asarray(found < pixels)
    for at in np.flatnonzero(fewer & (step > 1).any(1)).tolist():
        every = _grid(start[at : at + 1], np.ones((1, 2), np.int64), (end - start)[at].tolist())
        fewer[at] = rasterise(table, objects.part(slice(at, at + 1)), every).sum() < pixels
    return fewer


def _grid(start: Ints, step: Ints, counts: Sequence[int]) -> Grid:
    """Return the centres of `counts` pixels along x and y from `start` (B, 2) on, every `step`-th (B, 2) of them."""
    x, y = (a[:, None] + b[:, None] * np.arange(count) for a, b, count in zip(start.T, step.T, counts, strict=True))
    return Grid(y * ONE + ONE // 2, x * ONE + ONE // 2)
