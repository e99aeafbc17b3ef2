"""Tight boxes: those of what is seen of an object's outline, in the place of turned and cut boxes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from detaug.boxes.placement import Placement
from detaug.boxes.shapes import Shapes
from detaug.boxes.views import Views
from detaug.boxes.visible_part import seen_boxes, vertices_of, vertices_of_polygons

MIN_SIDE = 0.01
"""Output pixels: a thinner box is dropped, as in a json."""


def tighten(views: Views, shapes: Shapes) -> Views:
    """Return the views, after all ops, with boxes around what is seen of the outlines of their objects.

    Boxes of objects that no op has turned or cut stay, and those without an outline. A box of which nothing is seen is
    dropped.
    """
    outlines, corners = shapes.outlines, shapes.corners
    if not shapes.tight or (outlines is None and corners is None):
        return views
    real = views.labels >= 0
    changed = real & ((views.visible < 1 - 1e-9) | views.turned)
    image, place = np.nonzero(changed)
    rows = views.rows[changed]
    if outlines is not None:
        has = (outlines.first_ring[rows + 1] > outlines.first_ring[rows]) | (
            outlines.first_run[rows + 1] > outlines.first_run[rows]
        )
        image, place, rows = image[has], place[has], rows[has]
    if not len(rows):
        return views
    layers = views.drawing_or_whole().layers
    layer = views.layer_of_box_or_first()[image, place]
    placement = Placement(layers, image, layer, rows)
    if outlines is not None:
        vertices = vertices_of(outlines, rows, shapes.heights[rows])
    else:
        assert corners is not None
        vertices = vertices_of_polygons(corners[rows])
    found = seen_boxes(vertices, placement)
    sides = np.tile(views.size[:, ::-1], 2)[image]
    before = views.boxes[image, place] * sides
    tight = np.concatenate([np.maximum(found[:, :2], before[:, :2]), np.minimum(found[:, 2:], before[:, 2:])], axis=1)
    left = (tight[:, 2:] - tight[:, :2] >= MIN_SIDE).all(1)
    boxes, labels = views.boxes.copy(), views.labels.copy()
    boxes[image[left], place[left]] = (tight / sides)[left]
    labels[image[~left], place[~left]] = -1
    return replace(views, boxes=boxes, labels=labels, outlines=None)
