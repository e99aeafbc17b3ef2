"""The documents are right: their Python and their commands run, their outputs are what is printed.

`python tests/write_again.py documents` writes docs/commands.md, docs/findings.md, the table of formats, the images
and all outputs again.
"""

from __future__ import annotations

import json
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import pytest
import torch
from alike import alike
from benchmark_scripts import load_script
from click.testing import CliRunner
from documents import (
    anchors,
    block_commands,
    blocks,
    commands,
    is_training,
    links,
    needs_training,
    prose,
    run_document,
    run_training_block,
    smaller_training,
)
from PIL import Image
from places import REPOSITORY

import detaug as da
from detaug.cli.main import cli, main
from detaug.demo.demo import demo
from detaug.drawing import draw_boxes
from detaug.files.formats import FORMATS
from detaug.findings.kinds import CHECK_KINDS, KINDS

README = REPOSITORY / "README.md"
COMMANDS = REPOSITORY / "docs/commands.md"
ACCURACY = REPOSITORY / "docs/accuracy.md"
FINDINGS = REPOSITORY / "docs/findings.md"
DATA_FORMATS = REPOSITORY / "docs/data-formats.md"
PICTURES = {README: REPOSITORY / "docs/sheet.jpg"} | {
    REPOSITORY / f"docs/{name}.md": REPOSITORY / f"docs/{name}.jpg" for name in ("masks", "points")
}
"""The image that a command of each document draws."""
DRAWN_IN_PYTHON = {REPOSITORY / "docs/views.md": REPOSITORY / "docs/views.jpg"}
"""The image that a Python block of a document draws."""

GUIDES = [README, *sorted(REPOSITORY.glob("docs/*.md"))]
"""The documents for users."""
FOLDERS = [path for folder in ("trainers", "history") for path in sorted(REPOSITORY.glob(f"docs/{folder}/*.md"))]
DOCUMENTS = [*GUIDES, REPOSITORY / "CONTRIBUTING.md", REPOSITORY / "CHANGELOG.md", REPOSITORY / "SECURITY.md", *FOLDERS]

NOT_RUN = {
    "detaug evaluate val.json images --model run/best.pt --tta": "the reader's model; see test_tta.py",
    "detaug predict run/best.pt photos --tta": "the reader's model; see test_tta.py",
    "detaug demo": "the workplace has what it makes; test_demo.py runs it",
    "detaug bench train.json demo/VOC/JPEGImages --batch-size 8 --chart bench.png": "takes a minute; see test_bench.py",
    "detaug preview train.json demo/VOC/JPEGImages -o own.png --recipe own.yaml --ops my_ops.py": "the reader has it",
    "detaug train demo/people.json demo/people --val demo/people.json --model keypointr"
    "cnn_resnet50_fpn -o people-run --size 400": "takes minutes without a GPU; see test_train_points.py",
    "detaug train demo/people.json demo/people --val demo/people.json --model maskrcnn"
    "_resnet50_fpn_v2 -o masks-run --size 400": "takes a minute without a GPU; see test_train_masks.py",
    "detaug train demo/ships.json demo/ships --val demo/ships.json --model fcos_rotated_resnet50_fpn -o ships-run "
    "--size 400 --batch-size 4 --optimizer adamw --pretrained coco": "downloads weights; see test_rotated_fcos.py",
    "detaug tune train.json demo/VOC/JPEGImages --batch-size 8 -o settings.json": "takes 90 s; see test_bench.py",
}

MOST_LINES = {"README.md": 130, "docs/performance.md": 150}


RUNNABLE = [path for path in GUIDES if any(block.kind in ("python", "sh") for block in blocks(path.read_text()))]
"""All with blocks that run."""
TRAINING = [path for path in GUIDES if any(map(is_training, blocks(path.read_text())))]
QUICK = {"docs/custom-op.md"}
"""Documents that the quick tests run; the commands of the others take seconds."""


def name_of(path: Path) -> str:
    return str(path.relative_to(REPOSITORY))


def marked(path: Path) -> object:
    return pytest.param(path, marks=[] if name_of(path) in QUICK else [pytest.mark.slow], id=name_of(path))


@pytest.fixture
def folder(demo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the README's first two commands leave, for one document; this process is in it."""
    shutil.copytree(demo_folder, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return tmp_path


# ---------------------------------------------------------------- what runs


WRITE_AGAIN = "python tests/write_again.py documents writes the outputs again"


@pytest.mark.usefixtures("folder", "cpu")
@pytest.mark.parametrize("path", [marked(path) for path in RUNNABLE if path not in TRAINING])
def test_a_document_runs_and_prints_what_it_says(path: Path) -> None:
    assert run_document(path, not_run=NOT_RUN) == path.read_text(), WRITE_AGAIN


@pytest.mark.slow
@pytest.mark.usefixtures("cpu")
@pytest.mark.parametrize("path", TRAINING, ids=name_of)
def test_a_document_runs_and_trains(path: Path, folder: Path) -> None:
    """Blocks and commands that train, too: an epoch of two images, batches of one image."""
    skip_without_torchvision()
    assert run_document(path, not_run=NOT_RUN, train=True) == path.read_text(), WRITE_AGAIN
    assert path not in DRAWN_IN_PYTHON or is_drawn(DRAWN_IN_PYTHON[path]), WRITE_AGAIN
    if any("evaluate" in block.kind for block in blocks(path.read_text())):
        found = json.loads((folder / "detections.json").read_text())
        assert set(found[0]) == {"image_id", "category_id", "bbox", "score"}


@pytest.mark.slow
@pytest.mark.usefixtures("folder", "cpu")
def test_the_training_loop_of_ssd_trains_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With its learning rates, from random weights, without a download; both epochs, of two images, one at a time."""
    skip_without_torchvision()
    monkeypatch.setenv("TORCH_HOME", str(tmp_path / "torch"))
    keep_images_with_boxes(Path("train.json"), 2)
    page = REPOSITORY / "docs/training.md"
    training = next(block for block in blocks(page.read_text()) if "ssd300_vgg16(" in block.text)
    namespace: dict[str, Any] = {}
    torch.manual_seed(0)
    losses = run_training_block(training, page, namespace, steps=None)
    assert len(losses) == 4
    assert max(losses) < 1.5 * losses[0]
    reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    with torch.no_grad():  # what it began with, again: its draws and its pixels
        again = [
            float(sum(namespace["model"](batch.images, batch.targets()).values()))
            for batch in da.Loader(reader, da.presets.ssd300(), 1, device="cpu")
        ]
    assert sum(again) < 0.9 * sum(losses[:2])
    assert not (tmp_path / "torch").exists()


def keep_images_with_boxes(path: Path, count: int) -> None:
    """Leave the first images that have boxes in a JSON file: an image without has no loss in SSD."""
    document = json.loads(path.read_text())
    kept = sorted({each["image_id"] for each in document["annotations"]})[:count]
    document["images"] = [each for each in document["images"] if each["id"] in kept]
    document["annotations"] = [each for each in document["annotations"] if each["image_id"] in kept]
    path.write_text(json.dumps(document))


def skip_without_torchvision() -> None:
    try:
        import_module("torchvision.ops").nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except (ImportError, OSError, RuntimeError) as error:
        pytest.skip(f"no torchvision that fits this torch: {str(error).partition('.')[0]}")


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
def test_the_torchrun_command_runs() -> None:
    """On two processes, with a smaller model."""
    skip_without_torchvision()
    (command,) = re.findall(
        r"^ *torchrun .* -m (detaug train .*)$", (REPOSITORY / "docs/training.md").read_text(), re.M
    )
    assert main(["convert-voc", "demo/VOC", "-o", "val.json", "--split", "val", "--quiet"]) == 0
    arguments = [*shlex.split(smaller_training(command)), "--epochs", "1", "--device", "cpu"]
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    model = ["--model", "ssdlite320_mobilenet_v3_large"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(REPOSITORY)}
    run = subprocess.run([*launcher, "-m", *arguments, *model], env=environment, capture_output=True)
    assert run.returncode == 0, run.stderr.decode()
    output = Path(arguments[arguments.index("-o") + 1])
    assert len((output / "metrics.jsonl").read_text().splitlines()) == 2  # a step and an evaluation
    assert (output / "model.pt").is_file()


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("path", PICTURES, ids=name_of)
def test_a_documents_picture_is_what_its_command_draws(path: Path) -> None:
    picture = PICTURES[path]
    (block,) = [each for each in blocks(path.read_text()) if each.kind == "sh" and f"-o {picture.name}" in each.text]
    for command in block_commands(block):
        if not needs_training(command):
            assert main(shlex.split(command)[1:]) == 0
    assert is_drawn(picture), "python tests/write_again.py documents draws it again"


def is_drawn(picture: Path) -> bool:
    """Return whether the image of that name in this folder looks like it."""
    with Image.open(picture.name) as one, Image.open(picture) as other:
        return alike(one, other)


def test_pictures_that_differ_in_one_box_are_not_alike() -> None:
    with Image.open(PICTURES[README]) as picture:
        assert alike(picture, picture)
        assert not alike(picture, draw_boxes(picture, [[400, 150, 460, 190]], ["ball"]))


@pytest.mark.usefixtures("folder")
def test_the_errors_in_the_documents_are_raised() -> None:
    page = (REPOSITORY / "docs/errors-and-troubleshooting.md").read_text()
    entries = re.findall(r"^\| `(.*)` \| (\w+) \| (.*) \|$", page, re.M)
    assert len(entries) == page.count("\n| `") >= 10
    reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    names = {"da": da, "pickle": pickle, "reader": reader, "loader": da.Loader(reader, da.presets.ssd300(), 8)}
    for code, name, message in entries:
        with pytest.raises(Exception) as raised:  # noqa: PT011
            eval(code, names)
        assert (type(raised.value).__name__, str(raised.value)) == (name, message)


def test_quoted_headings_are_texts_of_the_program() -> None:
    headings = re.findall(r'^##+ "(.*)"$', (REPOSITORY / "docs/errors-and-troubleshooting.md").read_text(), re.M)
    sources = "\n".join(path.read_text() for path in REPOSITORY.glob("detaug/**/*.py"))
    texts = re.sub(r'"\s+f?"', "", sources)  # parts of a long text
    assert len(headings) > 4
    assert [heading for heading in headings if heading not in texts] == []


@pytest.mark.slow
@pytest.mark.usefixtures("cpu")
def test_the_boxes_are_as_exact_as_the_document_says(capsys: pytest.CaptureFixture[str]) -> None:
    load_script("box_accuracy").main()
    measured = re.findall(r"mean ([\d.]+)  max ([\d.]+)", capsys.readouterr().out)
    written = re.findall(r"^\| (?:by hand, as.*|detaug) \| ([\d.]+) \| ([\d.]+) \|$", ACCURACY.read_text(), re.M)
    numbers = [[float(number) for row in table for number in row] for table in (measured, written)]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.1, abs=0.011)
    assert len(numbers[1]) == 4


# ---------------------------------------------------------------- what is written


def test_the_readme_begins_with_the_two_commands_of_setting_up() -> None:
    text = README.read_text()
    assert "pip install '.[train]' && detaug demo" in text.partition("\n## ")[0]
    assert "`pip install -e '.[test]' && pytest`" in text


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_what_needs_torchvision_comes_after_its_installation(path: Path) -> None:
    before, needs, _ = re.split(
        r"^(detaug train |(?:from|import) torchvision|\Z)", path.read_text(), maxsplit=1, flags=re.M
    )
    if needs:
        assert re.search(r"pip install .*(?:torchvision|\[train\]|\[test\])", before), path


@pytest.mark.parametrize(("name", "most"), MOST_LINES.items())
def test_pages_for_readers_in_a_hurry_are_short(name: str, most: int) -> None:
    assert len((REPOSITORY / name).read_text().splitlines()) <= most


def test_the_speed_in_the_readme_is_that_of_the_performance_page() -> None:
    speed = README.read_text().partition("\n## Speed\n")[2].partition("\n## ")[0]
    measured = re.findall(r"(?<![\w.])\d{1,3}(?:,\d{3})+(?!\w)|(?<![\w.])\d+\.\d+", speed)
    page = (REPOSITORY / "docs/performance.md").read_text()
    assert len(measured) >= 9
    assert [number for number in measured if not re.search(rf"(?<![\d.,]){re.escape(number)}(?![\d])", page)] == []


COMPLETION = """\
## Shell completion

The Tab key completes commands, options, models and files after one line in the start file of your shell:

| shell | file | line |
|---|---|---|
| bash | `~/.bashrc` | `eval "$(_DETAUG_COMPLETE=bash_source detaug)"` |
| zsh | `~/.zshrc` | `eval "$(_DETAUG_COMPLETE=zsh_source detaug)"` |
| fish | `~/.config/fish/config.fish` | `_DETAUG_COMPLETE=fish_source detaug \\| source` |
"""


def help_page() -> str:
    """Return docs/commands.md: every command's help, 80 columns wide."""
    pages = [[], *([name] for name in cli.commands)]
    runner = CliRunner()
    parts = ["# Commands\n\nWhat `--help` prints; made by `python tests/write_again.py documents`.\n", COMPLETION]
    for page in pages:
        result = runner.invoke(cli, [*page, "--help"], prog_name="detaug", terminal_width=80)
        parts.append(f"## {' '.join(['detaug', *page])}\n\n```text\n{result.output}```\n")
    return "\n".join(parts)


def test_the_help_in_the_documents_is_the_programs() -> None:
    same = COMMANDS.read_text().split() == help_page().split()  # click's versions wrap lines in different places
    assert same, "python tests/write_again.py documents writes docs/commands.md again"


GROUPS = {
    "Errors of conversions and merge": (KINDS, "error", "The file cannot be used."),
    "Dropped": (KINDS, "dropped", "Something is not in the result."),
    "Repaired": (KINDS, "repaired", "A value was changed."),
    "Noted": (KINDS, "noted", "Nothing was changed; a person may want to look."),
    "Errors of detaug check": (CHECK_KINDS, "error", "Training would stop, or learn something wrong."),
    "Warnings of detaug check": (CHECK_KINDS, "warning", "A person should look."),
}
"""The kinds and the effect of each section of docs/findings.md, and what the effect means."""


def findings_page() -> str:
    """Return docs/findings.md: all kinds of findings, from the tables in the code."""
    lines = ["# Findings\n\nWhat a `--report` may contain; made by `python tests/write_again.py documents`.\n"]
    for title, (kinds, effect, meaning) in GROUPS.items():
        lines += [f"## {title}\n", f"{meaning}\n", "| kind | meaning |\n|---|---|"]
        lines += [f"| `{name}` | {kind.meaning} |" for name, kind in kinds.items() if kind.effect == effect]
        lines += [""]
    return "\n".join(lines)


def with_formats(page: str) -> str:
    """Return docs/data-formats.md with the table of all formats, from the rows in the code."""
    head = "| `--from` | format | kept | not kept | also | way back | tried with |"
    lines = [head, "|---|---|---|---|---|---|---|"]
    for each in FORMATS:
        command, writer = (f"`detaug {name}`" if name else "" for name in (each.command, each.writer))
        cells = f"`{each.name}`", each.title, each.kept, each.lost, command, writer, each.tried
        lines.append(f"| {' | '.join(cells)} |")
    before, _, after = re.split(r"^(\| `--from` .*?\n)(?=\n)", page, maxsplit=1, flags=re.M | re.S)
    return before + "\n".join([*lines, ""]) + after


def test_every_format_is_in_the_table_of_formats() -> None:
    page = DATA_FORMATS.read_text()
    assert page == with_formats(page), "python tests/write_again.py documents writes docs/data-formats.md again"


def test_every_effect_of_findings_has_a_section() -> None:
    sections = [(kinds, effect) for kinds, effect, _ in GROUPS.values()]
    assert all((kinds, kind.effect) in sections for kinds in (KINDS, CHECK_KINDS) for kind in kinds.values())


def test_every_kind_of_finding_is_documented() -> None:
    assert FINDINGS.read_text() == findings_page(), (
        "python tests/write_again.py documents writes docs/findings.md again"
    )


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_has_an_example_in_a_document(name: str) -> None:
    pages = [path.read_text() for path in GUIDES]
    every = [command for page in pages for command in commands(page)]
    with_output = [line for page in pages for line in re.findall(r"^\$ (detaug .*)$", page, re.M)]
    assert any(command.split()[1] == name for command in [*every, *with_output])
    assert isinstance(cli.commands[name], click.Command)


def test_commands_that_are_not_run_are_in_the_documents() -> None:
    assert set(NOT_RUN) <= {command for path in GUIDES for command in commands(path.read_text())}


def test_every_op_is_in_the_table_of_ops() -> None:
    rows = [line for line in (REPOSITORY / "docs/ops.md").read_text().splitlines() if line.startswith("| `")]
    ops = [name for name in da.__all__ if isinstance(getattr(da, name), type) and issubclass(getattr(da, name), da.Op)]
    ops = [name for name in ops if not name.endswith("Op")]
    assert [name for name in ops if not any(f"| `{name}(" in row for row in rows)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_lead_somewhere(path: Path) -> None:
    for file, anchor in links(path.read_text()):
        found = path if not file else path.parent / file
        assert found.exists(), f"{path.name} links to {file}"
        assert not anchor or anchor in anchors(found.read_text()), f"{path.name} links to {file}#{anchor}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_links_by_a_name_are_defined_and_used(path: Path) -> None:
    text = re.sub(r"`[^`\n]*`", "", prose(path.read_text()))
    assert set(re.findall(r"\]\[([^]\s]+)\]", text)) == set(re.findall(r"^\[([^]]+)\]: ", text, re.M))


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_the_files_that_a_document_names_exist(path: Path) -> None:
    """Logs in docs/history may name modules of then, but the scripts that repeat their numbers exist."""
    folders = "benchmarks" if path.parent.name == "history" else "detaug|converters|benchmarks|tests|docs"
    named = re.findall(rf"(?<![\w/])(?:{folders})/[a-z0-9_/-]+\.(?:py|sh|md|pyi)\b", path.read_text())
    assert [each for each in named if not (REPOSITORY / each).exists()] == []


def test_the_index_of_documents_is_complete() -> None:
    """The site's navigation names each page once, and the README leads to each within two clicks."""
    namespace: dict[str, Any] = {}
    text = (REPOSITORY / "docs/site/build.py").read_text()
    exec(text[text.index("NAVIGATION = ") : text.index("}\n", text.index("NAVIGATION = ")) + 2], namespace)
    named = [page for pages in namespace["NAVIGATION"].values() for page in pages]
    assert len({*named}) == len(named)
    pages = {path.relative_to(REPOSITORY).with_suffix("").as_posix() for path in DOCUMENTS} - {"README"}
    assert {*named} == pages | {"docs/gallery", "notebooks/index", "api"}
    near = {README} | linked_from(README)
    reached = near | {page for path in near if path.suffix == ".md" and path.is_file() for page in linked_from(path)}
    assert {name_of(path) for path in DOCUMENTS if "history" not in path.parts} <= {
        name_of(path) for path in reached if path.is_relative_to(REPOSITORY)
    }


def linked_from(page: Path) -> set[Path]:
    found = re.findall(r"\]\((?!https?:)([\w./-]+)(?:#[\w-]+)?\)", page.read_text())
    return {(page.parent / target).resolve() for target in found}


@pytest.mark.parametrize("path", [*GUIDES, *REPOSITORY.glob("docs/trainers/*.md")], ids=name_of)
def test_links_between_pages_have_titles(path: Path) -> None:
    """A file name says nothing on the site. The README is called so on GitHub too."""
    found = re.findall(r"\[([^]]+)\]\((?:[\w.-]+/)*([\w-]+)\.md(?:#[\w-]+)?\)", path.read_text())
    assert [text for text, name in found if Path(text.strip("`")).stem == name != "README"] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=name_of)
def test_lines_of_prose_have_at_most_120_characters(path: Path) -> None:
    lines = prose(path.read_text()).splitlines()
    assert [line for line in lines if len(line) > 120 and not line.startswith("|")] == []


def write_again() -> None:
    """Write docs/commands.md, docs/findings.md, the table of formats, the images and the outputs in all documents."""
    import tempfile

    COMMANDS.write_text(help_page())
    FINDINGS.write_text(findings_page())
    DATA_FORMATS.write_text(with_formats(DATA_FORMATS.read_text()))
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        Path("first").mkdir()
        demo("first/demo", device="cpu", seconds=0, steps=1, say=lambda _: None)
        main(["convert-voc", "first/demo/VOC", "-o", "first/train.json", "--split", "train", "--quiet"])
        for path in RUNNABLE:
            os.chdir(shutil.copytree(Path(folder, "first"), Path(folder, name_of(path))))
            path.write_text(run_document(path, not_run=NOT_RUN))
            picture = {**PICTURES, **DRAWN_IN_PYTHON}.get(path)
            if picture and not is_drawn(picture):
                shutil.copyfile(picture.name, picture)
        os.chdir(REPOSITORY)
