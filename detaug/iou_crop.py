"""`RandomIoUCrop`: SSD's random crop, searched for a whole batch at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from detaug.arguments import Range, check, check_range, is_numbers
from detaug.recipe import Arrays, GeometricOp
from detaug.views import Bools, Floats, Ints, Views


@dataclass(frozen=True)
class RandomIoUCrop(GeometricOp):
    """Crop a random window that overlaps some object enough, by SSD's rule (DALI: random_bbox_crop).

    One of `thresholds`, or "no crop" if `allow_no_crop`, is chosen. Up to `attempts` windows are drawn, of
    `scaling` times the sides and with an aspect ratio (width / height) in `aspect_ratio`; the first is taken that
    keeps a box whose IoU with the window reaches the threshold. If none does, another threshold is chosen, at
    most 8 times; then the image stays whole. Source: Liu et al. 2016, section 2.2, and torchvision's
    `RandomIoUCrop`, whose option 1.0 is "no crop"; like there, an image without boxes stays whole.

    A box stays if its centre is in the window, or, with `min_visibility`, if at least that fraction of its
    area is; what sticks out is cut off. So an image that has boxes keeps one.
    """

    thresholds: tuple[float, ...] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
    scaling: Range = (0.3, 1.0)
    aspect_ratio: Range = (0.5, 2.0)
    attempts: int = 40
    min_visibility: float | None = None
    allow_no_crop: bool = True

    def __post_init__(self) -> None:
        ious = is_numbers(self.thresholds) and all(0 <= iou <= 1 for iou in self.thresholds)
        check("thresholds", self.thresholds, ious, "one or more IoUs in 0..1")
        check_range("scaling", self.scaling, 0, 1)
        check("scaling", self.scaling, self.scaling[0] > 0, "above 0")
        check_range("aspect_ratio", self.aspect_ratio, 0, float("inf"))
        check("attempts", self.attempts, self.attempts >= 1, "at least 1")
        visible = self.min_visibility is None or 0 < self.min_visibility <= 1
        check("min_visibility", self.min_visibility, visible, "None (the centre decides) or above 0 and at most 1")

    def draw_for(self, views: Views, rng: np.random.Generator) -> Arrays:
        return {"window": self._search(views, rng)}

    def move(self, views: Views, drawn: Arrays) -> Views:
        window = drawn["window"]
        keep = self._stays(views.boxes, window[:, None])[:, 0]
        return views.look(window[:, :2], window[:, 2:]).clip(keep)

    def _search(self, views: Views, rng: np.random.Generator) -> Floats:
        """(N, 4) XYXY: the windows, the whole view where none was found or wanted."""
        window = np.tile([0.0, 0.0, 1.0, 1.0], (len(views), 1))
        options = self._options(views)
        rows = np.flatnonzero((views.labels >= 0).any(1))
        for _ in range(8):
            option = np.where(options[rows], rng.random((len(rows), options.shape[1])), -1).argmax(1)
            crop = option < len(self.thresholds)
            rows = self._try(views, window, rows[crop], np.array(self.thresholds)[option[crop]], rng)
            if not len(rows):
                break
        return window

    def _options(self, views: Views) -> Bools:
        """(N, thresholds, and "no crop" if allowed): can a window of these sides reach the IoU with any box?

        Those that cannot are not worth their attempts; leaving them out changes no probability.
        """
        low, high = self.scaling
        sides = views.boxes[..., 2:] - views.boxes[..., :2]
        with np.errstate(divide="ignore"):
            limits = np.concatenate([sides / low, high / sides, sides.prod(2, keepdims=True) / low**2], 2)
        most = np.where(views.labels >= 0, limits.min(2), 0).max(1, initial=0)
        reachable = most[:, None] >= np.array(self.thresholds)
        return np.concatenate([reachable, np.ones((len(views), int(self.allow_no_crop)), bool)], 1)

    def _try(self, views: Views, window: Floats, rows: Ints, iou: Floats, rng: np.random.Generator) -> Ints:
        """Write a window for each of `rows` that one is found for; return the others."""
        left = self.attempts
        while left and len(rows):
            count = min(left, 2 + 1500 // len(rows))  # few windows for many images, many for the few hard ones
            tried, left = self._windows(views.size[rows], count, rng), left - count
            good = self._shaped(tried, views.size[rows])
            good &= self._good(views.boxes[rows], views.labels[rows] >= 0, tried, iou)
            found = good.any(1)
            window[rows[found]] = tried[found, good[found].argmax(1)]
            rows, iou = rows[~found], iou[~found]
        return rows

    def _windows(self, size: Floats, count: int, rng: np.random.Generator) -> Floats:
        """(N, count, 4) XYXY, relative: sides in `scaling`, anywhere inside."""
        sides = rng.uniform(*self.scaling, (len(size), count, 2))
        start = rng.random(sides.shape) * (1 - sides)
        return np.concatenate([start, start + sides], axis=2)

    def _shaped(self, windows: Floats, size: Floats) -> Bools:
        """(N, T): is the aspect ratio in pixels as wanted?"""
        width, height = ((windows[..., 2:] - windows[..., :2]) * size[:, None, ::-1]).transpose(2, 0, 1)
        low, high = self.aspect_ratio
        shaped: Bools = (width >= low * height) & (width <= high * height)
        return shaped

    def _good(self, boxes: Floats, real: Bools, windows: Floats, iou: Floats) -> Bools:
        """(N, T): does the window keep a box whose IoU with it reaches `iou`?"""
        overlap, box_area = _overlap(boxes, windows), _area(boxes)[:, None]
        reached = overlap >= iou[:, None, None] * (box_area + _area(windows)[..., None] - overlap)
        return np.asarray((reached & self._stays(boxes, windows) & real[:, None]).any(2))

    def _stays(self, boxes: Floats, windows: Floats) -> Bools:
        """(N, T, M): does box m stay in window t?"""
        if self.min_visibility is not None:
            return np.asarray(_overlap(boxes, windows) >= self.min_visibility * _area(boxes)[:, None])
        (x0, y0, x1, y1), (left, top, right, bottom) = _apart(boxes, windows)
        x, y = (x0 + x1) / 2, (y0 + y1) / 2
        return np.asarray((x >= left) & (x <= right) & (y >= top) & (y <= bottom))


def _area(boxes: Floats) -> Floats:
    area: Floats = (boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1])
    return area


def _overlap(boxes: Floats, windows: Floats) -> Floats:
    """(N, T, M) areas from (N, M, 4) boxes and (N, T, 4) windows."""
    (x0, y0, x1, y1), (left, top, right, bottom) = _apart(boxes, windows)
    width = np.minimum(x1, right) - np.maximum(x0, left)
    height = np.minimum(y1, bottom) - np.maximum(y0, top)
    area: Floats = np.maximum(width, 0.0) * np.maximum(height, 0.0)
    return area


def _apart(boxes: Floats, windows: Floats) -> tuple[Floats, Floats]:
    """The four coordinates of boxes as (4, N, 1, M) and of windows as (4, N, T, 1): they broadcast to (N, T, M)."""
    return boxes.transpose(2, 0, 1)[:, :, None], windows.transpose(2, 0, 1)[..., None]
