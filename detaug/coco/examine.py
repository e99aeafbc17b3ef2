"""Turn a COCO JSON file into columns, and find everything wrong with it that shows without its images.

`read_annotations` raises on the errors found here and `detaug check` reports all findings: with one definition, the two
cannot disagree.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.coco.boxes import SMALLEST_SIDE, box_of_shape, look_like_corners, look_relative, rows_of
from detaug.coco.columns import Rows, four_numbers, whole_numbers
from detaug.coco.file_names import file_names_of, shard_places
from detaug.coco.outlines import rings_of
from detaug.coco.repair import REPAIRABLE, repair_numbers
from detaug.coco.table import MIN_SIDE, THIN, Coco, Table, load_coco
from detaug.coco.videos import video_columns
from detaug.files.text import name_key
from detaug.findings.entries import Findings, about_json, from_messages
from detaug.findings.finding import counted, shown

TOLERANCE = 1.0
"""Pixels by which a box may leave its image and be cut without an error: rounding, not a mistake."""

_LARGEST_SIDE = 2**24  # pixels; float32 represents every whole number up to it
_CORNERS = "write each bbox as [x, y, width, height]; they are corners [x0, y0, x1, y1]"
_RELATIVE = "is in 0..1, relative to its image: multiply x and widths by the image's width, y and heights by its height"
_ROUNDING = 1e-3  # pixels by which x + width may miss the edge because of the decimals they are written with


def examine_file(path: str | Path) -> Table:
    """Parse and examine a COCO JSON file. Raises AnnotationError if the file is not one."""
    with no_garbage_collection():
        return examine(load_coco(path))


@contextmanager
def no_garbage_collection() -> Iterator[None]:
    """Switch the garbage collector off: its walks over the growing heap of rows double the time of parsing."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def examine(coco: Coco) -> Table:
    """Turn a JSON file into columns, with every finding that needs no image.

    Ids and numbers in a wrong form, such as text, are findings, and are read; so what depends on them is examined too.
    """
    coco, findings = _with_rings(coco)
    table = _examine(coco)
    table.findings.extend(findings)
    if REPAIRABLE.isdisjoint(finding.kind for finding in table.findings):
        return table
    repaired, repairs = repair_numbers(coco)
    return with_repairs(repaired, [*repairs, *findings]) if repairs else table


def _with_rings(coco: Coco) -> tuple[Coco, list[Findings]]:
    """Return the JSON file with lists of rings for polygons in other forms, such as flat lists; and a finding.

    A flat list, or pairs [x, y], can mean one ring only.
    """
    changed: dict[int, Any] = {}
    rows = coco.document["annotations"]
    for index, row in enumerate(rows):
        value = row.get("segmentation") if type(row) is dict else None
        # Polygons of most files are rings of numbers already: looking at the first one spares a copy of all.
        if type(value) is list and value and not (type(value[0]) is list and len(value[0]) >= 6):
            rings = rings_of(value)
            if rings != value:
                changed[index] = row | {"segmentation": rings}
        elif type(value) is list and value and type(value[0][0]) is list:
            changed[index] = row | {"segmentation": rings_of(value)}
    if not changed:
        return coco, []
    messages = {index: f"segmentation {shown(rows[index]['segmentation'])} is read as rings" for index in changed}
    document = coco.document | {"annotations": [changed.get(index, row) for index, row in enumerate(rows)]}
    return replace(coco, document=document), [from_messages("segmentation-form", "annotations", messages)]


def with_repairs(repaired: Coco, findings: list[Findings]) -> Table:
    """Turn a repaired JSON file into columns. findings: about the repairs, which come first."""
    table = _examine(repaired)
    return replace(table, findings=[*findings, *table.findings])


def _examine(coco: Coco) -> Table:
    findings: list[Findings] = []
    images, objects, categories = (Rows(coco, where, findings) for where in ("images", "annotations", "categories"))
    return table_of(coco, images, objects, categories, findings)


def table_of(coco: Coco, images: Rows, objects: Rows, categories: Rows, findings: list[Findings]) -> Table:
    """Turn the lists of a JSON file into columns. `findings`: those of the rows, to which others are appended."""
    findings += _document_findings(coco)
    names = _categories(categories)
    image_ids, has_id = images.whole_numbers("id", "image-id")
    images.note_repeated_ids("image-id-repeated", image_ids, has_id)
    sizes, has_size = _sizes(images)
    shards, places, checksums = shard_places(images)
    file_names = file_names_of(images, [shards[shard] if shard >= 0 else "" for shard in places[:, 0].tolist()])
    image_index = _image_positions(objects, image_ids, has_id)
    category_ids, has_category = _object_categories(objects, names)
    ids, good = objects.whole_numbers("id", "annotation-id")
    objects.note_repeated_ids("annotation-id-repeated", ids, good)
    objects.note("annotation-id-zero", good & (ids == 0), lambda _: "ids count from 1 for pycocotools")
    around = _boxes_of_shapes(objects, image_index, sizes, has_size)
    boxes, has_box = _object_boxes(objects, around, image_index, sizes, has_size)
    _note_relative_shapes(objects, image_index, sizes, has_size)
    return Table(
        coco=coco,
        image_ids=image_ids,
        file_names=file_names,
        sizes=sizes,
        has_size=has_size,
        shards=shards,
        places=places,
        checksums=checksums,
        image_categories=_image_categories(images, names),
        image_index=image_index,
        boxes=boxes,
        has_box=has_box,
        shape_boxes=around,
        category_ids=category_ids,
        has_category=has_category,
        crowd=_crowd(objects),
        videos=video_columns(coco, images, objects, image_index, sizes),
        categories=names,
        findings=findings,
    )


def _document_findings(coco: Coco) -> Iterator[Findings]:
    if coco.constants:
        yield about_json("not-json", f"{counted(len(coco.constants), 'time')}, first {coco.constants[0]}")
    for where in ("images", "categories"):
        if not coco.document[where]:
            yield about_json(f"{where}-empty", f"{coco.path} has no {where}")


def _categories(rows: Rows) -> dict[int, str]:
    """Return id -> name, in the order of the ids."""
    ids, good = rows.whole_numbers("id", "category-id")
    rows.note_repeated_ids("category-id-repeated", ids, good)
    values = rows.column("name")
    named = np.array([isinstance(value, str) and bool(value.strip()) for value in values], bool)
    rows.note("category-name", ~named, lambda row: f"name must be text, got {shown(values[row])}")
    _note_alike(rows, [value if is_named else "" for value, is_named in zip(values, named, strict=True)])
    names = {
        number: value if is_named else f"category {number}"
        for number, value, is_named, is_good in zip(ids.tolist(), values, named, good, strict=True)
        if is_good
    }
    return dict(sorted(names.items()))


def _note_alike(rows: Rows, names: list[str]) -> None:
    alike: dict[str, int] = {}
    keys = list(map(name_key, names))
    earlier = np.array([alike.setdefault(key, index) for index, key in enumerate(keys)], np.int64)
    wrong = (earlier != np.arange(len(keys))) & np.array([bool(key) for key in keys], bool)
    rows.note(
        "category-alike",
        wrong,
        lambda row: f"{shown(names[row])} is like {shown(names[earlier[row]])} of categories[{earlier[row]}]",
    )


def _sizes(rows: Rows) -> tuple[Ints, Bools]:
    """Return (N, 2) (height, width) in pixels, and (N,) where they are usable."""
    heights, has_height = _side(rows, "height")
    widths, has_width = _side(rows, "width")
    return np.stack([heights, widths], axis=1), has_height & has_width


def _side(rows: Rows, name: str) -> tuple[Ints, Bools]:
    values = rows.column(name)
    floats = np.array([type(value) is float and value.is_integer() for value in values], bool)
    if floats.any():
        rows.note("size-not-integer", floats, lambda row: f"{name} {values[row]} is read as {values[row]:.0f}")
    numbers = [int(value) if is_float else value for value, is_float in zip(values, floats, strict=True)]
    return rows.whole_numbers(name, "image-size", numbers, low=1, high=_LARGEST_SIDE)


def _image_positions(rows: Rows, image_ids: Ints, good: Bools) -> Ints:
    """Return (A,) the position of each annotation's image, -1 where there is none."""
    values = rows.column("image_id")
    numbers, is_whole = whole_numbers(values)
    order = np.flatnonzero(good)[np.argsort(image_ids[good], kind="stable")]
    candidate = np.append(order, -1)[np.searchsorted(image_ids[order], numbers)]
    known = is_whole & (candidate >= 0)
    known[known] = image_ids[candidate[known]] == numbers[known]
    rows.note("image-id-unknown", ~known, lambda row: _missing_or(values[row], "image_id", "is not the id of an image"))
    return np.where(known & rows.present, candidate, -1)


def _missing_or(value: Any, key: str, fault: str) -> str:
    return f"{key} is missing" if value is None else f"{key} {shown(value)} {fault}"


def _image_categories(rows: Rows, categories: dict[int, str]) -> Ints:
    """Return (N,) the category id of each image, -1 where it has none."""
    values = rows.column("category_id")
    if values.count(None) == len(values):
        return np.full(len(values), -1)
    has_value = np.array([value is not None for value in values], bool)
    numbers, known = _known(values, categories)
    rows.note("category-unknown", has_value & ~known, lambda row: _unknown_category(values[row], categories))
    return np.where(has_value & known, numbers, -1)


def _known(values: list[Any], categories: dict[int, str]) -> tuple[Ints, Bools]:
    numbers, is_whole = whole_numbers(values)
    return numbers, is_whole & np.isin(numbers, np.array(list(categories), np.int64))


def _unknown_category(value: Any, categories: dict[int, str]) -> str:
    return _missing_or(value, "category_id", f"is not among the ids of the categories, {shown(list(categories))}")


def _object_categories(rows: Rows, categories: dict[int, str]) -> tuple[Ints, Bools]:
    values = rows.column("category_id")
    numbers, known = _known(values, categories)
    rows.note("category-unknown", ~known, lambda row: _unknown_category(values[row], categories))
    return numbers, known & rows.present


def _crowd(rows: Rows) -> Bools:
    values = rows.column("iscrowd")
    wrong = np.array([value not in (0, 1, None) for value in values], bool)
    rows.note("crowd-invalid", wrong, lambda row: f"iscrowd must be 0 or 1, got {shown(values[row])}")
    return np.array([value == 1 for value in values], bool)


def _boxes_of_shapes(rows: Rows, image_index: Ints, sizes: Ints, has_size: Bools) -> dict[int, list[float]]:
    """Return the box around the shape of each row without a bbox that has one in a known image, by row."""
    boxes = {}
    for index, box in enumerate(rows.column("bbox")):
        image = int(image_index[index])
        if box in (None, []) and image >= 0 and has_size[image]:
            height, width = sizes[image].tolist()
            if around := box_of_shape(rows.entry(index), (height, width)):
                boxes[index] = around
    return boxes


def _object_boxes(
    rows: Rows, around: dict[int, list[float]], image_index: Ints, sizes: Ints, has_size: Bools
) -> tuple[Floats, Bools]:
    """Return (A, 4) XYXY pixels, cut at the edges of their images, and (A,) where they are usable.

    around: boxes of the shapes of rows without bbox, which are checked like the others and not usable.
    """
    values = rows.column("bbox")
    for index, box in around.items():
        values[index] = box
    boxes, numeric = four_numbers(values)
    missing = rows_of(around, len(values))
    rows.note("box-missing", missing, lambda row: f"bbox is missing; the box around its shape is {around[row]}")
    rule = "bbox must be [x, y, width, height] with"
    rows.note("box-invalid", ~numeric, lambda row: f"{rule} four finite numbers, got {shown(values[row])}")
    thin: Bools = np.any(boxes[:, 2:] < THIN, axis=1)
    rows.note("box-empty", thin, lambda row: f"{rule} sides of at least {MIN_SIDE} pixel, got {values[row]}")
    size = np.append(sizes, [[1, 1]], axis=0)[image_index]  # -1, no image, takes the last
    good = rows.present & numeric & ~thin & np.append(has_size, False)[image_index]
    if look_like_corners(boxes[good], size[good]):
        example = values[int(np.flatnonzero(good)[0])]
        rows.findings.append(about_json("box-corners", f"{_CORNERS}, such as {example}"))
    boxes[:, 2:] += boxes[:, :2]
    large = good & (size.min(axis=1) >= SMALLEST_SIDE)
    if look_relative(map(np.ndarray.tolist, boxes[large])):
        example = values[int(np.flatnonzero(large)[0])]
        rows.findings.append(about_json("box-relative", f"each bbox {_RELATIVE}, such as {shown(example)}"))
    cut, inside = _inside(rows, values, boxes, size, good)
    return cut, inside & ~missing


def _note_relative_shapes(rows: Rows, image_index: Ints, sizes: Ints, has_size: Bools) -> None:
    """Note polygons and keypoints that are relative to their images."""
    large = np.append(has_size & (sizes.min(axis=1, initial=_LARGEST_SIDE) >= SMALLEST_SIDE), False)[image_index]
    readers = {"segmentation": _numbers_of_lists, "corners": _numbers_of_lists, "keypoints": _numbers_of_points}
    for key, numbers_of in readers.items():
        if look_relative(numbers for value in rows.values(key, large) for numbers in numbers_of(value)):
            example = next(value for value in rows.values(key, large) if value)
            rows.findings.append(about_json(f"{key}-relative", f"each {key} {_RELATIVE}, such as {shown(example)}"))


def _numbers_of_lists(value: Any) -> Iterator[list[float]]:
    """Yield the numbers of rings, or of pairs."""
    for numbers in value if isinstance(value, list) else ():
        if isinstance(numbers, list) and set(map(type, numbers)) <= {int, float}:
            yield numbers


def _numbers_of_points(value: Any) -> Iterator[list[float]]:
    if isinstance(value, list) and len(value) % 3 == 0 and set(map(type, value)) <= {int, float}:
        labeled = [value[start : start + 2] for start in range(0, len(value), 3) if value[start + 2] > 0]
        yield list(chain.from_iterable(labeled))


def _inside(rows: Rows, values: list[Any], boxes: Floats, size: Ints, good: Bools) -> tuple[Floats, Bools]:
    cut = np.clip(boxes, 0, np.tile(size[:, ::-1], 2))
    past = np.abs(boxes - cut).max(1, initial=0)
    outside = (past > TOLERANCE) | (cut[:, 2:] - cut[:, :2] < THIN).any(1)

    def describe(row: int) -> str:
        height, width = size[row]
        return f"bbox {values[row]} reaches {past[row]:.4g} pixels outside its image of {width} x {height}"

    rows.note("box-outside", good & outside, describe, badness=past)
    rows.note("box-clipped", good & ~outside & (past > _ROUNDING), describe, badness=past)
    return cut, good & ~outside
