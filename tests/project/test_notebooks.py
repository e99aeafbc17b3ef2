"""The notebooks run from top to bottom, and a run gives the outputs that are saved in them.

`python tests/write_again.py notebooks` runs them and saves their outputs again, images as JPEG; name some of them to
run only those: `python tests/write_again.py notebooks notebooks/01_convert_voc.ipynb`.

Outputs of a cell with the tag `varies` are compared without their numbers and images, which depend on the machine.
"""

from __future__ import annotations

import ast
import base64
import getpass
import io
import os
import re
import shlex
import shutil
import socket
import tempfile
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from alike import alike
from PIL import Image
from places import REPOSITORY

from detaug.cli.main import cli
from detaug.training.detectors import make_detector

nbformat = pytest.importorskip("nbformat", reason="nbclient and ipykernel are not installed: the extra test has them")
nbclient = pytest.importorskip("nbclient", reason="nbclient and ipykernel are not installed: the extra test has them")
pytest.importorskip("ipykernel", reason="nbclient and ipykernel are not installed: the extra test has them")

NOTEBOOKS = sorted((REPOSITORY / "notebooks").glob("*.ipynb"))
OPS = REPOSITORY / "notebooks/02_look_at_ops.ipynb"
VIDEOS = REPOSITORY / "notebooks/05_clips_of_videos.ipynb"
POINTS = REPOSITORY / "notebooks/06_key_points_and_rotated_boxes.ipynb"
OWN_FOLDER = [path for path in NOTEBOOKS if path not in (OPS, POINTS)]
"""Those with a FOLDER to set."""

PUBLIC = ("detaug.converters", "detaug.demo", "detaug.drawing", "detaug.report", "detaug.sheets", "detaug.training")
"""Packages of which notebooks use the names in `__all__`, beside detaug itself."""

LARGEST = 900_000  # bytes of a notebook
SECONDS = 300  # that a cell may take, on a busy machine too

ENVIRONMENT = {
    **{name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")},
    "CUDA_VISIBLE_DEVICES": "",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(REPOSITORY),
    "PYTHONHASHSEED": "0",
}

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def executed(path: Path, folder: Path, replaced: dict[str, str] | None = None) -> Any:
    """Run a notebook in a new kernel, which has `folder` for its temporary files, and return it.

    `replaced`: lines of its settings, and what to replace them with.
    """
    notebook = read(path)
    for old, new in (replaced or {}).items():
        settings = code_cells(notebook)[0]
        assert old in settings.source
        settings.source = settings.source.replace(old, new)
    client = nbclient.NotebookClient(
        notebook,
        timeout=SECONDS,
        record_timing=False,
        coalesce_streams=True,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute(env={**ENVIRONMENT, "TMPDIR": str(folder), "IPYTHONDIR": str(folder / "ipython")})
    return notebook


def code_cells(notebook: Any) -> list[Any]:
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def varies(cell: Any) -> bool:
    return "varies" in cell.metadata.get("tags", [])


# ---------------------------------------------------------------- outputs


def texts(cell: Any) -> str:
    """Return all that a cell printed, and its value unless that is an image."""
    text = "".join("".join(output_texts(output)) for output in cell.outputs)
    return re.sub(r"\d+(\.\d+)?", "#", text) if varies(cell) else text


def output_texts(output: Any) -> Iterator[str]:
    if output.output_type == "stream":
        yield output.text
    elif output.output_type != "error" and picture(output) is None:
        yield output.data.get("text/plain", "")


def pictures(cell: Any) -> list[Image.Image]:
    return [found for output in cell.outputs if (found := picture(output)) is not None]


def picture(output: Any) -> Image.Image | None:
    data = output.get("data", {})
    encoded = data.get("image/png") or data.get("image/jpeg")
    return None if encoded is None else decoded(base64.b64decode(encoded))


def decoded(encoded: bytes) -> Image.Image:
    return Image.open(io.BytesIO(encoded)).convert("RGB")


def jpeg(drawn: Image.Image) -> bytes:
    """Encode an image as it is saved; to compare it with a saved one, it must have the same losses."""
    encoded = io.BytesIO()
    drawn.save(encoded, "JPEG", quality=68, optimize=True)
    return encoded.getvalue()


# ---------------------------------------------------------------- what runs


@pytest.mark.slow
@each_notebook
def test_a_run_gives_what_is_saved(path: Path, tmp_path: Path) -> None:
    if "from torchvision" in path.read_text():
        skip_without_torchvision()
    saved, run = read(path), executed(path, tmp_path)
    again = f"if that is as it should be, python tests/write_again.py notebooks notebooks/{path.name} saves it again"
    for before, now in zip(code_cells(saved), code_cells(run), strict=True):
        assert texts(now) == texts(before), again
        assert len(pictures(now)) == len(pictures(before)), again
        for one, other in zip(pictures(now), pictures(before), strict=True):
            assert varies(now) or alike(decoded(jpeg(one)), other), again
    assert list(tmp_path.glob("tmp*")) == [], f"{path.name} leaves its folder behind"


@pytest.mark.slow
@pytest.mark.parametrize("path", OWN_FOLDER, ids=lambda path: path.stem)
def test_a_notebook_runs_on_the_readers_folder_and_leaves_it_as_it_was(
    path: Path, demo_folder: Path, tmp_path: Path
) -> None:
    if "from torchvision" in path.read_text():
        skip_without_torchvision()
    name = "MOT" if path == VIDEOS else "VOC"
    own = Path(shutil.copytree(demo_folder / "demo" / name, tmp_path / name))
    before = {file: file.read_bytes() for file in own.rglob("*") if file.is_file()}
    replaced = {"FOLDER = None": f"FOLDER = {str(own)!r}"}
    if "EPOCHS = 80" in path.read_text():
        replaced |= {"EPOCHS = 80": "EPOCHS = 1", "MODELS = None": f"MODELS = {str(tmp_path / 'models')!r}"}
    executed(path, tmp_path, replaced)
    assert {file: file.read_bytes() for file in own.rglob("*") if file.is_file()} == before
    if "MODELS = None" in replaced:
        assert sorted(file.name for file in (tmp_path / "models").iterdir()) == ["RetinaNet.pt", "SSD.pt"]


def skip_without_torchvision() -> None:
    try:
        make_detector("ssdlite320_mobilenet_v3_large", 2)
    except ValueError as error:
        pytest.skip(str(error))


# ---------------------------------------------------------------- what is saved


@each_notebook
def test_outputs_are_saved_and_small(path: Path) -> None:
    cells = code_cells(read(path))
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1))
    assert sum(bool(texts(cell).strip() or pictures(cell)) for cell in cells) > len(cells) / 2
    assert sum(len(pictures(cell)) for cell in cells) >= 3
    assert path.stat().st_size < LARGEST


@each_notebook
def test_no_warnings_and_no_errors_are_saved(path: Path) -> None:
    outputs = [output for cell in code_cells(read(path)) for output in cell.outputs]
    assert [each for each in outputs if each.output_type == "error" or each.get("name") == "stderr"] == []


@each_notebook
def test_nothing_of_a_machine_is_saved(path: Path) -> None:
    notebook, text = read(path), path.read_text()
    assert set(notebook.metadata) == {"kernelspec", "language_info"}
    assert set(notebook.metadata.language_info) == {"name"}
    printed = "\n".join(texts(cell) for cell in code_cells(notebook))
    assert re.findall(r"(?<![\w.])/(?:home|root|tmp|usr|var|opt|mnt|Users|private)\b.*", printed) == []
    for name in {getpass.getuser(), socket.gethostname(), str(REPOSITORY), tempfile.gettempdir()} - {
        "root",
        "localhost",
    }:
        assert re.search(rf"(?<!\w){re.escape(name)}(?!\w)", printed) is None
        assert name not in text or len(name) < 6


# ---------------------------------------------------------------- what is written


@each_notebook
def test_notebooks_call_the_library_and_define_nothing(path: Path) -> None:
    """Except the ops that 02 shows how to write, and DALI pipelines."""
    tree = ast.parse("\n".join(cell.source for cell in code_cells(read(path))))
    defined = [node for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    assert [node.name for node in defined if not is_op(node) and not is_pipeline(node)] == []


def is_op(node: ast.FunctionDef | ast.ClassDef) -> bool:
    return any(ast.unparse(base) in ("da.GeometricOp", "da.PixelOp") for base in getattr(node, "bases", []))


def is_pipeline(node: ast.FunctionDef | ast.ClassDef) -> bool:
    return [ast.unparse(each).partition("(")[0] for each in node.decorator_list] == ["pipeline_def"]


@each_notebook
def test_notebooks_import_public_names_only(path: Path) -> None:
    tree = ast.parse("\n".join(cell.source for cell in code_cells(read(path))))
    imports = {each.module or "": each.names for each in ast.walk(tree) if isinstance(each, ast.ImportFrom)}
    own = {module: names for module, names in imports.items() if module.split(".")[0] == "detaug"}
    assert set(own) <= set(PUBLIC)
    assert all(each.name in import_module(module).__all__ for module, names in own.items() for each in names)


@each_notebook
def test_the_commands_in_the_text_can_be_parsed(path: Path) -> None:
    text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
    for line in re.findall(r"^detaug (.*)$", text, re.M):
        name, *arguments = shlex.split(line)
        cli.commands[name].make_context(name, arguments)


@each_notebook
def test_links_lead_somewhere(path: Path) -> None:
    cells = [cell for cell in read(path).cells if cell.cell_type == "markdown"]
    attached = {f"attachment:{name}" for cell in cells for name in cell.get("attachments", {})}
    text = "\n".join(cell.source for cell in cells)
    targets = [each for each in re.findall(r"\]\(([^)#\s]+)", text) if "://" not in each and each not in attached]
    assert [target for target in targets if not (path.parent / target).exists()] == []


# ---------------------------------------------------------------- saving again


def save(path: Path) -> None:
    """Run a notebook and save it with its outputs; an image that looks the same stays the same, byte for byte."""
    saved = read(path)
    with tempfile.TemporaryDirectory() as folder:
        run = executed(path, Path(folder))
    for before, now in zip(code_cells(saved), code_cells(run), strict=True):
        outputs = before.outputs if len(before.outputs) == len(now.outputs) else [{}] * len(now.outputs)
        for old, new in zip(outputs, now.outputs, strict=True):
            keep_small(new, old)
    run.metadata = {"kernelspec": run.metadata.kernelspec, "language_info": {"name": "python"}}
    nbformat.write(run, path)
    print(f"{path.relative_to(REPOSITORY)}: {path.stat().st_size / 1000:.0f} kB")


def keep_small(new: Any, old: Any) -> None:
    """Keep one JPEG of an image: the old one if it looks the same."""
    drawn, known = picture(new), picture(old)
    if drawn is None:
        return
    same = known is not None and alike(decoded(jpeg(drawn)), known)
    new["data"] = old["data"] if same else {"image/jpeg": base64.b64encode(jpeg(drawn)).decode()}
    new["metadata"] = {}


def write_again(paths: Iterable[str]) -> None:
    for path in [Path(each).absolute() for each in paths] or NOTEBOOKS:
        save(path)
