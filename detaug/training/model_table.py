"""The models that `train` knows, a row each: what one finds, what its input is, how its authors train it."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

from torch import nn

from detaug.presets import IMAGENET_MEAN, IMAGENET_STD, Triple

Finds = Literal["bbox", "segm", "keypoints", "rotated", "semantic"]

READS: dict[Finds, dict[str, Any]] = {
    "bbox": {}, "segm": {"masks": True}, "keypoints": {"keypoints": True}, "rotated": {"rotated": True}, "semantic": {}
}  # fmt: skip
"""The arguments of `CocoReader` for what a model finds: "bbox", or beside boxes a kind of `CocoEvaluator`; or
"semantic", the class of each pixel, of which the reader has a map."""

SCORES: dict[Finds, str] = {name: "mIoU" if name == "semantic" else "AP" for name in READS}
"""The score by which models that find so are compared."""

TARGETS: dict[Finds, dict[str, Any]] = {
    "bbox": {},
    "segm": {"masks": True},
    "keypoints": {},
    "rotated": {"rotated": True},
}
"""The arguments of `Batch.targets` for what a model finds. Keypoints are in the targets of a reader that has them."""


class Model(NamedTuple):
    """A detector or a model of semantic segmentation, and the training of its authors."""

    package: Literal["torchvision", "transformers", "rfdetr"]
    size: int | tuple[int, int]
    """Output of the loader, as `Resize` takes it."""
    lr: float
    """The highest learning rate for `images` per step."""
    images: int
    weight_decay: float
    finds: Finds = "bbox"
    """What it finds; boxes too, but for "semantic"."""
    optimizer: Literal["sgd", "adamw"] = "sgd"
    backbone_lr: float = 1.0
    """The learning rate of the backbone, in units of `lr`."""
    clip_norm: float = 10.0
    ema: float | None = None
    stride: int = 1
    """Both sides of an input are multiples of it; 0 where `size` is the only one."""
    smallest: int = 1
    """The shortest side: of a DETR that has as many places in its maps as queries."""
    recipe: Literal["flip", "flips", "crop", "ssd", "window"] = "flip"
    """The augmentation: a flip; flips both ways, of images from above; a crop by IoU and a flip; SSD's zoom-out, crop,
    flip and colors; or a square window of a quarter of the image or more, a flip and colors."""


MODELS = {
    "ssd300_vgg16": Model("torchvision", (300, 300), 0.002, 32, 0.0005, stride=0, recipe="ssd"),
    "ssdlite320_mobilenet_v3_large": Model("torchvision", (320, 320), 0.15, 192, 0.00002, stride=0, recipe="crop"),
    "retinanet_resnet50_fpn_v2": Model("torchvision", 800, 0.01, 16, 0.0001),
    "fcos_resnet50_fpn": Model("torchvision", 800, 0.01, 16, 0.0001),
    "maskrcnn_resnet50_fpn_v2": Model("torchvision", 800, 0.02, 16, 0.0001, "segm"),
    "keypointrcnn_resnet50_fpn": Model("torchvision", 800, 0.02, 16, 0.0001, "keypoints"),
    "fcos_rotated_resnet50_fpn": Model("torchvision", 800, 0.01, 16, 0.0001, "rotated", recipe="flips"),
    "rt-detr-v2-r18": Model(
        "transformers", (640, 640), 1e-4, 16, 1e-4,
        optimizer="adamw", clip_norm=0.1, ema=0.9999, stride=32, smallest=128, recipe="ssd",
    ),
    "d-fine-nano": Model(
        "transformers", (640, 640), 8e-4, 128, 1e-4,
        optimizer="adamw", backbone_lr=0.5, clip_norm=0.1, ema=0.9999, stride=32, smallest=256, recipe="ssd",
    ),
    "d-fine-small": Model(
        "transformers", (640, 640), 2e-4, 32, 1e-4,
        optimizer="adamw", backbone_lr=0.5, clip_norm=0.1, ema=0.9999, stride=32, smallest=128, recipe="ssd",
    ),
    "rf-detr-nano": Model(
        "rfdetr", (384, 384), 1e-4, 16, 1e-4, optimizer="adamw", clip_norm=0.1, ema=0.993, stride=0, recipe="crop"
    ),
    "rf-detr-small": Model(
        "rfdetr", (512, 512), 1e-4, 16, 1e-4, optimizer="adamw", clip_norm=0.1, ema=0.993, stride=0, recipe="crop"
    ),
    "rf-detr-medium": Model(
        "rfdetr", (576, 576), 1e-4, 16, 1e-4, optimizer="adamw", clip_norm=0.1, ema=0.993, stride=0, recipe="crop"
    ),
    "rf-detr-seg-nano": Model(
        "rfdetr", (312, 312), 1e-4, 16, 1e-4, "segm",
        optimizer="adamw", clip_norm=0.1, ema=0.993, stride=0, recipe="crop",
    ),
    "lraspp_mobilenet_v3_large": Model("torchvision", 520, 0.01, 32, 0.000001, "semantic", recipe="window"),
}  # fmt: skip
"""The trainings are those of torchvision/references/detection/README.md and ../segmentation/README.md, with all GPUs
together; rtdetrv2_r18vd_120e_coco.yml of https://github.com/lyuwenyu/RT-DETR; dfine_hgnetv2_n_coco.yml and
_s_coco.yml of https://github.com/Peterande/D-FINE; `TrainConfig` of rfdetr 1.11, whose documents train on 16 images
per step."""


class Detector(NamedTuple):
    """A model with the interface of torchvision's detectors, and the normalization of its input."""

    model: nn.Module
    mean: Triple = IMAGENET_MEAN
    std: Triple = IMAGENET_STD
    mean_of_weights: Triple = IMAGENET_MEAN
    """The mean that torchvision's weights for the model expect."""
    std_of_weights: Triple = IMAGENET_STD
