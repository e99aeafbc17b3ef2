"""Tables of boxes (CSV) of TensorFlow's tutorial, Roboflow, keras-retinanet, Open Images, and with similar heads.

Sources: datitran/raccoon_dataset (filename, width, height, class, xmin, ymin, xmax, ymax); fizyr/keras-retinanet, its
README (path,x1,y1,x2,y2,class without a head); https://storage.googleapis.com/openimages.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path

from detaug.converters.formats.csv_columns import (
    RETINANET,
    TableColumns,
    is_decimal_comma,
    is_retinanet,
    table_with_head,
)
from detaug.converters.records.csv_rows import check_head, rows_of_csv
from detaug.converters.records.record import (
    AnnotationFiles,
    Contents,
    Object,
    ObjectError,
    Record,
    names_beside,
    number_of,
    records_of_lists,
    text_of,
)
from detaug.files.formats import TABLE_RULE
from detaug.files.paths import last_part, list_files
from detaug.files.spool import grouped
from detaug.findings.finding import Finding

_LARGEST_RELATIVE = 1.01


def read_csv(source: AnnotationFiles) -> Contents:
    """Read tables: rows of boxes, grouped by image.

    Numbers are pixels, or relative to the image if none in the file is over 1; commas may be decimal points. An image
    without objects has a row with nothing but its name. Open Images: IsGroupOf is a crowd; names of classes are those
    of class-descriptions*.csv. keras-retinanet: classes are in the order of classes.csv or _classes.csv. Other columns
    stay columns.
    """
    folders = {file.rpartition("/")[0] for file in source.files}
    beside = [name for name in list_files(source.folder, (".csv",)) if name.rpartition("/")[0] in folders]
    called = (name for name in beside if "class" in last_part(name).lower())
    lists = [name for name in called if not _may_be_table(source.folder / name)]
    names: dict[str, str] = {}
    numbered: dict[str, int] = {}
    for name in lists:
        for first, second in (row for _, row in rows_of_csv(source.folder / name) if len(row) == 2):
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
        return _table_of(path) is not None
    except ObjectError:
        return True


def _table_of(path: Path) -> TableColumns | None:
    _, first = next(rows_of_csv(path), (1, [""]))
    table = table_with_head(first)
    check_head(first if table else [])
    return table or (RETINANET if is_retinanet(first) else None)


def _records(source: AnnotationFiles, file: str, names: Mapping[str, str]) -> Iterator[Record]:
    path = source.folder / file
    table, counts, largest = _table_of(path), Counter[str](), 0.0
    if table is None:
        raise ObjectError(TABLE_RULE, "label-unreadable")
    commas, points = False, False
    # Two passes: only the last row tells whether commas are decimal, and whether all numbers are fractions of images.
    for _, row, _ in _rows(path, table):
        counts[row[table.image]] += 1
        texts = [row[column] for column in table.edges]
        commas, points = commas or any(map(is_decimal_comma, texts)), points or "." in "".join(texts)
        if largest <= _LARGEST_RELATIVE:
            with suppress(ObjectError):
                largest = max(largest, *table.edges_of([text.replace(",", ".") for text in row]))
    table = table._replace(has_decimal_commas=commas and not points)
    unit = (1, 1) if 0 < largest <= _LARGEST_RELATIVE else None
    by_image = ((row[table.image], (line, row, words)) for line, row, words in _rows(path, table))
    for image, rows in grouped(by_image, counts, source.temporary):
        record = Record(file, names_beside(file, image), called=image, unit=unit)
        for line, row, words in rows:
            _add_row(record, line, row, words, table, names)
        yield record


def _rows(path: Path, table: TableColumns) -> Iterator[tuple[int, list[str], int]]:
    """Yield the rows of objects with their lines and the number of their words; "" for words that lack at the end."""
    for line, row in islice(rows_of_csv(path), int(table.has_head), None):
        yield line, row if len(row) >= table.words else [*row, *[""] * (table.words - len(row))], len(row)


def _add_row(
    record: Record, line: int, row: Sequence[str], words: int, table: TableColumns, names: Mapping[str, str]
) -> None:
    """Add the object of a row. words: those that it has in the file."""
    try:
        if not record.names:
            raise ObjectError("a row must name its image", "row-invalid")
        if any(row[table.words :]):
            raise ObjectError(f"a row must have {table.words} words, got {len(row)}; put commas into quotes")
        if not (row[table.class_name] or any(row[column] for column in table.edges)):
            if words <= max(table.class_name, *table.edges):  # cut off, where an image without objects has commas
                raise ObjectError(
                    f"a row must have {table.words} words, got {words}; of an image without objects they are empty"
                )
            return
        edges = table.edges_of(row)
        if table.size and record.size is None and all(row[column] for column in table.size):
            width, height = (number_of(row[column], "width and height") for column in table.size)
            record.size = int(width), int(height)
        name = text_of(row[table.class_name], "class")
    except ObjectError as error:
        record.findings.append(Finding(record.file, "row-invalid", None, line, note=str(error)))
        return
    columns = {key: _value(table.number_text(row[column])) for key, column in table.columns.items() if row[column]}
    is_group = columns.get("IsGroupOf") == 1
    record.objects.append(Object(names.get(name, name), edges, is_crowd=is_group, columns=columns, line=line))


def _value(text: str) -> object:
    """Return a number if the text is one."""
    try:
        number = number_of(text, "")
    except ObjectError:
        return text
    return int(number) if number.is_integer() and text.lstrip("+-").isdecimal() else number
