"""`RandomResizedCrop`: Inception's random crop, resized to one size."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Literal

import numpy as np

from detaug.arguments import Range, check, check_range
from detaug.arrays import Arrays, Bools, Floats
from detaug.boxes.views import Views
from detaug.ops.flips_and_crops import check_crop_size, crop_sizes
from detaug.ops.op import text_without_added
from detaug.ops.resize import Render

ATTEMPTS = 10


@dataclass(frozen=True)
class RandomResizedCrop(Render):
    """Crop a random part of the image and resize it, in one resample (torchvision's `RandomResizedCrop`).

    Inception's crop (Szegedy et al. 2015); DALI: random_resized_crop. Up to ten windows are tried, until one fits in
    the image, in whole pixels and at any position with equal chance. Otherwise the window is the largest one in the
    middle whose ratio is in `ratio`. It takes the place of `Resize` in a recipe. Boxes are clipped, and dropped if they
    are outside.

    Args:
        size: (H, W) of the output in pixels; one number for a square.
        scale: (smallest, largest) area of the window, as a fraction of the image's. An area above 1 never fits.
        ratio: (smallest, largest) width / height of the window, sampled evenly on a logarithmic scale.
        decode: See `Resize`.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)] * 3, boxes=[[[20, 10, 60, 50]]] * 3)
    >>> for boxes in da.RandomResizedCrop(100, scale=(0.5, 1.0))(samples).boxes:
    ...     print(boxes.round().tolist())
    [[2.0, 8.0, 39.0, 51.0]]
    [[0.0, 10.0, 12.0, 52.0]]
    []
    """

    size: int | tuple[int, int]
    scale: Range = (0.08, 1.0)
    ratio: Range = (3 / 4, 4 / 3)
    _: KW_ONLY
    decode: Literal["whole", "scaled"] = "whole"

    def __repr__(self) -> str:
        return text_without_added(self, "decode")

    def check_arguments(self) -> None:
        self.check_decode()
        check_crop_size(self.size)
        check_range("scale", self.scale, 0, float("inf"))
        check("scale", self.scale, self.scale[0] > 0, "above 0")
        check_range("ratio", self.ratio, 1e-6, 1e6)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        low, high = np.log(self.ratio)
        return {
            "area": rng.uniform(*self.scale, (n, ATTEMPTS)),
            "ratio": np.exp(rng.uniform(low, high, (n, ATTEMPTS))),
            "position": rng.random((n, 2)),
        }

    def adapt_draw(self, views: Views, drawn: Arrays) -> Arrays:
        """Return "window" (N, 4): XYXY relative to the view, in 0..1."""
        size = np.round(views.size).clip(1)
        shape, fits = _first_that_fits(size, drawn["area"] * size.prod(1, keepdims=True), drawn["ratio"])
        shape = np.where(fits[:, None], shape, self._largest(size))
        corner = np.where(fits[:, None], np.floor(drawn["position"] * (size - shape + 1)), (size - shape) // 2)
        return {"window": np.concatenate([corner / size, (corner + shape) / size], axis=1)[:, [1, 0, 3, 2]]}

    def output_size(self, views: Views, drawn: Arrays) -> Floats:
        return crop_sizes(self.size, views)

    def set_size(self, views: Views, drawn: Arrays) -> Views:
        start, end = np.hsplit(drawn["window"], 2)
        return super().set_size(views.crop_to(start, end).clip(), drawn)

    def _largest(self, size: Floats) -> Floats:
        """Return (N, 2) the height and width of the largest windows whose ratio is allowed."""
        height, width = size.T
        low, high = self.ratio
        largest = np.stack([np.minimum(height, np.round(width / low)), np.minimum(width, np.round(height * high))])
        return np.asarray(largest.T.clip(1))


def _first_that_fits(size: Floats, area: Floats, ratio: Floats) -> tuple[Floats, Bools]:
    """Return (N, 2) the first height and width that fit in `size` (N, 2), and (N,) whether any do.

    `area`, `ratio`: (N, ATTEMPTS), in pixels and width / height.
    """
    sides: Floats = np.asarray(np.sqrt(np.stack([area / ratio, area * ratio], axis=2)).round(), np.float64)
    fits: Bools = np.asarray(((sides > 0) & (sides <= size[:, None])).all(2))
    first = fits.argmax(1)[:, None, None]
    return np.take_along_axis(sides, first, 1)[:, 0], np.asarray(fits.any(1))
