"""Read the rows of a table (CSV), which may be larger than the memory."""

from __future__ import annotations

import csv
from collections.abc import Iterator, Sequence

from detaug.converters.records.record import ObjectError
from detaug.files.paths import PathLike, require_file
from detaug.findings.finding import shown


def check_head(head: Sequence[str]) -> None:
    """Raise ObjectError for two columns of one name, of which a reader would take one."""
    names = [name for name in head if name]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise ObjectError(f"columns must have names that differ, got {shown(min(repeated))} twice", "label-unreadable")


def rows_of_csv(path: PathLike) -> Iterator[tuple[int, list[str]]]:
    """Yield (line, words) of the rows that are not empty; words are parted by commas, semicolons or tabs, and stripped.

    Raises ObjectError, when it comes to the fault.
    """
    try:
        require_file(path)
        with open(path, encoding="utf-8-sig", newline="") as file:
            head = file.readline(1 << 16)
            file.seek(0)
            reader = csv.reader(file, delimiter=max(",;\t", key=head.count))
            for row in reader:
                words = [*map(str.strip, row)]
                if any(words):
                    yield reader.line_num, words
    except OSError as error:
        raise ObjectError(f"cannot be read: {error.strerror or error}", "label-unreadable") from None
    except UnicodeDecodeError as error:
        raise ObjectError(f"must be UTF-8 text: {error.reason} at {error.start:,}", "label-unreadable") from None
    except csv.Error as error:
        raise ObjectError(f"is not a table: {error}", "label-unreadable") from None
