"""The recipes and loaders of a training."""

from __future__ import annotations

from pathlib import Path

import torch

from detaug import presets
from detaug.errors import InputError
from detaug.loading.loader import Loader
from detaug.ops.flips_and_crops import RandomHorizontalFlip
from detaug.ops.iou_crop import RandomIoUCrop
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.recipe_file import import_ops, load_recipe
from detaug.ops.resize import Resize
from detaug.presets import Triple
from detaug.sources.coco_reader import CocoReader
from detaug.training.detectors import Detector
from detaug.training.options import Size, TrainOptions


def train_recipe(options: TrainOptions, mean: Triple, std: Triple) -> list[Op]:
    """Return torchvision's reference recipe: SSD's own, SSDlite's crop and flip, a flip for the other models."""
    if options.recipe:
        return load_recipe(options.recipe, import_ops(options.ops) if options.ops else ())
    if options.model == "ssd300_vgg16":
        return presets.ssd300(mean, std)
    crop: list[Op] = [RandomIoUCrop()] if options.model.startswith("ssdlite") else []
    return [*crop, RandomHorizontalFlip(), make_resize(options.output_size), Normalize(mean, std)]


def make_resize(size: Size) -> Resize:
    """Stretch to (H, W), or resize to the shorter side, the longer one at most 5/3 of it."""
    return Resize(size) if isinstance(size, tuple) else Resize(size, max_size=size * 1333 // 800)


def make_train_loader(options: TrainOptions, device: torch.device, detector: Detector) -> Loader:
    reader = CocoReader(options.images, options.annotations)
    ops = train_recipe(options, detector.mean, detector.std)
    return Loader(reader, ops, options.batch_size, device=device, seed=options.seed)


def make_val_loader(options: TrainOptions, device: torch.device, detector: Detector) -> Loader | None:
    """Return a loader of every evaluation image once, without random ops; None if there is nothing to evaluate."""
    if options.val is None:
        return None
    reader = read_val(options.val, options)
    ops = [make_resize(options.output_size), Normalize(detector.mean, detector.std)]
    return Loader(reader, ops, options.batch_size, device=device, train=False)


class _ValInTrainFolder(CocoReader):
    """Evaluation images in the folder of the training images. An error names the option for another folder."""

    def _advice_for_folder(self, key: str) -> str:
        return "give their folder with --val-images FOLDER"


def read_val(val: Path, options: TrainOptions) -> CocoReader:
    """Return the evaluation images."""
    return CocoReader(options.val_images, val) if options.val_images else _ValInTrainFolder(options.images, val)


def read_class_names(options: TrainOptions) -> tuple[str, ...]:
    """Return the class names of the training data. Raises InputError if those of the evaluation data differ."""
    names = CocoReader(options.images, options.annotations).class_names
    if options.val:
        val = read_val(options.val, options)
        if val.class_names != names:
            raise InputError(
                f"{options.val} has the classes {val.class_names[1:]}, {options.annotations} {names[1:]}; "
                "convert both with the same classes"
            )
    return names
