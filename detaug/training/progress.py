"""Report the progress of a training: lines, or a bar on a terminal."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from detaug.findings.finding import duration_text, rate_text
from detaug.loading.devices import rank_and_world
from detaug.training.processes import is_first_rank
from detaug.training.state import Training

Bar = Callable[[int, int, str], None]
"""Draws a progress bar: steps done, steps in all, and the text beside the bar."""

BAR_EVERY = 0.5
"""Seconds between two bars at least: reading a loss waits for the GPU."""


class TrainingProgress:
    """Calls `say` with lines or, if given, `bar`; only on the first rank."""

    def __init__(self, say: Callable[[str], None], bar: Bar | None) -> None:
        self._say, self._bar = say, bar
        self._next_bar = 0.0

    def say(self, line: str) -> None:
        if is_first_rank():
            self._say(line)

    def after_step(self, training: Training) -> None:
        """Draw the bar with this process's last loss, at most every `BAR_EVERY` seconds."""
        if self._bar and is_first_rank() and time.monotonic() >= self._next_bar:
            self._draw(training, float(training.log.pending[-1].losses["loss"]))

    def after_log(self, training: Training, line: dict[str, Any]) -> None:
        """Report the last line of the metrics log, {} for none: on the bar, or as a line."""
        if not line or not is_first_rank():
            return
        if self._bar:
            self._draw(training, line["loss"])
            return
        self._say(
            f"{_position(training)}  loss {line['loss']:.3f}  lr {line['lr']:.2g}  "
            f"{rate_text(line['images_per_second'])} images/s per process  data wait {line['waiting']:.1%}  "
            f"{_left(training)}"
        )

    def _draw(self, training: Training, loss: float) -> None:
        assert self._bar is not None
        rates = training.timer.rates()
        rate = rates["images_per_second"] * rank_and_world()[1]
        end = f"{rate_text(rate)} images/s  wait {rates['waiting']:.0%}  {_left(training)}"
        text = f"{_position(training)}  loss {loss:.3f}  {end}"
        self._bar(training.step, training.steps, text)
        self._next_bar = time.monotonic() + BAR_EVERY


def _left(training: Training) -> str:
    """Return the time that the steps to come take, without evaluations, at the rate so far."""
    if not training.is_length_known:
        return "measuring"
    images, timer = (training.steps - training.step) * training.options.batch_size, training.timer
    return f"{duration_text(images * timer.train / max(timer.images, 1))} left"


def _position(training: Training) -> str:
    if not training.is_length_known:
        return f"epoch {training.epoch}  step {training.step}"
    return f"epoch {training.epoch}/{training.epochs}  step {training.step}/{training.steps}"
