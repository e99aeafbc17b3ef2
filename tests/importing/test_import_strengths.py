"""The rules' numbers: an op and what it is imported as change one image alike, in the mean and spread of many draws.

Each case also has the same op at another strength, such as twice as strong, with which the comparison must fail: a
wrong factor in a rule is seen. "differs" has a wider bound, and names the quantities that the rule says differ.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pytest
from imported import live
from renderings import coordinates, differences, imported, measure_geometry, measure_pixels, original, photograph

import detaug as da
from detaug.importing.translate import RULES

SAME, NEAR = 0.1, 0.35
"""The fraction of an op's effect that may be missing or too much."""

PIXELS, GEOMETRY = photograph(), coordinates()


@dataclass(frozen=True)
class Case:
    """An op, and the same op with a strength that the comparison must tell from it."""

    op: str
    wrong: str
    but: tuple[str, ...] = ()
    """The quantities, or parts of their names, that the rule says differ."""
    quick: bool = False
    saved: Any = None
    """What a version 1.x of Albumentations wrote, to be imported in the place of the op."""


def c(op: str, wrong: str, *but: str, quick: bool = False) -> Case:
    return Case(op, wrong, but, quick)


ALBUMENTATIONS_PIXELS = [
    c("A.RandomBrightnessContrast(0, 0.4, p=1)", "A.RandomBrightnessContrast(0, 0.8, p=1)", quick=True),
    c(
        "A.RandomBrightnessContrast(p=1)",
        "A.RandomBrightnessContrast(0.4, 0.4, p=1)",
        "contrast",
        "detail",
        "saturation",
    ),
    c(
        "A.RandomBrightnessContrast((0.3, 0.3), (-0.3, -0.3), p=1)",
        "A.RandomBrightnessContrast((-0.3, -0.3), (0.3, 0.3), p=1)",
    ),
    c(
        "A.RandomBrightnessContrast(0.4, 0, brightness_by_max=False, p=1)",
        "A.RandomBrightnessContrast(0.4, 0, p=1)",
        "contrast",
        "detail",
        "saturation",
    ),
    c(
        "A.HueSaturationValue(30, 0, 0, p=1)",
        "A.HueSaturationValue(15, 0, 0, p=1)",
        "red",
        "green",
        "blue",
        "detail",
        "contrast",
        "saturation",
    ),
    c(
        "A.HueSaturationValue(0, 40, 0, p=1)",
        "A.HueSaturationValue(0, 80, 0, p=1)",
        "red",
        "green",
        "blue",
        "detail",
        "change",
        "contrast",
    ),
    c("A.HueSaturationValue(0, 0, 30, p=1)", "A.HueSaturationValue(0, 0, 60, p=1)", "contrast", "detail"),
    c("A.ColorJitter(0.4, 0, 0, 0, p=1)", "A.ColorJitter(0, 0.4, 0, 0, p=1)"),
    c("A.ColorJitter(0, 0.4, 0, 0, p=1)", "A.ColorJitter(0, 0.2, 0, 0, p=1)"),
    c("A.ColorJitter(0, 0, 0.4, 0, p=1)", "A.ColorJitter(0, 0, 0.8, 0, p=1)"),
    c("A.ColorJitter(0, 0, 0, (0.05, 0.15), p=1)", "A.ColorJitter(0, 0, 0, (-0.15, -0.05), p=1)"),
    c("A.ToGray(p=0.3)", "A.ToGray(p=0.6)"),
    c("A.ToGray(method='average', p=0.6)", "A.ToGray(method='average', p=0.1)", "green", "detail"),
    c("A.ChannelShuffle(p=0.4)", "A.ChannelShuffle(p=0.8)"),
    c("A.InvertImg(p=0.3)", "A.InvertImg(p=0.6)"),
    c("A.Solarize((0.3, 0.3), p=1)", "A.Solarize((0.6, 0.6), p=1)"),
    c("A.Solarize((0.3, 0.5), p=1)", "A.Solarize((0.6, 0.9), p=1)", "spread"),
    c("A.Posterize(3, p=1)", "A.Posterize(4, p=1)"),
    c("A.Posterize((2, 4), p=1)", "A.Posterize((3, 5), p=1)"),
    c("A.Equalize(p=0.4)", "A.Equalize(p=0.8)"),
    c("A.Equalize(mode='pil', p=1)", "A.Equalize(mode='pil', p=0.5)", "hue"),
    c("A.AutoContrast(method='pil', p=1)", "A.AutoContrast(method='pil', p=0.5)"),
    c("A.AutoContrast(p=1)", "A.AutoContrast(p=0.5)"),
    c("A.CLAHE((2, 2), p=1)", "A.CLAHE((4, 4), p=1)"),
    c("A.CLAHE((1, 4), (4, 4), p=1)", "A.CLAHE((1, 4), (16, 16), p=1)", "spread"),
    c("A.Blur((3, 3), p=1)", "A.Blur((5, 5), p=1)"),
    c("A.Blur(9, p=1)", "A.Blur((7, 9), p=1)", quick=True),
    c("A.GaussianBlur((3, 3), (1, 1), p=1)", "A.GaussianBlur((5, 5), (1, 1), p=1)"),
    c("A.GaussianBlur((3, 9), (2, 2), p=1)", "A.GaussianBlur((1, 5), (2, 2), p=1)"),
    c("A.GaussianBlur(0, (0.5, 1.5), p=1)", "A.GaussianBlur(0, (1, 3), p=1)"),
    c("A.GaussianBlur(5, (1, 2), p=1)", "A.GaussianBlur((5, 9), (1, 2), p=1)"),
    c("A.AdvancedBlur((5, 5), (0.8, 1.4), (0.8, 1.4), p=1)", "A.AdvancedBlur((5, 5), (0.3, 0.6), (0.3, 0.6), p=1)"),
    c("A.RandomGamma((60, 60), p=1)", "A.RandomGamma((160, 160), p=1)"),
    c("A.RandomGamma((60, 90), p=1)", "A.RandomGamma((90, 120), p=1)"),
    c("A.ChannelDropout((1, 1), p=1)", "A.ChannelDropout((2, 2), p=1)"),
    c("A.ChannelDropout((2, 2), 200, p=0.5)", "A.ChannelDropout((2, 2), 20, p=0.5)"),
    c("A.MotionBlur((7, 7), allow_shifted=False, p=1)", "A.MotionBlur((3, 3), allow_shifted=False, p=1)", "change"),
    c("A.MotionBlur((3, 9), allow_shifted=False, p=1)", "A.MotionBlur((11, 15), allow_shifted=False, p=1)", "change"),
    c("A.MedianBlur((3, 3), p=1)", "A.MedianBlur((7, 7), p=1)"),
    c("A.MedianBlur((3, 7), p=1)", "A.MedianBlur((3, 3), p=1)"),
    c("A.Defocus((2, 2), (0.1, 0.1), p=1)", "A.Defocus((4, 4), (0.1, 0.1), p=1)"),
    c("A.Defocus((2, 5), (0.1, 0.5), p=1)", "A.Defocus((5, 9), (0.1, 0.5), p=1)"),
    c("A.Downscale((0.25, 0.25), p=1)", "A.Downscale((0.02, 0.02), p=1)", "change"),
    c("A.RandomRain(p=1)", "A.RandomRain(rain_type='torrential', p=1)", "detail"),
    c(
        "A.RandomRain((-4, 8), 30, 2, (250, 90, 20), 5, 0.9, 'heavy', p=1)",
        "A.RandomRain((-4, 8), 30, 2, (20, 90, 250), 5, 0.9, 'heavy', p=1)",
        "detail",
    ),
    c("A.RandomFog(fog_coef_range=(1, 1), p=1)", "A.RandomFog(fog_coef_range=(0.5, 0.5), p=1)", "detail"),
    c("A.RandomFog(0.15, (0.3, 1), p=1)", "A.RandomFog(0.05, (0.3, 1), p=1)", "detail"),
    c("A.RandomShadow(p=1)", "A.RandomShadow(num_shadows_limit=(3, 4), p=1)"),
    c(
        "A.RandomShadow((0, 0, 0.5, 1), (2, 3), 4, (0.2, 0.6), p=1)",
        "A.RandomShadow((0, 0, 0.5, 1), (2, 3), 4, (0.6, 0.9), p=1)",
    ),
    c("A.GaussNoise((0.1, 0.1), p=1)", "A.GaussNoise((0.2, 0.2), p=1)"),
    c("A.GaussNoise((0.05, 0.15), (0.1, 0.1), p=1)", "A.GaussNoise((0.1, 0.3), (0.1, 0.1), p=1)", "spread"),
    c(
        "A.GaussNoise((0.1, 0.1), per_channel=False, p=1)",
        "A.GaussNoise((0.2, 0.2), per_channel=False, p=1)",
        "saturation",
        "hue",
    ),
    c("A.SaltAndPepper((0.05, 0.1), (0.5, 0.5), p=1)", "A.SaltAndPepper((0.1, 0.2), (0.5, 0.5), p=1)"),
    c("A.ImageCompression(quality_range=(5, 15), p=1)", "A.ImageCompression(quality_range=(15, 30), p=1)", "hue"),
    c("A.Sharpen((0.3, 0.3), (1.0, 1.0), p=1)", "A.Sharpen((0.45, 0.45), (1.0, 1.0), p=1)"),
    c("A.Sharpen(p=1)", "A.Sharpen((0.4, 1.0), (0.5, 1.0), p=1)"),
    c("A.CoarseDropout((1, 7), p=1)", "A.CoarseDropout((6, 8), p=1)"),
    c(
        "A.Compose([A.Resize(96, 128), A.CoarseDropout((3, 3), (20, 30), (5, 10), p=1)])",
        "A.Compose([A.Resize(96, 128), A.CoarseDropout((3, 3), (5, 10), (20, 30), p=1)])",
    ),
    c("A.GridDropout(0.5, unit_size_range=(10, 20), p=1)", "A.GridDropout(0.5, unit_size_range=(30, 40), p=1)"),
    c("A.GridDropout(0.4, unit_size_range=(20, 21), p=1)", "A.GridDropout(0.8, unit_size_range=(20, 21), p=1)"),
    c("A.Erasing((0.05, 0.1), (2, 3), p=1)", "A.Erasing((0.05, 0.1), (0.3, 0.5), p=1)"),
    c("A.Erasing((0.05, 0.1), p=0.6)", "A.Erasing((0.1, 0.2), p=0.6)"),
]

ALBUMENTATIONS_GEOMETRY = [
    c("A.HorizontalFlip(p=0.3)", "A.HorizontalFlip(p=0.6)", quick=True),
    c("A.VerticalFlip(p=0.3)", "A.HorizontalFlip(p=0.3)"),
    c("A.Transpose(p=0.3)", "A.Transpose(p=0.6)"),
    c("A.D4(p=0.8)", "A.D4(p=0.4)"),
    c("A.SquareSymmetry(p=0.8)", "A.SquareSymmetry(p=0.4)"),
    c("A.RandomRotate90(p=0.8)", "A.RandomRotate90(p=0.4)"),
    c("A.Resize(64, 112)", "A.Resize(112, 64)"),
    c("A.LongestMaxSize(80)", "A.SmallestMaxSize(80)"),
    c("A.SmallestMaxSize(80)", "A.LongestMaxSize(80)"),
    c("A.SmallestMaxSize([60, 80])", "A.SmallestMaxSize([120, 160])"),
    c("A.Compose([A.LongestMaxSize(96), A.PadIfNeeded(96, 96)])", "A.Compose([A.LongestMaxSize(96)])"),
    c("A.PadIfNeeded(None, None, 50, 50, 'top_left')", "A.PadIfNeeded(None, None, 80, 80, 'top_left')"),
    c("A.Pad((2, 4, 6, 8))", "A.Pad((4, 8, 12, 16))"),
    c("A.RandomCrop(50, 70)", "A.CenterCrop(50, 70)"),
    c("A.CenterCrop(50, 70)", "A.CenterCrop(70, 50)"),
    c("A.AtLeastOneBBoxRandomCrop(50, 70)", "A.AtLeastOneBBoxRandomCrop(70, 50)", "shift"),
    c("A.RandomResizedCrop((64, 96), (0.2, 0.5))", "A.RandomResizedCrop((64, 96), (0.4, 1.0))"),
    c("A.RandomResizedCrop((64, 96), ratio=(2, 3))", "A.RandomResizedCrop((64, 96), ratio=(0.3, 0.5))"),
    c("A.RandomSizedCrop((30, 60), (64, 96), w2h_ratio=1.5)", "A.RandomSizedCrop((60, 80), (64, 96), w2h_ratio=1.5)"),
    c("A.BBoxSafeRandomCrop(p=1)", "A.BBoxSafeRandomCrop(p=0.5)"),
    c("A.RandomSizedBBoxSafeCrop(64, 96, p=1)", "A.RandomSizedBBoxSafeCrop(96, 64, p=1)"),
    c("A.OpticalDistortion((0.2, 0.2), p=1)", "A.OpticalDistortion((0.3, 0.3), p=1)", quick=True),
    c("A.OpticalDistortion((-0.3, 0.3), p=1)", "A.OpticalDistortion((-0.15, 0.15), p=1)"),
    c(
        "A.ElasticTransform(20, 4, noise_distribution='uniform', p=1)",
        "A.ElasticTransform(8, 4, noise_distribution='uniform', p=1)",
        "shown",
    ),
    c("A.ElasticTransform(60, 4, p=1)", "A.ElasticTransform(20, 4, p=1)", "shown"),
    c("A.Rotate((10, 30), p=1)", "A.Rotate((-30, -10), p=1)", quick=True),
    c("A.Rotate(20, p=0.7)", "A.Rotate(40, p=0.7)"),
    c(
        "A.Compose([A.SafeRotate((10, 30), p=1), A.Resize(96, 128)])",
        "A.Compose([A.SafeRotate((20, 60), p=1), A.Resize(96, 128)])",
    ),
    c("A.ShiftScaleRotate(p=1)", "A.ShiftScaleRotate(0.125, 0.2, 90, p=1)"),
    c("A.ShiftScaleRotate(0.1, 0, 0, p=1)", "A.ShiftScaleRotate(0.2, 0, 0, p=1)"),
    c(
        "A.ShiftScaleRotate(0, 0, 0, shift_limit_x=0.3, shift_limit_y=0.1, p=1)",
        "A.ShiftScaleRotate(0, 0, 0, shift_limit_x=0.1, shift_limit_y=0.3, p=1)",
    ),
    c("A.ShiftScaleRotate(0, (0.2, 0.4), 0, p=1)", "A.ShiftScaleRotate(0, (0.4, 0.8), 0, p=1)"),
    c("A.ShiftScaleRotate(0, 0, (10, 20), p=1)", "A.ShiftScaleRotate(0, 0, (20, 40), p=1)"),
    c("A.Affine(scale=(0.6, 0.8), keep_ratio=True, p=1)", "A.Affine(scale=(1.2, 1.4), keep_ratio=True, p=1)"),
    c("A.Affine(scale=(0.8, 1.2), p=1)", "A.Affine(scale=(0.6, 1.4), p=1)"),
    c("A.Affine(rotate=(10, 20), p=1)", "A.Affine(rotate=(-20, -10), p=1)"),
    c("A.Affine(translate_percent=(-0.2, 0.2), p=1)", "A.Affine(translate_percent=(-0.4, 0.4), p=1)"),
    c("A.Affine(shear={'x': (5, 15), 'y': 0}, p=1)", "A.Affine(shear={'x': (-15, -5), 'y': 0}, p=1)"),
    c("A.Affine(shear={'x': 0, 'y': (5, 15)}, p=1)", "A.Affine(shear={'x': (5, 15), 'y': 0}, p=1)"),
    c("A.Affine(shear=(-15, 15), p=1)", "A.Affine(shear=(-30, 30), p=1)", "area", "y of y"),
    c("A.Perspective((0.1, 0.1), p=1)", "A.Perspective((0.25, 0.25), p=1)", *("shown", "area", " of x", " of y")),
]

TORCHVISION_PIXELS = [
    c("v2.RandomPhotometricDistort(p=1)", "v2.RandomPhotometricDistort(p=0.5)"),
    c(
        "v2.RandomPhotometricDistort((0.6, 1.4), (1, 1), (1, 1), (0, 0), 0.5)",
        "v2.RandomPhotometricDistort((1, 1), (0.6, 1.4), (1, 1), (0, 0), 0.5)",
    ),
    c("v2.ColorJitter(brightness=0.4)", "v2.ColorJitter(contrast=0.4)"),
    c("v2.ColorJitter(contrast=0.4)", "v2.ColorJitter(contrast=0.8)"),
    c("v2.ColorJitter(saturation=0.4)", "v2.ColorJitter(saturation=0.8)"),
    c("v2.ColorJitter(hue=(0.05, 0.15))", "v2.ColorJitter(hue=(-0.15, -0.05))"),
    c("v2.RandomGrayscale(0.3)", "v2.RandomGrayscale(0.6)"),
    c("v2.Grayscale(3)", "v2.RandomGrayscale(0.5)"),
    c("v2.RandomChannelPermutation()", "v2.RandomApply([v2.RandomChannelPermutation()], 0.5)"),
    c("v2.GaussianBlur(5, (0.5, 1.0))", "v2.GaussianBlur(5, (1.0, 2.0))"),
    c("v2.GaussianBlur((3, 7), (1.0, 2.0))", "v2.GaussianBlur((3, 3), (1.0, 2.0))"),
    c("v2.GaussianNoise(0.05, 0.1)", "v2.GaussianNoise(0.05, 0.2)"),
    c("v2.RandomAdjustSharpness(4, p=1)", "v2.RandomAdjustSharpness(2, p=1)"),
    c("v2.RandomAdjustSharpness(0, p=1)", "v2.RandomAdjustSharpness(2, p=1)"),
    c("v2.RandomInvert(0.3)", "v2.RandomInvert(0.6)"),
    c("v2.RandomPosterize(3, p=1)", "v2.RandomPosterize(4, p=1)"),
    c("v2.RandomSolarize(100, p=1)", "v2.RandomSolarize(200, p=1)"),
    c("v2.RandomAutocontrast(1)", "v2.RandomAutocontrast(0.5)"),
    c("v2.RandomEqualize(1)", "v2.RandomEqualize(0.5)", "hue"),
    c("v2.JPEG((5, 15))", "v2.JPEG((15, 30))"),
    c("v2.RandomErasing(1, (0.05, 0.1), (2, 3))", "v2.RandomErasing(1, (0.05, 0.1), (0.3, 0.5))"),
    c("v2.RandomErasing(0.6, (0.05, 0.1))", "v2.RandomErasing(0.6, (0.1, 0.2))"),
    c("v2.RandAugment(2, 9)", "v2.RandAugment(2, 25)", "hue"),
    c("v2.TrivialAugmentWide()", "v2.RandAugment(3, 20)", "hue"),
]

TORCHVISION_GEOMETRY = [
    c("v2.RandomHorizontalFlip(0.3)", "v2.RandomHorizontalFlip(0.6)"),
    c("v2.RandomVerticalFlip(0.3)", "v2.RandomHorizontalFlip(0.3)"),
    c("v2.RandomZoomOut(side_range=(2.0, 2.2), p=1)", "v2.RandomZoomOut(side_range=(1.0, 1.2), p=1)"),
    c("v2.RandomIoUCrop()", "v2.RandomIoUCrop(min_scale=0.7)"),
    c("v2.RandomIoUCrop(sampler_options=[0.1, 0.3])", "v2.RandomIoUCrop(0.8, sampler_options=[0.1, 0.3])"),
    c("v2.RandomRotation((10, 30))", "v2.RandomRotation((-30, -10))"),
    c("v2.RandomRotation((10, 30), expand=True)", "v2.RandomRotation((10, 30))"),
    c("v2.RandomAffine(20, (0.1, 0.2), (0.8, 1.2))", "v2.RandomAffine(40, (0.2, 0.4), (0.6, 1.4))"),
    c("v2.RandomAffine(0, shear=(5, 15, -20, -10))", "v2.RandomAffine(0, shear=(-20, -10, 5, 15))"),
    c("v2.RandomPerspective(0.4, p=1)", "v2.RandomPerspective(0.2, p=1)"),
    c("v2.Resize(72)", "v2.Resize((72, 72))"),
    c("v2.Resize(72, max_size=80)", "v2.Resize(72)"),
    c("v2.RandomShortestSize((48, 72), max_size=84)", "v2.RandomShortestSize((72, 96))"),
    c("v2.RandomResize(48, 72)", "v2.RandomResize(72, 96)"),
    c(
        "v2.Compose([v2.ScaleJitter((128, 96), (0.5, 1.5)), v2.RandomCrop((96, 128), pad_if_needed=True)])",
        "v2.Compose([v2.ScaleJitter((96, 128), (0.5, 1.5)), v2.RandomCrop((96, 128), pad_if_needed=True)])",
    ),
    c("v2.CenterCrop((50, 70))", "v2.CenterCrop((70, 50))"),
    c("v2.RandomCrop((50, 70))", "v2.CenterCrop((50, 70))"),
    c("v2.RandomCrop(90, padding=(8, 16))", "v2.RandomCrop(90)"),
    c("v2.RandomCrop(120, pad_if_needed=True)", "v2.RandomCrop(160, pad_if_needed=True)"),
    c("v2.Pad((2, 4, 6, 8))", "v2.Pad((4, 8, 12, 16))"),
    c("v2.RandomResizedCrop((64, 96), (0.2, 0.5))", "v2.RandomResizedCrop((64, 96), (0.4, 1.0))"),
]


def saved(name: str, op: str, wrong: str, *but: str, quick: bool = False, **arguments: Any) -> Case:
    """Return the case of an op that version 1.x of Albumentations wrote; `op` is what it was, in today's words."""
    resize = {"__class_fullname__": "Resize", "p": 1.0, "height": 96, "width": 128}
    ops = [{"__class_fullname__": name, "p": 1.0, **arguments}]
    if name in ("Cutout", "CoarseDropout"):  # in pixels of an image whose size must be known
        ops.insert(0, resize)
    pipeline = {"__class_fullname__": "Compose", "p": 1.0, "transforms": ops}
    return Case(op, wrong, but, quick, {"__version__": "1.4.15", "transform": pipeline})


SAVED_PIXELS = [
    saved(
        "RandomBrightness",
        "A.RandomBrightnessContrast(0.2, 0, p=1)",
        "A.RandomBrightnessContrast(0.4, 0, p=1)",
        "contrast",
        "detail",
        "saturation",
        limit=[-0.2, 0.2],
    ),
    saved(
        "RandomContrast",
        "A.RandomBrightnessContrast(0, 0.2, p=1)",
        "A.RandomBrightnessContrast(0, 0.4, p=1)",
        limit=[-0.2, 0.2],
    ),
    saved(
        "JpegCompression",
        "A.ImageCompression(quality_range=(5, 15), p=1)",
        "A.ImageCompression(quality_range=(15, 30), p=1)",
        "hue",
        quality_lower=5,
        quality_upper=15,
    ),
    saved(
        "GaussNoise",
        "A.GaussNoise((0.1, 0.1), (0.05, 0.05), p=1)",
        "A.GaussNoise((0.2, 0.2), (0.05, 0.05), p=1)",
        var_limit=[650.25, 650.25],
        mean=12.75,
    ),
    saved(
        "RandomShadow",
        "A.RandomShadow((0, 0.2, 1, 0.8), (2, 4), 6, p=1)",
        "A.RandomShadow((0, 0.2, 1, 0.8), (1, 1), 6, p=1)",
        shadow_roi=[0, 0.2, 1, 0.8],
        num_shadows_lower=2,
        num_shadows_upper=4,
        shadow_dimension=6,
    ),
    saved(
        "RandomRain",
        "A.RandomRain((-3, 6), 25, rain_type='heavy', p=1)",
        "A.RandomRain((-3, 6), 25, rain_type='heavy', brightness_coefficient=0.5, p=1)",
        "detail",
        slant_lower=-3,
        slant_upper=6,
        drop_length=25,
        rain_type="heavy",
    ),
    saved(
        "RandomFog",
        "A.RandomFog(0.08, (0.5, 0.9), p=1)",
        "A.RandomFog(0.08, (0.2, 0.4), p=1)",
        "detail",
        fog_coef_lower=0.5,
        fog_coef_upper=0.9,
        alpha_coef=0.08,
    ),
    saved("Solarize", "A.Solarize((0.5, 0.5), p=1)", "A.Solarize((0.25, 0.25), p=1)", threshold=[127.5, 127.5]),
    saved(
        "GaussianBlur",
        "A.GaussianBlur((5, 5), (1.1, 1.1), p=1)",
        "A.GaussianBlur((5, 5), (2, 2), p=1)",
        blur_limit=[5, 5],
        sigma_limit=[0, 0],
    ),
    saved(
        "Cutout",
        "A.CoarseDropout((4, 4), (16, 16), (8, 8), p=1)",
        "A.CoarseDropout((4, 4), (8, 8), (16, 16), p=1)",
        num_holes=4,
        max_h_size=16,
        max_w_size=8,
        fill_value=0,
    ),
    saved(
        "CoarseDropout",
        "A.CoarseDropout((2, 4), (16, 20), (8, 10), p=1)",
        "A.CoarseDropout((2, 4), (8, 10), (16, 20), p=1)",
        min_holes=2,
        max_holes=4,
        min_height=16,
        max_height=20,
        min_width=8,
        max_width=10,
        fill_value=0,
    ),
    saved(
        "GridDropout",
        "A.GridDropout(0.5, unit_size_range=(10, 20), p=1)",
        "A.GridDropout(0.5, unit_size_range=(30, 40), p=1)",
        ratio=0.5,
        unit_size_min=10,
        unit_size_max=20,
        fill_value=0,
    ),
]

SAVED_GEOMETRY = [
    saved(
        "Affine",
        "A.Affine(shear={'x': (-15, -5), 'y': 0}, p=1)",
        "A.Affine(shear={'x': (5, 15), 'y': 0}, p=1)",
        shear={"x": [5, 15], "y": [0, 0]},
        cval=0,
        mode=0,
    ),
    saved(
        "RandomResizedCrop",
        "A.RandomResizedCrop((64, 96), (0.2, 0.5))",
        "A.RandomResizedCrop((96, 64), (0.2, 0.5))",
        height=64,
        width=96,
        scale=[0.2, 0.5],
    ),
    saved(
        "ShiftScaleRotate",
        "A.ShiftScaleRotate(0.1, (0.1, 0.2), (10, 20), p=1)",
        "A.ShiftScaleRotate(0.2, (0.1, 0.2), (20, 40), p=1)",
        shift_limit_x=[-0.1, 0.1],
        shift_limit_y=[-0.1, 0.1],
        scale_limit=[0.1, 0.2],
        rotate_limit=[10, 20],
        border_mode=0,
        value=0,
    ),
]

ON_PIXELS = [*ALBUMENTATIONS_PIXELS, *TORCHVISION_PIXELS, *SAVED_PIXELS]
ON_GEOMETRY = [*ALBUMENTATIONS_GEOMETRY, *TORCHVISION_GEOMETRY, *SAVED_GEOMETRY]
DRAWS, FEW = 200, 60
"""Images of each op. That a wrong one differs shows in a few already, mostly."""


ELSEWHERE = {"Normalize", "ToFloat", "ToTensorV2", "ToTensor", "NoOp", "BboxParams", "Flip"}
ELSEWHERE |= {"SanitizeBoundingBoxes", "ConvertImageDtype", "ToDtype", "ToImage", "PILToTensor", "ToPureTensor"}
ELSEWHERE |= {"ToImageTensor", "Identity", "RGB", "ToPILImage", "ClampBoundingBoxes", "ConvertBoundingBoxFormat"}
ELSEWHERE |= {"SetClampingMode", "ClampKeyPoints", "SanitizeKeyPoints"}
"""Rules without a strength, which test_import_recipe.py tests, and Flip, which has no counterpart in 2.0."""


def test_every_rule_with_a_strength_has_a_case() -> None:
    tested = set(re.findall(r"\b(?:A|v2)\.(\w+)\(", repr([ON_PIXELS, ON_GEOMETRY])))
    tested |= set(re.findall(r"'__class_fullname__': '(\w+)'", repr([ON_PIXELS, ON_GEOMETRY])))
    assert set().union(*RULES.values()) - tested == ELSEWHERE


def marked(cases: list[Case]) -> list[Any]:
    return [
        pytest.param(case, id=str(case.saved or case.op), marks=[] if case.quick else [pytest.mark.slow])
        for case in cases
    ]


def compare(case: Case, image: Any, measure: Any) -> tuple[list[str], list[str]]:
    """Return in what the import of an op differs from the op, and from the op at another strength."""
    recipe = da.import_recipe(case.saved or live(case.op))
    assert not recipe.left_out
    bound = SAME if recipe.differing == 0 and not case.saved else NEAR
    ours, unchanged = measure(imported(recipe, image, DRAWS)), measure([image])

    def found(op: str, draws: int) -> list[str]:
        theirs = measure(original(live(op), image, draws, boxes=image is GEOMETRY))
        wrong = differences(theirs, ours, unchanged, bound)
        return [each for each in wrong if not any(part in each for part in case.but)]

    return found(case.op, DRAWS), found(case.wrong, FEW) or found(case.wrong, DRAWS)


@pytest.mark.filterwarnings("ignore:The image decoding and encoding capabilities of TorchVision:DeprecationWarning")
@pytest.mark.parametrize("case", marked(ON_PIXELS))
def test_colours_and_detail_change_as_much(case: Case) -> None:
    right, wrong = compare(case, PIXELS, lambda images: measure_pixels(images, PIXELS))
    assert right == []
    assert wrong


@pytest.mark.filterwarnings("ignore:ShiftScaleRotate is a special case:UserWarning")
@pytest.mark.parametrize("case", marked(ON_GEOMETRY))
def test_pixels_land_in_the_same_places(case: Case) -> None:
    right, wrong = compare(case, GEOMETRY, measure_geometry)
    assert right == []
    assert wrong
