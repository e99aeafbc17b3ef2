"""A picture of detections beside the annotated boxes, to be looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor

from detaug.converters.findings.text import counted
from detaug.drawing.boxes import Tile, sheet
from detaug.loading.batch import Batch
from detaug.sheets.contact_sheets import Photo, read_photos, source_tile
from detaug.sources.coco_reader import CocoReader

SCORE = 0.4
"""Detections below it are not drawn."""


class Shown(NamedTuple):
    """The detections in one image."""

    image_id: int
    boxes: NDArray[np.float64]
    """(K, 4) XYXY source pixels."""
    labels: list[int]

    @staticmethod
    def of(batch: Batch, predictions: Sequence[Mapping[str, Tensor]]) -> list[Shown]:
        """Those of at least SCORE. `predictions`: as torchvision's detectors return them."""
        kept = [found["scores"] >= SCORE for found in predictions]
        boxes = batch.to_source([found["boxes"][keep] for found, keep in zip(predictions, kept, strict=True)])
        labels = [found["labels"][keep].tolist() for found, keep in zip(predictions, kept, strict=True)]
        arrays = [each.double().cpu().numpy() for each in boxes]
        return [Shown(*row) for row in zip(batch.image_id.tolist(), arrays, labels, strict=True)]


def detections_sheet(reader: CocoReader, shown: Sequence[Shown], title: str = "") -> Image.Image:
    """Two images to a row, each with its annotated boxes on the left and what was detected on the right.

    Of what is annotated, difficult objects are dashed and crowds hatched.
    """
    rows = [np.flatnonzero(reader.image_ids == each.image_id).item() for each in shown]
    pairs = [
        _pair(photo, each, reader.class_names) for photo, each in zip(read_photos(reader, rows), shown, strict=True)
    ]
    lines = [[tile for pair in pairs[at : at + 2] for tile in pair] for at in range(0, len(pairs), 2)]
    columns = ["annotated", f"detected, score {SCORE} or more"] * min(2, len(pairs))
    return sheet(lines, title=title, columns=columns)


def _pair(photo: Photo, shown: Shown, class_names: Sequence[str]) -> list[Tile]:
    found = [class_names[label] for label in shown.labels]
    height, width = photo.pixels.shape[:2]
    return [
        source_tile(photo)._replace(caption=f"{width} x {height}, {counted(len(photo.boxes), 'object')}"),
        Tile(photo.pixels, shown.boxes, found, caption=f"{len(found)} detected"),
    ]
