"""Read files of JSON lines: an object of an image per line."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from detaug.converters.records.record import AnnotationFiles, Record, object_of
from detaug.files.paths import require_file
from detaug.files.text import unique_keys
from detaug.findings.finding import Finding

Read = Callable[[Record, dict[str, Any], int], None]
"""Fills a record from the object of a line and the line's number. It may raise ValueError, as ObjectError is one."""


def records_of_lines(source: AnnotationFiles, file: str, read: Read) -> Iterator[Record]:
    """Yield a record for each line of a file that is not empty; one that cannot be read has a finding instead."""
    require_file(source.folder / file)
    with open(source.folder / file, encoding="utf-8-sig") as lines:
        for line, text in enumerate(lines, 1):
            if text.strip():
                yield record_of_line(file, line, text, read)


def record_of_line(file: str, line: int, entry: dict[str, Any] | str, read: Read) -> Record:
    """Return the record of an entry of a file, or of its text."""
    record = Record(file)
    try:
        parsed = json.loads(entry, object_pairs_hook=unique_keys) if isinstance(entry, str) else entry
        read(record, object_of(parsed, "a line"), line)
    except (ValueError, RecursionError) as error:
        record.findings.append(Finding(file, "row-invalid", None, line, note=f"does not parse: {error}"))
    return record
