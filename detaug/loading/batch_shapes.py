"""The shapes of a batch: key points and rotated boxes in output pixels, worked out when they are asked for."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Literal

import numpy as np
from torch import Tensor

from detaug.arrays import Floats, Ints
from detaug.boxes.layers import Drawing
from detaug.boxes.placement import Placement, place_key_points
from detaug.boxes.rotated import Angle, rotated_boxes
from detaug.boxes.shapes import Shapes
from detaug.drawing.points import Marks
from detaug.errors import InputError
from detaug.gpu.streams import to_device


def marks_of(shapes: Shapes | None, rows: Ints, keypoints: Any, corners: Any) -> Marks | None:
    """Return what pictures show of M objects. `rows`: (M,) in the shapes; `keypoints`, `corners`: moved, or None."""
    if shapes is None or (keypoints is None and corners is None):
        return None
    if shapes.keypoints is None or keypoints is None:
        return Marks(corners=corners)
    classes = shapes.classes[rows].tolist()
    skeletons = [shapes.keypoints.of_class(at, shapes.keypoints.count)[1] for at in classes]
    return Marks(keypoints, skeletons, [shapes.keypoints.sides_of_class(at) for at in classes], corners)


class ShapesOfBoxes:
    """The shapes of the boxes of a batch. The first axes of all results are those of `labels`, of clips (N, F, M)."""

    labels: Tensor
    rows: Tensor | None
    shapes: Shapes | None
    drawing: Drawing | None
    layer_of_box: Tensor | None = None

    @property
    def has_keypoints(self) -> bool:
        """Return whether the source has key points."""
        return self._shapes().keypoints is not None

    @cached_property
    def keypoints(self) -> Tensor:
        """Return (N, M, K, 3) float32 on the batch's device: x, y in output pixels, and v, 0, 1 or 2.

        v is 0, and x and y too, for points that are not labelled or out of view; 1 for hidden ones, also those under
        what an op pasted or erased; 2 for visible ones. Coordinates are continuous: the centre of the first pixel is
        0.5. In a mirrored object, points that have sides have changed places. Padded with zeros.
        Raises InputError for a source without key points.
        """
        key_points = self._shapes().keypoints
        if key_points is None:
            raise InputError("the batch has no key points: make its reader with CocoReader(..., keypoints=True)")
        placed = place_key_points(key_points, self._shapes().classes, self._placement)
        return self._padded(placed)

    @cached_property
    def corners(self) -> Tensor:
        """Return (N, M, 4, 2) float32 on the batch's device: x, y of the corners of rotated boxes, in output pixels.

        Their order is the json's; they are not clipped. Padded with zeros. Raises InputError for a source without.
        """
        corners = self._corners()
        return self._padded(self._placement.move(corners))

    def rotated_boxes(
        self,
        form: Literal["cxcywhr"] = "cxcywhr",
        angle: Angle = "le90",
        *,
        border: Literal["visible", "whole"] = "visible",
    ) -> Tensor:
        """Return (N, M, 5) float32: centre x, y, width, height in output pixels, angle. Padded with zeros.

        It is the smallest rectangle around the corners, which a stretched image or a perspective may make oblique.
        `angle`: how angles are counted. "torchvision": degrees, counter-clockwise, for torchvision's CXCYWHR and for
        Detectron2, in -90..90, width the longer side. Others are radians, clockwise: "le90" in -pi/2..pi/2, "le135" in
        -pi/4..3pi/4, both with the width as the longer side, "oc" in -pi/2..0 (MMRotate's names); "yolo" as "le135",
        Ultralytics' rule. `border`: "visible" cuts the rectangle, at its angle, to what is in view; "whole" does not.
        Raises InputError for a source without rotated boxes.
        """
        if form != "cxcywhr":
            raise InputError(f"form must be 'cxcywhr', got {form!r}")
        corners = self._corners()
        return self._padded(rotated_boxes(corners, self._placement, angle, visible=border == "visible"))

    def marks(self) -> list[Marks | None]:
        """Return what pictures show of the objects of each image or frame, beside boxes."""
        if not (self._shapes().keypoints or self._shapes().corners is not None) or self.rows is None:
            return [None] * len(self.labels.flatten(0, -2))
        keypoints = self.keypoints.flatten(0, -4).cpu().numpy() if self.has_keypoints else None
        corners = None if self._shapes().corners is None else self.corners.flatten(0, -4).cpu().numpy()
        marks = []
        for at, rows in enumerate(self.rows.flatten(0, -2).numpy()):
            real = rows >= 0
            own = [None if each is None else each[at][real] for each in (keypoints, corners)]
            marks.append(marks_of(self.shapes, rows[real], *own))
        return marks

    def _shapes(self) -> Shapes:
        return self.shapes or Shapes()

    def _corners(self) -> Floats:
        corners = self._shapes().corners
        if corners is None:
            raise InputError("the batch has no rotated boxes: make its reader with CocoReader(..., rotated=True)")
        return np.asarray(corners[self._placement.rows])

    @cached_property
    def _placement(self) -> Placement:
        """Return where the real boxes are, in order."""
        assert self.rows is not None, "a batch of a source has rows"
        assert self.drawing is not None, "a batch of a source with shapes has a drawing"
        rows = self.rows.flatten(0, -2).numpy()
        image, place = np.nonzero(rows >= 0)
        layer = image * 0 if self.layer_of_box is None else self.layer_of_box.numpy()[image, place]
        return Placement(self.drawing.layers, image, layer, rows[image, place])

    def _padded(self, values: Floats) -> Tensor:
        """Return (N, M, ...) float32 of the values (B, ...) of the real boxes."""
        assert self.rows is not None
        real = self.rows.numpy() >= 0
        array = np.zeros((*real.shape, *values.shape[1:]), np.float32)
        array[real] = values
        return to_device(array, self.labels.device)
