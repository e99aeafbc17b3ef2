"""Evaluate a model during training."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from typing import Any, cast

import torch
from torch import distributed as dist

from detaug.drawing import save_picture
from detaug.evaluation.coco import CocoEvaluator
from detaug.loading.loader import Loader
from detaug.sheets import Detections, detections_sheet
from detaug.sheets.detections import LEAST
from detaug.sources.coco_reader import CocoReader
from detaug.training.detectors import images_for
from detaug.training.model_table import DETECTORS
from detaug.training.processes import is_first_rank
from detaug.training.state import Training

PICTURES = 6
"""Images in predictions.jpg."""


@torch.no_grad()
def evaluate(training: Training, val: Loader, after_batch: Callable[[], None] = lambda: None) -> None:
    """Compute the metrics of all evaluation images, log them, and draw the first images to predictions.jpg.

    They are those of boxes, and within them those of what else the model finds, by its name.

    `after_batch` is called after each batch and may raise. Every rank must call this function; `training.evaluation` is
    set on the first one.
    """
    model = training.optimization.best_model.eval()
    if dist.is_initialized():
        # Of the model that is saved: without SyncBatchNorm each rank has the statistics of its own images.
        for buffer in model.buffers():
            dist.broadcast(buffer, src=0)
    reader = cast(CocoReader, val.reader)  # see loaders.py
    finds = DETECTORS[training.options.model].finds
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
        training.evaluation = {**metrics.pop("bbox"), **metrics}
        epoch = training.step // len(training.loader)
        training.log.write([{"step": training.step, "epoch": epoch, "evaluation": training.evaluation}])
        title = f"{training.options.model}, step {training.step}"
        sheet = detections_sheet(reader, detections[:PICTURES], title)
        save_picture(sheet, training.options.output / "predictions.jpg")
