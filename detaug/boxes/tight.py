"""Replace turned and cut boxes by boxes around the visible part of the outline of each object."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.boxes.hidden import drop_hidden
from detaug.boxes.mask_table import MaskTable
from detaug.boxes.masks import Grid, PlacedObjects, objects_of, rasterise
from detaug.boxes.placement import NEAR, Placement
from detaug.boxes.rotated import is_seen
from detaug.boxes.units import INTERVAL, ONE
from detaug.boxes.views import Views
from detaug.boxes.visible_part import rings_of, rings_of_polygons, seen_boxes

MIN_SIDE = 0.01
"""Output pixels: a thinner box is dropped, as in a JSON file."""


def fit_to_shapes(views: Views) -> Views:
    """Return the views, after all ops, with the boxes that their shapes leave.

    Those are boxes with masks and rotated boxes of which something is seen, and tight boxes (decision 26).
    """
    return _drop_flat(tighten(drop_hidden(views)))


def _drop_flat(views: Views) -> Views:
    """Return the views without boxes whose rotated boxes have no area, in their image or in view."""
    shapes, (image, place) = views.shapes, np.nonzero(views.labels >= 0)
    if shapes.corners is None or not len(image):
        return views
    rows = views.rows[image, place]
    unsure = views.visible[image, place] < 1 - 1e-9  # where all of a box is seen, so are corners in it
    unsure |= shapes.stray_corners[rows] if len(shapes.stray_corners) else True
    if views.field is not None:
        unsure |= views.field.bends[image]
    left, uncertain = ~shapes.has_flat_corners[rows], np.flatnonzero(unsure)
    if len(uncertain):
        left[uncertain] &= is_seen(shapes.corners[rows[uncertain]], Placement.of_views(views).some(uncertain), MIN_SIDE)
    keep = np.ones(views.labels.shape, bool)
    keep[image, place] = left
    return views if left.all() else views.keep(keep)


def tighten(views: Views) -> Views:
    """Return the views, after all ops, with boxes around the visible part of the outlines of their objects.

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
            changed |= _covered_sides(placement, views.pixel_boxes()[image, place]).any(1)
        changed &= outlines.are_there(placement.rows)
    if not changed.any():
        return views
    placement, image, place = placement.some(np.flatnonzero(changed)), image[changed], place[changed]
    if outlines is not None:
        rings = rings_of(outlines, placement.rows, shapes.heights[placement.rows])
    else:
        assert corners is not None
        rings = rings_of_polygons(corners[placement.rows])
    seen = seen_boxes(rings, placement)
    sides = np.tile(views.size[:, ::-1], 2)[image]
    before = views.boxes[image, place] * sides
    if outlines is not None:
        rough = (np.diff(outlines.first_run)[placement.rows] > 0) & (views.visible[image, place] < 1 - 1e-9)
        unsure = np.repeat(rough[:, None], 4, axis=1)
        if views.drawing is not None:
            copied = _are_in_several_layers(placement)
            seen[copied], rough = before[copied], rough | copied
            unsure = rough[:, None] | _covered_sides(placement, seen)
        uncertain = np.flatnonzero(unsure.any(1))
        seen[uncertain] = _as_rasterised(
            shapes.outline_table, placement.some(uncertain), seen[uncertain], unsure[uncertain], rough[uncertain]
        )
    tight = np.concatenate([np.maximum(seen[:, :2], before[:, :2]), np.minimum(seen[:, 2:], before[:, 2:])], axis=1)
    left = (tight[:, 2:] - tight[:, :2] >= MIN_SIDE).all(1) & views.limits.allow(tight)
    boxes, labels = views.boxes.copy(), views.labels.copy()
    boxes[image[left], place[left]] = (tight / sides)[left]
    labels[image[~left], place[~left]] = -1
    return replace(views, boxes=boxes, labels=labels, outlines=None)


def _covered_sides(placement: Placement, boxes: Floats) -> Bools:
    """Return (B, 4): whether a later layer or a hole may lie on the sides of boxes (B, 4) XYXY output pixels."""
    sides = placement.covered_sides(boxes)
    if placement.field is not None:  # rectangles are those before the field
        sides |= placement.field.bends[placement.image, None]
    return sides


def _are_in_several_layers(placement: Placement) -> Bools:
    """Return (B,): whether other layers show the same copy of the image of an object, in other rectangles."""
    layers, image, layer = placement.layers, placement.image, placement.layer
    used = np.asarray((layers.rectangle[..., :2] < layers.rectangle[..., 2:]).all(2))
    same = (layers.copy[image] == layers.copy[image, layer][:, None]) & used[image]
    return np.asarray(same.sum(1) > used[image, layer])


def _as_rasterised(table: MaskTable, placement: Placement, boxes: Floats, unsure: Bools, rough: Bools) -> Floats:
    """Return boxes (B, 4) XYXY around the visible part of outlines, with the sides that `seen_boxes` does not know.

    `boxes`: those of `seen_boxes`, exact but for two things. It does not know later layers and holes: a side that these
    touch, `unsure` (B, 4), moves if they change where the pixels end. And it fills the gaps in columns of RLE,
    so that some boxes, `rough` (B,), are too large: their sides move to the pixels if none is near.
    """
    objects, boxes = objects_of(placement), boxes.copy()
    layers = objects.layers.copy()
    layers[..., INTERVAL : INTERVAL + 2] = np.arange(layers.shape[1])[:, None]  # apart, so that none covers another
    uncovered = replace(objects, layers=layers)
    for index in np.flatnonzero(np.isfinite(boxes).all(1)).tolist():
        window = np.concatenate([np.floor(boxes[index, :2]), np.ceil(boxes[index, 2:])]).astype(int)
        own, whole = (
            partial(_outermost, table, placed.part(np.array([index])), window) for placed in (objects, uncovered)
        )
        seen = {side: own(side) for side in np.flatnonzero(unsure[index]).tolist()}
        if None in seen.values():
            is_large = bool((boxes[index, 2:] - boxes[index, :2] > NEAR).all())
            if (rough[index] and is_large) or whole(0) is not None:  # else it is thinner than a pixel
                boxes[index] = np.inf, np.inf, -np.inf, -np.inf
            continue
        for side, place in seen.items():
            assert place is not None
            if abs(place - boxes[index, side]) > NEAR and (rough[index] or place != whole(side)):
                boxes[index, side] = place
    return boxes


def _outermost(table: MaskTable, objects: PlacedObjects, window: Ints, side: int) -> int | None:
    """Return where the pixels that show the only object end at a side of a window (x0, y0, x1, y1); None without any.

    It looks at a strip along the side, and at a wider one as long as there is no pixel in it.
    """
    axis, opposite, inwards = side % 2, (side + 2) % 4, 1 if side < 2 else -1
    length, width = int(window[axis + 2] - window[axis]), 2
    while True:
        strip = window.copy()
        if width < length:
            strip[opposite] = window[side] + inwards * width
        y, x = (np.arange(strip[start], strip[start + 2])[None] * ONE + ONE // 2 for start in (1, 0))
        places = np.flatnonzero(rasterise(table, objects, Grid(y, x))[0].any(axis))
        if len(places):
            return int(strip[axis] + (places[0] if side < 2 else places[-1] + 1))
        if width >= length:
            return None
        width *= 2
