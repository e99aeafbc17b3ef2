"""Where annotations lie in the output, and what of them is seen there: points go through the map of their layer.

Shapes (keypoints, corners, outlines) stay in source pixels while ops move views; they are moved once, at the end
(decision 20). The visible part respects the view, its fill, layers that are drawn later, and holes (decision 21).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.boxes import point_loops
from detaug.boxes.fields import Field
from detaug.boxes.keypoints import KeyPoints
from detaug.boxes.layers import Layers
from detaug.boxes.stencils import joined_bits
from detaug.boxes.views import Views, invert, mirrors

NEAR = 1.5
"""Output pixels from a side of a box, within which a mask has a pixel: a corner of a pixel has its center near it."""


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
    field: Field | None = None
    """What bends the output images, once the layers are drawn."""
    boxes: Floats | None = None
    """(B, 4) XYXY output pixels, for annotations with corners: the boxes that ops left."""
    windows: Floats | None = None
    """(B, 4) XYXY output pixels: what each is seen in, if that is less than the rectangle of its layer."""

    @classmethod
    def of_views(cls, views: Views) -> Placement:
        """Return where the boxes that are left after all ops are, in the order of `Views.unpadded`."""
        image, place = np.nonzero(views.labels >= 0)
        layer = views.layer_of_box_or_first()[image, place]
        boxes = None if views.shapes.corners is None else views.unpadded()[0]
        return cls(views.drawing_or_whole().layers, image, layer, views.rows[image, place], views.field, boxes)

    def some(self, chosen: Ints) -> Placement:
        """Return the places of some annotations."""
        boxes, windows = (None if values is None else values[chosen] for values in (self.boxes, self.windows))
        own = self.image[chosen], self.layer[chosen], self.rows[chosen]
        return Placement(self.layers, *own, self.field, boxes, windows)

    def rectangles(self) -> Floats:
        """Return (B, 4) XYXY: what of the output each is seen in, before a field, but for what covers it."""
        return np.asarray(self.layers.rectangle[self.image, self.layer]) if self.windows is None else self.windows

    def covered_sides(self, boxes: Floats) -> Bools:
        """Return (B, 4): whether a later layer or a hole lies on the sides of boxes (B, 4) XYXY, before a field."""
        layers, image, layer = self.layers, self.image, self.layer
        starts, ends = np.moveaxis(layers.interval[image], 2, 0)
        own_start, own_end = layers.interval[image, layer].T[..., None]
        covers = (np.arange(layers.image.shape[1]) > layer[:, None]) & (starts <= own_start) & (ends >= own_end)
        covers &= layers.copy[image] != layers.copy[image, layer][:, None]
        rectangle, around = layers.rectangle[image], boxes[:, None]
        low, high = np.maximum(rectangle[..., :2], around[..., :2]), np.minimum(rectangle[..., 2:], around[..., 2:])
        covers &= (low < high).all(2)
        near_start = rectangle[..., :2] <= around[..., :2] + NEAR
        near_end = rectangle[..., 2:] >= around[..., 2:] - NEAR
        return np.asarray((np.concatenate([near_start, near_end], axis=2) & covers[..., None]).any(1))

    @cached_property
    def to_output(self) -> Floats:
        """Return (B, 3, 3): source pixels (x, y, 1) -> output pixels, projective, before a field."""
        return np.asarray(self.layers_to_output[self.image, self.layer])

    @cached_property
    def to_source(self) -> Floats:
        """Return (B, 3, 3): output pixels (x, y, 1), before a field -> source pixels, projective."""
        return np.asarray(self.layers.to_source[self.image, self.layer])

    @cached_property
    def layers_to_output(self) -> Floats:
        """Return (N, L, 3, 3): source pixels (x, y, 1) -> output pixels, of each layer."""
        return invert(self.layers.to_source.reshape(-1, 3, 3)).reshape(self.layers.to_source.shape)

    @cached_property
    def flipped(self) -> Bools:
        """Return (B,): whether the output shows the annotation as a mirror does."""
        return mirrors(self.to_output)

    def move(self, points: Floats) -> Floats:
        """Return points (B, K, 2) of source pixels in output pixels."""
        moved = self.move_in_layers(points)
        return moved if self.field is None else self.field.place(self.image, moved)

    def move_in_layers(self, points: Floats) -> Floats:
        """Return points (B, K, 2) of source pixels in output pixels, before a field bends these."""
        x, y = points[..., 0], points[..., 1]
        (a, b, c), (d, e, f), (g, h, i) = np.moveaxis(self.to_output, 0, 2)[..., None]
        moved = np.stack([a * x + b * y + c, d * x + e * y + f], axis=-1)
        return moved if self._is_affine else moved / (g * x + h * y + i)[..., None]

    @cached_property
    def _is_affine(self) -> bool:
        return bool((self.to_output[:, 2] == (0, 0, 1)).all())


def in_their_places(key_points: KeyPoints, classes: Ints, placement: Placement) -> Floats:
    """Return (B, K, 3): the source's keypoints, those that have sides swapped in flipped objects.

    `classes`: (A,) the class of each annotation, 0..C - 1.
    """
    return key_points.points[placement.rows[:, None], _shown_points(key_points, classes, placement)]


def _shown_points(key_points: KeyPoints, classes: Ints, placement: Placement) -> Ints:
    """Return (B, K): which of its points each annotation has at each place."""
    shown = np.tile(np.arange(key_points.count), (len(placement.rows), 1))
    flipped = np.flatnonzero(placement.flipped)
    # only flips ask: recipes without them work with points of unknown sides
    if len(flipped):
        key_points.check_flips()
    of_class = classes[placement.rows[flipped]] if len(key_points.swapped) > 1 else flipped * 0
    shown[flipped] = key_points.swapped[of_class]
    return shown


def place_key_points(key_points: KeyPoints, classes: Ints, placement: Placement) -> Floats:
    """Return (B, K, 3) x, y in output pixels, v: 0 out of view with x = y = 0, 1 hidden, 2 visible.

    Points in fill are out of view; what a later layer or a hole covers becomes 1. In a flipped object, points that
    have sides are swapped. `classes`: see `in_their_places`.
    """
    layers, own = placement.layers, (placement.image, placement.layer)
    stencils, bits = joined_bits(layers.stencil, layers.image.shape)
    parts = layers.rectangle, layers.copy[..., None], layers.interval, stencils
    borders = np.zeros((0, 0, 2)) if layers.clip_region is None else layers.clip_region[own]
    placed = np.zeros((len(placement.rows), key_points.count, 3))
    point_loops.place(
        key_points.points,
        placement.rows,
        _shown_points(key_points, classes, placement),
        placement.to_output,
        np.stack(own, axis=1),
        layers.source_bounds[own].reshape(-1, 4),
        borders,
        np.concatenate(parts, axis=2),
        bits,
        placed,
    )
    if placement.field is not None:
        placed[..., :2] = placement.field.place(placement.image, placed[..., :2])
        placed[(placed[..., 2] == 0) | ~placement.field.shows(placement.image, placed[..., :2])] = 0
    return placed
