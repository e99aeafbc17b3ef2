"""Build the models that `train` knows, and feed them batches of `Loader`.

They are built without downloads, and have the interface of torchvision's detectors: in training
`model(images, targets)` returns losses, else `model(images)` the detections of each image, or of a model of semantic
segmentation the scores of the classes of each pixel.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from detaug.errors import InputError
from detaug.loading.batch import Batch
from detaug.training.detr_models import make_detr
from detaug.training.model_table import MODELS, TARGETS, Detector, Finds
from detaug.training.semantic_models import make_semantic
from detaug.training.torchvision_models import make_torchvision


def make_detector(name: str, num_classes: int, **of_data: int) -> Detector:
    """Build a model without weights. `num_classes` counts the background, as torchvision does.

    `of_data`: what else depends on the data, `num_keypoints` for a model of keypoints. Raises InputError for an unknown
    name, and where the package of the model is not installed.
    """
    if name not in MODELS:
        raise InputError(f"model must be one of {', '.join(MODELS)}, got {name!r}")
    if MODELS[name].finds == "semantic":
        return make_semantic(name, num_classes)
    if MODELS[name].package == "torchvision":
        return make_torchvision(name, num_classes, **of_data)
    return make_detr(name, num_classes)


def place_model(model: nn.Module, device: torch.device) -> nn.Module:
    """Move a model to a device. On a CPU its kernels become channels last, which halves the time of a step or better.

    SSDlite at 320 x 320, a step on 8 images: 1.8 instead of 5.5 s of two cores; FCOS at 256 x 256 13 instead of 20.
    Convolutions then convert their inputs themselves, and the weights have the same values.
    """
    moved: nn.Module = model.to(device)
    for name, part in moved.named_children() if device.type == "cpu" else ():
        if name != "roi_heads":  # torchvision's loss of keypoints takes a view of them that needs the usual order
            part.to(memory_format=torch.channels_last)
    return moved


def images_for(model: nn.Module, batch: Batch) -> Tensor | list[Tensor]:
    """Return the images of a batch as a model takes them: all in one tensor, or each without its padding.

    torchvision's detectors take the latter where there is padding, so that they find nothing in it.
    """
    images, sizes = batch.images, batch.image_size.tolist()
    padded = any(size != [*images.shape[-2:]] for size in sizes)
    if not (padded and hasattr(getattr(model, "transform", None), "divisible")):  # of `PassThrough`
        return images
    return [image[:, :height, :width] for image, (height, width) in zip(images, sizes, strict=True)]


def inputs_for(model: nn.Module, batch: Batch, finds: Finds) -> tuple[Tensor | list[Tensor], Any]:
    """Return the images and the targets of a batch as a model takes them in training."""
    if hasattr(model, "inputs"):  # of `DetrDetector` and `SemanticModel`
        return model.inputs(batch)  # type: ignore[operator, no-any-return]
    return images_for(model, batch), batch.targets(**TARGETS[finds])
