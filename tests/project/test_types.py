"""What a user's editor and type checker know of the public names."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from places import REPOSITORY

pytestmark = pytest.mark.slow

SCRIPT = """
import torch

import detaug as da

reader = da.CocoReader("images", "train.json")
loader = da.Loader(reader, da.presets.ssd300(), batch_size=8)
for batch in loader:
    reveal_type(batch)
    reveal_type(batch.images)
    reveal_type(batch.targets())
for size in da.Loader(reader, [da.Resize((300, 300))], 8, collate=lambda each: len(each)):
    reveal_type(size)
da.resize
da.nonsense
"""

KNOWN = {8: "Batch", 9: "Tensor", 10: "list[dict[str, Tensor]]", 12: "int"}
"""By line, the type that is revealed."""

UNKNOWN = {13: "resize", 14: "nonsense"}
"""By line, the name that does not exist."""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT.lstrip("\n"))
    return tmp_path / "script.py"


def test_pyright_knows_the_public_names(script: Path) -> None:
    pyright = shutil.which("pyright", path=str(Path(sys.executable).parent))
    if pyright is None:
        pytest.skip("pyright is not installed: the extra test has it")
    (script.parent / "pyrightconfig.json").write_text(
        json.dumps({"extraPaths": [str(REPOSITORY)], "pythonVersion": "3.10"})
    )
    command = [pyright, "--outputjson", "--pythonpath", sys.executable, "--project", str(script.parent), str(script)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=script.parent)
    if not run.stdout.startswith("{"):
        pytest.skip(f"pyright does not start: {run.stderr.strip().splitlines()[-1:]}")
    found = json.loads(run.stdout)["generalDiagnostics"]
    said = {each["range"]["start"]["line"] + 1: each for each in found if each["severity"] in ("information", "error")}
    assert {line: said[line]["message"].split(" is ")[-1].strip('"') for line in KNOWN} == KNOWN
    assert {line for line, each in said.items() if each["severity"] == "error"} == set(UNKNOWN)
    assert all(f'"{name}" is not a known attribute' in said[line]["message"] for line, name in UNKNOWN.items())


def test_mypy_knows_the_public_names(script: Path) -> None:
    """With the options of `mypy` alone, so that either takes what the other has written into the cache."""
    command = [sys.executable, "-m", "mypy", "--config-file", str(REPOSITORY / "pyproject.toml"), str(script)]
    run = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY)
    lines = [line.partition(": ")[0].rpartition(":")[2] + line.partition(": ")[2] for line in run.stdout.splitlines()]
    for line, name in KNOWN.items():
        kind = name.replace("Tensor", "torch._tensor.Tensor").replace("Batch", "detaug.loading.batch.Batch")
        assert any(each.startswith(f"{line}note: Revealed type") and kind in each for each in lines), run.stdout
    for line, name in UNKNOWN.items():
        assert any(each.startswith(f'{line}error: Module has no attribute "{name}"') for each in lines), run.stdout
