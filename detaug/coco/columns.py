"""Read the columns of one list of a COCO JSON file, and note by row what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import chain, compress
from typing import Any

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.coco.table import Coco
from detaug.findings.entries import Findings, Where
from detaug.findings.finding import shown

LARGEST_ID = 2**63 - 1

_LARGEST_COORDINATE = 1e15


class Rows:
    """One list of the JSON file. Findings about it are appended to `findings`."""

    def __init__(self, coco: Coco, where: Where, findings: list[Findings]) -> None:
        self.where, self.findings = where, findings
        entries: list[Any] = coco.document[where]
        self.rows: list[dict[str, Any]] = entries
        self.present = np.ones(len(entries), bool)
        if not set(map(type, entries)) <= {dict}:
            self.present = np.array([isinstance(entry, dict) for entry in entries])
            rows, text = np.flatnonzero(~self.present), "must be an object {...}, got "
            findings.append(Findings("row-not-object", where, rows, lambda row: text + shown(entries[row])))
            self.rows = [entry if isinstance(entry, dict) else {} for entry in entries]

    def column(self, name: str) -> list[Any]:
        """Return the values of a key, None where a row lacks it."""
        return [row.get(name) for row in self.rows]

    def values(self, name: str, wanted: Bools) -> Iterable[Any]:
        """Return the values of a key in the rows that are wanted, maybe none where all lack it."""
        return compress(self.column(name), wanted.tolist())

    def entry(self, index: int) -> dict[str, Any]:
        """Return all keys and values of a row."""
        return self.rows[index]

    def note(self, kind: str, wrong: Bools, describe: Callable[[int], str], *, badness: Floats | None = None) -> None:
        """Append findings about the rows that are wrong; rows that are not objects have their own finding.

        badness: a number for each row; rows with the largest come first.
        """
        rows = np.flatnonzero(wrong & self.present)
        if badness is not None:
            rows = rows[np.argsort(-badness[rows], kind="stable")]
        if len(rows):
            self.findings.append(Findings(kind, self.where, rows, describe))

    def whole_numbers(
        self, name: str, kind: str, values: list[Any] | None = None, *, low: int = 0, high: int = LARGEST_ID
    ) -> tuple[Ints, Bools]:
        """Return a column as int64, and where it is a whole number in range; elsewhere the column has `low`."""
        values = self.column(name) if values is None else values
        numbers, good = whole_numbers(values, low, high)
        limit = "2^63 - 1" if high == LARGEST_ID else f"{high:,}"
        rule = f"{name} must be a whole number from {low} to {limit}, got "
        self.note(kind, ~good, lambda row: rule + shown(values[row]))
        return numbers, good & self.present

    def note_repeated_ids(self, kind: str, ids: Ints, good: Bools) -> None:
        """Append findings about ids that an earlier row has."""
        first = _first_equal(ids, good)
        self.note(
            kind,
            first != np.arange(len(first)),
            lambda row: f"id {shown(self.rows[row].get('id'))} is taken by {self.where}[{first[row]}] already",
        )


def _first_equal(values: Ints, good: Bools) -> Ints:
    """Return (N,) the first row with the same value; for rows that are not good, the row itself."""
    first: Ints = np.arange(len(values))
    rows = np.flatnonzero(good)
    # Ids of most files ascend, and are unique then: no sort is needed.
    if not (np.diff(values[rows]) > 0).all():
        _, earliest, inverse = np.unique(values[rows], return_index=True, return_inverse=True)
        first[rows] = rows[earliest[inverse]]
    return first


def whole_numbers(values: list[Any], low: int = 0, high: int = LARGEST_ID) -> tuple[Ints, Bools]:
    """Return (N,) int64, and where the value is a whole number from low to high; elsewhere it is `low`."""
    if set(map(type, values)) <= {int}:
        with suppress(OverflowError):
            numbers = np.array(values, np.int64)
            good = (numbers >= low) & (numbers <= high)
            return np.where(good, numbers, low), good
    fits = [type(value) is int and low <= value <= high for value in values]
    numbers = np.array([value if fit else low for value, fit in zip(values, fits, strict=True)], np.int64)
    return numbers, np.array(fits, bool)


def four_numbers(values: list[Any]) -> tuple[Floats, Bools]:
    """Return (A, 4) float64, and where the value is four finite numbers; elsewhere it is a box of one pixel."""
    are_fours = set(map(type, values)) <= {list} and set(map(len, values)) <= {4}
    if are_fours and set(map(type, chain.from_iterable(values))) <= {int, float}:
        with suppress(OverflowError):  # an int too large for a float
            boxes = np.fromiter(chain.from_iterable(values), np.float64, 4 * len(values)).reshape(-1, 4)
            good: Bools = np.all(np.abs(boxes) < _LARGEST_COORDINATE, axis=1)  # False for NaN
            boxes[~good] = 0, 0, 1, 1
            return boxes, good
    fits = [_is_four_numbers(value) for value in values]
    rows = [value if fit else (0, 0, 1, 1) for value, fit in zip(values, fits, strict=True)]
    return np.array(rows, np.float64).reshape(-1, 4), np.array(fits, bool)


def _is_four_numbers(value: Any) -> bool:
    if not (type(value) is list and len(value) == 4 and {type(number) for number in value} <= {int, float}):
        return False
    return all(abs(number) < _LARGEST_COORDINATE for number in value)  # False for NaN
