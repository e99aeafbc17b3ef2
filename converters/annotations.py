"""COCO json as columns, checked: what training reads, and what it must not read in silence."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from detaug.converters.check_json import AnnotationError, Table, examine_file

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


def read_annotations(path: str | Path) -> Annotations:
    """Read and check a COCO json.

    Raises AnnotationError for whatever DALI's own reader or a detector would take in silence and wrongly:
    missing, repeated or non-integer ids, a file name twice or outside the folder, no width and height, no
    categories, a category or image that is not there, a box that is no box or lies outside its image. These
    are the errors of `detaug check` that need no image; a box up to 1 pixel outside is cut at the edge.
    """
    table = examine_file(path)
    _raise_on_errors(table)
    return _by_image(table)


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
