"""COCO panoptic: a JSON file, and a PNG for each image whose colors are the ids of segments.

Source: https://cocodataset.org/#format-data, 4. Panoptic Segmentation; converters/panoptic2detection_coco_format.py of
https://github.com/cocodataset/panopticapi. The id of a pixel is R + 256 G + 65536 B; 0 is of no segment.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.converters.formats.label_maps import pixels_of
from detaug.converters.records.record import (
    AnnotationFiles,
    Contents,
    Mask,
    Object,
    ObjectError,
    Record,
    count_unread,
    id_of,
    list_of,
    object_of,
    read_objects,
    text_of,
    unreadable,
    whole_of,
)
from detaug.errors import ConversionError, InputError
from detaug.files.image_headers import IMAGE_EXTENSIONS
from detaug.files.paths import is_below, list_files
from detaug.findings.finding import Finding, shown
from detaug.maps.kinds import numbers_of_colors

_SEGMENT = ("id", "category_id", "iscrowd", "bbox", "area")
_ENTRY = ("image_id", "file_name", "segments_info")
_LISTS = ("images", "annotations", "categories")


def read_coco_panoptic(source: AnnotationFiles) -> Contents:
    """Read the segments of things: their masks, from the PNG, and the boxes around them; `iscrowd`.

    Segments of stuff are counted. The PNGs are in the folder of the JSON file's name, or beside
    it.
    """
    names, folders, lists = list[str](), list[Path](), list[dict[str, list[Any]]]()
    for file in source.files:
        lists.append(_lists_of(source.name(file)))
        folders.append(_folder_of(source, file))
        names += _things(lists[-1]).values()
    masks = {os.path.relpath(folder, source.images) for folder in folders}
    return Contents(
        _records(source.files, folders, lists),
        total=sum(len(own["images"]) for own in lists),
        class_names=list(dict.fromkeys(names)),
        images=_images(source.images, masks),
    )


def _records(files: Sequence[str], folders: Sequence[Path], lists: Sequence[dict[str, list[Any]]]) -> Iterator[Record]:
    """Yield a record for each image, with its masks: one at a time."""
    for file, folder, own in zip(files, folders, lists, strict=True):
        things, entries = _things(own), dict[Any, dict[str, Any]]()
        stuff = frozenset(id_of(row.get("id")) for row in own["categories"]) - frozenset(things)
        for entry in own["annotations"]:
            if entries.setdefault(id_of(entry.get("image_id")), entry) is not entry:
                note = f"two annotations are of image {shown(entry.get('image_id'))}"
                yield Record(file, findings=[Finding(file, "image-shared", note=note)])
        for image in own["images"]:
            yield _record(file, image, entries.pop(id_of(image.get("id")), None), folder, things, stuff)
        for key in entries:
            note = f"image_id {shown(key)} is not the id of an image"
            yield Record(file, findings=[Finding(file, "image-missing", before=key, note=note)])


def _lists_of(path: str) -> dict[str, list[Any]]:
    """Return the lists of a JSON file. Raises ConversionError for a file that does not have them, of objects."""
    try:
        document = object_of(json.loads(Path(path).read_bytes()), "a COCO panoptic JSON file")
        lists = {name: list_of(document.get(name), name) for name in _LISTS}
        for name, rows in lists.items():
            for row in rows:
                object_of(row, f"an entry of {name}")
        _things(lists)
    except (OSError, ValueError, RecursionError) as error:
        raise ConversionError(f"{path} cannot be read as a COCO panoptic JSON file: {error}") from None
    return lists


def _things(lists: Mapping[str, list[Any]]) -> dict[Any, str]:
    """Return the names of the categories of objects, by id: without `isthing`, all are, as for panopticapi."""
    rows = (row for row in lists["categories"] if row.get("isthing", 1))
    return {id_of(row.get("id")): text_of(row.get("name"), "name of a category") for row in rows}


def _folder_of(source: AnnotationFiles, file: str) -> Path:
    """Return the folder of the PNGs of a JSON file."""
    path = source.folder / file
    return next((folder for folder in (path.with_suffix(""), path.parent) if folder.is_dir()), path.parent)


def _images(folder: Path, masks: Iterable[str]) -> list[str]:
    """Return the images of a folder, without those below the folders of masks."""
    starts = tuple(f"{name}/" for name in masks if name != ".")
    return [name for name in list_files(folder, IMAGE_EXTENSIONS) if not name.startswith(starts)]


def _record(
    file: str,
    image: Mapping[str, Any],
    entry: dict[str, Any] | None,
    folder: Path,
    things: Mapping[Any, str],
    stuff: frozenset[Any],
) -> Record:
    record = Record(file, tool_id=id_of(image.get("id")))
    try:
        record.names = [text_of(image.get("file_name"), "file_name")]
        if entry is not None:
            count_unread(record, entry, _ENTRY)
            _read(record, entry, folder, things, stuff)
    except (OSError, InputError) as error:
        record.findings.append(unreadable(record.about(None), error))
    return record


def _read(
    record: Record, entry: Mapping[str, Any], folder: Path, things: Mapping[Any, str], stuff: frozenset[Any]
) -> None:
    name = text_of(entry.get("file_name"), "file_name")
    path = folder / name
    if not is_below(name):
        raise ObjectError(f"file_name of a PNG must be below its folder, got {shown(name)}")
    if not path.is_file():
        raise ObjectError(f"{path} is not there; unpack the PNGs into {folder}, of the JSON file's name")
    pixels = pixels_of(path)
    if pixels.ndim != 3:
        raise ObjectError(f"{path} has no colors, which would be the ids of segments")
    ids = numbers_of_colors(pixels)
    record.size = ids.shape[1], ids.shape[0]
    segments = list_of(entry.get("segments_info"), "segments_info")
    known = {id_of(segment.get("id")) for segment in segments if isinstance(segment, dict)}
    for number in sorted({*np.unique(ids).tolist()} - known - {0}):
        note = f"{path} has the segment {number}, which segments_info does not have"
        record.findings.append(Finding(record.about(None), "mask-unmatched", before=number, note=note))
    read_objects(record, segments, partial(_object, ids=ids, record=record, things=things, stuff=stuff))


def _object(
    value: Any, ids: NDArray[np.int64], record: Record, things: Mapping[Any, str], stuff: frozenset[Any]
) -> Object | None:
    segment = object_of(value, "a segment")
    category = id_of(segment.get("category_id"))
    if category in stuff:
        record.unread["segments of stuff"] += 1
        return None
    if category not in things:
        raise ObjectError(f"category_id must be the id of a category, got {shown(category)}")
    number = whole_of(str(segment.get("id")), 9)
    mask = ids == number
    if not number or not mask.any():
        raise ObjectError(f"the PNG has no pixel of segment {shown(segment.get('id'))}", "mask-unusable")
    columns = {key: member for key, member in segment.items() if key not in _SEGMENT}
    is_crowd = segment.get("iscrowd") == 1
    return Object(things[category], masks=[Mask(mask)], is_crowd=is_crowd, columns=columns, tool_id=number)
