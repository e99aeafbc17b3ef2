"""Contact sheets of detections beside the annotated boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from detaug.arguments import SCORE
from detaug.coco.table import THIN
from detaug.drawing.points import Marks
from detaug.drawing.sheet import Tile, make_sheet
from detaug.findings.finding import counted
from detaug.loading.batch import Batch
from detaug.loading.batch_shapes import marks_of_classes
from detaug.sheets.photos import Photo, read_photos
from detaug.sources.coco_reader import CocoReader

LEAST = 3
"""Detections of each image to keep for a sheet of a model that is not sure of any, as after a short training."""


class Detections(NamedTuple):
    """The detections in one image."""

    image_id: int
    boxes: NDArray[np.float64]
    """(K, 4) XYXY source pixels."""
    labels: list[int]
    scores: list[float]
    keypoints: NDArray[np.float64] | None = None
    """(K, P, 2) x, y in source pixels."""
    masks: NDArray[np.bool_] | None = None
    """(K, H, W), in source pixels."""
    corners: NDArray[np.float64] | None = None
    """(K, 4, 2) x, y in source pixels, of rotated boxes; they may lie outside of the image."""

    @staticmethod
    def of(
        batch: Batch, predictions: Sequence[Mapping[str, Tensor]], min_score: float = SCORE, least: int = 0
    ) -> list[Detections]:
        """Return the detections of at least `min_score` in each image of a batch, see `in_image`.

        least: detections of an image that are kept, the highest first, even if their scores are lower.

        predictions: N dicts with boxes, scores and labels, and maybe keypoints, masks or corners, as torchvision's
        detectors and `RotatedFCOS` return them.
        """
        drawn = []
        for prediction in predictions:
            of_image = prediction["scores"]
            high = of_image >= min_score
            high[of_image.topk(min(least, len(of_image))).indices] = True
            names = ("boxes", "labels", "scores", "keypoints", "masks", "corners")
            drawn.append({name: prediction[name][high] for name in names if name in prediction})
        boxes = [own.double().cpu().numpy() for own in batch.to_source([one["boxes"] for one in drawn])]
        labels, scores = [one["labels"].tolist() for one in drawn], [one["scores"].tolist() for one in drawn]
        keypoints, corners = (_points_in_source(batch, drawn, name) for name in ("keypoints", "corners"))
        masks: list[NDArray[np.bool_] | None] = [None] * len(drawn)
        if drawn and "masks" in drawn[0]:
            masks = [own.cpu().numpy() for own in batch.masks_to_source([one["masks"] for one in drawn])]
        rows = zip(batch.image_id.tolist(), boxes, labels, scores, keypoints, masks, corners, strict=True)
        sizes = batch.source_size.tolist()
        return [Detections(*row).in_image(*size) for row, size in zip(rows, sizes, strict=True)]

    def in_image(self, height: int, width: int) -> Detections:
        """Return these detections cut at the edges of the image, without those that lie in the padding of a batch.

        A JSON may not have boxes without an area.
        """
        boxes = self.boxes.clip(0, [width, height] * 2)
        written = boxes.round(3)  # as in a JSON file
        left = np.flatnonzero((written[:, 2:] - written[:, :2] >= THIN).all(1))
        return self._replace(boxes=boxes).at(left)

    def at(self, rows: NDArray[np.int64]) -> Detections:
        """Return the detections in these rows."""
        return Detections(
            self.image_id,
            self.boxes[rows],
            [self.labels[row] for row in rows],
            [self.scores[row] for row in rows],
            None if self.keypoints is None else self.keypoints[rows],
            None if self.masks is None else self.masks[rows],
            None if self.corners is None else self.corners[rows],
        )


def _points_in_source(
    batch: Batch, predictions: Sequence[Mapping[str, Tensor]], name: str
) -> list[NDArray[np.float64] | None]:
    """Return x, y of the points of each image, (K, P, 2) in source pixels; None where predictions have none."""
    if not predictions or name not in predictions[0]:
        return [None] * len(predictions)
    moved = batch.points_to_source([prediction[name][..., :2] for prediction in predictions])
    return [of_image.double().cpu().numpy() for of_image in moved]


def detections_sheet(
    reader: CocoReader, detections: Sequence[Detections], title: str = "", *, min_score: float = SCORE
) -> Image.Image:
    """Draw two images per row, each with its annotated boxes on the left and its detections on the right.

    Annotated difficult objects are dashed and crowds hatched. Detections carry their scores. Keypoints, masks and
    rotated boxes are drawn if the reader has them. Where no image has a detection of at least `min_score`, those below
    are drawn, and the title of the column says so.
    """
    high = [np.flatnonzero(np.array(of_image.scores) >= min_score) for of_image in detections]
    is_sure = any(map(len, high))
    if is_sure:
        detections = [of_image.at(rows) for of_image, rows in zip(detections, high, strict=True)]
    rows = [np.flatnonzero(reader.image_ids == of_image.image_id).item() for of_image in detections]
    photos = read_photos(reader, rows)
    pairs = [_pair(photo, of_image, reader) for photo, of_image in zip(photos, detections, strict=True)]
    lines = [[tile for pair in pairs[start : start + 2] for tile in pair] for start in range(0, len(pairs), 2)]
    detected = f"detected, score {min_score:g} or more" if is_sure else f"detected, none with score {min_score:g}"
    columns = ["annotated", detected] * min(2, len(pairs))
    return make_sheet(lines, title=title, columns=columns, class_names=reader.class_names[1:])


def _pair(photo: Photo, detections: Detections, reader: CocoReader) -> list[Tile]:
    names = [reader.class_names[label] for label in detections.labels]
    height, width = photo.pixels.shape[:2]
    marks = Marks(
        masks=detections.masks if reader.shapes.has_masks else None,
        corners=None if reader.shapes.corners is None else detections.corners,
    )
    if reader.shapes.keypoints is not None and detections.keypoints is not None:
        classes = np.array(detections.labels, np.int64) - 1
        points = marks_of_classes(reader.shapes.keypoints, classes, detections.keypoints)
        marks = points._replace(masks=marks.masks, corners=marks.corners)
    caption = f"{len(names)} detected"
    detected = Tile(photo.pixels, detections.boxes, names, caption=caption, scores=detections.scores, marks=marks)
    return [photo.tile()._replace(caption=f"{width} x {height}, {counted(len(photo.boxes), 'object')}"), detected]
