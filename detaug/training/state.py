"""The state of a training."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from detaug.ops.resize import Resize
from detaug.training.metrics_log import MetricsLog
from detaug.training.model_table import MODELS, SCORES, Detector
from detaug.training.optimization import Optimization, make_schedule
from detaug.training.options import TrainOptions
from detaug.training.step_timer import StepTimer

MEASURED = 10
"""Steps after which `options.time` is divided by what they took. They have the low learning rates of a warm-up."""
UNTIL_MEASURED = 1_000_000
"""Epochs of a training in time until then."""


@dataclass
class Training:
    """The parts of a training and its position. A checkpoint saves all that changes."""

    options: TrainOptions
    detector: Detector
    loader: Any
    device: torch.device
    optimization: Optimization
    log: MetricsLog
    resize: Resize
    """Of the evaluation and of predictions."""
    timer: StepTimer = field(default_factory=StepTimer)
    step: int = 0
    """Steps done."""
    evaluation: dict[str, Any] = field(default_factory=dict)
    """The metrics of the last evaluation."""
    evaluated: int = 0
    """The step of the last evaluation."""
    best: float = -1.0
    """The highest AP, or mIoU, of the evaluations, of what the model finds."""
    not_better: int = 0
    """Evaluations since then."""
    evaluated_on: str | None = None
    """The evaluation data and their Resize: APs of others do not compare."""
    epochs: int = 0
    """Of the whole training, once `is_length_known`."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """Return the names of the labels, index 0 being the background; of a map, of the classes of its pixels."""
        return tuple((self.options.map and self.options.map.classes) or self.loader.class_names)

    @property
    def score_name(self) -> str:
        """Return the name of the score by which evaluations are compared: "AP", or "mIoU" of maps."""
        return SCORES[MODELS[self.options.model].finds]

    @property
    def is_length_known(self) -> bool:
        """Return whether `epochs` holds, since `options.time` was divided, or was not given."""
        return self.options.time is None or self.step >= MEASURED

    @property
    def steps(self) -> int:
        """Return the number of steps of the whole training."""
        return self.epochs * len(self.loader)

    def set_epochs(self, epochs: int) -> None:
        """Set the length of the training, and the learning rate of each step by it."""
        self.epochs = epochs
        self.optimization.schedule = make_schedule(self.options, self.steps)

    @property
    def epoch(self) -> int:
        """Return the epoch of the last step, from 1."""
        return (self.step - 1) // len(self.loader) + 1

    def is_evaluation_due(self) -> bool:
        """Return whether the last step ended an epoch after which there is an evaluation, which was not done yet."""
        epoch, step = divmod(self.step, len(self.loader))
        is_last = self.step == self.steps or epoch % self.options.eval_every == 0
        return self.step > self.evaluated and step == 0 and is_last

    def write_losses(self) -> dict[str, Any]:
        """Write the pending losses to the metrics log; return the last line, {} for none."""
        return self.log.flush(self.step, self.timer.rates())


def make_training(
    options: TrainOptions, detector: Detector, loader: Any, device: torch.device, resize: Resize
) -> Training:
    """Build the state of a training that has not begun."""
    epochs = UNTIL_MEASURED if options.time else options.epochs
    optimization = Optimization(detector.model, options, device, epochs * len(loader))
    events = options.output / "tensorboard" if options.tensorboard else None
    log = MetricsLog(options.output / "metrics.jsonl", events)
    return Training(options, detector, loader, device, optimization, log, resize, epochs=epochs)
