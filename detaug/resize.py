"""`Resize`: where the views become pixels, in one resample."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from nvidia.dali import fn, types

from detaug.arguments import check
from detaug.recipe import Arrays, Node, Nodes, Op
from detaug.views import Floats, Views, corners


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
        check("size", self.size, whole, "(height, width), or one number for the shorter side, in whole pixels")
        if self.max_size is not None:
            check("max_size", self.max_size, not pair, "left out when size is (height, width)")
            check("max_size", self.max_size, self.max_size >= min(sides), f"at least size ({self.size})")

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
