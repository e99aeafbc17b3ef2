"""Read formats of one text file for each image, with a row for each object."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from detaug.converters.records.record import (
    AnnotationFiles,
    Contents,
    Object,
    ObjectError,
    Record,
    contents_of_files,
    read_objects,
)
from detaug.files.text import read_text

Parse = Callable[[list[str]], "Object | None"]
"""Returns the object of the words of a row, None for a row of another kind, or raises ObjectError."""


def read_rows(source: AnnotationFiles, parse: Parse, separator: str | None = None, **more: Any) -> Contents:
    """Read label files, one for each image, with a row for each object. more: of `Contents`."""
    return contents_of_files(source, partial(_read, parse, separator), **more)


def _read(parse: Parse, separator: str | None, source: AnnotationFiles, record: Record) -> None:
    def one(item: tuple[int, str]) -> Object | None:
        line, row = item
        try:
            annotation = parse(row.split() if separator is None else [word.strip() for word in row.split(separator)])
        except ObjectError as error:
            raise ObjectError(str(error), "row-invalid") from None
        if annotation:
            annotation.line = line
        return annotation

    lines = enumerate(read_text(source.name(record.file)).splitlines(), 1)
    read_objects(record, [line for line in lines if line[1].strip()], one, lambda item: item[0])
