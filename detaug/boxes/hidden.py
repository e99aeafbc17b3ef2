"""Drop boxes whose masks no longer show, or show too few pixels.

It is decided while batches are planned, before a pixel is decoded, so counts of boxes are known without waiting for a
GPU. Few points tell it of nearly all boxes: pixels are counted only until there are enough.
"""

from __future__ import annotations

import numpy as np

from detaug.boxes.masks import objects_of, show_fewer
from detaug.boxes.placement import Placement
from detaug.boxes.views import Views


def drop_hidden(views: Views) -> Views:
    """Return the views, after all ops, without boxes of which fewer than `views.min_mask_area` mask pixels are seen."""
    if not views.shapes.has_masks or views.min_mask_area <= 0:
        return views
    image, place = np.nonzero(views.labels >= 0)
    if not len(image):
        return views
    objects, (boxes, _, _) = objects_of(Placement.of_views(views)), views.unpadded()
    hidden = show_fewer(views.shapes.mask_table, objects, boxes, views.min_mask_area)
    keep = np.ones(views.labels.shape, bool)
    keep[image[hidden], place[hidden]] = False
    return views.keep(keep)
