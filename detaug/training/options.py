"""The options of a training."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from detaug.arguments import LARGEST_SEED, check, renamed
from detaug.errors import InputError
from detaug.loading.devices import rank_and_world
from detaug.maps.kinds import ClassMap
from detaug.named_options import option
from detaug.sources.coco_reader import UnusedParents
from detaug.sources.coco_shapes import FlipPairs
from detaug.training.model_table import MODELS, Model
from detaug.training.pretrained import Pretrained

Size = int | tuple[int, int]


_MAP = 'ClassMap("FOLDER", classes=["background", "car"])'


@renamed(warm_up="warmup_steps")
@dataclass(frozen=True)
class TrainOptions:
    """Options of `train`. `annotations`, `images`: COCO JSON and its folder; `val`, `val_images`: to evaluate on.

    `batch_size`: images per step on each process. `optimizer`, `weight_decay`, `clip_norm` (the largest norm of the
    gradient; 0: without a limit) and `ema` (the decay of an exponential moving average of the weights, such as 0.9998,
    which is evaluated and saved in their place; 0: without an average): None is that of the model's authors, see
    `MODELS`. `lr`: the highest learning rate; None is the authors', in proportion to the images per step for SGD
    and to their square root for AdamW (Malladi et al. 2022, arXiv 2205.10287). `warmup_steps`: steps; None is a tenth
    of all, at most 500. `size`: the loader's output, (H, W) or the shorter side (the longer one is at most 5/3 of it);
    None is that of the recipe or the model. `recipe`: a file of `save_recipe`, whose `Resize` is also used to evaluate
    and predict, see `evaluation_resize`, while `Normalize` is the model's; None is the model's. `ops`: a module with
    ops of one's own that the recipe names; it is imported. `amp`: 16 bits on a GPU. `eval_every`: epochs, with a
    checkpoint each time. `patience`: stop after this many evaluations without a better AP; 0 is never. `tensorboard`:
    write the numbers of metrics.jsonl for TensorBoard too, into output/tensorboard. `checkpoint_every`: steps, for more
    checkpoints; 0 is none. `weights`: a file, see `load_weights`; `pretrained`: instead, the package's weights of
    "coco", or torchvision's of the "backbone" alone, fetched unless they are in the package's cache. `flip_pairs`,
    `unused_parents`: see `CocoReader`. `time`: seconds; instead of `epochs`, as many as fit into them at the rate of
    the first steps. `map`: of a model of semantic segmentation, the maps that it learns, with the names of their
    classes; `val_map`: those of the evaluation, where their folder is another one.
    """

    annotations: Path
    images: Path
    output: Path
    val: Path | None = None
    val_images: Path | None = None
    model: str = "ssd300_vgg16"
    epochs: int = 100
    batch_size: int = 32
    lr: float | None = None
    optimizer: str | None = None
    momentum: float = 0.9
    weight_decay: float | None = None
    warmup_steps: int | None = None
    clip_norm: float | None = None
    size: Size | None = None
    recipe: Path | None = None
    ops: str | None = None
    amp: bool = True
    seed: int = 0
    device: str | None = None
    weights: Path | None = None
    pretrained: Pretrained | None = None
    resume: bool = False
    eval_every: int = 10
    patience: int = 0
    ema: float | None = None
    tensorboard: bool = False
    checkpoint_every: int = 1000
    log_every: int = 20
    flip_pairs: FlipPairs = None
    unused_parents: UnusedParents = "keep"
    time: float | None = None
    map: ClassMap | None = None
    val_map: ClassMap | None = None

    def __post_init__(self) -> None:
        check("model", self.model, self.model in MODELS, f"one of {', '.join(MODELS)}")
        check("ops", self.ops, self.ops is None or self.recipe is not None, "left out without a recipe that names them")
        check("optimizer", self.optimizer, self.optimizer in (None, "sgd", "adamw"), "'sgd' or 'adamw'")
        check("pretrained", self.pretrained, self.pretrained in (None, "coco", "backbone"), "'coco' or 'backbone'")
        check("pretrained", self.pretrained, not (self.pretrained and self.weights), "left out with weights")
        parents = self.unused_parents
        check("unused_parents", parents, parents in ("drop", "keep"), "'drop' or 'keep'")
        for name in ("epochs", "batch_size", "eval_every", "log_every"):
            check(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        for name in ("warmup_steps", "clip_norm", "checkpoint_every", "patience", "weight_decay", "seed"):
            check(name, getattr(self, name), (getattr(self, name) or 0) >= 0, "at least 0")
        decay = self.weight_decay
        check("weight_decay", decay, decay is None or decay < math.inf, "finite")
        check("seed", self.seed, self.seed <= LARGEST_SEED, f"at most {LARGEST_SEED}")
        check("lr", self.lr, self.lr is None or 0 < self.lr < math.inf, "finite and above 0")
        check("time", self.time, self.time is None or 0 < self.time < math.inf, "seconds, above 0")
        check("patience", self.patience, not self.patience or self.val is not None, "0 without val to evaluate on")
        of_val = self.val_images is None or self.val is not None
        check("val_images", str(self.val_images), of_val, "left out without val, the JSON file of these images")
        check("ema", self.ema, self.ema is None or 0 <= self.ema < 1, "at least 0 and below 1")
        check("momentum", self.momentum, 0 <= self.momentum < 1, "at least 0 and below 1")
        optimizer = self.optimizer or MODELS[self.model].optimizer
        of_sgd = optimizer == "sgd" or self.momentum == TrainOptions.momentum
        check("momentum", self.momentum, of_sgd, "left out without optimizer 'sgd'")
        check(
            "batch_size", self.batch_size, self.batch_size > 1 or not self.model.startswith("ssdlite"),
            f"at least 2 with {self.model}: its last layers have one value for each image, and batch norm takes a mean",
        )  # fmt: skip
        finds_points = MODELS[self.model].finds == "keypoints"
        check(
            "flip_pairs",
            self.flip_pairs,
            self.flip_pairs is None or finds_points,
            "left out for a model without keypoints",
        )
        self._check_map()
        if self.size is not None:
            check_size(self.model, self.size)

    def _check_map(self) -> None:
        finds, named = MODELS[self.model].finds, self.map is not None and bool(self.map.classes)
        if finds != "semantic" and self.map is not None:
            others = [name for name, row in MODELS.items() if row.finds == "semantic"]
            learning = option("model", " or ".join(others))
            raise InputError(f"{self.model} learns no map; leave it out, or choose {learning}")
        check("val_map", self.val_map, not self.val_map or bool(self.val and self.map), "left out without val and map")
        if finds == "semantic" and not named:
            raise InputError(
                f"{self.model} learns the class of each pixel: give the folder of the maps and the names of their "
                f"classes, {option('map', 'semantic=FOLDER,classes=background,car', python=_MAP)}"
            )

    @property
    def output_size(self) -> Size:
        return self.size or MODELS[self.model].size

    @property
    def as_authors(self) -> TrainOptions:
        """Return these options with those of the model's authors in place of None."""
        row = MODELS[self.model]
        names = ("optimizer", "weight_decay", "clip_norm", "ema")
        return replace(self, **{name: getattr(row, name) for name in names if getattr(self, name) is None})

    def must_match(self) -> dict[str, Any]:
        """Return the options that must equal those of a checkpoint to resume; the loader checks its own."""
        own = ["model", "lr", "momentum", "weight_decay", "warmup_steps", "ema"]
        own.append("epochs" if self.time is None else "time")
        images = self.batch_size * rank_and_world()[1]
        # 0.2 wrote the names of these two, where None stands for the authors' today.
        chosen: dict[str, Any] = {"optimizer": self.as_authors.optimizer, "clip_norm": self.as_authors.clip_norm}
        chosen |= {"amp": self.amp, "batch_size x processes": images}
        return {name: getattr(self, name) for name in own} | chosen


def check_size(model: str, size: Size) -> None:
    """Raise InputError for an input size that a model does not take."""
    row = MODELS[model]
    if not row.stride:
        if size != row.size:
            raise InputError(f"size of {model} must be {row.size}, got {size!r}; leave it out")
        return
    if row.package == "torchvision":
        return
    if isinstance(size, int):
        raise InputError(f"size of {model} must be (H, W), got {size}; such as {_nearest(row, (size, size))}")
    if _nearest(row, size) != size:
        rule = f"multiples of {row.stride} from {row.smallest}"
        raise InputError(f"size of {model} must be {rule}, got {size}; such as {_nearest(row, size)}")


def _nearest(row: Model, size: tuple[int, int]) -> tuple[int, int]:
    height, width = (max(row.smallest, -(-side // row.stride) * row.stride) for side in size)
    return height, width
