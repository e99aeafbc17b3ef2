"""WIDER FACE: one text file with the faces of all images.

Source: wider_face_split/readme.txt of http://shuoyang1213.me/WIDERFACE. An image without faces has a row of zeros.
"""

from __future__ import annotations

from collections.abc import Iterator

from detaug.converters.files.image_headers import IMAGE_EXTENSIONS
from detaug.converters.files.paths import require_file
from detaug.converters.findings.finding import Finding
from detaug.converters.records.record import Contents, Object, ObjectError, Record, Source, numbers_of, records_of_lists

_COLUMNS = ("blur", "expression", "illumination", "invalid", "occlusion", "pose")


def read_wider_face(source: Source) -> Contents:
    """Read rows of left, top, width, height and six attributes, which are columns; an invalid face is a crowd."""

    def read(file: str) -> Iterator[Record]:
        path = source.folder / file
        require_file(path)
        record = None
        with open(path, encoding="utf-8-sig") as lines:
            for line, text in enumerate(lines, 1):
                words = text.split()
                if text.strip().lower().endswith(IMAGE_EXTENSIONS):
                    if record:
                        yield record
                    record = Record(file, [text.strip()])
                elif record is None:
                    raise ObjectError("must begin with the path of an image")
                elif len(words) > 1:
                    _add(record, words, line)
        if record:
            yield record

    return Contents(records_of_lists(source, read), class_names=["face"])


def _add(record: Record, words: list[str], line: int) -> None:
    try:
        if len(words) not in (4, 10):
            raise ObjectError(f"must be x y width height and six attributes, got {len(words)} numbers")
        left, top, width, height, *more = numbers_of(words, "a row")
    except ObjectError as error:
        record.findings.append(Finding(record.file, "row-invalid", None, line, " ".join(words)[:60], note=str(error)))
        return
    if not any((left, top, width, height)):
        return  # of an image without faces
    columns = dict(zip(_COLUMNS, map(int, more), strict=False))
    edges = left, top, left + width, top + height
    record.objects.append(Object("face", edges, is_crowd=bool(columns.get("invalid")), columns=columns, line=line))
