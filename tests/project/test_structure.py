"""How the package is cut: small pieces, light imports, names that say what is inside. import-linter holds the rest."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import REPOSITORY

PACKAGE = REPOSITORY / "detaug"
CONVERTERS = REPOSITORY / "converters"

CONTENTLESS = {"base", "common", "core", "helper", "helpers", "misc", "tools", "util", "utils"}


FACE = {"__init__", "__main__", "presets", "targets"}
"""What users import."""

GROUND_FLOOR = {"arguments", "arrays", "compiled", "errors", "named_options", "packages", "pixel_format"}
"""What all folders stand on."""

LONGEST_CLASS = 225
"""Lines, without docstrings."""


def modules() -> list[Path]:
    """Return each module once: detaug/converters is a link."""
    own = [path for path in PACKAGE.rglob("*.py") if CONVERTERS.name not in path.relative_to(PACKAGE).parts]
    return sorted([*own, *CONVERTERS.rglob("*.py")])


def classes() -> Iterator[tuple[str, int]]:
    """Yield the name of each class, and the number of lines of its body without docstrings."""
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef):
                lines = (node.end_lineno or 0) - node.lineno
                for inner in ast.walk(node):
                    if isinstance(inner, ast.ClassDef | ast.FunctionDef) and ast.get_docstring(inner):
                        lines -= (inner.body[0].end_lineno or 0) - inner.body[0].lineno + 1
                yield f"{path.relative_to(REPOSITORY)}: {node.name}", lines


def test_only_what_users_import_and_all_folders_need_lies_in_the_top_folder() -> None:
    assert {path.stem for path in PACKAGE.glob("*.py")} == FACE | GROUND_FLOOR


TESTED_ELSEWHERE = {"findings": "check", "pages": "report", "trainers": "training"}
"""Rooms without tests of their own: by room, those of which room test them."""


def test_each_room_has_a_folder_of_tests_and_a_row_in_the_table_of_folders() -> None:
    rooms = {path.parent.name for path in PACKAGE.glob("*/__init__.py")}
    tested = {path.parent.name for path in REPOSITORY.glob("tests/*/test_*.py")}
    assert {"loading", "converters"} <= rooms
    assert rooms - tested <= {*TESTED_ELSEWHERE}
    assert {*TESTED_ELSEWHERE.values()} <= tested
    table = (REPOSITORY / "CONTRIBUTING.md").read_text().partition("## Folders")[2].partition("\n## ")[0]
    assert [room for room in sorted(rooms) if not re.search(rf"`(?:detaug/)?{room}(?:\.py)?[/`]", table)] == []


@pytest.mark.slow
def test_no_class_knows_everything() -> None:
    assert [name for name, lines in classes() if lines > LONGEST_CLASS] == []


@pytest.mark.parametrize("name", ["detaug", "detaug.converters", "detaug.drawing", "detaug.cli.main"])
def test_light_modules_import_neither_torch_nor_dali(name: str) -> None:
    code = f"import sys, {name}; print([each for each in ('torch', 'nvidia', 'torchvision') if each in sys.modules])"
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert result.stdout == "[]\n"


def test_modules_are_named_for_what_they_hold() -> None:
    assert [path for path in modules() if path.stem.strip("_") in CONTENTLESS] == []


def test_the_help_loads_nothing_that_takes_long() -> None:
    code = (
        "import sys; from detaug.cli.main import main; main(['--help']);"
        "print([each for each in ('numpy', 'lxml', 'PIL', 'torch') if each in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines()[-1] == "[]"


def test_every_benchmark_is_in_a_document_or_a_test() -> None:
    readers = [*REPOSITORY.glob("*.md"), *REPOSITORY.glob("docs/**/*.md"), *REPOSITORY.glob("tests/**/*.py")]
    readers += REPOSITORY.glob("benchmarks/*.sh")
    text = "\n".join(path.read_text(encoding="utf-8") for path in readers if "history" not in path.parts)
    assert [path.name for path in REPOSITORY.glob("benchmarks/*.py") if path.name not in text] == []


@pytest.mark.slow
def test_ops_import_no_triton() -> None:
    """It is only there where a GPU is, and torch may import it first."""
    code = "import torch, sys; sys.modules['triton'] = None; from detaug import presets, RandomRain, Loader"
    subprocess.run([sys.executable, "-c", code], cwd=REPOSITORY, check=True)


def parsed() -> list[tuple[Path, ast.Module]]:
    return [(path, ast.parse(path.read_text(encoding="utf-8"))) for path in modules()]


@pytest.mark.slow
def test_a_name_is_of_one_class() -> None:
    names = [node.name for _, module in parsed() for node in ast.walk(module) if isinstance(node, ast.ClassDef)]
    assert [name for name, count in Counter(names).items() if count > 1] == []


VAGUE = {"each", "at", "found", "given"}
"""Variables that say nothing of what they hold."""


@pytest.mark.slow
def test_variables_are_named_for_what_they_hold() -> None:
    assert [
        f"{path.relative_to(REPOSITORY)}:{node.lineno}"
        for path, module in parsed()
        for node in ast.walk(module)
        if (isinstance(node, ast.Name) and node.id in VAGUE) or (isinstance(node, ast.arg) and node.arg in VAGUE)
    ] == []
