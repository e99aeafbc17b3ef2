"""How the package is cut: imports go one way, light parts stay light, names say what is inside."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[1]
PACKAGE = REPOSITORY / "detaug"
CONVERTERS = REPOSITORY / "converters"

LAYERS = [
    {
        "arguments",
        "polygons",
        "color",
        "epochs",
        "voc_ap",
        "_scenery",
        "_text",
        "converters",
        "on_cpu",
        "kernel",
        "streams",
    },
    {"views", "settings", "_page", "_labels"},
    {"recipe", "changes", "shapes", "preview"},
    {"batches", "report", "branches", "noise", "outcomes"},
    {"affine", "control", "geometry", "hiding", "iou_crop", "pixels", "resize", "reader", "pipeline", "targets"},
    {"box_rules", "mixing", "policies"},
    {"on_gpu"},
    {"presets", "pick", "eager", "evaluator", "faults", "sampling"},
    {"decoded_images"},
    {"plans"},
    {"loader"},
    {"recipe_file", "testing", "detectors", "draws"},
    {"sheets"},
    {"demo", "detections", "contestants", "bench_chart", "checkpoint"},
    {"bench", "tune", "train"},
    {"cli_*"},
    {"cli"},
]
"""A module imports from layers above its own line in this list, and from no other. cli_*: parts of the command."""

LAYER_OF = {module: at for at, layer in enumerate(LAYERS) for module in layer}
CONTENTLESS = {"base", "common", "core", "helper", "helpers", "misc", "tools", "util", "utils"}


def imported(path: Path) -> Iterator[str]:
    """The modules of detaug that a file imports, inside functions too; not those for type checkers only."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    ignored = {id(node) for block in ast.walk(tree) if is_for_type_checkers(block) for node in ast.walk(block)}
    for node in ast.walk(tree):
        if id(node) in ignored:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "detaug")
        if isinstance(node, ast.ImportFrom) and (node.level or (node.module or "").split(".")[0] == "detaug"):
            assert node.level == 0, f"{path.name}:{node.lineno} imports relatively; write detaug."
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def modules() -> list[Path]:
    return [path for path in sorted(PACKAGE.glob("*.py")) if path.name != "__init__.py"]


def layer(module: str) -> int:
    name = "cli_*" if module.startswith("cli_") else module
    assert name in LAYER_OF, f"put {name} into LAYERS, above what imports it"
    return LAYER_OF[name]


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.stem)
def test_imports_go_one_way(path: Path) -> None:
    for name in imported(path):
        assert layer(name.split(".")[1]) < layer(path.stem), f"{path.stem} imports {name}, which is not below it"


def test_layers_name_modules_that_exist() -> None:
    assert set(LAYER_OF) - {path.stem for path in modules()} == {"converters", "cli_*"}


@pytest.mark.parametrize("path", sorted(CONVERTERS.rglob("*.py")), ids=lambda path: path.stem)
def test_converters_import_nothing_else_of_detaug(path: Path) -> None:
    assert [name for name in imported(path) if not name.startswith("detaug.converters")] == []


def test_the_type_checkers_imports_are_those_of_the_running_program() -> None:
    import detaug as da

    tree = ast.parse((PACKAGE / "__init__.py").read_text())
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    named = {alias.asname for node in imports for alias in node.names}
    assert {name for name in named if name} == set(da.__all__)


@pytest.mark.parametrize("name", ["detaug", "detaug.converters", "detaug.report", "detaug.cli"])
def test_light_modules_import_neither_torch_nor_dali(name: str) -> None:
    code = f"import sys, {name}; print([each for each in ('torch', 'nvidia', 'torchvision') if each in sys.modules])"
    command = [sys.executable, "-W", "error", "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert result.stdout == "[]\n"


def test_modules_are_named_for_what_they_hold() -> None:
    assert [path for path in [*modules(), *CONVERTERS.rglob("*.py")] if path.stem.strip("_") in CONTENTLESS] == []
