"""Read COCO's panoptic JSON files: `segments_info` of each map, and the classes, with `isthing`.

Source of the form: https://cocodataset.org/#format-data, "Panoptic Segmentation", and
https://github.com/cocodataset/panopticapi.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from detaug.arguments import is_numbers, is_whole
from detaug.arrays import Bools, Floats, Ints
from detaug.errors import InputError
from detaug.files.text import read_json

MOST_ID = (1 << 24) - 1
"""Of a segment, the color white."""


class PanopticClasses(NamedTuple):
    """The classes of a JSON file, in its order."""

    ids: tuple[int, ...]
    names: tuple[str, ...]
    is_thing: tuple[bool, ...]


class SegmentColumns(NamedTuple):
    """The S segments of n maps, one map after another, each sorted by id."""

    first: Ints
    """(n + 1,): those of map i are first[i] to first[i + 1]."""
    ids: Ints
    """(S,)"""
    classes: Ints
    """(S,): positions in `PanopticClasses`."""
    crowd: Bools
    """(S,)"""
    boxes: Floats
    """(S, 4) XYXY pixels; NaN of those without `bbox`."""
    places: Ints
    """(S,): numbers in the order of the file."""


@dataclass(frozen=True, eq=False)
class PanopticJson:
    """A JSON file in COCO's panoptic form."""

    path: Path
    classes: PanopticClasses
    images: list[Any]
    """As they are in the file, not checked."""
    entries: dict[str, tuple[int, list[Any]]]
    """By the file name of a map: the position of its entry in the file, and its `segments_info`."""
    is_prediction: bool = False
    """Whether the classes are those of another file, the ground truth."""

    def columns(self, file_names: Sequence[str | None]) -> SegmentColumns:
        """Return the segments of some maps, none where a name is None. Raises InputError for a wrong entry."""
        counts = [0 if name is None else len(self.entries[name][1]) for name in file_names]
        rows = [row for name in file_names if name is not None for row in self.entries[name][1]]
        position = {number: index for index, number in enumerate(self.classes.ids)}
        if any(type(row) is not dict for row in rows):
            self._raise_first(file_names, position)
        ids, categories, crowds = (
            [row.get(key, other) for row in rows] for key, other in (("id", 0), ("category_id", None), ("iscrowd", 0))
        )
        fine = {*map(type, ids), *map(type, categories), *map(type, crowds)} <= {int}
        fine = fine and {*crowds} <= {0, 1} and position.keys() >= {*categories}
        fine = fine and all(0 < number <= MOST_ID for number in ids)
        if not fine or not all(is_numbers(row["bbox"], 4) for row in rows if "bbox" in row):
            self._raise_first(file_names, position)  # slower
        boxes = np.array([row.get("bbox", [np.nan] * 4) for row in rows], np.float64).reshape(-1, 4)
        image, number = np.repeat(np.arange(len(counts)), counts), np.array(ids, np.int64)
        order = np.lexsort([number, image])
        again = (np.diff(number[order]) == 0) & (np.diff(image[order]) == 0)
        if again.any():
            second = order[int(np.argmax(again))]
            entry = self._entry(file_names[image[second]])
            raise InputError(f"{entry}: the id {number[second]} occurs twice; give each segment its own")
        return SegmentColumns(
            first=np.concatenate([[0], np.cumsum(counts)]).astype(np.int64),
            ids=number[order],
            classes=np.array([position[number] for number in categories], np.int64)[order],
            crowd=np.array(crowds, bool)[order],
            boxes=np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], axis=1)[order],
            places=order,
        )

    def _entry(self, name: str | None) -> str:
        return f"{self.path}: annotations[{self.entries[str(name)][0]}] ({name})"

    def _raise_first(self, file_names: Sequence[str | None], position: Mapping[int, int]) -> None:
        for name in file_names:
            for index, row in enumerate([] if name is None else self.entries[name][1]):
                if fault := _fault(row, position, self.is_prediction):
                    raise InputError(f"{self._entry(name)}: segments_info[{index}] {fault}")


def _fault(row: Any, known: Mapping[int, int], is_prediction: bool) -> str:
    """Return what is wrong with an entry of `segments_info`, or ""."""
    if not isinstance(row, dict):
        return f"must be an object with id and category_id, got {row!r}"
    if not is_whole(row.get("id"), 1, MOST_ID):
        return f"must have an id in 1..{MOST_ID}, the color r + 256 g + 65536 b, got {row.get('id')!r}"
    if not is_whole(row.get("category_id")) or row["category_id"] not in known:
        missing = "which categories does not have; add it there"
        if is_prediction:
            missing = "which the ground truth does not have; predict the ids of its categories"
        return f"has the category_id {row.get('category_id')!r}, {missing}"
    if not is_whole(row.get("iscrowd", 0), 0, 1):
        return f"must have 0 or 1 as iscrowd, got {row['iscrowd']!r}"
    if "bbox" in row and not is_numbers(row["bbox"], 4):
        return f"must have four numbers as bbox, x, y, width and height, got {row['bbox']!r}"
    return ""


def read_panoptic(path: Path, classes: PanopticClasses | None = None) -> PanopticJson:
    """Read and check a JSON file. `classes`: of the ground truth, for one of predictions without `categories`.

    Raises OSError, and InputError for another form, a file name that occurs twice, or wrong categories.
    """
    try:
        document = read_json(path)
    except InputError as error:
        raise InputError(f"{path} {error}") from None
    form = "is not COCO's panoptic JSON: an object with annotations, each with file_name and segments_info"
    lists = isinstance(document, dict) and isinstance(document.get("annotations"), list)
    if not lists or not all(map(_is_entry, document["annotations"])):
        raise InputError(f"{path} {form}; give PanopticMap(annotations=) the JSON file of the maps")
    if is_prediction := classes is not None:
        _check_same(path, document.get("categories", []), classes)
    else:
        classes = _classes(path, document.get("categories"))
    entries: dict[str, tuple[int, list[Any]]] = {}
    for index, entry in enumerate(document["annotations"]):
        name = os.path.normpath(entry["file_name"])
        if name in entries:
            raise InputError(
                f"{path}: annotations[{index}] has the file_name of annotations[{entries[name][0]}], {name}"
            )
        entries[name] = index, entry["segments_info"]
    images = document.get("images", [])
    return PanopticJson(path, classes, images if isinstance(images, list) else [], entries, is_prediction)


def _check_same(path: Path, rows: Any, classes: PanopticClasses) -> None:
    """Raise InputError for categories with other names than those of the ground truth."""
    names = dict(zip(classes.ids, classes.names, strict=True))
    for row in rows if isinstance(rows, list) else []:
        own = row.get("name") if isinstance(row, dict) else None
        if own is not None and is_whole(row.get("id")) and names.get(row["id"], own) != own:
            wanted = names[row["id"]]
            raise InputError(
                f"{path}: the category {row['id']} must be {wanted!r}, as in the ground truth, got {own!r}"
            )


def _is_entry(entry: Any) -> bool:
    if not isinstance(entry, dict):
        return False
    return isinstance(entry.get("file_name"), str) and isinstance(entry.get("segments_info"), list)


def _classes(path: Path, rows: Any) -> PanopticClasses:
    if not isinstance(rows, list) or not rows:
        raise InputError(f"{path} has no categories: a list of objects with id, name and isthing")
    for index, fault in enumerate(_faults_of_classes(rows)):
        if fault:
            raise InputError(f"{path}: categories[{index}] {fault}")
    ids, names = (tuple(row[key] for row in rows) for key in ("id", "name"))
    for key, values in (("id", ids), ("name", names)):
        if len({*values}) < len(values):
            raise InputError(f"{path}: categories must each have another {key}, got {[*values]}")
    return PanopticClasses(ids, names, tuple(bool(row["isthing"]) for row in rows))


def _faults_of_classes(rows: Sequence[Any]) -> Iterator[str]:
    for row in rows:
        if not isinstance(row, dict) or not is_whole(row.get("id")):
            yield f"must be an object with a whole number as id, got {row!r}"
        elif not isinstance(row.get("name"), str) or not row["name"]:
            yield f"must have a name, got {row.get('name')!r}"
        elif not is_whole(row.get("isthing"), 0, 1):
            yield f"must have isthing, 1 for objects that are counted and 0 for stuff, got {row.get('isthing')!r}"
        else:
            yield ""
