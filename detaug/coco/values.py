"""Columns of further keys of the annotations of a COCO JSON file: numbers, or objects."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.coco.table import Table
from detaug.errors import AnnotationError
from detaug.findings.finding import shown

Column = NDArray[Any]


def column_of_key(table: Table, key: str) -> Column:
    """Return the values of a key of all annotations, in the file's order; "a.b" is the key b in an object a.

    Raises AnnotationError where no annotation has it.
    """
    rows = table.coco.document["annotations"]
    path = [key] if any(key in row for row in rows) else key.split(".")
    values = [_value(row, path) for row in rows]
    if rows and all(value is None for value in values) and not any(_has(row, path) for row in rows):
        names = sorted({name for row in rows for name in row})
        raise AnnotationError(f"{table.path}: no annotation has {shown(key)}; they have {', '.join(map(shown, names))}")
    return column_of(values)


def _value(row: Any, path: Sequence[str]) -> Any:
    for name in path:
        row = row.get(name) if isinstance(row, dict) else None
    return row


def _has(row: Any, path: Sequence[str]) -> bool:
    *parents, name = path
    row = _value(row, parents)
    return isinstance(row, dict) and name in row


def column_of(values: Sequence[Any]) -> Column:
    """Return a column of values of a JSON file. A missing value, None, is -1 among whole numbers and NaN among others.

    Lists of numbers of one length become (A, K); text, other lists and a mixture stay objects.
    """
    kinds = set(map(type, values)) - {type(None)}
    if kinds and kinds <= {int, bool} and all(value is None or abs(value) < 2**63 for value in values):
        return np.array([-1 if value is None else value for value in values], np.int64)
    if kinds and kinds <= {int, bool, float}:
        with suppress(OverflowError):  # a whole number above all floats
            return np.array([np.nan if value is None else value for value in values], np.float64)
    if kinds == {list} and None not in values and len(set(map(len, values))) == 1:
        numbers = {type(number) for value in values for number in value}
        if numbers and numbers <= {int, float}:
            return np.array(values, np.float64)
    return as_objects(values)


def as_objects(values: Sequence[Any]) -> Column:
    """Return (A,) the values as objects, also where they are lists of one length."""
    column = np.empty(len(values), object)
    column[:] = values
    return column
