"""RF-DETR's `train()` with batches of a `Loader`.

RF-DETR has no argument for a loader of batches. But `train()` imports `RFDETRDataModule` from `rfdetr.training` when it
is called (rfdetr 1.11.2, detr.py:1208): while it runs, a subclass stands there. It lets RF-DETR build its datasets,
since class names, the number of classes, the labels and the validation come from them, and replaces the loader of
training data alone. If another version imports it in another way, a callback of Lightning stops the training before its
first step.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.metadata import version
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from rfdetr import training
from rfdetr.config import MultiScale
from rfdetr.datasets.coco import CocoDetection, compute_multi_scale_scales
from rfdetr.detr import RFDETR
from rfdetr.training import RFDETRDataModule
from rfdetr.utilities.tensors import NestedTensor
from torch import Tensor

from detaug import presets
from detaug.arguments import check, check_names
from detaug.errors import InputError
from detaug.importing.import_recipe import import_recipe
from detaug.loading.batch import Batch
from detaug.loading.loader import Loader
from detaug.ops.op import Op
from detaug.recipes.stages import Stages
from detaug.sources.coco_reader import CocoReader

Recipe = Sequence[Op] | Stages
SMALLEST_EPOCH = 5
"""Optimizer steps of an epoch, at least: `_MIN_TRAIN_BATCHES` of rfdetr/training/module_data.py."""

_OF_RF_DETR = {
    "batch_size": "give batch_size to train()",
    "accumulate": "give grad_accum_steps to train()",
    "at_least": f"RF-DETR's epochs have {SMALLEST_EPOCH} optimizer steps or more",
    "max_boxes": "give pad_targets_to to train()",
    "collate": "RF-DETR takes batches of one form",
    "shard": "the Trainer knows its ranks",
    "train": "RF-DETR validates on its own dataset",
    "last_batch": "RF-DETR's epochs have whole batches",
    "pad_to_multiple": "it is the model's patch_size * num_windows",
}
"""Arguments of `Loader` that RF-DETR decides, and what to do about them."""


def train(model: RFDETR, recipe: Recipe | Callable[[int], Recipe] | None = None, **train_arguments: Any) -> None:
    """Train a model of RF-DETR, as `model.train(**train_arguments)`, with augmented batches of a `Loader`.

    Args:
        model: Such as `RFDETRNano()`. RF-DETR Seg learns masks.
        recipe: None is RF-DETR's own, `da.presets.rf_detr(size)`, with its `scale_jitter`, and its `aug_config` by
            `da.import_recipe`, where an op that detaug does not have is an error. Otherwise a
            list of ops or `Stages`, or a function that returns one for the size of the images: RF-DETR's largest
            scale with `multi_scale`, which it resizes to others, else the model's `resolution`.
        **train_arguments: Those of `model.train`, such as `dataset_dir`, `epochs`, `batch_size` and `resume`.
            `dataset_dir` has COCO JSON files, as exports of Roboflow do.

    Raises:
        InputError: For models of keypoints, datasets in YOLO's layout and in shards, for arguments that have no effect
            on a `Loader`, and if this version of rfdetr does not take the loader.

    Batch size, accumulation, ranks and device are those of RF-DETR's Trainer; an epoch is as long as RF-DETR's.
    `loader` also takes arguments of the `Loader`.

        model = RFDETRNano()
        rf_detr.train(model, dataset_dir="dataset", epochs=10, batch_size=4)
    """
    check("model", model, isinstance(model, RFDETR), "a model of rfdetr, such as RFDETRNano()")
    with loader(recipe):
        model.train(**train_arguments)


@contextmanager
def loader(recipe: Recipe | Callable[[int], Recipe] | None = None, **loader_arguments: Any) -> Iterator[None]:
    """Let `model.train()` of RF-DETR take augmented batches of a `Loader` inside the `with` block.

    Args:
        recipe: As of `train`.
        **loader_arguments: Those of `Loader` that RF-DETR does not decide, such as `seed`, `cache`, `on_error`,
            `sampler`, `threads`. `seed` is that of `train()` by default, else 0.

    Raises:
        InputError: As `train`; and for an unknown argument, or one that RF-DETR decides.

        with rf_detr.loader(seed=1, cache="host"):
            model.train(dataset_dir="dataset", epochs=10)
    """
    global _settings
    _check_arguments(recipe, loader_arguments)
    before = training.RFDETRDataModule, _settings
    training.RFDETRDataModule, _settings = _DataModuleOfContext, (recipe, loader_arguments)  # type: ignore[misc]
    try:
        yield
    finally:
        training.RFDETRDataModule, _settings = before  # type: ignore[misc]


_settings: tuple[Any, dict[str, Any]] | None = None
"""The arguments of the `loader` in whose `with` block we are."""


def check_takes_loader(data_module: object) -> None:
    """Raise InputError if a Trainer inside `loader` has another data module: a callback calls it before training."""
    if _settings is not None and not isinstance(data_module, LoaderDataModule):
        raise InputError(
            f"rfdetr must be a version that takes detaug's loader, such as 1.11.2, got {version('rfdetr')}, which "
            f"trains with {type(data_module).__name__}; give its Trainer a "
            "detaug.trainers.rf_detr.LoaderDataModule(model_config, train_config)"
        )


class LoaderDataModule(RFDETRDataModule):
    """RF-DETR's data module with a `Loader` for the training data, for scripts with a Trainer of their own.

    Args:
        model_config: Of the model.
        train_config: With `dataset_dir`.
        recipe: As of `train`.
        **loader_arguments: As of `loader`.

    Raises:
        InputError: As `loader`.

        data = rf_detr.LoaderDataModule(model_config, train_config)
        build_trainer(train_config, model_config).fit(RFDETRModelModule(model_config, train_config), data)
    """

    def __init__(self, model_config: Any, train_config: Any, recipe: Any = None, **loader_arguments: Any) -> None:
        super().__init__(model_config, train_config)
        _check_arguments(recipe, loader_arguments)
        _check_configs(model_config, train_config, has_recipe=recipe is not None)
        self.recipe, self.loader_arguments = recipe, loader_arguments
        self.loader: Loader[Any] | None = None

    def train_dataloader(self) -> Any:
        """Return a loader of the training data. It is made now, when the ranks of the processes are known."""
        model, config, trainer = self.model_config, self.train_config, self.trainer
        dataset = self._require_dataset(self._dataset_train, "fit")
        if type(dataset) is not CocoDetection:
            raise InputError(
                f"dataset_dir must have COCO JSON files, got {config.dataset_dir}, which RF-DETR reads as a "
                f"{type(dataset).__name__}; write train/_annotations.coco.json by detaug convert, or train without "
                "detaug's loader"
            )
        self._close()  # the loader of save_dataset_grids, which asks before there is a Trainer
        images, masks = Path(dataset.root), model.segmentation_head
        labels = dataset.cat2label  # None: they are the category ids
        json = images / "_annotations.coco.json" if config.dataset_file == "roboflow" else _json_of_coco(images)
        reader = CocoReader(images, json, masks=masks, unused_parents="drop")
        ids = [int(category) for category in reader.category_ids[1:]]
        block = model.patch_size * model.num_windows
        steps = config.grad_accum_steps if trainer is None else trainer.accumulate_grad_batches
        arguments: dict[str, Any] = {} if config.seed is None else {"seed": config.seed}
        if trainer is not None:
            device = trainer.strategy.root_device
            arguments["device"] = device if device.type == "cuda" else "cpu"
            arguments["shard"] = trainer.global_rank, trainer.world_size
        self.loader = Loader(
            reader,
            self._recipe(),
            self._resolve_batch_size(),
            **arguments | self.loader_arguments,
            accumulate=steps,
            at_least=SMALLEST_EPOCH * steps,
            max_boxes=config.pad_targets_to,
            pad_to_multiple=block,
            collate=_AsRfDetr(
                torch.tensor(ids if labels is None else [labels[category] for category in ids]),
                masks,
                config.pad_targets_to,
                block,
            ),
        )
        return self.loader

    def _recipe(self) -> Recipe:
        size = largest_size(self.model_config, self.train_config)
        if self.recipe is not None:
            recipe: Recipe = self.recipe(size) if callable(self.recipe) else self.recipe
            return recipe
        config = self.train_config
        crop, flip, resize, normalize = presets.rf_detr(size)
        augment = [flip, resize] if config.aug_config is None else [resize]
        if config.aug_config:
            imported = import_recipe(config.aug_config, name="aug_config", size=(size, size))
            if imported.differing:
                warnings.warn(f"some ops of aug_config differ a little here:\n{imported}", stacklevel=2)
            augment = list(imported.ops)
        return [*([crop] if config.scale_jitter else []), *augment, normalize]

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Return the batch: RF-DETR's Kornia backend would augment and normalize it again."""
        return batch

    def teardown(self, stage: str) -> None:
        """End the loader's pipelines after the training."""
        super().teardown(stage)
        if stage == "fit":
            self._close()

    def _close(self) -> None:
        if self.loader is not None:
            self.loader.close()
            self.loader = None


class _DataModuleOfContext(LoaderDataModule):
    """The data module that stands in for RF-DETR's inside `loader`. Of the module, so that processes can pickle it."""

    def __init__(self, model_config: Any, train_config: Any) -> None:
        recipe, loader_arguments = _settings or (None, {})
        super().__init__(model_config, train_config, recipe, **loader_arguments)


def largest_size(model_config: Any, train_config: Any) -> int:
    """Return the side in pixels of the images that RF-DETR's own dataset makes.

    It is the model's `resolution`; with `multi_scale` the largest scale, from which RF-DETR resizes each batch to a
    random one (rfdetr 1.11.2, datasets/coco.py:1396 and training/module_model.py:744).

    >>> from rfdetr.config import RFDETRNanoConfig, TrainConfig
    >>> configs = RFDETRNanoConfig(pretrain_weights=None), TrainConfig(dataset_dir="dataset", output_dir="output")
    >>> rf_detr.largest_size(*configs)
    544
    """
    if train_config.multi_scale is MultiScale.OFF:
        return int(model_config.resolution)
    grid = model_config.patch_size, model_config.num_windows
    return max(compute_multi_scale_scales(model_config.resolution, train_config.expanded_scales, *grid))


class _AsRfDetr:
    """Makes RF-DETR's batch of one of ours: a NestedTensor of images, and a list of targets."""

    def __init__(self, labels: Tensor, masks: bool, max_boxes: int | None, block: int) -> None:
        self.labels, self.masks, self.max_boxes, self.block = labels, masks, max_boxes, block

    def __call__(self, batch: Batch) -> tuple[NestedTensor, list[dict[str, Tensor]]]:
        (images, mask), targets = batch.as_detr(first_label=0, masks=self.masks, max_boxes=self.max_boxes)
        height, width = images.shape[-2:]
        if height % self.block or width % self.block:
            raise InputError(
                f"recipe must give images whose sides are multiples of {self.block} pixels, got {height} x {width}; "
                f"end its geometry with da.Resize(({height // self.block * self.block or self.block}, "
                f"{width // self.block * self.block or self.block}))"
            )
        self.labels = self.labels.to(images.device)
        for target in targets:
            labels = self.labels[target["labels"]]
            target["labels"] = labels.where(target["valid"], 0) if "valid" in target else labels
        full = bool((batch.image_size == torch.tensor([height, width])).all())
        return NestedTensor(images, mask, no_padding=full), targets


def _json_of_coco(images: Path) -> Path:
    """Return the annotations beside the folder train2017, as `build_coco` of rfdetr/datasets/coco.py names them."""
    return images.parent / "annotations" / f"instances_{images.name}.json"


def _check_arguments(recipe: Any, loader_arguments: dict[str, Any]) -> None:
    is_recipe = recipe is None or callable(recipe) or isinstance(recipe, list | tuple | Stages)
    check("recipe", recipe, is_recipe, "a list of ops, da.Stages, a function of the size that returns one, or None")
    for name in loader_arguments.keys() & _OF_RF_DETR:
        raise InputError(f"{name} must be left out, got {loader_arguments[name]!r}; {_OF_RF_DETR[name]}")
    known = set(signature(Loader.__init__).parameters) - {"self", "reader", "ops"}
    check_names("loader", loader_arguments.keys(), sorted(known - set(_OF_RF_DETR)))


def _check_configs(model_config: Any, train_config: Any, *, has_recipe: bool) -> None:
    """Raise InputError for what a loader does otherwise than RF-DETR's dataset, or was not tried with one."""

    def refuse(what: str, rule: str, value: object, remedy: str) -> None:
        raise InputError(f"{what} must be {rule}, got {value!r}; {remedy}")

    if model_config.use_grouppose_keypoints:
        name = type(model_config).__name__.removesuffix("Config")
        refuse("model", "one of boxes or masks", name, "train keypoints without detaug's loader")
    if model_config.num_channels != 3:
        refuse("num_channels", "3", model_config.num_channels, "train other bands without detaug's loader")
    if train_config.dataset_file not in ("roboflow", "coco"):
        remedy = "detaug convert writes COCO JSON, as train/_annotations.coco.json of dataset_file='roboflow'"
        refuse("dataset_file", "'roboflow' or 'coco'", train_config.dataset_file, remedy)
    if has_recipe:
        if train_config.aug_config is not None:
            refuse("aug_config", "left out with a recipe, which has all ops", train_config.aug_config, "leave out one")
        return
    if train_config.multi_scale is MultiScale.PER_SAMPLE:
        remedy = "give True, a scale for each batch, or a recipe"
        refuse("multi_scale", "True or False where the recipe is RF-DETR's", train_config.multi_scale.value, remedy)
    if not train_config.square_resize_div_64:
        remedy = "give a recipe, such as [da.RandomHorizontalFlip(), da.Resize(SIZE, max_size=1333), da.Normalize(...)]"
        refuse("square_resize_div_64", "True where the recipe is RF-DETR's", False, remedy)
