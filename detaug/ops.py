"""The ops: bbox-aware augmentation, boxes in NumPy and pixels on DALI.

An op is a frozen dataclass. `draw` returns its random numbers for a batch; a geometric op's `move` looks at the
images in another way, a pixel op's `paint` changes pixels. `RandomZoomOut` is a short one to learn from.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math

from detaug import color
from detaug.recipe import Arrays, GeometricOp, Node, Nodes, Op, PixelOp
from detaug.views import Bools, Floats, Ints, Views, corners

Range = tuple[float, float]


# -------------------------------------------------------------------------------------------- geometry


@dataclass(frozen=True)
class _RandomFlip(GeometricOp):
    p: float = 0.5

    axis: ClassVar[int]

    def __post_init__(self) -> None:
        _check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"flip": rng.random(n) < self.p}

    def move(self, views: Views, drawn: Arrays) -> Views:
        start = np.zeros((len(views), 2))
        start[:, self.axis] = drawn["flip"]  # a mirrored view goes from 1 to 0
        end = np.ones((len(views), 2))
        end[:, self.axis] -= drawn["flip"]
        return views.look(start, end)


class RandomHorizontalFlip(_RandomFlip):
    """Mirror left and right with probability `p` (DALI: flip, bb_flip)."""

    axis = 0


class RandomVerticalFlip(_RandomFlip):
    """Mirror top and bottom with probability `p` (DALI: flip, bb_flip)."""

    axis = 1


@dataclass(frozen=True)
class RandomZoomOut(GeometricOp):
    """Put the image at a random place of a canvas up to `max_ratio` times as wide and high, with probability `p`.

    SSD's expansion (Liu et al. 2016), torchvision's `RandomZoomOut`, DALI's paste and bbox_paste. The canvas
    keeps the image's aspect ratio; `fill` is its colour, RGB 0..255.
    """

    max_ratio: float = 4.0
    p: float = 0.5
    fill: tuple[float, float, float] = (123.0, 117.0, 104.0)

    def __post_init__(self) -> None:
        large = 1 <= self.max_ratio < float("inf")
        _check("max_ratio", self.max_ratio, large, "at least 1 (1 leaves the image as it is)")
        _check_p(self.p)
        in_range = _is_numbers(self.fill, 3) and all(0 <= value <= 255 for value in self.fill)
        _check("fill", self.fill, in_range, "three numbers in 0..255: red, green, blue")

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        ratio = np.where(rng.random(n) < self.p, rng.uniform(1, self.max_ratio, n), 1)
        return {"ratio": ratio, "place": rng.random((n, 2))}  # place 0: at the left or top, 1: at the right or bottom

    def move(self, views: Views, drawn: Arrays) -> Views:
        ratio = drawn["ratio"][:, None]
        start = -drawn["place"] * (ratio - 1)
        return replace(views.look(start, start + ratio), shown=np.sort(views.seen(), axis=1), fill=self.fill)


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
        ious = _is_numbers(self.thresholds) and all(0 <= iou <= 1 for iou in self.thresholds)
        _check("thresholds", self.thresholds, ious, "one or more IoUs in 0..1")
        _check_range("scaling", self.scaling, 0, 1)
        _check("scaling", self.scaling, self.scaling[0] > 0, "above 0")
        _check_range("aspect_ratio", self.aspect_ratio, 0, float("inf"))
        _check("attempts", self.attempts, self.attempts >= 1, "at least 1")
        visible = self.min_visibility is None or 0 < self.min_visibility <= 1
        _check("min_visibility", self.min_visibility, visible, "None (the centre decides) or above 0 and at most 1")

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"seed": rng.integers(2**32, size=(n, 2))}  # the first is that of the search: its length is the boxes'

    def move(self, views: Views, drawn: Arrays) -> Views:
        window = self._search(views, np.random.default_rng(drawn["seed"][0]))
        keep = self._stays(views.boxes, window[:, None])[:, 0] & (views.labels >= 0)
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


@dataclass(frozen=True)
class Resize(Op):
    """Render the view: one antialiased linear resample to the output's size.

    `size`: (H, W) pixels, the view is stretched to it; or one number, the shorter side, at most `max_size` for
    the longer one, aspect ratio kept (torchvision's `Resize(size, max_size)`).

    Where the view reaches beyond the image, the image takes a whole number of output pixels; boxes and matrix
    follow that rounding, so they stay exact.
    """

    size: int | tuple[int, int]
    max_size: int | None = None

    stage = "render"

    def __post_init__(self) -> None:
        pair = isinstance(self.size, tuple | list) and len(self.size) == 2
        sides: tuple[Any, ...] = tuple(self.size) if isinstance(self.size, tuple | list) and pair else (self.size,)
        whole = all(type(side) is int and side >= 1 for side in sides)
        _check("size", self.size, whole, "(height, width), or one number for the shorter side, in whole pixels")
        if self.max_size is not None:
            _check("max_size", self.max_size, not pair, "left out when size is (height, width)")
            _check("max_size", self.max_size, self.max_size >= min(sides), f"at least size ({self.size})")

    @property
    def uniform(self) -> bool:  # type: ignore[override]
        """Do all images of a batch have one size after it?"""
        return not isinstance(self.size, int)

    def output_size(self, views: Views) -> Floats:
        """(N, 2): (height, width) in whole pixels."""
        if not isinstance(self.size, int):
            return np.tile(np.array(self.size, np.float64), (len(views), 1))
        short = np.full(len(views), float(self.size))
        long = np.floor(self.size * views.size.max(1) / views.size.min(1) + 1e-6)  # torchvision rounds down, twice
        if self.max_size is not None:
            short = np.where(long > self.max_size, np.floor(self.max_size * short / long + 1e-6), short).clip(1)
            long = long.clip(max=self.max_size)
        upright = (views.size[:, 0] > views.size[:, 1])[:, None]
        return np.where(upright, np.stack([long, short], axis=1), np.stack([short, long], axis=1))

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        size = self.output_size(views)
        if views.fill is None:
            seen, place = corners(views.matrix), [size]
        else:
            seen = views.seen()
            views, part, offset = _laid_out(views, seen, size)
            place = [part, -offset[:, ::-1], size]
        after = replace(views, size=size, fill=None).clip(views.in_view())
        return after, {"place": np.stack([seen[:, 0, ::-1], seen[:, 1, ::-1], *place], axis=1)}

    def paint(self, image: Node, planned: Nodes, views: Views) -> Node:
        place = planned["place"]  # one input of (y, x) pairs: feeding DALI costs more than taking it apart there
        image = fn.resize(image, roi_start=place[0], roi_end=place[1], size=place[2])
        if views.fill is None:
            return image
        anchor, shape = (fn.cast(place[row], dtype=types.INT32) for row in (3, 4))
        fill = list(views.fill)
        return fn.slice(image, anchor, shape, axes=[0, 1], out_of_bounds_policy="pad", fill_values=fill)


def _laid_out(views: Views, seen: Floats, size: Floats) -> tuple[Views, Floats, Floats]:
    """Where the `seen` part of the source goes in an output of `size`, in whole pixels.

    Returns the views moved to fit, (N, 2) the part's (height, width), and (N, 2) its offset (x, y).
    """
    size_xy = size[:, ::-1]
    begin, end = np.swapaxes(corners(views.matrix), 0, 1)
    start, stop = np.swapaxes((seen - begin[:, None]) / (end - begin)[:, None], 0, 1)  # relative to the view
    length = np.round((stop - start) * size_xy).clip(1)
    offset = np.minimum(np.round(start * size_xy), size_xy - length)
    nothing = (stop - start <= 1e-9).any(1, keepdims=True)  # the view shows no part of the image at all
    step = np.where(nothing, 1, stop - start) / length
    first = np.where(nothing, 0, start - step * offset)
    last = np.where(nothing, 1, first + step * size_xy)
    return views.look(first, last), length[:, ::-1], np.where(nothing, size_xy, offset)


# ---------------------------------------------------------------------------------------------- pixels


@dataclass(frozen=True)
class RandomPhotometricDistort(PixelOp):
    """SSD's colour distortion: brightness, contrast, saturation and hue, each with probability `p`.

    With `permute`, the order of the channels as well. Torchvision's ranges and order (contrast before saturation
    and hue, or after them, by a coin). Three things differ: contrast turns about 128, not about the image's mean
    gray; hue turns in YIQ, which keeps the luma, not in HSV; and all five are one linear map, clipped to 0..255
    once at its end and not rounded: the image becomes float32. `hue` is in turns, as in torchvision: 0.05 is 18
    degrees.
    """

    brightness: Range = (0.875, 1.125)
    contrast: Range = (0.5, 1.5)
    saturation: Range = (0.5, 1.5)
    hue: Range = (-0.05, 0.05)
    p: float = 0.5
    permute: bool = True

    def __post_init__(self) -> None:
        for name in ("brightness", "contrast", "saturation"):
            _check_range(name, getattr(self, name), 0, float("inf"))
        _check_range("hue", self.hue, -0.5, 0.5)
        _check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        def factor(bounds: Range, neutral: float) -> Floats:
            return np.where(rng.random(n) < self.p, rng.uniform(*bounds, n), neutral)

        contrast = color.contrast(factor(self.contrast, 1))
        early = (rng.random(n) < 0.5)[:, None, None]
        permute = rng.random((n, 1)) < self.p * self.permute
        order = np.where(permute, rng.permuted(np.tile(np.arange(3), (n, 1)), axis=1), np.arange(3))
        steps = [
            color.brightness(factor(self.brightness, 1)),
            np.where(early, contrast, color.IDENTITY),
            color.saturation(factor(self.saturation, 1)),
            color.hue(factor(self.hue, 0)),
            np.where(early, color.IDENTITY, contrast),
            color.permutation(order),
        ]
        return {"color": color.chain(*steps)}

    def paint(self, image: Node, planned: Nodes, views: Views) -> Node:
        image = fn.coord_transform(image, MT=planned["color"])
        return dali_math.max(dali_math.min(image, 255.0), 0.0)  # ten times as fast as DALI's clamp, on the CPU


@dataclass(frozen=True)
class Normalize(PixelOp):
    """(image / 255 - mean) / std as float32, channels first: the last op of a recipe.

    `mean`, `std`: three numbers each, of images in 0..1, as torchvision's. The defaults give images in 0..1,
    which is what torchvision's detectors want: they normalise inside.
    """

    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)

    stage = "output"

    def __post_init__(self) -> None:
        _check("mean", self.mean, _is_numbers(self.mean, 3), "three numbers: red, green, blue, of images in 0..1")
        positive = _is_numbers(self.std, 3) and all(value > 0 for value in self.std)
        _check("std", self.std, positive, "three numbers above 0: red, green, blue, of images in 0..1")

    def paint(self, image: Node, planned: Nodes, views: Views) -> Node:
        mean, std = ([value * 255 for value in values] for values in (self.mean, self.std))
        return fn.crop_mirror_normalize(image, mean=mean, std=std, dtype=types.FLOAT, output_layout="CHW")


# ---------------------------------------------------------------------------------------------- checks


def _check(name: str, value: Any, holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {rule}, got {value!r}")


def _is_numbers(value: Any, count: int | None = None) -> bool:
    """Is it a tuple or list of `count` finite numbers, or of one or more?"""
    if not isinstance(value, tuple | list) or not value or count not in (None, len(value)):
        return False
    return all(isinstance(each, int | float) and np.isfinite(each) for each in value)


def _check_p(p: float) -> None:
    _check("p", p, 0 <= p <= 1, "a probability in 0..1")


def _check_range(name: str, bounds: Range, low: float, high: float) -> None:
    in_order = _is_numbers(bounds, 2) and low <= bounds[0] <= bounds[1] <= high
    _check(name, bounds, in_order, f"(smallest, largest) within {low}..{high}")
