"""Where annotations lie in the output, and what of them is seen there: points go through the map of their layer.

Shapes (key points, corners, outlines) stay in source pixels while ops move views; they are moved once, at the end
(decision 20). What is seen respects the view, its fill, layers that are drawn later, and holes (decision 21).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.boxes.keypoints import KeyPoints
from detaug.boxes.layers import Layers
from detaug.boxes.polygons import inside_convex
from detaug.boxes.stencils import places_of
from detaug.boxes.views import Views, invert, mirrors


@dataclass(frozen=True, eq=False)
class Placement:
    """The places of B annotations in the output images of `layers`."""

    layers: Layers
    image: Ints
    """(B,): the output image that each annotation is in."""
    layer: Ints
    """(B,): the layer that it is of."""
    rows: Ints
    """(B,): the row of each annotation in the shapes of its source."""

    @classmethod
    def of_views(cls, views: Views) -> Placement:
        """Return where the boxes that are left after all ops are, in the order of `Views.unpadded`."""
        image, place = np.nonzero(views.labels >= 0)
        layer = views.layer_of_box_or_first()[image, place]
        return cls(views.drawing_or_whole().layers, image, layer, views.rows[image, place])

    def some(self, chosen: Ints) -> Placement:
        """Return the places of some annotations."""
        return Placement(self.layers, self.image[chosen], self.layer[chosen], self.rows[chosen])

    @cached_property
    def to_output(self) -> Floats:
        """Return (B, 3, 3): source pixels (x, y, 1) -> output pixels, projective."""
        return np.asarray(self.inverse[self.image, self.layer])

    @cached_property
    def inverse(self) -> Floats:
        """Return (N, L, 3, 3): source pixels (x, y, 1) -> output pixels, of each layer."""
        return invert(self.layers.matrix.reshape(-1, 3, 3)).reshape(self.layers.matrix.shape)

    @cached_property
    def mirrored(self) -> Bools:
        """Return (B,): whether the output shows the annotation as a mirror does."""
        return mirrors(self.to_output)

    def move(self, points: Floats) -> Floats:
        """Return points (B, K, 2) of source pixels in output pixels."""
        x, y = points[..., 0], points[..., 1]
        (a, b, c), (d, e, f), (g, h, i) = np.moveaxis(self.to_output, 0, 2)[..., None]
        moved = np.stack([a * x + b * y + c, d * x + e * y + f], axis=-1)
        return moved if self._is_affine else moved / (g * x + h * y + i)[..., None]

    @cached_property
    def _is_affine(self) -> bool:
        return bool((self.to_output[:, 2] == (0, 0, 1)).all())

    def in_view(self, points: Floats, moved: Floats) -> tuple[Bools, Bools]:
        """Return (B, K): whether each point is in the view of its annotation, and whether something covers it there.

        `points`: (B, K, 2) source pixels; `moved`: the same in output pixels. What shows only fill is not in view.
        """
        layers, image, own = self.layers, self.image, self.layer
        x, y = points[..., 0], points[..., 1]
        (x0, y0), (x1, y1) = np.moveaxis(layers.source_bounds[image, own], 0, 2)[..., None]
        shown = np.asarray((x >= x0) & (x <= x1) & (y >= y0) & (y <= y1))
        if layers.clip_region is not None:
            shown &= inside_convex(moved, layers.clip_region[image, own])
        if layers.image.shape[1] == 1:
            return shown & _inside(moved, layers.rectangle[image])[..., 0], np.zeros_like(shown)
        inside = _inside(moved, layers.rectangle[image])
        for at, pasted in places_of(layers.stencil):
            here = np.flatnonzero(image == at)
            inside[here, :, pasted] &= layers.stencil_or_none()[at, pasted].shows(moved[here, :, 0], moved[here, :, 1])
        same = (layers.copy[image] == layers.copy[image, own][:, None])[:, None]
        covers = (layers.share[image] >= 1)[:, None] & ~same
        number = np.arange(1, layers.image.shape[1] + 1)
        last_own, last_cover = ((inside & which) * number for which in (same, covers))
        last_own, last_cover = last_own.max(2), last_cover.max(2)
        return np.asarray(shown & (last_own > 0)), np.asarray(last_cover > last_own)


def in_their_places(key_points: KeyPoints, classes: Ints, placement: Placement) -> Floats:
    """Return (B, K, 3): the source's key points, those that have sides swapped in mirrored objects.

    `classes`: (A,) the class of each annotation, 0..C - 1.
    """
    points, mirrored = key_points.points[placement.rows], np.flatnonzero(placement.mirrored)
    rows = placement.rows[mirrored]
    swapped = key_points.swapped[classes[rows] if len(key_points.swapped) > 1 else rows * 0]
    points[mirrored] = points[mirrored[:, None], swapped]
    return points


def place_key_points(key_points: KeyPoints, classes: Ints, placement: Placement) -> Floats:
    """Return (B, K, 3) x, y in output pixels, v: 0 out of view with x = y = 0, 1 hidden, 2 visible.

    Points in fill are out of view; what a later layer or a hole covers becomes 1. In a mirrored object, points that
    have sides change places. `classes`: see `in_their_places`.
    """
    points = in_their_places(key_points, classes, placement)
    moved = placement.move(points[..., :2])
    shown, covered = placement.in_view(points[..., :2], moved)
    points[..., :2] = moved
    points[covered & (points[..., 2] == 2), 2] = 1
    points[~shown | (points[..., 2] == 0)] = 0
    return points


def _inside(points: Floats, rectangles: Floats) -> Bools:
    """Return (B, K, L): whether points (B, K, 2) are in rectangles (B, L, 4) XYXY."""
    x, y = points[:, :, None, 0], points[:, :, None, 1]
    x0, y0, x1, y1 = (side[:, None] for side in np.moveaxis(rectangles, 2, 0))
    return np.asarray((x >= x0) & (x < x1) & (y >= y0) & (y < y1))
