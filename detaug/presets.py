"""Ready-made recipes: lists of ops to use as they are, or to copy and change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

from detaug.arguments import check, checks_names, is_whole, is_wholes
from detaug.errors import InputError
from detaug.ops.affine import RandomAffine, RandomPerspective, RandomRotation
from detaug.ops.camera import Defocus, Downscale, MotionBlur, RandomGamma
from detaug.ops.color_ops import ColorJitter, RandomGrayscale, RandomHSV, RandomPhotometricDistort
from detaug.ops.containers import RandomApply, RandomChoice
from detaug.ops.flips_and_crops import (
    CenterCrop,
    RandomBoxSafeCrop,
    RandomHorizontalFlip,
    RandomSizeCrop,
    RandomVerticalFlip,
    RandomZoomOut,
    ScaleJitter,
)
from detaug.ops.iou_crop import RandomIoUCrop
from detaug.ops.mixing import MixUp, Mosaic
from detaug.ops.noise import GaussianNoise
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.resize import Resize
from detaug.ops.resized_crop import RandomResizedCrop
from detaug.ops.sanitize import SanitizeBoundingBoxes
from detaug.recipes.stages import Stages

Triple = tuple[float, float, float]

IMAGENET_MEAN: Triple = (0.485, 0.456, 0.406)
IMAGENET_STD: Triple = (0.229, 0.224, 0.225)
NO_MEAN: Triple = (0.0, 0.0, 0.0)
UNIT_STD: Triple = (1.0, 1.0, 1.0)


def __getattr__(name: str) -> Any:
    """List the recipes where there is none of this name."""
    raise AttributeError(f"detaug.presets has no recipe {name!r}; it has {', '.join(RECIPES)}")


RECIPES = (
    "ssd300",
    "retinanet",
    "yolo640",
    "rf_detr",
    "d_fine",
    "deim",
    "for_problem",
    "imagenet",
    "imagenet_evaluation",
    "evaluation",
)


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

    Args:
        mean: Of `Normalize`, for images in 0..1.
        std: Of `Normalize`, for images in 0..1.

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

    Args:
        mean: Of `Normalize`, for images in 0..1.
        std: Of `Normalize`, for images in 0..1.

    >>> [type(op).__name__ for op in da.presets.retinanet()]
    ['RandomHorizontalFlip', 'Resize', 'Normalize']
    """
    _check_no_size("retinanet", mean)
    return [RandomHorizontalFlip(), Resize(800, max_size=1333), Normalize(mean, std)]


@checks_names
def yolo640(mean: Triple = NO_MEAN, std: Triple = UNIT_STD, *, until_epoch: int | None = None) -> list[Op]:
    """Return a recipe after Ultralytics' for YOLO models: letterbox to 640 x 640, mosaic, color.

    Args:
        mean: Of `Normalize`, for images in 0..1.
        std: Of `Normalize`, for images in 0..1.
        until_epoch: No mosaic from this epoch on; Ultralytics' `close_mosaic=10` is `epochs - 10`. A batch needs at
            least two images. Differences from Ultralytics' defaults: a mosaic's partners come from the batch, not from
            the whole dataset; the mosaic is 640 x 640, not a random window of one of 1280 x 1280, scaled by 0.5 to 1.5
            (put a `RandomAffine` or `ScaleJitter` in front for that); the color op is SSD's distortion, not gains in
            HSV.

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
def rf_detr(size: int | tuple[int, int], mean: Triple = IMAGENET_MEAN, std: Triple = IMAGENET_STD) -> list[Op]:
    """Return RF-DETR's training recipe: a square crop of half of the images, a flip, a square, Normalize.

    All numbers are of rfdetr 1.11.2: `_build_train_resize_transforms` of rfdetr/datasets/coco.py has the crop, with
    probability 0.5 of a side of 384 to 600 pixels, after a resize of the shorter side to 400, 500 or 600; a flip with
    probability 0.5; `Normalize` of rfdetr/datasets/_torchvision.py has the mean and std of ImageNet.

    Args:
        size: (H, W), or one number for a square, in pixels: with `multi_scale`, RF-DETR's default, its largest scale,
            such as 544 for Nano, which RF-DETR resizes to others; without it the model's `resolution`, such as 384.
        mean: Of the channels, in 0..1.
        std: Of the channels, in 0..1.

    Returns:
        The recipe. `RandomSizeCrop` keeps the aspect ratio and `Resize` does not, as RF-DETR's. Where RF-DETR resizes
        twice, here it is once.

    >>> [type(op).__name__ for op in da.presets.rf_detr(544)]
    ['RandomSizeCrop', 'RandomHorizontalFlip', 'Resize', 'Normalize']
    """
    crop = RandomSizeCrop(384, 600, shortest_size=(400, 500, 600), square=True, p=0.5)
    return [crop, RandomHorizontalFlip(), Resize(_square(size)), Normalize(mean, std)]


@checks_names
def d_fine(size: int | tuple[int, int] | list[tuple[int, int]]) -> list[Op]:
    """Return D-FINE's training recipe, which is RT-DETR's: zoom-out, crop by IoU, flip, resize, colors.

    The ops and their numbers are those of `configs/dfine/include/dataloader.yml` of https://github.com/Peterande/D-FINE
    (4a1f73a): `RandomZoomOut(fill=0)`, `RandomIoUCrop(p=0.8)`, `SanitizeBoundingBoxes(min_size=1)`, a flip and
    `RandomPhotometricDistort(p=0.5)`, with torchvision's defaults. Images are in 0..1: the models have no mean and std.
    RT-DETRv2 has the same (`rtdetrv2_pytorch/configs/rtdetrv2/include/dataloader.yml` of
    https://github.com/lyuwenyu/RT-DETR). There the colors come first; here they come after `Resize`, and change the
    black around a zoomed-out image, too.

    Args:
        size: (H, W), or one number for a square, in pixels; 640 for all models. A list of (H, W): each batch has one of
            them. D-FINE's collate function resizes batches of 640 to 480 to 800, in steps of 32, and to 640 three times
            as often as to another size (`base_size_repeat`); those of Nano stay 640.

    Returns:
        The recipe. D-FINE leaves out zoom-out, crop and colors at the end: from epoch 72 by default, 148 for Nano, 120
        for Small (`stop_epoch`): `da.Stages([(0, d_fine(640)), (72, rest)])`, as in the example.

    >>> recipe = da.presets.d_fine(640)
    >>> [type(op).__name__ for op in recipe]
    ['RandomZoomOut', 'RandomIoUCrop', 'RandomHorizontalFlip', 'Resize', 'SanitizeBoundingBoxes', \
'RandomPhotometricDistort', 'Normalize']
    >>> rest = [op for op in recipe if not isinstance(op, (da.RandomZoomOut, da.RandomIoUCrop, \
da.RandomPhotometricDistort))]
    >>> recipe = da.Stages([(0, recipe), (72, rest)])
    """
    sizes = [_square(side) for side in size] if isinstance(size, list) else _square(size)
    return [RandomZoomOut(fill=_BLACK), RandomIoUCrop(p=0.8), *_after_crops(sizes, RandomPhotometricDistort())]


@checks_names
def deim(size: int | tuple[int, int], epochs: tuple[int, int, int] = (4, 29, 50)) -> Stages:
    """Return DEIM's training recipe, Dense O2O: mosaics and averages of images, in the first half of the training.

    The ops and their numbers are those of `configs/base/deim.yml` and `dataloader.yml` of
    https://github.com/ShihuaHuang95/DEIM (a9aa4ad). Before the first of `epochs`: a flip. From then on half of the
    images are mosaics, and half have D-FINE's zoom-out and crop; half are averaged with another one, in parts of 0.45
    to 0.55. From the second epoch on: D-FINE's recipe. From the third on: a flip.

    Args:
        size: (H, W), or one number for a square, in pixels; 640 for all models.
        epochs: Where the recipe changes: DEIM's default is for 58 epochs. Nano has (4, 78, 148) of 160, Small
            (4, 64, 120) of 132 (`policy` in `configs/deim_dfine`).

    Returns:
        The four stages. DEIM joins four images of a shorter side of `size` / 2, and then rotates by up to 10 degrees,
        shifts by up to 0.1 and scales by 0.5 to 1.5 what they make; no op here moves a mosaic. So half of the images
        are rotated and scaled to 0.25 to 0.75 of `size` each before, the corner where they meet is shifted, and whether
        an image becomes a mosaic is drawn by itself: a quarter of the images is zoomed out without one. An image is
        averaged by its own draw, in DEIM all of a batch are or none. `MixUp(alpha=150)` has the standard deviation of
        0.45 to 0.55, 0.029.

    >>> recipe = da.presets.deim(640, epochs=(4, 78, 148))
    >>> for start, ops in recipe.stages:
    ...     print(start, len(ops), "Mosaic" in map(lambda op: type(op).__name__, ops))
    0 4 False
    4 8 True
    78 7 False
    148 4 False
    """
    check("epochs", epochs, is_wholes(epochs, 3, low=1) and list(epochs) == sorted(set(epochs)), "three rising epochs")
    plain = _after_crops(_square(size))
    tile = RandomAffine(degrees=10, scale=(0.25, 0.75), fill=_BLACK)
    zoomed = RandomApply([RandomZoomOut(fill=_BLACK), RandomIoUCrop(p=0.8)], p=1.0)
    mixing = Mosaic(p=0.5, center=(0.4, 0.6)), MixUp(p=0.5, alpha=150.0)
    dense = [RandomChoice([tile, zoomed]), *_after_crops(_square(size), *mixing, RandomPhotometricDistort())]
    starts = (0, *epochs)
    return Stages(list(zip(starts, (plain, dense, d_fine(_square(size)), plain), strict=True)))


def _after_crops(size: tuple[int, int] | list[tuple[int, int]], *pixel_ops: Op) -> list[Op]:
    """Return a flip, a resize, the removal of boxes below a pixel, other ops, and images in 0..1."""
    cleaned = SanitizeBoundingBoxes(min_size=1)
    return [RandomHorizontalFlip(), Resize(size), cleaned, *pixel_ops, Normalize(NO_MEAN, UNIT_STD)]


_BLACK: Triple = (0.0, 0.0, 0.0)


def _square(size: int | tuple[int, int]) -> tuple[int, int]:
    """Return (H, W) of one number or both."""
    right = is_whole(size, 1) or is_wholes(size, 2, low=1)
    check("size", size, right, "(height, width) or one number for a square, in whole pixels")
    return (size, size) if isinstance(size, int) else size


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

    Args:
        problem: One of the problems above.
        size: (H, W) pixels of the images.
        mean: Of `Normalize`, for images in 0..1.
        std: Of `Normalize`, for images in 0..1.

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

    Args:
        size: Side of the square images in pixels.
        mean: Of `Normalize`, for images in 0..1.
        std: Of `Normalize`, for images in 0..1.

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

    Args:
        size: Side of the middle square in pixels.
        resize: The shorter side before it is cropped.
        mean: Of `Normalize`, for images in 0..1.
        std: Of `Normalize`, for images in 0..1.

    >>> [type(op).__name__ for op in da.presets.imagenet_evaluation()]
    ['Resize', 'CenterCrop', 'Normalize']
    """
    return [Resize(resize), CenterCrop(size), Normalize(mean, std)]


@checks_names
def evaluation(
    size: int | tuple[int, int], mean: Triple = NO_MEAN, std: Triple = UNIT_STD, *, max_size: int | None = None
) -> list[Op]:
    """Return a recipe without randomness. `size`: (H, W), or the shorter side, with `max_size` for the longer one.

    Args:
        size: (H, W), or the shorter side.
        mean: Of `Normalize`, for images in 0..1.
        std: Of `Normalize`, for images in 0..1.
        max_size: The largest longer side, where `size` is the shorter one.

    >>> [type(op).__name__ for op in da.presets.evaluation((300, 300))]
    ['Resize', 'Normalize']
    """
    return [Resize(size, max_size=max_size), Normalize(mean, std)]
