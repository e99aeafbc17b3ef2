"""Hugging Face's imagefolder: metadata.jsonl, or metadata.csv, beside the images, with `objects` of each.

Source: https://huggingface.co/docs/datasets/image_dataset#object-detection: boxes are COCO's [x, y, width, height].
"""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from detaug.converters.coco.outlines import fault_of_rings, rings_of
from detaug.converters.files.paths import require_file
from detaug.converters.findings.finding import Finding
from detaug.converters.records.csv_rows import rows_of_csv
from detaug.converters.records.record import (
    Contents,
    Object,
    ObjectError,
    Record,
    Source,
    list_of,
    names_beside,
    numbers_of,
    object_of,
    read_objects,
    records_of_lists,
    text_of,
)

_CLASSES = ("categories", "category", "label", "labels", "category_id", "name", "class")


def read_imagefolder(source: Source) -> Contents:
    """Read file_name and objects: lists by key, `bbox` and `categories`, or a list of objects.

    The `segmentation` of an object is its outline if it is rings, as COCO has them. Classes are text, or numbers, which
    become their text. Other lists are columns, other keys those of the image.
    """

    def read(file: str) -> Iterator[Record]:
        if file.lower().endswith(".csv"):
            for line, entry in _rows(source.folder / file):
                record = _record(file, line, entry)
                names.update(item.class_name for item in record.objects)
                yield record
            return
        require_file(source.folder / file)
        with open(source.folder / file, encoding="utf-8-sig") as lines:
            for line, text in enumerate(lines, 1):
                if text.strip():
                    record = _record(file, line, text)
                    names.update(item.class_name for item in record.objects)
                    yield record

    names: set[str] = set()
    return Contents(records_of_lists(source, read), class_names=_numbers(names))


def _numbers(names: set[str]) -> Iterator[str]:
    """Yield the classes in the order of their numbers, if all are numbers: of `names` when all records are read."""
    if all(name.isdecimal() and len(name) < 9 for name in names):
        yield from (name for name in sorted(names, key=int) if name == str(int(name)))


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Yield (line, entry) of a metadata.csv, whose `objects` is the text of a json; of a row that is none its text."""
    head: list[str] = []
    for line, row in rows_of_csv(path):
        if not head:
            head = row
            continue
        entry: dict[str, Any] = {name: text for name, text in zip(head, row, strict=False) if name}
        try:
            yield line, {**entry, "objects": _objects(entry.get("objects") or "{}")}
        except (ValueError, RecursionError):
            yield line, entry.get("objects", "")


def _objects(text: str) -> Any:
    """Return the objects of a cell: json, or Python, as pandas writes it. Raises ValueError and RecursionError."""
    try:
        return json.loads(text)
    except ValueError:
        try:
            return literal_eval(text)
        except (SyntaxError, TypeError, MemoryError) as error:
            raise ValueError(str(error)) from None


def _record(file: str, line: int, text: dict[str, Any] | str) -> Record:
    record = Record(file)
    try:
        entry = text if isinstance(text, dict) else object_of(json.loads(text), "a line")
        record.called = text_of(entry.get("file_name"), "file_name")
        record.names = names_beside(file, record.called)
        items = [*_items(entry.get("objects"))]
    except (ValueError, RecursionError) as error:
        record.findings.append(Finding(file, "row-invalid", None, line, note=str(error)))
        return record
    record.columns = {key: each for key, each in entry.items() if key not in ("file_name", "objects")}
    read_objects(record, items, lambda item: _object(item, line), lambda _: line)
    return record


def _items(objects: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of an image as one each, of lists by key."""
    if isinstance(objects, list):
        yield from (object_of(each, "an object") for each in objects)
        return
    lists = {key: each for key, each in object_of(objects or {}, "objects").items() if isinstance(each, list)}
    if len(lengths := {len(each) for each in lists.values()}) > 1:
        raise ObjectError(f"the lists of objects must have one length, got {sorted(lengths)}")
    for at in range(max(lengths, default=0)):
        yield {key: each[at] for key, each in lists.items()}


def _object(item: dict[str, Any], line: int) -> Object:
    key = next((key for key in _CLASSES if key in item), _CLASSES[0])
    numbers = numbers_of(list_of(item.get("bbox"), "bbox"), "bbox")
    if len(numbers) != 4:
        raise ObjectError(f"bbox must be [x, y, width, height], got {len(numbers)} numbers")
    left, top, width, height = numbers
    rings = rings_of(item.get("segmentation"))
    are_rings = isinstance(rings, list) and bool(rings) and not fault_of_rings(rings) and min(map(len, rings)) >= 6
    used = (key, "bbox", "segmentation") if are_rings else (key, "bbox")
    columns = {name: each for name, each in item.items() if name not in used}
    edges = left, top, left + width, top + height
    found = Object(text_of(item.get(key), key), edges, columns=columns, line=line)
    found.rings = rings if are_rings else ()
    return found
