"""The shapes of annotations: what they have beside boxes, in pixels of their own images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from detaug.arguments import is_wholes
from detaug.arrays import Bools, Floats, Ints
from detaug.boxes.keypoints import KeyPoints
from detaug.boxes.mask_table import MaskTable, boxes_of_outlines
from detaug.coco.outlines import OutlineColumns, read_outlines, rings_of
from detaug.coco.rings import are_flat
from detaug.errors import InputError


@dataclass(frozen=True, eq=False)
class Shapes:
    """The shapes of the A annotations of a source; None for what it was not asked for. Ops never move them.

    >>> corners = [[[30, 20], [60, 20], [60, 40], [30, 40]]]
    >>> shapes = da.Shapes(corners=np.array(corners, float))
    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], [[[30, 20, 60, 40]]], shapes=shapes)
    >>> print(da.RandomHorizontalFlip(p=1)(samples).corners[0][0].tolist())
    [[170.0, 20.0], [140.0, 20.0], [140.0, 40.0], [170.0, 40.0]]
    """

    keypoints: KeyPoints | None = None
    corners: Floats | None = None
    """(A, 4, 2) x, y of the corners of rotated boxes, in their order."""
    outlines: OutlineColumns | None = None
    """Polygons, or runs of masks."""
    masks: bool = True
    """Whether batches have masks of the outlines."""
    tight: bool = False
    """Whether boxes become those of the visible part of the outlines, or of the corners."""
    classes: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """(A,): the class of each annotation, 0..C - 1; set by the source."""
    heights: Ints = field(default_factory=lambda: np.zeros(0, np.int64))
    """(A,): the height of the image of each annotation; set by the source."""
    strays: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    """(A,): whether an outline leaves its box by over a pixel, so that the visible part of one says nothing about the
    other; set by the source, for masks."""
    stray_corners: Bools = field(default_factory=lambda: np.zeros(0, np.bool_))
    """(A,): the same of the corners of rotated boxes."""
    run_heights: Ints | None = None
    """(A,): the image height that the RLE of each annotation say, 0 for rings; None once `of` compared it."""

    @classmethod
    def of_segmentations(cls, segmentations: Sequence[Any], **others: Any) -> Shapes:
        """Return shapes with outlines in COCO's form: lists of rings [x, y, x, y, ...], or RLE with their size.

        `segmentations`: A of them, None for none. `others`: further fields. Raises InputError for one that is wrong.
        """
        segmentations = [
            segmentation if segmentation is None or isinstance(segmentation, dict) else rings_of(segmentation)
            for segmentation in segmentations
        ]
        for row, segmentation in enumerate(segmentations):
            if not (segmentation is None or isinstance(segmentation, list | dict)):
                raise InputError(
                    f"segmentations[{row}] must be rings [[x, y, ...], ...], RLE {{size, counts}} or None, got "
                    f"{type(segmentation).__name__}; pycocotools.mask.encode makes RLE of a mask"
                )
        sizes = [segmentation.get("size") if isinstance(segmentation, dict) else None for segmentation in segmentations]
        stated = [[*size] if isinstance(size, list | tuple | np.ndarray) else None for size in sizes]
        size = np.array([sides if is_wholes(sides, 2, 1) else (0, 0) for sides in stated])
        outlines, faults = read_outlines(segmentations, [None] * len(size), *size.reshape(-1, 2).T)
        for row, fault in faults.segmentation.items():
            raise InputError(f"segmentations[{row}]: {fault}")
        return cls(outlines=outlines, run_heights=size.reshape(-1, 2)[:, 0], **others)

    @property
    def has_masks(self) -> bool:
        """Return whether batches have masks."""
        return self.masks and self.outlines is not None

    @cached_property
    def has_flat_corners(self) -> Bools:
        """Return (A,): which rotated boxes have no area, by the rule of boxes (decision 26)."""
        assert self.corners is not None
        return are_flat(self.corners)

    @cached_property
    def outline_table(self) -> MaskTable:
        """Return the outlines as masks are made from them, also of shapes without masks."""
        assert self.outlines is not None
        return MaskTable.of(self.outlines, self.heights)

    @property
    def mask_table(self) -> MaskTable:
        """Return what masks are made from. Raises InputError for shapes without masks."""
        if not self.masks or self.outlines is None:
            raise InputError(
                "there are no masks: make the reader with CocoReader(..., masks=True), or give da.batch "
                "shapes=da.Shapes.of_segmentations(...)"
            )
        return self.outline_table

    def __bool__(self) -> bool:
        return any(shape is not None for shape in (self.keypoints, self.corners, self.outlines))

    def some(self, rows: Ints) -> Shapes:
        """Return the shapes of some annotations."""
        points = self.keypoints
        return replace(
            self,
            keypoints=None if points is None else replace(points, points=points.points[rows]),
            corners=None if self.corners is None else self.corners[rows],
            outlines=None if self.outlines is None else self.outlines.of(rows),
            classes=self.classes[rows] if len(self.classes) else self.classes,
            heights=self.heights[rows] if len(self.heights) else self.heights,
            strays=self.strays[rows] if len(self.strays) else self.strays,
            stray_corners=self.stray_corners[rows] if len(self.stray_corners) else self.stray_corners,
            run_heights=None if self.run_heights is None else self.run_heights[rows],
        )

    def of(self, classes: Ints, heights: Ints, origin: str = "shapes", boxes: Floats | None = None) -> Shapes:
        """Return these shapes with the classes (A,), 0..C - 1, and heights (A,) of the images, of their annotations.

        Raises InputError for shapes of another number of annotations.

        Args:
            boxes: (A, 4) XYXY, pixels of the images, for masks.
        """
        self._check(len(classes), origin)
        if self.run_heights is not None:
            other = np.flatnonzero((self.run_heights > 0) & (self.run_heights != heights))
            for row in other[:1].tolist():
                raise InputError(
                    f"{origin}: the RLE of segmentations[{row}] are of an image of height "
                    f"{self.run_heights[row]}, its image has {heights[row]}"
                )
        corners = None if self.corners is None else np.asarray(self.corners)
        strays = stray_corners = np.zeros(0, np.bool_)
        if boxes is not None and self.has_masks and self.outlines is not None:
            strays = _leave(boxes_of_outlines(self.outlines, heights), boxes)
        if boxes is not None and corners is not None:
            stray_corners = _leave(np.concatenate([corners.min(1), corners.max(1)], axis=1), boxes)
        shapes = replace(self, corners=corners, classes=classes, heights=heights, run_heights=None)
        return replace(shapes, strays=strays, stray_corners=stray_corners)

    def _check(self, annotations: int, origin: str) -> None:
        lengths = {
            "keypoints": None if self.keypoints is None else len(self.keypoints.points),
            "corners": None if self.corners is None else len(self.corners),
            "outlines": None if self.outlines is None else len(self.outlines.first_ring) - 1,
        }
        for name, length in lengths.items():
            if length not in (None, annotations):
                raise InputError(f"{origin}: {name} must be of each of {annotations} boxes, got {length}")
        if self.corners is not None:
            array = np.asarray(self.corners)
            if array.shape[1:] != (4, 2) or array.dtype.kind not in "iuf" or not np.isfinite(array).all():
                raise InputError(f"{origin}: corners must be (A, 4, 2) finite numbers, got {array.shape}")


def _leave(around: Any, boxes: Floats) -> Bools:
    """Return (A,): which boxes `around` shapes, (A, 4) XYXY, leave those of the annotations by over a pixel."""
    beyond = np.concatenate([around[:, :2] < boxes[:, :2] - 1, around[:, 2:] > boxes[:, 2:] + 1], axis=1)
    return np.asarray(beyond.any(1))


NO_SHAPES = Shapes()
"""The shapes of boxes that have none."""


def corners_of_boxes(boxes: Floats) -> Floats:
    """Return (A, 4, 2): the corners of boxes (A, 4) XYXY, clockwise on the screen from the top left."""
    return np.asarray(boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2))


def single_rings_of_four(outlines: OutlineColumns) -> tuple[Ints, Floats]:
    """Return which annotations have one ring of four points and nothing else, and these points, (B, 4, 2)."""
    rings, points = np.diff(outlines.first_ring), np.diff(outlines.first_point)
    rows = np.flatnonzero(rings == 1)
    first = outlines.first_ring[rows]
    rows, first = rows[points[first] == 4], first[points[first] == 4]
    return rows, outlines.points[outlines.first_point[first][:, None] + np.arange(4)].astype(np.float64)
