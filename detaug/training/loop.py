"""`train`: a reference recipe for torchvision's detectors on `Loader`, on one device or under torchrun.

SGD or AdamW, linear warm-up and cosine, mixed precision, checkpoints from which a training resumes exactly,
evaluation every few epochs, a metrics file, images and a page of curves.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist
from torch import nn

from detaug.drawing import save_picture
from detaug.errors import InputError
from detaug.evaluation.pycoco import score_text
from detaug.files.atomic import remove_leftovers
from detaug.findings.finding import counted, duration_text, listed
from detaug.loading.loader import Loader
from detaug.named_options import option
from detaug.outputs.folder import check_folder, checkpoint_path, locked_folder, mark_run, refuse_training
from detaug.outputs.guards import output_files
from detaug.packages import require
from detaug.sheets import batch_sheet
from detaug.training.checkpoint import load_checkpoint, save_checkpoint
from detaug.training.curves import shown_scores, write_curves
from detaug.training.detectors import make_detector, place_model
from detaug.training.evaluation import evaluate
from detaug.training.interrupt import Interrupt, InterruptedTrainingError, deferred_interrupt
from detaug.training.loaders import evaluation_resize, make_train_loader, make_val_loader, read_of_data
from detaug.training.metrics_log import read_metrics
from detaug.training.model_table import MODELS, READS, Detector
from detaug.training.options import TrainOptions
from detaug.training.predict import code_to_predict, keypoints_entry, map_entry
from detaug.training.pretrained import pretrained_file
from detaug.training.processes import is_first_rank, process_group
from detaug.training.progress import Bar, TrainingProgress
from detaug.training.state import MEASURED, Training, make_training
from detaug.training.torch_files import versions, write_torch_file
from detaug.training.weights import load_weights

MakeModel = Callable[..., Detector]
MakeLoader = Callable[[TrainOptions, torch.device, Detector], Any]

QUICK = 0.5
"""Seconds for a page of curves that each evaluation may take."""


def train(
    options: TrainOptions,
    *,
    make_model: MakeModel = make_detector,
    make_loader: MakeLoader = make_train_loader,
    say: Callable[[str], None] = print,
    bar: Bar | None = None,
) -> dict[str, Any]:
    """Train, and return the last evaluation, the seconds, and the images per second.

    Writes into the folder `options.output`: metrics.jsonl, a line for each step and each evaluation; checkpoint.pt;
    train_batch.jpg and predictions.jpg; best.pt, the model of the best evaluation, and at the end model.pt: weights,
    class names, mean and std; and curves.html, all of it as a page for a browser.

    With `bar` a progress bar is drawn, with the images/s of all processes together; else `say` gets a line every
    `log_every` steps. Only rank 0 does either.
    Under torchrun each process takes its fraction of the batches on its own GPU. `make_model` and `make_loader` replace
    torchvision's detectors and `Loader`.
    The first Ctrl-C stops after the step, with a checkpoint; KeyboardInterrupt is raised then.
    """
    _check_outputs(options)
    with process_group(options.device) as device, ExitStack() as stack:
        torch.manual_seed(options.seed)
        progress = TrainingProgress(say, bar)
        if device.type == "cuda" and MODELS[options.model].package == "rfdetr":
            require(f"training {options.model} on a GPU", "torch_linear_assignment")
        detector = _make_detector(options, make_model, progress)
        place_model(detector.model, device)
        resize = evaluation_resize(options)
        training = make_training(options, detector, make_loader(options, device, detector), device, resize)
        val = make_val_loader(options, device, detector, resize)
        training.evaluated_on = f"{val.reader.fingerprint} {resize!r}" if val else None
        _start(training, progress, stack)
        try:
            with deferred_interrupt() as interrupt:
                _run(training, val, progress, interrupt)
        except InterruptedTrainingError as error:
            progress.say(f"{error}; the same command with {option('resume', python='True')} continues")
            raise KeyboardInterrupt from None
        except KeyboardInterrupt:
            progress.say(_how_to_resume(training))
            raise
        _write_model(training, "model.pt")
        if is_first_rank():
            progress.say(f"written: {_write_curves(training)}")
        progress.say(_how_to_predict(training))
        timer = training.timer
        return {"evaluation": training.evaluation, "steps": training.step, **timer.state_dict(), **timer.rates()}


def _check_outputs(options: TrainOptions) -> None:
    """Raise InputError for a file of the output folder that is an input, or of someone else."""
    check_folder(options.output)
    if options.output.is_dir():
        inputs = (options.annotations, options.images, options.val, options.val_images, options.recipe, options.weights)
        pages = ("train_batch.jpg", "predictions.jpg", "curves.html")
        for name in ("metrics.jsonl", "checkpoint.pt", "best.pt", "model.pt", *pages):
            file = options.output / name
            output_files({"output": file}, *inputs, extensions=(file.suffix,))
        read_metrics(options.output / "metrics.jsonl")
        for name in ("best.pt", "model.pt"):
            if (options.output / name).exists() and not checkpoint_path(options.output).exists():
                raise InputError(
                    f"{options.output / name} exists without a checkpoint.pt, so this training did not write it; move "
                    f"it away, or choose another {option('output')}"
                )


def _run(training: Training, val: Loader | None, progress: TrainingProgress, interrupt: Interrupt) -> None:
    """Train to the last step. An evaluation that a stop broke off comes first."""
    curves = _LiveCurves(training)
    while True:
        if training.is_evaluation_due():
            if val:
                evaluate(training, val, lambda: _stop_if(interrupt, training))
                progress.say(_evaluation_line(training.evaluation))
                _keep_best(training)
            training.evaluated = training.step
            save_checkpoint(training)
            if is_first_rank():
                curves.write()
        if training.step == training.steps:
            return
        if training.options.patience and training.not_better >= training.options.patience:
            score = training.score_name
            progress.say(f"stopped: no better {score} than {training.best:.3f} in {training.not_better} evaluations")
            return
        _train_epoch(training, progress, interrupt)


class _LiveCurves:
    """Writes the page of curves during a training, of which it may take a twentieth of the time.

    Each page is made of all of metrics.jsonl: after 2,000 evaluations with 100 steps each one takes 2 s.
    """

    def __init__(self, training: Training) -> None:
        self._training, self._seconds, self._end = training, 0.0, -math.inf

    def write(self) -> None:
        start = time.monotonic()
        if self._seconds < QUICK or start >= self._end + 20 * self._seconds:
            _write_curves(self._training)
            self._end = time.monotonic()
            self._seconds = self._end - start


def _write_curves(training: Training) -> Path:
    """Write the page of curves; a browser shows the training so far when it loads the page again."""
    best = f", best {training.score_name} {training.best:.3f}" if training.best >= 0 else ""
    return write_curves(training.options.output, f"{training.options.model}, {counted(training.epoch, 'epoch')}{best}")


def _keep_best(training: Training) -> None:
    """Write best.pt if the last evaluation is the best so far. Every rank must call this function."""
    finds = MODELS[training.options.model].finds
    score = [training.evaluation.get(finds, training.evaluation).get(training.score_name, -1.0)]  # of the first rank
    if dist.is_initialized():
        dist.broadcast_object_list(score, src=0)
    if score[0] > training.best:
        training.best, training.not_better = score[0], 0
        _write_model(training, "best.pt")
    else:
        training.not_better += 1


def _make_detector(options: TrainOptions, make_model: MakeModel, progress: TrainingProgress) -> Detector:
    of_data = read_of_data(options)
    num_classes = len(of_data.class_names)
    detector = make_model(options.model, num_classes, **of_data.arguments())
    if path := _start_file(options, progress):
        detector, missing, class_names = load_weights(detector, path)
        first = 0 if MODELS[options.model].finds == "semantic" else 1  # behind the background
        if missing:
            progress.say(f"{path}: {len(missing)} weights are initialized at random for {num_classes - first} classes")
        elif class_names and class_names != of_data.class_names:
            then, now = (listed(names[first:]) for names in (class_names, of_data.class_names))
            progress.say(f"{path}: its head for the classes {then} is kept, and trained on {now}")
    if dist.is_initialized() and dist.get_backend() == "nccl":
        convert: Any = nn.SyncBatchNorm.convert_sync_batchnorm
        detector = detector._replace(model=convert(detector.model))
    return detector


def _start_file(options: TrainOptions, progress: TrainingProgress) -> Path | None:
    """Return the file of weights to start from. Rank 0 fetches it before the others look for it."""
    if options.pretrained is None:
        return options.weights
    if not is_first_rank():
        dist.barrier()
    path = pretrained_file(options.model, options.pretrained, progress.say)
    if is_first_rank() and dist.is_initialized():
        dist.barrier()
    return path


def _start(training: Training, progress: TrainingProgress, stack: ExitStack) -> None:
    """Make the output folder, or resume from its checkpoint. The folder is this training's until `stack` is closed."""
    options, path = training.options, checkpoint_path(training.options.output)
    length = duration_text(options.time) if options.time else counted(options.epochs, "epoch")
    steps, images = f"{length} of {len(training.loader)} steps per epoch", len(training.loader.reader)
    progress.say(
        f"{options.model} on {training.device}: {images} images, {steps}, {options.batch_size} images per step"
    )
    refuse_training(options.output, resume=options.resume)
    options.output.mkdir(parents=True, exist_ok=True)
    if is_first_rank():
        mark_run(options.output)
        stack.enter_context(locked_folder(options.output, wait=False))
        for file in (path, options.output / "best.pt", options.output / "model.pt"):
            remove_leftovers(file)
    if path.exists():
        replaced = load_checkpoint(training)
        progress.say(f"{path}: resumed after step {training.step}")
        if replaced is not None:
            progress.say(
                f"best.pt has {training.score_name} {replaced:.3f} on other evaluation data, or at another size: the "
                f"next evaluation replaces it, and {option('patience')} counts from there"
            )
    training.log.truncate(training.step)
    if training.step < training.steps:
        progress.say("making the pipelines and the first batch")
    if dist.is_initialized():
        dist.barrier()


def _train_epoch(training: Training, progress: TrainingProgress, interrupt: Interrupt) -> None:
    """Train to the end of the loader's epoch."""
    options = training.options
    for batch in training.timer.batches(training.loader, training.device):
        if training.step == 0 and is_first_rank():
            loader = training.loader
            picture = batch_sheet(batch, loader.class_names, ops=getattr(loader, "ops", ()))
            save_picture(picture, options.output / "train_batch.jpg")
        training.log.add(training.optimization.step(batch, training.step))
        training.step += 1
        training.timer.add_step(len(batch.images))
        if training.step == MEASURED:
            _fit_time(training, progress)
        progress.after_step(training)
        if training.step % options.log_every == 0:
            progress.after_log(training, training.write_losses())
        _stop_if(interrupt, training)
        every = options.checkpoint_every
        if every and training.step % every == 0 and not training.is_evaluation_due():
            save_checkpoint(training)
    progress.after_log(training, training.write_losses())


def _fit_time(training: Training, progress: TrainingProgress) -> None:
    """Say how long an epoch takes; with `options.time`, choose as many epochs as fit. Every rank must call it."""
    options, timer = training.options, training.timer
    of_epoch = timer.train / MEASURED * len(training.loader)
    if options.time:
        epochs = [max(1, int(max(0.0, options.time - timer.train) / of_epoch))]  # of the first rank
        if dist.is_initialized():
            dist.broadcast_object_list(epochs, src=0)
        training.set_epochs(max(epochs[0], (training.step - 1) // len(training.loader) + 1))
    progress.say(
        f"an epoch takes about {duration_text(of_epoch)}, {counted(training.epochs, 'epoch')} "
        f"{duration_text(of_epoch * training.epochs)}, without evaluations"
    )


def _stop_if(interrupt: Interrupt, training: Training) -> None:
    """After Ctrl-C, save a checkpoint and raise InterruptedTrainingError."""
    if interrupt.pressed:
        save_checkpoint(training)
        path = checkpoint_path(training.options.output)
        raise InterruptedTrainingError(f"stopped after step {training.step}, saved in {path}")


def _evaluation_line(evaluation: dict[str, Any]) -> str:
    """Return the line of an evaluation: of boxes, and of what else the model finds."""
    if not evaluation:
        return ""
    parts: dict[str, Any] = {name: evaluation[name] for name in READS if name in evaluation}
    if "AP" in evaluation:
        parts = {"evaluation": evaluation, **parts}
    return "  ".join(
        "  ".join([name, *(f"{score} {score_text(scores[score])}" for score in shown_scores(name))])
        for name, scores in parts.items()
    )


def _how_to_resume(training: Training) -> str:
    path, again = checkpoint_path(training.options.output), f"the same command with {option('resume', python='True')}"
    if path.exists():
        return f"stopped at once; {again} continues from the last checkpoint, {path}"
    return f"stopped before the first checkpoint; {again} begins the training again"


def _how_to_predict(training: Training) -> str:
    """Return where the model is, and Python that predicts with it."""
    model, image = training.options.output / "model.pt", training.options.images / training.loader.reader.file_names[0]
    code = code_to_predict(model, image, MODELS[training.options.model].finds)
    return f"written: {model}. To predict with it:\n\n{code}"


def _write_model(training: Training, name: str) -> None:
    if is_first_rank():
        detector = training.detector
        content = {
            "name": training.options.model,
            "size": training.resize.size,
            "resize": {name: getattr(training.resize, name) for name in ("size", "max_size", "letterbox", "fill")},
            "model": training.optimization.best_model.state_dict(),
            "mean": detector.mean,
            "std": detector.std,
            "class_names": training.class_names,
            "versions": versions(),
            "unused_parents": training.options.unused_parents,
            **map_entry(training.options.map),
            **keypoints_entry(training.loader.reader.shapes.keypoints),
        }
        write_torch_file(content, training.options.output / name)
