"""The shapes of several batches in output pixels, worked out together when one of them asks for them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from torch import Tensor

from detaug.arrays import Floats, Ints
from detaug.boxes.masks import PlacedObjects, objects_of
from detaug.boxes.placement import Placement, place_key_points
from detaug.boxes.rotated import Angle, rotated_boxes
from detaug.boxes.shapes import NO_SHAPES, Shapes
from detaug.errors import InputError


class ShapeGroup:
    """The shapes of B boxes of batches that were planned together: a NumPy call costs as much for one as for all."""

    def __init__(self, shapes: Shapes, place: Callable[[], Placement]) -> None:
        self.shapes, self._place = shapes, place
        self._rotated: dict[tuple[Angle, bool], Floats] = {}
        self.on_device: dict[Any, Any] = {}
        """What was copied to devices, by device."""

    @cached_property
    def placement(self) -> Placement:
        """Return where the boxes are."""
        return self._place()

    def __reduce__(self) -> Any:
        # functions cannot be pickled, what they return can
        return _group_of, (self.shapes, self.placement)

    def prepare(self) -> None:
        """Work out what nearly all users of the shapes ask for. In the thread that plans it costs them no time."""
        if self.shapes.keypoints is not None:
            _ = self.keypoints
        if self.shapes.has_masks:
            _ = self.objects

    @cached_property
    def keypoints(self) -> Floats:
        """Return (B, K, 3): see `place_key_points`. Raises InputError for shapes without keypoints."""
        if self.shapes.keypoints is None:
            raise InputError(
                "there are no keypoints: make the reader with CocoReader(..., keypoints=True), or give da.batch "
                "shapes=da.Shapes(keypoints=...)"
            )
        return place_key_points(self.shapes.keypoints, self.shapes.classes, self.placement)

    @cached_property
    def corners(self) -> Floats:
        """Return (B, 4, 2): the corners of rotated boxes. Raises InputError for shapes without."""
        corners = self._source_corners
        return self.placement.move(corners)

    def rotated_boxes(self, angle: Angle, *, visible: bool) -> Floats:
        """Return (B, 5): see `rotated_boxes`. Raises InputError for shapes without corners."""
        key = angle, visible
        if key not in self._rotated:
            corners = self._source_corners
            self._rotated[key] = rotated_boxes(corners, self.placement, angle, visible=visible)
        return self._rotated[key]

    @cached_property
    def objects(self) -> PlacedObjects:
        """Return the B objects as the rasterizer takes them."""
        return objects_of(self.placement)

    @cached_property
    def _source_corners(self) -> Floats:
        if self.shapes.corners is None:
            raise InputError(
                "there are no rotated boxes: make the reader with CocoReader(..., rotated=True), or give da.batch "
                "shapes=da.Shapes(corners=...)"
            )
        return np.asarray(self.shapes.corners[self.placement.rows])


class PartOfGroup(NamedTuple):
    """The shapes of one batch."""

    group: ShapeGroup
    boxes: slice
    """The real boxes of the batch among those of the group."""
    keypoints: Tensor | None = None
    """(N, M, K, 3) float32: those of the batch, padded, if they are on its device already."""

    @property
    def shapes(self) -> Shapes:
        """Return the shapes of the source."""
        return self.group.shapes

    @property
    def rows(self) -> Ints:
        """Return (B,): the row of each real box in the shapes."""
        return self.group.placement.rows[self.boxes]

    def alone(self) -> PartOfGroup:
        """Return the shapes of the batch without those of the rest of the source, with memory of their own."""
        placement = self.group.placement.some(np.arange(self.boxes.start, self.boxes.stop))
        images, image = np.unique(placement.image, return_inverse=True)
        rows, row = np.unique(placement.rows, return_inverse=True)
        field = None if placement.field is None else placement.field[images]
        own = Placement(placement.layers[images], image, placement.layer, row, field, placement.boxes)
        keypoints = None if self.keypoints is None else self.keypoints.clone()
        return PartOfGroup(ShapeGroup(self.shapes.some(rows), lambda: own), slice(0, len(row)), keypoints)

    def __reduce__(self) -> Any:
        """Pickle what belongs to the batch: the shapes of a source may take gigabytes."""
        return PartOfGroup, tuple(self.alone())


def _nowhere() -> Placement:
    raise InputError("there are no shapes")


NOTHING = ShapeGroup(NO_SHAPES, _nowhere)
"""The group of boxes without shapes."""


def _group_of(shapes: Shapes, placement: Placement) -> ShapeGroup:
    return ShapeGroup(shapes, lambda: placement)
