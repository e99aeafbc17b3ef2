"""Cut boxes at the edges of their image; make boxes of shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from detaug.converters.coco.outlines import box_of_runs, read_runs
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


SMALLEST_SIDE = 16
"""Pixels of an image: in a smaller one, real boxes are in 0..1 too."""


def look_relative(objects: Iterable[Sequence[float]]) -> bool:
    """Return whether numbers are relative to the images, 0..1, and no pixels: all of them are, and some are fractions.

    objects: x and y of each, in images of at least SMALLEST_SIDE. Of pixels the first number tells, so this is quick.
    """
    fractions = count = 0
    for numbers in objects:
        if not all(0 <= number <= 1 + 1e-6 for number in numbers):
            return False
        fractions += any(number % 1 for number in numbers)
        count += len(numbers)
    return fractions > 0 and count >= 4


def box_of_shape(row: Mapping[str, Any], size: tuple[int, int]) -> list[float] | None:
    """Return COCO's box around the outline, the mask, the corners or the keypoints of an annotation without a bbox.

    That of corners and keypoints is cut at the edges of the image, of size (H, W): a rotated box may reach outside.
    None for no shape, a wrong one, or one without an area.
    """
    around = _outline_points(row.get("segmentation"), size)
    limits = np.tile(size[::-1], (2, 1)) if around is None else np.full((2, 2), np.inf)
    corners, points = row.get("corners"), row.get("keypoints")
    if around is None and isinstance(corners, list) and len(corners) == 4:
        around = _points(corners, 2)
    if around is None and isinstance(points, list) and points and len(points) % 3 == 0:
        around = _points([points[at : at + 2] for at in range(0, len(points), 3) if points[at + 2]], 2)
        around = None if around is None else around + 0.5  # COCO counts pixels from 0 at their centres
    if around is None:
        return None
    low, high = np.stack([around.min(axis=0), around.max(axis=0)]).clip(np.where(np.isinf(limits), -np.inf, 0), limits)
    box = [whole(round(value, 6)) for value in (*low.tolist(), *(high - low).tolist())]
    return box if min(box[2:]) >= THIN else None


def _outline_points(segmentation: Any, size: tuple[int, int]) -> Floats | None:
    """Return (n, 2) the points of polygons, or two corners of the box around the pixels of a mask."""
    if not isinstance(segmentation, dict):
        return _points(segmentation, 6)
    ends, fault = read_runs(segmentation, *size)
    edges = None if fault else box_of_runs(ends, size[0])
    return None if edges is None else np.array(edges, np.float64).reshape(2, 2)


def _points(lists: Any, least: int) -> Floats | None:
    """Return (n, 2) the points of lists [[x, y, ...], ...] of at least so many numbers; None for anything else."""
    if not isinstance(lists, list) or not lists:
        return None
    if not all(isinstance(each, list) and len(each) >= least and len(each) % 2 == 0 for each in lists):
        return None
    numbers = [value for each in lists for value in each]
    if not set(map(type, numbers)) <= {int, float}:
        return None
    points = np.array(numbers, np.float64).reshape(-1, 2)
    return points if np.isfinite(points).all() else None


def rows_of(found: dict[int, list[float]], count: int) -> Mask:
    """Return (count,) whether a row is among those found."""
    mask: Mask = np.zeros(count, bool)
    mask[list(found)] = True
    return mask
