"""Read formats of one text file for each image, with a row for each object."""

from __future__ import annotations

from collections.abc import Callable

from detaug.converters.records.record import (
    Contents,
    Object,
    ObjectError,
    Record,
    Source,
    read_objects,
    records_of_files,
)
from detaug.files.text import read_text


def read_rows(source: Source, parse: Callable[[list[str]], Object | None], separator: str | None = None) -> Contents:
    """Read label files, one for each image, with a row for each object.

    parse: returns the object of the words of a row, None for a row of another kind, or raises ObjectError.
    """

    def one(item: tuple[int, str]) -> Object | None:
        line, row = item
        try:
            found = parse(row.split() if separator is None else [word.strip() for word in row.split(separator)])
        except ObjectError as error:
            raise ObjectError(str(error), "row-invalid") from None
        if found:
            found.line = line
        return found

    def read(file: str, record: Record) -> None:
        lines = enumerate(read_text(source.name(file)).splitlines(), 1)
        read_objects(record, [line for line in lines if line[1].strip()], one, lambda item: item[0])

    return Contents(records_of_files(source.files, read), len(source.files))
