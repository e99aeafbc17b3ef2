"""What the reports of evaluations have in common, those of boxes and those of maps."""

from __future__ import annotations

from typing import Any

import numpy as np

from detaug.arrays import Ints
from detaug.sources.coco_reader import CocoReader


def file_names(reader: CocoReader) -> dict[int, str]:
    """Return the file name of each image by its id."""
    return dict(zip(reader.image_ids.tolist(), reader.file_names, strict=True))


def most_confused(confusion: Ints, count: int) -> list[tuple[int, int]]:
    """Return up to `count` pairs of classes, the true and the found one, with the highest counts in (C, C)."""
    between = confusion * ~np.eye(len(confusion), dtype=bool)
    order = np.argsort(-between, axis=None, kind="stable")[:count]
    pairs = zip(*np.unravel_index(order, between.shape), strict=True)
    return [(int(true), int(predicted)) for true, predicted in pairs if between[true, predicted]]


def without_nan(value: Any) -> Any:
    """Return a number, or a dict of them at any depth, with None for NaN, which JSON does not have."""
    if isinstance(value, dict):
        return {name: without_nan(own) for name, own in value.items()}
    return None if value != value else value
