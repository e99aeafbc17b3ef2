"""`train`: a reference recipe for torchvision's detectors on `Loader`, on one device or under torchrun.

SGD or AdamW, linear warm-up and cosine, mixed precision, checkpoints from which a run goes on as if nothing had
happened, evaluation every few epochs, a metrics file and a picture of detections.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch import distributed as dist

from detaug import presets
from detaug.converters.files.atomic import write_atomically
from detaug.evaluation.coco import CocoEvaluator
from detaug.loading.batch import Batch
from detaug.loading.loader import Loader
from detaug.loading.devices import rank_and_world, resolve_device
from detaug.ops.arguments import check
from detaug.ops.flips_and_crops import RandomHorizontalFlip
from detaug.ops.iou_crop import RandomIoUCrop
from detaug.ops.op import Op
from detaug.ops.pixels import Normalize
from detaug.ops.recipe_file import load_recipe
from detaug.ops.resize import Resize
from detaug.presets import Triple
from detaug.sheets import Detections, detections_sheet, save_sheet
from detaug.sources.coco_reader import CocoReader
from detaug.training.checkpoint import load_checkpoint, save_checkpoint, write_torch_file
from detaug.training.detectors import DETECTORS, Detector, load_weights, make_detector

Size = int | tuple[int, int]
Bar = Callable[[int, int, str], None]
"""Draws a progress bar: steps that are done, of how many, and what stands beside it."""
SHOWN = 6
"""Images of the evaluation in predictions.png."""
BAR_EVERY = 0.5
"""Seconds between two bars at least: to read a loss waits for the GPU."""


@dataclass(frozen=True)
class TrainOptions:
    """What a training is. `annotations`, `images`: a COCO json and its folder; `val`, `val_images`: the evaluation's.

    `batch_size`: images a step on each process. `lr`: at the top of the schedule; None is torchvision's for the model,
    in proportion to the images a step. `warm_up`: steps; None is a tenth of all, at most 500. `size`: the loader's
    output, (H, W) or the shorter side (the longer one is at most 5/3 of it); None is the model's own. `recipe`: a file
    of `save_recipe`, whose `Resize` and `Normalize` hold; None is the model's. `amp`: 16 bits on a GPU. `clip_norm`:
    gradients longer than that are shortened; 0 leaves them. `eval_every`: epochs, with a checkpoint each time.
    `checkpoint_every`: steps, for more checkpoints; 0 is none. `weights`: a file, see `load_weights`.
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
    optimizer: str = "sgd"
    momentum: float = 0.9
    weight_decay: float | None = None
    warm_up: int | None = None
    clip_norm: float = 10.0
    size: Size | None = None
    recipe: Path | None = None
    amp: bool = True
    seed: int = 0
    device: str | None = None
    weights: Path | None = None
    resume: bool = False
    eval_every: int = 10
    checkpoint_every: int = 1000
    log_every: int = 20

    def __post_init__(self) -> None:
        check("model", self.model, self.model in DETECTORS, f"one of {', '.join(DETECTORS)}")
        check("optimizer", self.optimizer, self.optimizer in ("sgd", "adamw"), "'sgd' or 'adamw'")
        for name in ("epochs", "batch_size", "eval_every", "log_every"):
            check(name, getattr(self, name), getattr(self, name) >= 1, "at least 1")
        for name in ("warm_up", "clip_norm", "checkpoint_every", "weight_decay", "seed"):
            check(name, getattr(self, name), (getattr(self, name) or 0) >= 0, "at least 0")
        check("lr", self.lr, self.lr is None or 0 < self.lr < math.inf, "above 0")
        check("momentum", self.momentum, 0 <= self.momentum < 1, "at least 0 and below 1")
        fixed = isinstance(DETECTORS[self.model].size, tuple)
        if fixed and self.size not in (None, DETECTORS[self.model].size):
            raise ValueError(f"{self.model} takes {DETECTORS[self.model].size} alone, got size {self.size!r}")

    @property
    def output_size(self) -> Size:
        return self.size or DETECTORS[self.model].size

    def must_match(self) -> dict[str, Any]:
        """What a checkpoint's run and the run that goes on from it must have in common; the loader checks the rest."""
        own = ("model", "epochs", "batch_size", "lr", "optimizer", "momentum", "weight_decay", "warm_up", "clip_norm")
        return {name: getattr(self, name) for name in own} | {"amp": self.amp, "world_size": rank_and_world()[1]}


@dataclass
class Clock:
    """Seconds of the steps of this process, of which waiting for data, and the images that they took."""

    train: float = 0.0
    wait: float = 0.0
    images: int = 0

    def __post_init__(self) -> None:
        self.start = time.perf_counter()

    def lap(self, images: int = 0) -> None:
        """The time since `start` was for `images` more; the next lap starts."""
        now = time.perf_counter()
        self.train, self.start, self.images = self.train + now - self.start, now, self.images + images

    def line(self) -> dict[str, float]:
        seconds = max(self.train, 1e-9)
        return {"images_per_second": round(self.images / seconds, 1), "waiting": round(self.wait / seconds, 4)}


@dataclass
class Training:
    """What changes while it trains: all of it is in a checkpoint."""

    options: TrainOptions
    detector: Detector
    loader: Any
    device: torch.device
    say: Callable[[str], None]
    bar: Bar | None = None
    step: int = 0
    clock: Clock = field(default_factory=Clock)
    evaluation: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.model = self.detector.model
        self.optimizer = make_optimizer(self.model, self.options)
        self.amp_type = amp_type(self.device) if self.options.amp else None
        self.scaler = torch.amp.GradScaler(self.device.type, enabled=self.amp_type == torch.float16)
        self.total = self.options.epochs * len(self.loader)
        self.schedule = schedule(self.options, self.total)
        self.losses: list[tuple[float, dict[str, Tensor]]] = []
        self.bar_due = 0.0
        self.forward: nn.Module = self.model
        if dist.is_initialized():
            devices = [self.device] if self.device.type == "cuda" else None
            self.forward = nn.parallel.DistributedDataParallel(self.model, device_ids=devices)

    @property
    def is_first(self) -> bool:
        return rank_and_world()[0] == 0

    @property
    def epoch(self) -> int:
        """Of the last step, from 1."""
        return (self.step - 1) // len(self.loader) + 1

    def is_evaluation_due(self) -> bool:
        """With the checkpoint after it."""
        epoch, step = divmod(self.step, len(self.loader))
        return step == 0 and (self.step == self.total or epoch % self.options.eval_every == 0)

    def train_step(self, batch: Batch) -> None:
        """Losses, gradients, one step of the optimiser."""
        self.model.train()
        for group in self.optimizer.param_groups:
            group["lr"] = self.schedule(self.step)
        with torch.autocast(self.device.type, self.amp_type) if self.amp_type else nullcontext():
            losses: dict[str, Tensor] = self.forward(batch.images, batch.targets())
            loss = torch.stack(list(losses.values())).sum()
        self.optimizer.zero_grad()
        torch.autograd.backward(self.scaler.scale(loss))
        if self.options.clip_norm:
            self.scaler.unscale_(self.optimizer)
            nn.utils.clip_grad_norm_(self.model.parameters(), self.options.clip_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.losses.append((self.schedule(self.step), {"loss": loss.detach(), **_detached(losses)}))
        self.step += 1

    def write_losses(self) -> dict[str, Any]:
        """One line for each step since the last time: the learning rate and the losses, means over the ranks.

        Returns the last one, {} if there is none. Raises ValueError if its losses are not finite.
        """
        if not self.losses:
            return {}
        names = list(self.losses[0][1])
        values = torch.stack([torch.stack([losses[name] for name in names]) for _, losses in self.losses]).float()
        if dist.is_initialized():
            dist.all_reduce(values)
            values /= dist.get_world_size()
        first = self.step - len(self.losses) + 1
        rows = zip(count(first), self.losses, values.tolist(), strict=False)
        lines = [{"step": at, "lr": lr, **dict(zip(names, row, strict=True))} for at, (lr, _), row in rows]
        self.losses = []
        lines[-1] |= self.clock.line()
        self.write(lines)
        if not values[-1].isfinite().all():
            raise ValueError(f"the loss is {lines[-1]['loss']} at step {self.step}; lower --lr, or raise --warm-up")
        return lines[-1]

    def say_progress(self) -> None:
        line = self.write_losses()
        if line and self.is_first and not self.bar:
            self.say(
                f"epoch {self.epoch}/{self.options.epochs}  step {self.step}/{self.total}  loss {line['loss']:.3f}  "
                f"lr {line['lr']:.2g}  {line['images_per_second']:.0f} images/s a process  "
                f"waiting {line['waiting']:.1%}"
            )
        elif line:
            self.draw_bar(line["loss"])

    def draw_bar(self, loss: float | None = None) -> None:
        """`loss`: None is that of this process's last step; then not again within `BAR_EVERY`."""
        if not (self.bar and self.is_first) or (loss is None and time.monotonic() < self.bar_due):
            return
        now, loss = self.clock.line(), float(self.losses[-1][1]["loss"]) if loss is None else loss
        text = f"epoch {self.epoch}/{self.options.epochs}  step {self.step}/{self.total}  loss {loss:.3f}  "
        rate = now["images_per_second"] * rank_and_world()[1]
        self.bar(self.step, self.total, f"{text}{rate:.0f} images/s  waiting {now['waiting']:.1%}")
        self.bar_due = time.monotonic() + BAR_EVERY

    def write(self, lines: Sequence[dict[str, Any]]) -> None:
        if self.is_first:
            _append(self.options.output / "metrics.jsonl", "".join(json.dumps(line) + "\n" for line in lines))


def train(
    options: TrainOptions,
    *,
    make_model: Callable[[str, int], Detector] = make_detector,
    make_loader: Callable[[TrainOptions, torch.device, Detector], Any] | None = None,
    say: Callable[[str], None] = print,
    bar: Bar | None = None,
) -> dict[str, Any]:
    """Train, and return the last evaluation, the seconds, and the images a second.

    Writes into the folder `options.output`: metrics.jsonl, a line for each step and each evaluation; checkpoint.pt;
    predictions.png; and at the end model.pt: weights, class names, mean and std.

    With `bar` the progress is drawn, images/s of all processes together; else it is a line for `say` every `log_every`
    steps. Rank 0 alone does either.
    Under torchrun each process takes its share of the batches on its own GPU. `make_model` and `make_loader` put
    others in the place of torchvision's detectors and of `Loader`.
    """
    with _processes(options) as device:
        torch.manual_seed(options.seed)
        detector = _detector(options, make_model, say)
        detector.model.to(device)
        loader = (make_loader or train_loader)(options, device, detector)
        val = val_loader(options, device, detector) if options.val else None
        run = Training(options, detector, loader, device, say, bar)
        _start(run)
        while run.step < run.total:
            _train_epoch(run)
            if run.is_evaluation_due():
                if val:
                    evaluate(run, val)
                save_checkpoint(run)
        if run.is_first:
            content = {"model": run.model.state_dict(), "mean": detector.mean, "std": detector.std}
            write_torch_file({**content, "class_names": loader.class_names}, options.output / "model.pt")
        return {"evaluation": run.evaluation, "steps": run.step, **asdict(run.clock), **run.clock.line()}


def _train_epoch(run: Training) -> None:
    """The rest of the loader's epoch."""
    every = run.options.checkpoint_every
    for batch in timed(run.loader, run.clock, run.device):
        run.train_step(batch)
        run.clock.lap(len(batch.images))
        run.draw_bar()
        if run.step % run.options.log_every == 0:
            run.say_progress()
        if every and run.step % every == 0 and not run.is_evaluation_due():
            save_checkpoint(run)
    run.say_progress()


def timed(loader: Any, clock: Clock, device: torch.device) -> Iterator[Any]:
    """The batches; `clock` starts, and has the time that they are waited for. At the end the GPU has done its work."""
    clock.start = time.perf_counter()
    batches = iter(loader)
    while True:
        asked = time.perf_counter()
        batch = next(batches, None)
        clock.wait += time.perf_counter() - asked
        if batch is None:
            break
        yield batch
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    clock.lap()


# ---------------------------------------------------------------- what it is made of


def train_recipe(options: TrainOptions, mean: Triple, std: Triple) -> list[Op]:
    """torchvision's reference for the model: SSD's whole recipe, SSDlite's crop and flip, a flip for the others."""
    if options.recipe:
        return load_recipe(options.recipe)
    if options.model == "ssd300_vgg16":
        return presets.ssd300(mean, std)
    crop: list[Op] = [RandomIoUCrop()] if options.model.startswith("ssdlite") else []
    return [*crop, RandomHorizontalFlip(), resize(options.output_size), Normalize(mean, std)]


def resize(size: Size) -> Resize:
    """As the model is evaluated: stretched to (H, W), or the shorter side, the longer one at most 5/3 of it."""
    return Resize(size) if isinstance(size, tuple) else Resize(size, max_size=size * 1333 // 800)


def train_loader(options: TrainOptions, device: torch.device, detector: Detector) -> Loader:
    reader = CocoReader(options.images, options.annotations)
    ops = train_recipe(options, detector.mean, detector.std)
    return Loader(reader, ops, options.batch_size, device=device, seed=options.seed)


def val_loader(options: TrainOptions, device: torch.device, detector: Detector) -> Loader:
    """Every image once; nothing random."""
    assert options.val is not None
    reader = CocoReader(options.val_images or options.images, options.val)
    ops = [resize(options.output_size), Normalize(detector.mean, detector.std)]
    return Loader(reader, ops, options.batch_size, device=device, train=False)


def _detector(
    options: TrainOptions, make_model: Callable[[str, int], Detector], say: Callable[[str], None]
) -> Detector:
    names = CocoReader(options.images, options.annotations).class_names
    if options.val:
        val = CocoReader(options.val_images or options.images, options.val)
        if val.class_names != names:
            raise ValueError(f"{options.val} has the classes {val.class_names[1:]}, {options.annotations} {names[1:]}")
    detector = make_model(options.model, len(names))
    if options.weights:
        detector, made = load_weights(detector, options.weights)
        if made and rank_and_world()[0] == 0:
            say(f"{options.weights}: {len(made)} weights of the head are made new for {len(names) - 1} classes")
    if dist.is_initialized() and dist.get_backend() == "nccl":
        convert: Any = nn.SyncBatchNorm.convert_sync_batchnorm
        detector = detector._replace(model=convert(detector.model))
    return detector


def make_optimizer(model: nn.Module, options: TrainOptions) -> torch.optim.Optimizer:
    """Weight decay is for matrices and kernels: biases and the weights of norms have none."""
    defaults = DETECTORS[options.model]
    decay = defaults.weight_decay if options.weight_decay is None else options.weight_decay
    parameters = [each for each in model.parameters() if each.requires_grad]
    groups = [
        {"params": [each for each in parameters if each.ndim > 1], "weight_decay": decay},
        {"params": [each for each in parameters if each.ndim <= 1], "weight_decay": 0.0},
    ]
    if options.optimizer == "adamw":
        return torch.optim.AdamW(groups, lr=1.0)
    return torch.optim.SGD(groups, lr=1.0, momentum=options.momentum)


def schedule(options: TrainOptions, total: int) -> Callable[[int], float]:
    """Step, from 0 -> learning rate: up in a line for `warm_up` steps, then half a cosine down to 0."""
    defaults, images = DETECTORS[options.model], options.batch_size * rank_and_world()[1]
    top = options.lr or (defaults.lr * images / defaults.images if options.optimizer == "sgd" else 0.0003)
    warm_up = min(500, total // 10) if options.warm_up is None else options.warm_up

    def lr(step: int) -> float:
        if step < warm_up:
            return top * (step + 1) / warm_up
        return top * (1 + math.cos(math.pi * (step - warm_up) / max(1, total - warm_up))) / 2

    return lr


def amp_type(device: torch.device) -> torch.dtype | None:
    """bfloat16 where the GPU has it, float16 on older ones; a CPU trains in float32."""
    if device.type != "cuda":
        return None
    return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16


def _detached(losses: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: loss.detach() for name, loss in losses.items()}


# ---------------------------------------------------------------- evaluation


@torch.no_grad()
def evaluate(run: Training, val: Loader) -> None:
    """Metrics of all evaluation images, to metrics.jsonl, and a picture of the first ones."""
    run.model.eval()
    evaluator, shown = CocoEvaluator(val.reader), list[Detections]()
    for batch in val:
        predictions = run.model(batch.images)
        evaluator.update(batch, predictions)
        if len(shown) < SHOWN:
            shown += Detections.of(batch, predictions)
    evaluator.gather()
    if run.is_first:
        run.evaluation = asdict(evaluator.compute())
        run.write([{"step": run.step, "epoch": run.step // len(run.loader), "evaluation": run.evaluation}])
        picture = detections_sheet(val.reader, shown[:SHOWN], f"{run.options.model}, step {run.step}")
        save_sheet(picture, run.options.output / "predictions.png")
        run.say(f"evaluation  AP {run.evaluation['AP']:.3f}  AP50 {run.evaluation['AP50']:.3f}")


# ---------------------------------------------------------------- begin and end


@contextmanager
def _processes(options: TrainOptions) -> Iterator[torch.device]:
    """The device of this process, within torchrun's group of processes if there is one."""
    device = resolve_device(options.device)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    ours = int(os.environ.get("WORLD_SIZE") or 1) > 1 and not dist.is_initialized()
    if ours:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    try:
        yield device
    finally:
        if ours:
            dist.destroy_process_group()


def _start(run: Training) -> None:
    """Make the folder, or go on from its checkpoint."""
    options, path = run.options, run.options.output / "checkpoint.pt"
    if path.exists() and not options.resume:
        raise ValueError(f"{options.output} holds a training; --resume goes on with it, or choose another --output")
    options.output.mkdir(parents=True, exist_ok=True)
    if path.exists():
        load_checkpoint(run)
        if run.is_first:
            run.say(f"{path}: goes on after step {run.step}")
    if run.is_first:
        _keep_metrics(options.output / "metrics.jsonl", run.step)
    if dist.is_initialized():
        dist.barrier()


def _append(path: Path, text: str) -> None:
    try:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:  # a full disk does not say which file
        raise OSError(error.errno, error.strerror, str(path)) from None


def _keep_metrics(path: Path, step: int) -> None:
    """Of a metrics file that went on after the checkpoint, the lines up to it."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    write_atomically(path, [line + "\n" for line in lines if _step_of(line) <= step])


def _step_of(line: str) -> float:
    """Infinity for half a line: a full disk or a kill cut it, after the last checkpoint."""
    try:
        return float(json.loads(line)["step"])
    except ValueError:
        return math.inf
