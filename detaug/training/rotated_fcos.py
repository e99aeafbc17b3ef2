"""A rotated FCOS on torchvision's FCOS: its backbone, pyramid, towers and places, with rotated boxes in their place.

Each place of a feature map predicts 8 numbers of a box. In units of its level's stride: the offset of the center (2),
and the logarithms of width and height (2); then two vectors, of 2a and of 4a for the angle a. The first has no jump at
the ends of le90, -pi/2 and pi/2, where a raw angle has one. But of a square it is the mean of two opposite ones, since
noise decides which side is the longer one, so it learns nothing; and the Gaussians of the loss are circles. The second
tells the angle of a square too, and the first one then which side is the width (arXiv 2211.06368 has both frequencies).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torchvision.models.detection import fcos_resnet50_fpn
from torchvision.models.detection.fcos import FCOS, FCOSHead, FCOSRegressionHead
from torchvision.ops import sigmoid_focal_loss

from detaug.evaluation.rotated import iou_of_quadrangles

NUMBERS = 8
"""Of a box: offset x, y; log width, log height; cos 2a, sin 2a; cos 4a, sin 4a."""

STRIDES_PER_BOX = 4
"""A level takes boxes whose sqrt(width * height) is at most this many strides, and the next finer level does not.

By the longer side, as torchvision's FCOS chooses, a ship of 200 x 40 pixels would be on a map too coarse for its width.
"""

LEAST_CENTERNESS = 0.05
"""Of the place that is nearest to a box narrower than the stride, which may lie outside of it."""

FIRST_BOX = [0.0, 0.0, 1.4, 0.7, 0.0, 0.0, 0.0, 0.0]
"""What an untrained model predicts, about: a box of 4 x 2 strides, which are in the middle of those of a level."""

BETA = 0.1
"""Of the smooth L1 losses."""

WEIGHTS = {"probiou": 1.0, "sides": 0.25, "double": 0.5, "quadruple": 1.0}
"""Of the parts of the loss of boxes: ProbIoU, offset and sides, the vectors of 2a and of 4a.

With 0.25 for the last one, AP75 of unseen drawn squares after 450 steps is 0.43 instead of 1.00
(benchmarks/rotated_detector.py --ratio 1).
"""


class Places(NamedTuple):
    """A places of the feature maps."""

    points: Tensor
    """(A, 2) x, y in pixels of the input."""
    strides: Tensor
    """(A,) of the place's level, in pixels."""

    @staticmethod
    def of(anchors: Tensor) -> Places:
        """Return the places of torchvision's anchors (A, 4) XYXY: squares of a stride around them."""
        return Places((anchors[:, :2] + anchors[:, 2:]) / 2, anchors[:, 2] - anchors[:, 0])

    def some(self, rows: Tensor) -> Places:
        return Places(self.points[rows], self.strides[rows])


class Assigned(NamedTuple):
    """P places that are to predict a box."""

    place: Tensor
    """(P,) among the places."""
    box: Tensor
    """(P,) among the boxes of the image."""
    centerness: Tensor
    """(P,) 1 at the center of the box, 0 at its sides."""


def encode(boxes: Tensor, places: Places) -> Tensor:
    """Return (P, 8): what places are to predict for boxes (P, 5) cx, cy, w, h in pixels, a in radians, clockwise."""
    stride = places.strides[:, None]
    offsets = (boxes[:, :2] - places.points) / stride
    sides = (boxes[:, 2:4].clamp(min=1) / stride).log()
    double, quadruple = (torch.stack([angle.cos(), angle.sin()], 1) for angle in (2 * boxes[:, 4], 4 * boxes[:, 4]))
    return torch.cat([offsets, sides, double, quadruple], 1)


def decode(code: Tensor, places: Places) -> Tensor:
    """Return boxes (P, 5) cx, cy, w, h, a of what places predict, (P, 8); the angle is of the width, modulo pi."""
    stride = places.strides[:, None]
    centers, sides = places.points + code[:, :2] * stride, sides_of(code) * stride
    cos2, sin2, cos4, sin4 = code[:, 4:].unbind(1)
    angle = torch.atan2(sin4, cos4) / 4  # or a quarter turn more: the side on which the vector of 2a lies
    opposite = (2 * angle).cos() * cos2 + (2 * angle).sin() * sin2 < 0
    return torch.cat([centers, sides, (angle + opposite * (torch.pi / 2))[:, None]], 1)


def sides_of(code: Tensor) -> Tensor:
    """Return (P, 2): width and height in strides. The limits keep an untrained model's finite."""
    return code[:, 2:4].clamp(-4, 6).exp()


def corners_of(boxes: Tensor) -> Tensor:
    """Return corners (P, 4, 2) x, y of boxes (P, 5) cx, cy, w, h, a."""
    cos, sin = boxes[:, 4].cos(), boxes[:, 4].sin()
    along = torch.stack([cos, sin], 1) * boxes[:, 2:3] / 2
    across = torch.stack([-sin, cos], 1) * boxes[:, 3:4] / 2
    return boxes[:, None, :2] + torch.stack([-along - across, along - across, along + across, across - along], 1)


def probiou_loss(predicted: Tensor, wanted: Tensor) -> Tensor:
    """Return (P,), 0..1: the Hellinger distance of the Gaussians of boxes, both (P, 8) at the same places.

    Source: ProbIoU, arXiv 2106.06072. A Gaussian's covariance is made from the vector of 2a, so that no angle, which
    jumps, is computed, and no gradient passes atan2.
    """
    moments = []
    for code in (predicted, wanted):
        variances = sides_of(code).square() / 12
        vector = functional.normalize(code[:, 4:6], dim=1, eps=1e-4)
        mean, half = variances.sum(1) / 2, (variances[:, 0] - variances[:, 1]) / 2
        moments.append((mean, half[:, None] * vector, variances.prod(1)))
    (mean1, vector1, det1), (mean2, vector2, det2) = moments
    mean, (cos, sin) = mean1 + mean2, (vector1 + vector2).unbind(1)
    root = (det1 * det2).sqrt()
    det = torch.maximum(mean.square() - cos.square() - sin.square(), 4 * root)  # never less, but for rounding
    x, y = (predicted[:, :2] - wanted[:, :2]).unbind(1)
    far = ((mean + cos) * y.square() + (mean - cos) * x.square() - 2 * sin * x * y) / det / 4
    distance = far + (det / root / 4).log() / 2
    return (1e-3 - torch.expm1(-distance)).sqrt()  # without 1e-3 the gradient is infinite where nothing is wrong


def box_losses(predicted: Tensor, wanted: Tensor) -> Tensor:
    """Return (P,): the loss of boxes (P, 8)."""
    errors = functional.smooth_l1_loss(predicted, wanted, reduction="none", beta=BETA)
    sides, double, quadruple = errors[:, :4].sum(1), errors[:, 4:6].sum(1), errors[:, 6:].sum(1)
    # Which side of a near-square is the width is noise, so it is not learned.
    width, height = sides_of(wanted).unbind(1)
    parts = {
        "probiou": probiou_loss(predicted, wanted),
        "sides": sides,
        "double": (1 - height / width).clamp(min=0) * double,
        "quadruple": quadruple,
    }
    return torch.stack([WEIGHTS[name] * part for name, part in parts.items()]).sum(0)


def match(boxes: Tensor, places: Places, levels: Tensor, radius: float) -> Assigned:
    """Return the places that are to predict the boxes (M, 5) of an image: those in the middle of a box, on its level.

    `levels`: the strides of all levels, the finest first. `radius`: of the middle, in strides. The nearest place always
    predicts a box: boats 5 pixels wide would lie between places. Of several boxes a place predicts the smallest one.
    """
    if not len(boxes):
        none = torch.zeros(0, dtype=torch.int64, device=boxes.device)
        return Assigned(none, none, boxes.new_zeros(0))
    away = places.points[:, None] - boxes[:, :2]
    cos, sin = boxes[:, 4].cos(), boxes[:, 4].sin()
    own = torch.stack([away[..., 0] * cos + away[..., 1] * sin, away[..., 1] * cos - away[..., 0] * sin], -1).abs()
    half, area = boxes[:, 2:4].clamp(min=1) / 2, boxes[:, 2:4].prod(1)
    level = (area.clamp(min=1).sqrt() / (STRIDES_PER_BOX * levels[0])).log2().ceil().long()
    stride = levels[level.clamp(0, len(levels) - 1)]
    on_level = places.strides[:, None] == stride
    inside = on_level & (own < torch.minimum(half, radius * stride[:, None])).all(-1)
    nearest = torch.where(on_level, away.square().sum(-1), torch.inf).argmin(0)
    inside[nearest, torch.arange(len(boxes), device=boxes.device)] = True
    smallest, box = torch.where(inside, area, torch.inf).min(1)
    place = smallest.isfinite().nonzero()[:, 0]
    box = box[place]
    ratio = own[place, box] / half[box]
    centerness = ((1 - ratio).clamp(min=0) / (1 + ratio)).prod(1).sqrt()
    return Assigned(place, box, centerness.clamp(min=LEAST_CENTERNESS))


def rotated_nms(corners: Tensor, scores: Tensor, labels: Tensor, threshold: float) -> Tensor:
    """Return the rows that non-maximum suppression within each class keeps, best first; it runs on the CPU.

    Args:
        corners: (K, 4, 2) x, y.
        scores: (K,).
        labels: (K,).
        threshold: A box is dropped if its IoU with a better one of its class is above it.

    Returns:
        (R,) int64.
    """
    order = scores.argsort(descending=True, stable=True)
    shapes, classes = corners[order].detach().double().cpu().numpy(), labels[order].cpu().numpy()
    later_of_class = np.triu(classes[:, None] == classes, 1)
    over = iou_of_quadrangles(shapes, shapes, among=later_of_class) > threshold
    stays = np.ones(len(classes), bool)
    for row in np.flatnonzero(over.any(1)).tolist():
        if stays[row]:
            stays &= ~over[row]
    return order[torch.from_numpy(np.flatnonzero(stays)).to(order.device)]


class RotatedRegressionHead(FCOSRegressionHead):  # type: ignore[misc]
    """torchvision's head of boxes and center-ness, with the numbers of a rotated box."""

    def __init__(self, channels: int, convs: int) -> None:
        super().__init__(channels, 1, convs)
        self.bbox_reg = nn.Conv2d(channels, NUMBERS, 3, padding=1)
        nn.init.normal_(self.bbox_reg.weight, std=0.01)
        self.bbox_reg.bias = nn.Parameter(torch.tensor(FIRST_BOX))

    def forward(self, features: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Return (N, A, 8) and (N, A, 1) of all levels."""
        towers = [self.conv(feature) for feature in features]
        heads = self.bbox_reg, self.bbox_ctrness
        boxes, centerness = (
            torch.cat([head(tower).flatten(2).transpose(1, 2) for tower in towers], 1) for head in heads
        )
        return boxes, centerness


class RotatedFCOS(FCOS):  # type: ignore[misc]
    """torchvision's FCOS for rotated boxes.

    In training the targets of each image need `rotated` (M, 5), center x, y, width, height in pixels and the angle in
    radians, clockwise, and `labels` (M,), as `Batch.targets(rotated=True)` returns them. Else each image has `corners`
    (K, 4, 2) x, y in pixels, `boxes` (K, 4) XYXY around them, cut at the edges of the image, `scores` and `labels`.

    Args:
        backbone: With `out_channels`; it returns the levels of a pyramid, the finest first, of strides 8, 16, ...
        num_classes: Counts the background.
        convs: Layers of each tower.
        options: Those of torchvision's FCOS. `topk_candidates` is of all levels together.
    """

    def __init__(self, backbone: nn.Module, num_classes: int, convs: int = 4, **options: Any) -> None:
        channels: int = backbone.out_channels  # type: ignore[assignment]
        head = FCOSHead(channels, 1, num_classes, convs)
        head.regression_head = RotatedRegressionHead(channels, convs)
        # A threshold of 0.2 as for DOTA: the boxes of elongated objects that lie side by side hardly overlap.
        defaults = {"nms_thresh": 0.2, "detections_per_img": 300, "topk_candidates": 2000}
        super().__init__(backbone, num_classes, head=head, **{**defaults, **options})

    def compute_loss(
        self,
        targets: Sequence[Mapping[str, Tensor]],
        head_outputs: Mapping[str, Tensor],
        anchors: Sequence[Tensor],
        num_anchors_per_level: Sequence[int],
    ) -> dict[str, Tensor]:
        """Return the losses of classes, boxes and center-ness, each per place that is to predict a box."""
        places = Places.of(anchors[0])  # the same for each image of a stack
        levels = torch.stack([level[0] for level in torch.split(places.strides, list(num_anchors_per_level))])
        matches = [match(target["rotated"], places, levels, self.center_sampling_radius) for target in targets]
        image = torch.cat(
            [matched.place.new_full((len(matched.place),), index) for index, matched in enumerate(matches)]
        )
        place, centerness = (torch.cat([matched[column] for matched in matches]) for column in (0, 2))
        pairs = [*zip(targets, matches, strict=True)]
        boxes, labels = (torch.cat([target[name][own.box] for target, own in pairs]) for name in ("rotated", "labels"))
        logits = head_outputs["cls_logits"]
        wanted = torch.zeros_like(logits)
        wanted[image, place, labels] = 1
        of_boxes = box_losses(head_outputs["bbox_regression"][image, place], encode(boxes, places.some(place)))
        of_centerness = functional.binary_cross_entropy_with_logits(
            head_outputs["bbox_ctrness"][image, place, 0], centerness, reduction="sum"
        )
        count = max(1, len(place))
        return {
            "classification": sigmoid_focal_loss(logits, wanted, reduction="sum") / count,
            "bbox_regression": (of_boxes * centerness).sum() / centerness.sum().clamp(min=LEAST_CENTERNESS),
            "bbox_ctrness": of_centerness / count,
        }

    def postprocess_detections(
        self,
        head_outputs: Mapping[str, Sequence[Tensor]],
        anchors: Sequence[Sequence[Tensor]],
        image_shapes: Sequence[tuple[int, int]],
    ) -> list[dict[str, Tensor]]:
        """Return the detections of each image, best first."""
        logits, codes, centerness = (
            torch.cat(list(head_outputs[name]), 1) for name in ("cls_logits", "bbox_regression", "bbox_ctrness")
        )
        every = (logits.sigmoid() * centerness.sigmoid()).sqrt()
        detections = []
        for index, (height, width) in enumerate(image_shapes):
            scores, pairs = every[index].flatten().topk(min(self.topk_candidates, every[index].numel()))
            high = scores > self.score_thresh
            scores, pairs = scores[high], pairs[high]
            place = torch.div(pairs, every.shape[2], rounding_mode="floor")
            labels = pairs % every.shape[2]
            corners = corners_of(decode(codes[index, place], Places.of(torch.cat(list(anchors[index]))[place])))
            kept = rotated_nms(corners, scores, labels, self.nms_thresh)[: self.detections_per_img]
            around = torch.cat([corners.amin(1), corners.amax(1)], 1).clamp(min=0)
            around = around.minimum(around.new_tensor([width, height, width, height]))
            objects = {"boxes": around, "corners": corners, "scores": scores, "labels": labels}
            detections.append({name: values[kept] for name, values in objects.items()})
        return detections


def fcos_rotated_resnet50_fpn(num_classes: int) -> RotatedFCOS:
    """Build the detector with random weights: the backbone and pyramid of torchvision's `fcos_resnet50_fpn`."""
    of_torchvision = fcos_resnet50_fpn(weights=None, weights_backbone=None, num_classes=num_classes)
    return RotatedFCOS(of_torchvision.backbone, num_classes)
