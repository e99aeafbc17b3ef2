"""Hugging Face's imagefolder: metadata.jsonl, or metadata.csv, beside the images, with `objects` of each.

Source: https://huggingface.co/docs/datasets/image_dataset#object-detection: boxes are COCO's [x, y, width, height].
"""

from __future__ import annotations

import json
from ast import literal_eval
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from detaug.converters.records.csv_rows import check_head, rows_of_csv
from detaug.converters.records.json_lines import record_of_line, records_of_lines
from detaug.converters.records.record import (
    AnnotationFiles,
    Contents,
    Object,
    ObjectError,
    Record,
    list_of,
    names_beside,
    numbers_of,
    object_of,
    read_objects,
    records_of_lists,
    text_of,
)
from detaug.converters.records.segmentation import set_segmentation
from detaug.files.text import unique_keys
from detaug.findings.finding import shown

_CLASSES = ("categories", "category", "label", "labels", "category_id", "name", "class")


def read_imagefolder(source: AnnotationFiles) -> Contents:
    """Read file_name and objects: lists by key, `bbox` and `categories`, or a list of objects.

    The `segmentation` of an object is its polygon or its mask, as COCO has them, `keypoints` x, y and visibility of
    COCO, which are called point_1, point_2, ... here. Classes are text, or numbers, which become their text. Other
    lists are columns, other keys those of the image; what is not a list in `objects` is counted.
    """
    names: set[str] = set()

    def read(record: Record, entry: dict[str, Any], line: int) -> None:
        record.called = text_of(entry.get("file_name"), "file_name")
        record.names = names_beside(record.file, record.called)
        items = [*_items(record, entry.get("objects"))]
        record.columns = {key: member for key, member in entry.items() if key not in ("file_name", "objects")}
        read_objects(record, items, lambda item: _object(record, item, line), lambda _: line)
        names.update(item.class_name for item in record.objects)

    def records(file: str) -> Iterator[Record]:
        if not file.lower().endswith(".csv"):
            return records_of_lines(source, file, read)
        return (record_of_line(file, line, entry, read) for line, entry in _rows(source.folder / file))

    return Contents(records_of_lists(source, records), class_names=_numbers(names))


def _numbers(names: set[str]) -> Iterator[str]:
    """Yield the classes in the order of their numbers, if all are numbers: of `names` when all records are read."""
    if all(name.isdecimal() and len(name) < 9 for name in names):
        yield from (name for name in sorted(names, key=int) if name == str(int(name)))


def _rows(path: Path) -> Iterator[tuple[int, dict[str, Any] | str]]:
    """Yield (line, entry) of a metadata.csv, whose `objects` is JSON text; of a row that is none its text."""
    head: list[str] = []
    for line, row in rows_of_csv(path):
        if not head:
            head = row
            check_head(head)
            continue
        if any(row[len(head) :]):
            raise ObjectError(f"line {line} must have {len(head)} words, got {len(row)}; put commas into quotes")
        entry: dict[str, Any] = {name: text for name, text in zip(head, row, strict=False) if name}
        try:
            yield line, {**entry, "objects": _objects(entry.get("objects") or "{}")}
        except (ValueError, RecursionError):
            yield line, entry.get("objects", "")


def _objects(text: str) -> Any:
    """Return the objects of a cell: JSON, or Python, as pandas writes it. Raises ValueError and RecursionError."""
    try:
        return json.loads(text, object_pairs_hook=unique_keys)
    except json.JSONDecodeError:
        try:
            return literal_eval(text)
        except (SyntaxError, TypeError, MemoryError) as error:
            raise ValueError(str(error)) from None


def _items(record: Record, objects: Any) -> Iterator[dict[str, Any]]:
    """Yield the objects of an image as one each, of lists by key. Keys without a list are unread."""
    if isinstance(objects, list):
        yield from (object_of(item, "an object") for item in objects)
        return
    values = object_of(objects or {}, "objects")
    lists = {key: member for key, member in values.items() if isinstance(member, list)}
    record.unread.update(f"objects.{key}" for key in values.keys() - lists.keys() if values[key] is not None)
    if len(lengths := {len(column) for column in lists.values()}) > 1:
        raise ObjectError(f"the lists of objects must have one length, got {sorted(lengths)}")
    for index in range(max(lengths, default=0)):
        yield {key: column[index] for key, column in lists.items()}


def _object(record: Record, item: dict[str, Any], line: int) -> Object:
    key = next((key for key in _CLASSES if key in item), _CLASSES[0])
    numbers = numbers_of(list_of(item.get("bbox"), "bbox"), "bbox")
    if len(numbers) != 4:
        raise ObjectError(f"bbox must be [x, y, width, height], got {len(numbers)} numbers")
    left, top, width, height = numbers
    annotation = Object(text_of(item.get(key), key), (left, top, left + width, top + height), line=line)
    used = {key, "bbox"}
    if set_segmentation(annotation, item.get("segmentation"), record):  # anything else stays a column
        used.add("segmentation")
    if item.get("keypoints"):
        annotation.key_points = _key_points(item["keypoints"])
        used |= {"keypoints", "num_keypoints"}
    annotation.columns = {name: member for name, member in item.items() if name not in used}
    return annotation


def _key_points(value: Any) -> dict[str, tuple[float, float, int]]:
    """Return COCO's x, y, visibility, x, ..., whose pixels count from 0 at their centers, by made-up names."""
    numbers = numbers_of(list_of(value, "keypoints"), "keypoints")
    points = [numbers[start : start + 3] for start in range(0, len(numbers), 3)]
    if len(numbers) % 3 or any(visible not in (0, 1, 2) for _, _, visible in points):
        raise ObjectError(f"keypoints must be x, y and a visibility of 0, 1 or 2 each, got {shown(value)}")
    return {f"point_{number}": (x + 0.5, y + 0.5, int(visible)) for number, (x, y, visible) in enumerate(points, 1)}
