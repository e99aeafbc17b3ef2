"""Put the objects of an XML into their image: VOC's pixels count from 1 and boxes include their last one (decision 1).

Boxes are not rounded, unlike those of other formats: the corners come back by `coco_to_voc`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from detaug.coco.boxes import BoxNumbers
from detaug.coco.rings import are_flat, keys_of_corners, keys_of_mask
from detaug.coco.writer import Box, whole_numbers
from detaug.converters.records.placing import Place, Placed
from detaug.converters.records.record import Edges, Object, Record, edges_of
from detaug.converters.voc.masks import FOLDER, masks_of_objects, read_masks
from detaug.converters.voc.xml import FIRST_PIXEL, CocoBox, Origin, to_coco_box
from detaug.files.paths import stem_of
from detaug.findings.finding import Finding, has_error

Difficult = Literal["keep", "crowd", "drop"]


@dataclass(frozen=True)
class VocRules:
    """The choices of voc_to_coco about objects."""

    origin: Origin = "one"
    difficult: Difficult = "keep"
    masks: bool = False


def place(
    rules: VocRules, root: Path, record: Record, size: tuple[int, int], numbers: BoxNumbers
) -> tuple[list[Placed], list[Placed]]:
    """Return the objects of a record in its image of size (H, W), and no regions: see `Contents.place`."""
    if record.size is None and not has_error(record.findings):
        record.findings.append(Finding(record.file, "size-missing", after=[*size[::-1]]))
    into = Place(size, (1, 1), record)
    boxes = [_box_of(item, size, rules.origin) for item in record.objects]
    numbers.add((), map(_numbers_of, record.objects, boxes), size)
    masks = _masks_of(record, boxes, root, size) if rules.masks else None
    placed, seen = list[Placed](), set[tuple[object, ...]]()
    for item, coco_box in zip(record.objects, boxes, strict=True):
        into.tidy_class_name(item)
        if not _is_wanted(item, rules, into) or not (box := _checked(item, coco_box, rules.origin, into)):
            continue
        if (item.class_name, box) in seen:
            into.note("box-repeated", item, whole_numbers(_corners_of(item)), whole_numbers(box))
        seen.add((item.class_name, box))
        keys = keys_of_corners(item.corners) if item.corners else {}
        if item.rings:
            first = FIRST_PIXEL[rules.origin]
            item.rings = [[number - first for number in ring] for ring in item.rings]
            keys |= into.ring_keys(item)[0]
        if masks is not None and item.object_index in masks:
            keys |= keys_of_mask(masks[item.object_index])
        elif masks is not None:
            into.note("mask-missing", item)
        shape, columns = ({**item.columns, **keys}, {}) if keys else ({}, item.columns)  # the flags come first
        placed.append(
            Placed(item.class_name, box, shape, {}, item.is_crowd, None, columns, item.line, item.object_index)
        )
    return placed, []


def _is_wanted(item: Object, rules: VocRules, into: Place) -> bool:
    """Return whether the object is not a difficult one that is dropped; one may become a crowd (decision 5)."""
    if not item.columns["difficult"] or rules.difficult == "keep":
        return True
    if rules.difficult == "drop":
        into.note("difficult-dropped", item, whole_numbers(_corners_of(item)))
        return False
    into.note("difficult-crowd", item)
    item.is_crowd = True
    return True


def _corners_of(item: Object) -> Edges:
    """Return (xmin, ymin, xmax, ymax) as in the XML, or around the corners of a rotated box or the polygons."""
    return item.edges or edges_of(item.corners or [*chain.from_iterable(item.rings)])


def _numbers_of(item: Object, placed: CocoBox) -> Sequence[float]:
    """Return the numbers of an object as written if all are in 0..1, where a box may end before the first pixel.

    Else those of its box: one in the first pixel alone looks relative to the image in the JSON file, too.
    """
    written = [*(item.edges or ()), *item.corners, *chain.from_iterable(item.rings)]
    if placed.box is None or all(0 <= number <= 1 for number in written):
        return written
    left, top, width, height = placed.box
    return left, top, left + width, top + height


def _box_of(item: Object, size: tuple[int, int], origin: Origin) -> CocoBox:
    left, top, right, bottom = _corners_of(item)
    if item.corners:  # continuous pixels
        origin = "zero"
    elif origin == "one" and not item.edges:  # a polygon ends at its last point; a box includes its last pixel
        right, bottom = right - 1, bottom - 1
    return to_coco_box((left, top, right, bottom), origin, size)


def _checked(item: Object, coco_box: CocoBox, origin: Origin, into: Place) -> Box | None:
    """Return the box of an object, if it has one, with its findings."""
    box, kinds = coco_box
    corners = _corners_of(item)
    for kind in kinds:
        into.note(kind, item, whole_numbers(corners), box and whole_numbers(box))
    if origin == "one" and 0 in corners and not item.corners:
        into.note("coordinate-zero", item, whole_numbers(corners))
    if box and item.corners and are_flat(item.corners).any():
        into.note("box-empty", item, whole_numbers(item.corners))
        return None
    return box


def _masks_of(
    record: Record, boxes: Sequence[CocoBox], root: Path, size: tuple[int, int]
) -> dict[int, NDArray[np.bool_]] | None:
    """Return the masks of objects by their position: numbers in SegmentationObject count all of the XML's."""
    name = f"{FOLDER}/{stem_of(record.image)}.png"
    numbers = read_masks(os.path.join(root, name), size)
    if isinstance(numbers, str):
        record.findings.append(Finding(name, "mask-unusable" if numbers else "mask-missing", note=numbers))
        return None
    masks, unmatched = masks_of_objects(numbers, {index: box for index, (box, _) in enumerate(boxes) if box})
    record.findings += [Finding(name, "mask-unmatched", before=number) for number in unmatched]
    return masks
