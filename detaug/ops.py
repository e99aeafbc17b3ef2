"""The ops: bbox-aware augmentation on DALI.

An op is a frozen dataclass, `Sample -> Sample`. `draw` returns its random numbers for a batch, `apply` uses them
for pixels and boxes alike. A new op needs nothing else; `RandomHorizontalFlip` is the shortest one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math

from detaug import color
from detaug.geometry import compose, render, shown, view_matrix
from detaug.sample import Drawn, Node, Sample

S = TypeVar("S")
Range = tuple[float, float]


class Op:
    """What ops share: called on a sample an op draws, then applies; called on `da.batch(...)` it runs at once."""

    def draw(self, rng: np.random.Generator, n: int) -> Drawn:
        """The random numbers for a batch of n, by name: arrays whose first axis is n."""
        return {}

    def apply(self, sample: Sample, drawn: Mapping[str, Node]) -> Sample:
        """The op itself. `drawn`: a DALI node for every name that `draw` returns."""
        raise NotImplementedError(f"{type(self).__name__} must define apply(sample, drawn)")

    def __call__(self, sample: S) -> S:
        if isinstance(sample, Sample):
            return self.apply(sample, sample.random.nodes(self.draw))  # type: ignore[return-value]
        return sample.then(self)  # type: ignore[attr-defined,no-any-return]


# -------------------------------------------------------------------------------------------- geometry


@dataclass(frozen=True)
class RandomHorizontalFlip(Op):
    """Mirror left and right with probability `p` (DALI: flip, bb_flip)."""

    p: float = 0.5

    def __post_init__(self) -> None:
        _check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Drawn:
        return _draw_flip(rng.random(n) < self.p, axis=0)

    def apply(self, sample: Sample, drawn: Mapping[str, Node]) -> Sample:
        boxes = fn.bb_flip(sample.boxes, ltrb=True, horizontal=drawn["flip"], vertical=0)
        return _before_resize(self, sample)._replace(boxes=boxes, matrix=compose(sample.matrix, drawn["view"]))


@dataclass(frozen=True)
class RandomVerticalFlip(Op):
    """Mirror top and bottom with probability `p` (DALI: flip, bb_flip)."""

    p: float = 0.5

    def __post_init__(self) -> None:
        _check_p(self.p)

    def draw(self, rng: np.random.Generator, n: int) -> Drawn:
        return _draw_flip(rng.random(n) < self.p, axis=1)

    def apply(self, sample: Sample, drawn: Mapping[str, Node]) -> Sample:
        boxes = fn.bb_flip(sample.boxes, ltrb=True, horizontal=0, vertical=drawn["flip"])
        return _before_resize(self, sample)._replace(boxes=boxes, matrix=compose(sample.matrix, drawn["view"]))


def _draw_flip(flip: NDArray[np.bool_], axis: int) -> Drawn:
    start, end = np.zeros((len(flip), 2)), np.ones((len(flip), 2))
    start[flip, axis], end[flip, axis] = 1, 0
    return {"flip": flip, "view": view_matrix(start, end)}


@dataclass(frozen=True)
class RandomZoomOut(Op):
    """Put the image at a random place of a canvas up to `max_ratio` times as wide and high, with probability `p`.

    SSD's expansion (Liu et al. 2016), torchvision's `RandomZoomOut`, DALI's paste and bbox_paste. The canvas
    keeps the image's aspect ratio; `fill` is its colour, RGB 0..255.
    """

    max_ratio: float = 4.0
    p: float = 0.5
    fill: tuple[float, float, float] = (123.0, 117.0, 104.0)

    def __post_init__(self) -> None:
        _check("max_ratio", self.max_ratio, self.max_ratio >= 1, "at least 1 (1 leaves the image as it is)")
        _check_p(self.p)
        in_range = len(self.fill) == 3 and all(0 <= value <= 255 for value in self.fill)
        _check("fill", self.fill, in_range, "three numbers in 0..255: red, green, blue")

    def draw(self, rng: np.random.Generator, n: int) -> Drawn:
        ratio = np.where(rng.random((n, 1)) < self.p, rng.uniform(1, self.max_ratio, (n, 1)), 1)
        place = rng.random((n, 2))  # 0: at the left or top of the canvas, 1: at its right or bottom
        start = -place * (ratio - 1)
        view = view_matrix(start, start + ratio)
        return {"ratio": ratio[:, 0], "x": place[:, 0], "y": place[:, 1], "view": view}

    def apply(self, sample: Sample, drawn: Mapping[str, Node]) -> Sample:
        ratio = drawn["ratio"]
        boxes = fn.bbox_paste(sample.boxes, ltrb=True, ratio=ratio, paste_x=drawn["x"], paste_y=drawn["y"])
        matrix = compose(sample.matrix, drawn["view"])
        return _before_resize(self, sample)._replace(
            boxes=boxes, matrix=matrix, size=sample.size * ratio, fill=self.fill, shown=shown(sample)
        )


@dataclass(frozen=True)
class RandomIoUCrop(Op):
    """Crop a random window that overlaps some object enough, by SSD's rule (DALI: random_bbox_crop).

    One of `thresholds`, or "no crop" if `allow_no_crop`, is chosen; windows of `scaling` times the sides, with
    an aspect ratio (width / height) in `aspect_ratio`, are drawn until at least one box has that IoU with the
    window; after `attempts` of them another threshold is chosen, at most 8 times. Source: Liu et al. 2016,
    section 2.2 and the authors' sampler; torchvision's `RandomIoUCrop` (1.0 among its options is "no crop").

    A box stays if its centre is in the window, or, with `min_visibility`, if at least that fraction of its
    area is; what sticks out is clipped. A window that would keep no box is not used: the image stays whole.
    """

    thresholds: tuple[float, ...] = (0.0, 0.1, 0.3, 0.5, 0.7, 0.9)
    scaling: Range = (0.3, 1.0)
    aspect_ratio: Range = (0.5, 2.0)
    attempts: int = 40
    min_visibility: float | None = None
    allow_no_crop: bool = True

    def __post_init__(self) -> None:
        ious = len(self.thresholds) > 0 and all(0 <= iou <= 1 for iou in self.thresholds)
        _check("thresholds", self.thresholds, ious, "one or more IoUs in 0..1")
        _check_range("scaling", self.scaling, 0, 1)
        _check_range("aspect_ratio", self.aspect_ratio, 0, float("inf"))
        _check("attempts", self.attempts, self.attempts >= 1, "at least 1")
        visible = self.min_visibility is None or 0 < self.min_visibility <= 1
        _check(
            "min_visibility",
            self.min_visibility,
            visible,
            "None (the centre decides) or above 0 and at most 1",
        )

    def draw(self, rng: np.random.Generator, n: int) -> Drawn:
        return {"state": random_state(rng, n)}

    def apply(self, sample: Sample, drawn: Mapping[str, Node]) -> Sample:
        anchor, shape, boxes, labels = self._window(sample, drawn["state"])
        lost = fn.slice(labels, 0, 1, axes=[0], out_of_bounds_policy="pad", fill_values=0) == 0
        start, extent = anchor * (1.0 - lost), shape * (1.0 - lost) + lost
        matrix = fn.transforms.crop(sample.matrix, to_start=start, to_end=start + extent, reverse_order=True)
        return _before_resize(self, sample)._replace(
            boxes=fn.cat(boxes, _first(sample.boxes, lost)),
            labels=fn.cat(labels, _first(sample.labels, lost)),
            matrix=matrix,
            size=sample.size * fn.stack(extent[1], extent[0]),
        )

    def _window(self, sample: Sample, state: Node) -> list[Node]:
        """anchor (2,), shape (2,), boxes and labels that stay: relative to the view, (x, y)."""
        extra: dict[str, Any] = {"_random_state": state}
        if self.min_visibility is not None:
            extra["bbox_prune_threshold"] = self.min_visibility
        window: Any = fn.random_bbox_crop(
            dali_math.clamp(sample.boxes, 0.0, 1.0),  # one part in a million outside would stop DALI
            sample.labels,
            input_shape=fn.cast(dali_math.max(sample.size, 1.0), dtype=types.INT32),
            shape_layout="HW",
            bbox_layout="xyXY",
            thresholds=list(self.thresholds),
            scaling=list(self.scaling),
            aspect_ratio=list(self.aspect_ratio),
            allow_no_crop=self.allow_no_crop,
            all_boxes_above_threshold=False,
            num_attempts=self.attempts,
            total_num_attempts=self.attempts * 8,  # without it DALI may search for ever
            quiet=True,
            **extra,
        )
        return list(window)


def _first(rows: Node, keep: Node) -> Node:
    """All rows where `keep` (a (1,) bool node) is true, else none."""
    return fn.slice(rows, 0, keep * types.Constant(2**30), axes=[0], out_of_bounds_policy="trim_to_shape")


def random_state(rng: np.random.Generator, n: int) -> NDArray[np.uint32]:
    """(N, 7) uint32: the state from which a DALI operator with random numbers of its own draws for one batch.

    It is how DALI's dynamic mode hands its generator to such operators (2.4: 7 words, the batch's first counts).
    """
    return np.tile(rng.integers(0, 2**32, 7, dtype=np.uint32), (n, 1))


@dataclass(frozen=True)
class Resize(Op):
    """Render the view: one antialiased linear resample to the output's size.

    `size`: (H, W) pixels, the view is stretched to it; or one number, the shorter side, at most `max_size` for
    the longer one, aspect ratio kept (torchvision's `Resize(size, max_size)`). Boxes are relative and stay.
    """

    size: int | tuple[int, int]
    max_size: int | None = None

    def __post_init__(self) -> None:
        sides = (self.size,) if isinstance(self.size, int) else self.size
        whole = len(sides) <= 2 and all(isinstance(side, int) and side >= 1 for side in sides)
        _check("size", self.size, whole, "(height, width), or one number for the shorter side, in whole pixels")
        if self.max_size is not None:
            _check("max_size", self.max_size, len(sides) == 1, "left out when size is (height, width)")
            _check("max_size", self.max_size, self.max_size >= sides[0], f"at least size ({sides[0]})")

    def apply(self, sample: Sample, drawn: Mapping[str, Node]) -> Sample:
        sample = _before_resize(self, sample)
        uniform = not isinstance(self.size, int)
        return render(sample, self._output_size(sample))._replace(uniform=uniform)

    def _output_size(self, sample: Sample) -> Node:
        if not isinstance(self.size, int):
            return types.Constant(np.array(self.size, np.float32))
        scale = self.size / fn.reductions.min(sample.size)
        if self.max_size is not None:
            scale = dali_math.min(scale, self.max_size / fn.reductions.max(sample.size))
        return dali_math.max(dali_math.floor(sample.size * scale + 1e-3), 1.0)  # torchvision rounds down


# ---------------------------------------------------------------------------------------------- pixels


@dataclass(frozen=True)
class RandomPhotometricDistort(Op):
    """SSD's colour distortion: brightness, contrast, saturation and hue, each with probability `p`.

    With `permute`, the order of the channels as well.

    Torchvision's ranges and order (contrast before saturation and hue, or after them, by a coin). Two things
    differ: contrast turns about 128, not about the image's mean gray, and all five are one linear map, clipped
    to 0..255 once at its end and not rounded: the image becomes float32. `hue` is in turns, as in torchvision: 0.05 is 18 degrees.
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

    def draw(self, rng: np.random.Generator, n: int) -> Drawn:
        def factor(bounds: Range, neutral: float) -> NDArray[np.float64]:
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

    def apply(self, sample: Sample, drawn: Mapping[str, Node]) -> Sample:
        image = fn.coord_transform(_after_resize(self, sample).image, MT=drawn["color"])
        image = dali_math.max(dali_math.min(image, 255.0), 0.0)  # ten times as fast as DALI's clamp, on the CPU
        return sample._replace(image=image)


@dataclass(frozen=True)
class Normalize(Op):
    """(image / 255 - mean) / std as float32, channels first: the last op of a recipe.

    `mean`, `std`: three numbers each, of images in 0..1, as torchvision's. The defaults give images in 0..1,
    which is what torchvision's detectors want: they normalise inside.
    """

    mean: tuple[float, float, float] = (0.0, 0.0, 0.0)
    std: tuple[float, float, float] = (1.0, 1.0, 1.0)

    def __post_init__(self) -> None:
        _check("mean", self.mean, len(self.mean) == 3, "three numbers: red, green, blue, of images in 0..1")
        positive = len(self.std) == 3 and all(value > 0 for value in self.std)
        _check("std", self.std, positive, "three numbers above 0: red, green, blue, of images in 0..1")

    def apply(self, sample: Sample, drawn: Mapping[str, Node]) -> Sample:
        mean, std = ([value * 255 for value in values] for values in (self.mean, self.std))
        image = fn.crop_mirror_normalize(
            _after_resize(self, sample).image, mean=mean, std=std, dtype=types.FLOAT, output_layout="CHW"
        )
        return sample._replace(image=image, layout="CHW")


# ---------------------------------------------------------------------------------------------- checks


def _before_resize(op: Op, sample: Sample) -> Sample:
    if sample.rendered:
        raise ValueError(f"{op!r} moves the view and must come before Resize: put it earlier in the recipe")
    return sample


def _after_resize(op: Op, sample: Sample) -> Sample:
    if not sample.rendered:
        raise ValueError(f"{op!r} changes pixels and must come after Resize: put it later in the recipe")
    if sample.layout != "HWC":
        raise ValueError(f"{op!r} comes after Normalize, which must be the last op: put it earlier in the recipe")
    return sample


def _check(name: str, value: Any, holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {rule}, got {value!r}")


def _check_p(p: float) -> None:
    _check("p", p, 0 <= p <= 1, "a probability in 0..1")


def _check_range(name: str, bounds: Range, low: float, high: float) -> None:
    in_order = len(bounds) == 2 and low <= bounds[0] <= bounds[1] <= high
    _check(name, bounds, in_order, f"(smallest, largest) within {low}..{high}")
