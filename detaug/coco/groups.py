"""Groups of images that belong together: frames of a video, tiles of one image, those that the user names.

One rule for `split`, which keeps a group in one file, and for `check --against`, which finds groups in two of them
(decision 25).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from detaug.arrays import Ints
from detaug.coco.table import Table
from detaug.errors import InputError
from detaug.findings.finding import counted, shown

Mark = tuple[str, Hashable]
"""What images of a group share: its kind ("image", of which all are tiles, "key", "name" or "copy") and its name."""


@dataclass(frozen=True)
class GroupRule:
    """What groups images beside videos and tiles. key: of the JSON file's images. name: a pattern in file names."""

    key: str | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        try:
            re.compile(self.name or "")
        except re.error as error:
            raise InputError(f"group_name must be a regular expression, got {shown(self.name)} ({error})") from None

    def marks(self, table: Table) -> list[list[Mark]]:
        """Return the marks of each image. Raises InputError for images without the key, or without the pattern."""
        in_files = table.videos.in_files.tolist()  # frames that are not files, whose names may repeat
        own: list[list[Mark]] = [
            [] if in_files[index] or not name else [("image", origin_of(table, index)[0])]
            for index, name in enumerate(table.file_names)
        ]
        named = [("key", self._values(table, self.key))] if self.key is not None else []
        named += [("name", self._parts_of_names(table))] if self.name is not None else []
        for kind, values in named:
            for marks, value in zip(own, values, strict=True):
                marks.append((kind, value))
        return own

    @staticmethod
    def _values(table: Table, key: str) -> list[Hashable]:
        rows = [table.row("images", index) for index in range(len(table.file_names))]
        lacking = [row for row in rows if not isinstance(row.get(key), int | str)]
        if lacking:
            raise InputError(
                f"group_key must be a key of every image, with a number or a text, got {shown(key)}: "
                f"{counted(len(lacking), 'image')} of {table.path}, the first with id {shown(lacking[0].get('id'))}, "
                f"without it; keys of the first: {', '.join(map(shown, rows[0]))}"
            )
        return [row[key] for row in rows]

    def _parts_of_names(self, table: Table) -> list[Hashable]:
        matches = [re.search(self.name or "", name) for name in table.file_names]
        lacking = [name for name, match in zip(table.file_names, matches, strict=True) if match is None]
        if lacking:
            raise InputError(
                f"group_name must be a pattern in every file name, got {shown(self.name)}: "
                f"{counted(len(lacking), 'name')} of {table.path} without it, the first is {shown(lacking[0])}"
            )
        return [match.groups() or match[0] for match in matches if match]


def origin_of(table: Table, index: int) -> tuple[Hashable, bool]:
    """Return the name of the image that an image is a tile of, else its own name; and whether it is a tile.

    A tile of a tile is one of the whole image. Without a file_name `tile_of` is told by its id.
    """
    tile_of = table.row("images", index).get("tile_of")
    if not isinstance(tile_of, dict):
        return posixpath.normpath(table.file_names[index]), False
    while isinstance(tile_of.get("tile_of"), dict):
        tile_of = tile_of["tile_of"]
    name = tile_of.get("file_name")
    return (posixpath.normpath(name), True) if isinstance(name, str) else (("id", shown(tile_of.get("id"))), True)


def joined_units(units: Ints, marks: Sequence[Iterable[Mark]], count: int) -> Ints:
    """Return (count,) the new number of each unit, 0.. in the order of the first: units with a common mark are one.

    units: (N,) the unit of each image.
    """
    # Union-find. The smaller number is the root, so that the groups stay in the order of their first units.
    parent = list(range(count))

    def root(unit: int) -> int:
        while parent[unit] != unit:
            parent[unit] = unit = parent[parent[unit]]
        return unit

    first = dict[Any, int]()
    for unit, own in zip(units.tolist(), marks, strict=True):
        for mark in own:
            one, other = sorted((root(first.setdefault(mark, unit)), root(unit)))
            parent[other] = one
    roots = np.array([root(unit) for unit in range(count)], np.int64)
    return np.unique(roots, return_inverse=True)[1].reshape(-1)
