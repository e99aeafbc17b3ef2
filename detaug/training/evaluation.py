"""Evaluate a model during training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, NamedTuple, cast

import torch
from numpy.typing import NDArray
from torch import distributed as dist
from torch import nn

from detaug.drawing import save_picture
from detaug.evaluation.coco import CocoEvaluator
from detaug.evaluation.semantic import SemanticEvaluator
from detaug.loading.loader import Loader
from detaug.sheets import Detections, detections_sheet, maps_sheet
from detaug.sheets.detections import LEAST
from detaug.sources.coco_reader import CocoReader
from detaug.training.detectors import images_for
from detaug.training.model_table import MODELS
from detaug.training.processes import is_first_rank
from detaug.training.semantic_models import MAP, classes_in_source
from detaug.training.state import Training

PICTURES = 6
"""Images in predictions.jpg."""


@torch.no_grad()
def evaluate(training: Training, val: Loader, after_batch: Callable[[], None] = lambda: None) -> None:
    """Compute the metrics of all evaluation images, log them, and draw the first images to predictions.jpg.

    They are those of boxes, and within them those of what else the model finds, by its name; or those of a map alone,
    by the name "semantic".

    `after_batch` is called after each batch and may raise. Every rank must call this function; `training.evaluation` is
    set on the first one.
    """
    model = training.optimization.best_model.eval()
    if dist.is_initialized():
        # Of the model that is saved: without SyncBatchNorm each rank has the statistics of its own images.
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
    reader = cast(CocoReader, val.reader)  # see loaders.py
    finds, title = MODELS[training.options.model].finds, f"{training.options.model}, step {training.step}"
    path = training.options.output / "predictions.jpg"
    if finds == "semantic":
        evaluated = _evaluate_maps(model, val, after_batch)
        if is_first_rank():
            _log(training, {"semantic": evaluated.metrics})
            save_picture(maps_sheet(reader, MAP, evaluated.drawn, title), path)
        return
    kinds = dict.fromkeys(("bbox", finds))
    evaluators: dict[str, CocoEvaluator[Any]] = {kind: CocoEvaluator(reader, kind) for kind in kinds}
    detections = list[Detections]()
    for batch in val:
        predictions = model(images_for(model, batch))
        for evaluator in evaluators.values():
            evaluator.update(batch, predictions)
        if len(detections) < PICTURES:
            detections += Detections.of(batch, predictions, least=LEAST)
        after_batch()
    for evaluator in evaluators.values():
        evaluator.gather()
    if is_first_rank():
        metrics = {kind: asdict(evaluator.compute()) for kind, evaluator in evaluators.items()}
        _log(training, {**metrics.pop("bbox"), **metrics})
        save_picture(detections_sheet(reader, detections[:PICTURES], title), path)


def _log(training: Training, evaluation: dict[str, Any]) -> None:
    training.evaluation, epoch = evaluation, training.step // len(training.loader)
    training.log.write([{"step": training.step, "epoch": epoch, "evaluation": evaluation}])


class _EvaluatedMaps(NamedTuple):
    metrics: dict[str, Any]
    drawn: dict[int, NDArray[Any]]
    """The classes that were found in the pixels of the first images, by the images' ids."""


def _evaluate_maps(model: nn.Module, val: Loader, after_batch: Callable[[], None]) -> _EvaluatedMaps:
    evaluator, drawn = SemanticEvaluator(map=MAP), dict[int, NDArray[Any]]()
    for batch in val:
        scores = model(batch.images)
        evaluator.update(batch, scores)
        for index, image_id in enumerate(batch.image_id.tolist()):
            if len(drawn) < PICTURES:
                drawn[image_id] = classes_in_source(batch, scores, index).numpy()
        after_batch()
    evaluator.gather()
    metrics = asdict(evaluator.compute())
    metrics["iou"] = {name: _known(value) for name, value in metrics["iou"].items()}
    return _EvaluatedMaps(
        metrics | {name: _known(metrics[name]) for name in ("mIoU", "accuracy", "mean_accuracy")}, drawn
    )


def _known(score: float) -> float:
    """Return a score; -1, as COCO's APs, for NaN, where there is nothing to find: JSON has no NaN."""
    return score if score == score else -1.0
