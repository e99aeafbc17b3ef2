"""Read detections in the form of COCO's results: a json list of image_id, category_id, score and a shape."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np

from detaug.converters.files.text import read_json
from detaug.errors import InputError
from detaug.evaluation.kind import Kind
from detaug.evaluation.predictions import ImageDetections

_FORM = "COCO's results are a list of {image_id, category_id, score} with bbox, segmentation, keypoints or corners"


def read_results(path: Path, kind: Kind[Any]) -> dict[int, ImageDetections]:
    """Return the detections by image id, of all images of the ground truth: those without a row have none.

    Raises OSError; InputError for a file in another form, an unknown image or class, or what is no number.
    """
    try:
        rows = read_json(path)
    except InputError as error:
        raise InputError(f"{path} {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path} is in another form: {_FORM}")
    allowed = {"image_id": set(kind.truth.image_ids), "category_id": kind.truth.categories}
    of_image: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        ids = {name: _known(path, row, name, known) for name, known in allowed.items()}
        of_image[ids["image_id"]].append(row | ids)
    return {image_id: _detections(path, of_image[image_id], kind) for image_id in kind.truth.image_ids}


def _known(path: Path, row: dict[str, Any], name: str, known: Any) -> Any:
    value = row.get(name)
    if isinstance(value, float) and value.is_integer():  # as pandas writes a column that had missing values
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"{path}: {name} of a detection must be a whole number, got {value!r}")
    if value not in known:
        raise InputError(f"{path}: a detection has {name} {value!r}, which the json of the objects does not have")
    return value


def _detections(path: Path, rows: list[dict[str, Any]], kind: Kind[Any]) -> ImageDetections:
    try:
        shapes, scores = kind.shapes(rows), np.array([row["score"] for row in rows], np.float64)
        if scores.ndim != 1:
            raise ValueError("a score must be one number")
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        reason = f"no {error}" if isinstance(error, KeyError) else f"wrong numbers, or not as many ({error})"
        raise InputError(f"{path}: a detection of image_id {rows[0]['image_id']} has {reason}; {_FORM}") from None
    if not np.isfinite(scores).all() or (shapes.dtype != object and not np.isfinite(shapes).all()):
        raise InputError(f"{path}: a detection of image_id {rows[0]['image_id']} is not finite")
    sides = np.array([row["bbox"][2:] for row in rows], np.float64) if kind.key.name == "boxes" else None
    return ImageDetections(shapes, scores, np.array([row["category_id"] for row in rows], np.int64), sides=sides)
