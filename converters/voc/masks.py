"""Read VOC's masks of objects, SegmentationObject/NAME.png: 0 is the background, n the n-th object, 255 no object.

A PNG has these numbers, or, as Datumaro writes it, their colors: the n-th of VOC's color map.
Source: the VOC2012 development kit, section 5.2, and its VOClabelcolormap.m.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from detaug.coco.rings import box_of_mask
from detaug.coco.writer import Box
from detaug.files.image_headers import PILLOW_ERRORS
from detaug.files.large_images import ANY_NUMBER, allow_pixels

FOLDER = "SegmentationObject"
VOID = 255

_BITS = [(3 * step + channel, 7 - step, channel) for step in range(3) for channel in range(3)][:8]
"""Of a number in VOC's color map: the bit, that of its color, and the channel."""
_SAME_OBJECT = 0.5  # IoU of the box of a mask and that of its object, whose border is void in VOC
_Array = NDArray[np.int64]


def read_masks(path: str, size: tuple[int, int] | None) -> _Array | str:
    """Return (H, W) the number of the object of each pixel, or why the file cannot be used; "" if there is none.

    size: (H, W) that it must have; None for any.
    """
    from PIL import Image  # slow to import, and only masks need it

    if not os.path.isfile(path):
        return ""
    try:
        with allow_pixels(ANY_NUMBER), Image.open(path, formats=("PNG",)) as image:
            if size is not None and image.size != size[::-1]:
                return f"has {image.width} x {image.height} pixels, and its image {size[1]} x {size[0]}"
            if image.mode in ("P", "L", "1", "I", "I;16"):
                return np.asarray(image).astype(np.int64)
            numbers = _numbers_of_colors(np.asarray(image.convert("RGB")).astype(np.int64))
            return "has colors that are not in VOC's color map" if numbers is None else numbers
    except PILLOW_ERRORS as error:
        return f"cannot be read: {error}"


def color_of(number: int) -> tuple[int, int, int]:
    """Return a color of VOC's color map."""
    red, green, blue = (
        sum((number >> low & 1) << high for low, high, own in _BITS if own == channel) for channel in range(3)
    )
    return red, green, blue


def _numbers_of_colors(pixels: _Array) -> _Array | None:
    """Return (H, W) the positions of colors (H, W, 3) in VOC's color map; None if one is not in it.

    The bits of a number, from the lowest on, are the highest bits of red, green, blue, the next ones, and so on.
    """
    numbers = sum((pixels[..., channel] >> high & 1) << low for low, high, channel in _BITS)
    colors = np.zeros_like(pixels)
    for low, high, channel in _BITS:
        colors[..., channel] |= (numbers >> low & 1) << high
    return np.asarray(numbers) if (colors == pixels).all() else None


def masks_of_objects(numbers: _Array, boxes: Mapping[int, Box]) -> tuple[dict[int, NDArray[np.bool_]], list[int]]:
    """Return the mask (H, W) of each object that has one, and the numbers of masks that belong to no object.

    boxes: of the objects, by their position in the XML. Number n is the object at n - 1, unless its box is elsewhere;
    then masks are given to the boxes that they fit best. The border of an object is void in VOC, so the mask of a small
    one fills less than half of its box.
    """
    present = [number for number in np.unique(numbers).tolist() if number not in (0, VOID)]
    around = {number: _box_around(numbers == number) for number in present}
    taken = {number - 1: number for number in present if _is_of(around[number], number - 1, boxes)}
    pairs = sorted(
        (-_iou(around[number], box), number, index)
        for number in present
        if number - 1 not in taken
        for index, box in boxes.items()
        if index not in taken
    )
    for iou, number, index in pairs:
        if -iou >= _SAME_OBJECT and index not in taken and number not in taken.values():
            taken[index] = number
    return {index: numbers == number for index, number in taken.items()}, sorted(set(present) - set(taken.values()))


def _is_of(around: Box, index: int, boxes: Mapping[int, Box]) -> bool:
    """Return whether a mask, `around` it, is that of the object at a position: it fits its box, or lies in it alone."""
    own = boxes.get(index)
    if own is None or _iou(around, own) >= _SAME_OBJECT:
        return own is not None
    starts = (own[axis] - 1 <= around[axis] for axis in (0, 1))
    ends = (around[axis] + around[axis + 2] <= own[axis] + own[axis + 2] + 1 for axis in (0, 1))
    return all(starts) and all(ends) and not any(_iou(around, other) >= _SAME_OBJECT for other in boxes.values())


def _box_around(mask: NDArray[np.bool_]) -> Box:
    left, top, right, bottom = box_of_mask(mask)
    return left, top, right - left, bottom - top


def _iou(one: Box, other: Box | None) -> float:
    if other is None:
        return 0.0
    sides = (
        min(one[axis] + one[axis + 2], other[axis] + other[axis + 2]) - max(one[axis], other[axis]) for axis in (0, 1)
    )
    width, height = (max(side, 0) for side in sides)
    return width * height / (one[2] * one[3] + other[2] * other[3] - width * height)
