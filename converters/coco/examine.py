"""A COCO json taken apart into columns, and everything wrong with it that can be seen without its images.

`read_annotations` raises on the errors among it and `detaug check` reports all of it: one definition, so the
two never disagree.
"""

from __future__ import annotations

import gc
import os
import posixpath
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.converters.coco.table import MIN_SIDE, Coco, Ints, Mask, Table, load_coco
from detaug.converters.findings.entries import Findings, Where, about_json
from detaug.converters.findings.text import counted, shown

TOLERANCE = 1.0
"""Pixels by which a box may leave its image and be cut without an error: rounding, not a mistake."""

_LARGEST_ID = 2**63 - 1
_LARGEST_SIDE = 2**24  # pixels; float32 holds every whole number up to it
_LONGEST_PART = 255  # bytes of a file or folder name
_LONGEST_NAME = 2048  # bytes of a path below the image folder
_LARGEST_COORDINATE = 1e15
_ROUNDING = 1e-3  # pixels by which x + width may miss the edge for the decimals they are written with


# ----------------------------------------------------------------------------------------------------------
# The json


@contextmanager
def _no_garbage_collection() -> Iterator[None]:
    """Without it, Python walks a growing heap of rows again and again, and parsing takes twice the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# ----------------------------------------------------------------------------------------------------------
# The columns


def examine_file(path: str | Path) -> Table:
    """Parse and examine a COCO json. Raises AnnotationError where it is none."""
    with _no_garbage_collection():
        return examine(load_coco(path))


def examine(coco: Coco) -> Table:
    """Take a json apart into columns and find everything that can be seen without opening an image."""
    findings: list[Findings] = []
    images, objects, categories = (_Rows(coco, where, findings) for where in ("images", "annotations", "categories"))
    if coco.constants:
        findings.append(about_json("not-json", f"{counted(len(coco.constants), 'time')}, first {coco.constants[0]}"))
    for kind, rows in (("images-empty", images), ("categories-empty", categories)):
        if not rows.rows:
            findings.append(about_json(kind, f"{coco.path} has no {rows.where}"))
    names = _categories(categories)
    image_ids, image_good = images.whole_numbers("id", "image-id")
    images.note_repeats("image-id-repeated", "id", image_ids, image_good)
    file_names = _file_names(images)
    sizes, sized = _sizes(images)
    image_at = _image_positions(objects, image_ids, image_good)
    category_ids, classed = _object_categories(objects, names)
    _check_annotation_ids(objects)
    boxes, boxed = _object_boxes(objects, image_at, sizes, sized)
    return Table(
        coco=coco,
        image_ids=image_ids,
        file_names=file_names,
        sizes=sizes,
        sized=sized,
        image_at=image_at,
        boxes=boxes,
        boxed=boxed,
        category_ids=category_ids,
        classed=classed,
        crowd=_crowd(objects),
        categories=names,
        findings=findings,
    )


class _Rows:
    """One of the json's lists, taken apart column by column; what is wrong is noted by row."""

    def __init__(self, coco: Coco, where: Where, findings: list[Findings]) -> None:
        self.where, self.findings = where, findings
        entries: list[Any] = coco.document[where]
        self.present = np.ones(len(entries), bool)
        if not set(map(type, entries)) <= {dict}:
            self.present = np.array([isinstance(entry, dict) for entry in entries])
            self._note_not_objects(entries)
            entries = [entry if isinstance(entry, dict) else {} for entry in entries]
        self.rows: list[dict[str, Any]] = entries

    def _note_not_objects(self, entries: list[Any]) -> None:
        rows = np.flatnonzero(~self.present)
        text = "must be an object {...}, got "
        self.findings.append(Findings("row-not-object", self.where, rows, lambda row: text + shown(entries[row])))

    def column(self, name: str) -> list[Any]:
        return [row.get(name) for row in self.rows]

    def note(self, kind: str, wrong: Mask, describe: Callable[[int], str]) -> None:
        rows = np.flatnonzero(wrong & self.present)
        if len(rows):
            self.findings.append(Findings(kind, self.where, rows, describe))

    def whole_numbers(
        self, name: str, kind: str, values: list[Any] | None = None, *, low: int = 0, high: int = _LARGEST_ID
    ) -> tuple[Ints, Mask]:
        """A column as int64, and where it is one; elsewhere it holds `low`."""
        values = self.column(name) if values is None else values
        numbers, good = _whole_numbers(values, low, high)
        rule = f"{name} must be a whole number from {low} to {_power(high)}, got "
        self.note(kind, ~good, lambda row: rule + shown(values[row]))
        return numbers, good & self.present

    def note_repeats(self, kind: str, name: str, values: Ints, good: Mask) -> None:
        first = _first_equal(values, good)
        text = f"is taken by {self.where}"
        self.note(
            kind,
            first != np.arange(len(first)),
            lambda row: f"{name} {shown(self.rows[row].get(name))} {text}[{first[row]}] already",
        )


def _power(high: int) -> str:
    return "2^63 - 1" if high == _LARGEST_ID else f"{high:,}"


def _whole_numbers(values: list[Any], low: int, high: int) -> tuple[Ints, Mask]:
    if set(map(type, values)) <= {int}:
        with suppress(OverflowError):
            numbers = np.array(values, np.int64)
            good = (numbers >= low) & (numbers <= high)
            return np.where(good, numbers, low), good
    fits = [type(value) is int and low <= value <= high for value in values]
    numbers = np.array([value if fit else low for value, fit in zip(values, fits, strict=True)], np.int64)
    return numbers, np.array(fits, bool)


def _first_equal(values: Ints, good: Mask) -> Ints:
    """(N,): the first row with the same value; for rows that are not good, the row itself."""
    first: Ints = np.arange(len(values))
    rows = np.flatnonzero(good)
    if not (np.diff(values[rows]) > 0).all():
        _, at, inverse = np.unique(values[rows], return_index=True, return_inverse=True)
        first[rows] = rows[at[inverse]]
    return first


# ----------------------------------------------------------------------------------------------------------
# Categories and images


def _categories(rows: _Rows) -> dict[int, str]:
    """id -> name, in the order of the ids."""
    ids, good = rows.whole_numbers("id", "category-id")
    rows.note_repeats("category-id-repeated", "id", ids, good)
    values = rows.column("name")
    named = np.array([isinstance(value, str) and bool(value.strip()) for value in values], bool)
    rows.note("category-name", ~named, lambda row: f"name must be text, got {shown(values[row])}")
    _note_alike(rows, [value if is_named else "" for value, is_named in zip(values, named, strict=True)])
    names = {
        number: value if is_named else f"category {number}"
        for number, value, is_named, is_good in zip(ids.tolist(), values, named, good, strict=True)
        if is_good
    }
    return dict(sorted(names.items()))


def _note_alike(rows: _Rows, names: list[str]) -> None:
    alike: dict[str, int] = {}
    keys = [" ".join(unicodedata.normalize("NFKC", name).casefold().split()) for name in names]
    earlier = np.array([alike.setdefault(key, at) for at, key in enumerate(keys)], np.int64)
    wrong = (earlier != np.arange(len(keys))) & np.array([bool(key) for key in keys], bool)
    rows.note(
        "category-alike",
        wrong,
        lambda row: f"{shown(names[row])} is like {shown(names[earlier[row]])} of categories[{earlier[row]}]",
    )


def _file_names(rows: _Rows) -> list[str]:
    values = rows.column("file_name")
    faults = [_name_fault(value) for value in values]
    for kind, rule in _NAME_RULES.items():
        if kind in faults:
            wrong = np.array([fault == kind for fault in faults], bool)
            rows.note(kind, wrong, lambda row, rule=rule: f"{rule}, got {shown(values[row])}")  # type: ignore[misc]
    names = ["" if fault else value for value, fault in zip(values, faults, strict=True)]
    _note_repeated_names(rows, names)
    return names


_NAME_RULES = {
    "file-name": "file_name must be the path of a file below the image folder",
    "file-name-outside": "file_name must not lead outside the image folder",
    "image-format": "DALI does not decode GIF, so save it as PNG",
}


def _name_fault(name: Any) -> str:
    """The kind of what is wrong with a file_name; empty if nothing is."""
    if not isinstance(name, str) or not name or "\0" in name:
        return "file-name"
    if name[0] == "/" or (".." in name and ".." in name.split("/")):
        return "file-name-outside"
    if not name.isascii() or len(name) > _LONGEST_PART:
        try:
            encoded = os.fsencode(name)
        except UnicodeEncodeError:
            return "file-name"
        if len(encoded) > _LONGEST_NAME or max(map(len, encoded.split(b"/"))) > _LONGEST_PART:
            return "file-name"
    return "image-format" if name[-4:].lower() == ".gif" else ""


def _note_repeated_names(rows: _Rows, names: list[str]) -> None:
    """a.jpg and ./a.jpg are one file."""
    paths = [posixpath.normpath(name) if "//" in name or "./" in name else name for name in names]
    if len(set(paths)) == len(paths):
        return
    first: dict[str, int] = {}
    earlier = np.array([first.setdefault(path, at) for at, path in enumerate(paths)], np.int64)
    wrong = (earlier != np.arange(len(paths))) & np.array([bool(name) for name in names], bool)
    rows.note(
        "file-name-repeated",
        wrong,
        lambda row: f"file_name {shown(names[row])} is taken by images[{earlier[row]}] already",
    )


def _sizes(rows: _Rows) -> tuple[Ints, Mask]:
    """(N, 2) (height, width) in pixels, and (N,) where they are usable."""
    height, width = (_side(rows, name) for name in ("height", "width"))
    return np.stack([height[0], width[0]], axis=1), height[1] & width[1]


def _side(rows: _Rows, name: str) -> tuple[Ints, Mask]:
    values = rows.column(name)
    floats = np.array([type(value) is float and value.is_integer() for value in values], bool)
    if floats.any():
        rows.note("size-not-integer", floats, lambda row: f"{name} {values[row]} is taken as {values[row]:.0f}")
    numbers = [int(value) if is_float else value for value, is_float in zip(values, floats, strict=True)]
    return rows.whole_numbers(name, "image-size", numbers, low=1, high=_LARGEST_SIDE)


# ----------------------------------------------------------------------------------------------------------
# Annotations


def _image_positions(rows: _Rows, image_ids: Ints, good: Mask) -> Ints:
    """(A,): the position of each annotation's image, -1 where there is none."""
    values = rows.column("image_id")
    numbers, whole = _whole_numbers(values, 0, _LARGEST_ID)
    order = np.flatnonzero(good)[np.argsort(image_ids[good], kind="stable")]
    place = np.searchsorted(image_ids[order], numbers)
    order = np.append(order, -1)
    known = whole & (order[place] >= 0)
    known[known] = image_ids[order[place[known]]] == numbers[known]
    rows.note("image-id-unknown", ~known, lambda row: f"image_id {shown(values[row])} is not the id of an image")
    return np.where(known & rows.present, order[place], -1)


def _object_categories(rows: _Rows, categories: dict[int, str]) -> tuple[Ints, Mask]:
    values = rows.column("category_id")
    numbers, whole = _whole_numbers(values, 0, _LARGEST_ID)
    ids = list(categories)
    known = whole & np.isin(numbers, np.array(ids, np.int64)) & rows.present
    rows.note(
        "category-unknown",
        ~known,
        lambda row: f"category_id {shown(values[row])} is not among the ids of the categories, {shown(ids)}",
    )
    return numbers, known


def _check_annotation_ids(rows: _Rows) -> None:
    ids, good = rows.whole_numbers("id", "annotation-id")
    rows.note_repeats("annotation-id-repeated", "id", ids, good)
    rows.note("annotation-id-zero", good & (ids == 0), lambda _: "ids count from 1 for pycocotools")


def _crowd(rows: _Rows) -> Mask:
    values = rows.column("iscrowd")
    wrong = np.array([value not in (0, 1, None) for value in values], bool)
    rows.note("crowd-invalid", wrong, lambda row: f"iscrowd must be 0 or 1, got {shown(values[row])}")
    return np.array([value == 1 for value in values], bool)


def _object_boxes(rows: _Rows, image_at: Ints, sizes: Ints, sized: Mask) -> tuple[NDArray[np.float64], Mask]:
    """(A, 4) XYXY pixels, cut at the edges of their images, and (A,) where they are usable."""
    values = rows.column("bbox")
    boxes, numeric = _four_numbers(values)
    rule = "bbox must be [x, y, width, height] with"
    rows.note("box-invalid", ~numeric, lambda row: f"{rule} four finite numbers, got {shown(values[row])}")
    thick: Mask = np.all(boxes[:, 2:] >= MIN_SIDE, axis=1)
    rows.note("box-empty", ~thick, lambda row: f"{rule} sides of at least {MIN_SIDE} pixel, got {values[row]}")
    boxes[:, 2:] += boxes[:, :2]
    size = np.append(sizes, [[1, 1]], axis=0)[image_at]  # -1, no image, takes the last
    good = rows.present & numeric & thick & np.append(sized, False)[image_at]
    return _inside(rows, values, boxes, size, good)


def _inside(
    rows: _Rows, values: list[Any], boxes: NDArray[np.float64], size: Ints, good: Mask
) -> tuple[NDArray[np.float64], Mask]:
    cut = np.clip(boxes, 0, np.tile(size[:, ::-1], 2))
    past = np.abs(boxes - cut).max(1, initial=0)
    outside = (past > TOLERANCE) | (cut[:, 2:] - cut[:, :2] < MIN_SIDE).any(1)

    def describe(row: int) -> str:
        height, width = size[row]
        return f"bbox {values[row]} reaches {past[row]:.4g} pixels outside its image of {width} x {height}"

    rows.note("box-outside", good & outside, describe)
    rows.note("box-clipped", good & ~outside & (past > _ROUNDING), describe)
    return cut, good & ~outside


def _four_numbers(values: list[Any]) -> tuple[NDArray[np.float64], Mask]:
    """(A, 4) and where that is what stands there; elsewhere a box of one pixel."""
    if _all_lists_of_four_numbers(values):
        with suppress(OverflowError):  # an int too large for a float
            boxes = np.fromiter(chain.from_iterable(values), np.float64, 4 * len(values)).reshape(-1, 4)
            good: Mask = np.all(np.abs(boxes) < _LARGEST_COORDINATE, axis=1)  # False for NaN
            boxes[~good] = 0, 0, 1, 1
            return boxes, good
    fits = [_is_four_numbers(value) for value in values]
    rows = [value if fit else (0, 0, 1, 1) for value, fit in zip(values, fits, strict=True)]
    return np.array(rows, np.float64).reshape(-1, 4), np.array(fits, bool)


def _all_lists_of_four_numbers(values: list[Any]) -> bool:
    shapes = set(map(type, values)) <= {list} and set(map(len, values)) <= {4}
    return shapes and set(map(type, chain.from_iterable(values))) <= {int, float}


def _is_four_numbers(value: Any) -> bool:
    if not (type(value) is list and len(value) == 4 and {type(number) for number in value} <= {int, float}):
        return False
    return all(abs(number) < _LARGEST_COORDINATE for number in value)  # False for NaN
