"""Bend finished outputs by a field, and move the boxes in them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from detaug.arrays import Floats, Ints, padded, start_offsets
from detaug.boxes import polygons
from detaug.boxes.fields import Field
from detaug.boxes.views import Views
from detaug.boxes.visible_part import rings_of_polygons, vertices_of


def bend(views: Views, field: Field) -> Views:
    """Return the views, after all layers are drawn, with the outputs bent by a field.

    A box becomes the hull of its bent outline, which is cut into pieces that lie at most `CHORD_ERROR` pixels beside
    it, and is clipped at the border; `visible` shrinks by the fraction of the outline's area that leaves the output.
    """
    bends = (views.labels >= 0) & field.bends[:, None]
    image, place = np.nonzero(bends)
    if not len(image):
        return replace(views, field=field)
    sides = views.size[image, ::-1]
    outlines = views.outlines_or_boxes()[image, place] * sides[:, None]
    vertices = vertices_of(rings_of_polygons(outlines))
    lengths = np.hypot(*(vertices.points[vertices.following] - vertices.points).T)
    vertices = vertices.in_pieces(field.pieces(image[vertices.of_object], lengths))
    points = field.place(image[vertices.of_object], vertices.points)
    count = np.bincount(vertices.of_object).astype(np.int64)
    hulls, share = _clipped(points / sides[vertices.of_object], count)
    boxes, visible = views.boxes.copy(), views.visible.copy()
    boxes[image, place] = hulls
    visible[image, place] *= share
    keep = np.ones(views.labels.shape, bool)
    keep[image, place] = (hulls[:, :2] < hulls[:, 2:]).all(1)
    return replace(views, boxes=boxes, visible=visible, outlines=None, field=field).keep(keep)


def _clipped(points: Floats, count: Ints) -> tuple[Floats, Floats]:
    """Return the hulls (B, 4) of outlines clipped to the unit square, and which fractions of their areas are left.

    `points`: (Q, 2) their vertices, `count` (B,) of each.
    """
    first = start_offsets(count)
    low, high = (reduce.reduceat(points, first) for reduce in (np.minimum, np.maximum))
    hulls, share = np.concatenate([low, high], axis=1), np.ones(len(count))
    cut = np.flatnonzero((low < 0).any(1) | (high > 1).any(1))
    if len(cut):
        whole = padded(points, count, np.nan)[cut]
        # Padding repeats the first point, which adds no area.
        whole = np.where(np.isnan(whole), points[first[cut], None], whole)
        left = polygons.clip(whole)
        before, after = polygons.area(whole), polygons.area(left)
        hulls[cut] = polygons.hull(left)
        # An outline without an area loses nothing: 1 / 1.
        share[cut] = (np.where(before > 0, after, 1) / np.where(before > 0, before, 1)).clip(0, 1)
    return hulls, share
