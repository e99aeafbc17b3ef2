"""CrowdHuman: a JSON file for each image, one a line (.odgt).

Source: https://www.crowdhuman.org/download.html.
"""

from __future__ import annotations

from typing import Any

from detaug.converters.records.json_lines import records_of_lines
from detaug.converters.records.record import (
    AnnotationFiles,
    Contents,
    Edges,
    Object,
    ObjectError,
    Record,
    count_unread,
    list_of,
    numbers_of,
    object_of,
    part_of,
    read_objects,
    records_of_lists,
    text_of,
)

_BOX_KEYS = ("tag", "fbox", "vbox", "hbox", "extra", "head_attr")


def read_crowdhuman(source: AnnotationFiles) -> Contents:
    """Read persons by their full boxes (fbox), which reach behind what hides them, and past the image.

    vbox, the visible part, and hbox, the head, are columns, [x, y, width, height] as in the file; so are occ, box_id
    and so on of `extra`, and `head_` before those of `head_attr`. What is to be ignored is a crowd, and a mask, which
    is not a single person, one of each class.
    """

    def read(record: Record, entry: dict[str, Any], line: int) -> None:
        record.names = [text_of(entry.get("ID"), "ID")]
        items = list_of(entry.get("gtboxes"), "gtboxes")
        count_unread(record, entry, ("ID", "gtboxes"))
        for item in items:
            count_unread(record, item, _BOX_KEYS)
        read_objects(record, items, lambda item: _object(record, item, line), lambda _: line)

    records = records_of_lists(source, lambda file: records_of_lines(source, file, read))
    return Contents(records, class_names=["person"])


def _object(record: Record, value: Any, line: int) -> Object:
    entry = object_of(value, "a box")
    extra, head = (part_of(record, entry, key, dict) for key in ("extra", "head_attr"))
    columns: dict[str, Any] = {key: entry[key] for key in ("vbox", "hbox") if key in entry}
    columns |= extra | {f"head_{key}": member for key, member in head.items()}
    is_mask = entry.get("tag") == "mask"
    return Object(
        text_of(entry.get("tag"), "tag"),
        _edges(entry.get("fbox")),
        is_crowd=bool(extra.get("ignore")),
        is_ignored=is_mask,
        columns=columns,
        line=line,
    )


def _edges(box: Any) -> Edges:
    numbers = numbers_of(list_of(box, "fbox"), "fbox")
    if len(numbers) != 4:
        raise ObjectError(f"fbox must be [x, y, width, height], got {len(numbers)} numbers")
    left, top, width, height = numbers
    return left, top, left + width, top + height
