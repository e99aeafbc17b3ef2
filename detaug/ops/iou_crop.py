"""`RandomIoUCrop`: SSD's random crop, searched for many images at once.

SSD tries windows one by one, until one has the drawn IoU with some box: up to 8 x 40 an image. Two things keep an
attempt cheap, and change no probability: thresholds that no window can reach with any box of an image are not drawn,
and windows whose sides rule the IoU out are dropped before they get a position.

A generator's numbers depend on who drew before. Those of the search depend on the image's seed and a counter only, so
an image gets the same numbers beside any other images.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from detaug.arguments import Range, check, check_p, check_range, is_number, is_numbers, is_whole
from detaug.arrays import Arrays, Floats, in_order
from detaug.boxes.views import Views, corners
from detaug.ops import iou_loops
from detaug.ops.op import GeometricOp

NARROW = 1.5
"""Largest / smallest aspect ratio up to which the ratio is drawn, since two sides drawn apart seldom have it."""


@dataclass(frozen=True)
class RandomIoUCrop(GeometricOp):
    """Crop a random window that overlaps some object enough, by SSD's rule (torchvision's `RandomIoUCrop`).

    One of `thresholds`, or "no crop", is chosen. The first window is taken that keeps a box whose IoU with the window
    reaches the threshold. Without one, another threshold is chosen, at most 8 times; then the image is not cropped.
    Source: Liu et al. 2016, section 2.2, and torchvision, whose option 1.0 is "no crop"; as there, an image without
    boxes is not cropped. DALI: random_bbox_crop.

    Boxes are clipped. An image with boxes keeps at least one. Windows are widened to whole pixels of the source, as
    torchvision's are.

    Args:
        thresholds: The IoUs to choose from.
        scaling: (smallest, largest) side of the window, as fractions of the image's.
        aspect_ratio: (smallest, largest) width / height of the window. Within a narrow range, up to 1.5 times its
            smallest, the aspect ratio itself is sampled, then a size that fits `scaling`.
        attempts: Windows per threshold, at most.
        min_visibility: A box stays if at least this fraction of its area is in the window; None: if its center is.
        allow_no_crop: Whether "no crop" is among the choices.
        p: Probability per image.

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
        check("min_visibility", self.min_visibility, visible, "None (the center decides) or above 0 and at most 1")

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"crop": rng.random(n) < self.p, "seed": rng.integers(1 << 64, size=n, dtype=np.uint64)}

    def adapt_draw(self, views: Views, drawn: Arrays) -> Arrays:
        """Return "window" (N, 4): XYXY relative to the view, in 0..1; the whole view where there is no crop."""
        window = np.tile([0.0, 0.0, 1.0, 1.0], (len(views), 1))
        narrow = self.aspect_ratio[1] <= NARROW * self.aspect_ratio[0]
        iou_loops.search(
            *in_order(views.boxes, views.labels, drawn["seed"], views.size[:, 1] / views.size[:, 0], _grid(views)),
            (*map(float, (*self.scaling, self.scaling[0] ** 2, *self.aspect_ratio)), narrow, self._visibility),
            np.sort(np.array(self.thresholds, np.float64)),
            self.attempts,
            self.allow_no_crop,
            window,
        )
        window[~drawn["crop"]] = (0, 0, 1, 1)
        return {"window": window}

    def move(self, views: Views, drawn: Arrays) -> Views:
        window = drawn["window"]
        keep = iou_loops.stay(*in_order(views.boxes, views.labels, window), self._visibility)
        return views.crop_to(window[:, :2], window[:, 2:]).clip(keep)

    @property
    def _visibility(self) -> float:
        """Return the fraction by which boxes stay, or -1."""
        return -1.0 if self.min_visibility is None else float(self.min_visibility)


def _grid(views: Views) -> Floats:
    """Return (N, 2, 2): for x, y the view's side in source pixels, and its first pixel coordinate.

    For rotated views, whose pixels are not parallel to the window, one too fine to matter.
    """
    if views.turned:
        return np.tile([1e6, 0.0], (len(views), 2, 1))
    begin, end = corners(views.matrix).transpose(1, 0, 2)
    return np.stack([np.abs(end - begin), begin * np.sign(end - begin)], axis=2)
