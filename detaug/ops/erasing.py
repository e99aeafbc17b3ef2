"""Ops that cover parts of the image, and what they leave of the boxes.

What several rectangles leave of a box has no closed form, since they may overlap. `_covered_part` solves it on the grid
of all their edges: along x and along y it sorts the edges of box and rectangles; the cells between two neighboring
edges are then wholly covered or wholly free. Summing cells gives the visible area, the first and the last free cell
give the hull of what is left. That is exact, and K rectangles take (2 K + 1)^2 cells, for few boxes: most meet none.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from nvidia.dali import fn

from detaug.arguments import (
    FILL,
    RGB,
    Range,
    check,
    check_fill,
    check_p,
    check_range,
    check_share,
    is_number,
    is_wholes,
)
from detaug.arrays import Arrays, Bools, Floats
from detaug.boxes.views import NO_LIMITS, Views
from detaug.gpu.passes import GpuPass
from detaug.gpu.pixel_passes import FillPass
from detaug.ops.op import PixelOp
from detaug.pipelines.graph import Node, Nodes
from detaug.pixel_format import for_bands


def cover(views: Views, rectangles: Floats, max_hidden: float) -> Views:
    """Cover the views with `rectangles`, (N, K, 4) XYXY in output pixels.

    A box shrinks to the hull of what is left of it, and `visible` by its fraction. It is dropped if more than
    `max_hidden` of its area is covered, or if what is left is thinner than a pixel.
    """
    return views.shrink_boxes(*covered_parts(views, rectangles, inside=False), 1 - max_hidden)


def covered_parts(views: Views, rectangles: Floats, *, inside: bool) -> tuple[Floats, Floats]:
    """Find the part of each box inside the union of `rectangles`, (N, K, 4) XYXY in output pixels; or outside of it.

    Returns (N, M, 4), the hull of that part in output pixels, and (N, M), its fraction of the box's area.
    """
    boxes = views.pixel_boxes()
    hull, share = np.where(inside, 0, boxes), np.full(views.labels.shape, 0.0 if inside else 1.0)
    low = np.maximum(boxes[:, :, None, :2], rectangles[:, None, :, :2])
    high = np.minimum(boxes[:, :, None, 2:], rectangles[:, None, :, 2:])
    meets = np.asarray((low < high).all(3)).any(2)
    image, column = np.nonzero(meets & (views.labels >= 0))  # most boxes meet no rectangle
    hull[image, column], share[image, column] = _covered_part(boxes[image, column], rectangles[image], inside)
    return hull, share


def _covered_part(boxes: Floats, rectangles: Floats, inside: bool) -> tuple[Floats, Floats]:
    """Do as `covered_parts`: for boxes (B, 4), each with its own rectangles (B, K, 4), on the grid of all edges."""
    boxes, rectangles = boxes.T.copy(), np.moveaxis(rectangles, 0, 2).copy()  # the short axes first: see `views.py`
    clipped = rectangles.clip(boxes[[0, 1, 0, 1]], boxes[[2, 3, 2, 3]])
    (x, within_x), (y, within_y) = (_grid(boxes[axis::2], clipped[:, axis::2]) for axis in (0, 1))
    covered = (within_y[:, :, None] & within_x[:, None]).any(0)  # (rows, columns, B)
    lengths_y, lengths_x = np.diff(y, axis=0)[:, None], np.diff(x, axis=0)
    wanted = (covered == inside) & (lengths_y > 1e-6) & (lengths_x > 1e-6)  # thinner comes from rounding
    share = (wanted * lengths_x * lengths_y).sum((0, 1)) / np.prod(boxes[2:] - boxes[:2], axis=0)
    (x0, x1), (y0, y1) = (_ends(edges, wanted.any(axis)) for edges, axis in ((x, 0), (y, 1)))
    return np.stack([x0, y0, x1, y1], axis=1), share


def _grid(box: Floats, rectangles: Floats) -> tuple[Floats, Bools]:
    """Make the grid of one axis from (2, B) and (K, 2, B): the sorted edges (E, B), and which cells each covers.

    The cells are (K, E - 1, B).
    """
    edges = np.sort(np.concatenate([box, rectangles.reshape(2 * len(rectangles), box.shape[1])]), axis=0)
    middle = (edges[1:] + edges[:-1]) / 2
    return edges, np.asarray((rectangles[:, :1] < middle) & (middle < rectangles[:, 1:]))


def _ends(edges: Floats, wanted: Bools) -> tuple[Floats, Floats]:
    """Return the first and the last edge (B,) of the wanted cells, (E - 1, B); 0 and 0 where there is none."""
    first = np.where(wanted, edges[:-1], np.inf).min(0)
    last = np.where(wanted, edges[1:], -np.inf).max(0)
    some = wanted.any(0)
    return np.where(some, first, 0), np.where(some, last, 0)


# -------------------------------------------------------------------------------------------------- ops


class _Erasing(PixelOp):
    """Fills rectangles with `value`. A subclass plans "holes", (N, 2, 2 K): corners (y, x), and (height, width)."""

    value: RGB
    any_bands: ClassVar[bool] = True
    covers: ClassVar[bool] = True

    @property
    def band_arguments(self) -> dict[str, tuple[float, ...]]:
        return {"value": tuple(self.value)}

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        corner, shape = planned["holes"][0], planned["holes"][1]
        value = [float(number) for number in for_bands(self.value, views.pixels)]
        return fn.erase(image, anchor=corner, shape=shape, axis_names="HW", fill_value=value)


@dataclass(frozen=True)
class RandomErasing(_Erasing):
    """Cover one random rectangle of the image (Zhong et al. 2017; torchvision's `RandomErasing`).

    The rectangle is torchvision's: up to ten sizes, until one is smaller than the image, at any position with equal
    chance; otherwise the image stays as it is. A box shrinks where the rectangle covers a whole side of it. The matrix
    stays.

    Args:
        p: Probability per image.
        scale: (smallest, largest) area of the rectangle, as a fraction of the image's.
        ratio: (smallest, largest) height / width of the rectangle.
        value: RGB 0..255, by default the mean color, which is torchvision's 0 in the normalized image.
        max_hidden: A box is dropped if more than this fraction of its area is covered.

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

    def check_arguments(self) -> None:
        check_p(self.p)
        check_range("scale", self.scale, 0, 1)
        check_range("ratio", self.ratio, 1e-6, 1e6)
        check_fill("value", self.value)
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
        covered = cover(views, rectangles, self.max_hidden)
        return _with_holes(covered, rectangles), {"holes": np.stack([corner, shape], axis=1)}

    def gpu_pass(self, views: Views) -> GpuPass:
        return FillPass(views.pixels, self.value)


@dataclass(frozen=True)
class GridMask(_Erasing):
    """Cover a grid of squares of the image (Chen et al. 2020, GridMask, without its rotation).

    The grid begins anywhere. A box shrinks where a square covers a whole side of it. The matrix stays.

    Args:
        p: Probability per image.
        ratio: Side of a square as a fraction of the distance, in whole pixels.
        size: (smallest, largest) distance between the left sides of two squares, in whole output pixels.
        value: RGB 0..255, by default the mean color, which is the paper's 0 after normalization.
        max_hidden: A box is dropped if more than this fraction of its area is covered, as it is inside a square.

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

    def check_arguments(self) -> None:
        check_p(self.p)
        inside = is_number(self.ratio, 0, 1) and 0 < self.ratio < 1
        check(
            "ratio", self.ratio, inside, "a side of the squares, as a fraction of their distance, above 0 and below 1"
        )
        in_order = is_wholes(self.size, 2, low=2) and self.size[0] <= self.size[1]
        check("size", self.size, in_order, "(smallest, largest) distance in whole pixels, at least 2")
        check_fill("value", self.value)
        check_share("max_hidden", self.max_hidden)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        size = rng.integers(self.size[0], self.size[1] + 1, n)
        return {"mask": rng.random(n) < self.p, "size": size, "offset": rng.random((n, 2))}

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        size = drawn["size"].astype(np.float64)
        side = np.where(drawn["mask"], np.round(self.ratio * size).clip(1, size - 1), 0)
        start = -np.floor(drawn["offset"] * size[:, None])  # (N, 2), (x, y) of the first square
        holes = self._holes(views, start, size, side)
        corner, shape = holes.reshape(len(views), 2, -1, 2).transpose(1, 0, 2, 3)
        rectangles = np.concatenate([corner, corner + shape], axis=2)[..., [1, 0, 3, 2]]
        return _with_holes(_masked(views, start, size, side, self.max_hidden), rectangles), {"holes": holes}

    def _holes(self, views: Views, start: Floats, size: Floats, side: Floats) -> Floats:
        """Return (N, 2, 2 K): the corners y, x of all squares, concatenated, and their heights and widths."""
        counts = [int(np.ceil(most / self.size[0])) + 1 for most in views.size.max(0)]
        steps = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), axis=-1).reshape(-1, 2)  # (K, 2)
        low = start[:, None, ::-1] + steps * size[:, None, None]
        corner, end = (edges.clip(0, views.size[:, None]) for edges in (low, low + side[:, None, None]))
        return np.stack([corner, end - corner], axis=1).reshape(len(views), 2, -1)

    def gpu_pass(self, views: Views) -> GpuPass:
        return FillPass(views.pixels, self.value)


def _with_holes(views: Views, rectangles: Floats) -> Views:
    """Return views whose layers lie under these holes, (N, K, 4) XYXY in output pixels."""
    return replace(views, drawing=views.drawing_or_whole().with_holes(rectangles), limits=NO_LIMITS)


def _masked(views: Views, start: Floats, size: Floats, side: Floats, max_hidden: float) -> Views:
    """Cover the views with squares of `side` (N,), one every `size` (N,) pixels from `start` (N, 2) (x, y) on.

    A grid needs no sum over squares: along an axis, the covered length up to a coordinate is that of whole periods plus
    that of the last one, so a box's covered area is the product of two differences of it.
    """
    boxes = views.pixel_boxes()
    start, size, side = np.tile(start, 2)[:, None], size[:, None, None], side[:, None, None]
    hidden = np.floor((boxes - start) / size) * side + np.minimum((boxes - start) % size, side)
    length, hidden = boxes[..., 2:] - boxes[..., :2], hidden[..., 2:] - hidden[..., :2]
    within = boxes + np.array([1e-6, 1e-6, -1e-6, -1e-6])
    phase = (within - start) % size  # the position of each coordinate in its period: a square and the gap after it
    whole_side = np.tile((hidden >= length - 1e-6)[..., ::-1], 2)  # the other axis is covered: this one is cut
    square_edge = within - phase + np.array([1, 1, 0, 0]) * side  # where the square ends, or begins
    left = np.where(whole_side & (phase < side), square_edge, boxes)
    share = 1 - (hidden / length.clip(1e-9)).prod(2)
    return views.shrink_boxes(left, share, 1 - max_hidden)
