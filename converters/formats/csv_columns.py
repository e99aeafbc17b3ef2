"""Which column of a table of boxes has what: by the names in its head, or in keras-retinanet's order."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from detaug.converters.records.record import Edges, ObjectError, numbers_of
from detaug.files.formats import BOX_COLUMNS

_NAMES = (
    ("filename", "file_name", "image", "image_name", "image_path", "imageid", "image_id", "path", "file"),
    ("class", "label", "class_name", "label_name", "labelname", "category", "name"),
    ("width", "image_width", "img_width"),
    ("height", "image_height", "img_height"),
)
"""Of the columns of the image, its class, its width and its height."""


_CORNERS = ("xmax", "x_max", "x2", "right")
_MIDDLES = ("cx", "x_center")

_WITH_COMMA = re.compile(r"[+-]?[0-9]+,[0-9]+")
_THOUSANDS = re.compile(r"[+-]?[1-9][0-9]{0,2},[0-9]{3}")


def is_decimal_comma(text: str) -> bool:
    """Return whether a text is a number with a decimal comma, as spreadsheets of many countries write it.

    1,234 may be a thousand too, so it proves nothing.
    """
    return _WITH_COMMA.fullmatch(text) is not None and not _THOUSANDS.fullmatch(text)


class TableColumns(NamedTuple):
    """Which column has what."""

    image: int
    class_name: int
    edges: tuple[int, ...]
    has_sides: bool
    """Whether the last two of the edges are width and height, and the first two the left top corner, or the middle."""
    size: tuple[int, ...]
    columns: Mapping[str, int]
    """All others."""
    words: int
    """How many a whole row has."""
    has_head: bool = True
    has_middle: bool = False
    has_decimal_commas: bool = False

    def number_text(self, text: str) -> str:
        """Return a number with a decimal point."""
        return text.replace(",", ".") if self.has_decimal_commas and _WITH_COMMA.fullmatch(text) else text

    def edges_of(self, row: Sequence[str]) -> Edges:
        """Return the box of a row. Raises ObjectError."""
        left, top, right, bottom = numbers_of([self.number_text(row[column]) for column in self.edges], "a coordinate")
        if self.has_middle:
            left, top = left - right / 2, top - bottom / 2
        return (left, top, left + right, top + bottom) if self.has_sides else (left, top, right, bottom)


RETINANET = TableColumns(0, 5, (1, 2, 3, 4), False, (), {}, 6, has_head=False)


def table_with_head(head: Sequence[str]) -> TableColumns | None:
    """Return which column has what by the names of columns; None if they do not tell."""
    position_of = {word.lower(): position for position, word in enumerate(head)}
    edges = next((names for names in BOX_COLUMNS if position_of.keys() >= {*names}), ())
    free = position_of.keys() - {*edges}
    image, class_name, width, height = (
        next((position_of[name] for name in candidates if name in free), None) for candidates in _NAMES
    )
    if (
        not edges or image is None or class_name is None or position_of.keys() >= {"x1", "y1", "x3", "y3"}
    ):  # four corners
        return None
    size = (width, height) if width is not None and height is not None else ()
    used = {image, class_name, *size, *(position_of[name] for name in edges)}
    columns = {word: position for position, word in enumerate(head) if word and position not in used}
    places = tuple(position_of[name] for name in edges)
    has_sides = edges[2] not in _CORNERS
    return TableColumns(image, class_name, places, has_sides, size, columns, len(head), has_middle=edges[0] in _MIDDLES)


def is_retinanet(row: Sequence[str]) -> bool:
    """Return whether a row is path,x1,y1,x2,y2,class, or path,,,,, of an image without objects."""
    try:
        return len(row) == 6 and (not any(row[1:]) or bool(numbers_of(row[1:5], "")))
    except ObjectError:
        return False
