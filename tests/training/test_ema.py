"""`detaug train --ema`: the average of the weights, by a second implementation, evaluated, saved and resumed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from painted_files import Folder
from torch import Tensor
from train_run import Tiny, options

from detaug.errors import InputError
from detaug.training import Detector, train

DECAY = 0.6
States = list[dict[str, Tensor]]


class Recording(Tiny):
    """Appends its weights and statistics before each step, and at each batch of an evaluation, to lists."""

    trained: States
    evaluated: States
    fails_at = 0

    def forward(self, images: Tensor, targets: Any = None) -> Any:
        states = Recording.evaluated if targets is None else Recording.trained
        states.append({name: each.clone() for name, each in self.state_dict().items()})
        if targets is not None and len(states) == Recording.fails_at:
            raise RuntimeError("stopped by the test")
        return super().forward(images, targets)


def run(painted: Folder, output: Path, **others: Any) -> None:
    Recording.trained, Recording.evaluated = [], []
    settings = options(*painted, output, **{"ema": DECAY, **others})
    train(settings, make_model=lambda _, classes: Detector(Recording(classes)), say=lambda _: None)


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = torch.load(path, weights_only=True)
    return content


def average(states: States) -> dict[str, np.ndarray]:
    """Average states, one after each step, in float64: TensorFlow's rule with `num_updates`."""
    mean = {name: each.double().numpy() for name, each in states[0].items()}
    for number, state in enumerate(states[1:], 1):
        decay = min(DECAY, (1 + number) / (10 + number))
        mean = {name: decay * mean[name] + (1 - decay) * state[name].double().numpy() for name in mean}
    return mean


def test_the_average_is_evaluated_and_saved(painted: Folder, tmp_path: Path) -> None:
    run(painted, tmp_path / "run")
    saved, checkpoint = read(tmp_path / "run/model.pt")["model"], read(tmp_path / "run/checkpoint.pt")
    expected = average([*Recording.trained[1:], checkpoint["model"]])
    floats = [name for name, each in saved.items() if each.is_floating_point()]
    assert {"features.1.running_var", "head.weight"} <= {*floats}
    for name in floats:
        assert saved[name].numpy() == pytest.approx(expected[name], rel=1e-4, abs=1e-6)
        assert not saved[name].equal(checkpoint["model"][name])
        assert Recording.evaluated[-1][name].equal(saved[name])
        assert read(tmp_path / "run/best.pt")["model"][name].equal(saved[name])


@pytest.mark.slow
def test_a_stopped_training_resumes_with_the_same_average(
    painted: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(painted, tmp_path / "whole")
    monkeypatch.setattr(Recording, "fails_at", 10)
    with pytest.raises(RuntimeError, match="stopped by the test"):
        run(painted, tmp_path / "stopped")
    monkeypatch.setattr(Recording, "fails_at", 0)
    run(painted, tmp_path / "stopped", resume=True)
    assert len(Recording.trained) == 10  # from the checkpoint after step 8 to 18
    whole, resumed = (read(tmp_path / name / "model.pt")["model"] for name in ("whole", "stopped"))
    assert all(whole[name].equal(resumed[name]) for name in whole)
    with pytest.raises(InputError, match=r"was made with ema 0\.6, this training has None; make them equal"):
        run(painted, tmp_path / "stopped", resume=True, ema=None)


def test_a_decay_is_below_1(painted: Folder, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"ema must be at least 0 and below 1, got 1\.0"):
        options(*painted, tmp_path, ema=1.0)
