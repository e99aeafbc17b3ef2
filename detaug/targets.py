"""Training targets of a whole batch, computed on its device: SSD's and RetinaNet's matched boxes.

Matching needs a few (N, M, A) float32 tensors for N images, at most M boxes per image, and A default boxes: 110 MB each
for 32 images, 100 boxes and SSD300's 8,732.
"""

from __future__ import annotations

from math import sqrt
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from detaug.arguments import check
from detaug.loading.batch import Batch
from detaug.loading.trainer_formats import center_and_size

Weights = tuple[float, float, float, float]


class Matched(NamedTuple):
    """The targets of A default boxes (anchors) in N images."""

    labels: Tensor
    """(N, A) int64: 1..K; 0 is background; -1 is ignored."""
    offsets: Tensor
    """(N, A, 4) float32: center x, y, log width, log height of the matched box relative to the default box; zeros
    where there is none."""
    rows: Tensor
    """(N, A) int64: the row of the matched box in `batch.boxes[n]`; -1 where there is none."""


def ssd300_default_boxes() -> Tensor:
    """Return (8732, 4) float32 XYXY pixels of a 300 x 300 image: the default boxes of torchvision's `ssd300_vgg16`.

    Six square maps; at each position of a map two squares, and two boxes for each aspect ratio (Liu et al. 2016, 2.2).

    >>> boxes = da.targets.ssd300_default_boxes()
    >>> print(tuple(boxes.shape), boxes[-1])
    (8732, 4) tensor([ 57.7226,   0.0000, 242.2774, 300.0000])
    """
    scales = (0.07, 0.15, 0.33, 0.51, 0.69, 0.87, 1.05)
    maps = ((38, 8, (2,)), (19, 16, (2, 3)), (10, 32, (2, 3)), (5, 64, (2, 3)), (3, 100, (2,)), (1, 300, (2,)))
    return torch.cat(
        [_map_boxes(*feature_map, scales[index], scales[index + 1]) for index, feature_map in enumerate(maps)]
    )


def ssd(
    batch: Batch, default_boxes: Tensor, *, threshold: float = 0.5, weights: Weights = (10.0, 10.0, 5.0, 5.0)
) -> Matched:
    """Compute SSD's targets (Liu et al. 2016, 2.2), equal to those of torchvision's `SSDMatcher` and `BoxCoder`.

    A default box is matched to the object with the largest IoU if that is at least `threshold`. Each object is also
    matched to the default box with its largest IoU, however small; if two objects share it, the later one gets it.

    Args:
        batch: The batch.
        default_boxes: (A, 4) XYXY pixels, see `ssd300_default_boxes`.
        threshold: The IoU from which a default box is matched.
        weights: Of offsets in x, y and in log width, height; 10, 10, 5, 5 are the variances 0.1, 0.1, 0.2, 0.2.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> batch = next(iter(da.Loader(reader, da.presets.evaluation((300, 300)), batch_size=4, train=False)))
    >>> matched = da.targets.ssd(batch, da.targets.ssd300_default_boxes())
    >>> print(tuple(matched.offsets.shape), (matched.labels > 0).sum(1))  # default boxes with an object, each image
    (4, 8732, 4) tensor([29, 17, 27, 34])
    """
    boxes, labels, mask, default_boxes = _inputs(batch, default_boxes)
    overlaps = _overlaps(boxes, mask, default_boxes)
    largest, nearest = overlaps.max(1)
    rows = nearest.where(largest >= threshold, -1)
    forced = _best_for_each_object(overlaps, mask)
    return _matched(boxes, labels, default_boxes, forced.where(forced >= 0, rows), weights)


def retinanet(
    batch: Batch,
    anchors: Tensor,
    *,
    low: float = 0.4,
    high: float = 0.5,
    allow_low_quality_matches: bool = True,
    weights: Weights = (1.0, 1.0, 1.0, 1.0),
) -> Matched:
    """Compute RetinaNet's targets (Lin et al. 2017, 4.1), equal to those of torchvision's `Matcher` and `BoxCoder`.

    An anchor is matched to the object with the largest IoU if that is at least `high`; under `low` it is background;
    between them it is ignored, label -1. With `allow_low_quality_matches` the anchors with an object's largest IoU,
    however small, are matched to the object with which they have the largest IoU.

    Args:
        batch: The batch.
        anchors: (A, 4) XYXY pixels.
        low: The IoU under which an anchor is background.
        high: The IoU from which an anchor is matched.
        allow_low_quality_matches: Whether the best anchors of each object are matched in any case.
        weights: Of offsets in x, y and in log width, height.

    >>> reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    >>> batch = next(iter(da.Loader(reader, da.presets.evaluation((300, 300)), batch_size=4, train=False)))
    >>> matched = da.targets.retinanet(batch, da.targets.ssd300_default_boxes())  # your model's anchors
    >>> print((matched.labels > 0).sum(1), (matched.labels < 0).sum(1))  # with an object; ignored
    tensor([29, 17, 30, 34]) tensor([49, 32, 55, 97])
    """
    check("low", low, 0 <= low <= high, f"within 0..high ({high})")
    boxes, labels, mask, anchors = _inputs(batch, anchors)
    overlaps = _overlaps(boxes, mask, anchors)
    largest, nearest = overlaps.max(1)
    matched = largest >= high
    if allow_low_quality_matches:
        best = overlaps.amax(2, keepdim=True)
        matched |= ((overlaps == best) & mask[:, :, None]).any(1)
    result = _matched(boxes, labels, anchors, nearest.where(matched, -1), weights)
    return result._replace(labels=result.labels.masked_fill((largest >= low) & ~matched, -1))


class _Inputs(NamedTuple):
    """The boxes that are matched."""

    boxes: Tensor
    """(N, M, 4)."""
    labels: Tensor
    """(N, M)."""
    mask: Tensor
    """(N, M)."""
    default_boxes: Tensor
    """(A, 4)."""


def _map_boxes(side: int, step: int, ratios: tuple[int, ...], scale: float, next_scale: float) -> Tensor:
    """Return (side * side * (2 + 2 * ratios), 4) XYXY pixels; sides are at most the image's, as in torchvision."""
    pairs = [(scale, scale), (sqrt(scale * next_scale),) * 2]
    for ratio in ratios:
        long, short = scale * sqrt(ratio), scale / sqrt(ratio)
        pairs += [(long, short), (short, long)]
    half = torch.tensor(pairs, dtype=torch.float32, device="cpu").clamp(max=1) * 150
    middles = (torch.arange(side, dtype=torch.float32, device="cpu") + 0.5) * step
    y, x = torch.meshgrid(middles, middles, indexing="ij")
    centers = torch.stack([x, y], -1).reshape(-1, 1, 2)
    return torch.cat([centers - half, centers + half], 2).flatten(0, 1)


def _inputs(batch: Batch, default_boxes: Tensor) -> _Inputs:
    """Return a batch's boxes with M at least 1, and the default boxes on the device of the boxes."""
    shape = tuple(default_boxes.shape)
    check("default boxes", shape, len(shape) == 2 and shape[0] > 0 and shape[1] == 4, "of shape (A, 4), XYXY pixels")
    more = int(batch.boxes.shape[1] == 0)
    boxes, labels, mask = pad(batch.boxes, (0, 0, 0, more)), pad(batch.labels, (0, more)), pad(batch.valid, (0, more))
    return _Inputs(boxes, labels, mask, default_boxes.to(boxes))


def _overlaps(boxes: Tensor, mask: Tensor, default_boxes: Tensor) -> Tensor:
    """Return (N, M, A): IoU of boxes (N, M, 4) and default boxes (A, 4); -1 where a box is padding."""
    x0, y0, x1, y1 = boxes[..., None].unbind(2)
    dx0, dy0, dx1, dy1 = default_boxes.unbind(1)
    width = (torch.minimum(x1, dx1) - torch.maximum(x0, dx0)).clamp_(min=0)
    height = (torch.minimum(y1, dy1) - torch.maximum(y0, dy0)).clamp_(min=0)
    shared = width.mul_(height)
    union = torch.sub((x1 - x0) * (y1 - y0) + (dx1 - dx0) * (dy1 - dy0), shared, out=height)
    return shared.div_(union).masked_fill_(~mask[..., None], -1)


def _best_for_each_object(overlaps: Tensor, mask: Tensor) -> Tensor:
    """Return (N, A): for each default box the last object that it is the best box of; -1 for none."""
    n, m, a = overlaps.shape
    objects = torch.arange(m, device=overlaps.device).where(mask, -1)
    empty = torch.full((n, a), -1, device=overlaps.device)
    return empty.scatter_reduce_(1, overlaps.argmax(2), objects, "amax")


def _matched(boxes: Tensor, labels: Tensor, default_boxes: Tensor, rows: Tensor, weights: Weights) -> Matched:
    """Return labels and offsets of the boxes at `rows` (N, A)."""
    some, index = rows >= 0, rows.clamp(min=0)
    near = center_and_size(boxes.gather(1, index[..., None].expand(-1, -1, 4)))
    own = center_and_size(default_boxes)
    moved = (near[..., :2] - own[:, :2]) / own[:, 2:]
    grown = (near[..., 2:] / own[:, 2:]).log()
    offsets = torch.cat([moved, grown], 2) * moved.new_tensor(weights)
    return Matched(labels.gather(1, index).where(some, 0), offsets.where(some[..., None], 0), rows)
