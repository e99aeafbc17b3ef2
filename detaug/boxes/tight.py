"""Replace turned and cut boxes by boxes around the visible part of the outline of each object."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from detaug.boxes.hidden import drop_hidden
from detaug.boxes.placement import Placement
from detaug.boxes.views import Views
from detaug.boxes.visible_part import rings_of, rings_of_polygons, seen_boxes

MIN_SIDE = 0.01
"""Output pixels: a thinner box is dropped, as in a json."""


def fit_to_shapes(views: Views) -> Views:
    """Return the views, after all ops, with the boxes that their shapes leave: masks that are seen, tight boxes."""
    return tighten(drop_hidden(views))


def tighten(views: Views) -> Views:
    """Return the views, after all ops, with boxes around what is seen of the outlines of their objects.

    Boxes of objects that no op has turned or cut stay, and those without an outline. A box of which nothing is seen is
    dropped.
    """
    shapes = views.shapes
    outlines, corners = shapes.outlines, shapes.corners
    if not shapes.tight or (outlines is None and corners is None):
        return views
    placement, (image, place) = Placement.of_views(views), np.nonzero(views.labels >= 0)
    changed = (views.visible[image, place] < 1 - 1e-9) | views.turned
    if views.field is not None:
        changed |= views.field.bends[image]
    if outlines is not None:
        changed &= outlines.are_there(placement.rows)
    if not changed.any():
        return views
    placement, image, place = placement.some(np.flatnonzero(changed)), image[changed], place[changed]
    if outlines is not None:
        rings = rings_of(outlines, placement.rows, shapes.heights[placement.rows])
    else:
        assert corners is not None
        rings = rings_of_polygons(corners[placement.rows])
    found = seen_boxes(rings, placement)
    sides = np.tile(views.size[:, ::-1], 2)[image]
    before = views.boxes[image, place] * sides
    tight = np.concatenate([np.maximum(found[:, :2], before[:, :2]), np.minimum(found[:, 2:], before[:, 2:])], axis=1)
    left = (tight[:, 2:] - tight[:, :2] >= MIN_SIDE).all(1)
    boxes, labels = views.boxes.copy(), views.labels.copy()
    boxes[image[left], place[left]] = (tight / sides)[left]
    labels[image[~left], place[~left]] = -1
    return replace(views, boxes=boxes, labels=labels, outlines=None)
