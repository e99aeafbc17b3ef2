"""Recipes: lists of ops, to use as they are or to copy and change."""

from __future__ import annotations

from detaug.ops.flips_and_crops import RandomHorizontalFlip, RandomZoomOut
from detaug.ops.iou_crop import RandomIoUCrop
from detaug.ops.mixing import Mosaic
from detaug.ops.op import Op
from detaug.ops.pixels import Normalize, RandomPhotometricDistort
from detaug.ops.resize import Resize

Triple = tuple[float, float, float]

IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
IMAGENET_STD: Triple = (0.229, 0.224, 0.225)
NO_MEAN: Triple = (0.0, 0.0, 0.0)
UNIT_STD: Triple = (1.0, 1.0, 1.0)


def ssd300(mean: Triple = NO_MEAN, std: Triple = UNIT_STD) -> list[Op]:
    """SSD's training recipe (Liu et al. 2016), as torchvision's reference "ssd" has it, at 300 x 300.

    Images come out in 0..1 by default: torchvision's detectors normalise inside. Give `mean` and `std` for a
    model that does not.

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
    """RetinaNet's training recipe (Lin et al. 2017): flip, shorter side 800, longer side at most 1333.

    The loader pads a batch's images at the right and the bottom to one size, a multiple of 32.

    >>> [type(op).__name__ for op in da.presets.retinanet()]
    ['RandomHorizontalFlip', 'Resize', 'Normalize']
    """
    return [RandomHorizontalFlip(), Resize(800, max_size=1333), Normalize(mean, std)]


def yolo640(mean: Triple = NO_MEAN, std: Triple = UNIT_STD, *, until_epoch: int | None = None) -> list[Op]:
    """Letterbox to 640 x 640, mosaic, colour: after Ultralytics' training recipe for YOLO models.

    `until_epoch`: from this epoch on without mosaic; Ultralytics' `close_mosaic=10` is `epochs - 10`. The batch needs
    two images or more. What differs from Ultralytics' defaults: the partners of a mosaic come from the batch, not from
    the whole data set; the mosaic is 640 x 640 and not the random window, scaled by 0.5 to 1.5, of one of 1280 x 1280
    (put a `RandomAffine` or `ScaleJitter` in front for that); the colour is SSD's distortion, not gains of HSV.

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


def evaluation(
    size: int | tuple[int, int], mean: Triple = NO_MEAN, std: Triple = UNIT_STD, *, max_size: int | None = None
) -> list[Op]:
    """Nothing random. `size`: (H, W), or the shorter side and `max_size` for the longer one, as `Resize` takes them.

    >>> [type(op).__name__ for op in da.presets.evaluation((300, 300))]
    ['Resize', 'Normalize']
    """
    return [Resize(size, max_size=max_size), Normalize(mean, std)]
