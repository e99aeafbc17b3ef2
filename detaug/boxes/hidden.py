"""Drop boxes whose masks no longer show, or show too few pixels.

It is decided while batches are planned, before a pixel is decoded, so counts of boxes are known without waiting for a
GPU. Objects that are much larger than what was cut off need no look at their outlines; of the others pixels are counted
only until there are enough.
"""

from __future__ import annotations

import numpy as np

from detaug.arrays import Floats
from detaug.boxes.mask_table import MaskTable
from detaug.boxes.masks import PlacedObjects, objects_of, show_fewer
from detaug.boxes.placement import Placement
from detaug.boxes.units import BOUNDS, TO_SOURCE
from detaug.boxes.views import Views


def drop_hidden(views: Views) -> Views:
    """Return the views, after all ops, without boxes of which fewer than `views.min_mask_area` mask pixels are seen."""
    if not views.shapes.has_masks or views.min_mask_area <= 0:
        return views
    image, place = np.nonzero(views.labels >= 0)
    if not len(image):
        return views
    table, objects, (boxes, _, _) = views.shapes.mask_table, objects_of(Placement.of_views(views)), views.unpadded()
    least = _least_pixels(table, objects, boxes, views.visible[image, place])
    strays = views.shapes.strays[objects.rows] if len(views.shapes.strays) else np.zeros(len(objects), bool)
    unsure = np.flatnonzero(~(least > 2 * views.min_mask_area + 16) | strays)
    hidden = unsure[show_fewer(table, objects.part(unsure), boxes[unsure], views.min_mask_area)]
    if strays[hidden].any():
        views_of, own = np.zeros((len(hidden), 4)), strays[hidden]
        views_of[:, 2:] = views.size[image[hidden], ::-1]
        hidden = hidden[~own | show_fewer(table, objects.part(hidden), views_of, views.min_mask_area)]
    keep = np.ones(views.labels.shape, bool)
    keep[image[hidden], place[hidden]] = False
    return views.keep(keep)


def _least_pixels(table: MaskTable, objects: PlacedObjects, boxes: Floats, visible: Floats) -> Floats:
    """Return (B,): how many pixels of each object are seen at least, about: 0 where that is not known.

    `boxes`: (B, 4) XYXY the visible part of their boxes; `visible`: (B,) which fraction of their areas. It assumes that
    all that was cut off belonged to the object. Near stencils it is not known: there `visible` is a fraction of the
    mask.
    """
    (a, b, _), (d, e, _), (g, h, i) = objects.of_layer(TO_SOURCE, BOUNDS).T.reshape(3, 3, -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        whole = table.areas[objects.rows] / np.abs(a * e - b * d)
        if objects.field is not None:
            whole /= objects.field.growth()[objects.image]
        cut_off = (1 - visible) * (boxes[:, 2:] - boxes[:, :2]).prod(1) / visible
    known = (g == 0) & (h == 0) & (i == 1) & ((visible >= 1 - 1e-9) | (len(objects.stencils) == 0))
    return np.where(known, whole - cut_off, 0)
