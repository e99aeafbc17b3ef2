"""Drop boxes whose masks no longer show, or show too few pixels.

It is decided while batches are planned, before a pixel is decoded, so counts of boxes are known without waiting for a
GPU. Most boxes need no look at their outlines: the area and the centre of mass of an object tell how much of it a crop
leaves at least. Of the others some points are sampled, and only where these do not suffice are all pixels counted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.boxes.mask_table import MaskTable
from detaug.boxes.masks import BOUNDS, ONE, STENCIL, TO_SOURCE, Grid, Objects, covered, objects_of, rasterise
from detaug.boxes.placement import Placement
from detaug.boxes.views import Views

SAMPLES = (4, 16)
"""Points along each side of a box that are sampled, at first and then."""


def drop_hidden(views: Views) -> Views:
    """Return the views, after all ops, without boxes of which fewer than `views.min_mask_area` mask pixels are seen."""
    if not views.shapes.has_masks or views.min_mask_area <= 0:
        return views
    table, (image, place) = views.shapes.mask_table, np.nonzero(views.labels >= 0)
    if not len(image):
        return views
    placement, (boxes, _, _) = Placement.of_views(views), views.unpadded()
    objects = objects_of(placement)
    least = _pixels_at_least(table, objects, boxes, views.visible[image, place])
    unsure = np.flatnonzero(least <= 2 * views.min_mask_area + 16)
    if not len(unsure):
        return views
    hidden = unsure[_show_fewer(table, objects.part(unsure), boxes[unsure], views.min_mask_area)]
    keep = np.ones(views.labels.shape, bool)
    keep[image[hidden], place[hidden]] = False
    return views.keep(keep)


def _pixels_at_least(table: MaskTable, objects: Objects, boxes: Floats, visible: Floats) -> Floats:
    """Return (B,): how many output pixels are seen of each object at least.

    `boxes`: (B, 4) XYXY what is seen of their boxes; `visible`: (B,) which share of their areas.
    """
    cores, rows = table.cores, objects.rows
    (a, b, c), (d, e, f), (g, h, i) = objects.of_layer(TO_SOURCE, BOUNDS).T.reshape(3, 3, -1)
    area, (left, top, right, bottom) = cores.area[rows].astype(np.float64), cores.box[rows].astype(np.float64).T
    middle_x, middle_y = cores.middle[rows].astype(np.float64).T
    width, height = right - left, bottom - top
    with np.errstate(divide="ignore", invalid="ignore"):
        scale = 1 / np.abs(a * e - b * d)
        whole_box = (boxes[:, 2:] - boxes[:, :2]).prod(1) / visible
        least = area * scale - (1 - visible) * whole_box  # if all that is cut off belonged to the object
        share = area / (width * height)
        lost = _most_outside((a * boxes[:, [0, 2]].T + c - left) / width, share, (middle_x - left) / width)
        lost += _most_outside((e * boxes[:, [1, 3]].T + f - top) / height, share, (middle_y - top) / height)
        better = (share - lost) * width * height * scale
    straight = (b == 0) & (d == 0) & ~covered(objects, *boxes.T)
    least = np.where(straight & (better > least), better, least)
    known = (g == 0) & (h == 0) & (i == 1) & np.isfinite(least) & ~_near_stencils(objects)
    thin = np.minimum(boxes[:, 2] - boxes[:, 0], boxes[:, 3] - boxes[:, 1]) < 2
    return np.where(known & ~thin, least, -1)


def _near_stencils(objects: Objects) -> Bools:
    """Return (B,): whether the image of each object has stencils, which hide what boxes do not tell."""
    image = objects.layer // objects.layers.shape[1]
    return np.asarray((objects.layers[image, :, STENCIL] >= 0).any(1))


def _most_outside(seen: Floats, share: Floats, middle: Floats) -> Floats:
    """Return (B,): which share of its box an object has at most outside of a strip across it.

    `seen`: (2, B) the ends of the strip along an axis, in any order, and `middle` (B,) the centre of mass, where the
    box is 0..1; `share`: (B,) which share of its box the object fills. Beyond a line lies most if all of that is as
    near to the line as it can be, and the rest as near to the other end of the box.
    """
    low, high = seen.min(0).clip(0, 1), seen.max(0).clip(0, 1)
    most = np.zeros_like(share)
    for inner, from_end in ((high, middle), (1 - low, 1 - middle)):
        root = np.sqrt(np.maximum((share - inner) ** 2 - 2 * share**2 + 4 * share * from_end, 0))
        most += np.minimum(np.minimum(share, 1 - inner), (share - inner + root) / 2).clip(0)
    return most


def _show_fewer(table: MaskTable, objects: Objects, boxes: Floats, pixels: float) -> Bools:
    """Return (B,): which objects show fewer pixels than these. `boxes`: (B, 4) XYXY output pixels that they lie in."""
    start, end = np.floor(boxes[:, :2]).astype(np.int64), np.ceil(boxes[:, 2:]).astype(np.int64)
    fewer = np.ones(len(objects), bool)
    left = np.arange(len(objects))
    for samples in SAMPLES:
        step = np.maximum(1, -(-(end - start)[left] // samples))  # (B, 2)
        grid = _grid(start[left] + step // 2, step, (samples, samples))
        few = rasterise(table, objects.part(left), grid).sum((1, 2)) < pixels
        fewer[left[~few]] = False
        left = left[few & (step > 1).any(1)]
    for at in left.tolist():
        every = _grid(start[at : at + 1], np.ones((1, 2), np.int64), (end - start)[at].tolist())
        fewer[at] = rasterise(table, objects.part(slice(at, at + 1)), every).sum() < pixels
    return fewer


def _grid(start: Ints, step: Ints, counts: Sequence[int]) -> Grid:
    """Return the centres of `counts` pixels along x and y from `start` (B, 2) on, every `step`-th (B, 2) of them."""
    x, y = (a[:, None] + b[:, None] * np.arange(count) for a, b, count in zip(start.T, step.T, counts, strict=True))
    return Grid(y * ONE + ONE // 2, x * ONE + ONE // 2)
