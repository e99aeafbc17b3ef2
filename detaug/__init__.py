"""Object-detection augmentation on NVIDIA DALI, boxes never out of step with the pixels.

import detaug as da
loader = da.Loader(da.CocoReader("VOC2012/JPEGImages", "train.json"), da.presets.ssd300(), batch_size=32)
for batch in loader:
    losses = model(batch.images, batch.targets())

Sizes are (height, width) in pixels, boxes XYXY, `p` is a probability, `fill` RGB in 0..255. A wrong argument is a
ValueError, or a TypeError, when the op or the loader is made; it names the argument, the rule and the value.

The examples in docstrings run in a folder where `detaug demo` and
`detaug convert-voc demo/VOC -o train.json --split train` were run, after

import detaug as da
import numpy as np
import torch
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from detaug import presets as presets
    from detaug import targets as targets
    from detaug import testing as testing
    from detaug.affine import RandomAffine as RandomAffine
    from detaug.affine import RandomPerspective as RandomPerspective
    from detaug.affine import RandomRotation as RandomRotation
    from detaug.batches import Batch as Batch
    from detaug.box_rules import SanitizeBoundingBoxes as SanitizeBoundingBoxes
    from detaug.control import RandomApply as RandomApply
    from detaug.control import RandomChoice as RandomChoice
    from detaug.control import RandomOrder as RandomOrder
    from detaug.eager import batch as batch
    from detaug.evaluator import CocoEvaluator as CocoEvaluator
    from detaug.evaluator import Metrics as Metrics
    from detaug.faults import DataError as DataError
    from detaug.geometry import CenterCrop as CenterCrop
    from detaug.geometry import Pad as Pad
    from detaug.geometry import PadToMultiple as PadToMultiple
    from detaug.geometry import RandomBoxSafeCrop as RandomBoxSafeCrop
    from detaug.geometry import RandomCrop as RandomCrop
    from detaug.geometry import RandomHorizontalFlip as RandomHorizontalFlip
    from detaug.geometry import RandomRotate90 as RandomRotate90
    from detaug.geometry import RandomVerticalFlip as RandomVerticalFlip
    from detaug.geometry import RandomZoomOut as RandomZoomOut
    from detaug.geometry import ScaleJitter as ScaleJitter
    from detaug.hiding import GridMask as GridMask
    from detaug.hiding import RandomErasing as RandomErasing
    from detaug.iou_crop import RandomIoUCrop as RandomIoUCrop
    from detaug.loader import Loader as Loader
    from detaug.mixing import CopyPaste as CopyPaste
    from detaug.mixing import CutMix as CutMix
    from detaug.mixing import MixUp as MixUp
    from detaug.mixing import Mosaic as Mosaic
    from detaug.pixels import CLAHE as CLAHE
    from detaug.pixels import JPEG as JPEG
    from detaug.pixels import ColorJitter as ColorJitter
    from detaug.pixels import GaussianBlur as GaussianBlur
    from detaug.pixels import GaussianNoise as GaussianNoise
    from detaug.pixels import Normalize as Normalize
    from detaug.pixels import RandomAdjustSharpness as RandomAdjustSharpness
    from detaug.pixels import RandomAutocontrast as RandomAutocontrast
    from detaug.pixels import RandomChannelPermutation as RandomChannelPermutation
    from detaug.pixels import RandomEqualize as RandomEqualize
    from detaug.pixels import RandomGrayscale as RandomGrayscale
    from detaug.pixels import RandomHSV as RandomHSV
    from detaug.pixels import RandomInvert as RandomInvert
    from detaug.pixels import RandomPhotometricDistort as RandomPhotometricDistort
    from detaug.pixels import RandomPosterize as RandomPosterize
    from detaug.pixels import RandomSolarize as RandomSolarize
    from detaug.pixels import SaltAndPepperNoise as SaltAndPepperNoise
    from detaug.policies import RandAugment as RandAugment
    from detaug.policies import TrivialAugmentWide as TrivialAugmentWide
    from detaug.reader import CocoReader as CocoReader
    from detaug.recipe import GeometricOp as GeometricOp
    from detaug.recipe import Op as Op
    from detaug.recipe import PixelOp as PixelOp
    from detaug.recipe_file import load_recipe as load_recipe
    from detaug.recipe_file import save_recipe as save_recipe
    from detaug.resize import RandomShortestSize as RandomShortestSize
    from detaug.resize import Resize as Resize
    from detaug.sampling import ClassBalancedSampler as ClassBalancedSampler
    from detaug.sampling import RepeatFactorSampler as RepeatFactorSampler

_NAMES = {
    "batches": ("Batch",),
    "control": ("RandomApply", "RandomChoice", "RandomOrder"),
    "eager": ("batch",),
    "affine": ("RandomAffine", "RandomPerspective", "RandomRotation"),
    "box_rules": ("SanitizeBoundingBoxes",),
    "evaluator": ("CocoEvaluator", "Metrics"),
    "faults": ("DataError",),
    "geometry": (
        "CenterCrop",
        "Pad",
        "PadToMultiple",
        "RandomBoxSafeCrop",
        "RandomCrop",
        "RandomHorizontalFlip",
        "RandomRotate90",
        "RandomVerticalFlip",
        "RandomZoomOut",
        "ScaleJitter",
    ),
    "hiding": ("GridMask", "RandomErasing"),
    "iou_crop": ("RandomIoUCrop",),
    "loader": ("Loader",),
    "mixing": ("CopyPaste", "CutMix", "MixUp", "Mosaic"),
    "pixels": (
        "CLAHE",
        "ColorJitter",
        "GaussianBlur",
        "GaussianNoise",
        "JPEG",
        "Normalize",
        "RandomAdjustSharpness",
        "RandomAutocontrast",
        "RandomChannelPermutation",
        "RandomEqualize",
        "RandomGrayscale",
        "RandomHSV",
        "RandomInvert",
        "RandomPhotometricDistort",
        "RandomPosterize",
        "RandomSolarize",
        "SaltAndPepperNoise",
    ),
    "policies": ("RandAugment", "TrivialAugmentWide"),
    "reader": ("CocoReader",),
    "recipe": ("GeometricOp", "Op", "PixelOp"),
    "recipe_file": ("load_recipe", "save_recipe"),
    "resize": ("RandomShortestSize", "Resize"),
    "sampling": ("ClassBalancedSampler", "RepeatFactorSampler"),
}
_MODULE_OF = {name: module for module, names in _NAMES.items() for name in names}

_MODULES = ("presets", "targets", "testing")

__all__ = [*_MODULES, *_MODULE_OF]


def __getattr__(name: str) -> Any:
    """Import torch and DALI, which take seconds, only when something that needs them is asked for."""
    if name in _MODULES:
        return import_module(f"detaug.{name}")
    if name in _MODULE_OF:
        return getattr(import_module(f"detaug.{_MODULE_OF[name]}"), name)
    raise AttributeError(f"module 'detaug' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
