"""Read ids and numbers that are text, ids like 1.0, and boxes with negative sides: each has one meaning only."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import count
from typing import Any, cast

from detaug.coco.table import Coco
from detaug.coco.writer import whole
from detaug.findings.entries import Findings, Where, from_messages
from detaug.findings.finding import shown

Row = dict[str, Any]

REPAIRABLE = frozenset(
    (
        *("image-id", "category-id", "annotation-id", "video-id", "frame-id", "track-id", "image-id-unknown"),
        *("category-unknown", "image-size", "crowd-invalid", "box-invalid", "box-empty"),
    )
)
"""Kinds of findings that are a reason to look for repairs."""

REPAIRS = ("id-form", "number-text", "box-reversed")
"""Kinds of the repairs."""

_IDS = {
    "images": {"id": "images", "category_id": "categories", "video_id": "videos"},
    "annotations": {"id": "annotations", "image_id": "images", "category_id": "categories"},
    "categories": {"id": "categories"},
    "videos": {"id": "videos"},
}
"""By list and key: the list that the id is of."""
_NUMBERS = {
    "images": ("width", "height", "frame_id"),
    "annotations": ("iscrowd", "area", "track_id", "instance_id"),
}
_WHOLE = ("frame_id", "track_id", "instance_id")
"""Keys that are read as whole numbers if they are like 1.0."""
_PLAIN_ID = re.compile("0|[1-9][0-9]{0,17}")
_NUMBER = re.compile(r"\s*[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]{1,3})?\s*", re.ASCII)
_EXACT = 2**53  # from there on, floats are no longer exact


def repair_numbers(coco: Coco) -> tuple[Coco, list[Findings]]:
    """Return the JSON file with integer ids, numbers for text and positive box sides; and a finding for each row.

    An id or reference that is text is the number that it spells, unless another id is that number; all other texts get
    numbers that are free. What has no single meaning stays as it is.
    """
    ids = {where: _IdNumbers([row.get("id") for row in _rows(coco, where) if isinstance(row, dict)]) for where in _IDS}
    messages: dict[tuple[str, str], dict[int, str]] = {}
    document = dict(coco.document)
    for where in _IDS:
        rows = list(_rows(coco, where))
        for index, row in enumerate(rows):
            for kind, changes in _changes(where, row, ids) if isinstance(row, dict) else ():
                texts = [f"{key} {shown(row[key])} becomes {new}" for key, new in changes.items()]
                messages.setdefault((kind, where), {})[index] = ", ".join(texts)
                rows[index] = rows[index] | changes
        if rows:
            document[where] = rows
    findings = [from_messages(kind, cast("Where", where), by_row) for (kind, where), by_row in messages.items()]
    return replace(coco, document=document), findings


def _rows(coco: Coco, where: str) -> Iterable[Any]:
    rows = coco.document.get(where)
    return rows if isinstance(rows, list) else ()


class _IdNumbers:
    """The whole numbers that the ids of one list mean."""

    def __init__(self, values: list[Any]) -> None:
        self.numbers = {number for value in values if (number := _whole(value)) is not None}
        texts = list(dict.fromkeys(value for value in values if type(value) is str))
        spelt = {text: int(text) for text in texts if _PLAIN_ID.fullmatch(text) and int(text) not in self.numbers}
        taken = self.numbers | set(spelt.values())
        free = (number for number in count(1) if number not in taken)
        self.texts = spelt | dict(zip((text for text in texts if text not in spelt), free, strict=False))

    def of(self, value: Any) -> int | None:
        """Return the number that an id or a reference to one means; None where it has none."""
        if type(value) is not str:
            return _whole(value)
        spelt = int(value) if _PLAIN_ID.fullmatch(value) else None
        return self.texts.get(value, spelt if spelt in self.numbers else None)


def _whole(value: Any) -> int | None:
    if type(value) is int:
        return value
    return int(value) if type(value) is float and value.is_integer() and 0 <= value < _EXACT else None


def _changes(where: str, row: Row, ids: Mapping[str, _IdNumbers]) -> Iterator[tuple[str, Row]]:
    """Yield (kind of finding, new values by key) of a row."""
    numbers = {key: ids[target].of(row.get(key)) for key, target in _IDS[where].items()}
    changes: Row = {key: new for key, new in numbers.items() if new is not None and type(row[key]) is not int}
    if changes:
        yield "id-form", changes
    values = {key: _number(row.get(key), key) for key in _NUMBERS.get(where, ())}
    changes = {key: new for key, new in values.items() if new is not None}
    box = row.get("bbox") if where == "annotations" else None
    if not (isinstance(box, list) and len(box) == 4):
        box = None
    elif any(type(value) is str for value in box):
        parsed = [_number(value, "bbox") if type(value) is str else value for value in box]
        box = None if None in parsed else parsed
        changes |= {"bbox": box} if box else {}
    if changes:
        yield "number-text", changes
    if box and {type(value) for value in box} <= {int, float} and (positive := _turned(*box)) != box:
        yield "box-reversed", {"bbox": positive}


def _number(value: Any, key: str) -> float | int | None:
    """Return the number that a text spells, or that a key of whole numbers is written as; None for all others."""
    if type(value) is str and _NUMBER.fullmatch(value) and abs(float(value)) < _EXACT:
        return whole(float(value))
    return _whole(value) if key in _WHOLE and type(value) is float else None


def _turned(x: float, y: float, width: float, height: float) -> list[float | int]:
    """Return a box with positive sides: the same box, drawn from its other corner."""
    if not (-_EXACT < min(width, height) < 0):
        return [x, y, width, height]
    left, top = (round(low + min(side, 0), 6) for low, side in ((x, width), (y, height)))
    return [whole(left), whole(top), abs(width), abs(height)]
