"""A picture of detections beside the annotated boxes, to be looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps
from torch import Tensor

from detaug.batches import Batch
from detaug.pick import objects
from detaug.preview import Tile, sheet
from detaug.reader import CocoReader

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
    """Two images to a row, each with its annotated boxes on the left and what was detected on the right."""
    pairs = [_pair(reader, each) for each in shown]
    rows = [[tile for pair in pairs[at : at + 2] for tile in pair] for at in range(0, len(pairs), 2)]
    columns = ["annotated", f"detected, score {SCORE} or more"] * min(2, len(pairs))
    return sheet(rows, title=title, columns=columns)


def _pair(reader: CocoReader, shown: Shown) -> list[Tile]:
    (row,) = np.flatnonzero(reader.image_ids == shown.image_id).tolist()
    with Image.open(reader.path(row)) as file:
        image = ImageOps.exif_transpose(file).convert("RGB")
    boxes, labels = objects(reader, row)
    names = [reader.class_names[label] for label in labels]
    found = [reader.class_names[label] for label in shown.labels]
    return [
        Tile(image, boxes, names, caption=f"{image.width} x {image.height}, {len(names)} objects"),
        Tile(image, shown.boxes, found, caption=f"{len(found)} detected"),
    ]
