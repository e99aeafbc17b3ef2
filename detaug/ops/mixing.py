"""Ops that mix images of a batch, after `Resize`.

An image's partners come from its group, 8 consecutive images of its batch, each of the others with equal chance: so a
seed gives the same images for any number of pipelines, and of processes if the batch of each is a multiple of 8.
`Views.drawing` keeps where each image went, so that `Batch.boxes_in_source` takes each box back to its own image;
the matrix stays that of the image itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar

import numpy as np
from nvidia.dali import fn, types

from detaug.arguments import FILL, Range, check, check_p, check_range, check_share, is_number, is_whole
from detaug.arrays import Arrays, Bools, Floats, Ints, in_order
from detaug.boxes import polygons
from detaug.boxes.layers import room
from detaug.boxes.views import NO_LIMITS, Fill, Views, inverse, part_matrix
from detaug.gpu.passes import GpuPass
from detaug.gpu.pixel_passes import AveragePass
from detaug.ops.erasing import cover, covered_parts
from detaug.ops.filters import as_bytes
from detaug.ops.mixing_loops import move_boxes
from detaug.ops.op import PixelOp
from detaug.ops.resize import first_of_batch
from detaug.pipelines.graph import Node, Nodes, apply_where
from detaug.pixel_format import for_bands

GROUP = 8
"""Images that are mixed with each other. A smaller batch is one group; the last group of a batch takes the rest."""


def partner_of_each(views: Views, drawn: Floats) -> Ints:
    """Return (N,): the index of another image of each image's group; a single image is its own partner.

    `drawn`: (N,) in [0, 1).
    """
    return partners(views, drawn[:, None])[:, 0]


def partners(views: Views, drawn: Floats) -> Ints:
    """Return indices (N, K) of K different images of each image's group, not the image itself.

    `drawn`: (N, K) in [0, 1). In a group of K images or fewer some come twice; a single image is its own partner.
    """
    first, count = _groups(views)
    own, others = np.arange(len(views)) - first, count - 1
    steps = np.zeros((len(views), 0), np.int64)  # from the image to its partners, less one
    for number, share in enumerate(drawn.T):
        enough = others > number
        step = np.floor(share * np.where(enough, others - number, others)).astype(np.int64)
        # pass over those that are taken, from the nearest on: the others stay equally likely
        for earlier in np.sort(steps, axis=1).T:
            step += enough & (step >= earlier)
        steps = np.column_stack([steps, step])
    return np.asarray(first[:, None] + (own[:, None] + 1 + steps) % count[:, None])


def _groups(views: Views) -> tuple[Ints, Ints]:
    """Return (N,) each: the index of the first image of each image's group, and the size of the group."""
    first = first_of_batch(views)
    size = np.searchsorted(views.batch, views.batch, side="right") - first
    last = (size // GROUP - 1).clip(0)
    group = np.minimum((np.arange(len(views)) - first) // GROUP, last)
    return first + GROUP * group, np.where(group < last, GROUP, size - GROUP * last)


class PasteTiles(PixelOp):
    """Pastes rectangles of the batch's images, later ones over earlier ones, planned as "tiles" (see `tiles_of`).

    Where no tile is, the image has the fill of `views`. The plan then has those rectangles as "gaps" (see `_gaps`), and
    "has_gaps" for each image: the others cost nothing.
    """

    mixes: ClassVar[bool] = True
    any_bands: ClassVar[bool] = True

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        tiles = planned["tiles"]  # all in one input: a feed costs DALI more than an index in its graph
        below = image
        image = fn.multi_paste(image, in_ids=tiles[0, :, 0], in_anchors=tiles[1], out_anchors=tiles[2], shapes=tiles[3])
        if "pixels" in planned:
            return _only_pixels(planned["pixels"], image, below)
        if "gaps" not in planned:
            return image
        gaps = {"gaps": planned["gaps"]}
        fill = for_bands(views.fill or FILL, views.pixels)
        fill = tuple(map(round, fill)) if views.pixels.is_rgb8 else fill
        return apply_where(planned["has_gaps"], image, gaps, partial(_fill_gaps, fill=fill))


def _fill_gaps(image: Node, planned: Nodes, fill: Fill) -> Node:
    corner, shape = planned["gaps"][0], planned["gaps"][1]
    return fn.erase(image, anchor=corner, shape=shape, axis_names="HW", fill_value=[float(number) for number in fill])


def _only_pixels(packed: Node, image: Node, below: Node) -> Node:
    """Return `image` where a packed pixel is set, and elsewhere what is `below`."""
    bits = types.Constant(np.uint32(1) << np.arange(32, dtype=np.uint32), shape=[1, 1, 32])
    packed = fn.expand_dims(packed.gpu() if image.device == "gpu" else packed, axes=2)
    shown = fn.reshape(fn.cast_like((packed & bits) != 0, image), rel_shape=[1, 32, 1 / 32])
    shown = fn.slice(shown, start=[0, 0], shape=image.shape(dtype=types.INT32)[:2], axes=[0, 1])
    return image * shown + below * (1 - shown)


def tiles_of(views: Views, images: Ints, source: Floats, target: Floats) -> Arrays:
    """Return the input of `PasteTiles`: T tiles per image.

    `images` (N, T): the image that each tile shows; `source` (N, T, 4) XYXY: its rectangle of that image; `target`
    (N, T, 2) (x, y): where it goes. "tiles" is (N, 4, T, 2): slot (twice), source corner, target corner, size; (y, x).
    """
    index = views.slot[images]
    in_anchor, shape = source[..., 1::-1], (source[..., 2:] - source[..., :2])[..., ::-1]
    tiles = np.stack([np.stack([index, index], axis=2), in_anchor, target[..., ::-1], shape], axis=2).astype(np.int64)
    # DALI's GPU kernel pastes wrongly where an empty tile is last
    empty_first = np.argsort((shape > 0).all(2), axis=1, kind="stable")
    return {"tiles": tiles[np.arange(len(views))[:, None], empty_first].swapaxes(1, 2)}


def whole_rectangles(views: Views) -> Floats:
    """Return (N, 4): the rectangles of the whole images, XYXY pixels."""
    return np.concatenate([np.zeros((len(views), 2)), views.size[:, ::-1]], axis=1)


# ----------------------------------------------------------------------------------------------- mosaic


@dataclass(frozen=True)
class Mosaic(PasteTiles):
    """Combine the image and three of its group as 2 x 2 tiles (Bochkovskiy et al. 2020, YOLOv4).

    Each tile shows a part of an image at full size, not resampled: the part next to the point where the tiles meet, as
    in Ultralytics' mosaic, so the top left tile shows the bottom right of its image. Fill around an image, such as the
    border of a letterbox, is left out: the images touch, and the fill is at the rim of the mosaic, where an image ends
    before the rim. The image itself is in any of the four quadrants (Ultralytics: top left); the four images are
    different ones if the batch has four. A group is 8 images of the batch.

    Boxes are clipped to their tile, and dropped if the rest is thinner than a pixel. The matrix is that of the image's
    own tile.

    Args:
        p: Probability per image.
        center: (smallest, largest) x and y of the point where the tiles meet, as fractions of width and height. (0, 1)
            gives the middle of Ultralytics' mosaic of twice the width and height.
        min_visibility: A box is dropped if less than this fraction of its area is in its tile.
        until_epoch: From this epoch on, counted from 0, the op does nothing; None: never. Ultralytics'
            `close_mosaic=10` is `until_epoch=epochs - 10`.

    >>> images = [np.full((100, 100, 3), gray, np.uint8) for gray in (0, 200)]
    >>> samples = da.batch(images, [[[10, 10, 40, 40]], [[50, 60, 90, 90]]], labels=[[1], [2]])
    >>> after = samples.then(da.Resize((100, 100)), da.Mosaic())
    >>> for labels, boxes in zip(after.labels, after.boxes):
    ...     print(labels, boxes.round().tolist())
    [2 2 2] [[77.0, 86.0, 100.0, 100.0], [0.0, 0.0, 17.0, 16.0], [77.0, 0.0, 100.0, 16.0]]
    [1 1] [[76.0, 81.0, 100.0, 100.0], [76.0, 0.0, 100.0, 11.0]]
    """

    p: float = 1.0
    center: Range = (0.25, 0.75)
    min_visibility: float = 0.1
    until_epoch: int | None = None

    def check_arguments(self) -> None:
        check_p(self.p)
        check_range("center", self.center, 0, 1)
        check_share("min_visibility", self.min_visibility)
        whole = self.until_epoch is None or is_whole(self.until_epoch, 0)
        check("until_epoch", self.until_epoch, whole, "None or a whole number of epochs")

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        return {
            "mosaic": rng.random(n) < self.p,
            "center": rng.uniform(*self.center, (n, 2)),
            "quadrant": rng.integers(4, size=n),
            "partners": rng.random((n, 3)),
        }

    def adapt_draw(self, views: Views, drawn: Arrays) -> Arrays:
        """Store that there is no mosaic from `until_epoch` on: a replayed batch does not know its epoch."""
        return drawn | {"mosaic": drawn["mosaic"] & (self.until_epoch is None or views.epoch < self.until_epoch)}

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        mosaic = drawn["mosaic"][:, None, None]
        own = np.arange(len(views))[:, None]
        images = np.concatenate([own, partners(views, drawn["partners"])], axis=1)
        quadrant = (drawn["quadrant"][:, None] + np.arange(4)) % 4  # of the own image, then of the partners
        after = np.stack([quadrant % 2, quadrant // 2], axis=2) == 1  # (N, 4, 2): whether it is right, bottom
        middle = np.round(drawn["center"] * views.size[:, ::-1])[:, None]
        source, target = _around(middle, after, views, _without_fill(views)[images])
        gaps = mosaic * _gaps(middle, after, views, source, target)
        planned = {} if views.fill is None else {"gaps": gaps, "has_gaps": _any_area(gaps)}
        source = np.where(mosaic, source, _only_own(views))
        target = np.where(mosaic, target, 0)
        planned |= tiles_of(views, images, source, target)
        moved = _move_boxes(views, images, source, target, self.min_visibility)
        drawing = views.drawing_or_whole().paste(images, source, target)
        return replace(moved, drawing=drawing, limits=NO_LIMITS), planned


def _without_fill(views: Views) -> Floats:
    """Return (N, 4) XYXY whole pixels: the rectangle of each image inside the fill around it."""
    if views.fill is None:
        return whole_rectangles(views)
    source = polygons.from_boxes(views.source_bounds.reshape(-1, 1, 4))
    shown = polygons.hull(polygons.transform(inverse(views.matrix), source))[:, 0].clip(0, 1)
    if views.clip_region is not None:
        low, high = np.split(polygons.hull(views.clip_region), 2, axis=1)
        shown = shown.clip(np.tile(low, 2), np.tile(high, 2))
    return np.asarray(np.round(shown * np.tile(views.size[:, ::-1], 2)))


def _around(middle: Floats, after: Bools, views: Views, whole: Floats) -> tuple[Floats, Floats]:
    """Return the tiles' rectangles of their images, (N, T, 4), and where they go, (N, T, 2) (x, y).

    `middle` (N, 1, 2) (x, y): where the tiles meet. `after` (N, T, 2): whether a tile is right of it, and below it.
    `whole` (N, T, 4): the rectangles of the images that may be shown.
    """
    low, high = whole[..., :2], whole[..., 2:]
    room = np.where(after, views.size[:, None, ::-1] - middle, middle)
    shape = np.minimum(room, high - low)
    start = np.where(after, low, high - shape)
    return np.concatenate([start, start + shape], axis=2), np.where(after, middle, middle - shape)


def _gaps(middle: Floats, after: Bools, views: Views, source: Floats, target: Floats) -> Floats:
    """Return (N, 2, 4 T): corners (y, x), concatenated, and sizes of the rectangles between the tiles and the rim.

    Each tile has one beside it and one above or below it. For the arguments see `_around`, which returned two of them.
    """
    size = np.broadcast_to(views.size[:, None, ::-1], target.shape)
    low, high = np.where(after, middle, 0), np.where(after, size, middle)  # the quadrants
    start = np.where(after, target + source[..., 2:] - source[..., :2], low)
    end = np.where(after, high, target)
    corner = np.stack([low[..., 1], start[..., 0], start[..., 1], low[..., 0]], axis=2)
    opposite = np.stack([high[..., 1], end[..., 0], end[..., 1], high[..., 0]], axis=2)
    return np.stack([corner, opposite - corner], axis=1).reshape(len(views), 2, -1)


def _any_area(gaps: Floats) -> Bools:
    """Return (N,): whether any of the rectangles has an area. `gaps`: as `_gaps` returns them."""
    sides = gaps[:, 1].reshape(len(gaps), -1, 2)
    return np.asarray((sides.prod(2) > 0).any(1))


def _only_own(views: Views) -> Floats:
    """Return (N, 4, 4): the whole image, and empty rectangles of three others."""
    return np.stack([whole_rectangles(views), *np.zeros((3, len(views), 4))], axis=1)


def _move_boxes(views: Views, images: Ints, source: Floats, target: Floats, min_visibility: float) -> Views:
    """Return the views with the boxes that their tiles show, and the matrix of the first tile. See also `tiles_of`."""
    size = views.size[:, None, ::-1]
    shift = (target - source[..., :2]) / size
    place, counts, moved, share, layers = move_boxes(
        *in_order(views.boxes, views.labels, images, source / np.tile(size, 2), shift, views.size), min_visibility
    )
    if views.drawing is not None:
        layers = layers * room(views.drawing.count) + views.layer_of_box_or_first().ravel()[place]
    matrix = part_matrix(views.matrix, -shift[:, 0], 1 - shift[:, 0])
    left = replace(views, matrix=matrix, fill=None, outlines=None)
    visible = views.visible.ravel()[place] * share
    return left.select_boxes(place, counts, boxes=moved, visible=visible, layer_of_box=layers)


def with_added(views: Views, own: Views, added: Views, images: Ints, source: Floats, **more: Any) -> Views:
    """Return views of tiles that stay where they are in their image: the image's own first, then its partner's.

    `own`: `views` with the boxes that are left; `added`: the partners with theirs. `images`, `source`: see `tiles_of`;
    `interval`, `copy`: see `Layers.paste`.
    """
    drawing = views.drawing_or_whole()
    ours, theirs = own.layer_of_box_or_first(), added.layer_of_box_or_first() + room(drawing.count)
    joined = replace(own, layer_of_box=ours).with_boxes_of(replace(added, layer_of_box=theirs))
    drawing = drawing.paste(images, source, source[..., :2], **more)
    return replace(joined, drawing=drawing, limits=NO_LIMITS)


# ------------------------------------------------------------------------------------------------ mixup


@dataclass(frozen=True)
class MixUp(PixelOp):
    """Average the image and one of its group with random weights (Zhang et al. 2018).

    The result is image * lam + partner * (1 - lam). All boxes of both images stay unchanged, as in YOLOX and
    MMDetection, also where an alpha below 1 leaves one of the two hardly visible: a `Batch` has no weights. The matrix
    is that of the image itself.

    Args:
        p: Probability per image.
        alpha: Of the distribution Beta(alpha, alpha) from which lam is sampled; 32 is Ultralytics'. YOLOX has lam =
            0.5, as a large alpha nearly has.

    >>> images = [np.full((100, 100, 3), gray, np.uint8) for gray in (0, 200)]
    >>> samples = da.batch(images, [[[10, 10, 40, 40]], [[50, 60, 90, 90]]], labels=[[1], [2]])
    >>> after = samples.then(da.Resize((100, 100)), da.MixUp())
    >>> print(after.labels, after.images[0][0, 0])  # grey 90: 0.45 of the second image
    [array([1, 2]), array([2, 1])] [90 90 90]
    """

    p: float = 1.0
    alpha: float = 32.0

    mixes: ClassVar[bool] = True
    any_bands: ClassVar[bool] = True

    def check_arguments(self) -> None:
        check_p(self.p)
        check_alpha(self.alpha)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        share = np.where(rng.random(n) < self.p, rng.beta(self.alpha, self.alpha, n), 1)
        return {"share": share, "partner": rng.random(n)}

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        own, partner = np.arange(len(views)), partner_of_each(views, drawn["partner"])
        mixed = (drawn["share"] < 1) & (partner != own)
        images = np.where(mixed, partner, own)
        other = views[images]
        planned = {"partner": views.slot[images], "share": drawn["share"]}
        added = other.keep(np.tile(mixed[:, None], other.labels.shape[1:]))
        whole = whole_rectangles(views)
        source = np.stack([whole, np.where(mixed[:, None], whole, 0)], axis=1)
        share, one = np.where(mixed, drawn["share"], 1), np.ones(len(views))
        interval = np.stack([0 * one, share, share, one], axis=1).reshape(-1, 2, 2)
        return with_added(views, views, added, np.stack([own, images], axis=1), source, interval=interval), planned

    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        partner = fn.permute_batch(image, indices=planned["partner"])
        mixed = image * planned["share"] + partner * (1.0 - planned["share"])
        return as_bytes(mixed) if views.pixels.is_rgb8 else mixed

    def gpu_pass(self, views: Views) -> GpuPass:
        return AveragePass()


def check_alpha(alpha: float) -> None:
    check("alpha", alpha, is_number(alpha, 0) and alpha > 0, "a number above 0, for Beta(alpha, alpha)")


# ------------------------------------------------------------------------- rectangles of another image


class PasteRectangles(PasteTiles):
    """Pastes rectangles of one other image at the same position. A subclass chooses them."""

    min_visibility: float
    max_hidden: float

    def rectangles(self, views: Views, partner: Views, drawn: Arrays) -> Floats:
        """Return (N, K, 4) XYXY in whole pixels, empty ones for images that do not change."""
        raise NotImplementedError(f"{type(self).__name__} must define rectangles(views, partner, drawn)")

    def plan(self, views: Views, drawn: Arrays) -> tuple[Views, Arrays]:
        partner_index = partner_of_each(views, drawn["partner"])
        partner = views[partner_index]
        alone = partner_index == np.arange(len(views))
        pasted = np.where(alone[:, None, None], 0, self.rectangles(views, partner, drawn))
        added = partner.shrink_boxes(*covered_parts(partner, pasted, inside=True), self.min_visibility)
        source = np.concatenate([whole_rectangles(views)[:, None], pasted], axis=1)
        own, other = np.arange(len(views))[:, None], np.tile(partner_index[:, None], (1, pasted.shape[1]))
        images = np.concatenate([own, other], axis=1)
        covered = cover(views, pasted, self.max_hidden)
        copy = np.minimum(np.arange(images.shape[1]), 1)  # all rectangles show one copy of the partner
        joined = with_added(views, covered, added, images, source, copy=copy)
        return joined, tiles_of(views, images, source, source[..., :2])


@dataclass(frozen=True)
class CutMix(PasteRectangles):
    """Paste a random rectangle of another image of its group (Yun et al. 2019).

    The rectangle is torchvision's: its area is 1 - lam of the image's, its center is anywhere, and what would lie
    outside is cut off. It keeps its position, in whole pixels. Boxes of the other image are added, clipped to the
    rectangle. A box of the image itself shrinks where the rectangle covers a whole side of it. Boxes thinner than a
    pixel are dropped. The matrix is the image's own.

    Args:
        p: Probability per image.
        alpha: Of the distribution Beta(alpha, alpha) from which lam is sampled.
        min_visibility: A box of the other image is added if at least this fraction of its area is in the rectangle.
        max_hidden: A box of the image itself is dropped if more than this fraction of its area is covered.

    >>> images = [np.full((100, 100, 3), gray, np.uint8) for gray in (0, 200)]
    >>> samples = da.batch(images, [[[10, 10, 40, 40]], [[50, 60, 90, 90]]], labels=[[1], [2]], seed=1)
    >>> after = samples.then(da.Resize((100, 100)), da.CutMix())
    >>> for labels, boxes in zip(after.labels, after.boxes):
    ...     print(labels, boxes.round().tolist())
    [1 2] [[10.0, 10.0, 40.0, 40.0], [50.0, 60.0, 90.0, 90.0]]
    [2] [[50.0, 60.0, 90.0, 90.0]]
    """

    p: float = 1.0
    alpha: float = 1.0
    min_visibility: float = 0.3
    max_hidden: float = 0.7

    def check_arguments(self) -> None:
        check_p(self.p)
        check_alpha(self.alpha)
        check_share("min_visibility", self.min_visibility)
        check_share("max_hidden", self.max_hidden)

    def draw(self, rng: np.random.Generator, n: int) -> Arrays:
        share = np.where(rng.random(n) < self.p, 1 - rng.beta(self.alpha, self.alpha, n), 0)
        return {"share": share, "center": rng.random((n, 2)), "partner": rng.random(n)}

    def rectangles(self, views: Views, partner: Views, drawn: Arrays) -> Floats:
        size = views.size[:, ::-1]
        half = np.floor(0.5 * np.sqrt(drawn["share"])[:, None] * size)
        center = np.floor(drawn["center"] * size)
        corners = [(center - half).clip(0, size), (center + half).clip(0, size)]
        return np.concatenate(corners, axis=1)[:, None]
