"""What a training writes for people: events of TensorBoard, and the page of curves."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from painted_files import Folder
from train_run import options, tiny

from detaug.errors import InputError
from detaug.training import train


def run(painted: Folder, output: Path, **others: Any) -> None:
    train(options(*painted, output, **others), make_model=tiny(), say=lambda _: None)


def lines(output: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (output / "metrics.jsonl").read_text().splitlines()]


class Writer:
    """Takes the place of TensorBoard's SummaryWriter."""

    def __init__(self, folder: str, purge_step: int) -> None:
        self.folder, self.purge_step, self.scalars = Path(folder), purge_step, dict[tuple[str, int], float]()
        written.append(self)

    def add_scalar(self, name: str, value: float, step: int) -> None:
        self.scalars[name, step] = value

    def flush(self) -> None:
        pass


written: list[Writer] = []


def test_tensorboard_gets_the_metrics(painted: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake = type(sys)("torch.utils.tensorboard")
    fake.SummaryWriter = Writer  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", fake)
    written.clear()
    settings = {"epochs": 2, "eval_every": 1, "tensorboard": True}
    run(painted, tmp_path / "run", **settings)
    run(painted, tmp_path / "run", **settings, resume=True)
    first, resumed = written
    assert first.folder == tmp_path / "run/tensorboard"
    assert (first.purge_step, resumed.purge_step) == (1, 13)
    for line in lines(tmp_path / "run"):
        if "loss" in line:
            assert first.scalars["train/loss", line["step"]] == line["loss"]
            assert first.scalars["train/lr", line["step"]] == line["lr"]
        else:
            evaluation = line["evaluation"]
            assert first.scalars["evaluation/AP", line["step"]] == evaluation["AP"]
            assert first.scalars["evaluation/AP_by_class/class 2", line["step"]] == evaluation["AP_by_class"]["class 2"]
    assert not {name for name, _ in first.scalars if name.endswith(("step", "epoch"))}


def test_events_are_those_that_tensorboard_reads(painted: Folder, tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    run(painted, tmp_path / "run", epochs=1, eval_every=1, tensorboard=True)
    events = accumulator.EventAccumulator(str(tmp_path / "run/tensorboard"))
    events.Reload()
    read = [(event.step, event.value) for event in events.Scalars("train/loss")]
    assert read == [(line["step"], pytest.approx(line["loss"])) for line in lines(tmp_path / "run") if "loss" in line]


def test_without_tensorboard_one_sentence_and_no_folder(
    painted: Folder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(InputError, match=r"tensorboard needs its package; pip install tensorboard"):
        run(painted, tmp_path / "run", tensorboard=True)
    assert not (tmp_path / "run").exists()
