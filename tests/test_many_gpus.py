"""benchmarks/many_gpus.py: order and GPUs of the parts, and the summary of losses and rates; the rest takes minutes."""

from __future__ import annotations

import argparse
import json
import os
import re
import time
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from painted_files import Folder
from PIL import Image

import detaug as da

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    return import_module("many_gpus")


def results(bump: float) -> dict[str, Any]:
    """Make results where two GPUs equal one, but for a bump at the end, and the other seed is a tenth higher."""
    losses = np.linspace(10, 5, 60)
    bumped = losses * np.where(np.arange(60) < 40, 1, 1 + bump)
    curves = {"curve-1-0": losses, "curve-1-1": losses * 1.1, "curve-2-0": bumped}
    rates = {"loader-1-0": 100.0, "loader-1-1": 120.0, "loader-2-0": 209.0, "loader-4-0": 330.0, "speed-2-0": 50.0}
    timed = {"images_per_second": rates, "cpu_seconds_per_1000_images": dict.fromkeys(rates, 0.25)}
    parts = {name: {"losses": each.tolist()} for name, each in curves.items()}
    return parts | {part: {name: of[part] for name, of in timed.items()} for part in rates}


def names(program: Any, *arguments: Any) -> list[str]:
    return [" ".join(part.name for part in parts) for parts in program.order(*arguments)]


def test_curves_run_side_by_side_and_timed_parts_alone(program: Any) -> None:
    timed = [f"{kind}-{gpus}-0" for kind in ("loader", "decode") for gpus in (1, 2, 4)]
    curves = ["curve-1-0 curve-1-1 curve-2-0", "curve-2-1", "curve-4-0"]
    assert names(program, 4, 1, 32) == [*timed, *curves, "speed-1-0", "speed-2-0", "speed-4-0"]
    curves = ["curve-1-0 curve-1-1", "curve-2-0", "curve-2-1"]
    turns = [f"{kind}-{gpus}-{turn}" for turn in (0, 1) for kind in program.TITLES for gpus in (1, 2)]
    assert names(program, 2, 2, 32) == [*turns[:4], *curves, *turns[4:]]
    assert names(program, 1, 1, 32) == ["loader-1-0", "decode-1-0", "curve-1-0", "curve-1-1", "speed-1-0"]
    assert names(program, 3, 1, 32)[5:10] == ["decode-3-0", "curve-1-0 curve-1-1", *curves[1:], "speed-1-0"]
    assert names(program, 2, 2, 32, ["loader"]) == ["loader-1-0", "loader-2-0", "loader-1-1", "loader-2-1"]
    assert [program.counts(gpus) for gpus in (5, 7, 8)] == [[1, 2, 4, 5], [1, 2, 4, 7], [1, 2, 4, 8]]


def test_each_part_sees_its_own_gpus(program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES'], sys.argv[1:])"
    (tmp_path / "seen.py").write_text(seen)
    monkeypatch.setattr(program, "__file__", str(tmp_path / "seen.py"))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 4)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    options = argparse.Namespace(device="cuda", output=tmp_path)
    parts = [program.Part("curve", 1, 0), program.Part("curve", 1, 1), program.Part("loader", 1, 0)]
    program.run_parts(parts, options, ["more"], tmp_path, time.monotonic() + 3600)
    logs = [(tmp_path / part.name / "log.txt").read_text().split(maxsplit=1) for part in parts]
    assert [devices for devices, _ in logs] == ["0", "1", "2"]
    assert "'more', '--part', '[\"curve\", 1, 1]'" in logs[1][1]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,5,3,1")
    assert program.visible()[1:3] == ["5", "3"]


def test_a_part_that_takes_too_long_is_stopped_and_its_log_saved(
    program: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "slow.py").write_text(
        "import sys, time; print('begun', flush=True); time.sleep('0' in sys.argv[-1] and 3600)"
    )
    monkeypatch.setattr(program, "__file__", str(tmp_path / "slow.py"))
    start = program.start

    def start_and_wait(part: Any, *arguments: Any) -> Any:
        """Wait until the first part has begun and the second one has ended, however long that takes."""
        process = start(part, *arguments)
        while part.seed == 0 and not (tmp_path / part.name / "log.txt").read_text():
            time.sleep(0.01)
        if part.seed == 1:
            process.wait()
        return process

    monkeypatch.setattr(program, "start", start_and_wait)
    parts = [program.Part("curve", 1, 0), program.Part("curve", 1, 1)]
    options = argparse.Namespace(device="cpu", output=tmp_path)
    program.run_parts(parts, options, [], tmp_path, time.monotonic())
    said = capfd.readouterr().out
    assert re.search(r"curve-1-0: stopped, the time is up after \d+ s\n  begun\n", said)
    assert "curve-1-1: done" in said
    assert (tmp_path / "curve-1-0.log").read_text() == "begun\n"
    assert not (tmp_path / "curve-1-1.log").exists()


def test_each_process_has_its_own_cores(program: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = dict[int, list[int]]()
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {40, 41, 42, 43, 50, 51, 52, 53})
    monkeypatch.setattr(os, "sched_setaffinity", pinned.__setitem__)
    program.pin(0)
    assert not pinned
    before = {int(name) for name in os.listdir("/proc/self/task")}
    program.pin(4)
    threads = before & {int(name) for name in os.listdir("/proc/self/task")}  # others may begin or end meanwhile
    assert set(pinned) >= threads
    assert all(cores == [40, 41, 42, 43] for cores in pinned.values())
    monkeypatch.setenv("LOCAL_RANK", "1")
    program.pin(4)
    assert pinned[os.getpid()] == [50, 51, 52, 53]


def test_the_summary_has_the_difference_of_the_curves(program: Any) -> None:
    lines = program.summary(results(bump=0.2))
    assert "2 GPUs / 1 GPU: at most 20.0% apart, on average 4.9%, over 60 steps" in lines
    assert "1 GPU, seed 1 / 1 GPU (the noise): at most 10.0% apart, on average 10.0%, over 60 steps" in lines
    assert len([line for line in lines if "apart" in line]) == 2


def test_the_summary_has_the_rate_of_each_gpu(program: Any) -> None:
    lines = program.summary(results(bump=0.2))
    at = lines.index("loader alone")
    assert [line.split(maxsplit=4) for line in lines[at + 2 : at + 5]] == [
        ["1", "110", "1.000", "0.250", "100, 120"],
        ["2", "209", "0.950", "0.250", "209"],
        ["4", "330", "0.750", "0.250", "330"],
    ]
    at = lines.index("training")
    assert [line.split() for line in lines[at + 2 :]] == [["2", "50", "-", "0.250", "50"]]


def test_results_are_written_after_some_parts(program: Any, tmp_path: Path) -> None:
    options = argparse.Namespace(output=tmp_path, model="any", gpus=2)
    timed = {"images_per_second": 1.0, "cpu_seconds_per_1000_images": 2.0}
    program.write_results(options, {"loader-1-0": timed})
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]
    program.write_results(options, results(bump=0.2))
    assert json.loads((tmp_path / "results.json").read_text())["parts"] == results(bump=0.2)
    colours = import_module("many_gpus_summary").COLOURS[:3]
    with Image.open(tmp_path / "curves.png") as picture:
        assert set(colours) <= {colour for _, colour in picture.convert("RGB").getcolors(1 << 16)}


def test_a_stopped_curve_has_its_losses_so_far(program: Any, tmp_path: Path) -> None:
    part = program.Part("curve", 2, 0)
    (tmp_path / part.name).mkdir()
    (tmp_path / part.name / "metrics.jsonl").write_text('{"step": 1, "loss": 2.5}\n{"step": 2, "loss": 2.25}\n{"st')
    assert program.result_of(part, tmp_path) == {"losses": [2.5, 2.25]}


def test_steps_run_over_epochs_of_copied_images(program: Any, painted: Folder, tmp_path: Path) -> None:
    output = tmp_path / "copied"
    program.copy_images(painted[1], painted[0], 3, output)
    reader = da.CocoReader(output / "images", output / "train.json")
    assert len(reader) == 63
    once = da.CocoReader(*painted)
    assert reader.sizes[:21].tolist() == reader.sizes[42:].tolist() == once.sizes.tolist()
    steps = program.Steps(da.Loader(reader, [da.Resize((8, 8))], 21, device="cpu"), 5, 2)
    assert [len(batch) for batch in steps] == [21] * 5
    assert steps.seconds > 0
    assert steps.measured(21) == {
        "images_per_second": 63 / steps.seconds,
        "cpu_seconds_per_1000_images": 1000 * steps.cpu / 63,
    }
