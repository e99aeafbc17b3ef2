"""Replace turned and cut boxes by boxes around the visible part of the outline of each object."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from detaug.arrays import Bools, Floats
from detaug.boxes.hidden import drop_hidden
from detaug.boxes.mask_table import MaskTable
from detaug.boxes.masks import Grid, objects_of, rasterise
from detaug.boxes.placement import Placement
from detaug.boxes.units import COVERS, ONE
from detaug.boxes.views import Views
from detaug.boxes.visible_part import rings_of, rings_of_polygons, seen_boxes
from detaug.converters.coco.rings import box_of_mask

MIN_SIDE = 0.01
"""Output pixels: a thinner box is dropped, as in a json."""

NEAR = 1.5
"""Output pixels from a side of a box, within which a mask has a pixel: a corner of a pixel has its centre near it."""


def fit_to_shapes(views: Views) -> Views:
    """Return the views, after all ops, with the boxes that their shapes leave: masks that are seen, tight boxes."""
    return tighten(drop_hidden(views))


def tighten(views: Views) -> Views:
    """Return the views, after all ops, with boxes around what is seen of the outlines of their objects.

    Boxes of objects that no op has turned, cut or covered stay, and those without an outline. A box of which nothing is
    seen is dropped. Where later layers and holes move a side, decision 21, it is that of a pixel.
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
        if views.drawing is not None:
            changed |= _may_be_covered(placement, views.pixel_boxes()[image, place])
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
    if outlines is not None:
        unsure = (np.diff(outlines.first_run)[placement.rows] > 0) & (views.visible[image, place] < 1 - 1e-9)
        if views.drawing is not None:
            unsure |= _may_be_covered(placement, found)
        at = np.flatnonzero(unsure)
        found[at] = _as_rasterised(shapes.outline_table, placement.some(at), found[at])
    sides = np.tile(views.size[:, ::-1], 2)[image]
    before = views.boxes[image, place] * sides
    tight = np.concatenate([np.maximum(found[:, :2], before[:, :2]), np.minimum(found[:, 2:], before[:, 2:])], axis=1)
    left = (tight[:, 2:] - tight[:, :2] >= MIN_SIDE).all(1) & views.limits.allow(tight)
    boxes, labels = views.boxes.copy(), views.labels.copy()
    boxes[image[left], place[left]] = (tight / sides)[left]
    labels[image[~left], place[~left]] = -1
    return replace(views, boxes=boxes, labels=labels, outlines=None)


def _may_be_covered(placement: Placement, boxes: Floats) -> Bools:
    """Return (B,): whether a later layer or a hole lies on objects with these boxes, (B, 4) XYXY output pixels."""
    layers, image, layer = placement.layers, placement.image, placement.layer
    covers = (np.arange(layers.image.shape[1]) > layer[:, None]) & (layers.share[image] >= 1)
    covers &= layers.copy[image] != layers.copy[image, layer][:, None]
    rectangle, around = layers.rectangle[image], boxes[:, None]
    meets = (np.maximum(rectangle[..., :2], around[..., :2]) < np.minimum(rectangle[..., 2:], around[..., 2:])).all(2)
    if placement.field is not None:  # rectangles are those before the field
        meets |= placement.field.bends[image, None]
    return np.asarray((covers & meets).any(1))


def _as_rasterised(table: MaskTable, placement: Placement, boxes: Floats) -> Floats:
    """Return boxes (B, 4) XYXY around what is seen of outlines, with the sides that `seen_boxes` does not know.

    `boxes`: its boxes, which are more exact where they hold. It leaves out later layers and holes, so sides move where
    the pixels that are seen end elsewhere than without them; and it fills the columns of masks of run lengths, so sides
    of these move where no pixel is near them.
    """
    objects, boxes = objects_of(placement), boxes.copy()
    layers = objects.layers.copy()
    layers[..., COVERS] = 0
    uncovered = replace(objects, layers=layers)
    for at in np.flatnonzero(np.isfinite(boxes).all(1)).tolist():
        left, top, right, bottom = np.concatenate([np.floor(boxes[at, :2]), np.ceil(boxes[at, 2:])]).astype(int)
        corner = np.array([left, top, left, top])
        grid = Grid(*(np.arange(start, end)[None] * ONE + ONE // 2 for start, end in ((top, bottom), (left, right))))
        seen, whole = (rasterise(table, each.part(np.array([at])), grid)[0] for each in (objects, uncovered))
        if seen.any():
            own, without = (np.array(box_of_mask(mask)) + corner for mask in (seen, whole))
            moves = own != without
            if table.has_runs[placement.rows[at]]:
                moves |= np.abs(own - boxes[at]) > NEAR
            boxes[at] = np.where(moves, own, boxes[at])
        elif whole.any() or (table.has_runs[placement.rows[at]] and (boxes[at, 2:] - boxes[at, :2] > NEAR).all()):
            boxes[at] = np.inf, np.inf, -np.inf, -np.inf
    return boxes
