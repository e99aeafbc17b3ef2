"""torchvision's detectors, built without downloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor, nn

from detaug.errors import InputError
from detaug.loading.plans import pad_to
from detaug.packages import require
from detaug.training.model_table import Detector

HEADS = (
    "head", "rpn.head", "roi_heads.box_predictor", "roi_heads.mask_predictor", "roi_heads.keypoint_predictor"
)  # fmt: skip
"""The last layers of the models; each has some of them."""


def make_torchvision(name: str, num_classes: int, **of_data: int) -> Detector:
    """Build a detector of torchvision with random weights, whose input is normalized already.

    The backbone has batch norm where torchvision has frozen statistics. The mean and the std are ImageNet's:
    torchvision's std of 1/255 for SSD fits the weights of its VGG, and without them the loss soon becomes infinite.
    """
    detection = import_models("detection")
    if name == "fcos_rotated_resnet50_fpn":
        from detaug.training.rotated_fcos import fcos_rotated_resnet50_fpn  # it imports torchvision

        model: Any = fcos_rotated_resnet50_fpn(num_classes)
    else:
        model = getattr(detection, name)(weights=None, weights_backbone=None, num_classes=num_classes, **of_data)
    mean, std = tuple(model.transform.image_mean), tuple(model.transform.image_std)
    return Detector(without_transform(model), mean_of_weights=mean, std_of_weights=std)


def import_models(task: Literal["detection", "segmentation"]) -> Any:
    """Return a module of `torchvision.models`. Raises InputError where torchvision is not there, or does not fit."""
    require("a model of torchvision", "torchvision")
    try:
        module = import_module(f"torchvision.models.{task}")
        from torchvision.ops import nms

        nms(torch.zeros(1, 4), torch.zeros(1), 0.5)  # fails where torchvision's compiled part does not fit torch
        return module
    except (ImportError, OSError, RuntimeError) as error:  # pip calls a torchvision of another index satisfied
        reason = (str(error).splitlines() or ["?"])[0]
        raise InputError(
            f"the installed torchvision does not fit torch {torch.__version__} ({reason}); install both from one "
            "index in one command, pip install --force-reinstall torch torchvision, where there is no GPU with "
            "--index-url https://download.pytorch.org/whl/cpu"
        ) from None


def without_transform(model: Any) -> nn.Module:
    """Make a detector of torchvision take images as they are.

    Its transform, which would resize and normalize every image again, is replaced. The outputs of the heads become
    float32, so that under autocast boxes are not decoded, and losses not computed, in 16 bits.
    """
    model.transform = PassThrough(model.transform.size_divisible)
    for name in HEADS:
        try:
            head = model.get_submodule(name)
        except AttributeError:
            continue
        head.register_forward_hook(lambda _module, _inputs, output: to_float32(output))
    detector: nn.Module = model
    return detector


class PassThrough(nn.Module):
    """Replaces torchvision's GeneralizedRCNNTransform: images are ready, and only stacked.

    `divisible`: zeros pad the stack to a multiple of it, on which the places of anchors depend.
    """

    def __init__(self, divisible: int) -> None:
        super().__init__()
        self.divisible = divisible

    def forward(self, images: Tensor | Sequence[Tensor], targets: Any = None) -> tuple[Any, Any]:
        """Return an ImageList of (N, 3, H, W), or of N images (3, H, W) of any sizes, and the targets as they are."""
        from torchvision.models.detection.image_list import ImageList

        sizes = [(image.shape[-2], image.shape[-1]) for image in images]
        height, width = pad_to([max(side) for side in zip(*sizes, strict=True)], self.divisible)
        if isinstance(images, Tensor) and images.shape[-2:] == (height, width):
            return ImageList(images, sizes), targets
        stack = images[0].new_zeros(len(images), 3, height, width)
        for index, (image, (h, w)) in enumerate(zip(images, sizes, strict=True)):
            stack[index, :, :h, :w] = image
        return ImageList(stack, sizes), targets

    def postprocess(self, result: Any, image_sizes: Any, _original_sizes: Any) -> Any:
        """Return the detections of each image; their masks, if they have any, as (K, 1, H, W) of the image's size.

        Those of label 0, which torchvision's RetinaNet and FCOS have too, are left out: it is the background.
        """
        from torchvision.models.detection.roi_heads import paste_masks_in_image

        detections = []
        for output, size in zip(result, image_sizes, strict=False):  # in training there are no detections
            is_object = output["labels"] > 0
            output = {name: values[is_object] for name, values in output.items()}
            if "masks" in output:
                output["masks"] = paste_masks_in_image(output["masks"], output["boxes"], size)
            detections.append(output)
        return detections


def to_float32(value: Any) -> Any:
    """Return floating tensors as float32, also those in dicts, lists and tuples; all else as it is."""
    if isinstance(value, Tensor):
        return value.float() if value.is_floating_point() else value
    if isinstance(value, Mapping):
        return {name: to_float32(item) for name, item in value.items()}
    return type(value)(map(to_float32, value)) if type(value) in (list, tuple) else value
