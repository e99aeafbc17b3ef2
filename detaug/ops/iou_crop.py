"""`RandomIoUCrop`: SSD's random crop, searched for a whole batch at once."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np

from detaug.boxes.views import Bools, Floats, Ints, Views, corners, pairs
from detaug.ops.arguments import Range, check, check_p, check_range, is_numbers
from detaug.ops.op import Arrays, GeometricOp

ROUNDS = 8
"""Thresholds that are tried for an image, at most."""
_NEVER = 2.0
"""An IoU that no window reaches."""


@dataclass(frozen=True)
class RandomIoUCrop(GeometricOp):
    """Crop a random window that overlaps some object enough, by SSD's rule (DALI: random_bbox_crop).

    One of `thresholds`, or "no crop" if `allow_no_crop`, is chosen. Up to `attempts` windows are drawn, of
    `scaling` times the sides and with an aspect ratio (width / height) in `aspect_ratio`; the first is taken that
    keeps a box whose IoU with the window reaches the threshold. If none does, another threshold is chosen, at
    most 8 times; then the image stays whole. Source: Liu et al. 2016, section 2.2, and torchvision's
    `RandomIoUCrop`, whose option 1.0 is "no crop"; like there, an image without boxes stays whole.

    With probability 1 - `p` nothing of this happens.

    A box stays if its centre is in the window, or, with `min_visibility`, if at least that fraction of its
    area is; what sticks out is cut off. So an image that has boxes keeps one.

    Windows take whole pixels of the source, as torchvision's do; a drawn one is made wider for that.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)] * 4, boxes=[[[20, 10, 60, 50]]] * 4)
    >>> after = da.RandomIoUCrop()(samples)
    >>> for image, boxes in zip(after.images, after.boxes):
    ...     print(image.shape[:2], boxes.round().tolist())
    (100, 200) [[20.0, 10.0, 60.0, 50.0]]
    (92, 129) [[0.0, 2.0, 39.0, 42.0]]
    (99, 194) [[15.0, 10.0, 55.0, 50.0]]
    (59, 116) [[4.0, 6.0, 44.0, 46.0]]
    """

    thresholds: tuple[float, ...] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
    scaling: Range = (0.3, 1.0)
    aspect_ratio: Range = (0.5, 2.0)
    attempts: int = 40
    min_visibility: float | None = None
    allow_no_crop: bool = True
    p: float = 1.0

    def __post_init__(self) -> None:
        ious = is_numbers(self.thresholds) and all(0 <= iou <= 1 for iou in self.thresholds)
        check("thresholds", self.thresholds, ious, "one or more IoUs in 0..1")
        check_range("scaling", self.scaling, 0, 1)
        check("scaling", self.scaling, self.scaling[0] > 0, "above 0")
        check_range("aspect_ratio", self.aspect_ratio, 0, float("inf"))
        check_p(self.p)
        check("attempts", self.attempts, self.attempts >= 1, "at least 1")
        visible = self.min_visibility is None or 0 < self.min_visibility <= 1
        check("min_visibility", self.min_visibility, visible, "None (the centre decides) or above 0 and at most 1")

    def draw_for(self, views: Views, rng: np.random.Generator) -> Arrays:
        window = self._search(views, rng)
        if self.p < 1:
            window[rng.random(len(views)) >= self.p] = (0, 0, 1, 1)
        return {"window": window}

    def move(self, views: Views, drawn: Arrays) -> Views:
        window = drawn["window"]
        keep = self._stays(views.boxes.transpose(2, 0, 1), window.T[..., None])
        return views.crop_to(window[:, :2], window[:, 2:]).clip(keep)

    def _search(self, views: Views, rng: np.random.Generator) -> Floats:
        """(N, 4) XYXY: the windows, the whole view where none was found or wanted.

        An image's attempts are one sequence, `attempts` for each of its thresholds in turn; some of the sequence is
        drawn at a time, for all images that have found nothing yet.
        """
        window = np.tile([0.0, 0.0, 1.0, 1.0], (len(views), 1))
        objects = _objects(views)
        iou = self._thresholds_in_turn(objects, rng)
        at, count, rows = 0, 4, np.flatnonzero(iou[:, 0] <= 1)
        while len(rows):
            count = min(count, ROUNDS * self.attempts - at)
            wanted = iou.take(rows, 0).take((at + np.arange(count)) // self.attempts, 1)
            found, windows = self._attempts(objects, rows, wanted, rng)
            window[objects.image[found]] = windows
            at, count = at + count, 2 * count
            iou[found] = _NEVER
            rows = rows[iou[rows, at // self.attempts] <= 1]
        return window

    def _thresholds_in_turn(self, objects: _Objects, rng: np.random.Generator) -> Floats:
        """(N, ROUNDS + 1): the IoU to reach in each round; from "no crop" on it is out of reach.

        Thresholds that no window can reach with any box are not worth their attempts: leaving them out changes no
        probability.
        """
        thresholds = np.sort(self.thresholds)
        reachable = np.searchsorted(thresholds, objects.best_iou(self.scaling), "right")
        options = reachable + self.allow_no_crop
        choice = (rng.random((ROUNDS, len(options))) * options).astype(np.int64)
        wanted = np.logical_and.accumulate(choice < reachable)
        iou = np.where(wanted, np.append(thresholds, _NEVER)[choice], _NEVER)
        return np.asarray(np.append(iou, np.full((1, len(options)), _NEVER), axis=0).T)

    def _attempts(self, objects: _Objects, rows: Ints, iou: Floats, rng: np.random.Generator) -> tuple[Ints, Floats]:
        """Which of `rows` find a window in these attempts, and their windows (n, 4). `iou`: (rows, attempts)."""
        low, high = self.scaling
        sides = low + (high - low) * rng.random((2, *iou.shape))
        may = np.flatnonzero(self._may_reach(objects, rows, sides, iou))
        row, iou, sides = rows.take(may // iou.shape[1]), iou.take(may), sides.reshape(2, -1).take(may, 1)
        start = rng.random(sides.shape) * (1 - sides)
        windows = objects.whole_pixels(row, start, start + sides)
        which, box = pairs(objects.first, row)  # `take` is several times faster than an index in brackets
        good = np.flatnonzero(self._reaches(objects.boxes.take(box, 1), windows.take(which, 1), iou.take(which)))
        first = which[good[::-1]]  # the last one written is an image's first
        chosen = np.full(len(objects.image), -1)
        chosen[row[first]] = first
        found = np.flatnonzero(chosen >= 0)
        return found, windows.take(chosen[found], 1).T

    def _may_reach(self, objects: _Objects, rows: Ints, sides: Floats, iou: Floats) -> Bools:
        """(rows, attempts): is the aspect ratio as wanted, and can a window of these sides reach the IoU at all?"""
        low, high = self.aspect_ratio
        width, height = sides
        ratio = width / height * objects.aspect_ratio.take(rows)[:, None]
        fits: Bools = (ratio >= low) & (ratio <= high)
        smallest, largest = objects.extremes.take(rows, 2)[..., None]
        for at, side in enumerate((width, height, width * height)):
            fits &= (side >= iou * smallest[at]) & (side * iou <= largest[at])
        return fits

    def _reaches(self, boxes: Floats, windows: Floats, iou: Floats) -> Bools:
        """(P,): does the window keep the box, and reach the IoU with it? Both are (4, P) XYXY."""
        overlap = _overlap(boxes, windows)
        reached: Bools = overlap * (1 + iou) >= iou * (_area(boxes) + _area(windows))
        return reached & self._stays(boxes, windows)

    def _stays(self, boxes: Floats, windows: Floats) -> Bools:
        """Does the box stay in the window? Both are (4, ...) XYXY."""
        if self.min_visibility is not None:
            return np.asarray(_overlap(boxes, windows) >= self.min_visibility * _area(boxes))
        (x0, y0, x1, y1), (left, top, right, bottom) = boxes, windows
        x, y = (x0 + x1) / 2, (y0 + y1) / 2
        return np.asarray((x > left) & (x < right) & (y > top) & (y < bottom))


@dataclass(frozen=True)
class _Objects:
    """The boxes of the images that have any, without padding: R images, B boxes."""

    image: Ints
    """(R,): which views they are."""
    aspect_ratio: Floats
    """(R,): width / height of the view, in pixels."""
    boxes: Floats
    """(4, B) XYXY, relative to the view."""
    first: Ints
    """(R + 1,): the boxes of row r are first[r]:first[r + 1]."""
    extremes: Floats
    """(2, 3, R): the smallest and the largest of the boxes' widths, heights and areas."""
    grid: Floats
    """(2, 2, R): the view's sides in pixels of the source, and where in a pixel they begin, for x, y."""

    def best_iou(self, scaling: Range) -> Floats:
        """(R,): no window with sides in `scaling` reaches more with any of the boxes."""
        low, high = scaling
        width, height = self.boxes[2:] - self.boxes[:2]
        with np.errstate(divide="ignore"):
            limits = (width / low, height / low, high / width, high / height, width * height / low**2)
        return _by_row(np.maximum, reduce(np.minimum, limits), self.first)

    def whole_pixels(self, rows: Ints, start: Floats, end: Floats) -> Floats:
        """(4, P) XYXY: the windows from start to end, (2, P), made wider to whole pixels of the source."""
        length, phase = self.grid.take(rows, 2)
        first, last = np.floor(start * length + phase + 1e-6), np.ceil(end * length + phase - 1e-6)
        return np.concatenate([(first - phase) / length, (last - phase) / length]).clip(0, 1)


def _objects(views: Views) -> _Objects:
    real = views.labels >= 0
    count = real.sum(1)
    boxes = views.boxes.transpose(2, 0, 1).reshape(4, -1).take(np.flatnonzero(real), 1)
    image = np.flatnonzero(count)
    first = np.append(0, np.cumsum(count[image]))
    width, height = boxes[2:] - boxes[:2]
    measures = np.stack([width, height, width * height])
    extremes = np.stack([_by_row(each, measures, first) for each in (np.minimum, np.maximum)])
    sides = views.size.take(image, 0)
    return _Objects(image, sides[:, 1] / sides[:, 0], boxes, first, extremes, _grid(views, image))


def _by_row(extreme: np.ufunc, values: Floats, first: Ints) -> Floats:
    """(..., R): the extreme of each row's boxes, of (..., B)."""
    return extreme.reduceat(values, first[:-1], axis=-1) if len(first) > 1 else values


def _grid(views: Views, image: Ints) -> Floats:
    if views.turned:  # pixels of the source lie aslant: as good as none
        return np.stack([np.full((2, len(image)), 1e6), np.zeros((2, len(image)))])
    begin, end = corners(views.matrix.take(image, 0)).transpose(1, 2, 0)
    return np.stack([np.abs(end - begin), begin * np.sign(end - begin)])


def _area(boxes: Floats) -> Floats:
    x0, y0, x1, y1 = boxes
    return np.asarray((x1 - x0) * (y1 - y0))


def _overlap(boxes: Floats, windows: Floats) -> Floats:
    """The areas that boxes and windows share, (4, ...) XYXY each."""
    (x0, y0, x1, y1), (left, top, right, bottom) = boxes, windows
    width = np.minimum(x1, right) - np.maximum(x0, left)
    height = np.minimum(y1, bottom) - np.maximum(y0, top)
    return np.asarray(np.maximum(width, 0.0) * np.maximum(height, 0.0))
