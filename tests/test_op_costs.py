"""benchmarks/op_costs.py: every op is in it, and it runs."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib import util
from pathlib import Path

from detaug.ops.recipe_file import library

PROGRAM = Path(__file__).parents[1] / "benchmarks" / "op_costs.py"


def test_every_op_can_be_made_and_changes_every_image() -> None:
    spec = util.spec_from_file_location("op_costs", PROGRAM)
    assert spec
    assert spec.loader
    program = util.module_from_spec(spec)
    spec.loader.exec_module(program)
    made = [program.make(name) for name in library()]
    assert [type(op) for op in made] == list(library().values())
    assert all(op.p == 1 for op in made if hasattr(op, "p") and type(op).__name__ != "RandomApply")
    assert all("render" in program.recipe_of(op).stages for op in made)


def test_it_prints_and_writes_costs(tmp_path: Path) -> None:
    out = tmp_path / "costs.json"
    options = ["--seconds", "0.02", "--rounds", "1", "--batch-size", "2", "--device", "cpu", "--json", str(out)]
    names = ["RandomInvert", "MixUp", "Resize"]
    command = [sys.executable, str(PROGRAM), *options, "--only", *names]
    printed = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    rows = json.loads(out.read_text())["ops"]
    assert [row["op"] for row in rows[:2]] == ["decode alone", "Resize alone"]
    assert {row["op"] for row in rows[2:]} == set(names)
    assert all(row["rate"] > 0 and row["op"] in printed for row in rows)
    (resize,) = [row for row in rows if row["op"] == "Resize"]
    assert resize["microseconds"] > 0
