"""benchmarks/op_costs.py: it has every op, and it runs."""

from __future__ import annotations

import json
from pathlib import Path
from types import ModuleType

import pytest
from benchmark_scripts import load_script

from detaug.recipes.recipe_file import library


@pytest.fixture(scope="module")
def program() -> ModuleType:
    return load_script("op_costs")


def test_every_op_can_be_made_and_changes_every_image(program: ModuleType) -> None:
    made = [program.make(name) for name in library()]
    assert [type(op) for op in made] == list(library().values())
    assert all(op.p == 1 for op in made if hasattr(op, "p") and type(op).__name__ != "RandomApply")
    assert all("render" in program.recipe_of(op).stages for op in made)


@pytest.mark.slow
def test_it_prints_and_writes_costs(
    program: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    out, names = tmp_path / "costs.json", ["RandomInvert", "MixUp", "Resize"]
    options = ["--seconds", "0.02", "--rounds", "1", "--batch-size", "2", "--device", "cpu", "--json", str(out)]
    monkeypatch.setattr("sys.argv", ["op_costs.py", *options, "--only", *names])
    program.main()
    printed, rows = capsys.readouterr().out, json.loads(out.read_text())["ops"]
    assert [row["op"] for row in rows[:2]] == ["decode alone", "Resize alone"]
    assert {row["op"] for row in rows[2:]} == set(names)
    assert all(row["rate"] > 0 and row["op"] in printed for row in rows)
    (resize,) = [row for row in rows if row["op"] == "Resize"]
    assert resize["microseconds"] > 0
