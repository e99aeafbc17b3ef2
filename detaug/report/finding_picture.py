"""Draw the image of a finding with its boxes."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from detaug.arrays import Array, Bools
from detaug.boxes.mask_table import MaskTable
from detaug.boxes.masks import masks_within, whole_objects
from detaug.check.summary import CheckFinding, CheckSummary
from detaug.coco.key_points import names_of_points, side_of
from detaug.coco.outlines import read_outlines
from detaug.coco.table import Table
from detaug.drawing.boxes import draw_boxes
from detaug.drawing.colors import class_colors
from detaug.drawing.maps import MapMarks, depth_limits, draw_map
from detaug.drawing.masks import draw_masks
from detaug.drawing.points import SIDES, Marks, draw_key_points, paint_quadrangle
from detaug.errors import InputError
from detaug.files.image_file import ImageFile, opened
from detaug.files.image_headers import read_orientation, upright
from detaug.files.large_images import ANY_NUMBER, allow_pixels
from detaug.maps.kinds import DepthMap, Pixels, pixels_of
from detaug.pages.frame import shorten

MOST_PIXELS = 64_000_000  # a larger image is not decoded for its thumbnail
SIDE = 240  # of a thumbnail, in pixels
GAP = 6  # between two images that are alike, in pixels
CLOSE_UP = 0.25  # a box with both sides under this fraction of its image is drawn with its surroundings only
MOST_LETTERS = 30  # of a class name


class FindingObjects(NamedTuple):
    """Boxes (M, 4) XYXY pixels, M class names, M flags, M positions in the JSON file's annotations."""

    boxes: Array
    names: list[str]
    dashed: list[bool]
    rows: list[int]


class ImageTooLargeError(InputError):
    """An image has more than `MOST_PIXELS` pixels."""


def finding_picture(summary: CheckSummary, finding: CheckFinding) -> Image.Image:
    """Draw the finding's image with its boxes, or the surroundings of a small box; the longer side has 240 pixels.

    A box that repeats or contradicts an earlier one is drawn with it, dashed, and both have their numbers in the JSON
    file. A finding of boxes has their outlines, too, one of keypoints has them and their skeleton, and one of corners
    has these beside the box; one of a map has the map, as far as it can be read, and no boxes. Raises OSError or
    InputError where the image cannot be opened or the finding names none.
    """
    image = _open_upright(_file_of(summary, finding))
    objects = _objects(summary.table, finding)
    is_about_a_box = finding.entry.startswith("annotations")
    left, top, right, bottom = _window(objects.boxes, image.size) if is_about_a_box else (0, 0, *image.size)
    zoom = SIDE / max(right - left, bottom - top)
    size = (max(1, round((right - left) * zoom)), max(1, round((bottom - top) * zoom)))
    image = image.crop((left, top, right, bottom)).resize(size, Image.Resampling.LANCZOS)
    if finding.kind.startswith(("map-", "depth-")):
        return _with_map(image, summary, finding)
    if finding.kind == "image-near":
        return _beside_earlier(image, summary, finding)
    moved = (objects.boxes - np.tile([left, top], 2)) * zoom
    colors = class_colors(shorten(name, MOST_LETTERS) for name in ("", *summary.table.categories.values()))
    drawn = [f"{name} {row}" for name, row in zip(objects.names, objects.rows, strict=True)]
    labels = drawn if finding.like else None
    if finding.kind.startswith(("box-", "segmentation-")):
        masks = _masks(summary.table, objects.rows, (left, top, right, bottom))
        image = draw_masks(image, masks, [colors[name] for name in objects.names])
    drawing = draw_boxes(image, moved, objects.names, difficult=objects.dashed, labels=labels, colors=colors)
    return _with_marks(drawing, summary.table, finding, (left, top), zoom)


def _beside_earlier(image: Image.Image, summary: CheckSummary, finding: CheckFinding) -> Image.Image:
    """Draw the image at the right of the earlier one that it is like, in one height, without boxes."""
    _, row = _place_of(finding.like)
    earlier = _open_upright(summary.table.image_file(summary.image_folder, row))
    width = max(1, round(earlier.width * image.height / earlier.height))
    pair = Image.new("RGB", (width + GAP + image.width, image.height), "white")
    pair.paste(earlier.resize((width, image.height), Image.Resampling.LANCZOS))
    pair.paste(image, (width + GAP, 0))
    return pair


def image_of(finding: CheckFinding) -> str:
    """Return the file name of the finding's image, "" if it has none.

    The message of an image that the JSON file does not name is the quoted file name.
    """
    return finding.file_name or (finding.message[1:-1] if finding.kind == "image-unreferenced" else "")


def _file_of(summary: CheckSummary, finding: CheckFinding) -> ImageFile:
    where, index = _place_of(finding.entry)
    if where not in ("images", "annotations"):
        return ImageFile(str(summary.image_folder / image_of(finding)))
    row = index if where == "images" else int(summary.table.image_index[index])
    return summary.table.image_file(summary.image_folder, row)


def _place_of(entry: str) -> tuple[str, int]:
    """Return the list and the position that an entry such as "annotations[5]" names; position -1 if it has none."""
    where, _, index = entry.rstrip("]").partition("[")
    return where, int(index or -1)


def _open_upright(image: ImageFile) -> Image.Image:
    with opened(image) as content:
        orientation = read_orientation(content)
        with allow_pixels(ANY_NUMBER), Image.open(content) as file:  # its size is known before it is decoded
            if file.width * file.height > MOST_PIXELS:
                raise ImageTooLargeError(f"{image.path} has {file.width} x {file.height} pixels")
            rgb: Image.Image = upright(file, orientation).convert("RGB")
            return rgb


def _objects(table: Table, finding: CheckFinding) -> FindingObjects:
    """Return the box of the finding, with the one that it is like, as annotated, or all boxes of its image."""
    where, index = _place_of(finding.entry)
    if where == "annotations":
        rows = [_place_of(entry)[1] for entry in (finding.entry, finding.like) if entry]
    else:
        rows = np.flatnonzero(table.image_index == index).tolist() if where == "images" else []
    boxes = [(box, row) for row in rows if (box := _xyxy(table.row("annotations", row).get("bbox"))) is not None]
    names = [shorten(table.categories.get(int(table.category_ids[row]), ""), MOST_LETTERS) for _, row in boxes]
    numbers = [row for _, row in boxes]
    difficult = [table.row("annotations", row).get("difficult") == 1 for row in numbers]
    dashed = [False, True][: len(boxes)] if finding.like else difficult
    return FindingObjects(np.array([box for box, _ in boxes]).reshape(-1, 4), names, dashed, numbers)


def _masks(table: Table, rows: list[int], window: tuple[int, int, int, int]) -> Callable[[int, int], Bools]:
    """Return what makes masks of the outlines of annotations of one image, in a window of it, XYXY pixels."""
    segmentations = [table.row("annotations", row).get("segmentation") for row in rows]
    sizes = table.sizes[table.image_index[rows]] if rows else np.ones((0, 2), np.int64)
    outlines, _ = read_outlines(segmentations, [None] * len(rows), *sizes.T)
    height, width = sizes[0].tolist() if rows else (1, 1)
    objects = whole_objects(np.arange(len(rows)), height, width)
    return masks_within(MaskTable.of(outlines, sizes[:, 0]), objects, window)


def _with_marks(
    image: Image.Image, table: Table, finding: CheckFinding, start: tuple[int, int], zoom: float
) -> Image.Image:
    """Draw the keypoints or the corners that a finding is about. `start`: x, y of the image in the image."""
    where, index = _place_of(finding.entry)
    if where != "annotations":
        return image
    entry = table.row("annotations", index)
    if finding.kind.startswith("corners-") or finding.kind == "segmentation-box":
        corners = _finite(entry.get("corners"), 2)
        if corners is not None and len(corners) == 4:
            paint_quadrangle(image, (corners - start) * zoom, SIDES[""], 2)
    points = _finite(entry.get("keypoints"), 3) if finding.kind.startswith("keypoints-") else None
    if points is None:
        return image
    points[:, :2] = (points[:, :2] + 0.5 - start) * zoom  # COCO counts pixels
    categories = [category for category in table.coco.document["categories"] if isinstance(category, dict)]
    category = next((candidate for candidate in categories if candidate.get("id") == entry.get("category_id")), {})
    names = [*names_of_points(category), *[""] * len(points)][: len(points)]
    skeleton = _finite(category.get("skeleton"), 2)
    bones = [] if skeleton is None else skeleton.astype(int).tolist()
    inside = [(a - 1, b - 1) for a, b in bones if min(a, b) >= 1 and max(a, b) <= len(points)]
    return draw_key_points(image, Marks(points[None], [inside], [[side_of(name) for name in names]]))


def _with_map(image: Image.Image, summary: CheckSummary, finding: CheckFinding) -> Image.Image:
    """Draw the map that a finding is about below the image; what it has instead of numbers, beside it."""
    _, row = _place_of(finding.entry)
    paths = {own.of_rows[row]: own.kind for own in summary.maps if row in own.of_rows}
    path = next((path for path in paths if str(path) in finding.message), next(iter(paths), None))
    if path is None or finding.kind in ("map-missing", "map-lossy"):
        return image
    try:
        pixels = pixels_of(path)
    except (InputError, OSError):
        return image
    values = pixels.values
    if values.ndim == 3:
        colors = Image.fromarray(values[..., :3].astype(np.uint8)).resize(image.size, Image.Resampling.NEAREST)
        return Image.blend(image, colors, 0.6)
    if isinstance(kind := paths[path], DepthMap):
        known = values_of_depths(pixels, kind)
        return draw_map(image, MapMarks(known, 0, limits=depth_limits([known])), {})
    name: Callable[[int], str] = str  # of a value that is not a class, which is drawn, too
    try:
        values = kind.values_of(pixels, path)
        name = kind.class_name
    except InputError:
        pass
    names = {number: name(number) for number in np.unique(values).tolist() if number != kind.ignore}
    return draw_map(image, MapMarks(values, kind.ignore, names), class_colors((*names.values(), *(kind.classes or ()))))


def values_of_depths(pixels: Pixels, kind: DepthMap) -> Array:
    """Return (H, W) the depths of a file, those of a palette too."""
    return kind.values_of(Pixels(pixels.values, ""), Path())


def _finite(values: Any, width: int) -> Array | None:
    """Return (n, width) finite numbers, None if these are others."""
    try:
        numbers = np.array(values, np.float64).reshape(-1, width)
    except (TypeError, ValueError, OverflowError):
        return None
    return numbers if np.isfinite(numbers).all() else None


def _xyxy(bbox: Any) -> list[float] | None:
    try:
        x, y, width, height = (float(value) for value in bbox)
    except (TypeError, ValueError, OverflowError):
        return None
    return [x, y, x + width, y + height] if all(map(math.isfinite, (x, y, width, height))) else None


def _window(boxes: Array, full: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return the part of the image to draw, XYXY: all of it, or the surroundings of a box that is small in it."""
    size = np.array(full)
    if not len(boxes):
        return 0, 0, *full
    inside = boxes[0].clip(0, np.tile(size, 2))
    sides = inside[2:] - inside[:2]
    if (sides >= CLOSE_UP * size).any():
        return 0, 0, *full
    span = np.minimum(np.maximum(3 * sides.max(), 48), size)
    start = ((inside[:2] + inside[2:] - span) / 2).clip(0, size - span)
    left, top = np.floor(start).astype(int).tolist()
    right, bottom = np.ceil(start + span).astype(int).tolist()
    return left, top, min(right, full[0]), min(bottom, full[1])
