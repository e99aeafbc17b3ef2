"""COCO json as columns, checked: what training reads, and what it must not read in silence."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.converters.coco import annotation_cache, examine, table
from detaug.converters.coco.annotation_cache import Columns
from detaug.converters.coco.examine import examine_file
from detaug.converters.coco.table import Table
from detaug.converters.findings.errors import AnnotationError

__all__ = ["AnnotationError", "Annotations", "read_annotations"]


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


def read_annotations(path: str | Path, *, cache: bool = True) -> Annotations:
    """Read and check a COCO json.

    Raises AnnotationError for whatever DALI's own reader or a detector would take in silence and wrongly:
    missing, repeated or non-integer ids, a file name twice or outside the folder, no width and height, no
    categories, a category or image that is not there, a box that is no box or lies outside its image. These
    are the errors of `detaug check` that need no image; a box up to 1 pixel outside is cut at the edge.

    `cache`: what was read of a json of 4 MB or more is kept in `.NAME.detaug.npz` beside it, or in
    ~/.cache/detaug where that cannot be written, and taken from there as long as the json's content is the same.
    """
    path = Path(path)
    if not (cache and path.is_file() and path.stat().st_size >= annotation_cache.SMALLEST):
        return _checked(path)
    before = path.stat()
    key = annotation_cache.content_key(path, _rules())
    if (columns := annotation_cache.load_columns(path, key)) is not None:
        return _from_columns(path, columns)
    read, after = _checked(path), path.stat()
    if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size):  # not written to meanwhile
        annotation_cache.save_columns(path, key, _to_columns(read))
    return read


def _checked(path: Path) -> Annotations:
    table = examine_file(path)
    _raise_on_errors(table)
    return _by_image(table)


def _rules() -> bytes:
    """Other code may read a json in another way."""
    return b"".join(Path(str(file)).read_bytes() for file in (__file__, examine.__file__, table.__file__))


def _to_columns(read: Annotations) -> Columns:
    arrays = {name: value for name, value in vars(read).items() if isinstance(value, np.ndarray)}
    ids = np.array(list(read.categories), np.int64)
    return {**arrays, "file_names": _joined(read.file_names), "ids": ids, "names": _joined(read.categories.values())}


def _from_columns(path: Path, columns: Columns) -> Annotations:
    categories = dict(zip(columns.pop("ids").tolist(), _split(columns.pop("names")), strict=True))
    file_names = tuple(_split(columns.pop("file_names")))
    known: Any = {field.name: columns[field.name] for field in fields(Annotations) if field.name in columns}
    return Annotations(path=path, file_names=file_names, categories=categories, **known)


def _joined(names: Iterable[str]) -> NDArray[np.uint8]:
    """Names may hold any character, so they are kept as json."""
    return np.frombuffer(json.dumps(list(names)).encode(), np.uint8)


def _split(column: NDArray[np.generic]) -> list[str]:
    names: list[str] = json.loads(column.tobytes())
    return names


def _raise_on_errors(table: Table, most: int = 5) -> None:
    errors = [found for found in table.findings if found.severity == "error"]
    if not errors:
        return
    each = max(1, most // len(errors))
    lines = [f"{table.entry(found.where, row)}{found.describe(row)}" for found in errors for row in found.rows[:each]]
    more = sum(map(len, errors)) - len(lines[:most])
    rest = [f"and {more:,} more"] if more else []
    remedy = f"detaug check {table.path} IMAGES lists them all; --clean writes a json without them"
    raise AnnotationError("\n  ".join([f"{table.path}:", *lines[:most], *rest, remedy]))


def _by_image(table: Table) -> Annotations:
    order = np.argsort(table.image_at, kind="stable")
    counts = np.bincount(table.image_at, minlength=len(table.image_ids))
    return Annotations(
        path=table.path,
        image_ids=table.image_ids,
        file_names=tuple(table.file_names),
        sizes=table.sizes,
        first=np.concatenate([[0], np.cumsum(counts)]),
        boxes=table.boxes[order],
        category_ids=table.category_ids[order],
        crowd=table.crowd[order],
        categories=table.categories,
    )
