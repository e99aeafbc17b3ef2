"""Read images of a data set with their annotations."""

from __future__ import annotations

import json
from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps

from detaug.drawing.sheet import Tile
from detaug.errors import InputError
from detaug.sheets.selection import objects_of
from detaug.sources.coco_reader import CocoReader

Array = NDArray[Any]

XYWH_TO_XYXY = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]])


class Photo(NamedTuple):
    """An image of a reader: a caption, (H, W, 3) uint8, (M, 4) XYXY pixels, M class names, M flags, (C, 4) crowds."""

    caption: str
    pixels: Array
    boxes: Array
    class_names: list[str]
    difficult: list[bool]
    crowds: Array

    def tile(self) -> Tile:
        """Return a tile of the photo with its annotations: difficult objects are dashed, crowds hatched."""
        return Tile(self.pixels, self.boxes, self.class_names, self.difficult, self.crowds, self.caption)


class Flags(NamedTuple):
    """Annotations of one image that a `CocoReader` leaves out."""

    difficult: list[bool]
    """For each object that is not a crowd, in the reader's order."""
    crowds: list[list[float]]
    """XYWH."""


def read_photos(reader: CocoReader, rows: Sequence[int], notes: Sequence[str] = ()) -> list[Photo]:
    """Read the images at `rows` of the json's list.

    notes: a few words on each image, for its caption. Raises InputError for no rows, and for an image that cannot be
    decoded or does not have the size in the json.
    """
    if not len(rows):
        raise InputError("rows must name at least one image, got none")
    flags = _flags(reader.annotations_file)
    return [
        _photo(reader, row, note, flags.get(int(reader.image_ids[row]), Flags([], [])))
        for row, note in zip(rows, notes or [""] * len(rows), strict=True)
    ]


def _photo(reader: CocoReader, row: int, note: str, flags: Flags) -> Photo:
    boxes, labels = objects_of(reader, row)
    height, width = reader.sizes[row]
    name = Path(reader.file_names[row]).name
    return Photo(
        f"{note}, {name}" if note else f"{name}, {width} x {height}",
        _pixels(reader, row),
        boxes,
        [reader.class_names[label] for label in labels],
        flags.difficult,
        np.array(flags.crowds).reshape(-1, 4) @ XYWH_TO_XYXY,
    )


def _flags(path: Path) -> dict[int, Flags]:
    """Return the flags of each image that has annotations, by image id."""
    found: dict[int, Flags] = {}
    for row in json.loads(path.read_bytes())["annotations"]:
        flags = found.setdefault(row["image_id"], Flags([], []))
        if row.get("iscrowd"):
            flags.crowds.append(row["bbox"])
        else:
            flags.difficult.append(bool(row.get("difficult")))
    return found


def _pixels(reader: CocoReader, row: int) -> Array:
    path, (height, width) = reader.path(row), reader.sizes[row].tolist()
    try:
        with Image.open(BytesIO(reader.read(row))) as file:
            pixels = np.asarray(ImageOps.exif_transpose(file).convert("RGB"))
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} does not decode ({error}); detaug check --decode finds all such images") from None
    if pixels.shape[:2] != (height, width):
        has = f"{pixels.shape[1]} x {pixels.shape[0]}"
        raise InputError(f"{path} has {has} pixels, {reader.annotations} says {width} x {height}; convert it again")
    return pixels
