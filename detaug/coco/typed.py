"""Read a COCO JSON file for training by msgspec, in a third of the time and memory of Python's own parser.

It vouches for files without a fault alone. For any other `examine_typed` returns None, and the ordinary way,
`examine_file`, says what is wrong, or repairs it. Both ways end in one table, by the same checks.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import compress
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from detaug.arrays import Bools
from detaug.coco.columns import Rows
from detaug.coco.examine import no_garbage_collection, table_of
from detaug.coco.outlines import rings_of
from detaug.coco.repair import REPAIRABLE
from detaug.coco.table import Coco, Table
from detaug.files.text import unique_keys
from detaug.findings.entries import Findings, Where

_IMAGE: Mapping[str, Any] = {"id": int, "file_name": str, "height": int, "width": int}
_ANNOTATION: Mapping[str, Any] = {"id": int, "image_id": int, "category_id": int, "bbox": list[float]}
"""Keys that each entry must have. A value of another type, such as 3.0 for an id, ends the attempt."""
_OPTIONAL: Mapping[str, Any] = {"iscrowd": int | None}

_ABSENT = msgspec.Raw()

_MOST_KEYS = 100
"""Other keys of a file: each is found by an attempt that fails at the first entry with it."""

_UNKNOWN = re.compile(r"Object contains unknown field `(.*?)`(?: - at `\$\.(images|annotations)\[\d+\]`)?", re.DOTALL)

_MEMBER = b'":'
"""Once in each member of an object; and in text, and not in a file with spaces there: both end the attempt."""

_PART = 1 << 24


def examine_typed(path: Path) -> Table | None:
    """Return the table of a COCO JSON file, None unless it is one without errors and without what is repaired."""
    findings: list[Findings] = []
    with no_garbage_collection():
        try:
            content, keys = _parsed(path.read_bytes())
            categories = json.loads(bytes(content.categories), parse_constant=_refused, object_pairs_hook=unique_keys)
            document = {"images": content.images, "annotations": content.annotations, "categories": categories}
            coco = Coco(path, document)
            images, objects = (_TypedRows(coco, where, findings, keys[where]) for where in ("images", "annotations"))
            table = table_of(coco, images, objects, Rows(coco, "categories", findings), findings)
        except (OSError, ValueError, msgspec.MsgspecError, RecursionError):
            return None
    faults = any(finding.severity == "error" or finding.kind in REPAIRABLE for finding in findings)
    return None if faults else table


def _refused(constant: str) -> float:
    raise ValueError(constant)


class _Keys:
    """The keys of objects, which become attributes: `typed` ones, and others, whose values stay bytes of JSON."""

    def __init__(self, typed: Mapping[str, Any], optional: Mapping[str, Any]) -> None:
        self.typed, self.optional, self.others = typed, optional, dict[str, str]()

    def add(self, key: str) -> None:
        """Add another key. It may be any text, which no attribute may be."""
        self.others[key] = f"other_{len(self.others)}"

    def struct(self) -> Any:
        fields: list[Any] = [*self.typed.items()]
        fields += [(key, kind | msgspec.UnsetType, msgspec.UNSET) for key, kind in self.optional.items()]
        fields += [(name, msgspec.Raw, _ABSENT) for name in self.others.values()]
        rename = {name: key for key, name in self.others.items()}
        return msgspec.defstruct("Entry", fields, rename=rename, forbid_unknown_fields=True, gc=False)

    def members(self, rows: list[Any]) -> int:
        """Count the members of the objects."""
        count = len(self.typed) * len(rows)
        for key in self.optional:
            count += len(rows) - list(map(attrgetter(key), rows)).count(msgspec.UNSET)
        return count + sum(map(len, self._values(rows)))

    def members_within(self, rows: list[Any]) -> int:
        """Count the members of objects within other values, such as a mask's."""
        return sum(bytes(value).count(_MEMBER) for values in self._values(rows) for value in values)

    def _values(self, rows: list[Any]) -> Iterator[list[msgspec.Raw]]:
        for name in self.others.values():
            yield [value for value in map(attrgetter(name), rows) if value is not _ABSENT]


def _parsed(data: bytes) -> tuple[Any, dict[Where, _Keys]]:
    """Return the lists of a document, and the keys of their entries. Raises ValueError for what is not certain."""
    if not data.isascii():  # msgspec skips the text of other keys as it is
        decoder = codecs.getincrementaldecoder("utf-8")()
        for start in range(0, len(data), _PART):
            decoder.decode(data[start : start + _PART], start + _PART >= len(data))
    document, images, annotations = _Keys({}, {}), _Keys(_IMAGE, {}), _Keys(_ANNOTATION, _OPTIONAL)
    by_list = {None: document, "images": images, "annotations": annotations}
    for _ in range(_MOST_KEYS):
        document.typed = {
            "images": list[images.struct()],  # type: ignore[misc]
            "annotations": list[annotations.struct()],  # type: ignore[misc]
            "categories": msgspec.Raw,
        }
        try:
            content = msgspec.json.decode(data, type=document.struct())
            break
        except msgspec.ValidationError as error:
            unknown = _UNKNOWN.fullmatch(str(error))
            if unknown is None:
                raise
            by_list[unknown[2]].add(unknown[1])
    else:
        raise ValueError("too many keys")
    if "videos" in document.others or "segments_info" in annotations.others:
        raise ValueError("frames of videos, or COCO's panoptic form")
    # A parser keeps the last one of two members with one key: their number tells.
    lists = ((document, [content]), (images, content.images), (annotations, content.annotations))
    left = data.count(_MEMBER) - bytes(content.categories).count(_MEMBER)
    left -= sum(keys.members(rows) for keys, rows in lists)
    if left and left != sum(keys.members_within(rows) for keys, rows in lists):
        raise ValueError("a key that occurs twice, or another form")
    return content, {"images": images, "annotations": annotations}


class _TypedRows(Rows):
    """Entries of a list that are structs. All of them are there."""

    def __init__(self, coco: Coco, where: Where, findings: list[Findings], keys: _Keys) -> None:
        self.where, self.findings, self.rows = where, findings, coco.document[where]
        self.present, self._keys = np.ones(len(self.rows), bool), keys

    def column(self, name: str) -> list[Any]:
        if name in self._keys.typed:
            return list(map(attrgetter(name), self.rows))
        if name in self._keys.optional:
            return [None if value is msgspec.UNSET else value for value in map(attrgetter(name), self.rows)]
        if name not in self._keys.others:
            return [None] * len(self.rows)
        return list(map(_decoded, map(attrgetter(self._keys.others[name]), self.rows)))

    def values(self, name: str, wanted: Bools) -> Iterable[Any]:
        if name not in self._keys.others:
            return super().values(name, wanted) if name in self._keys.typed else ()
        rows: Iterator[Any] = compress(self.rows, wanted.tolist())
        values = map(_decoded, map(attrgetter(self._keys.others[name]), rows))
        return map(rings_of, values) if name == "segmentation" else values

    def entry(self, index: int) -> dict[str, Any]:
        raise ValueError("a row without a box is read in the ordinary way")


def _decoded(value: msgspec.Raw) -> Any:
    return None if value is _ABSENT else msgspec.json.decode(value)
