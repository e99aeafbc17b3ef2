"""Tables of boxes (CSV) of TensorFlow's tutorial, Roboflow, keras-retinanet, Open Images, and with similar heads.

Sources: datitran/raccoon_dataset (filename, width, height, class, xmin, ymin, xmax, ymax); fizyr/keras-retinanet, its
README (path,x1,y1,x2,y2,class without a head); https://storage.googleapis.com/openimages.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import chain, islice
from pathlib import Path

from detaug.converters.files.paths import last_part, list_files, require_file
from detaug.converters.findings.finding import Finding
from detaug.converters.formats.csv_columns import RETINANET, Table, is_retinanet, table_with_head
from detaug.converters.records.record import (
    Contents,
    Object,
    ObjectError,
    Record,
    Source,
    number_of,
    records_of_lists,
    text_of,
)

_LARGEST_RELATIVE = 1.01


def read_csv(source: Source) -> Contents:
    """Read tables: rows of boxes, grouped by image.

    Numbers are pixels, or relative to the image if none in the file is over 1. An image without objects has a row with
    nothing but its name. Open Images: IsGroupOf is a crowd; names of classes are those of class-descriptions*.csv.
    keras-retinanet: classes are in the order of classes.csv or _classes.csv. Other columns stay columns.
    """
    lists = [name for name in _csv_files(source) if "class" in last_part(name).lower()]
    names: dict[str, str] = {}
    numbered: dict[str, int] = {}
    for name in lists:
        for first, second in _pairs(source.folder / name):
            if first.startswith(("/m/", "/g/")):
                names[first] = second
            elif second.isdecimal():
                numbered[first] = int(second[:9])
    files = [file for file in source.files if file not in lists]
    tables = [file for file in files if _may_be_table(source.folder / file)] or files
    records = records_of_lists(source._replace(files=tables), lambda file: _records(source, file, names))
    unused = [Finding(file, "file-unused") for file in files if file not in tables]
    return Contents(records, class_names=sorted(numbered, key=lambda name: numbered[name]), findings=unused)


def _may_be_table(path: Path) -> bool:
    """Return whether a file has columns of boxes, or cannot be read. Open Images has lists of images beside them."""
    try:
        _, head = next(_rows(path), (1, [""]))
    except ObjectError:
        return True
    return table_with_head(head) is not None or is_retinanet(head)


def _csv_files(source: Source) -> list[str]:
    folders = {file.rpartition("/")[0] for file in source.files}
    return [name for name in list_files(source.folder, (".csv",)) if name.rpartition("/")[0] in folders]


def _pairs(path: Path) -> Iterator[tuple[str, str]]:
    for _, row in _rows(path):
        if len(row) == 2:
            yield row[0].strip(), row[1].strip()


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, words) of the rows that are not empty. Raises ObjectError."""
    try:
        require_file(path)
        with open(path, encoding="utf-8-sig", newline="") as file:
            head = file.readline(1 << 16)
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=head.count))
            for row in reader:
                if any(word.strip() for word in row):
                    yield reader.line_num, row
    except OSError as error:
        raise ObjectError(f"cannot be read: {error.strerror or error}", "label-unreadable") from None
    except UnicodeDecodeError as error:
        raise ObjectError(f"must be UTF-8 text: {error.reason} at {error.start:,}", "label-unreadable") from None
    except csv.Error as error:
        raise ObjectError(f"is no table: {error}", "label-unreadable") from None


def _records(source: Source, file: str, names: Mapping[str, str]) -> Iterator[Record]:
    """Yield the record of each image after its last row: usually all are in memory for the time of a few rows only."""
    table, left, largest = _survey(source.folder / file)
    records: dict[str, Record] = {}
    for line, row in islice(_rows(source.folder / file), 1 if table.has_head else 0, None):
        image = table.word(row, table.image)
        record = records.get(image) or records.setdefault(image, Record(file, [image] if image else []))
        _add_row(record, line, row, table, names)
        left[image] -= 1
        if not left[image]:
            record.unit = (1, 1) if 0 < largest <= _LARGEST_RELATIVE else None
            yield records.pop(image)


def _survey(path: Path) -> tuple[Table, Counter[str], float]:
    """Return which column of a table has what, how many rows each image has, and the largest coordinate."""
    rows = _rows(path)
    line, head = next(rows, (1, [""]))
    table = table_with_head(head)
    if table is None and is_retinanet(head):
        table, rows = RETINANET, chain([(line, head)], rows)
    if table is None:
        raise ObjectError("must have the columns filename, class, xmin, ymin, xmax, ymax", "label-unreadable")
    counts, largest = Counter[str](), 0.0
    for _, row in rows:
        counts[table.word(row, table.image)] += 1
        with suppress(ObjectError):
            largest = max(largest, *table.edges_of(row))
    return table, counts, largest


def _add_row(record: Record, line: int, row: Sequence[str], table: Table, names: Mapping[str, str]) -> None:
    try:
        if not record.names:
            raise ObjectError("a row must name its image", "row-invalid")
        if not any(table.word(row, at) for at in (*table.edges, table.class_name)):
            return
        edges = table.edges_of(row)
        if table.size and record.size is None and all(table.word(row, at) for at in table.size):
            width, height = (number_of(table.word(row, at), "width and height") for at in table.size)
            record.size = int(width), int(height)
        name = text_of(table.word(row, table.class_name), "class")
    except ObjectError as error:
        record.findings.append(Finding(record.file, "row-invalid", None, line, note=str(error)))
        return
    words = {key: table.word(row, at) for key, at in table.columns.items()}
    columns = {key: _value(word) for key, word in words.items() if word}
    is_group = columns.get("IsGroupOf") == 1
    record.objects.append(Object(names.get(name, name), edges, is_crowd=is_group, columns=columns, line=line))


def _value(text: str) -> object:
    """Return a number if the text is one."""
    try:
        number = number_of(text, "")
    except ObjectError:
        return text
    return int(number) if number.is_integer() and text.lstrip("+-").isdecimal() else number
