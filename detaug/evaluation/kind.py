"""What the kinds of evaluation have in common: one for boxes, masks, keypoints and rotated boxes each."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Floats, Ints
from detaug.boxes.polygons import hull
from detaug.evaluation.ground_truth import GroundTruth
from detaug.evaluation.predictions import Columns, ImageDetections, Key
from detaug.evaluation.voc_ap import area_of_boxes, iou_of_boxes
from detaug.loading.batch import Batch

M_co = TypeVar("M_co", covariant=True)


class DetectionKind(ABC, Generic[M_co]):
    """One kind of detections: the key that has them, their way to source pixels, and their metrics."""

    key: Key
    truth: GroundTruth
    merged_by_shape: ClassVar[bool] = False
    """Whether detections in tiles are merged by the IoU of their shapes, not of the boxes around them."""

    @abstractmethod
    def __init__(self, path: Path) -> None:
        """Read the ground truth of a JSON file."""

    @abstractmethod
    def in_source(self, batch: Batch, columns: Columns) -> Iterable[NDArray[Any]]:
        """Return the shapes of each image in source pixels."""

    @abstractmethod
    def result(self, shape: Any) -> dict[str, Any]:
        """Return what an entry of COCO's results has for a shape."""

    @abstractmethod
    def shapes(self, rows: Sequence[Mapping[str, Any]]) -> NDArray[Any]:
        """Return the shapes of entries of COCO's results, (D, ...), the reverse of `result`.

        Raises KeyError, TypeError or ValueError for entries in another form.
        """

    @abstractmethod
    def metrics(
        self, by_image: Mapping[int, ImageDetections], *, voc2007: bool, repeated: int, max_detections: int | None
    ) -> M_co:
        """Return the metrics of the images whose ids `by_image` has. `max_detections`: see `coco_scores`."""

    def placed(self, shapes: NDArray[Any], window: Ints, size: Ints, image_size: Sequence[int]) -> NDArray[Any]:
        """Return shapes in a tile of `size` (height, width) in pixels of its image, of `image_size` (height, width).

        `window`: x, y, width, height of the tile in the image.
        """
        return place(shapes, window, size)

    def boxes_around(self, shapes: NDArray[Any]) -> Floats:
        """Return (D, 4) XYXY, the boxes around shapes in source pixels."""
        return hull(as_points(shapes))

    def iou(self, one: Floats, other: Floats) -> Floats:
        """Return (D, G): the IoU by which detections in tiles are merged."""
        return iou_of_boxes(one, other)

    def area(self, shapes: Floats) -> Floats:
        """Return (D,): the areas of what `iou` takes."""
        return area_of_boxes(shapes)

    def rows(self, by_image: Mapping[int, ImageDetections]) -> Iterable[dict[str, Any]]:
        """Yield the detections in the form of COCO's results, in the JSON file's order of images."""
        for image_id in self.truth.image_ids:
            if (detections := by_image.get(image_id)) is not None:
                columns = (detections.shapes.tolist(), detections.scores.tolist(), detections.category_ids.tolist())
                for index, (shape, score, category) in enumerate(zip(*columns, strict=True)):
                    row = {"image_id": image_id, "category_id": category, **self.result(shape), "score": score}
                    if detections.sides is not None:
                        row["bbox"] = [*row["bbox"][:2], *detections.sides[index].tolist()]
                    yield row


def place(shapes: Floats, window: Ints, size: Ints) -> Floats:
    """Return boxes or points, (D, ...) of x, y, in pixels of an image. Arguments as those of `Kind.placed`."""
    points = as_points(shapes) * (window[2:] / size[::-1]) + window[:2]
    return np.asarray(points.reshape(shapes.shape))


def as_points(shapes: Floats) -> Floats:
    """Return (D, P, 2): the points x, y of shapes (D, ...)."""
    return shapes.reshape(len(shapes), math.prod(shapes.shape[1:]) // 2, 2)
