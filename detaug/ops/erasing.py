"""Ops that paint over parts of the image; boxes keep what is left of them in sight.

`parts` is the one place that knows what rectangles leave of a box; `detaug/mixing.py` uses it as well.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from nvidia.dali import fn

from detaug.boxes.views import Bools, Floats, Views
from detaug.ops.arguments import FILL, RGB, Range, check, check_p, check_range, check_rgb, check_share
from detaug.ops.op import Arrays, Node, Nodes, PixelOp


def cover(views: Views, rectangles: Floats, max_hidden: float) -> Views:
    """The views with `rectangles`, (N, K, 4) XYXY in output pixels, laid over them.

    A box becomes the hull of what is left of it, `visible` its share. A box of which more than `max_hidden` of the
    area is covered is dropped, and so is one of which something thinner than a pixel is left.
    """
    return views.shrink_boxes(*parts(views, rectangles, inside=False), 1 - max_hidden)


def parts(views: Views, rectangles: Floats, *, inside: bool) -> tuple[Floats, Floats]:
    """What of each box lies in `rectangles` together, (N, K, 4) XYXY in output pixels; or, not `inside`, what does not.

    (N, M, 4) the hull of that part in output pixels, (N, M) its share of the box's area.
    """
    boxes = views.pixel_boxes()
    hull, share = np.where(inside, 0, boxes), np.full(views.labels.shape, 0.0 if inside else 1.0)
    low = np.maximum(boxes[:, :, None, :2], rectangles[:, None, :, :2])
    high = np.minimum(boxes[:, :, None, 2:], rectangles[:, None, :, 2:])
    meets = np.asarray((low < high).all(3)).any(2)
    image, column = np.nonzero(meets & (views.labels >= 0))  # most boxes meet none
    hull[image, column], share[image, column] = _part(boxes[image, column], rectangles[image], inside)
    return hull, share


def _part(boxes: Floats, rectangles: Floats, inside: bool) -> tuple[Floats, Floats]:
    """The same for boxes (B, 4), each with rectangles of its own (B, K, 4): on the grid of all their edges."""
    boxes, rectangles = boxes.T.copy(), np.moveaxis(rectangles, 0, 2).copy()  # NumPy is quick along the last axis
    clipped = rectangles.clip(boxes[[0, 1, 0, 1]], boxes[[2, 3, 2, 3]])
    (x, within_x), (y, within_y) = (_grid(boxes[axis::2], clipped[:, axis::2]) for axis in (0, 1))
    covered = (within_y[:, :, None] & within_x[:, None]).any(0)  # (rows, columns, B)
    lengths_y, lengths_x = np.diff(y, axis=0)[:, None], np.diff(x, axis=0)
    wanted = (covered == inside) & (lengths_y > 1e-6) & (lengths_x > 1e-6)  # thinner is rounding's
    share = (wanted * lengths_x * lengths_y).sum((0, 1)) / np.prod(boxes[2:] - boxes[:2], axis=0)
    (x0, x1), (y0, y1) = (_ends(edges, wanted.any(axis)) for edges, axis in ((x, 0), (y, 1)))
    return np.stack([x0, y0, x1, y1], axis=1), share


def _grid(box: Floats, rectangles: Floats) -> tuple[Floats, Bools]:
    """One axis, of (2, B) and (K, 2, B): all edges in order (E, B), and (K, E - 1, B): what is between two, covered?"""
    edges = np.sort(np.concatenate([box, rectangles.reshape(2 * len(rectangles), box.shape[1])]), axis=0)
    middle = (edges[1:] + edges[:-1]) / 2
    return edges, np.asarray((rectangles[:, :1] < middle) & (middle < rectangles[:, 1:]))


def _ends(edges: Floats, wanted: Bools) -> tuple[Floats, Floats]:
    """The first and the last edge of the intervals that are wanted, (E - 1, B); 0 and 0 where none is."""
    first = np.where(wanted, edges[:-1], np.inf).min(0)
    last = np.where(wanted, edges[1:], -np.inf).max(0)
    some = wanted.any(0)
    return np.where(some, first, 0), np.where(some, last, 0)


# -------------------------------------------------------------------------------------------------- ops


class _Hiding(PixelOp):
    value: RGB

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        corner, shape = planned["holes"][0], planned["holes"][1]
        return fn.erase(image, anchor=corner, shape=shape, axis_names="HW", fill_value=[float(c) for c in self.value])


@dataclass(frozen=True)
class RandomErasing(_Hiding):
    """Paint one random rectangle over the image, with probability `p` (Zhong et al. 2017; torchvision's RandomErasing).

    `scale`: its area, as a share of the image's. `ratio`: its height / width. torchvision's draw: up to ten sizes
    until one is smaller than the image, any place with the same chance; if none is, nothing is erased. `value`: RGB
    0..255 (in torchvision of the normalised image, by default 0, which is the mean colour; so it is here).

    A box of which the rectangle covers a whole side shrinks to what is left; one of which more than `max_hidden` of
    the area is covered is dropped. The matrix stays.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)] * 3, boxes=[[[20, 10, 60, 90]]] * 3)
    >>> after = samples.then(da.Resize((100, 200)), da.RandomErasing(p=1, scale=(0.3, 0.5)))
    >>> for boxes in after.boxes:
    ...     print(boxes.round().tolist())
    []
    []
    [[20.0, 10.0, 60.0, 44.0]]
    """

    p: float = 0.5
    scale: Range = (0.02, 0.33)
    ratio: Range = (0.3, 3.3)
    value: RGB = FILL
    max_hidden: float = 0.7

    def __post_init__(self) -> None:
        check_p(self.p)
        check_range("scale", self.scale, 0, 1)
        check_range("ratio", self.ratio, 1e-6, 1e6)
        check_rgb("value", self.value)
        check_share("max_hidden", self.max_hidden)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {
            "erase": rng.random(n) < self.p,
            "area": rng.uniform(*self.scale, (n, 10)),
            "ratio": np.exp(rng.uniform(np.log(self.ratio[0]), np.log(self.ratio[1]), (n, 10))),
            "offset": rng.random((n, 2)),
        }

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        area = drawn["area"] * views.size.prod(1, keepdims=True)
        sides = np.round(np.sqrt(np.stack([area * drawn["ratio"], area / drawn["ratio"]], axis=2)))  # (N, 10, 2)
        fits = (sides < views.size[:, None]).all(2)
        first = np.take_along_axis(sides, fits.argmax(1)[:, None, None], 1)[:, 0]
        shape = np.where((drawn["erase"] & fits.any(1))[:, None], first, 0)
        corner = np.floor(drawn["offset"] * (views.size - shape + 1))
        rectangles = np.concatenate([corner, corner + shape], axis=1)[:, None, [1, 0, 3, 2]]
        return cover(views, rectangles, self.max_hidden), {"holes": np.stack([corner, shape], axis=1)}


@dataclass(frozen=True)
class GridMask(_Hiding):
    """Paint a grid of squares over the image, with probability `p` (Chen et al. 2020, GridMask; not turned).

    The squares stand `size` pixels apart, from one's left side to the next one's, drawn from (smallest, largest) in
    whole output pixels; their side is `ratio` times that, in whole pixels; the grid begins anywhere. `value`: RGB
    0..255, by default the mean colour, which is what the paper's 0 is after normalisation.

    A box shrinks where a square covers a whole side of it; one of which more than `max_hidden` of the area is covered
    is dropped, so boxes that lie in a square are dropped. The matrix stays.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)] * 3, boxes=[[[20, 10, 50, 40]]] * 3)
    >>> after = samples.then(da.Resize((100, 200)), da.GridMask(p=1, size=(60, 80)))
    >>> for boxes in after.boxes:
    ...     print(boxes.round().tolist())
    [[20.0, 10.0, 50.0, 40.0]]
    [[20.0, 10.0, 50.0, 34.0]]
    [[20.0, 10.0, 50.0, 40.0]]
    """

    p: float = 0.5
    ratio: float = 0.5
    size: tuple[int, int] = (96, 224)
    value: RGB = FILL
    max_hidden: float = 0.7

    def __post_init__(self) -> None:
        check_p(self.p)
        inside = isinstance(self.ratio, int | float) and 0 < self.ratio < 1
        check("ratio", self.ratio, inside, "a side of the squares, as a share of their distance, above 0 and below 1")
        whole = isinstance(self.size, tuple | list) and len(self.size) == 2 and all(type(s) is int for s in self.size)
        in_order = whole and 2 <= self.size[0] <= self.size[1]
        check("size", self.size, in_order, "(smallest, largest) distance in whole pixels, at least 2")
        check_rgb("value", self.value)
        check_share("max_hidden", self.max_hidden)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        size = rng.integers(self.size[0], self.size[1] + 1, n)
        return {"mask": rng.random(n) < self.p, "size": size, "offset": rng.random((n, 2))}

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        size = drawn["size"].astype(np.float64)
        side = np.where(drawn["mask"], np.round(self.ratio * size).clip(1, size - 1), 0)
        start = -np.floor(drawn["offset"] * size[:, None])  # (N, 2), (x, y) of the first square
        return _masked(views, start, size, side, self.max_hidden), {"holes": self._holes(views, start, size, side)}

    def _holes(self, views: Views, start: Floats, size: Floats, side: Floats) -> Floats:
        """(N, 2, 2 K): the corners y, x of all squares, one after the other, and their heights and widths."""
        counts = [int(np.ceil(most / self.size[0])) + 1 for most in views.size.max(0)]
        steps = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), axis=-1).reshape(-1, 2)  # (K, 2)
        low = start[:, None, ::-1] + steps * size[:, None, None]
        corner, end = (each.clip(0, views.size[:, None]) for each in (low, low + side[:, None, None]))
        return np.stack([corner, end - corner], axis=1).reshape(len(views), 2, -1)


def _masked(views: Views, start: Floats, size: Floats, side: Floats, max_hidden: float) -> Views:
    """The views behind a grid of squares, of `side` (N,), every `size` (N,) pixels from `start` (N, 2) (x, y) on."""
    boxes = views.pixel_boxes()
    start, size, side = np.tile(start, 2)[:, None], size[:, None, None], side[:, None, None]
    hidden = np.floor((boxes - start) / size) * side + np.minimum((boxes - start) % size, side)
    length, hidden = boxes[..., 2:] - boxes[..., :2], hidden[..., 2:] - hidden[..., :2]
    within = boxes + np.array([1e-6, 1e-6, -1e-6, -1e-6])
    phase = (within - start) % size  # of each coordinate, in its square and the gap behind it
    behind = np.tile((hidden >= length - 1e-6)[..., ::-1], 2)  # whole height, width: the other axis is cut
    square = within - phase + np.array([1, 1, 0, 0]) * side  # where the square ends, or begins
    left = np.where(behind & (phase < side), square, boxes)
    share = 1 - (hidden / length.clip(1e-9)).prod(2)
    return views.shrink_boxes(left, share, 1 - max_hidden)
