"""Cut boxes at the edges of their image; make boxes of corners and of polygons."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from detaug.converters.coco.table import THIN, Floats, Ints, Mask
from detaug.converters.coco.writer import Box, whole

DECIMALS = 3
"""Of a pixel: the precision of a relative side with the customary six decimals."""

_ROUNDING = 0.01  # pixels by which a box may leave its image because of the decimals it is written with


def rounded_numbers(values: Iterable[float]) -> list[float]:
    """Return numbers with 3 decimals, whole ones as ints. Many are whole: to see this is quicker than to round them."""
    return [whole(round(value, DECIMALS)) if value % 1 else int(value) for value in values]


def cut_to_image(edges: tuple[float, float, float, float], size: tuple[int, int]) -> tuple[Box | None, str]:
    """Return COCO's box in pixels, rounded, inside an image of size (H, W), and the kind of finding, "" where none.

    edges: left, top, right, bottom in pixels. The box is None if nothing is left of it.
    """
    height, width = size
    left, top, right, bottom = rounded = rounded_numbers(edges)
    if not (0 <= left <= right <= width and 0 <= top <= bottom <= height):
        left, right = min(max(left, 0), width), min(max(right, 0), width)
        top, bottom = min(max(top, 0), height), min(max(bottom, 0), height)
    cut = [left, top, right, bottom]
    if right - left < THIN or bottom - top < THIN:
        return None, "box-empty" if cut == rounded else "box-outside"
    box = (left, top, round(right - left, DECIMALS), round(bottom - top, DECIMALS))
    if cut != rounded and max(abs(edge - inside) for edge, inside in zip(rounded, cut, strict=True)) > _ROUNDING:
        return box, "box-clipped"
    return box, ""


FEWEST = 4
"""Boxes that it takes to tell corners from sizes."""

# In 8 data sets with right boxes, from 6 to 4,888 of them, at most a third of the boxes would fit as corners and none
# reaches so far outside; with their boxes written as corners all fit, and 56 % or more reach so far.
_FIT = 0.99
_FAR_OUTSIDE = 0.05  # of the image's side
_SHARE_FAR_OUTSIDE = 0.2


def look_like_corners(boxes: Floats, sizes: Ints) -> bool:
    """Return whether boxes are [x0, y0, x1, y1] rather than [x, y, width, height].

    boxes: (n, 4), of one file. sizes: (n, 2), (height, width) of their images, pixels.
    """
    if len(boxes) < FEWEST:
        return False
    first, second, sides = boxes[:, :2], boxes[:, 2:], sizes[:, ::-1]
    fits = ((first >= -1) & (second > first) & (second <= sides + 1)).all(axis=1)
    outside = (first + second > sides * (1 + _FAR_OUTSIDE) + 1).any(axis=1)
    return bool(fits.mean() >= _FIT and outside.mean() >= _SHARE_FAR_OUTSIDE)


def polygon_boxes(boxes: list[Any], segmentations: list[Any]) -> dict[int, list[float]]:
    """Return the box around the polygons of each row that has no bbox, by row."""
    found = {}
    for at, box in enumerate(boxes):
        if box in (None, []) and (points := _points(segmentations[at])) is not None:
            low, high = points.min(axis=0), points.max(axis=0)
            found[at] = [whole(round(value, 6)) for value in (*low.tolist(), *(high - low).tolist())]
    return found


def _points(polygons: Any) -> Floats | None:
    """Return (n, 2) the points of COCO's polygons, [[x, y, x, y, x, y, ...], ...]; None for anything else."""
    if not isinstance(polygons, list) or not polygons:
        return None
    if not all(isinstance(each, list) and len(each) >= 6 and len(each) % 2 == 0 for each in polygons):
        return None
    numbers = [value for each in polygons for value in each]
    if not set(map(type, numbers)) <= {int, float}:
        return None
    points = np.array(numbers, np.float64).reshape(-1, 2)
    return points if np.isfinite(points).all() else None


def rows_of(found: dict[int, list[float]], count: int) -> Mask:
    """Return (count,) whether a row is among those found."""
    mask: Mask = np.zeros(count, bool)
    mask[list(found)] = True
    return mask
