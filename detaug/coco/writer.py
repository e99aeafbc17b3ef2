"""Write COCO JSON: compactly, and the same bytes for the same content."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from typing import Any, TypeVar

from detaug.files.atomic import write_atomically
from detaug.files.paths import PathLike

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"), allow_nan=False, check_circular=False).encode
_ROWS_OF_LINE = 1000
_ROWS_AT_ONCE = 50  # the C encoder takes whole lists; more rows would keep the garbage collector busy

T = TypeVar("T")
Row = Mapping[str, object]
Box = tuple[float, float, float, float]
"""COCO's (x, y, width, height), pixels."""

ANNOTATION_FILE, TOOL_ID = "annotation_file", "tool_id"
"""Keys of where a row comes from: of images the file, if there are several; the id in the labeling tool, if any."""

OWN_KEYS = frozenset(
    {"id", "image_id", "category_id", "bbox", "area", "iscrowd", "segmentation", "corners"}
    | {"keypoints", "num_keypoints", "track_id", "file_name", "width", "height", "video_id", "frame_id"}
    | {"shard", "offset", "length", "crc32c", ANNOTATION_FILE, TOOL_ID}
)
"""Keys of a row that are not a format's: a column with such a name gets `PREFIX` in front of it."""
PREFIX = "attribute_"


def write_coco(
    path: PathLike,
    images: Iterable[Row],
    annotations: Iterable[Row],
    categories: Iterable[Row],
    info: Row | None = None,
    videos: Iterable[Row] = (),
) -> None:
    """Write a COCO JSON file. The rows may be generators; only a thousand of them are in memory at a time.

    Compact UTF-8, keys in the order of the rows; without videos, no key for them. Raises InputError for NaN and
    infinity.
    """
    write_atomically(path, coco_text(images, annotations, categories, info or {}, videos))


def annotation_row(
    annotation_id: int, image_id: int, category_id: int, box: Box, *, iscrowd: bool = False
) -> dict[str, object]:
    """Return one annotation as a row of the JSON file."""
    return {
        "id": annotation_id,
        "image_id": image_id,
        "category_id": category_id,
        "bbox": whole_numbers(box),
        "area": whole(box[2] * box[3]),
        "iscrowd": int(iscrowd),
    }


def category_rows(names: Iterable[str]) -> Iterator[Row]:
    """Yield classes as rows of the JSON file, with the ids 1, 2, ..."""
    return ({"id": category_id, "name": name} for category_id, name in enumerate(names, 1))


def whole_numbers(values: Iterable[float]) -> list[float | int]:
    """Return numbers, such as a box, as the JSON file has them: those that are whole as ints."""
    return [value if value % 1 else int(value) for value in values]


def whole(value: float) -> float | int:
    """Return a number as an int if it is whole, so that JSON has 12, not 12.0."""
    return int(value) if value == int(value) else value


def coco_text(
    images: Iterable[Row], annotations: Iterable[Row], categories: Iterable[Row], info: Row, videos: Iterable[Row] = ()
) -> Iterator[str]:
    """Yield the text that `write_coco` writes."""
    videos = [*videos]
    yield f'{{"info":{_encode(info)},'
    if videos:
        yield '"videos":['
        yield from _lines(videos, "\n", _strict_text)
        yield "],"
    yield '"images":['
    yield from _lines(images, "\n", _strict_text)
    yield '],"annotations":['
    yield from _lines(annotations, "\n", _strict_text)
    yield '],"categories":['
    yield from _lines(categories, "\n", _strict_text)
    yield "]}\n"


def _lines(rows: Iterable[T], opening: str, text: Callable[[list[T]], str]) -> Iterator[str]:
    """Yield the text of a thousand rows on each line, with `opening` before the first and commas between the lines."""
    rows, separator = iter(rows), opening
    while texts := [text(batch) for batch in _batches(islice(rows, _ROWS_OF_LINE))]:
        yield separator
        yield ",".join(texts)
        separator = ",\n"


def _batches(rows: Iterator[T]) -> Iterator[list[T]]:
    while batch := list(islice(rows, _ROWS_AT_ONCE)):
        yield batch


def _strict_text(rows: list[Row]) -> str:
    return _encode(rows)[1:-1]


def document_text(document: Mapping[str, object], rows: Mapping[str, Iterable[Row | str]]) -> Iterator[str]:
    """Yield a whole JSON document, its keys in their order, with other rows in some of its lists.

    rows: by the list's key; generators are read a thousand rows at a time, each on one line. A list's rows may be JSON
    texts. See `json_text` for NaN.
    """
    opening = "{"
    for key, value in document.items():
        yield f"{opening}{_encode(key)}:"
        if key in rows:
            yield from _list_text(rows[key])
        else:
            yield json_text(value)
        opening = ",\n"
    yield "}\n"


def _list_text(rows: Iterable[Row | str]) -> Iterator[str]:
    lines = _lines(rows, "[", _text)
    yield next(lines, "[")
    yield from lines
    yield "]"


def _text(rows: list[Row | str]) -> str:
    texts = [row for row in rows if isinstance(row, str)]
    return ",".join(texts) if texts else json_text(rows)[1:-1]


def json_text(value: object) -> str:
    """Return a value as compact JSON; NaN and infinity, which JSON does not have, become null."""
    try:
        return _encode(value)
    except ValueError:
        return _encode(_without_nan(value))


def _without_nan(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, list):
        return [_without_nan(item) for item in value]
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    return value
