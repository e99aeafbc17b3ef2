"""The shapes of a batch: keypoints and rotated boxes in output pixels, worked out when they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Literal

import numpy as np
from torch import Tensor

from detaug.arrays import Floats, Ints
from detaug.boxes.keypoints import KeyPoints
from detaug.boxes.mask_table import MaskTable
from detaug.boxes.masks import PlacedObjects, masks_within
from detaug.boxes.rotated import Angle
from detaug.boxes.shape_group import NOTHING, PartOfGroup, ShapeGroup
from detaug.boxes.shapes import Shapes
from detaug.drawing.points import Marks
from detaug.errors import InputError
from detaug.gpu.streams import to_device


def marks_of(shapes: Shapes, rows: Ints, keypoints: Any, corners: Any) -> Marks | None:
    """Return what images show of M objects. `rows`: (M,) in the shapes; `keypoints`, `corners`: moved, or None."""
    if keypoints is None and corners is None:
        return None
    if shapes.keypoints is None or keypoints is None:
        return Marks(corners=corners)
    return marks_of_classes(shapes.keypoints, shapes.classes[rows], keypoints)._replace(corners=corners)


def with_masks(marks: Marks | None, table: MaskTable, objects: PlacedObjects, size: Sequence[int]) -> Marks:
    """Return what images show of objects, with their masks. `size`: (H, W) of the image, any of the image."""
    height, width = size
    return (marks or Marks())._replace(masks=masks_within(table, objects, (0, 0, width, height)))


def marks_of_classes(names: KeyPoints, classes: Ints, keypoints: Any) -> Marks:
    """Return what images show of the keypoints of M objects of these classes, 0..C - 1.

    `keypoints`: (M, K, 3), or (M, K, 2) of a model, which are drawn as visible.
    """
    if keypoints.shape[-1] == 2:
        keypoints = np.concatenate([keypoints, np.full((*keypoints.shape[:-1], 1), 2.0)], axis=-1)
    skeletons = [names.of_class(number, names.count)[1] for number in classes.tolist()]
    return Marks(keypoints, skeletons, [names.sides_of_class(number) for number in classes.tolist()])


class ShapesOfBoxes:
    """The shapes of the boxes of a batch. The first axes of all results are those of `labels`, of clips (N, F, M)."""

    labels: Tensor
    rows: Tensor | None
    moved: PartOfGroup | None

    @property
    def shapes(self) -> Shapes:
        """Return the shapes of the annotations of the source, in source pixels; without any for other batches.

        A batch that was cloned or saved has those of its own boxes alone.
        """
        return self._group.shapes

    @property
    def has_keypoints(self) -> bool:
        """Return whether the source has keypoints."""
        return self.shapes.keypoints is not None

    @cached_property
    def keypoints(self) -> Tensor:
        """Return (N, M, K, 3) float32 on the batch's device: x, y in output pixels, and v, 0, 1 or 2.

        v is 0, and x and y too, for points that are not labeled or out of view; 1 for hidden ones, also those under
        what an op pasted or erased; 2 for visible ones. Coordinates are continuous: the center of the first pixel is
        0.5. In a flipped object, points that have sides have changed places. Padded with zeros.
        Raises InputError for a source without keypoints.
        """
        copied = None if self.moved is None else self.moved.keypoints
        return self._padded(self._group.keypoints) if copied is None else copied.to(self.labels.device)

    @cached_property
    def corners(self) -> Tensor:
        """Return (N, M, 4, 2) float32 on the batch's device: x, y of the corners of rotated boxes, in output pixels.

        Their order is the JSON file's; they are not clipped. Padded with zeros. Raises InputError for a source without.
        """
        return self._padded(self._group.corners)

    def rotated_boxes(
        self,
        form: Literal["cxcywhr"] = "cxcywhr",
        angle: Angle = "le90",
        *,
        border: Literal["visible", "whole"] = "visible",
    ) -> Tensor:
        """Return (N, M, 5) float32: center x, y, width, height in output pixels, angle. Padded with zeros.

        It is the smallest rectangle around the corners, which a stretched image or a perspective may make oblique.
        `angle`: how angles are counted. "torchvision": degrees, counter-clockwise, for torchvision's CXCYWHR and for
        Detectron2, in -90..90, width the longer side. Others are radians, clockwise: "le90" in -pi/2..pi/2, "le135" in
        -pi/4..3pi/4, both with the width as the longer side, "oc" in -pi/2..0 (MMRotate's names); "yolo" as "le135",
        Ultralytics' rule. `border`: "visible" cuts the rectangle, at its angle, to what is in view; "whole" does not.
        Raises InputError for a source without rotated boxes.
        """
        if form != "cxcywhr":
            raise InputError(f"form must be 'cxcywhr', got {form!r}")
        return self._padded(self._group.rotated_boxes(angle, visible=border == "visible"))

    def marks(self) -> list[Marks | None]:
        """Return what images show of the objects of each image or frame, beside boxes."""
        if not (self.shapes.keypoints or self.shapes.corners is not None) or self.rows is None:
            return [None] * len(self.labels.flatten(0, -2))
        keypoints = self.keypoints.flatten(0, -4).cpu().numpy() if self.has_keypoints else None
        corners = None if self.shapes.corners is None else self.corners.flatten(0, -4).cpu().numpy()
        assert self.moved is not None
        marks, first, in_shapes = [], 0, self.moved.rows
        for index, rows in enumerate(self.rows.cpu().flatten(0, -2).numpy()):
            real = rows >= 0
            own = [None if values is None else values[index][real] for values in (keypoints, corners)]
            marks.append(marks_of(self.shapes, in_shapes[first : first + real.sum()], *own))
            first += real.sum()
        return marks

    @property
    def _group(self) -> ShapeGroup:
        return NOTHING if self.moved is None else self.moved.group

    def _padded(self, values: Floats) -> Tensor:
        """Return (N, M, ...) float32 of the values of the real boxes, which are a part of those of the group."""
        assert self.rows is not None
        assert self.moved is not None
        real = self.rows.cpu().numpy() >= 0
        array = np.zeros((*real.shape, *values.shape[1:]), np.float32)
        array[real] = values[self.moved.boxes]
        return to_device(array, self.labels.device)
