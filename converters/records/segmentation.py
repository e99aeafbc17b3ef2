"""COCO's `segmentation` of an object of another format: rings, or the run lengths of a mask."""

from __future__ import annotations

from typing import Any

from detaug.coco.outlines import fault_of_rings, read_runs, rings_of
from detaug.coco.rings import mask_of_runs
from detaug.converters.records.record import Mask, Object, ObjectError, Record
from detaug.findings.finding import shown

_MOST_PIXELS = 1 << 28
"""Of a mask: that of the largest image which is decoded."""


def is_segmentation(value: Any) -> bool:
    """Return whether a value is rings, each of three points or more, or may be run lengths."""
    rings = rings_of(value)
    are_rings = isinstance(rings, list) and bool(rings) and not fault_of_rings(rings)
    return isinstance(value, dict) or (are_rings and min(map(len, rings)) >= 6)


def set_segmentation(found: Object, value: Any, record: Record) -> None:
    """Give an object the rings or the mask of a segmentation. Raises ObjectError for anything else.

    A mask has the size of the image as the record says it; where that says nothing it gets the size of the mask.
    """
    if not is_segmentation(value):
        raise ObjectError(f"the segmentation must be rings or run lengths, got {shown(value)}")
    if not isinstance(value, dict):
        found.rings = rings_of(value)
        return
    if record.size is None:
        size: Any = value.get("size")
        are_sides = isinstance(size, list) and len(size) == 2 and all(type(side) is int and side > 0 for side in size)
        if not are_sides or size[0] * size[1] > _MOST_PIXELS:
            raise ObjectError(f"size of run lengths must be [height, width], got {shown(size)}")
        record.size = size[1], size[0]
    width, height = map(int, record.size)
    ends, fault = read_runs(value, height, width)
    if fault:
        raise ObjectError(fault)
    found.masks = [Mask(mask_of_runs(ends, height, width))]
