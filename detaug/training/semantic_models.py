"""torchvision's models of semantic segmentation, built without downloads: they find the class of each pixel."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from detaug.evaluation.map_predictions import classes_at
from detaug.loading.batch import Batch
from detaug.training.model_table import Detector
from detaug.training.torchvision_models import import_models

MAP = "semantic"
"""The name of the map that is learned."""


def make_semantic(name: str, num_classes: int) -> Detector:
    """Build a model of torchvision with random weights. `num_classes`: of the map, its background among them."""
    make = getattr(import_models("segmentation"), name)
    model = SemanticModel(make(weights=None, weights_backbone=None, num_classes=num_classes))
    for layer in model.modules():
        # PyTorch's default. With MobileNet's 0.01 the statistics of a short training are those of its beginning: after
        # 360 steps on the demo from random weights, each pixel was found to be background, at a training loss of 0.2.
        if isinstance(layer, nn.BatchNorm2d):
            layer.momentum = 0.1
    return Detector(model)


class SemanticModel(nn.Module):
    """A model of torchvision: in training it returns losses, else scores (N, C, H, W) of the classes of each pixel."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def inputs(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """Return the images of a batch, and (N, H, W) the classes of their pixels, -1 where they are not known."""
        images, classes = batch.as_semantic(MAP)
        ignore = batch.maps_of_images.classes(MAP).ignore
        return images, torch.where(classes == ignore, -1, classes)

    def forward(self, images: Tensor, targets: Tensor | None = None) -> Any:
        scores = self.net(images)["out"].float()
        if targets is None:
            return scores
        # A sum, since a mean of no pixel is NaN: all of a batch may be ignored.
        loss = functional.cross_entropy(scores, targets, ignore_index=-1, reduction="sum")
        return {"cross_entropy": loss / (targets >= 0).sum().clamp(min=1)}


def classes_in_source(batch: Batch, scores: Tensor, image: int) -> Tensor:
    """Return (H, W) uint8 on the CPU: the class of each pixel of the source of an image.

    `scores`: (N, C, h, w) of a batch of an evaluation recipe, which mixes no images and bends none.
    """
    return classes_of_pixels(
        scores[image], batch.matrix[image], batch.source_size[image].tolist(), batch.images.shape[-2:]
    )


def classes_of_pixels(scores: Tensor, matrix: Tensor, source_size: Sequence[int], output_size: Sequence[int]) -> Tensor:
    """Return (H, W) uint8 on the CPU. `matrix`: (2, 3) or (3, 3), from source pixels to those of the output."""
    height, width = source_size
    y, x = torch.meshgrid(torch.arange(height) + 0.5, torch.arange(width) + 0.5, indexing="ij")
    points = torch.stack([x, y, torch.ones_like(x)], dim=2).double() @ matrix.cpu().double().T
    points = points[..., :2] / points[..., 2:] if points.shape[2] == 3 else points
    return classes_at(scores, points, output_size).to("cpu", torch.uint8)
