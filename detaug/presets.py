"""Ready-made recipes: lists of ops to use as they are, or to copy and change."""

from __future__ import annotations

from detaug.ops.color_ops import RandomPhotometricDistort
from detaug.ops.flips_and_crops import CenterCrop, RandomHorizontalFlip, RandomZoomOut
from detaug.ops.iou_crop import RandomIoUCrop
from detaug.ops.mixing import Mosaic
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.resize import Resize
from detaug.ops.resized_crop import RandomResizedCrop

Triple = tuple[float, float, float]

IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
IMAGENET_STD: Triple = (0.229, 0.224, 0.225)
NO_MEAN: Triple = (0.0, 0.0, 0.0)
UNIT_STD: Triple = (1.0, 1.0, 1.0)


def ssd300(mean: Triple = NO_MEAN, std: Triple = UNIT_STD) -> list[Op]:
    """Return SSD's training recipe (Liu et al. 2016) at 300 x 300, as in torchvision's reference "ssd".

    By default images are in 0..1, because torchvision's detectors normalise them; give `mean` and `std` for a model
    that does not.

    >>> [type(op).__name__ for op in da.presets.ssd300()]
    ['RandomZoomOut', 'RandomIoUCrop', 'RandomHorizontalFlip', 'Resize', 'RandomPhotometricDistort', 'Normalize']
    """
    return [
        RandomZoomOut(),
        RandomIoUCrop(),
        RandomHorizontalFlip(),
        Resize((300, 300)),
        RandomPhotometricDistort(),
        Normalize(mean, std),
    ]


def retinanet(mean: Triple = NO_MEAN, std: Triple = UNIT_STD) -> list[Op]:
    """Return RetinaNet's training recipe (Lin et al. 2017): flip, shorter side 800, longer side at most 1333.

    The loader pads the images of a batch at the right and the bottom to one size, a multiple of 32.

    >>> [type(op).__name__ for op in da.presets.retinanet()]
    ['RandomHorizontalFlip', 'Resize', 'Normalize']
    """
    return [RandomHorizontalFlip(), Resize(800, max_size=1333), Normalize(mean, std)]


def yolo640(mean: Triple = NO_MEAN, std: Triple = UNIT_STD, *, until_epoch: int | None = None) -> list[Op]:
    """Return a recipe after Ultralytics' for YOLO models: letterbox to 640 x 640, mosaic, colour.

    `until_epoch`: no mosaic from this epoch on; Ultralytics' `close_mosaic=10` is `epochs - 10`. A batch needs at least
    two images. Differences from Ultralytics' defaults: a mosaic's partners come from the batch, not from the whole data
    set; the mosaic is 640 x 640, not a random window of one of 1280 x 1280, scaled by 0.5 to 1.5 (put a `RandomAffine`
    or `ScaleJitter` in front for that); the colour op is SSD's distortion, not gains in HSV.

    >>> [type(op).__name__ for op in da.presets.yolo640(until_epoch=90)]
    ['RandomHorizontalFlip', 'Resize', 'Mosaic', 'RandomPhotometricDistort', 'Normalize']
    """
    return [
        RandomHorizontalFlip(),
        Resize((640, 640), letterbox="center", fill=(114.0, 114.0, 114.0)),
        Mosaic(until_epoch=until_epoch),
        RandomPhotometricDistort(permute=False),
        Normalize(mean, std),
    ]


def imagenet(size: int | tuple[int, int] = 224, mean: Triple = IMAGENET_MEAN, std: Triple = IMAGENET_STD) -> list[Op]:
    """Return the training recipe of classification on ImageNet: a random crop at `size`, a flip, Normalize.

    As in torchvision's reference "classification", without its auto augmentation and erasing.

    >>> [type(op).__name__ for op in da.presets.imagenet()]
    ['RandomResizedCrop', 'RandomHorizontalFlip', 'Normalize']
    """
    return [RandomResizedCrop(size), RandomHorizontalFlip(), Normalize(mean, std)]


def imagenet_evaluation(
    size: int | tuple[int, int] = 224,
    resize: int | tuple[int, int] = 256,
    mean: Triple = IMAGENET_MEAN,
    std: Triple = IMAGENET_STD,
) -> list[Op]:
    """Return the recipe of evaluation on ImageNet: shorter side `resize`, the middle `size` of it, Normalize.

    >>> [type(op).__name__ for op in da.presets.imagenet_evaluation()]
    ['Resize', 'CenterCrop', 'Normalize']
    """
    return [Resize(resize), CenterCrop(size), Normalize(mean, std)]


def evaluation(
    size: int | tuple[int, int], mean: Triple = NO_MEAN, std: Triple = UNIT_STD, *, max_size: int | None = None
) -> list[Op]:
    """Return a recipe without randomness. `size`: (H, W), or the shorter side, with `max_size` for the longer one.

    >>> [type(op).__name__ for op in da.presets.evaluation((300, 300))]
    ['Resize', 'Normalize']
    """
    return [Resize(size, max_size=max_size), Normalize(mean, std)]
