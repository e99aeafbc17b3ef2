"""Flips, quarter turns, canvases and crops: ops that move the view along the axes of the image.

Each is a frozen dataclass: `draw` draws its random numbers for a batch, `move` returns the views after it; `Resize`
renders the pixels. `RandomZoomOut` is a short example to copy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from detaug.arguments import FILL, RGB, check, check_fill, check_p, is_number, is_numbers, is_whole, is_wholes
from detaug.arrays import Arrays, Floats
from detaug.boxes.views import Views
from detaug.ops.op import GeometricOp


@dataclass(frozen=True)
class _RandomFlip(GeometricOp):
    p: float = 0.5

    axis: ClassVar[int]
    size_after = "same"

    @property
    def flips(self) -> bool:  # type: ignore[override]
        return self.p > 0

    def check_arguments(self) -> None:
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"flip": rng.random(n) < self.p}

    def move(self, views: Views, drawn: Arrays) -> Views:
        start = np.zeros((len(views), 2))
        start[:, self.axis] = drawn["flip"]  # a flipped view goes from 1 to 0
        end = np.ones((len(views), 2))
        end[:, self.axis] -= drawn["flip"]
        return views.crop_to(start, end)


@dataclass(frozen=True)
class RandomHorizontalFlip(_RandomFlip):
    """Flip the image left to right (torchvision's `RandomHorizontalFlip`; DALI: flip, bb_flip).

    Args:
        p: Probability per image.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> print(da.RandomHorizontalFlip(p=1)(samples).boxes[0])
    [[140.  10. 180.  50.]]
    """

    axis = 0


@dataclass(frozen=True)
class RandomVerticalFlip(_RandomFlip):
    """Flip the image top to bottom (torchvision's `RandomVerticalFlip`; DALI: flip, bb_flip).

    Args:
        p: Probability per image.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> print(da.RandomVerticalFlip(p=1)(samples).boxes[0])
    [[20. 50. 60. 90.]]
    """

    axis = 1


@dataclass(frozen=True)
class RandomRotate90(GeometricOp):
    """Rotate by 90, 180 or 270 degrees, equally likely (Albumentations' `RandomRotate90`).

    Args:
        p: Probability per image of a rotation. Albumentations' op rotates by 0 degrees, too.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)] * 4, boxes=[[[20, 10, 60, 50]]] * 4)
    >>> for boxes in da.RandomRotate90(p=1)(samples).boxes:
    ...     print(boxes.round().tolist())
    [[10.0, 140.0, 50.0, 180.0]]
    [[50.0, 20.0, 90.0, 60.0]]
    [[140.0, 50.0, 180.0, 90.0]]
    [[50.0, 20.0, 90.0, 60.0]]
    """

    p: float = 0.5

    def check_arguments(self) -> None:
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"turns": np.where(rng.random(n) < self.p, rng.integers(1, 4, n), 0)}

    def move(self, views: Views, drawn: Arrays) -> Views:
        return views.quarter_turns(drawn["turns"])


# -------------------------------------------------------------------------------------------- canvases


@dataclass(frozen=True)
class RandomZoomOut(GeometricOp):
    """Put the image at a random position on a larger canvas (torchvision's `RandomZoomOut`).

    SSD's expansion (Liu et al. 2016); DALI: paste and bbox_paste. The canvas has the image's aspect ratio.

    Args:
        max_ratio: Largest width and height of the canvas, as a multiple of the image's.
        p: Probability per image.
        fill: RGB 0..255 of the canvas.
        min_ratio: Smallest width and height of the canvas.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> after = da.RandomZoomOut(max_ratio=2, p=1)(samples)
    >>> print(after.boxes[0].round(), after.images[0].shape)
    [[22. 10. 62. 50.]] (127, 254, 3)
    >>> print(da.Resize((100, 200))(after).boxes[0].round())  # as seen in 100 x 200 pixels
    [[18.  8. 49. 39.]]
    """

    max_ratio: float = 4.0
    p: float = 0.5
    fill: RGB = FILL
    min_ratio: float = 1.0

    def check_arguments(self) -> None:
        check("max_ratio", self.max_ratio, is_number(self.max_ratio, 1), "at least 1 (1 leaves the image as it is)")
        check("min_ratio", self.min_ratio, is_number(self.min_ratio, 1, self.max_ratio), "from 1 to max_ratio")
        check_p(self.p)
        check_fill("fill", self.fill)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        ratio = np.where(rng.random(n) < self.p, rng.uniform(self.min_ratio, self.max_ratio, n), 1)
        return {"ratio": ratio, "offset": rng.random((n, 2))}  # offset (x, y): 0 is left or top, 1 right or bottom

    def move(self, views: Views, drawn: Arrays) -> Views:
        ratio = drawn["ratio"][:, None]
        start = -drawn["offset"] * (ratio - 1)
        return views.fill_outside(self.fill).crop_to(start, start + ratio)


@dataclass(frozen=True)
class Pad(GeometricOp):
    """Add a border to the image (torchvision's `Pad`).

    Args:
        padding: Pixels: one number, (left and right, top and bottom), or (left, top, right, bottom).
        fill: RGB 0..255 of the border; torchvision's default is black.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> after = da.Pad((5, 10))(samples)
    >>> print(after.boxes[0].round(), after.images[0].shape)
    [[25. 20. 65. 60.]] (120, 210, 3)
    """

    padding: int | tuple[int, ...]
    fill: RGB = FILL

    def check_arguments(self) -> None:
        check(
            "padding", self.padding, is_wholes(self._sides, 4, low=0), "one, two or four whole numbers of pixels from 0"
        )
        check_fill("fill", self.fill)

    @property
    def _sides(self) -> tuple[int, ...]:
        padding = self.padding if isinstance(self.padding, tuple) else (self.padding,)
        return padding * (4 // len(padding)) if len(padding) in (1, 2, 4) else padding

    def move(self, views: Views, drawn: Arrays) -> Views:
        before, after = np.array(self._sides, np.float64).reshape(2, 2)
        size = views.size[:, ::-1]
        return views.fill_outside(self.fill).crop_to(-before / size, 1 + after / size)


@dataclass(frozen=True)
class PadToMultiple(GeometricOp):
    """Add a border at the right and the bottom until height and width are multiples of a number of pixels.

    Albumentations' `PadIfNeeded(pad_height_divisor=...)`; DALI: pad(align=...).

    Args:
        multiple: The number of pixels.
        fill: RGB 0..255 of the border.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> after = da.PadToMultiple(64)(samples)
    >>> print(after.boxes[0].round(), after.images[0].shape)
    [[20. 10. 60. 50.]] (128, 256, 3)
    """

    multiple: int
    fill: RGB = FILL

    def check_arguments(self) -> None:
        check("multiple", self.multiple, is_whole(self.multiple, 1), "a whole number from 1")
        check_fill("fill", self.fill)

    def move(self, views: Views, drawn: Arrays) -> Views:
        wanted = np.ceil(views.size / self.multiple - 1e-9) * self.multiple
        return views.fill_outside(self.fill).crop_to(np.zeros((len(views), 2)), (wanted / views.size)[:, ::-1])


# ------------------------------------------------------------------------------------------------ crops


@dataclass(frozen=True)
class CenterCrop(GeometricOp):
    """Crop the middle of the image (torchvision's `CenterCrop`; DALI: crop).

    Boxes are clipped, and dropped if they are outside. After `Resize(256)` it crops the resized image; both together
    are one resample.

    Args:
        size: (H, W) of the crop in pixels; one number for a square.
        fill: RGB 0..255 around an image that is smaller.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> after = da.CenterCrop(120)(samples)  # 40 from the left, which cuts the box; 10 of fill above and below
    >>> print(after.boxes[0].round(), after.images[0].shape)
    [[ 0. 20. 20. 60.]] (120, 120, 3)
    """

    size: int | tuple[int, int]
    fill: RGB = FILL

    size_after = "fixed"

    def check_arguments(self) -> None:
        check_crop_size(self.size)
        check_fill("fill", self.fill)

    def move(self, views: Views, drawn: Arrays) -> Views:
        return _crop(views, crop_sizes(self.size, views), np.full((len(views), 2), 0.5), self.fill)


@dataclass(frozen=True)
class RandomCrop(GeometricOp):
    """Crop at a random position (torchvision's `RandomCrop` with `pad_if_needed=True`).

    Boxes are clipped, and dropped if they are outside. With p=1 it may come after `Resize(256)`, and crops the resized
    image.

    Args:
        size: (H, W) of the crop in pixels; one number for a square.
        p: Probability per image.
        fill: RGB 0..255 around an image that is smaller, which lies at a random position in the crop.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> after = da.RandomCrop((60, 120))(samples)
    >>> print(after.boxes[0].round(), after.images[0].shape)
    [[ 0.  8. 38. 48.]] (60, 120, 3)
    """

    size: int | tuple[int, int]
    p: float = 1.0
    fill: RGB = FILL

    def check_arguments(self) -> None:
        check_crop_size(self.size)
        check_p(self.p)
        check_fill("fill", self.fill)

    @property
    def size_after(self) -> Literal["fixed", "any"]:  # type: ignore[override]
        """Return "fixed" where each image is cropped."""
        return "fixed" if self.p == 1 else "any"

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"crop": rng.random(n) < self.p, "offset": rng.random((n, 2))}

    def move(self, views: Views, drawn: Arrays) -> Views:
        size = np.where(drawn["crop"][:, None], crop_sizes(self.size, views), views.size)
        return _crop(views, size, drawn["offset"], self.fill)


@dataclass(frozen=True)
class RandomBoxSafeCrop(GeometricOp):
    """Crop a random window that contains all boxes (Albumentations' `BBoxSafeRandomCrop` without erosion).

    Each side of the window lies anywhere between the image's border and the outermost box. An image without boxes is
    not cropped.

    Args:
        p: Probability per image.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> after = da.RandomBoxSafeCrop()(samples)
    >>> print(after.boxes[0].round(), after.images[0].shape)
    [[15. 10. 55. 50.]] (59, 192, 3)
    """

    p: float = 1.0

    def check_arguments(self) -> None:
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"crop": rng.random(n) < self.p, "start": rng.random((n, 2)), "end": rng.random((n, 2))}

    def adapt_draw(self, views: Views, drawn: Arrays) -> Arrays:
        """Return "window" (N, 4): XYXY relative to the view, in 0..1."""
        real = (views.labels >= 0)[..., None]
        start = np.where(real, views.boxes[..., :2], 1).min(1, initial=1).clip(0, 1)
        end = np.where(real, views.boxes[..., 2:], 0).max(1, initial=0).clip(0, 1)
        crop = drawn["crop"][:, None] & real.any(1)
        start, end = np.where(crop, start * drawn["start"], 0), np.where(crop, 1 - (1 - end) * drawn["end"], 1)
        return {"window": np.concatenate([start, end], axis=1)}

    def move(self, views: Views, drawn: Arrays) -> Views:
        return views.crop_to(drawn["window"][:, :2], drawn["window"][:, 2:]).clip()


@dataclass(frozen=True)
class RandomSizeCrop(GeometricOp):
    """DETR's crop (Carion et al. 2020): a window of a random size, in pixels of the image resized to a shorter side.

    DETR resizes an image to one of three sizes, crops it with `RandomSizeCrop(384, 600)`, and resizes the window. Here
    these are one resample: put `Resize` after it. Boxes are clipped, and dropped if they are outside.

    Args:
        min_size: The smallest side of the window, in pixels of the resized image; of a smaller image all is kept.
        max_size: The largest side.
        shortest_size: The shorter sides that an image is resized to, one of them sampled per image. None: the image as
            it is.
        square: Whether the window is a square, as that of RF-DETR 1.11.2 (`RandomSizedCrop` of its
            datasets/_torchvision.py) and of Albumentations' `RandomSizedCrop`. Otherwise both sides are sampled.
        p: Probability per image.

    >>> samples = da.batch([np.zeros((400, 600, 3), np.uint8)], boxes=[[[200, 40, 360, 200]]])
    >>> after = da.RandomSizeCrop(384, 600, square=True)(samples)
    >>> print(after.boxes[0].round(), after.images[0].shape)
    [[  6.  30. 166. 190.]] (388, 388, 3)
    """

    min_size: int = 384
    max_size: int = 600
    shortest_size: tuple[int, ...] | None = (400, 500, 600)
    square: bool = False
    p: float = 1.0

    def check_arguments(self) -> None:
        check("min_size", self.min_size, is_whole(self.min_size, 1), "a whole number of pixels from 1")
        check("max_size", self.max_size, is_whole(self.max_size, self.min_size), f"at least min_size ({self.min_size})")
        shortest = self.shortest_size is None or is_wholes(self.shortest_size, low=1)
        check("shortest_size", self.shortest_size, shortest, "None, or one or more shorter sides in whole pixels")
        check("square", self.square, isinstance(self.square, bool), "True or False")
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        choices = len(self.shortest_size or (0,))
        applied, size = rng.random(n) < self.p, rng.random((n, 2))
        return {
            "applied": applied,
            "shortest": rng.integers(choices, size=n),
            "size": size,
            "offset": rng.random((n, 2)),
        }

    def move(self, views: Views, drawn: Arrays) -> Views:
        resized = views.size
        if self.shortest_size is not None:
            shortest = np.array(self.shortest_size, np.float64)[drawn["shortest"]]
            resized = resized * (shortest / resized.min(1))[:, None]
        resized = np.round(resized).clip(1)  # a crop before this one leaves parts of pixels; a window is whole pixels
        size = drawn["size"]
        largest = resized.clip(max=self.max_size)
        if self.square:
            size, largest = size[:, :1], largest.min(1, keepdims=True)
        smallest = largest.clip(max=self.min_size)
        window = np.floor(smallest + size * (largest - smallest + 1))
        start = np.floor(drawn["offset"] * (resized - window + 1)) / resized
        applied = drawn["applied"][:, None]
        start, end = np.where(applied, start, 0), np.where(applied, start + window / resized, 1)
        return views.crop_to(start[:, ::-1], end[:, ::-1]).clip()


@dataclass(frozen=True)
class ScaleJitter(GeometricOp):
    """Large-scale jitter (Ghiasi et al. 2021): scale the image, then crop it or pad it, at a random position.

    It is `ScaleJitter(target_size, scale_range)` and `FixedSizeCrop(target_size)` of torchvision's references in one;
    torchvision pads only at the right and the bottom. Put `Resize(size)` after it.

    Args:
        size: (H, W) of the result in pixels. The image is scaled to fit in it, times a factor.
        scale: (smallest, largest) factor.
        fill: RGB 0..255 of the padding.
        p: Probability per image.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)] * 4, boxes=[[[20, 10, 60, 50]]] * 4)
    >>> after = samples.then(da.ScaleJitter((100, 200), scale=(0.5, 2.0)), da.Resize((100, 200)))
    >>> for boxes in after.boxes:  # the second box is out of view
    ...     print(boxes.round().tolist())
    [[0.0, 0.0, 24.0, 19.0]]
    []
    [[0.0, 13.0, 14.0, 69.0]]
    [[0.0, 5.0, 10.0, 69.0]]
    """

    size: tuple[int, int]
    scale: tuple[float, float] = (0.1, 2.0)
    fill: RGB = FILL
    p: float = 1.0

    def check_arguments(self) -> None:
        check("size", self.size, is_wholes(self.size, 2, low=1), "(height, width) in whole pixels")
        positive = is_numbers(self.scale, 2) and 0 < self.scale[0] <= self.scale[1]
        check("scale", self.scale, positive, "(smallest, largest) above 0")
        check_fill("fill", self.fill)
        check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        applied = rng.random(n) < self.p
        return {"applied": applied, "scale": rng.uniform(*self.scale, n), "offset": rng.random((n, 2))}

    def move(self, views: Views, drawn: Arrays) -> Views:
        size = np.array(self.size, np.float64)
        fit = (size / views.size).min(1) * drawn["scale"]
        window_size = np.where(drawn["applied"][:, None], size / fit[:, None], views.size)
        window = _crop(views, window_size, drawn["offset"], self.fill)
        return window.at_size(np.where(drawn["applied"][:, None], size, views.size))


def crop_sizes(size: int | tuple[int, int], views: Views) -> Floats:
    """Return (N, 2) (height, width) from one number or from (height, width)."""
    return np.tile(np.array(size, np.float64), (len(views), 2 if isinstance(size, int) else 1))


def _crop(views: Views, size: Floats, offset: Floats, fill: RGB) -> Views:
    """Crop windows of `size` (N, 2) (height, width); `offset` (N, 2) (x, y): 0 is left or top, 1 right or bottom."""
    length = (size / views.size)[:, ::-1]
    room = (views.size - size).round(6)  # half a pixel is exactly that, and rounded to even, as torchvision does
    start = np.round(offset * room[:, ::-1]) / views.size[:, ::-1]
    return views.fill_outside(fill).crop_to(start, start + length).clip()


def check_crop_size(size: int | tuple[int, int]) -> None:
    right = is_whole(size, 1) or is_wholes(size, 2, low=1)
    check("size", size, right, "(height, width) or one number for both, in whole pixels")
