"""Cut boxes at the edges of their image; make boxes of shapes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.coco.outlines import box_of_runs, read_runs
from detaug.coco.table import THIN
from detaug.coco.writer import Box, whole

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

# In 8 datasets with right boxes, from 6 to 4,888 of them, at most a third of the boxes would fit as corners and none
# reaches so far outside; with their boxes written as corners all fit, and 56 % or more reach so far.
_FIT = 0.99
_FAR_OUTSIDE = 0.05  # of the image's side
_SHARE_FAR_OUTSIDE = 0.2
_BOXES_AT_ONCE = 4096


def look_like_corners(boxes: Floats, sizes: Ints) -> bool:
    """Return whether boxes are [x0, y0, x1, y1] rather than [x, y, width, height].

    boxes: (n, 4), of one file. sizes: (n, 2), (height, width) of their images, pixels.
    """
    fit, outside = _fit_as_corners(boxes, sizes)
    return _are_corners(len(boxes), int(fit.sum()), int(outside.sum()))


def _are_corners(boxes: int, fit: int, outside: int) -> bool:
    """Judge by how many boxes there are, fit as corners, and reach far outside as sizes."""
    return boxes >= FEWEST and fit / boxes >= _FIT and outside / boxes >= _SHARE_FAR_OUTSIDE


def _fit_as_corners(boxes: Floats, sizes: Ints | Floats) -> tuple[Bools, Bools]:
    """Return (n,) whether boxes fit their images as corners, and whether they reach far outside as sizes."""
    first, second, sides = boxes[:, :2], boxes[:, 2:], sizes[:, ::-1]
    fit = (first >= -1) & (second > first) & (second <= sides + 1)
    outside = first + second > sides * (1 + _FAR_OUTSIDE) + 1
    return np.asarray(fit.all(axis=1)), np.asarray(outside.any(axis=1))


SMALLEST_SIDE = 16
"""Pixels of an image: in a smaller one, real boxes are in 0..1 too."""


def look_relative(objects: Iterable[Sequence[float]]) -> bool:
    """Return whether numbers are relative to the images, 0..1, and no pixels: all of them are, and some are fractions.

    objects: x and y of each, in images of at least SMALLEST_SIDE. Of pixels the first number tells, so this is quick.
    """
    numbers = _Relative()
    return all(map(numbers.add, objects)) and numbers.is_certain()


@dataclass
class _Relative:
    """Counts numbers that are relative to the images."""

    fractions: int = 0
    count: int = 0

    def add(self, numbers: Sequence[float]) -> bool:
        """Add the numbers of an object; return whether all of them are in 0..1."""
        self.fractions += any(number % 1 for number in numbers)
        self.count += len(numbers)
        return all(0 <= number <= 1 + 1e-6 for number in numbers)

    def is_certain(self) -> bool:
        """Return whether there are enough numbers, and fractions among them, which pixels of 0 and 1 are not."""
        return self.fractions > 0 and self.count >= 4


@dataclass
class BoxNumbers:
    """What the boxes of a conversion look like before they are cut, which hides it: the rules of `detaug check`."""

    boxes: int = 0
    fit: int = 0
    outside: int = 0
    """As `look_like_corners` counts them."""
    are_pixels: bool = False
    """Whether a number is not relative: see `look_relative`."""
    relative: _Relative = field(default_factory=_Relative)
    waiting: list[tuple[float, ...]] = field(default_factory=list)
    """Boxes and sizes that are not counted yet: many at once are quicker."""

    def add(self, boxes: Sequence[Sequence[float]], shapes: Iterable[Sequence[float]], size: tuple[int, int]) -> None:
        """Add the objects of an image of size (H, W): boxes XYXY in pixels, and x and y of shapes beside them."""
        self.waiting += ((*box, *size) for box in boxes)
        if len(self.waiting) >= _BOXES_AT_ONCE:
            self.count()
        if not self.are_pixels and min(size) >= SMALLEST_SIDE:
            self.are_pixels = not all(map(self.relative.add, (*boxes, *shapes)))

    def count(self) -> None:
        """Count the boxes that wait."""
        numbers = np.array(self.waiting, np.float64).reshape(-1, 6)
        numbers[:, 2:4] -= numbers[:, :2]
        fit, outside = _fit_as_corners(numbers[:, :4], numbers[:, 4:])
        self.boxes, self.fit = self.boxes + len(numbers), self.fit + int(fit.sum())
        self.outside += int(outside.sum())
        self.waiting.clear()

    def fault(self) -> str:
        """Return what is wrong with the numbers of all boxes, and a remedy; "" where nothing is."""
        self.count()
        if _are_corners(self.boxes, self.fit, self.outside):
            return (
                f"of {self.boxes:,} boxes {self.fit:,} fit their images as corners, and {self.outside:,} reach far "
                "past them as x, y, width, height, which this format has; write widths and heights"
            )
        if not self.are_pixels and self.relative.is_certain():
            return (
                "all coordinates are in 0..1, relative to their images, and this format has pixels; multiply x by the "
                "image's width and y by its height"
            )
        return ""


def joined_numbers(parts: Iterable[BoxNumbers]) -> BoxNumbers:
    """Return what all parts of a conversion have counted."""
    joined = BoxNumbers()
    for part in parts:
        part.count()
        joined.boxes += part.boxes
        joined.fit += part.fit
        joined.outside += part.outside
        joined.are_pixels |= part.are_pixels
        joined.relative.fractions += part.relative.fractions
        joined.relative.count += part.relative.count
    return joined


def box_of_shape(row: Mapping[str, Any], size: tuple[int, int]) -> list[float] | None:
    """Return COCO's box around the polygon, the mask, the corners or the keypoints of an annotation without a bbox.

    That of corners and keypoints is cut at the edges of the image, of size (H, W): a rotated box may reach outside.
    None for no shape, a wrong one, or one without an area.
    """
    around = _outline_points(row.get("segmentation"), size)
    limits = np.tile(size[::-1], (2, 1)) if around is None else np.full((2, 2), np.inf)
    corners, points = row.get("corners"), row.get("keypoints")
    if around is None and isinstance(corners, list) and len(corners) == 4:
        around = _points(corners, 2)
    if around is None and isinstance(points, list) and points and len(points) % 3 == 0:
        around = _points([points[start : start + 2] for start in range(0, len(points), 3) if points[start + 2]], 2)
        around = None if around is None else around + 0.5  # COCO counts pixels from 0 at their centers
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
    """Return (n, 2) the points of lists [[x, y, ...], ...] of at least this many numbers; None for anything else."""
    if not isinstance(lists, list) or not lists:
        return None
    if not all(
        isinstance(coordinates, list) and len(coordinates) >= least and len(coordinates) % 2 == 0
        for coordinates in lists
    ):
        return None
    numbers = [value for coordinates in lists for value in coordinates]
    if not set(map(type, numbers)) <= {int, float}:
        return None
    points = np.array(numbers, np.float64).reshape(-1, 2)
    return points if np.isfinite(points).all() else None


def rows_of(boxes: dict[int, list[float]], count: int) -> Bools:
    """Return (count,) whether a row is among those found."""
    mask: Bools = np.zeros(count, bool)
    mask[list(boxes)] = True
    return mask


def box_iou(first: Floats, second: Floats) -> Floats:
    """Return (n,) the IoU of (n, 4) and (n, 4) XYXY boxes; 0 where neither has an area."""
    sides = np.minimum(first[:, 2:], second[:, 2:]) - np.maximum(first[:, :2], second[:, :2])
    overlap = sides.clip(0).prod(axis=1)
    areas = [(boxes[:, 2:] - boxes[:, :2]).clip(0).prod(axis=1) for boxes in (first, second)]
    union = areas[0] + areas[1] - overlap
    return np.asarray(np.divide(overlap, union, out=np.zeros_like(overlap), where=union > 0))
