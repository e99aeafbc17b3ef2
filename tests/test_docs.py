"""The documents say what the program does: their Python runs, their commands run, their outputs are printed.

Run as a program, `python tests/test_docs.py`, this file writes docs/commands.md, the README's picture and its outputs
again.
"""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from functools import partial
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import click
import pytest
from alike import alike
from click.testing import CliRunner
from PIL import Image

import detaug as da
from detaug.cli.main import cli, main
from detaug.converters.findings.kinds import CHECK_KINDS, KINDS
from detaug.demo.demo import demo
from detaug.drawing import draw_boxes

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
COMMANDS = ROOT / "docs/commands.md"
ACCURACY = ROOT / "docs/accuracy.md"
FINDINGS = ROOT / "docs/findings.md"
PICTURE = ROOT / "docs/sheet.jpg"
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("notebooks/*.md")])

NOT_RUN = {
    "detaug demo": "run already, by the function that the command calls, with the same pictures",
    "detaug demo --out demo": "the same: demo is the default",
    "detaug bench train.json demo/VOC/JPEGImages --batch-size 8 --chart bench.png": "takes a minute; see test_bench",
    "detaug tune train.json demo/VOC/JPEGImages --batch-size 8 -o settings.json": "takes two minutes; see test_bench",
}
MADE_BY = {"val.json": "convert-voc", "yolo": "convert-coco-to-yolo"}
"""What commands of the README read that others before them have written."""
SMALLER = {
    "batch_size=32)": "batch_size=1)",
    "batch_size=8": "batch_size=1",
    "batch_size=2)": "batch_size=1)",
    ".compute()": ".compute(partial=True)",  # one batch is not all of the images
}
"""In blocks that train: so that a CPU gets through. What they do stays the same."""


class Block(NamedTuple):
    """A fenced block. kind: what stands behind the fence, such as "python" or "python train"."""

    kind: str
    text: str
    line: int
    start: int
    end: int


def blocks(document: str) -> list[Block]:
    """The fenced blocks, those in lists too."""
    fence = re.compile(r"^( *)```(\w[\w ]*)\n(.*?)^ *```$", re.M | re.S)
    return [
        Block(found[2], found[3], document.count("\n", 0, found.start(3)), found.start(3), found.end(3))
        for found in fence.finditer(document)
    ]


def commands(document: str) -> list[str]:
    """The lines of its shell blocks that call detaug, without comments; the parts of a line of several."""
    lines = [line for block in blocks(document) if block.kind == "sh" for line in block.text.splitlines()]
    parts = [shlex.join(shlex.split(part, comments=True)) for line in lines for part in line.split("&&")]
    return [part for part in dict.fromkeys(parts) if part.startswith("detaug ")]


def run_python(block: Block, path: Path, namespace: dict[str, Any], replaced: dict[str, str] | None = None) -> str:
    """What it prints. A traceback names the document's own line."""
    text = block.text
    for old, new in (replaced or {}).items():
        text = text.replace(old, new)
    code = compile("\n" * block.line + text, str(path), "exec")
    with redirect_stdout(io.StringIO()) as printed:
        exec(code, namespace)
    return printed.getvalue()


def played(path: Path) -> str:
    """The document, its plain Python run from top to bottom; each "text" block is what the one before it printed."""
    document, printed, parts, done = path.read_text(), "", [], 0
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(document):
        if block.kind == "python":
            printed = run_python(block, path, namespace)
        if block.kind == "text":
            parts += [document[done : block.start], printed]
            done = block.end
    return "".join([*parts, document[done:]])


def help_page() -> str:
    """docs/commands.md: every command's help, as printed 80 columns wide."""
    pages = [[], *([name] for name in sorted(cli.commands))]
    runner = CliRunner()
    parts = ["# Commands\n\nWhat `--help` prints; made by `python tests/test_docs.py`.\n"]
    for page in pages:
        result = runner.invoke(cli, [*page, "--help"], prog_name="detaug", terminal_width=80)
        parts.append(f"## {' '.join(['detaug', *page])}\n\n```text\n{result.output}```\n")
    return "\n".join(parts)


# ---------------------------------------------------------------- what runs


@pytest.mark.usefixtures("workplace", "cpu")
def test_the_readmes_python_prints_what_it_says() -> None:
    assert played(README) == README.read_text(), "python tests/test_docs.py writes the outputs again"


@pytest.mark.usefixtures("workplace")
@pytest.mark.parametrize("command", [each for each in commands(README.read_text()) if each not in NOT_RUN])
def test_the_readmes_commands_run(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    make_what_it_reads(command)
    command = smaller_training(command) if command.startswith("detaug train ") else command
    if "--recipe recipe.yaml" in command:
        da.save_recipe(da.presets.ssd300(), "recipe.yaml")  # as the block of Python before it does
    assert main(shlex.split(command)[1:]) == 0, capsys.readouterr().err


@pytest.mark.usefixtures("workplace")
def test_the_readmes_torchrun_runs() -> None:
    """On two processes, with a smaller model."""
    (command,) = re.findall(r"^ *torchrun .* -m (detaug\.cli train .*)$", README.read_text(), re.M)
    make_what_it_reads(command)
    arguments = [*shlex.split(smaller_training(command))[1:], "--epochs", "1", "--device", "cpu"]
    arguments[arguments.index("-o") + 1] = "run-2"
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    model = ["--model", "ssdlite320_mobilenet_v3_large"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    run = subprocess.run([*launcher, "-m", "detaug", *arguments, *model], env=environment, capture_output=True)
    assert run.returncode == 0, run.stderr.decode()
    assert len(Path("run-2/metrics.jsonl").read_text().splitlines()) == 2  # a step and an evaluation
    assert Path("run-2/model.pt").is_file()


def make_what_it_reads(command: str) -> None:
    """Run the README's commands that write it, where this test runs alone."""
    for name, maker in MADE_BY.items():
        if name in command.split() and not Path(name).exists() and command.split()[1] != maker:
            first = next(each for each in commands(README.read_text()) if {maker, name} <= set(each.split()))
            assert main(shlex.split(first)[1:]) == 0


def smaller_training(command: str) -> str:
    """One epoch of two images, so that a CPU gets through."""
    if reason := misfit():
        pytest.skip(f"torchvision's wheel does not fit this torch, so the command that trains is not run: {reason}")
    for name in ("train", "val"):
        document = json.loads(Path(f"{name}.json").read_text())
        document["images"] = document["images"][:2]
        kept = {image["id"] for image in document["images"]}
        document["annotations"] = [each for each in document["annotations"] if each["image_id"] in kept]
        Path(f"{name}-2.json").write_text(json.dumps(document))
    small = re.sub(r"\b(train|val)\.json", r"\1-2.json", command)
    return re.sub(r"--epochs \d+", "--epochs 1", small) + " --batch-size 2"


def misfit() -> str:
    """Why the part of torchvision that is compiled does not work; "" if it does."""
    try:
        import torch

        import_module("torchvision.ops").nms(torch.zeros(1, 4), torch.zeros(1), 0.5)
    except (ImportError, OSError, RuntimeError) as error:
        return str(error).partition(".")[0]
    return ""


@pytest.mark.usefixtures("workplace")
def test_the_readmes_picture_is_what_its_command_draws() -> None:
    (command,) = [each for each in commands(README.read_text()) if "-o sheet.jpg" in each]
    assert main(shlex.split(command)[1:]) == 0
    assert is_the_picture(Path("sheet.jpg")), "python tests/test_docs.py draws it again"


def is_the_picture(drawn: Path) -> bool:
    with Image.open(drawn) as one, Image.open(PICTURE) as other:
        return alike(one, other)


def test_pictures_that_differ_in_one_box_are_not_alike() -> None:
    with Image.open(PICTURE) as picture:
        assert alike(picture, picture)
        assert not alike(picture, draw_boxes(picture, [[400, 150, 460, 190]], ["ball"]))


def test_the_readmes_first_screen_has_the_two_commands_of_setting_up() -> None:
    first_screen = README.read_text().partition("\n## ")[0]
    assert "pip install . && detaug demo" in first_screen
    assert "`pip install -e '.[test]' && pytest`" in first_screen


@pytest.fixture(scope="module")
def trained(workplace: Path) -> Iterator[dict[str, Any]]:
    """The names of someone who has run the README's training: a batch of one image, no weights downloaded."""
    try:
        from torchvision.models import detection
    except (ImportError, OSError, RuntimeError) as error:
        pytest.skip(f"torchvision cannot be imported, so blocks that train are not run: {error}")
    namespace: dict[str, Any] = {"__name__": "__main__", "da": da}
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ssd300_vgg16", "retinanet_resnet50_fpn"):
            patch.setattr(detection, name, partial(getattr(detection, name), weights_backbone=None))
        patch.setattr(da.Loader, "__iter__", only_first(da.Loader.__iter__))
        run_blocks("python train", namespace)
        yield namespace


def run_blocks(kind: str, namespace: dict[str, Any]) -> None:
    for block in blocks(README.read_text()):
        if block.kind == kind:
            run_python(block, README, namespace, SMALLER)


def test_the_readmes_training_runs(trained: dict[str, Any]) -> None:
    assert set(trained["losses"]) == {"classification", "bbox_regression"}
    assert all(loss.isfinite() for loss in trained["losses"].values())


def test_the_readmes_evaluation_runs(trained: dict[str, Any]) -> None:
    if reason := misfit():
        pytest.skip(f"torchvision's wheel does not fit this torch, so the block that evaluates is not run: {reason}")
    run_blocks("python evaluate", trained)
    assert 0 <= trained["metrics"].AP <= 1
    assert {"image_id", "category_id", "bbox", "score"} == set(json.loads(Path("detections.json").read_text())[0])


def only_first(iterate: Any) -> Any:
    """An epoch of one batch."""
    return lambda loader: islice(iterate(loader), 1)


def test_the_readmes_errors_are_raised(workplace: Path) -> None:
    rows = re.findall(r"^\| `(da\..*?)` \| `(\w+): (.*)` \|$", README.read_text(), re.M)
    assert len(rows) >= 5
    reader = da.CocoReader("demo/VOC/JPEGImages", "train.json")
    for code, name, message in rows:
        with pytest.raises(Exception) as raised:  # noqa: PT011
            eval(code, {"da": da, "reader": reader})
        assert (type(raised.value).__name__, str(raised.value)) == (name, message)


@pytest.mark.usefixtures("cpu")
def test_the_boxes_are_as_exact_as_the_document_says() -> None:
    measured, written = (figures(text) for text in (played(ACCURACY), ACCURACY.read_text()))
    assert measured == pytest.approx(written, rel=0.1, abs=0.011)
    shown = re.findall(r"^\| (?:by hand, as.*|detaug) \| ([\d.]+) \| ([\d.]+) \|$", README.read_text(), re.M)
    assert [float(number) for row in shown for number in row] == written


def figures(document: str) -> list[float]:
    """Mean and max of the program that is written by hand, then of detaug."""
    return [float(number) for row in re.findall(r"mean ([\d.]+)  max ([\d.]+)", document) for number in row][-4:]


# ---------------------------------------------------------------- what is written


def findings_page() -> str:
    """docs/findings.md: what a report may hold, kind by kind, from the tables in the code."""
    conversions = [f"| `{name}` | {kind.effect} | {kind.meaning} |" for name, kind in KINDS.items()]
    checks = [f"| `{name}` | {kind.effect} | {kind.meaning} |" for name, kind in CHECK_KINDS.items()]
    return "\n".join(
        [
            "# Findings\n\nWhat a `--report` may hold; made by `python tests/test_docs.py`.\n",
            "## Conversions and merge\n",
            "error: the file cannot be used. dropped: something is not in the result. repaired: a value was changed.",
            "noted: nothing was changed; a person may want to look.\n",
            "| kind | effect | meaning |\n|---|---|---|",
            *conversions,
            "\n## detaug check\n",
            "error: training would stop, or learn something wrong. warning: a person should",
            "look.\n",
            "| kind | severity | meaning |\n|---|---|---|",
            *checks,
            "",
        ]
    )


def test_every_kind_of_finding_is_documented() -> None:
    assert FINDINGS.read_text() == findings_page(), "python tests/test_docs.py writes docs/findings.md again"


def test_the_help_in_the_documents_is_the_programs() -> None:
    same = COMMANDS.read_text().split() == help_page().split()  # click's versions wrap lines in different places
    assert same, "python tests/test_docs.py writes docs/commands.md again"


@pytest.mark.parametrize("name", sorted(cli.commands))
def test_every_command_is_in_the_readme_with_an_example(name: str) -> None:
    assert any(command.startswith(f"detaug {name} ") for command in commands(README.read_text()))
    assert isinstance(cli.commands[name], click.Command)


def test_every_op_is_in_the_readmes_table() -> None:
    rows = [line for line in README.read_text().splitlines() if line.startswith("| `")]
    ops = [name for name in da.__all__ if isinstance(getattr(da, name), type) and issubclass(getattr(da, name), da.Op)]
    assert [name for name in ops if not name.endswith("Op") and not any(f"| `{name}(" in row for row in rows)] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        file, _, anchor = target.partition("#")
        if "://" in target:
            continue
        found = path if not file else path.parent / file
        assert found.exists(), f"{path.name} links to {target}"
        assert not anchor or anchor in anchors(found.read_text()), f"{path.name} links to {target}"


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_lines_of_prose_have_at_most_120_characters(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.S)
    assert [line for line in text.splitlines() if len(line) > 120 and not line.startswith("|")] == []


def anchors(document: str) -> list[str]:
    """Of its headings, as GitHub makes them."""
    return [
        re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in re.findall(r"^#+ (.*)$", document, re.M)
    ]


def write_again() -> None:
    """docs/commands.md, docs/findings.md, docs/sheet.jpg, and the outputs in README.md and docs/accuracy.md."""
    import shutil
    import tempfile

    COMMANDS.write_text(help_page())
    FINDINGS.write_text(findings_page())
    os.environ["CUDA_VISIBLE_DEVICES"] = ""
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        demo("demo", device="cpu", seconds=0, say=lambda _: None)
        main(["convert-voc", "demo/VOC", "-o", "train.json", "--split", "train", "--quiet"])
        for path in (README, ACCURACY):
            path.write_text(played(path))
        main(next(shlex.split(each)[1:] for each in commands(README.read_text()) if "-o sheet.jpg" in each))
        if not is_the_picture(Path("sheet.jpg")):
            shutil.copyfile("sheet.jpg", PICTURE)
        os.chdir(ROOT)


if __name__ == "__main__":
    write_again()
