"""Writing json: atomically, compactly, and the same bytes for the same content."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from detaug.converters.files.atomic import write_atomically

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False).encode
_ROWS_AT_ONCE = 1000  # the C encoder wants whole lists; a thousand rows keep memory flat

Row = Mapping[str, object]


def write_coco(
    path: str | os.PathLike[str],
    images: Iterable[Row],
    annotations: Iterable[Row],
    categories: Iterable[Row],
    info: Row | None = None,
) -> None:
    """Write a COCO json file. The rows may be generators; they are read once and never held together.

    Compact UTF-8, keys in the order of the rows. Raises ValueError for NaN and infinity.
    """
    write_atomically(path, _coco_text(images, annotations, categories, info or {}))


def whole(value: float) -> float | int:
    """The same number, as an int where it is one, so that json says 12 and not 12.0."""
    return int(value) if value == int(value) else value


def _coco_text(
    images: Iterable[Row], annotations: Iterable[Row], categories: Iterable[Row], info: Row
) -> Iterator[str]:
    yield f'{{"info":{_encode(info)},"images":['
    yield from _rows_text(images)
    yield '],"annotations":['
    yield from _rows_text(annotations)
    yield '],"categories":['
    yield from _rows_text(categories)
    yield "]}\n"


def _rows_text(rows: Iterable[Row]) -> Iterator[str]:
    """Rows as json without the brackets around them, a thousand a line."""
    rows = iter(rows)
    separator = "\n"
    while batch := list(islice(rows, _ROWS_AT_ONCE)):
        yield separator
        yield _encode(batch)[1:-1]
        separator = ",\n"
