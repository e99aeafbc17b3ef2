"""Read the rows of a YOLO label file: boxes, polygons, rotated boxes, boxes with keypoints."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from detaug.coco.boxes import DECIMALS, cut_to_image
from detaug.coco.rings import are_flat, keys_of_corners, keys_of_rings
from detaug.coco.writer import Box, whole, whole_numbers
from detaug.files.formats import YOLO_LABELS
from detaug.files.known_files import what_is
from detaug.findings.finding import Finding, shown

YoloTask = Literal["detect", "segment", "pose", "obb"]
"""What rows are, by Ultralytics' names: boxes, polygons, boxes with keypoints, rotated boxes."""

_LARGEST = 1.01  # as in Ultralytics: a larger coordinate is not relative to the image


class LabelBox(NamedTuple):
    """One row: the class number, from 0, COCO's box in pixels, and the further keys of the annotation."""

    number: int
    box: Box
    keys: dict[str, Any]
    """`segmentation`, `corners`, or `keypoints` and `num_keypoints`; `area`, if it is not the box's."""
    line: int
    """In the file, from 1."""


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


class RowForm(NamedTuple):
    """What the rows of a dataset may be."""

    classes: int
    """How many there are."""
    key_points: tuple[int, int] | None = None
    """(number of keypoints, numbers of each) of pose labels: kpt_shape of data.yaml."""
    rotated: bool = False
    """Whether eight numbers are the corners of a rotated box; otherwise they are a polygon of four points."""


def read_boxes(text: str, form: RowForm, size: tuple[int, int], log: LabelLog) -> Iterator[LabelBox]:
    """Yield the boxes of a label file, in pixels of an image of size (H, W)."""
    seen = set[tuple[int, Box]]()
    for line, row in enumerate(text.splitlines(), 1):  # as Ultralytics does: rows may end with CR only
        if not row.strip():
            continue
        try:
            number, coordinates = _row(row.split(), form)
        except _RowError as error:
            what = what_is("", text.encode(), but=[YOLO_LABELS]) if error.kind == "row-invalid" and not seen else ""
            log.add(error.kind, line, row[:60], note=what or str(error))
            if what:
                return
            continue
        more = coordinates
        if form.key_points:
            coordinates, more = coordinates[:4], coordinates[4:]
        if len(coordinates) == 4 and min(coordinates[2:]) < 0:  # a box drawn upwards in Label Studio
            positive = [*coordinates[:2], *map(abs, coordinates[2:])]
            log.add("box-reversed", line, coordinates, positive)
            coordinates = positive
        box = box_in_image(coordinates, size, line, log)
        if box is None:
            continue
        if (number, box) in seen:
            log.add("box-repeated", line, coordinates, list(box))
        seen.add((number, box))
        keys = _keys(more, form, size)
        if "corners" in keys and are_flat(keys["corners"]).any():
            log.add("box-empty", line, coordinates)
            continue
        yield LabelBox(number, box, keys, line)


def _keys(numbers: list[float], form: RowForm, size: tuple[int, int]) -> dict[str, Any]:
    """Return the keys of an annotation besides its box. numbers: of the row, without class and without box."""
    height, width = size
    if form.key_points:
        return _keys_of_key_points(numbers or [0.0] * math.prod(form.key_points), form.key_points[1], size)
    if len(numbers) == 4:
        return {}
    pixels = np.array(numbers).reshape(-1, 2) * (width, height)
    return keys_of_corners(pixels) if form.rotated else keys_of_rings([pixels.clip(0, (width, height))])


def _keys_of_key_points(numbers: list[float], per_point: int, size: tuple[int, int]) -> dict[str, Any]:
    """Return COCO's keypoints, which count pixels from 0 at their centers.

    Of two numbers each, a point that is negative or 0, 0 is not labeled; Ultralytics' rule is negative alone.
    """
    height, width = size
    keypoints: list[float] = []
    for start in range(0, len(numbers), per_point):
        x, y = numbers[start : start + 2]
        visible = int(numbers[start + 2]) if per_point == 3 else 2 * int(min(x, y) >= 0 and max(x, y) > 0)
        point = (round(x * width - 0.5, DECIMALS), round(y * height - 0.5, DECIMALS), visible)
        keypoints += map(whole, point) if visible else (0, 0, 0)
    return {"keypoints": keypoints, "num_keypoints": sum(visible > 0 for visible in keypoints[2::3])}


def _row(words: Sequence[str], form: RowForm) -> tuple[int, list[float]]:
    """Return (class number, coordinates, or the box and the keypoints) of a row. Raises _RowError."""
    try:
        numbers = [float(word) for word in words]
    except ValueError:
        raise _RowError("row-invalid", f"must be numbers, got {shown(' '.join(words)[:60])}") from None
    if "_" in "".join(words) or not all(map(math.isfinite, numbers)):  # float() accepts 1_000
        raise _RowError("row-invalid", f"must be finite numbers, got {shown(' '.join(words)[:60])}")
    _check_length(words, numbers, form)
    number, coordinates = numbers[0], numbers[1:]
    if number != int(number) or not 0 <= number < form.classes:
        rule = f"class must be a whole number from 0 to {form.classes - 1}"
        raise _RowError("class-unknown", f"{rule}, got {words[0][:20]}")
    is_box = form.key_points or len(coordinates) == 4
    checked = [*coordinates[:2], *map(abs, coordinates[2:4])] if is_box else coordinates
    wrong = [coordinate for coordinate, value in zip(coordinates, checked, strict=False) if not _is_relative(value)]
    if form.key_points:
        wrong += _wrong_key_points(coordinates[4:], form.key_points[1])
    if wrong:
        rule = "coordinates must be relative to the image, from 0 to 1"
        remedy = "; divide pixels by its size" if max(wrong) > 2 else ""
        # 2 is a visibility, and no coordinate
        if {*wrong} == {2} and len(coordinates) > 6 and not form.key_points:
            remedy = ", which may be the visibility of a keypoint; write kpt_shape into the data.yaml"
        raise _RowError("row-not-relative", f"{rule}, got {max(wrong, key=abs):g}{remedy}")
    return int(number), coordinates


def _wrong_key_points(numbers: list[float], per_point: int) -> list[float]:
    """Return coordinates of labeled points that are not relative. Raises _RowError for a wrong visibility."""
    if per_point == 3:
        for visible in numbers[2::3]:
            if visible not in (0, 1, 2):
                rule = "the visibility of a keypoint must be 0 (not labeled), 1 (hidden) or 2"
                raise _RowError("row-invalid", f"{rule}, got {visible:g}")
    points = [numbers[start : start + per_point] for start in range(0, len(numbers), per_point)]
    labeled = [point[:2] for point in points if (point[2] if per_point == 3 else min(point) >= 0)]
    return [value for point in labeled for value in point if not _is_relative(value)]


def _is_relative(coordinate: float) -> bool:
    return 1 - _LARGEST <= coordinate <= _LARGEST


def _check_length(words: Sequence[str], numbers: Sequence[float], form: RowForm) -> None:
    """Raise _RowError for a row of a wrong number of numbers, or of several rows without a line end between them."""
    count = len(numbers)
    if form.key_points:
        points, per_point = form.key_points
        if count not in (5, 5 + points * per_point):
            rule = f"must be a class, 4 numbers and {points} keypoints of {per_point} numbers (kpt_shape of data.yaml)"
            raise _RowError(
                "row-invalid",
                f"{rule}, {5 + points * per_point} numbers; got {count} numbers"
                + _confidence(numbers, 5 + points * per_point),
            )
        return
    if form.rotated:
        if count != 9:
            rule = "must be a class and the four corners x1 y1 ... x4 y4 of a rotated box (task obb), 9 numbers"
            raise _RowError("row-invalid", f"{rule}; got {count} numbers{_confidence(numbers, 9)}")
        return
    if count > 5 and count % 5 == 0 and _are_rows(words, numbers):
        rule = f"has {count} numbers that look like {count // 5} rows of a class and 4 numbers"
        remedy = "put each on its own line, or in a polygon write the class as 0 and coordinates as 0.0 and 1.0"
        raise _RowError("row-invalid", f"{rule}; {remedy}")
    if count != 5 and (count < 7 or count % 2 == 0):
        rule = "must be a class and 4 numbers, or a class and 3 points or more"
        fits = count - 1 if count == 6 or count > 7 else 5  # also a polygon's
        raise _RowError("row-invalid", f"{rule}, got {count} numbers{_confidence(numbers, fits)}")


def _confidence(numbers: Sequence[float], count: int) -> str:
    """Return a remedy where a row has one number more than `count` and it may be the confidence of a detection."""
    if len(numbers) == count + 1 and 0 <= numbers[-1] <= 1:
        return "; the last may be the confidence of a detection (Ultralytics' save_conf): leave it out of labels"
    return ""


def _are_rows(words: Sequence[str], numbers: Sequence[float]) -> bool:
    """Return whether every fifth number may be a class, written as the first one is, and the others boxes."""
    classes_fit = all(number == int(number) for number in numbers[::5])
    forms = {word.isdecimal() for word in words[::5]}
    edges = [_edges([*numbers[start + 1 : start + 5]]) for start in range(0, len(numbers), 5)]
    return (
        classes_fit
        and len(forms) == 1
        and all(
            left < right and top < bottom and all(map(_is_relative, (left, top, right, bottom)))
            for left, top, right, bottom in edges
        )
    )


def box_in_image(coordinates: list[float], size: tuple[int, int], line: int, log: LabelLog) -> Box | None:
    """Return COCO's box in pixels, inside an image of size (H, W); None, with a finding, if nothing is left of it."""
    height, width = size
    left, top, right, bottom = _edges(coordinates)
    box, kind = cut_to_image((left * width, top * height, right * width, bottom * height), size)
    if kind:
        log.add(kind, line, coordinates, whole_numbers(box) if box else None)
    return box


def _edges(coordinates: list[float]) -> tuple[float, float, float, float]:
    """Return (left, top, right, bottom) of "cx cy w h", or of a polygon's points x1 y1 x2 y2 ..."""
    if len(coordinates) == 4:
        x, y, width, height = coordinates
        return x - width / 2, y - height / 2, x + width / 2, y + height / 2
    return min(coordinates[::2]), min(coordinates[1::2]), max(coordinates[::2]), max(coordinates[1::2])
