"""Read detections in the form of COCO's results: a JSON list of image_id, category_id, score and a shape."""

from __future__ import annotations

import sys
import warnings
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from detaug.coco.boxes import SMALLEST_SIDE, look_like_corners, look_relative
from detaug.errors import InputError
from detaug.evaluation.kind import DetectionKind
from detaug.evaluation.predictions import ImageDetections
from detaug.files.text import read_json
from detaug.findings.finding import counted, shown
from detaug.named_options import option

_FORM = "COCO's results are a list of {image_id, category_id, score} with bbox, segmentation, keypoints or corners"

_ENTRIES = {"boxes": "bbox", "masks": "segmentation"}
"""The entries of results that have another name than the key of predictions."""


def read_results(path: Path, kind: DetectionKind[Any]) -> dict[int, ImageDetections]:
    """Return the detections by image id, of all images of the ground truth: those without a row have none.

    Raises OSError; InputError, which names the row, for a file in another form, an unknown image or class, or a value
    that is not a number. Warns of boxes and scores that pycocotools takes, and that are probably in another unit.
    """
    try:
        rows = read_json(path)
    except InputError as error:
        raise InputError(f"{path} {error}") from None
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise InputError(f"{path} is in another form: {_FORM}")
    allowed = {"image_id": set(kind.truth.image_ids), "category_id": kind.truth.categories}
    of_image: dict[int, dict[int, dict[str, Any]]] = defaultdict(dict)
    for index, row in enumerate(rows):
        try:
            ids = {name: _known(row, name, known) for name, known in allowed.items()}
            _check_numbers(row, _ENTRIES.get(kind.key.name, kind.key.name))
        except InputError as error:
            raise InputError(f"{path}: [{index}] {error}") from None
        of_image[ids["image_id"]][index] = row | ids
    by_image = {image_id: _detections(path, of_image[image_id], kind) for image_id in kind.truth.image_ids}
    for text in _odd_values(by_image, kind):
        warnings.warn(f"{path}: {text}", stacklevel=3)
    return by_image


def _known(row: dict[str, Any], name: str, known: Any) -> Any:
    value = row.get(name)
    if isinstance(value, float) and value.is_integer():  # as pandas writes a column that had missing values
        value = int(value)
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"must have a whole number as {name}, got {shown(value)}; {_FORM}")
    if value not in known:
        raise InputError(
            f"has {name} {shown(value)}, which the JSON file of the objects does not have; give the JSON file that was "
            "predicted on, or leave such entries out"
        )
    return value


def _check_numbers(row: Mapping[str, Any], entry: str) -> None:
    """Raise InputError unless score and shape are finite numbers: NumPy would read the text "5", and true as 1."""
    if not _is_float(row.get("score")):
        raise InputError(f"must have a finite number as score, got {shown(row.get('score'))}; {_FORM}")
    if entry not in row:
        raise InputError(f"has no {entry}; {_FORM}")
    if entry != "segmentation" and not (isinstance(row[entry], list) and all(map(_is_float, _flat(row[entry])))):
        raise InputError(f"must have a list of finite numbers as {entry}, got {shown(row[entry])}; {_FORM}")


def _is_float(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # not of NaN


def _flat(values: list[Any]) -> Iterator[Any]:
    for value in values:
        if isinstance(value, list):
            yield from value
        else:
            yield value


def _detections(path: Path, rows: Mapping[int, dict[str, Any]], kind: DetectionKind[Any]) -> ImageDetections:
    """Return the detections of an image. rows: by their positions in the file."""
    listed = list(rows.values())
    try:
        shapes = kind.shapes(listed)
    except (KeyError, TypeError, ValueError):
        index, fault = next(_faults(rows, kind))
        raise InputError(f"{path}: [{index}] has another form ({fault}); {_FORM}") from None
    sides = np.array([row["bbox"][2:] for row in listed], np.float64) if kind.key.name == "boxes" else None
    scores, ids = ([row[name] for row in listed] for name in ("score", "category_id"))
    return ImageDetections(shapes, np.array(scores, np.float64), np.array(ids, np.int64), sides=sides)


def _faults(rows: Mapping[int, dict[str, Any]], kind: DetectionKind[Any]) -> Iterator[tuple[int, str]]:
    for index, row in rows.items():
        try:
            kind.shapes([row])
        except (KeyError, TypeError, ValueError) as error:
            yield index, f"no {error}" if isinstance(error, KeyError) else str(error)


def _odd_values(by_image: Mapping[int, ImageDetections], kind: DetectionKind[Any]) -> Iterator[str]:
    """Yield what is odd about detections that pycocotools scores."""
    scores = np.concatenate([np.zeros(0), *(detections.scores for detections in by_image.values())])
    if outside := int(((scores < 0) | (scores > 1)).sum()):
        example = shown(float(scores[(scores < 0) | (scores > 1)][0]))
        yield (
            f"{counted(outside, 'score')} outside 0..1, such as {example}: AP needs their order only, but "
            f"{option('min_score')} and the errors need 0..1; divide percents by 100, or apply the sigmoid to logits"
        )
    if kind.key.name != "boxes" or not len(scores):
        return
    boxes = np.concatenate([detections.shapes for detections in by_image.values()])
    sides = np.concatenate(
        [detections.sides.reshape(-1, 2) for detections in by_image.values() if detections.sides is not None]
    )
    sizes = np.repeat(kind.truth.sizes, [len(by_image[image_id].scores) for image_id in kind.truth.image_ids], axis=0)
    whole = np.concatenate([boxes[:, :2], sides], axis=1)
    if negative := int((sides < 0).any(axis=1).sum()):
        example = whole[(sides < 0).any(axis=1)][0].tolist()
        number = counted(negative, "bbox has", "bboxes have")
        yield f"{number} a negative width or height, such as {example}, and finds nothing; order the corners first"
    if look_like_corners(whole, sizes):
        yield f"each bbox looks like [x0, y0, x1, y1], such as {whole[0].tolist()}; write [x, y, width, height]"
    if look_relative(map(np.ndarray.tolist, boxes[sizes.min(axis=1) >= SMALLEST_SIDE])):
        yield f"each bbox is in 0..1, such as {whole[0].tolist()}; write pixels of the image"
