"""Read the lines of MOTChallenge's gt.txt.

A line has frame, id, left, top, width, height, a flag that is 0 for what an evaluation ignores, and since MOT16 class
and visibility. In the form of 2015, with ten numbers, three world coordinates follow the flag instead. Frames, ids and
pixels count from 1. Sources: https://motchallenge.net/instructions/, arXiv:1603.00831.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from detaug.errors import ConversionError
from detaug.files.paths import require_file
from detaug.files.text import joined_spaces, read_text
from detaug.findings.finding import shown

CLASS_NAMES = (
    "pedestrian", "person on vehicle", "car", "bicycle", "motorbike", "non motorized vehicle", "static person",
    "distractor", "occluder", "occluder on the ground", "occluder full", "reflection", "crowd",
)  # fmt: skip
"""Of the classes 1, 2, ... of MOT16, MOT17 and MOT20."""

NO_FRAME = 0
"""The frame of a line whose frame cannot be read."""

Edges = tuple[float, float, float, float]


class TruthLine(NamedTuple):
    """A box in a frame."""

    line: int
    """In the file, from 1."""
    frame: int
    """From 1."""
    track: int | None
    """None for a box of no track: CVAT writes -1."""
    edges: Edges
    """Left, top, right, bottom in pixels, as in the file but for the width and height."""
    is_ignored: bool
    class_name: str
    visibility: float | None
    has_world: bool
    """Whether it has world coordinates, which are -1 where there are none."""


class BadLine(NamedTuple):
    """A line that cannot be read, and why."""

    line: int
    frame: int
    """NO_FRAME where that cannot be read either."""
    kind: str
    text: str
    note: str


def read_labels(labels: Path) -> tuple[str, ...]:
    """Return the names in gt/labels.txt, one a line, as CVAT writes them; without that file, MOTChallenge's."""
    if not labels.is_file():
        return CLASS_NAMES
    try:
        names = tuple(map(joined_spaces, read_text(labels).splitlines()))
    except ValueError as error:
        raise ConversionError(f"{labels} {error}") from None
    if not names or "" in names or len(set(names)) < len(names):
        raise ConversionError(f"{labels} must have one class name a line, all different")
    return names


def read_truth(path: Path, class_names: Sequence[str], *, has_labels: bool) -> Iterator[TruthLine | BadLine]:
    """Yield the lines of a gt.txt that are not empty.

    has_labels: there is a labels.txt, so a line of ten numbers has a class, as CVAT writes it. Raises OSError, and
    UnicodeDecodeError for what is not text.
    """
    require_file(path)
    with open(path, encoding="utf-8-sig") as file:  # MOT20's are larger than other label files may be
        for number, text in enumerate(file, 1):
            if text.strip():
                yield _read_line(number, text.strip(), class_names, has_labels)


class _LineError(ValueError):
    """A line that cannot be read: the kind of finding, and why."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def _read_line(line: int, text: str, class_names: Sequence[str], has_labels: bool) -> TruthLine | BadLine:
    # An empty value between two commas must not move the others; a line may end with a comma.
    words = [word.strip() for word in text.rstrip(", ").split(",")] if "," in text else text.split()
    try:
        return _parse(line, _numbers(words), class_names, has_labels)
    except _LineError as error:
        frame = int(words[0]) if words and words[0].isascii() and words[0].isdigit() else NO_FRAME
        return BadLine(line, frame, error.kind, text[:60], f"{error}, got {shown(text[:60])}")


def _numbers(words: Sequence[str]) -> list[float]:
    """Return the numbers of a line. Raises _LineError."""
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        masks = "; masks of MOTS are not read: write the boxes around them" if len(words) == 6 else ""
        raise _LineError("row-invalid", f"must be numbers{masks}") from None
    if "_" in "".join(words) or not all(map(math.isfinite, numbers)):  # float() accepts 1_000
        raise _LineError("row-invalid", "must be finite numbers")
    if not 7 <= len(numbers) <= 10:
        raise _LineError("row-invalid", "must be frame, id, left, top, width, height, flag, class, visibility")
    if any(number != int(number) or number < least for number, least in zip(numbers[:2], (1, -1), strict=True)):
        rule = "frame must be a whole number of at least 1, id one of at least 0, or -1 for a box of no track"
        raise _LineError("row-invalid", rule)
    return numbers


def _parse(line: int, numbers: Sequence[float], class_names: Sequence[str], has_labels: bool) -> TruthLine:
    """Return a line of numbers as a box. Raises _LineError for an unknown class."""
    frame, track, left, top, width, height, flag, *more = numbers
    of_class = more if len(more) < 3 or has_labels else []
    number = of_class[0] if of_class else 1
    if number != int(number) or not 1 <= number <= len(class_names):
        raise _LineError("class-unknown", f"class must be a whole number from 1 to {len(class_names)}")
    edges = left, top, left + width, top + height
    visibility = of_class[1] if len(of_class) > 1 else None
    name = class_names[int(number) - 1]
    has_world = any(value != -1 for value in more[len(of_class[:2]) :])
    track_id = None if track < 0 else int(track)
    return TruthLine(line, int(frame), track_id, edges, flag == 0, name, visibility, has_world)
