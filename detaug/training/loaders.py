"""The recipes and loaders of a training."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from detaug import presets
from detaug.boxes.shapes import single_rings_of_four
from detaug.coco.annotations import read_annotations
from detaug.errors import InputError
from detaug.findings.finding import counted, listed
from detaug.loading.loader import Loader
from detaug.maps.kinds import ClassMap
from detaug.maps.named import refuse_other_classes
from detaug.named_options import option
from detaug.ops.color_ops import RandomPhotometricDistort
from detaug.ops.flips_and_crops import RandomHorizontalFlip, RandomVerticalFlip
from detaug.ops.iou_crop import RandomIoUCrop
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.ops.resize import Resize
from detaug.ops.resized_crop import RandomResizedCrop
from detaug.presets import Triple
from detaug.recipes.recipe_file import import_ops, load_recipe
from detaug.recipes.stages import Stages
from detaug.sources.coco_reader import CocoReader
from detaug.training.model_table import MODELS, READS, Detector, Finds
from detaug.training.options import Size, TrainOptions
from detaug.training.processes import is_first_rank
from detaug.training.semantic_models import MAP


def train_recipe(options: TrainOptions, mean: Triple, std: Triple) -> list[Op] | Stages:
    """Return the recipe of a file, or the model's, see `Model.recipe`."""
    if options.recipe:
        return _normalized_for(_recipe_of_file(options.recipe, options.ops), Normalize(mean, std))
    kind, size = MODELS[options.model].recipe, options.output_size
    resize = make_resize(size)
    if kind == "window":
        window = RandomResizedCrop(size, scale=(0.25, 1.0))
        return [RandomHorizontalFlip(), window, RandomPhotometricDistort(), Normalize(mean, std)]
    if kind == "ssd":
        return [resize if isinstance(op, Resize) else op for op in presets.ssd300(mean, std)]
    first: dict[str, list[Op]] = {"crop": [RandomIoUCrop()], "flips": [RandomVerticalFlip()]}
    return [*first.get(kind, []), RandomHorizontalFlip(), resize, Normalize(mean, std)]


def _recipe_of_file(path: Path, ops: str | None) -> list[Op] | Stages:
    return load_recipe(path, import_ops(ops) if ops else ())


def _normalized_for(recipe: list[Op] | Stages, normalize: Normalize) -> list[Op] | Stages:
    """Return a recipe that ends with the model's `normalize`, with which it is evaluated, in place of its own."""
    if isinstance(recipe, Stages):
        stages = [(start, [*_without_normalize(ops), normalize]) for start, ops in recipe.stages]
        return Stages(stages, by=recipe.by)
    return [*_without_normalize(recipe), normalize]


def _without_normalize(ops: Sequence[Op]) -> list[Op]:
    return [op for op in ops if not isinstance(op, Normalize)]


def make_resize(size: Size) -> Resize:
    """Stretch to (H, W), or resize to the shorter side, the longer one at most 5/3 of it."""
    return Resize(size) if isinstance(size, tuple) else Resize(size, max_size=size * 1333 // 800)


def make_train_loader(options: TrainOptions, device: torch.device, detector: Detector) -> Loader:
    reader = read_train(options)
    ops = train_recipe(options, detector.mean, detector.std)
    if is_first_rank() and MODELS[options.model].finds == "rotated":
        _warn_of_stretching(ops, reader)
    loader = Loader(reader, ops, options.batch_size, device=device, seed=options.seed)
    if is_first_rank() and options.time is None:
        _warn_of_late_changes(ops, options.epochs, len(loader))
    return loader


def _warn_of_late_changes(ops: list[Op] | Stages, epochs: int, steps: int) -> None:
    """Warn of a stage, or an end of mosaics, that the training does not reach: often the recipe is of a longer one.

    `until_epoch=epochs` is intended: mosaics never end. `steps`: of an epoch.
    """
    recipe = ops if isinstance(ops, Stages) else Stages([(0, ops)])
    ends = [getattr(op, "until_epoch", None) or 0 for _, stage_ops in recipe.stages for op in stage_ops]
    starts = [start // (1 if recipe.by == "epoch" else steps) for start, _ in recipe.stages]
    late = [start for start in starts if start >= epochs] + [end for end in ends if end > epochs]
    if late:
        length = counted(epochs, "epoch")
        warnings.warn(
            f"the recipe changes at epoch {min(late)}, counted from 0, and a training of {length} does not reach it: "
            f"give more {option('epochs')}, or change the recipe",
            stacklevel=3,
        )


STRETCHED = 1.02
"""Ratio of the factors by which both sides grow, above which rotated boxes count as stretched."""


def _warn_of_stretching(ops: list[Op] | Stages, reader: CocoReader) -> None:
    """Warn of a `Resize` that stretches images with rotated boxes: their corners get oblique."""
    every = [op for stage in ops.stages for op in stage.ops] if isinstance(ops, Stages) else ops
    for size in {op.size for op in every if isinstance(op, Resize) and op.letterbox is None}:
        if isinstance(size, tuple):
            factors = np.array(size) / reader.sizes
            stretched = int((factors.max(1) > STRETCHED * factors.min(1)).sum())
            if stretched:
                text, smaller = _size_text(size), str(min(size))
                warnings.warn(
                    f"Resize to {text} stretches {counted(stretched, 'image')}, and a stretched rotated box is not a "
                    "rectangle, so the model learns the smallest one around it: give "
                    f"{option('size', smaller, python=smaller)}, or a recipe with Resize({size}, letterbox='center')",
                    stacklevel=3,
                )
                return


def evaluation_resize(options: TrainOptions) -> Resize:
    """Return the Resize of the evaluation and of predictions: the last one of the recipe's file, with its letterbox.

    Its size is `options.output_size` if the model takes one size only, `size` is given, or the recipe draws its size or
    crops after it.
    """
    size, resize, final = options.output_size, None, False
    if options.recipe:
        recipe = _recipe_of_file(options.recipe, options.ops)
        ops = recipe.stages[-1].ops if isinstance(recipe, Stages) else recipe
        index, resize = next(((index, op) for index, op in enumerate(ops) if isinstance(op, Resize)), (0, None))
        crops = any(op.stage == "view" and op.size_after == "fixed" for op in ops[index + 1 :])
        final = resize is not None and resize.one_size and not crops
    if resize is None:
        return make_resize(size)
    fixed = MODELS[options.model].stride == 0
    if final and (resize.size == size or not (fixed or options.size)):
        return replace(resize, decode="whole")
    if final and is_first_rank():
        remedy = f"change its Resize to {_size_text(size)}" if fixed else f"leave out {option('size')}"
        warnings.warn(
            f"the recipe resizes to {_size_text(resize.size)}, and {options.model} is evaluated and predicts at "
            f"{_size_text(size)}: {remedy}",
            stacklevel=2,
        )
    if resize.letterbox and isinstance(size, tuple):
        return replace(resize, size=size, decode="whole")
    return make_resize(size)


def _size_text(size: Any) -> str:
    """Return a size as --size takes it."""
    return str(size) if isinstance(size, int) else f"{size[0]}x{size[1]}"


def make_val_loader(options: TrainOptions, device: torch.device, detector: Detector, resize: Resize) -> Loader | None:
    """Return a loader of every evaluation image once, without random ops; None if there is nothing to evaluate."""
    if options.val is None:
        return None
    reader = read_val(options.val, options)
    ops = [resize, Normalize(detector.mean, detector.std)]
    return Loader(reader, ops, options.batch_size, device=device, train=False)


class _ValInTrainFolder(CocoReader):
    """Evaluation images in the folder of the training images. An error names the option for another folder."""

    def _advice_for_folder(self, key: str) -> str:
        return f"give their folder with {option('val_images', 'FOLDER')}"


def read_train(options: TrainOptions) -> CocoReader:
    """Return the training images, with the shapes that the model finds."""
    shapes = _read_with(options, options.map)
    return CocoReader(options.images, options.annotations, flip_pairs=options.flip_pairs, **shapes)


def read_val(val: Path, options: TrainOptions) -> CocoReader:
    """Return the evaluation images, with the shapes that the model finds."""
    shapes = _read_with(options, options.val_map or options.map)
    if options.val_images:
        return CocoReader(options.val_images, val, **shapes)
    return _ValInTrainFolder(options.images, val, **shapes)


def _read_with(options: TrainOptions, map: ClassMap | None) -> dict[str, Any]:
    """Return the arguments of `CocoReader` for what the model finds."""
    shapes = READS[MODELS[options.model].finds] | ({"maps": {MAP: map}} if map else {})
    return shapes | {"unused_parents": options.unused_parents}


SAME_CLASSES = (
    "give it the classes of the training, in their order, also those without objects: detaug merge FILE.json "
    "-o OUT.json --classes a,b,c"
)
"""The remedy where a JSON file has other classes than that of the training."""


class OfData(NamedTuple):
    """What a model's heads depend on."""

    class_names: tuple[str, ...]
    """Of the labels, index 0 being the background; of a map, of the classes of its pixels."""
    num_keypoints: int
    """0 without keypoints."""

    def arguments(self) -> dict[str, int]:
        """Return the arguments of `make_detector` beside the number of classes."""
        return {"num_keypoints": self.num_keypoints} if self.num_keypoints else {}


def read_of_data(options: TrainOptions) -> OfData:
    """Return what the heads need of the training data.

    Raises InputError if the evaluation data differ in it, or if either has no objects, or for a model of rotated boxes
    none of them: then there is nothing to learn, or to compute an AP of.
    """
    if options.map is not None:
        assert options.map.classes is not None, "the options have been checked"
        if options.val_map is not None:
            refuse_other_classes(options.val_map, options.map, f"the map {options.val_map.folder} of the evaluation")
        return OfData(tuple(options.map.classes), 0)
    finds = MODELS[options.model].finds
    train = _of_reader(read_train(options), finds)
    if options.val:
        val = _of_reader(read_val(options.val, options), finds)
        if val.class_names != train.class_names:
            raise InputError(
                f"{options.val} has the classes {listed(val.class_names[1:])}, and {options.annotations} has "
                f"{listed(train.class_names[1:])}; {SAME_CLASSES}"
            )
        if val != train:
            raise InputError(
                f"{options.val} has {val.num_keypoints} keypoints for each object, {options.annotations} "
                f"{train.num_keypoints}; evaluate with the keypoints of the training"
            )
    return train


def _of_reader(reader: CocoReader, finds: Finds) -> OfData:
    _, _, labels = reader.objects()
    if not len(labels):
        raise InputError(
            f"{reader.annotations_file} has no objects beside crowds, to train or to evaluate with; give a JSON file "
            f"that has some ({option('val')} may be left out), or a {option('model')} of maps, "
            f"lraspp_mobilenet_v3_large, and {option('map')}"
        )
    if finds == "rotated":
        outlines = read_annotations(reader.json_file, outlines=True).outlines
        assert outlines is not None, "they were asked for"
        if np.isnan(outlines.corners).any((1, 2)).all() and not len(single_rings_of_four(outlines)[0]):
            raise InputError(
                f"{reader.annotations_file}: no annotation has corners, or a segmentation of four points, which "
                "rotated boxes are made from; give a JSON file with rotated boxes, or choose a "
                f"{option('model')} of boxes"
            )
    key_points = reader.shapes.keypoints
    return OfData(reader.class_names, 0 if key_points is None else key_points.count)
