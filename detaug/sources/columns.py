"""Columns: what belongs to annotations beside their boxes and labels, such as area, difficult or a track.

A column is an array whose first axis is the annotations of a source: numbers (A, ...), or objects (A,) such as text and
lists. Ops never see it. `Views.rows` says which annotation each box is, and the columns of a batch are gathered by it
at the end, so a column cannot get out of step (decision 15).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from detaug.arrays import Ints
from detaug.coco.values import Column, as_objects
from detaug.errors import InputError


def as_columns(columns: Mapping[str, ArrayLike], rows: int, origin: str) -> dict[str, Column]:
    """Return columns as arrays: int64, float64 or objects. Raises InputError for one without `rows` rows."""
    arrays: dict[str, Column] = {}
    for name, values in columns.items():
        array = np.asarray(values)
        if array.shape[:1] != (rows,):
            raise InputError(f"{origin}: column {name!r} must have a row for each of {rows} boxes, got {array.shape}")
        kind = array.dtype.kind
        arrays[name] = array.astype(np.int64 if kind in "biu" else np.float64 if kind == "f" else object)
    return arrays


def gather(columns: Mapping[str, Column], rows: Ints) -> dict[str, Column]:
    """Return the columns of boxes, (N, M, ...). `rows`: (N, M); where negative: -1 in whole numbers, NaN, or None."""
    return {name: _gather(column, rows) for name, column in columns.items()}


def _gather(column: Column, rows: Ints) -> Column:
    if not len(column):
        return np.full((*rows.shape, *column.shape[1:]), _padding(column), column.dtype)
    gathered = column[rows]  # a negative row takes one from the end
    gathered[rows < 0] = _padding(column)
    return np.asarray(gathered)


def _padding(column: Column) -> Any:
    return {"i": -1, "f": np.nan}.get(column.dtype.kind)


def join(columns: Sequence[Mapping[str, Column]], lengths: Sequence[int]) -> dict[str, Column]:
    """Return the columns of concatenated annotations; where a part lacks one, it has what pads it."""
    names = dict.fromkeys(name for part in columns for name in part)
    return {name: _join([part.get(name) for part in columns], lengths) for name in names}


def _has_type(part: Column) -> bool:
    """Return whether a column has values; without annotations, or where all are missing, it has no type of its own."""
    return bool(len(part)) and (part.dtype != object or any(value is not None for value in part))


def _join(parts: Sequence[Column | None], lengths: Sequence[int]) -> Column:
    known = [part for part in parts if part is not None]
    typed = [part for part in known if _has_type(part)] or known[:1]
    parts = [part if part is not None and _has_type(part) else None for part in parts]
    if len({part.shape[1:] for part in typed}) > 1 or len({part.dtype.kind == "O" for part in typed}) > 1:
        typed = [as_objects(part.tolist()) for part in typed]
        parts = [None if part is None else as_objects(part.tolist()) for part in parts]
    if any(part.dtype.kind == "f" for part in typed):
        typed = [part.astype(np.float64) for part in typed]
    example = typed[0]
    filled = [
        np.full((length, *example.shape[1:]), _padding(example), example.dtype) if part is None else part
        for part, length in zip(parts, lengths, strict=True)
    ]
    return np.concatenate(filled)
