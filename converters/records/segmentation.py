"""COCO's `segmentation` of an object of another format: rings, or the RLE of a mask."""

from __future__ import annotations

from typing import Any

from detaug.coco.outlines import fault_of_rings, read_runs, rings_of
from detaug.coco.rings import mask_of_runs
from detaug.converters.records.record import Mask, Object, ObjectError, Record
from detaug.findings.finding import shown

_MOST_PIXELS = 1 << 28
"""Of a mask: that of the largest image which is decoded."""


def set_segmentation(annotation: Object, value: Any, record: Record) -> bool:
    """Give an object the rings or the mask of a segmentation; return whether it is one.

    That is rings, each of three points or more, or a dict; ObjectError is raised for one that is not a mask's. A mask
    has the size of the image as the record says it; where that says nothing it gets the size of the mask.
    """
    if not isinstance(value, dict):
        rings = rings_of(value)
        if not isinstance(rings, list) or not rings or fault_of_rings(rings) or min(map(len, rings)) < 6:
            return False
        annotation.rings = rings
        return True
    if record.size is None:
        size: Any = value.get("size")
        are_sides = isinstance(size, list) and len(size) == 2 and all(type(side) is int and side > 0 for side in size)
        if not are_sides or size[0] * size[1] > _MOST_PIXELS:
            raise ObjectError(f"size of RLE must be [height, width], got {shown(size)}")
        record.size = size[1], size[0]
    width, height = map(int, record.size)
    ends, fault = read_runs(value, height, width)
    if fault:
        raise ObjectError(fault)
    annotation.masks = [Mask(mask_of_runs(ends, height, width))]
    return True
