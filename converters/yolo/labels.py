"""Read the rows of a YOLO label file into boxes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from detaug.converters.coco.cutting import cut_to_image
from detaug.converters.coco.writer import Box, whole_box
from detaug.converters.findings.finding import Finding

_LARGEST = 1.01  # as in Ultralytics: a larger coordinate is not relative to the image


class LabelBox(NamedTuple):
    """One row: the class number, from 0, and COCO's box in pixels."""

    number: int
    box: Box


class LabelLog(NamedTuple):
    """The findings about one label file."""

    file: str
    findings: list[Finding]

    def add(self, kind: str, line: int, before: object = None, after: object = None, note: str = "") -> None:
        """Append a finding about one line."""
        self.findings.append(Finding(self.file, kind, None, line, before, after, note))


class _RowError(ValueError):
    """A row that cannot be read: the kind of finding, and why."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def read_boxes(lines: Sequence[str], classes: int, size: tuple[int, int], log: LabelLog) -> Iterator[LabelBox]:
    """Yield the boxes of a label file, in pixels of an image of size (H, W). classes: how many there are."""
    seen = set()
    for line, text in enumerate(lines, 1):
        if not text.strip():
            continue
        try:
            number, coordinates = _row(text.split(), classes)
        except _RowError as error:
            log.add(error.kind, line, text[:60], note=str(error))
            continue
        if len(coordinates) > 4:
            log.add("polygon-boxed", line, before=len(coordinates) // 2)
        box = box_in_image(coordinates, size, line, log)
        if box is None:
            continue
        if (number, box) in seen:
            log.add("box-repeated", line, coordinates, list(box))
        seen.add((number, box))
        yield LabelBox(number, box)


def _row(words: Sequence[str], classes: int) -> tuple[int, list[float]]:
    """Return (class number, coordinates) of a row. Raises _RowError."""
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        raise _RowError("row-invalid", f"must be numbers, got {' '.join(words)[:60]!r}") from None
    if "_" in "".join(words) or not all(map(math.isfinite, numbers)):  # float() accepts 1_000
        raise _RowError("row-invalid", f"must be finite numbers, got {' '.join(words)[:60]!r}")
    if len(numbers) != 5 and (len(numbers) < 7 or len(numbers) % 2 == 0):
        rule = "must be a class and 4 numbers, or a class and 3 points or more"
        raise _RowError("row-invalid", f"{rule}, got {len(numbers)} numbers")
    number, coordinates = numbers[0], numbers[1:]
    if number != int(number) or not 0 <= number < classes:
        raise _RowError("class-unknown", f"class must be a whole number from 0 to {classes - 1}, got {words[0][:20]}")
    if not all(1 - _LARGEST <= coordinate <= _LARGEST for coordinate in coordinates):
        rule = "coordinates must be relative to the image, from 0 to 1"
        raise _RowError("row-not-relative", f"{rule}, got {max(coordinates, key=abs):g}; divide pixels by its size")
    return int(number), coordinates


def box_in_image(coordinates: list[float], size: tuple[int, int], line: int, log: LabelLog) -> Box | None:
    """Return COCO's box in pixels, inside an image of size (H, W); None, with a finding, if nothing is left of it."""
    height, width = size
    left, top, right, bottom = _edges(coordinates)
    box, kind = cut_to_image((left * width, top * height, right * width, bottom * height), size)
    if kind:
        log.add(kind, line, coordinates, whole_box(box) if box else None)
    return box


def _edges(coordinates: list[float]) -> tuple[float, float, float, float]:
    """Return (left, top, right, bottom) of "cx cy w h", or of a polygon's points x1 y1 x2 y2 ..."""
    if len(coordinates) == 4:
        x, y, width, height = coordinates
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2
    return min(coordinates[::2]), min(coordinates[1::2]), max(coordinates[::2]), max(coordinates[1::2])
