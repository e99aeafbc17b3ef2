"""Select images of a dataset, at random or those with the smallest, most or oddest boxes, and read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from io import BytesIO
from itertools import chain, islice
from pathlib import Path
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from PIL import Image

from detaug.arrays import Array
from detaug.boxes.masks import whole_objects
from detaug.boxes.shapes import Shapes
from detaug.boxes.views import rows_left
from detaug.drawing.maps import MapMarks
from detaug.drawing.points import Marks
from detaug.drawing.sheet import Tile
from detaug.errors import InputError
from detaug.files.image_headers import read_orientation, upright
from detaug.files.large_images import allow_pixels, too_few_bytes
from detaug.files.pixel_types import refuse_loss
from detaug.findings.finding import on_one_line
from detaug.loading.batch_shapes import marks_of, with_masks
from detaug.sources.coco_reader import CocoReader

How: TypeAlias = Literal["random", "smallest", "crowded", "suspicious"]


class Selected(NamedTuple):
    """The image at `row` of the JSON file's list, and the reason for its selection; "" for one selected at random."""

    row: int
    note: str


class Score(NamedTuple):
    """How well an image meets a criterion, and a few words on it."""

    value: float
    note: str


def select_images(
    reader: CocoReader, rows: int, *, how: How = "random", only: str | None = None, seed: int = 0
) -> list[Selected]:
    """Select up to `rows` images, those with the highest scores first.

    how: "random" (by `seed`; images without boxes come last), "smallest" (the smallest box), "crowded" (the most
    boxes), or "suspicious": two boxes that nearly coincide, a box that is very thin, very small or as large as the
    image.
    only: the name of a class; images without it, and boxes of other classes, do not count.
    Raises InputError if `only` is not a class of the dataset, or if no image meets the criteria.
    """
    if rows < 1:
        raise InputError(f"rows must be at least 1, got {rows}")
    label = None if only is None else _label(reader, only)
    selected = _at_random(reader, rows, label, seed) if how == "random" else _best(reader, rows, label, _SCORES[how])
    if not selected:
        raise InputError(f"{reader.annotations} has no image with {'boxes' if only is None else f'a {only}'}")
    return selected


def _label(reader: CocoReader, name: str) -> int:
    names = reader.class_names
    if name not in names[1:]:
        raise InputError(f"only must be a class of {reader.annotations}: {', '.join(names[1:])}; got {name!r}")
    return names.index(name)


def _at_random(reader: CocoReader, rows: int, label: int | None, seed: int) -> list[Selected]:
    order = np.random.default_rng(seed).permutation(len(reader)).tolist()
    # Generators: of a large dataset, the objects of only a few images are read.
    boxed = (row for row in order if _has_object(reader, row, label))
    empty = (row for row in order if label is None and not _has_object(reader, row))
    return [Selected(row, "") for row in islice(chain(boxed, empty), min(rows, len(order)))]


def _has_object(reader: CocoReader, row: int, label: int | None = None) -> bool:
    """Return whether the image at `row` has an object, of the class `label` if that is given."""
    labels = objects_of(reader, row).labels
    return len(labels) > 0 if label is None else label in labels


def _best(reader: CocoReader, rows: int, label: int | None, score: Callable[[Array, Array], Score]) -> list[Selected]:
    """Select the images with the highest scores; of equal scores, the first in the JSON file."""
    scores: dict[int, Score] = {}
    for row in range(len(reader)):
        boxes, labels = objects_of(reader, row)
        boxes = boxes if label is None else boxes[labels == label]
        if len(boxes):
            scores[row] = score(boxes, reader.sizes[row, ::-1])
    best = sorted(scores, key=lambda row: -scores[row].value)[:rows]
    return [Selected(row, scores[row].note) for row in best]


class PhotoObjects(NamedTuple):
    """(M, 4) XYXY pixels and (M,) labels."""

    boxes: Array
    labels: Array


def objects_of(reader: CocoReader, row: int) -> PhotoObjects:
    """Return the boxes and labels of the image at `row` of the JSON file's list."""
    boxes, labels, _ = reader.views(np.array([row])).packed()
    return PhotoObjects(boxes[0], labels[0])


# ---------------------------------------------------------------- scores


def _smallest(boxes: Array, size: Array) -> Score:
    """Score the box with the least area by its fraction of the image, which is its fraction of a resized image too."""
    width, height = _sides(boxes)[np.argmin(_sides(boxes).prod(1))]
    return Score(-width * height / size.prod(), f"smallest {width:.3g} x {height:.3g}")


def _suspicious(boxes: Array, size: Array) -> Score:
    """Return the highest of four scores, each in 0..1; 0.9 is odd."""
    sides = _sides(boxes)
    overlap, thin = _largest_iou(boxes), float((sides.max(1) / sides.min(1)).max())
    small, share = float(sides.min()), float((sides.prod(1) / size.prod()).max())
    return max(
        Score(overlap, f"two boxes alike, IoU {overlap:.2f}"),
        Score(1 - 1 / thin, f"a box {thin:.3g} : 1"),
        Score(1 - small / 16, f"a box {small:.3g} px thin"),
        Score(share, f"a box over {share:.0%} of the image"),
    )


_SCORES: dict[str, Callable[[Array, Array], Score]] = {
    "smallest": _smallest,
    "crowded": lambda boxes, _: Score(len(boxes), f"{len(boxes)} boxes"),
    "suspicious": _suspicious,
}


def _sides(boxes: Array) -> Array:
    """Return (M, 2) widths and heights."""
    return boxes[:, 2:] - boxes[:, :2]


def _largest_iou(boxes: Array) -> float:
    """Return the largest IoU of any two boxes; 0 for one box."""
    low, high = np.maximum(boxes[:, None, :2], boxes[:, :2]), np.minimum(boxes[:, None, 2:], boxes[:, 2:])
    shared, areas = np.maximum(high - low, 0).prod(2), _sides(boxes).prod(1)
    iou = shared / (areas[:, None] + areas - shared)
    return float(np.triu(iou, 1).max())


XYWH_TO_XYXY = np.array([[1, 0, 1, 0], [0, 1, 0, 1], [0, 0, 1, 0], [0, 0, 0, 1]])


class Photo(NamedTuple):
    """An image of a reader: a caption, (H, W, 3) uint8, (M, 4) XYXY pixels, M class names, M flags, (C, 4) crowds,
    (M,) rows in the reader's columns and shapes, and what its objects have beside boxes."""

    caption: str
    pixels: Array
    boxes: Array
    class_names: list[str]
    difficult: list[bool]
    crowds: Array
    rows: Array
    marks: Marks | None

    def tile(self, map: MapMarks | None = None, name: str = "") -> Tile:
        """Return a tile of the photo with its annotations: difficult objects are dashed, crowds hatched.

        map: below them; name: of the map, for the caption.
        """
        objects = (self.boxes, self.class_names, self.difficult, self.crowds)
        caption = f"{self.caption}; map {name}" if name else self.caption
        return Tile(self.pixels, *objects, caption, marks=self.marks, map=map)


class Flags(NamedTuple):
    """Annotations of one image that a `CocoReader` leaves out."""

    difficult: list[bool]
    """For each object that is not a crowd, in the reader's order."""
    crowds: list[list[float]]
    """XYWH."""


def read_photos(reader: CocoReader, rows: Sequence[int], notes: Sequence[str] = ()) -> list[Photo]:
    """Read the images at `rows` of the JSON file's list.

    notes: a few words on each image, for its caption. Raises InputError for no rows, and for an image that cannot be
    decoded or does not have the size in the JSON file.
    """
    if not len(rows):
        raise InputError("rows must name at least one image, got none")
    flags = _flags(reader.json_file)
    return [
        _photo(reader, row, note, flags.get(int(reader.image_ids[row]), Flags([], [])))
        for row, note in zip(rows, notes or [""] * len(rows), strict=True)
    ]


def _photo(reader: CocoReader, row: int, note: str, flags: Flags) -> Photo:
    boxes, labels = objects_of(reader, row)
    rows = rows_left(reader.views(np.array([row])))
    height, width = reader.sizes[row].tolist()
    name = Path(reader.file_names[row]).name
    return Photo(
        f"{note}, {name}" if note else f"{name}, {width} x {height}",
        _pixels(reader, row),
        boxes,
        [reader.class_names[label] for label in labels],
        flags.difficult,
        np.array(flags.crowds).reshape(-1, 4) @ XYWH_TO_XYXY,
        rows,
        _marks(reader.shapes, rows, height, width),
    )


def _marks(shapes: Shapes, rows: Array, height: int, width: int) -> Marks | None:
    keypoints = None if shapes.keypoints is None else shapes.keypoints.points[rows]
    marks = marks_of(shapes, rows, keypoints, None if shapes.corners is None else shapes.corners[rows])
    if not shapes.has_masks:
        return marks
    return with_masks(marks, shapes.mask_table, whole_objects(rows, height, width), (height, width))


def _flags(path: Path) -> dict[int, Flags]:
    """Return the flags of each image that has annotations, by image id."""
    by_image: dict[int, Flags] = {}
    for row in json.loads(path.read_bytes())["annotations"]:
        flags = by_image.setdefault(row["image_id"], Flags([], []))
        if row.get("iscrowd"):
            flags.crowds.append(row["bbox"])
        else:
            flags.difficult.append(row.get("difficult") == 1)
    return by_image


def _pixels(reader: CocoReader, row: int) -> Array:
    path, (height, width) = on_one_line(str(reader.path(row))), reader.sizes[row].tolist()
    try:
        content = BytesIO(encoded := reader.read(row))
        if fault := too_few_bytes(width, height, len(encoded)):
            raise InputError(f"{path} {fault}; detaug check --decode finds all such images")
        refuse_loss(path, content)
        orientation = read_orientation(content)
        with allow_pixels(height * width), Image.open(content) as file:
            pixels = np.asarray(upright(file, orientation).convert("RGB"))
    except InputError:
        raise
    except (OSError, SyntaxError, ValueError, Image.DecompressionBombError) as error:
        raise InputError(f"{path} does not decode ({error}); detaug check --decode finds all such images") from None
    if pixels.shape[:2] != (height, width):
        has = f"{pixels.shape[1]} x {pixels.shape[0]}"
        raise InputError(f"{path} has {has} pixels, {reader.annotations} says {width} x {height}; convert it again")
    return pixels
