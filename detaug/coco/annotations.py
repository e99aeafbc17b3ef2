"""Read and check the annotations of a COCO JSON file for training."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.coco import annotation_cache, boxes, examine, file_names, repair, table, typed, values, videos
from detaug.coco import columns as columns_of_lists
from detaug.coco import outlines as outlines_of_objects
from detaug.coco.annotation_cache import CachedColumns
from detaug.coco.examine import examine_file
from detaug.coco.outlines import OutlineColumns, read_outlines
from detaug.coco.table import Table
from detaug.coco.typed import examine_typed
from detaug.errors import AnnotationError
from detaug.files.addresses import check_command

__all__ = ["AnnotationError", "Annotations", "read_annotations"]


@dataclass(frozen=True)
class Annotations:
    """A checked COCO JSON file as columns: N images in the file's order, A boxes grouped by image."""

    path: Path
    image_ids: NDArray[np.int64]
    """(N,)"""
    file_names: tuple[str, ...]
    """N, relative to the image folder."""
    sizes: NDArray[np.int64]
    """(N, 2): (height, width) in pixels."""
    shards: tuple[str, ...]
    """Paths of the shards that the images are in, relative to the image folder; none where the images are files."""
    places: NDArray[np.int64]
    """(N, 3): position in `shards`, offset and length of the image in bytes; -1, 0, 0 for a file."""
    checksums: NDArray[np.int64]
    """(N,): CRC-32C of the image in a shard; -1 for a file, and where the JSON file has none."""
    image_categories: NDArray[np.int64]
    """(N,): the category id of each image as a whole; -1 where it has none."""
    first: NDArray[np.int64]
    """(N + 1,): boxes[first[i] : first[i + 1]] are those of image i."""
    boxes: NDArray[np.float64]
    """(A, 4) XYXY pixels, inside their images."""
    category_ids: NDArray[np.int64]
    """(A,)"""
    crowd: NDArray[np.bool_]
    """(A,): whether iscrowd is 1."""
    video_ids: NDArray[np.int64]
    """(N,): the id of each image's video; -1 without one."""
    frame_ids: NDArray[np.int64]
    """(N,): the number of each image in its video; -1 without one."""
    frame_rates: NDArray[np.float64]
    """(N,): frames per second of each image's video; nan where it is not known."""
    track_ids: NDArray[np.int64]
    """(A,): the number that an object has in all frames of its video; -1 without one."""
    video_files: dict[int, str]
    """The file of each video that is one, relative to the image folder, by the video's id."""
    categories: dict[int, str]
    """id -> name, in the order of the ids."""
    category_keys: dict[int, dict[str, Any]]
    """The other keys of each category, such as `keypoints` and `skeleton`, by its id, in the order of the ids."""
    columns: dict[str, NDArray[Any]]
    """(A, ...) the values of further keys of the annotations, by name: see `values.column_of`."""
    outlines: OutlineColumns | None = None
    """The `segmentation` of the annotations, if it was asked for."""


def read_annotations(
    path: str | Path, *, columns: Sequence[str] = (), outlines: bool = False, cache: bool = True
) -> Annotations:
    """Read and check a COCO JSON file. `columns`: further keys of annotations, which at least one must have.

    `outlines`: also read the polygons and masks, `segmentation`.

    Raises AnnotationError for what DALI's own reader or a detector would read wrongly without an error: missing,
    repeated or non-integer ids, a file name twice or outside the folder, no width and height, no categories, an
    unknown category or image, a box without four numbers, without an area or outside its image. These are the errors
    of `detaug check` that need no image. A box up to 1 pixel outside is cut at the edge.

    cache: save the columns of a JSON file of 4 MB or more in the user's cache folder, ~/.cache/detaug or
    $XDG_CACHE_HOME/detaug, and load them from there as long as the JSON file's content is the same.
    """
    path = Path(path)
    if not (cache and path.is_file() and path.stat().st_size >= annotation_cache.SMALLEST):
        return _checked(path, columns, outlines)
    before = path.stat()
    key = annotation_cache.content_key(path, _rules())
    cached = annotation_cache.load_columns(path, key, leave_out="" if outlines else _OUTLINES)
    loaded = None if cached is None else _from_columns(path, cached)
    known = () if loaded is None else tuple(loaded.columns)
    if loaded is not None and set(columns) <= set(known) and (loaded.outlines is not None or not outlines):
        return _with_columns(loaded, columns)
    wanted = (*known, *(name for name in columns if name not in known))
    checked, after = _checked(path, wanted, outlines), path.stat()
    if (before.st_mtime_ns, before.st_size) == (after.st_mtime_ns, after.st_size):  # not written meanwhile
        annotation_cache.save_columns(path, key, _to_columns(checked))
    return _with_columns(checked, columns)


def _with_columns(annotations: Annotations, names: Sequence[str]) -> Annotations:
    return replace(annotations, columns={name: annotations.columns[name] for name in names})


def _checked(path: Path, columns: Sequence[str], outlines: bool) -> Annotations:
    table = None if columns or outlines else examine_typed(path)
    if table is None:
        table = examine_file(path)
        raise_on_errors(table)
    checked = _group_by_image(table, columns)
    return replace(checked, outlines=_outlines(table)) if outlines else checked


def _outlines(table: Table) -> OutlineColumns:
    """Return the polygons, grouped by image. Raises AnnotationError for one that is wrong."""
    rows = table.coco.document["annotations"]
    height, width = table.sizes[table.image_index].T
    segmentations, corners = ([row.get(name) for row in rows] for name in ("segmentation", "corners"))
    outlines, faults = read_outlines(segmentations, corners, height, width)
    for row, fault in (faults.segmentation | faults.corners).items():
        number = f"annotations[{row}] (id {rows[row]['id']})"
        raise AnnotationError(f"{table.path}: {number}: {fault}; {remedy_of(table.path)}")
    return outlines.of(np.argsort(table.image_index, kind="stable"))


def remedy_of(path: Path) -> str:
    """Return the remedy for wrong shapes of annotations, whose boxes are not wrong."""
    return f"{check_command(path)} lists them all; --clean NEW.json leaves them out, and the boxes stay"


def _rules() -> bytes:
    """Return the source of the modules that decide what is read: a cache of other code is not valid."""
    modules = (
        annotation_cache,
        boxes,
        columns_of_lists,
        examine,
        file_names,
        outlines_of_objects,
        repair,
        table,
        typed,
        videos,
    )
    return b"".join(Path(file).read_bytes() for file in (__file__, *(str(module.__file__) for module in modules)))


def _to_columns(annotations: Annotations) -> CachedColumns:
    arrays = {name: value for name, value in vars(annotations).items() if isinstance(value, np.ndarray)}
    texts = {name: _encoded(getattr(annotations, name)) for name in _TEXTS}
    of_ids = {name: _encoded(getattr(annotations, name).items()) for name in _BY_ID}
    objects = [name for name, column in annotations.columns.items() if column.dtype == object]
    names = {"column_names": _encoded(annotations.columns), "object_columns": _encoded(objects)}
    columns = {
        f"column {name}": _encoded(column) if name in objects else column
        for name, column in annotations.columns.items()
    }
    of_outlines = {} if annotations.outlines is None else annotations.outlines._asdict()
    outlines = {f"{_OUTLINES}{name}": array for name, array in of_outlines.items()}
    return {**arrays, **texts, **of_ids, **names, **columns, **outlines}


def _from_columns(path: Path, saved: CachedColumns) -> Annotations:
    texts: Any = {name: tuple(_decoded(saved[name])) for name in _TEXTS}
    of_ids: Any = {name: dict(_decoded(saved[name])) for name in _BY_ID}
    names = {field.name for field in fields(Annotations)} - {"path", "columns", "outlines", *_TEXTS, *_BY_ID}
    arrays: Any = {name: saved[name] for name in names}
    columns: Any = {name: saved[f"column {name}"] for name in _decoded(saved["column_names"])}
    columns |= {name: values.as_objects(_decoded(columns[name])) for name in _decoded(saved["object_columns"])}
    of_outlines: Any = {name: saved.get(f"{_OUTLINES}{name}") for name in OutlineColumns._fields}
    outlines = None if of_outlines["points"] is None else OutlineColumns(**of_outlines)
    return Annotations(path=path, columns=columns, outlines=outlines, **texts, **of_ids, **arrays)


_OUTLINES = "polygons "
"""What the names of their arrays in a cache begin with."""

_TEXTS, _BY_ID = ("file_names", "shards"), ("categories", "category_keys", "video_files")


def _encoded(texts: Iterable[Any]) -> NDArray[np.uint8]:
    """Return texts as the bytes of a JSON file, since a name may contain any character."""
    return np.frombuffer(json.dumps(list(texts)).encode(), np.uint8)


def _decoded(column: NDArray[np.generic]) -> list[Any]:
    texts: list[Any] = json.loads(column.tobytes())
    return texts


_MOST_SHOWN = 5  # errors


def raise_on_errors(table: Table) -> None:
    """Raise AnnotationError for a JSON file with errors; its text names the first few of them, and the remedy."""
    errors = [finding for finding in table.findings if finding.severity == "error"]
    if not errors:
        return
    per_finding = max(1, _MOST_SHOWN // len(errors))
    lines = [
        f"{table.entry(finding.where, row)}{finding.describe(row)}"
        for finding in errors
        for row in finding.rows[:per_finding]
    ]
    more = sum(map(len, errors)) - len(lines[:_MOST_SHOWN])
    rest = [f"and {more:,} more"] if more else []
    remedy = f"{check_command(table.path)} lists them all; --clean NEW.json repairs them or leaves them out"
    raise AnnotationError("\n  ".join([f"{table.path}:", *lines[:_MOST_SHOWN], *rest, remedy]))


def _group_by_image(table: Table, columns: Sequence[str]) -> Annotations:
    rows_by_id = {row["id"]: row for row in table.coco.document["categories"]}
    order = np.argsort(table.image_index, kind="stable")
    counts = np.bincount(table.image_index, minlength=len(table.image_ids))
    return Annotations(
        path=table.path,
        image_ids=table.image_ids,
        file_names=tuple(table.file_names),
        sizes=table.sizes,
        shards=tuple(table.shards),
        places=table.places,
        checksums=table.checksums,
        image_categories=table.image_categories,
        first=np.concatenate([[0], np.cumsum(counts)]),
        boxes=table.boxes[order],
        category_ids=table.category_ids[order],
        crowd=table.crowd[order],
        video_ids=table.videos.video_ids,
        frame_ids=table.videos.frame_ids,
        frame_rates=table.videos.frame_rates,
        track_ids=table.videos.track_ids[order],
        video_files=table.videos.files,
        categories=table.categories,
        category_keys={
            number: {name: value for name, value in rows_by_id[number].items() if name not in ("id", "name")}
            for number in table.categories
        },
        columns={name: values.column_of_key(table, name)[order] for name in columns},
    )
