"""Kill a training on the CPU at every step, resume it each time, and compare its losses with an undisturbed one.

python tests/helpers/killed_training.py --steps 200
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch._dynamo  # the first optimizer imports it, which takes seconds: once here, not in every process
from painted_files import Folder, paint_files
from torch import Tensor
from train_run import Tiny, options

from detaug import CocoReader
from detaug.training import Detector, train

STEPS_AN_EPOCH = 5


def compare_losses(folder: Path, steps: int) -> int:
    """Train undisturbed, and with a kill at each step; return the number of kills. Raises AssertionError."""
    painted = paint_files(folder, count=4 * STEPS_AN_EPOCH)
    load_loops(painted)
    whole, killed = folder / "whole", folder / "killed"
    assert exit_code(painted, whole, steps, 0) == 0
    for step in range(1, steps + 1):
        assert exit_code(painted, killed, steps, step) == -signal.SIGKILL, f"step {step}"
    assert exit_code(painted, killed, steps, 0) == 0
    assert not [*killed.glob(".*.partial")], "temporary files are left"
    unequal = [pair for pair in zip(losses(killed), losses(whole), strict=True) if pair[0] != pair[1]]
    assert not unequal, unequal
    assert len(losses(whole)) == steps
    return steps


def load_loops(painted: Folder) -> None:
    """Have Numba load what a training calls: it takes 2 s, once here, not in every process. It starts no thread."""
    reader = CocoReader(*painted)
    reader.views(np.arange(len(reader)))


def exit_code(*arguments: Any) -> int:
    """Call `train_until` in a forked process, which need not import torch and DALI again."""
    process = os.fork()
    if not process:
        code = 1
        try:
            train_until(*arguments)
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


def train_until(painted: Folder, output: Path, steps: int, killed_at: int) -> None:
    """Train, or resume. `killed_at`: the step, from 1, in which this process is killed; 0: none."""
    torch.set_num_threads(1)
    settings = options(*painted, output, val=None, epochs=steps // STEPS_AN_EPOCH, resume=True)
    train(settings, make_model=lambda _, classes: Detector(Counting(classes, killed_at)), say=lambda _: None)


class Counting(Tiny):
    """Counts its steps, and has the process killed: in odd ones before the weights change, else in a checkpoint."""

    def __init__(self, num_classes: int, killed_at: int) -> None:
        super().__init__(num_classes)
        self.register_buffer("step", torch.tensor(0))
        self.killed_at = killed_at

    def forward(self, images: Tensor, targets: list[dict[str, Tensor]] | None = None) -> Any:
        self.step += 1
        if self.step == self.killed_at:
            if self.killed_at % 2:
                os.kill(os.getpid(), signal.SIGKILL)
            os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # it comes before the file gets its name
        return super().forward(images, targets)


def losses(output: Path) -> list[tuple[int, float]]:
    """Return (step, loss) of each line of metrics.jsonl."""
    lines = map(json.loads, (output / "metrics.jsonl").read_text().splitlines())
    return [(line["step"], line["loss"]) for line in lines if "loss" in line]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200, help="a multiple of 5 (default: 200)")
    with tempfile.TemporaryDirectory() as folder:
        print(compare_losses(Path(folder), parser.parse_args().steps), "kills, equal losses")


if __name__ == "__main__":
    main()
