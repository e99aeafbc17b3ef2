"""benchmarks/two_gpus.py: what it makes of losses and rates; the rest needs torchvision and minutes."""

from __future__ import annotations

import argparse
import json
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from painted_files import Folder
from PIL import Image

import detaug as da


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
    return import_module("two_gpus")


def results(bump: float) -> dict[str, Any]:
    """Two GPUs are as one, but for a bump at the end; the other seed is a tenth higher."""
    losses = np.linspace(10, 5, 60)
    bumped = losses * np.where(np.arange(60) < 40, 1, 1 + bump)
    curves = {"curve-1-0": losses, "curve-1-1": losses * 1.1, "curve-2-0": bumped}
    rates = {"loader-1-0": 100.0, "loader-1-1": 120.0, "loader-2-0": 209.0, "speed-1-0": 50.0}
    parts = {name: {"losses": each.tolist()} for name, each in curves.items()}
    return {**parts, **{name: {"images_per_second": rate} for name, rate in rates.items()}}


def test_the_summary_says_how_far_apart_the_curves_are(program: Any) -> None:
    lines = program.summary(results(bump=0.2))
    (found,) = [line for line in lines if line.startswith("two GPUs and one, seed 0: ")]
    assert found.startswith("two GPUs and one, seed 0: at most 20.0%, on average 4.9%")
    assert found.endswith(", over 60 steps")
    assert "one GPU, two seeds: the noise: at most 10.0%, on average 10.0%, over 60 steps" in lines
    assert "loader alone, images a second: 110 on one GPU (100, 120), 209 on two (209): 1.90 times" in lines
    assert not any(line.startswith(("training", "two GPUs and one, seed 1")) for line in lines)


def test_results_are_written_when_only_some_parts_are_there(program: Any, tmp_path: Path) -> None:
    options = argparse.Namespace(output=tmp_path, model="any")
    program.write_results(options, {"loader-1-0": {"images_per_second": 1.0}})
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    program.write_results(options, results(bump=0.2))
    assert json.loads((tmp_path / "results.json").read_text())["parts"] == results(bump=0.2)
    with Image.open(tmp_path / "curves.png") as picture:
        assert set(program.COLOURS[:3]) <= {colour for _, colour in picture.convert("RGB").getcolors(1 << 16)}


def test_steps_run_over_epochs_of_copied_images(program: Any, painted: Folder, tmp_path: Path) -> None:
    options = argparse.Namespace(images=painted[0], annotations=painted[1], copies=3)
    program.copies(options, tmp_path)
    reader = da.CocoReader(tmp_path / "images", tmp_path / "train.json")
    assert len(reader) == 63
    once = da.CocoReader(*painted)
    assert reader.sizes[:21].tolist() == reader.sizes[42:].tolist() == once.sizes.tolist()
    steps = program.Steps(da.Loader(reader, [da.Resize((8, 8))], 21, device="cpu"), 5, 2)
    assert [len(batch) for batch in steps] == [21] * 5
    assert steps.seconds > 0
