"""`Resize` and `RandomShortestSize` render the views: one resample from source pixels to output pixels.

A view that is not turned is one `fn.resize` of its window of the source, exact to a tenth of a pixel. If it reaches
beyond the image, the resized window goes onto a canvas of fill, at a whole pixel: so the border between image and fill
is sharp, and the boxes follow the rounding (`_fit_to_canvas`). A rotated view is first shrunk, antialiased, to about
the output's resolution and then warped: linear interpolation alone would skip pixels. What an earlier op cut off a
rotated view is filled afterwards, along the edges of its clip region (`_half_planes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from itertools import accumulate
from typing import Any, ClassVar, Literal

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math
from typing_extensions import Self

from detaug.arguments import FILL, RGB, check, check_fill, is_whole, is_wholes
from detaug.arrays import Arrays, Bools, Floats, Ints
from detaug.boxes import polygons
from detaug.boxes.views import Fill, Views, corners, inverse, part_matrix, view_matrix
from detaug.ops import cpu_kernels as on_cpu
from detaug.ops.noise import count_to, ramp
from detaug.ops.op import Op, text_without_added
from detaug.pipelines.graph import Node, Nodes
from detaug.pixel_format import PixelFormat, for_bands


class Render(Op):
    """Renders views as pixels. A subclass defines the output's size."""

    stage = "render"
    any_bands: ClassVar[bool] = True
    letterbox: str | None = None
    fill: RGB = FILL
    decode: Literal["whole", "scaled"] = "whole"

    def check_decode(self) -> None:
        """Raise InputError for a wrong `decode`."""
        check("decode", self.decode, self.decode in ("whole", "scaled"), "'whole' or 'scaled'")

    def check_pixels(self, pixels: PixelFormat, label: str) -> None:
        super().check_pixels(pixels, label)
        whole = pixels.is_rgb8 or self.decode == "whole"
        check(f"{label}.decode", self.decode, whole, f"'whole': the reader has {pixels}, which are decoded as they are")

    @property
    def fills(self) -> tuple[tuple[float, ...], ...]:
        return (tuple(self.fill),) if self.letterbox else ()

    def output_size(self, views: Views, drawn: Arrays) -> Floats:
        """Return (N, 2): (height, width) in whole pixels."""
        raise NotImplementedError(f"{type(self).__name__} must define output_size(views, drawn)")

    def set_size(self, views: Views, drawn: Arrays) -> Views:
        """Return the views at the output's size, not rendered yet."""
        size = self.output_size(views, drawn)
        if self.letterbox:
            views = _letterbox(views, size, self.fill, centered=self.letterbox == "center")
        return views.at_size(size)

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        views = self.set_size(views, drawn)
        size = views.size
        views, planned = _plan_warp(views, size) if views.turned else _plan_resize(views, size)
        return _drop_slivers(replace(views, size=size).clip()), planned

    def fill_around(self, views: Views) -> Fill | None:
        """Return the color around the image, or None where the views show nothing but the image."""
        fill = self.fill if self.letterbox else views.fill
        return None if fill is None else for_bands(fill, views.pixels)

    def cpu_kernel(self, views: Views) -> on_cpu.CpuKernel | None:
        if views.turned:
            return None
        fill = self.fill_around(views)
        return partial(on_cpu.resize_onto_canvas, fill=fill) if fill else on_cpu.resize

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        region = planned["region"]  # all (y, x) pairs in one input: a feed costs DALI more than an index in its graph
        image, fill = _resize(image, region, views.pixels), self.fill_around(views)
        if views.turned:
            return _warp(image, planned, fill, views)
        if fill is None:
            return image
        anchor, shape = (fn.cast(region[row], dtype=types.INT32) for row in (3, 4))
        return fn.slice(image, anchor, shape, axes=[0, 1], out_of_bounds_policy="pad", fill_values=list(fill))


@dataclass(frozen=True)
class SizeOnly(Op):
    """Sets the size of a Resize, for ops that move the view before it is rendered."""

    resize: Render

    stage = "view"
    any_bands: ClassVar[bool] = True

    @property
    def one_draw_a_batch(self) -> bool:  # type: ignore[override]
        """Return whether all images of a batch share one draw."""
        return self.resize.one_draw_a_batch

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return self.resize.draw(rng, n)

    def adapt_draw(self, views: Views, drawn: Arrays) -> Arrays:
        return self.resize.adapt_draw(views, drawn)

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        return self.resize.set_size(views, drawn), {}


@dataclass(frozen=True)
class OwnSize(Render):
    """Renders each view at its own size, in whole pixels."""

    uniform = False

    def output_size(self, views: Views, drawn: Arrays) -> Floats:
        return np.round(views.size).clip(1)


@dataclass(frozen=True)
class Resize(Render):
    """Render the view with one antialiased linear resample to the output's size.

    If the view reaches beyond the image, the image takes a whole number of output pixels; boxes and matrix follow that
    rounding, so they stay exact. A box is dropped if it lost more than three quarters of its area and is thinner than a
    pixel of the output or of the source; a box that was not clipped stays however small.

    Args:
        size: (H, W) pixels, to which the view is stretched; or one number for the shorter side, with the same aspect
            ratio; or a list of (H, W), of which each batch samples one.
        max_size: The largest longer side where `size` is one number (torchvision's `Resize(size, max_size=...)`).
        letterbox: "center" or "top-left": with (H, W) the aspect ratio stays, to a whole pixel, and the image lies
            there. Of an odd rest the right or bottom has a pixel more (Ultralytics' LetterBox).
        fill: RGB 0..255 of the rest.
        decode: "scaled": a loader on the CPU decodes large JPEGs at a half, a quarter or an eighth of their size, the
            smallest that still has twice the pixels of the output: quicker from some 10 megapixels on. Pixels differ by
            less than 1 of 255 on average; images of other formats are averaged alike. It changes nothing where images
            come decoded: videos, `da.batch`, `da.Compose`, `da.fn`.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> print(da.Resize((300, 300))(samples).boxes[0].round())
    [[ 30.  30.  90. 150.]]
    >>> print(da.Resize((300, 300), letterbox="center")(samples).boxes[0].round())
    [[ 30.  90.  90. 150.]]
    >>> print(da.Resize(300, max_size=500)(samples).images[0].shape)
    (250, 500, 3)
    """

    size: int | tuple[int, int] | Sequence[tuple[int, int]]
    _: KW_ONLY
    max_size: int | None = None
    letterbox: Literal["center", "top-left"] | None = None
    fill: RGB = FILL
    decode: Literal["whole", "scaled"] = "whole"

    one_draw_a_batch: ClassVar[bool] = True  # if there are several sizes

    def __repr__(self) -> str:
        return text_without_added(self, "decode")

    def __new__(cls, *positional: Any, **named: Any) -> Self:
        """Refuse Resize(300, 300), which is not Resize((300, 300)), in words of its own."""
        if len(positional) > 1:
            values = ", ".join(map(repr, positional))
            raise TypeError(f"Resize takes (height, width) as one argument: Resize(({values})), not Resize({values})")
        return super().__new__(cls, **named)

    def check_arguments(self) -> None:
        pairs = all(is_wholes(choice, 2, low=1) for choice in self._choices)
        right = pairs if self._choices else is_whole(self.size, 1) or is_wholes(self.size, 2, low=1)
        rule = "(height, width), a list of those, or one number for the shorter side, in whole pixels"
        check("size", self.size, right, rule)
        if self.max_size is not None:
            check("max_size", self.max_size, not self.uniform, "left out when size is (height, width)")
            check("max_size", self.max_size, is_whole(self.max_size, self.size), f"at least size ({self.size})")  # type: ignore[arg-type]
        known = self.letterbox in (None, "center", "top-left")
        check("letterbox", self.letterbox, known, "None, 'center' or 'top-left'")
        check("letterbox", self.letterbox, self.uniform or not self.letterbox, "left out when size is one number")
        check_fill("fill", self.fill)
        self.check_decode()

    @property
    def _choices(self) -> Sequence[Any]:
        """Return the sizes to draw from, if there are several."""
        size: Any = self.size
        return size if isinstance(size, tuple) and any(isinstance(choice, tuple) for choice in size) else ()

    @property
    def uniform(self) -> bool:  # type: ignore[override]
        """Return whether all images of a batch have one size after it."""
        return not isinstance(self.size, int)

    @property
    def one_size(self) -> bool:  # type: ignore[override]
        """Return whether the images of all batches have one size after it."""
        return not self._choices

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"size": rng.integers(len(self._choices), size=n)} if self._choices else {}

    def output_size(self, views: Views, drawn: Arrays) -> Floats:
        if self._choices:
            return np.array(self._choices, np.float64)[drawn["size"]]
        if isinstance(self.size, int):
            return shorter_side(views.size, np.full(len(views), float(self.size)), self.max_size)
        return np.asarray(np.tile(np.array(self.size, np.float64)[:, None], len(views)).T)


@dataclass(frozen=True)
class RandomShortestSize(Render):
    """Resize the shorter side to one of several lengths, sampled per batch, for multi-scale training.

    The aspect ratio stays. torchvision's `RandomShortestSize` samples for each image; here the images of a batch have
    one scale, so that less is padded.

    Args:
        min_size: Lengths of the shorter side in pixels.
        max_size: The largest longer side; None: without a limit.
        decode: See `Resize`.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> after = da.RandomShortestSize((50, 75, 150))(samples)
    >>> print(after.boxes[0].round(), after.images[0].shape)
    [[30. 15. 90. 75.]] (150, 300, 3)
    """

    min_size: tuple[int, ...]
    max_size: int | None = None
    _: KW_ONLY
    decode: Literal["whole", "scaled"] = "whole"

    uniform = False
    one_draw_a_batch: ClassVar[bool] = True

    def __repr__(self) -> str:
        return text_without_added(self, "decode")

    def check_arguments(self) -> None:
        check("min_size", self.min_size, is_wholes(self.min_size, low=1), "one or more shorter sides in whole pixels")
        large = self.max_size is None or is_whole(self.max_size, max(self.min_size))
        check("max_size", self.max_size, large, "at least the largest of min_size")
        self.check_decode()

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"size": rng.integers(len(self.min_size), size=n)}

    def output_size(self, views: Views, drawn: Arrays) -> Floats:
        short = np.array(self.min_size, np.float64)[drawn["size"]]
        return shorter_side(views.size, short, self.max_size)


def first_of_batch(views: Views) -> Ints:
    """Return (N,): for each image, the index of the first image of its batch."""
    return np.searchsorted(views.batch, views.batch)


def shorter_side(size: Floats, short: Floats, max_size: int | None) -> Floats:
    """Scale `size` (N, 2) to a shorter side of `short` (N,) and a longer one of at most `max_size`, in whole pixels."""
    long = np.floor(short * size.max(1) / size.min(1) + 1e-6)  # torchvision rounds down, twice
    if max_size is not None:
        short = np.where(long > max_size, np.floor(max_size * short / long + 1e-6), short).clip(1)
        long = long.clip(max=max_size)
    portrait = (size[:, 0] > size[:, 1])[:, None]
    return np.where(portrait, np.stack([long, short], axis=1), np.stack([short, long], axis=1))


def _resize(image: Node, region: Node, pixels: PixelFormat) -> Node:
    if image.device == "cpu":
        return on_cpu.apply_kernels(image, [(on_cpu.resize, {"region": region})], as_is=not pixels.is_rgb8)
    return fn.resize(image, roi_start=region[0], roi_end=region[1], size=region[2])


def _letterbox(views: Views, size: Floats, fill: RGB, *, centered: bool) -> Views:
    """Return views with the aspect ratio of `size`, of which the old ones take whole output pixels.

    They are at the left or top, or `centered`: an odd pixel of fill is then at the right or bottom (Ultralytics,
    torchvision's CenterCrop, Albumentations' PadIfNeeded).
    """
    length = np.round(views.size * (size / views.size).min(1, keepdims=True)).clip(1)
    offset = (size - length) // 2 * centered
    return views.fill_outside(fill).crop_to(
        *((offset_of_side / length)[:, ::-1] for offset_of_side in (-offset, size - offset))
    )


def _drop_slivers(views: Views) -> Views:
    """Drop boxes that lost more than three quarters of their area and are thinner than a pixel."""
    dropped = (views.visible < 0.25) & (views.labels >= 0)
    images = np.flatnonzero(dropped.any(1))
    if not len(images):
        return views
    dropped[images] &= _thin(views[images])
    return views.keep(~dropped)


def _thin(views: Views) -> Bools:
    """Return (N, M): whether a box is thinner than a pixel of the output or of the source."""
    boxes = views.pixel_boxes()
    sides = boxes[..., 2:] - boxes[..., :2]
    if views.outlines is not None:  # a slanted sliver's hull is not thin
        hull_area = polygons.area(polygons.from_boxes(views.boxes))
        sides = sides * (polygons.area(views.outlines) / hull_area.clip(1e-12))[..., None]
    source_pixel = np.linalg.norm(np.linalg.inv(_slope(_to_source(views, views.size), views.size)), axis=2)
    return np.asarray((sides < source_pixel.clip(1)[:, None] - 1e-6).any(2))


def _to_source(views: Views, size: Floats) -> Floats:
    """Return (N, 3, 3): pixels of an output of `size` -> source pixels."""
    return part_matrix(views.matrix, np.zeros_like(size), 1 / size[:, ::-1])


def _slope(to_source: Floats, size: Floats) -> Floats:
    """Return (N, 2, 2): how many source pixels one output pixel spans, at the center of the output."""
    middle = to_source @ np.concatenate([size[:, ::-1] / 2, np.ones((len(size), 1))], axis=1)[..., None]
    slope = to_source[:, :2, :2] - middle[:, :2] / middle[:, 2:] * to_source[:, 2:, :2]
    return np.asarray(slope / middle[:, 2:])


# ---------------------------------------------------------------------------------- views not turned


def _plan_resize(views: Views, size: Floats) -> tuple[Views, Arrays]:
    """Return the views, rounded where they go onto a canvas, and the input "region".

    "region" is (N, 3, 2): pairs (y, x), namely the window's first and last corner in the source and its output size. On
    a canvas it is (N, 5, 2): also minus the window's offset on the canvas, and the canvas's size.
    """
    window = _in_float32(views.source_window().round(6))  # rounded: a window on the border of a pixel stays there
    corner, opposite = window[:, 0, ::-1], window[:, 1, ::-1]
    if views.fill is None:
        return views, {"region": np.stack([corner, opposite, size], axis=1)}
    views, window_size, offset = _fit_to_canvas(views, window, size)
    return views, {"region": np.stack([corner, opposite, window_size, -offset[:, ::-1], size], axis=1)}


def _in_float32(array: Floats) -> Floats:
    """Round to float32, as DALI's input is: a window that is not empty here is then not empty there."""
    return array.astype(np.float32).astype(np.float64)


def _fit_to_canvas(views: Views, window: Floats, size: Floats) -> tuple[Views, Floats, Floats]:
    """Place the `window` of the source, (N, 2, 2), in an output of `size` in whole pixels.

    The window's length and offset are rounded to pixels of the output. Cropping the views so that the window covers
    exactly those pixels moves boxes and matrix along, so that nothing is off by the rounding. A view that shows nothing
    of the image gets an offset outside of the canvas.

    Returns the views, and (N, 2) each the window's (height, width) and its offset (x, y) in output pixels.
    """
    size_xy = size[:, ::-1]
    (begin, end), (first, last) = (pair.transpose(1, 0, 2) for pair in (corners(views.matrix), window))
    start, stop = (first - begin) / (end - begin), (last - begin) / (end - begin)  # relative to the view
    length = np.round((stop - start) * size_xy).clip(1, size_xy)
    room = size_xy - length
    # where the image ends with the view, no pixel of fill comes after it
    offset = np.where(stop > 1 - 1e-6, room, np.round(start * size_xy).clip(0, room))
    nothing = (stop <= start).any(1, keepdims=True)  # the view shows nothing of the image
    step = np.where(nothing, 1, stop - start) / length
    first = np.where(nothing, 0, start - step * offset)
    last = np.where(nothing, 1, first + step * size_xy)
    return views.crop_to(first, last), length[:, ::-1], np.where(nothing, size_xy, offset)


# -------------------------------------------------------------------------------------- rotated views


def _plan_warp(views: Views, size: Floats) -> tuple[Views, Arrays]:
    """Return the views and the inputs: "region", the window of the source to shrink, and "to_source".

    "region" is (N, 4, 2): pairs (y, x), the window's corners, its size when shrunk, and the output's size. "to_source"
    is (N, 3, 3): output pixels -> pixels of the shrunk window.
    """
    to_source = _to_source(views, size)
    start, end = np.swapaxes(_source_window(views, to_source, size), 0, 1)
    scale = np.linalg.norm(np.linalg.inv(_slope(to_source, size)), axis=1)  # output pixels per source pixel in x, y
    shrunk = np.ceil((end - start) * np.minimum(scale, 1) - 1e-6).clip(1)
    to_window = inverse(view_matrix(start, end))
    to_window[:, :2] *= shrunk[..., None]
    planned = {
        "region": np.stack([start[:, ::-1], end[:, ::-1], shrunk[:, ::-1], size], axis=1),
        "to_source": to_window @ to_source,
    }
    return views, planned if views.clip_region is None else planned | _half_planes(
        views.clip_region * size[:, None, ::-1]
    )


def _source_window(views: Views, to_source: Floats, size: Floats) -> Floats:
    """Return (N, 2, 2): what is in view and some pixels around it, in whole source pixels, in the source bounds."""
    quad = views.source_corners()
    margin = 2 + 2 * np.abs(to_source[:, :2, :2]).sum(2)
    margin[_shows_horizon(to_source, size)] = np.inf
    low, high = views.source_bounds[:, 0], views.source_bounds[:, 1]
    start = np.minimum(np.floor(quad.min(1) - margin).clip(low, high), (high - 1).clip(0))
    return np.stack([start, np.maximum(np.ceil(quad.max(1) + margin).clip(low, high), start + 1)], axis=1)


def _shows_horizon(to_source: Floats, size: Floats) -> Bools:
    """Return (N,): whether an output has points without a source point; its corners then do not surround the source."""
    change = to_source[:, 2, :2] * size[:, ::-1]
    least, most = (to_source[:, 2, 2] + limit(change, 0).sum(1) for limit in (np.minimum, np.maximum))
    return np.asarray(least * most <= 0)


def _half_planes(polygon: Floats) -> Arrays:
    """Return (N, 3, V) a, b, c for the edges of polygons (N, V, 2): (x, y) lies a * x + b * y + c pixels inside one."""
    after = np.roll(polygon, -1, 1)
    edge, around = after - polygon, (polygon[..., 0] * after[..., 1] - after[..., 0] * polygon[..., 1]).sum(1)
    length = np.linalg.norm(edge, axis=2)
    scale = np.sign(around)[:, None] / np.maximum(length, 1e-9)
    a, b = -edge[..., 1] * scale, edge[..., 0] * scale
    # a point that is there twice has no edge, which cuts nothing off
    c = np.where(length > 1e-9, -a * polygon[..., 0] - b * polygon[..., 1], 1e6)
    return {"edges": np.stack([a, b, c], axis=1)}


def blends_at_border(views: Views) -> bool:
    """Return whether the outermost pixels of rotated images blend with fill around them.

    After rotations by 90 degrees alone they are repeated, as a resize does: what comes later is cut off along edges.
    """
    return views.fill_at_bounds or views.projective


def _warp(image: Node, planned: Nodes, fill: Fill | None, views: Views) -> Node:
    pixels = views.pixels

    def warp(part: Node, bands: slice) -> Node:
        blends = fill is not None and blends_at_border(views)
        around = {"fill_value": list((fill or ())[bands])} if blends else {"border_mode": "replicate"}
        return fn.experimental.warp_perspective(part, matrix=to_source, size=size, **around)

    to_source, size = planned["to_source"], planned["region"][3]
    if pixels.is_rgb8:
        image = warp(image, slice(None))
    else:
        image = fn.cat(*(warp(image[:, :, bands], bands) for bands in _few_bands(pixels.count)), axis=2)
    return image if fill is None or "edges" not in planned else _fill_outside(image, planned, fill, pixels)


def _few_bands(count: int) -> list[slice]:
    """Return slices of four, three or one band: DALI warps no more at once, and two of them to 1/32 pixel only."""
    rest = count % 4
    lengths = [4] * (count // 4) + ([1, 1] if rest == 2 else [rest] if rest else [])
    return [slice(end - length, end) for end, length in zip(accumulate(lengths), lengths, strict=True)]


def _fill_outside(image: Node, planned: Nodes, fill: Fill, pixels: PixelFormat) -> Node:
    """Fill what is outside of the half planes, with edges as smooth as a resample's."""
    # there only pixels at the edges are computed
    if image.device == "cpu" and pixels.is_rgb8:
        return on_cpu.apply_kernels(image, [(partial(on_cpu.fill_outside, fill=fill), {"edges": planned["edges"]})])
    edges = planned["edges"].gpu() if image.device == "gpu" else planned["edges"]
    counting = ramp(image.device)
    sides = (fn.cast(planned["region"][3][axis], dtype=types.INT32) for axis in (0, 1))
    numbers = (fn.expand_dims(count_to(side, counting), axes=[1]) for side in sides)
    y, x = (fn.cast(number, dtype=types.FLOAT) + 0.5 for number in numbers)
    across, down = x * edges[0] + edges[2], y * edges[1]  # (W, V) and (H, V)
    inside = fn.reductions.min(fn.expand_dims(across, axes=[0]) + fn.expand_dims(down, axes=[1]), axes=[2])
    share = dali_math.max(dali_math.min(fn.expand_dims(inside, axes=[2]) + 0.5, 1.0), 0.0)
    color = types.Constant(np.array(fill, np.float32), device=image.device)
    filled = fn.cast(color + (image - color) * share, dtype=types.UINT8 if pixels.is_rgb8 else types.FLOAT)
    return fn.reshape(filled, layout="HWC")
