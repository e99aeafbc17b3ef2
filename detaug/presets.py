"""Ready-made recipes: lists of ops to use as they are, or to copy and change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from detaug.arguments import check, checks_names, is_whole, is_wholes
from detaug.errors import InputError
from detaug.ops.affine import RandomAffine, RandomPerspective, RandomRotation
from detaug.ops.camera import Defocus, Downscale, MotionBlur, RandomGamma
from detaug.ops.color_ops import ColorJitter, RandomGrayscale, RandomHSV, RandomPhotometricDistort
from detaug.ops.flips_and_crops import (
    CenterCrop,
    RandomBoxSafeCrop,
    RandomHorizontalFlip,
    RandomVerticalFlip,
    RandomZoomOut,
    ScaleJitter,
)
from detaug.ops.iou_crop import RandomIoUCrop
from detaug.ops.mixing import Mosaic
from detaug.ops.noise import GaussianNoise
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.resize import Resize
from detaug.ops.resized_crop import RandomResizedCrop
from detaug.ops.sanitize import SanitizeBoundingBoxes

Triple = tuple[float, float, float]

IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
IMAGENET_STD: Triple = (0.229, 0.224, 0.225)
NO_MEAN: Triple = (0.0, 0.0, 0.0)
UNIT_STD: Triple = (1.0, 1.0, 1.0)


def __getattr__(name: str) -> Any:
    """List the recipes where there is none of this name."""
    raise AttributeError(f"detaug.presets has no recipe {name!r}; it has {', '.join(RECIPES)}")


RECIPES = "ssd300", "retinanet", "yolo640", "for_problem", "imagenet", "imagenet_evaluation", "evaluation"


def _check_no_size(name: str, mean: Any) -> None:
    """Refuse a size where a mean belongs."""
    if is_whole(mean, 2) or is_wholes(mean, 2, 2):
        size = (mean, mean) if is_whole(mean) else tuple(mean)
        raise InputError(
            f"mean must be three numbers in 0..1, got {mean!r}; {name} has a size of its own, and another one by "
            f"[da.Resize({size}) if isinstance(op, da.Resize) else op for op in da.presets.{name}()]"
        )


@checks_names
def ssd300(mean: Triple = NO_MEAN, std: Triple = UNIT_STD) -> list[Op]:
    """Return SSD's training recipe (Liu et al. 2016) at 300 x 300, as in torchvision's reference "ssd".

    By default images are in 0..1, because torchvision's detectors normalize them; give `mean` and `std` for a model
    that does not.

    >>> [type(op).__name__ for op in da.presets.ssd300()]
    ['RandomZoomOut', 'RandomIoUCrop', 'RandomHorizontalFlip', 'Resize', 'RandomPhotometricDistort', 'Normalize']
    """
    _check_no_size("ssd300", mean)
    return [
        RandomZoomOut(),
        RandomIoUCrop(),
        RandomHorizontalFlip(),
        Resize((300, 300)),
        RandomPhotometricDistort(),
        Normalize(mean, std),
    ]


@checks_names
def retinanet(mean: Triple = NO_MEAN, std: Triple = UNIT_STD) -> list[Op]:
    """Return RetinaNet's training recipe (Lin et al. 2017): flip, shorter side 800, longer side at most 1333.

    The loader pads the images of a batch at the right and the bottom to one size, a multiple of 32.

    >>> [type(op).__name__ for op in da.presets.retinanet()]
    ['RandomHorizontalFlip', 'Resize', 'Normalize']
    """
    _check_no_size("retinanet", mean)
    return [RandomHorizontalFlip(), Resize(800, max_size=1333), Normalize(mean, std)]


@checks_names
def yolo640(mean: Triple = NO_MEAN, std: Triple = UNIT_STD, *, until_epoch: int | None = None) -> list[Op]:
    """Return a recipe after Ultralytics' for YOLO models: letterbox to 640 x 640, mosaic, color.

    `until_epoch`: no mosaic from this epoch on; Ultralytics' `close_mosaic=10` is `epochs - 10`. A batch needs at least
    two images. Differences from Ultralytics' defaults: a mosaic's partners come from the batch, not from the whole
    dataset; the mosaic is 640 x 640, not a random window of one of 1280 x 1280, scaled by 0.5 to 1.5 (put a
    `RandomAffine` or `ScaleJitter` in front for that); the color op is SSD's distortion, not gains in HSV.

    >>> [type(op).__name__ for op in da.presets.yolo640(until_epoch=90)]
    ['RandomHorizontalFlip', 'Resize', 'Mosaic', 'RandomPhotometricDistort', 'Normalize']
    """
    _check_no_size("yolo640", mean)
    return [
        RandomHorizontalFlip(),
        Resize((640, 640), letterbox="center", fill=(114.0, 114.0, 114.0)),
        Mosaic(until_epoch=until_epoch),
        RandomPhotometricDistort(permute=False),
        Normalize(mean, std),
    ]


@checks_names
def for_problem(
    problem: Literal["aerial", "small objects", "text", "night", "industrial"],
    size: tuple[int, int] = (640, 640),
    mean: Triple = NO_MEAN,
    std: Triple = UNIT_STD,
) -> list[Op]:
    """Return a recipe to start from for a kind of detection problem, with images of `size` (H, W) pixels.

    It follows the sources below and was not measured on a benchmark. Strengths that no source names are our own, and
    mild. docs/which-recipe.md gives the reason for each op.

    - "aerial": both flips, any angle for half of the images, scales from 0.5 to 1.5 as in MMRotate's RTMDet-R for DOTA
      and its tiles of three scales. Colors of Ultralytics.
    - "small objects": SSD's crops, which enlarge, without its zoom-out; mosaics for half of the images, as in
      TPH-YOLOv5 (Zhu et al. 2021), which need at least two images per batch. Colors and smallest box of Ultralytics.
    - "text": nothing is mirrored, and no crop cuts a box. Up to 10 degrees, scales from 0.5 and colors of MMOCR's
      DBNet; perspective, motion blur and coarse pixels, as in STRAug (Atienza 2021).
    - "night": darker, paler and gray colors, motion blur and noise; crops and zoom-out of MAET (Cui et al. 2021).
    - "industrial": a camera that does not move: small shifts and turns, light and focus, after the manual of Euresys'
      Open eVision. Nothing is mirrored, mixed or cropped.

    Raises InputError for an unknown problem, and for a size that is not two whole numbers.

    >>> for problem in ("aerial", "text"):
    ...     print(*(type(op).__name__ for op in da.presets.for_problem(problem)[:4]))
    RandomHorizontalFlip RandomVerticalFlip RandomRotation ScaleJitter
    RandomAffine RandomPerspective RandomBoxSafeCrop Resize
    """
    known = isinstance(problem, str) and problem in _PROBLEMS
    check("problem", problem, known, f"one of {', '.join(map(repr, _PROBLEMS))}")
    check("size", size, is_wholes(size, 2, low=1), "(height, width) in whole pixels")
    return [*_PROBLEMS[problem](size), Normalize(mean, std)]


def _aerial(size: tuple[int, int]) -> list[Op]:
    return [
        RandomHorizontalFlip(),
        RandomVerticalFlip(),
        RandomRotation(180, p=0.5),
        ScaleJitter(size, scale=(0.5, 1.5)),
        Resize(size),
        _cut_boxes(),
        RandomHSV(),
    ]


def _small_objects(size: tuple[int, int]) -> list[Op]:
    return [
        RandomIoUCrop(),
        RandomHorizontalFlip(),
        Resize(size, letterbox="center"),
        Mosaic(p=0.5),
        _cut_boxes(),
        RandomHSV(),
    ]


def _text(size: tuple[int, int]) -> list[Op]:
    return [
        RandomAffine(degrees=10, scale=(0.5, 1.0)),
        RandomPerspective(0.2, p=0.3),
        RandomBoxSafeCrop(),
        Resize(size, letterbox="center"),
        ColorJitter(brightness=32 / 255, saturation=0.5),
        MotionBlur((3, 7), p=0.2),
        Downscale((0.5, 0.9), p=0.2),
    ]


def _night(size: tuple[int, int]) -> list[Op]:
    return [
        RandomZoomOut(2.0),
        RandomIoUCrop(),
        RandomHorizontalFlip(),
        Resize(size, letterbox="center"),
        ColorJitter(brightness=(0.4, 1.1), saturation=(0.3, 1.0), hue=0.02, p=0.5),
        RandomGrayscale(p=0.1),
        RandomGamma((0.8, 2.5)),
        MotionBlur((3, 9), p=0.2),
        GaussianNoise(sigma=0.05),
    ]


def _industrial(size: tuple[int, int]) -> list[Op]:
    return [
        RandomAffine(degrees=2, translate=(0.03, 0.03), scale=(0.97, 1.03)),
        Resize(size, letterbox="center"),
        ColorJitter(brightness=0.05, contrast=0.05),
        RandomGamma(),
        Defocus((0.5, 1.5), p=0.2),
    ]


def _cut_boxes() -> Op:
    """Return the op that drops boxes as Ultralytics' `box_candidates` does."""
    return SanitizeBoundingBoxes(min_size=2, min_visibility=0.1, max_aspect_ratio=100)


_PROBLEMS: dict[str, Callable[[tuple[int, int]], list[Op]]] = {
    "aerial": _aerial,
    "small objects": _small_objects,
    "text": _text,
    "night": _night,
    "industrial": _industrial,
}


@checks_names
def imagenet(size: int | tuple[int, int] = 224, mean: Triple = IMAGENET_MEAN, std: Triple = IMAGENET_STD) -> list[Op]:
    """Return the training recipe of classification on ImageNet: a random crop at `size`, a flip, Normalize.

    As in torchvision's reference "classification", without its auto augmentation and erasing.

    >>> [type(op).__name__ for op in da.presets.imagenet()]
    ['RandomResizedCrop', 'RandomHorizontalFlip', 'Normalize']
    """
    return [RandomResizedCrop(size), RandomHorizontalFlip(), Normalize(mean, std)]


@checks_names
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


@checks_names
def evaluation(
    size: int | tuple[int, int], mean: Triple = NO_MEAN, std: Triple = UNIT_STD, *, max_size: int | None = None
) -> list[Op]:
    """Return a recipe without randomness. `size`: (H, W), or the shorter side, with `max_size` for the longer one.

    >>> [type(op).__name__ for op in da.presets.evaluation((300, 300))]
    ['Resize', 'Normalize']
    """
    return [Resize(size, max_size=max_size), Normalize(mean, std)]
