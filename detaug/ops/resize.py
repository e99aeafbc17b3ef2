"""`Resize`: where the views become pixels, in one resample.

A view that is not turned is one `fn.resize` of its window, exact to a tenth of a pixel. A turned one is first
shrunk, antialiased, to about the output's resolution, then warped: linear interpolation alone would skip pixels.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from nvidia.dali import fn, types
from nvidia.dali import math as dali_math

from detaug.boxes import polygons
from detaug.boxes.views import Bools, Fill, Floats, Ints, Views, corners, inverse, part_matrix, view_matrix
from detaug.ops import cpu_kernels as on_cpu
from detaug.ops.arguments import FILL, RGB, check, check_rgb
from detaug.ops.noise import LARGEST
from detaug.ops.op import Arrays, Node, Nodes, Op


class Render(Op):
    """Turns views into pixels; a subclass says of what size."""

    stage = "render"
    letterbox: str | None = None
    fill: RGB = FILL

    def output_size(self, views: Views, drawn: Arrays) -> Floats:
        """(N, 2): (height, width) in whole pixels."""
        raise NotImplementedError(f"{type(self).__name__} must define output_size(views, drawn)")

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        size = self.output_size(views, drawn)
        if self.letterbox:
            views = _letterboxed(views, size, 0.5 if self.letterbox == "center" else 0.0, self.fill)
        views, planned = _turned(views, size) if views.turned else _upright(views, size)
        return _without_slivers(replace(views, size=size, fill=None).clip()), planned

    def fill_around(self, views: Views) -> Fill | None:
        """The colour beside the image; None where the view shows nothing but the image."""
        return self.fill if self.letterbox else views.fill

    def cpu_kernel(self, views: Views) -> on_cpu.CpuKernel | None:
        if views.turned:
            return None
        fill = self.fill_around(views)
        return partial(on_cpu.on_canvas, fill=fill) if fill else on_cpu.resized

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        region = planned["region"]  # one input of (y, x) pairs: feeding DALI costs more than taking it apart there
        image, fill = _resized(image, region), self.fill_around(views)
        if views.turned:
            return _warped(image, planned, fill or FILL)
        if fill is None:
            return image
        anchor, shape = (fn.cast(region[row], dtype=types.INT32) for row in (3, 4))
        return fn.slice(image, anchor, shape, axes=[0, 1], out_of_bounds_policy="pad", fill_values=list(fill))


@dataclass(frozen=True)
class Resize(Render):
    """Render the view: one antialiased linear resample to the output's size.

    `size`: (H, W) pixels; or one number, the shorter side, at most `max_size` for the longer one, aspect ratio
    kept (torchvision's `Resize(size, max_size=...)`); or a list of (H, W), one of which is drawn for each batch.

    (H, W) stretches the view. With `letterbox` "center" or "top-left" its aspect ratio stays and `fill`, RGB
    0..255, takes the rest (Ultralytics' LetterBox).

    Where the view reaches beyond the image, the image takes a whole number of output pixels; boxes and matrix
    follow that rounding, so they stay exact. A box that lost more than three quarters and is thinner than a
    pixel, of the output or of the source, is dropped; a whole one stays however small.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> print(da.Resize((300, 300))(samples).boxes[0].round())
    [[ 30.  30.  90. 150.]]
    >>> print(da.Resize((300, 300), letterbox="center")(samples).boxes[0].round())
    [[ 30.  90.  90. 150.]]
    >>> print(da.Resize(300, max_size=500)(samples).images[0].shape)
    (250, 500, 3)
    """

    size: int | tuple[int, int] | Sequence[tuple[int, int]]
    _: KW_ONLY  # Resize(300, 300) is no size of (300, 300)
    max_size: int | None = None
    letterbox: Literal["center", "top-left"] | None = None
    fill: RGB = FILL

    def __post_init__(self) -> None:
        right = all(map(_is_pair, self._several)) if self._several else _is_side(self.size) or _is_pair(self.size)
        rule = "(height, width), a list of those, or one number for the shorter side, in whole pixels"
        check("size", self.size, right, rule)
        pair = not isinstance(self.size, int)
        if self.max_size is not None:
            check("max_size", self.max_size, not pair, "left out when size is (height, width)")
            check("max_size", self.max_size, self.max_size >= self.size, f"at least size ({self.size})")  # type: ignore[operator]
        known = self.letterbox in (None, "center", "top-left")
        check("letterbox", self.letterbox, known, "None, 'center' or 'top-left'")
        check("letterbox", self.letterbox, pair or not self.letterbox, "left out when size is one number")
        check_rgb("fill", self.fill)

    @property
    def _several(self) -> Sequence[Any]:
        """The sizes to draw from, if there are several."""
        given: Any = self.size
        listed = isinstance(given, tuple | list) and any(isinstance(each, tuple | list) for each in given)
        return given if listed else ()

    @property
    def uniform(self) -> bool:  # type: ignore[override]
        """Do all images of a batch have one size after it?"""
        return not isinstance(self.size, int)

    @property
    def one_size(self) -> bool:  # type: ignore[override]
        """And is it the same for all batches?"""
        return not self._several

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"size": rng.integers(len(self._several), size=n)} if self._several else {}

    def draw_for(self, views: Views, rng: np.random.Generator) -> Arrays:
        return _one_for_each_batch(views, self.draw(rng, len(views)))

    def output_size(self, views: Views, drawn: Arrays) -> Floats:
        if self._several:
            return np.array(self._several, np.float64)[drawn["size"]]
        if isinstance(self.size, int):
            return shorter_side(views.size, np.full(len(views), float(self.size)), self.max_size)
        return np.asarray(np.tile(np.array(self.size, np.float64)[:, None], len(views)).T)


@dataclass(frozen=True)
class RandomShortestSize(Render):
    """Resize the shorter side to one of `min_size`, drawn for each batch; the longer one gets at most `max_size`.

    Both in pixels. Multi-scale training with the aspect ratio kept. torchvision's `RandomShortestSize` draws for each
    image: here the images of a batch keep one scale, so that little is padded.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> after = da.RandomShortestSize((50, 75, 150))(samples)
    >>> print(after.boxes[0].round(), after.images[0].shape)
    [[30. 15. 90. 75.]] (150, 300, 3)
    """

    min_size: tuple[int, ...]
    max_size: int | None = None

    uniform = False

    def __post_init__(self) -> None:
        sizes = isinstance(self.min_size, tuple | list) and bool(self.min_size) and all(map(_is_side, self.min_size))
        check("min_size", self.min_size, sizes, "one or more shorter sides in whole pixels")
        if self.max_size is not None:
            check("max_size", self.max_size, self.max_size >= max(self.min_size), "at least the largest of min_size")

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {"size": rng.integers(len(self.min_size), size=n)}

    def draw_for(self, views: Views, rng: np.random.Generator) -> Arrays:
        return _one_for_each_batch(views, self.draw(rng, len(views)))

    def output_size(self, views: Views, drawn: Arrays) -> Floats:
        short = np.array(self.min_size, np.float64)[drawn["size"]]
        return shorter_side(views.size, short, self.max_size)


def first_of_batch(views: Views) -> Ints:
    """(N,): the row of the first image of each image's batch."""
    return np.searchsorted(views.batch, views.batch)


def _one_for_each_batch(views: Views, drawn: Arrays) -> Arrays:
    """What was drawn for the first image of a batch, for all of them: each can say it when the batch is replayed."""
    first = first_of_batch(views)
    return {name: array[first] for name, array in drawn.items()}


def shorter_side(size: Floats, short: Floats, max_size: int | None) -> Floats:
    """(N, 2) whole pixels: views of `size` with their shorter side at `short` (N,), the longer at most `max_size`."""
    long = np.floor(short * size.max(1) / size.min(1) + 1e-6)  # torchvision rounds down, twice
    if max_size is not None:
        short = np.where(long > max_size, np.floor(max_size * short / long + 1e-6), short).clip(1)
        long = long.clip(max=max_size)
    upright = (size[:, 0] > size[:, 1])[:, None]
    return np.where(upright, np.stack([long, short], axis=1), np.stack([short, long], axis=1))


def _resized(image: Node, region: Node) -> Node:
    if image.device == "cpu":
        return on_cpu.painted(image, [(on_cpu.resized, {"region": region})])
    return fn.resize(image, roi_start=region[0], roi_end=region[1], size=region[2])


def _is_side(side: Any) -> bool:
    return type(side) is int and side >= 1


def _is_pair(size: Any) -> bool:
    return isinstance(size, tuple | list) and len(size) == 2 and all(map(_is_side, size))


def _letterboxed(views: Views, size: Floats, place: float, fill: RGB) -> Views:
    """Views of the aspect ratio of `size`; `place` 0: the image is at the left or top, 0.5: in the middle."""
    ratio = size / views.size
    room = (ratio / ratio.min(1, keepdims=True))[:, ::-1]
    return views.fill_outside(fill).crop_to(-place * (room - 1), -place * (room - 1) + room)


def _without_slivers(views: Views) -> Views:
    gone = (views.visible < 0.25) & (views.labels >= 0)
    rows = np.flatnonzero(gone.any(1))
    if not len(rows):
        return views
    gone[rows] &= _thin(views[rows])
    return views.keep(~gone)


def _thin(views: Views) -> Bools:
    """(N, M): is the box thinner than a pixel of the output or of the source?"""
    boxes = views.pixel_boxes()
    sides = boxes[..., 2:] - boxes[..., :2]
    if views.outlines is not None:  # a slanted sliver's hull is not thin
        hull_area = polygons.area(polygons.from_boxes(views.boxes))
        sides = sides * (polygons.area(views.outlines) / hull_area.clip(1e-12))[..., None]
    source_pixel = np.linalg.norm(np.linalg.inv(_slope(_to_source(views, views.size), views.size)), axis=2)
    return np.asarray((sides < source_pixel.clip(1)[:, None] - 1e-6).any(2))


def _to_source(views: Views, size: Floats) -> Floats:
    """(N, 3, 3): pixels of an output of `size` -> source pixels."""
    return part_matrix(views.matrix, np.zeros_like(size), 1 / size[:, ::-1])


def _slope(to_source: Floats, size: Floats) -> Floats:
    """(N, 2, 2): the source pixels that one output pixel spans, in the middle of the output."""
    middle = to_source @ np.concatenate([size[:, ::-1] / 2, np.ones((len(size), 1))], axis=1)[..., None]
    slope = to_source[:, :2, :2] - middle[:, :2] / middle[:, 2:] * to_source[:, 2:, :2]
    return np.asarray(slope / middle[:, 2:])


# ---------------------------------------------------------------------------------- views not turned


def _upright(views: Views, size: Floats) -> tuple[Views, Arrays]:
    """Views of which the image's part takes whole pixels, and the (y, x) pairs that `paint` needs."""
    seen, place = _in_float32(views.source_window().round(6)), [size]  # a border of pixels but for rounding is one
    if views.fill is not None:
        views, part, offset = _laid_out(views, seen, size)
        place = [part, -offset[:, ::-1], size]
    return views, {"region": np.stack([seen[:, 0, ::-1], seen[:, 1, ::-1], *place], axis=1)}


def _in_float32(array: Floats) -> Floats:
    """As DALI is told: what is not empty here is not empty there."""
    return array.astype(np.float32).astype(np.float64)


def _laid_out(views: Views, seen: Floats, size: Floats) -> tuple[Views, Floats, Floats]:
    """Where the `seen` part of the source goes in an output of `size`, in whole pixels.

    Returns the views moved to fit, (N, 2) the part's (height, width), and (N, 2) its offset (x, y).
    """
    size_xy = size[:, ::-1]
    (begin, end), (first, last) = (each.transpose(1, 0, 2) for each in (corners(views.matrix), seen))
    start, stop = (first - begin) / (end - begin), (last - begin) / (end - begin)  # relative to the view
    length = np.round((stop - start) * size_xy).clip(1, size_xy)
    room = size_xy - length
    offset = np.where(stop > 1 - 1e-6, room, np.round(start * size_xy).clip(0, room))
    nothing = (stop <= start).any(1, keepdims=True)  # the view shows no part of the image at all
    step = np.where(nothing, 1, stop - start) / length
    first = np.where(nothing, 0, start - step * offset)
    last = np.where(nothing, 1, first + step * size_xy)
    return views.crop_to(first, last), length[:, ::-1], np.where(nothing, size_xy, offset)


# -------------------------------------------------------------------------------------- turned views


def _turned(views: Views, size: Floats) -> tuple[Views, Arrays]:
    """The part of the source to shrink, to which size, and the map from output pixels to what was shrunk."""
    to_source = _to_source(views, size)
    start, end = np.swapaxes(_needed(views, to_source), 0, 1)
    scale = np.linalg.norm(np.linalg.inv(_slope(to_source, size)), axis=1)  # output pixels a source pixel in x, y
    shrunk = np.ceil((end - start) * np.minimum(scale, 1) - 1e-6).clip(1)
    matrix = inverse(view_matrix(start, end))
    matrix[:, :2] *= shrunk[..., None]
    planned = {
        "region": np.stack([start[:, ::-1], end[:, ::-1], shrunk[:, ::-1], size], axis=1),
        "matrix": matrix @ to_source,
    }
    return views, planned if views.clip_region is None else planned | _half_planes(
        views.clip_region * size[:, None, ::-1]
    )


def _needed(views: Views, to_source: Floats) -> Floats:
    """(N, 2, 2): what is in view and some pixels around it, in whole source pixels, inside what is shown."""
    quad = views.source_corners()
    margin = 2 + 2 * np.abs(to_source[:, :2, :2]).sum(2)
    low, high = views.source_bounds[:, 0], views.source_bounds[:, 1]
    start = np.minimum(np.floor(quad.min(1) - margin).clip(low, high), (high - 1).clip(0))
    return np.stack([start, np.maximum(np.ceil(quad.max(1) + margin).clip(low, high), start + 1)], axis=1)


def _half_planes(polygon: Floats) -> Arrays:
    """(N, 3, V) a, b, c of each edge of a polygon (N, V, 2): (x, y) lies a * x + b * y + c pixels inside it."""
    after = np.roll(polygon, -1, 1)
    edge, around = after - polygon, (polygon[..., 0] * after[..., 1] - after[..., 0] * polygon[..., 1]).sum(1)
    length = np.linalg.norm(edge, axis=2)
    scale = np.sign(around)[:, None] / np.maximum(length, 1e-9)
    a, b = -edge[..., 1] * scale, edge[..., 0] * scale
    c = np.where(length > 1e-9, -a * polygon[..., 0] - b * polygon[..., 1], 1e6)
    return {"edges": np.stack([a, b, c], axis=1)}


def _warped(image: Node, planned: Nodes, fill: Fill) -> Node:
    size = planned["region"][3]
    image = fn.experimental.warp_perspective(image, matrix=planned["matrix"], size=size, fill_value=list(fill))
    return _filled_outside(image, planned, fill) if "edges" in planned else image


def _filled_outside(image: Node, planned: Nodes, fill: Fill) -> Node:
    """The image with `fill` outside of the half planes, with edges as smooth as a resample's."""
    edges = planned["edges"].gpu() if image.device == "gpu" else planned["edges"]
    centres = types.Constant(np.arange(0.5, LARGEST, dtype=np.float32)[:, None], device=image.device)
    y, x = (fn.slice(centres, 0, fn.cast(planned["region"][3][axis], dtype=types.INT32), axes=[0]) for axis in (0, 1))
    across, down = x * edges[0] + edges[2], y * edges[1]  # (W, V) and (H, V)
    inside = fn.reductions.min(fn.expand_dims(across, axes=[0]) + fn.expand_dims(down, axes=[1]), axes=[2])
    share = dali_math.max(dali_math.min(fn.expand_dims(inside, axes=[2]) + 0.5, 1.0), 0.0)
    color = types.Constant(np.array(fill, np.float32), device=image.device)
    return fn.reshape(fn.cast(color + (image - color) * share, dtype=types.UINT8), layout="HWC")
