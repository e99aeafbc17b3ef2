"""torchvision's detectors for batches of `Loader`, built without downloads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn

from detaug.errors import InputError
from detaug.loading.batch import Batch
from detaug.loading.plans import pad_to
from detaug.packages import require
from detaug.presets import IMAGENET_MEAN, IMAGENET_STD, Triple

Finds = Literal["bbox", "segm", "keypoints"]

READS: dict[Finds, dict[str, Any]] = {"bbox": {}, "segm": {"masks": True}, "keypoints": {"keypoints": True}}
"""The arguments of `CocoReader` for what a model finds: "bbox", or beside boxes a kind of `CocoEvaluator`."""

TARGETS: dict[Finds, dict[str, Any]] = {"bbox": {}, "segm": {"masks": True}, "keypoints": {}}
"""The arguments of `Batch.targets` for what a model finds. Keypoints are in the targets of a reader that has them."""


class Defaults(NamedTuple):
    """A model and its training in torchvision's references: its input, and a learning rate for a step's images."""

    size: int | tuple[int, int]
    """Output of the loader, as `Resize` takes it."""
    lr: float
    images: int
    weight_decay: float
    finds: Finds = "bbox"
    """What it finds; boxes always."""


DETECTORS = {
    "ssd300_vgg16": Defaults((300, 300), 0.002, 32, 0.0005),
    "ssdlite320_mobilenet_v3_large": Defaults((320, 320), 0.15, 192, 0.00002),
    "retinanet_resnet50_fpn_v2": Defaults(800, 0.01, 16, 0.0001),
    "fcos_resnet50_fpn": Defaults(800, 0.01, 16, 0.0001),
    "maskrcnn_resnet50_fpn_v2": Defaults(800, 0.02, 16, 0.0001, "segm"),
    "keypointrcnn_resnet50_fpn": Defaults(800, 0.02, 16, 0.0001, "keypoints"),
}
"""torchvision/references/detection/README.md: batch sizes and learning rates of all its GPUs together."""


HEADS = (
    "head", "rpn.head", "roi_heads.box_predictor", "roi_heads.mask_predictor", "roi_heads.keypoint_predictor"
)  # fmt: skip
"""The last layers of the models; each has some of them."""


class Detector(NamedTuple):
    """A model with the interface of torchvision's detectors, and the normalization of its input."""

    model: nn.Module
    mean: Triple = IMAGENET_MEAN
    std: Triple = IMAGENET_STD
    mean_of_weights: Triple = IMAGENET_MEAN
    """The mean that torchvision's weights for the model expect."""
    std_of_weights: Triple = IMAGENET_STD


def make_detector(name: str, num_classes: int, **of_data: int) -> Detector:
    """Build a detector without weights. `num_classes` counts the background, as torchvision does.

    `of_data`: what else depends on the data, `num_keypoints` for a model of keypoints.

    The backbone is torchvision's, initialized at random, with batch norm where torchvision has frozen statistics.
    The mean and the std are ImageNet's: torchvision's std of 1/255 for SSD fits the weights of its VGG, and
    without them the loss soon becomes infinite.
    """
    if name not in DETECTORS:
        raise InputError(f"model must be one of {', '.join(DETECTORS)}, got {name!r}")
    detection = _torchvision_detection()
    model = getattr(detection, name)(weights=None, weights_backbone=None, num_classes=num_classes, **of_data)
    mean, std = tuple(model.transform.image_mean), tuple(model.transform.image_std)
    return Detector(without_transform(model), mean_of_weights=mean, std_of_weights=std)


def _torchvision_detection() -> Any:
    require("a detector of torchvision", "torchvision")
    try:
        from torchvision.models import detection
        from torchvision.ops import nms

        nms(torch.zeros(1, 4), torch.zeros(1), 0.5)  # fails where torchvision's compiled part does not fit torch
    except (ImportError, OSError, RuntimeError) as error:  # pip calls a torchvision of another index satisfied
        reason = (str(error).splitlines() or ["?"])[0]
        raise InputError(
            f"the installed torchvision does not fit torch {torch.__version__} ({reason}); install both from one "
            "index in one command, pip install --force-reinstall torch torchvision, where there is no GPU with "
            "--index-url https://download.pytorch.org/whl/cpu"
        ) from None
    return detection


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
        head.register_forward_hook(lambda _module, _inputs, output: _to_float32(output))
    detector: nn.Module = model
    return detector


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
    if not (padded and isinstance(getattr(model, "transform", None), PassThrough)):
        return images
    return [image[:, :height, :width] for image, (height, width) in zip(images, sizes, strict=True)]


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
        for at, (image, (h, w)) in enumerate(zip(images, sizes, strict=True)):
            stack[at, :, :h, :w] = image
        return ImageList(stack, sizes), targets

    def postprocess(self, result: Any, image_sizes: Any, _original_sizes: Any) -> Any:
        """Return the detections of each image; their masks, if they have any, as (K, 1, H, W) of the image's size.

        Those of label 0, which torchvision's RetinaNet and FCOS have too, are left out: it is the background.
        """
        from torchvision.models.detection.roi_heads import paste_masks_in_image

        detections = []
        for found, size in zip(result, image_sizes, strict=False):  # in training there are no detections
            objects = found["labels"] > 0
            found = {name: each[objects] for name, each in found.items()}
            if "masks" in found:
                found["masks"] = paste_masks_in_image(found["masks"], found["boxes"], size)
            detections.append(found)
        return detections


def _to_float32(output: Any) -> Any:
    if isinstance(output, Tensor):
        return output.float()
    if isinstance(output, Mapping):
        return {name: _to_float32(each) for name, each in output.items()}
    return type(output)([_to_float32(each) for each in output])
