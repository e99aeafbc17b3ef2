"""COCO json as columns, checked: what training reads, and what it must not read in silence."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np
from numpy.typing import NDArray

TOLERANCE = 1.0
"""Pixels by which a box may leave its image and be clipped without a word: rounding, not a mistake."""


class AnnotationError(ValueError):
    """A COCO json that would train a detector on something else than it says. Names file, entry and remedy."""


@dataclass(frozen=True)
class Annotations:
    """A COCO json as columns: N images in the file's order, A boxes grouped by image."""

    path: Path
    image_ids: NDArray[np.int64]
    """(N,)"""
    file_names: tuple[str, ...]
    """N, relative to the image folder."""
    sizes: NDArray[np.int64]
    """(N, 2): (height, width) in pixels."""
    first: NDArray[np.int64]
    """(N + 1,): the boxes of image i are first[i]:first[i + 1]."""
    boxes: NDArray[np.float64]
    """(A, 4) XYXY pixels, inside their images."""
    category_ids: NDArray[np.int64]
    """(A,)"""
    crowd: NDArray[np.bool_]
    """(A,): iscrowd."""
    categories: dict[int, str]
    """id -> name, in the order of the ids."""


def read_annotations(path: str | Path) -> Annotations:
    """Read and check a COCO json.

    Raises AnnotationError for whatever DALI's own reader or a detector would take in silence and wrongly:
    missing, repeated or non-integer ids, a file name twice or outside the folder, no width and height, no
    categories, a category or image that is not there, a box that is no box or lies outside its image.
    """
    path = Path(path)
    document = _load(path)
    problems: list[str] = []
    images = _Rows(path, "images", document, problems)
    objects = _Rows(path, "annotations", document, problems)
    categories = _categories(_Rows(path, "categories", document, problems), problems)
    columns = _image_columns(images)
    _stop(path, problems)
    annotations = _object_columns(path, objects, columns, categories)
    _stop(path, problems)
    return annotations


def _load(path: Path) -> dict[str, Any]:
    try:
        document = json.loads(path.read_bytes())
    except FileNotFoundError:
        raise AnnotationError(f"{path}: no such file; detaug convert-voc makes one from Pascal VOC") from None
    except (OSError, ValueError) as error:
        raise AnnotationError(f"{path}: not readable as json ({error})") from None
    if not isinstance(document, dict):
        raise AnnotationError(f"{path}: a COCO json is an object with images, annotations and categories")
    return document


def _stop(path: Path, problems: list[str], shown: int = 5) -> None:
    if problems:
        more = [f"and {len(problems) - shown} more"] if len(problems) > shown else []
        remedy = f"detaug check {path} IMAGES lists them all; --clean writes a json without them"
        raise AnnotationError("\n  ".join([f"{path}:", *problems[:shown], *more, remedy]))


class _Rows:
    """One of the json's lists, taken apart column by column; what is wrong is noted by entry."""

    def __init__(self, path: Path, key: str, document: dict[str, Any], problems: list[str]) -> None:
        self.key, self.problems = key, problems
        rows = document.get(key)
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise AnnotationError(
                f'{path}: "{key}" must be a list of objects; is this a COCO instances file?'
            )
        self.rows: list[dict[str, Any]] = rows

    def note(self, at: int, text: str) -> None:
        self.problems.append(f"{self.key}[{at}] (id {self.rows[at].get('id')!r}): {text}")

    def integers(self, name: str, low: int, high: int = 2**63 - 1) -> list[int]:
        values = [row.get(name) for row in self.rows]
        for at, value in enumerate(values):
            if type(value) is not int or not low <= value <= high:
                self.note(at, f"{name} must be a whole number of at least {low}, got {value!r}")
                values[at] = low
        return values  # type: ignore[return-value]

    def unique(self, name: str, values: list[Any]) -> None:
        seen: dict[Any, int] = {}
        for at, value in enumerate(values):
            if seen.setdefault(value, at) != at:
                self.note(at, f"{name} {value!r} is taken by {self.key}[{seen[value]}] already")


def _categories(rows: _Rows, problems: list[str]) -> dict[int, str]:
    ids = rows.integers("id", 0)
    rows.unique("id", ids)
    if not ids:
        problems.append("categories: empty; every object would be background")
    return dict(sorted(zip(ids, (str(row.get("name", "")) for row in rows.rows), strict=True)))


def _image_columns(rows: _Rows) -> dict[str, Any]:
    ids = rows.integers("id", 0)
    rows.unique("id", ids)
    names = [_file_name(rows, at, row.get("file_name")) for at, row in enumerate(rows.rows)]
    rows.unique("file_name", names)
    sizes = [rows.integers("height", 1), rows.integers("width", 1)]
    return {"ids": ids, "names": names, "sizes": np.array(sizes, np.int64).T.reshape(-1, 2)}


def _file_name(rows: _Rows, at: int, name: Any) -> str:
    if not isinstance(name, str) or not name:
        rows.note(at, f"file_name must be a path below the image folder, got {name!r}")
    elif PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts or "\0" in name:
        rows.note(at, f"file_name leads outside the image folder: {name!r}")
    elif name.lower().endswith(".gif"):
        rows.note(at, f"DALI does not decode GIF: {name!r}; convert it to PNG")
    else:
        return name
    return f"\0{at}"


def _object_columns(
    path: Path, rows: _Rows, images: dict[str, Any], categories: dict[int, str]
) -> Annotations:
    rows.unique("id", rows.integers("id", 0))
    image = _positions(rows, "image_id", images["ids"])
    category = rows.integers("category_id", 0)
    for at, value in enumerate(category):
        if value not in categories:
            rows.note(at, f"category_id {value} is not in categories {list(categories)[:20]}")
    boxes = _inside(rows, _boxes(rows), images["sizes"][image])
    order = np.argsort(image, kind="stable")
    counts = np.bincount(image, minlength=len(images["ids"]))
    return Annotations(
        path=path,
        image_ids=np.array(images["ids"], np.int64),
        file_names=tuple(images["names"]),
        sizes=images["sizes"],
        first=np.concatenate([[0], np.cumsum(counts)]),
        boxes=boxes[order],
        category_ids=np.array(category, np.int64)[order],
        crowd=np.array([bool(row.get("iscrowd", 0)) for row in rows.rows], bool)[order],
        categories=categories,
    )


def _positions(rows: _Rows, name: str, ids: list[int]) -> NDArray[np.int64]:
    at_of = {value: at for at, value in enumerate(ids)}
    values = [row.get(name) for row in rows.rows]
    for at, value in enumerate(values):
        if not isinstance(value, int) or value not in at_of:
            rows.note(at, f"{name} {value!r} is not the id of an image")
    return np.array([at_of.get(value, 0) if isinstance(value, int) else 0 for value in values], np.int64)


def _boxes(rows: _Rows) -> NDArray[np.float64]:
    """(A, 4) XYXY pixels from COCO's [x, y, width, height]."""
    boxes = np.full((len(rows.rows), 4), np.nan)
    for at, row in enumerate(rows.rows):
        box = row.get("bbox")
        numbers = isinstance(box, list) and len(box) == 4 and all(type(v) in (int, float) for v in box)
        if numbers and np.isfinite(box).all() and box[2] > 0 and box[3] > 0:
            boxes[at] = box
        else:
            rows.note(at, f"bbox must be [x, y, width, height] with width and height above 0, got {box!r}")
    boxes[:, 2:] += boxes[:, :2]
    return boxes


def _inside(rows: _Rows, boxes: NDArray[np.float64], sizes: NDArray[np.int64]) -> NDArray[np.float64]:
    limit = np.tile(sizes[:, ::-1], 2)
    clipped = np.clip(boxes, 0, limit)
    outside = (np.abs(boxes - clipped) > TOLERANCE).any(1) | (clipped[:, 2:] <= clipped[:, :2]).any(1)
    for at in np.flatnonzero(outside):
        height, width = sizes[at]
        rows.note(
            int(at), f"bbox {rows.rows[at]['bbox']} lies outside its image of {width} x {height} pixels"
        )
    return clipped
