"""`RandomIoUCrop`: SSD's random crop, searched for many images at once.

SSD tries windows one by one, until one has the drawn IoU with some box: up to 8 x 40 an image, which in Python would
take longer than decoding. Here rounds of attempts are drawn for all images that have found no window yet: first 4, then
8, 16 and so on, since most images succeed early. Three things keep a round cheap, and change no probability:

- Thresholds that no window can reach with any box of an image are not tried (`_Objects.best_iou`).
- Windows whose sides rule the IoU out are dropped before they get a position (`_can_reach`).
- Boxes are not padded: `pairs` lists each window with each box of its image, and one pass tests all pairs.

Arrays have their short axis (the four coordinates) first: NumPy loops over the last axis.

A generator's numbers depend on who drew before. `pairs_of_numbers` depends on a seed and a counter only, so an image
gets the same numbers beside any other images.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from detaug.arguments import Range, check, check_p, check_range, is_number, is_numbers, is_whole
from detaug.arrays import Bools, Floats, Ints, pairs
from detaug.boxes.views import Views, corners
from detaug.ops.op import Arrays, GeometricOp

Seeds: TypeAlias = NDArray[np.uint64]

ROUNDS = 8
"""The largest number of thresholds that are tried for an image."""
_NEVER = 2.0
"""An IoU that no window reaches."""
NARROW = 1.5
"""Largest / smallest aspect ratio up to which the ratio is drawn, since two sides drawn apart seldom have it."""

_STEP = np.uint64(0x9E3779B97F4A7C15)
_MIX = [(np.uint64(30), np.uint64(0xBF58476D1CE4E5B9)), (np.uint64(27), np.uint64(0x94D049BB133111EB))]
_LAST_SHIFT = np.uint64(31)
_HALF, _SIGN_AND_EXPONENT = np.uint64(32), np.uint64(12)
_ONE = np.float64(1).view(np.uint64)


@dataclass(frozen=True)
class RandomIoUCrop(GeometricOp):
    """Crop a random window that overlaps some object enough, by SSD's rule, with probability `p`.

    One of `thresholds`, or "no crop" if `allow_no_crop`, is chosen. Up to `attempts` windows are drawn, with sides of
    `scaling` times the image's and an aspect ratio (width / height) in `aspect_ratio`. The first one is taken that
    keeps a box whose IoU with the window reaches the threshold. If none does, another threshold is chosen, at most 8
    times; then the image is not cropped. Source: Liu et al. 2016, section 2.2, and torchvision's `RandomIoUCrop`, whose
    option 1.0 is "no crop"; as there, an image without boxes is not cropped. DALI: random_bbox_crop. Within a narrow
    range, up to 1.5 times its smallest, the aspect ratio itself is drawn, then a size that fits `scaling`.

    A box stays if its centre is in the window, or, with `min_visibility`, if at least that fraction of its area is. It
    is clipped. So an image with boxes keeps at least one.

    Windows are widened to whole pixels of the source, as torchvision's are.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)] * 4, boxes=[[[20, 10, 60, 50]]] * 4)
    >>> after = da.RandomIoUCrop()(samples)
    >>> for image, boxes in zip(after.images, after.boxes):
    ...     print(image.shape[:2], boxes.round().tolist())
    (97, 88) [[0.0, 8.0, 27.0, 48.0]]
    (73, 122) [[1.0, 4.0, 41.0, 44.0]]
    (77, 81) [[0.0, 7.0, 31.0, 47.0]]
    (80, 137) [[8.0, 0.0, 48.0, 38.0]]
    """

    thresholds: tuple[float, ...] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
    scaling: Range = (0.3, 1.0)
    aspect_ratio: Range = (0.5, 2.0)
    attempts: int = 40
    min_visibility: float | None = None
    allow_no_crop: bool = True
    p: float = 1.0

    def check_arguments(self) -> None:
        ious = is_numbers(self.thresholds) and all(0 <= iou <= 1 for iou in self.thresholds)
        check("thresholds", self.thresholds, ious, "one or more IoUs in 0..1")
        check_range("scaling", self.scaling, 0, 1)
        check("scaling", self.scaling, self.scaling[0] > 0, "above 0")
        check_range("aspect_ratio", self.aspect_ratio, 0, float("inf"))
        check(
            "aspect_ratio", self.aspect_ratio, self.aspect_ratio[1] > 0, "(smallest, largest) width / height, above 0"
        )
        check_p(self.p)
        check("attempts", self.attempts, is_whole(self.attempts, 1), "a whole number of at least 1")
        visible = self.min_visibility is None or (is_number(self.min_visibility, 0, 1) and self.min_visibility > 0)
        check("min_visibility", self.min_visibility, visible, "None (the centre decides) or above 0 and at most 1")

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"crop": rng.random(n) < self.p, "seed": rng.integers(1 << 64, size=n, dtype=np.uint64)}

    def adapt_draw(self, views: Views, drawn: Arrays) -> Arrays:
        """Return "window" (N, 4): XYXY relative to the view, in 0..1."""
        window = self._search(views, drawn["seed"])
        window[~drawn["crop"]] = (0, 0, 1, 1)
        return {"window": window}

    def move(self, views: Views, drawn: Arrays) -> Views:
        window = drawn["window"]
        keep = self._stays(views.boxes.transpose(2, 0, 1), window.T[..., None])
        return views.crop_to(window[:, :2], window[:, 2:]).clip(keep)

    def _search(self, views: Views, seeds: Seeds) -> Floats:
        """Return the windows (N, 4) XYXY; the whole view where none was found or "no crop" was drawn.

        An image's attempts are one sequence, `attempts` for each of its thresholds. A part of the sequence is tried at
        a time, for all images that have found no window yet. `seeds` (N,): an image's numbers depend on its own only.
        """
        window = np.tile([0.0, 0.0, 1.0, 1.0], (len(views), 1))
        objects = _objects(views)
        seeds = seeds[objects.image]
        iou = self._draw_thresholds(objects, seeds)
        attempt, count, rows = 0, 4, np.flatnonzero(iou[:, 0] <= 1)
        while len(rows):
            count = min(count, ROUNDS * self.attempts - attempt)
            wanted = iou.take(rows, 0).take((attempt + np.arange(count)) // self.attempts, 1)
            found, windows = self._try_windows(objects, rows, wanted, seeds.take(rows), attempt)
            window[objects.image[found]] = windows
            attempt, count = attempt + count, 2 * count
            iou[found] = _NEVER
            rows = rows[iou[rows, attempt // self.attempts] <= 1]
        return window

    def _draw_thresholds(self, objects: _Objects, seeds: Seeds) -> Floats:
        """Draw (R, ROUNDS + 1): the IoU to reach in each round, out of reach from "no crop" on.

        Only thresholds are drawn that some window can reach: attempts at others would find nothing.
        """
        thresholds = np.sort(self.thresholds)
        reachable = np.searchsorted(thresholds, objects.best_iou(self.scaling), "right")
        options = reachable + self.allow_no_crop
        numbers = pairs_of_numbers(seeds, np.arange(ROUNDS // 2)[:, None]).reshape(ROUNDS, -1)
        choice = (numbers * options).astype(np.int64)
        wanted = np.logical_and.accumulate(choice < reachable)
        iou = np.where(wanted, np.append(thresholds, _NEVER)[choice], _NEVER)
        return np.asarray(np.append(iou, np.full((1, len(options)), _NEVER), axis=0).T)

    def _try_windows(
        self, objects: _Objects, rows: Ints, iou: Floats, seeds: Seeds, attempt: int
    ) -> tuple[Ints, Floats]:
        """Try windows for `rows`, from an attempt on, as many as `iou` (rows, attempts) has columns.

        Returns the rows that found one, and for each the first window (n, 4) that reaches its `iou`.
        """
        counters = ROUNDS + 2 * (attempt + np.arange(iou.shape[1]))
        sides = self._draw_sides(pairs_of_numbers(seeds[:, None], counters), objects.aspect_ratio.take(rows)[:, None])
        possible = np.flatnonzero(self._can_reach(objects, rows, sides, iou))
        at, column = np.divmod(possible, iou.shape[1])
        row, iou = rows.take(at), iou.take(possible)
        sides = sides.reshape(2, -1).take(possible, 1)
        start = pairs_of_numbers(seeds.take(at), counters.take(column) + 1) * (1 - sides)
        windows = objects.whole_pixels(row, start, start + sides)
        which, box = pairs(objects.first, row)  # `take` is several times faster than indexing
        good = np.flatnonzero(self._reaches(objects.boxes.take(box, 1), windows.take(which, 1), iou.take(which)))
        first = which[good[::-1]]  # in reverse order, so that the last one written is a row's first
        chosen = np.full(len(objects.image), -1)
        chosen[row[first]] = first
        found = np.flatnonzero(chosen >= 0)
        return found, windows.take(chosen[found], 1).T

    def _draw_sides(self, numbers: Floats, aspect_ratio: Floats) -> Floats:
        """Return (2, rows, attempts) widths and heights, relative to views with these aspect ratios, (rows, 1).

        `numbers`: (2, rows, attempts) in [0, 1). NaN where no window of the ratio drawn fits `scaling`.
        """
        low, high = self.scaling
        narrowest, widest = self.aspect_ratio
        if widest > NARROW * narrowest:
            return np.asarray(low + (high - low) * numbers)
        slope = narrowest * (widest / narrowest) ** numbers[1] / aspect_ratio  # width / height, both relative
        least, most = np.maximum(low, low * slope), np.minimum(high, high * slope)
        width = np.where(least <= most, least + (most - least) * numbers[0], np.nan)
        return np.stack([width, width / slope])

    def _can_reach(self, objects: _Objects, rows: Ints, sides: Floats, iou: Floats) -> Bools:
        """Return (rows, attempts): whether the aspect ratio is allowed, and a window of these sides can reach the IoU.

        The IoU of a box and a window is at most the ratio of their widths, heights or areas, the smaller to the larger.
        """
        low, high = self.aspect_ratio[0] * (1 - 1e-9), self.aspect_ratio[1] * (1 + 1e-9)
        width, height = sides
        ratio = width / height * objects.aspect_ratio.take(rows)[:, None]
        fits: Bools = (ratio >= low) & (ratio <= high)
        smallest, largest = objects.extremes.take(rows, 2)[..., None]
        for at, side in enumerate((width, height, width * height)):
            fits &= (side >= iou * smallest[at]) & (side * iou <= largest[at])
        return fits

    def _reaches(self, boxes: Floats, windows: Floats, iou: Floats) -> Bools:
        """Return (P,): whether the window keeps the box and reaches the IoU with it. Both are (4, P) XYXY."""
        overlap = _overlap(boxes, windows)
        reached: Bools = overlap * (1 + iou) >= iou * (_area(boxes) + _area(windows))
        return reached & self._stays(boxes, windows)

    def _stays(self, boxes: Floats, windows: Floats) -> Bools:
        """Return whether the box stays, by its centre or `min_visibility`. Boxes and windows are (4, ...) XYXY."""
        if self.min_visibility is not None:
            return np.asarray(_overlap(boxes, windows) >= self.min_visibility * _area(boxes))
        (x0, y0, x1, y1), (left, top, right, bottom) = boxes, windows
        x, y = (x0 + x1) / 2, (y0 + y1) / 2
        return np.asarray((x > left) & (x < right) & (y > top) & (y < bottom))


@dataclass(frozen=True)
class _Objects:
    """The boxes of the images that have any, without padding: R rows, one an image, and B boxes."""

    image: Ints
    """(R,): the index of the view of each row."""
    aspect_ratio: Floats
    """(R,): width / height of the view, in pixels."""
    boxes: Floats
    """(4, B) XYXY, relative to the view."""
    first: Ints
    """(R + 1,): the boxes of row r are first[r]:first[r + 1]."""
    extremes: Floats
    """(2, 3, R): the smallest and the largest of the boxes' widths, heights and areas."""
    grid: Floats
    """(2, 2, R): for x, y the view's side in source pixels, and its first pixel coordinate."""

    def best_iou(self, scaling: Range) -> Floats:
        """Return (R,): an upper bound of the IoU of windows with sides in `scaling` with any box of the row."""
        low, high = scaling
        width, height = self.boxes[2:] - self.boxes[:2]
        with np.errstate(divide="ignore"):
            limits = (width / low, height / low, high / width, high / height, width * height / low**2)
        return _by_row(np.maximum, reduce(np.minimum, limits), self.first)

    def whole_pixels(self, rows: Ints, start: Floats, end: Floats) -> Floats:
        """Return the windows start..end, (2, P) each, as (4, P) XYXY, widened to whole pixels of the source."""
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
    """Return (..., R): the minimum or maximum over each row's boxes, from (..., B)."""
    return extreme.reduceat(values, first[:-1], axis=-1) if len(first) > 1 else values


def _grid(views: Views, image: Ints) -> Floats:
    """Return `_Objects.grid`; for turned views, whose pixels are not parallel to the window, one too fine to matter."""
    if views.turned:
        return np.stack([np.full((2, len(image)), 1e6), np.zeros((2, len(image)))])
    begin, end = corners(views.matrix.take(image, 0)).transpose(1, 2, 0)
    return np.stack([np.abs(end - begin), begin * np.sign(end - begin)])


def _area(boxes: Floats) -> Floats:
    x0, y0, x1, y1 = boxes
    return np.asarray((x1 - x0) * (y1 - y0))


def _overlap(boxes: Floats, windows: Floats) -> Floats:
    """Return the areas of the intersections of boxes and windows, (4, ...) XYXY each."""
    (x0, y0, x1, y1), (left, top, right, bottom) = boxes, windows
    width = np.minimum(x1, right) - np.maximum(x0, left)
    height = np.minimum(y1, bottom) - np.maximum(y0, top)
    return np.asarray(np.maximum(width, 0.0) * np.maximum(height, 0.0))


def pairs_of_numbers(seeds: Seeds, counters: Ints) -> Floats:
    """Return (2, ...): two numbers in [0, 1) for each seed and counter, which broadcast to the shape "...".

    The two are the halves of one output of SplitMix64 (Steele et al. 2014, Fast Splittable Pseudorandom Number
    Generators), whose state goes up by a constant for each counter.
    """
    bits = seeds + counters.astype(np.uint64) * _STEP
    shifted = np.empty_like(bits)
    for shift, factor in _MIX:
        bits ^= np.right_shift(bits, shift, out=shifted)
        bits *= factor
    bits ^= np.right_shift(bits, _LAST_SHIFT, out=shifted)
    numbers = np.empty((2, *bits.shape))
    mantissas = numbers.view(np.uint64)  # of numbers in 1..2: faster than a conversion
    np.right_shift(bits, _SIGN_AND_EXPONENT, out=mantissas[0])
    np.right_shift(np.left_shift(bits, _HALF, out=bits), _SIGN_AND_EXPONENT, out=mantissas[1])
    mantissas |= _ONE
    numbers -= 1
    return numbers
