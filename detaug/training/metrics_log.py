"""metrics.jsonl: a line for each step and each evaluation, and the same numbers for TensorBoard by choice."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import torch
from torch import distributed as dist

from detaug.errors import InputError
from detaug.files.atomic import write_atomically
from detaug.named_options import option
from detaug.packages import require
from detaug.training.optimization import StepLosses
from detaug.training.processes import is_first_rank


class MetricsLog:
    """Collects losses on the device and writes them to the file in blocks; only the first rank writes.

    `events`: a folder for TensorBoard's events. Raises InputError where it is given and TensorBoard is not installed.
    """

    def __init__(self, path: Path, events: Path | None = None) -> None:
        self.path, self._events = path, events
        self._make_writer = None if events is None else _summary_writer()
        self._writer: Any = None
        self.pending: list[StepLosses] = []

    def add(self, losses: StepLosses) -> None:
        self.pending.append(losses)

    def flush(self, step: int, rates: dict[str, float]) -> dict[str, Any]:
        """Write a line for each pending step: learning rate and losses, means over the ranks.

        `step`: the number of the last one, from 1; its line has the `rates` too. Returns that line, {} if nothing is
        pending. Every rank must call it. Raises InputError if the last losses are not finite.
        """
        if not self.pending:
            return {}
        names, values = list(self.pending[0].losses), self._means_over_ranks()
        steps = zip(count(step - len(self.pending) + 1), self.pending, values.tolist(), strict=False)
        lines = [
            {"step": number, "lr": step_losses.lr, **dict(zip(names, row, strict=True))}
            for number, step_losses, row in steps
        ]
        self.pending = []
        lines[-1] |= rates
        self.write(lines)
        if not values[-1].isfinite().all():
            remedy = f"lower {option('lr')}, or raise {option('warmup_steps')}"
            raise InputError(f"the loss is {lines[-1]['loss']} at step {step}; {remedy}")
        return lines[-1]

    def _means_over_ranks(self) -> torch.Tensor:
        """Return (steps, losses) float32."""
        values = torch.stack([torch.stack(list(step_losses.losses.values())) for step_losses in self.pending]).float()
        if dist.is_initialized():
            dist.all_reduce(values)
            values /= dist.get_world_size()
        return values

    def write(self, lines: Sequence[dict[str, Any]]) -> None:
        if not is_first_rank():
            return
        text = "".join(json.dumps(line) + "\n" for line in lines)
        try:
            with open(self.path, "a", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:  # that of a full disk does not name the file
            raise OSError(error.errno, error.strerror, str(self.path)) from None
        if self._writer:
            for line in lines:
                for name, value in scalars(line):
                    self._writer.add_scalar(name, value, line["step"])
            self._writer.flush()

    def truncate(self, step: int) -> None:
        """Drop lines after `step`, which a training wrote after its last checkpoint, and begin TensorBoard's events."""
        if is_first_rank():
            if self._make_writer:
                self._writer = self._make_writer(str(self._events), purge_step=step + 1)
            lines = read_metrics(self.path)
            write_atomically(self.path, [json.dumps(line) + "\n" for line in lines if line["step"] <= step])


def _summary_writer() -> Any:
    require("writing metrics for TensorBoard", "tensorboard")
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError as error:
        raise InputError(f"the installed tensorboard does not load ({error}); pip install -U tensorboard") from None
    return SummaryWriter


def scalars(line: Mapping[str, Any], group: str = "train") -> Iterator[tuple[str, float]]:
    """Yield the name and the value of each number of a line of metrics.jsonl, but its step and its epoch."""
    for name, value in line.items():
        if isinstance(value, Mapping):
            yield from scalars(value, name if group == "train" else f"{group}/{name}")
        elif isinstance(value, int | float) and name not in ("step", "epoch"):
            yield f"{group}/{name}", value


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Return the lines of a metrics.jsonl of `detaug train`, [] where there is none.

    Half a line at the end, which a full disk or a kill leaves, is left out. Raises InputError for another file: the
    name is a common one, and a training removes lines.
    """
    if not path.exists():
        return []
    texts = path.read_text(encoding="utf-8", errors="replace").splitlines()
    lines = []
    for number, text in enumerate(texts, 1):
        try:
            line = json.loads(text)
        except (ValueError, RecursionError):
            if number < len(texts) or not text.startswith('{"step": '):
                raise InputError(_foreign(path, number)) from None
            break
        if not (isinstance(line, dict) and _is_ours(line)):
            raise InputError(_foreign(path, number))
        lines.append(line)
    if lines and not any("images_per_second" in line or "evaluation" in line for line in lines):
        raise InputError(_foreign(path, 1))  # "step", "lr" and "loss" alone may be anybody's
    return lines


def _is_ours(line: dict[str, Any]) -> bool:
    return isinstance(line.get("step"), int) and (list(line)[1:3] == ["lr", "loss"] or "evaluation" in line)


def _foreign(path: Path, number: int) -> str:
    remedy = f"move it away, or choose another {option('output')}"
    return f"{path} was not written by detaug train, see its line {number}; {remedy}"
