"""`SanitizeBoundingBoxes` drops boxes by size, shape and visibility."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from detaug.arguments import check, check_share, is_number
from detaug.arrays import Arrays
from detaug.boxes.views import BoxLimits, Views
from detaug.ops.op import PixelOp


@dataclass(frozen=True)
class SanitizeBoundingBoxes(PixelOp):
    """Drop boxes, with their labels, that are too small, too thin or show too little of their object. Pixels stay.

    Other ops already leave valid boxes only; this one is for stricter rules. It comes after `Resize` and counts output
    pixels. Boxes of `tight=True`, which are made at the end, must be large enough then, too, unless ops that combine
    images or cover parts of them come after it.

    Args:
        min_size: Smallest width and height in pixels (torchvision's `SanitizeBoundingBoxes`).
        min_area: Smallest area in square pixels.
        min_visibility: Smallest fraction of the object's area that crops and covers left (Albumentations'
            `BboxParams(min_visibility=...)`).
        max_aspect_ratio: Largest ratio of the longer side to the shorter one (Albumentations; Ultralytics'
            `ar_thr=100`).
        min_mask_area: Of a source with masks: pixels of the mask that must be visible at the end of the recipe, by
            default 1, as without this op; 0 keeps empty masks.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], [[[20, 10, 60, 50], [0, 0, 3, 40]]], labels=[[1, 2]])
    >>> print(samples.then(da.Resize((100, 200)), da.SanitizeBoundingBoxes(min_size=5)).labels)
    [array([1])]
    """

    any_bands: ClassVar[bool] = True

    min_size: float = 1.0
    min_area: float = 1.0
    min_visibility: float = 0.0
    max_aspect_ratio: float = float("inf")
    min_mask_area: float = 1.0

    def check_arguments(self) -> None:
        for name in ("min_size", "min_area", "min_mask_area"):
            value = getattr(self, name)
            check(name, value, is_number(value, 0), "a number from 0")
        check_share("min_visibility", self.min_visibility)
        right = is_number(self.max_aspect_ratio, 1) or self.max_aspect_ratio == float("inf")
        check("max_aspect_ratio", self.max_aspect_ratio, right, "a number of at least 1, longer / shorter side")

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        limits = BoxLimits(self.min_size, self.min_area, self.max_aspect_ratio)
        visible = views.visible >= self.min_visibility - 1e-9
        kept = views.keep(np.asarray(limits.allow(views.pixel_boxes()) & visible))
        return replace(kept, min_mask_area=self.min_mask_area, limits=views.limits.together_with(limits)), {}
