"""Contact sheets of detections beside the annotated boxes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from detaug.converters.findings.finding import counted
from detaug.drawing.sheet import Tile, make_sheet
from detaug.loading.batch import Batch
from detaug.sheets.photos import Photo, read_photos
from detaug.sources.coco_reader import CocoReader

SCORE = 0.4
"""Detections with a lower score are not drawn."""


class Detections(NamedTuple):
    """The detections in one image."""

    image_id: int
    boxes: NDArray[np.float64]
    """(K, 4) XYXY source pixels."""
    labels: list[int]
    scores: list[float]

    @staticmethod
    def of(batch: Batch, predictions: Sequence[Mapping[str, Tensor]]) -> list[Detections]:
        """Return the detections of at least `SCORE` in each image of a batch.

        predictions: N dicts with boxes, scores and labels, as torchvision's detectors return them.
        """
        drawn = []
        for prediction in predictions:
            high = prediction["scores"] >= SCORE
            drawn.append({name: prediction[name][high] for name in ("boxes", "labels", "scores")})
        boxes = [of_image.double().cpu().numpy() for of_image in batch.to_source([one["boxes"] for one in drawn])]
        labels, scores = [one["labels"].tolist() for one in drawn], [one["scores"].tolist() for one in drawn]
        return [Detections(*row) for row in zip(batch.image_id.tolist(), boxes, labels, scores, strict=True)]


def detections_sheet(reader: CocoReader, detections: Sequence[Detections], title: str = "") -> Image.Image:
    """Draw two images a row, each with its annotated boxes on the left and its detections on the right.

    Annotated difficult objects are dashed and crowds hatched. Detections carry their scores.
    """
    rows = [np.flatnonzero(reader.image_ids == each.image_id).item() for each in detections]
    photos = read_photos(reader, rows)
    pairs = [_pair(photo, each, reader.class_names) for photo, each in zip(photos, detections, strict=True)]
    lines = [[tile for pair in pairs[start : start + 2] for tile in pair] for start in range(0, len(pairs), 2)]
    columns = ["annotated", f"detected, score {SCORE} or more"] * min(2, len(pairs))
    return make_sheet(lines, title=title, columns=columns, class_names=reader.class_names[1:])


def _pair(photo: Photo, detections: Detections, class_names: Sequence[str]) -> list[Tile]:
    names = [class_names[label] for label in detections.labels]
    height, width = photo.pixels.shape[:2]
    return [
        photo.tile()._replace(caption=f"{width} x {height}, {counted(len(photo.boxes), 'object')}"),
        Tile(photo.pixels, detections.boxes, names, caption=f"{len(names)} detected", scores=detections.scores),
    ]
