"""WIDER FACE: one text file with the faces of all images.

Source: wider_face_split/readme.txt of http://shuoyang1213.me/WIDERFACE. An image without faces has a row of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from detaug.converters.records.record import (
    AnnotationFiles,
    Contents,
    Object,
    ObjectError,
    Record,
    numbers_of,
    records_of_lists,
    whole_of,
)
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.known_files import form_of_file
from detaug.files.paths import require_file
from detaug.findings.finding import Finding

_COLUMNS = ("blur", "expression", "illumination", "invalid", "occlusion", "pose")


def read_wider_face(source: AnnotationFiles) -> Contents:
    """Read rows of left, top, width, height and six attributes, which are columns; an invalid face is a crowd.

    Other files of the folder, such as the list of the test images, have no faces.
    """
    matching = [file for file in source.files if _is_wider_face(source.folder / file)]
    files = matching or source.files
    records = records_of_lists(source._replace(files=files), lambda file: _records(source, file))
    unused = [Finding(file, "file-unused") for file in source.files if file not in files]
    return Contents(records, class_names=["face"], findings=unused)


def _is_wider_face(path: Path) -> bool:
    """Return whether a file is a list of faces, or cannot be read."""
    form = form_of_file(path)
    return form is None if not path.is_file() else bool(form and form.format == "wider-face")


def _records(source: AnnotationFiles, file: str) -> Iterator[Record]:
    """Yield the images of a file: a path, the number of rows, and that many rows; for 0 faces a row of zeros."""
    path = source.folder / file
    require_file(path)
    record: Record | None = None
    wanted: int | None = None
    rows = 0
    with open(path, encoding="utf-8-sig") as lines:
        for line, text in enumerate(lines, 1):
            words = text.split()
            if text.strip().lower().endswith(IMAGE_EXTENSIONS):
                if record:
                    yield _counted(record, wanted, rows)
                record, wanted, rows = Record(file, [text.strip()]), None, 0
            elif record is None:
                raise ObjectError("must begin with the path of an image")
            elif len(words) > 1:
                rows += 1
                _add(record, words, line, is_none=wanted == 0)
            elif words:
                wanted = whole_of(words[0]) if wanted is None else wanted
    if record:
        yield _counted(record, wanted, rows)


def _counted(record: Record, wanted: int | None, rows: int) -> Record:
    """Append a finding if a record does not have the rows that the number below its path says."""
    if wanted is None or rows not in (wanted, wanted or 1):
        what = "no number" if wanted is None else f"the number {wanted}"
        note = f"{record.names[0]} must be followed by the number of its rows, got {what} and {rows} rows"
        record.findings.append(Finding(record.file, "row-invalid", note=note))
    return record


def _add(record: Record, words: list[str], line: int, *, is_none: bool) -> None:
    try:
        if len(words) not in (4, 10):
            raise ObjectError(f"must be x y width height and six attributes, got {len(words)} numbers")
        left, top, width, height, *more = numbers_of(words, "a row")
    except ObjectError as error:
        record.findings.append(Finding(record.file, "row-invalid", None, line, " ".join(words)[:60], note=str(error)))
        return
    if is_none and not any((left, top, width, height)):
        return  # of an image without faces
    columns = dict(zip(_COLUMNS, map(int, more), strict=False))
    edges = left, top, left + width, top + height
    record.objects.append(Object("face", edges, is_crowd=bool(columns.get("invalid")), columns=columns, line=line))
