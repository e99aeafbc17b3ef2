"""Writing json: atomically, compactly, and the same bytes for the same content."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False).encode
_ROWS_AT_ONCE = 1000  # the C encoder wants whole lists; a thousand rows keep memory flat

Row = Mapping[str, object]


def write_coco(
    path: str | os.PathLike[str],
    images: Iterable[Row],
    annotations: Iterable[Row],
    categories: Iterable[Row],
    info: Row | None = None,
) -> None:
    """Write a COCO json file. The rows may be generators; they are read once and never held together.

    Compact UTF-8, keys in the order of the rows. Raises ValueError for NaN and infinity.
    """
    write_atomically(path, _coco_text(images, annotations, categories, info or {}))


def write_json(path: str | os.PathLike[str], document: object) -> None:
    """Write one document as json, indented for people."""
    text = json.dumps(document, ensure_ascii=False, allow_nan=False, indent=1)
    write_atomically(path, [text, "\n"])


def write_atomically(path: str | os.PathLike[str], pieces: Iterable[str], *, sync: bool = True) -> None:
    """Write text as UTF-8 so that path holds its old content or all of the new one, never a part of it.

    Goes to a temporary file in the same folder, to the disk, then over path. A symbolic link is written
    through. File names that are not UTF-8 (lone surrogates) become json's own escapes. sync=False leaves the
    moment at which the disk has it to the system: for thousands of files, it is much faster.
    """
    target = Path(os.path.realpath(path))
    temporary = target.with_name(f".{target.name}.{os.getpid()}.partial")
    try:
        with open(temporary, "w", encoding="utf-8", errors="backslashreplace", newline="\n") as file:
            file.writelines(pieces)
            file.flush()
            if sync:
                os.fsync(file.fileno())
        os.replace(temporary, target)
    except BaseException as error:  # KeyboardInterrupt too: leave nothing behind
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None:  # a full disk does not say which file
            raise OSError(error.errno, error.strerror, os.fspath(path)) from None
        raise
    if sync:
        _sync_folder(target.parent)


def whole(value: float) -> float | int:
    """The same number, as an int where it is one, so that json says 12 and not 12.0."""
    return int(value) if value == int(value) else value


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _coco_text(
    images: Iterable[Row], annotations: Iterable[Row], categories: Iterable[Row], info: Row
) -> Iterator[str]:
    yield f'{{"info":{_encode(info)},"images":['
    yield from _rows_text(images)
    yield '],"annotations":['
    yield from _rows_text(annotations)
    yield '],"categories":['
    yield from _rows_text(categories)
    yield "]}\n"


def _rows_text(rows: Iterable[Row]) -> Iterator[str]:
    """Rows as json without the brackets around them, a thousand a line."""
    rows = iter(rows)
    separator = "\n"
    while batch := list(islice(rows, _ROWS_AT_ONCE)):
        yield separator
        yield _encode(batch)[1:-1]
        separator = ",\n"
