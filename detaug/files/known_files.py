"""Recognize files of other kinds than the one that is wanted, and say what each needs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any

from detaug.files.formats import FORMATS, FORMS, TABLE_RULE, Form
from detaug.files.paths import list_files
from detaug.files.sample import HEAD_BYTES, Sample, json_beginning

_LARGEST_JSON = 8 << 20  # bytes of a JSON file that is parsed whole; of a larger one its beginning tells
_MOST_FILES = 20
_LOOKED_AT = tuple(
    sorted({".ndjson"}.union(*(row.extensions for row in FORMATS)) - {".txt", ".data"})  # these may be anything
)
"""Extensions of the files of a folder that tell what it is."""


def form_of(name: str, head: bytes, document: Any = None, but: Sequence[str] = ()) -> Form | None:
    """Return what kind of file this is; None where it is not known. Arguments: see `what_is`."""
    sample = Sample(name, head[:HEAD_BYTES], document)
    return next((form for form in FORMS if form.name not in but and form.fits(sample)), None)


def what_is(name: str, head: bytes, document: Any = None, but: Sequence[str] = ()) -> str:
    """Return what a file is and what it needs, such as "is CVAT's own XML; export ..."; "" where it is not known.

    head: its first bytes, 64 KiB or all. document: the file as parsed, if it is a JSON file. but: names of forms that
    the caller reads, and which the file therefore is not.
    """
    form = form_of(name, head, document, but)
    return f"is {form.name}; {form.remedy}" if form else ""


def form_of_file(path: str | Path, but: Sequence[str] = ()) -> Form | None:
    """Return what kind of file this is; None where it is not known, or cannot be read."""
    with suppress(OSError):
        with open(path, "rb", buffering=0) as file:
            head = file.read(HEAD_BYTES) or b""
            size = os.fstat(file.fileno()).st_size
            whole = head.lstrip()[:1] in (b"{", b"[") and len(head) < size <= _LARGEST_JSON
            text = head + file.read() if whole else b""
        document = json_beginning(Sample("", head).text) if size > _LARGEST_JSON else None
        with suppress(ValueError, RecursionError):
            document = json.loads(text) if text else document
        return form_of(os.path.basename(path), head, document, but)
    return None


def what_file_is(path: str | Path, but: Sequence[str] = ()) -> str:
    """Return what a file is and what it needs; "" where it is not known, or cannot be read."""
    form = form_of_file(path, but)
    return f"is {form.name}; {form.remedy}" if form else ""


def what_table_is(path: str | Path) -> str:
    """Return what is missing of a table (CSV) of another kind; "" for a file that is none."""
    with suppress(OSError):
        with open(path, "rb", buffering=0) as file:
            sample = Sample(os.path.basename(path), file.read(HEAD_BYTES) or b"")
        if sample.name.endswith((".csv", ".tsv")) and len(sample.columns) > 1:
            names = ", ".join(sample.columns[:12])[:200]
            return f"is a table whose columns are not known, {names}; a table of boxes {TABLE_RULE}: rename them"
    return ""


def what_folder_has(folder: Path) -> str:
    """Return "; it has a.json, which is ..." for the first known file below a folder; "" where there is none."""
    for name in islice(list_files(folder, _LOOKED_AT), _MOST_FILES):
        if what := what_file_is(folder / name):
            return f"; it has {name}, which {what}"
    return ""
