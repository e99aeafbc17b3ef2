"""Run the Python blocks and the commands of a document, from top to bottom."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch

import detaug as da
from detaug.cli.main import main

TRAINING = ("python train", "python evaluate", "python predict")
"""Kinds of blocks that need torchvision."""

SMALLER = {
    "batch_size=32)": "batch_size=1)",
    "batch_size=8": "batch_size=1",
    "batch_size=4)": "batch_size=1)",
    ".compute()": ".compute(partial=True)",  # one batch is not all of the images
}
"""Replacements in blocks that train, which a CPU could not finish; what they do stays the same."""


SHORTER_SIDE = 200
"""Of images in blocks that train with 800, detaug's and torchvision's size for detectors with a feature pyramid."""


class Block(NamedTuple):
    """A fenced block of a document."""

    kind: str
    """What follows the fence, such as "python" or "python train"."""
    text: str
    line: int
    start: int
    end: int


def blocks(document: str) -> list[Block]:
    """Return the fenced blocks of a document, also those within lists."""
    fence = re.compile(r"^( *)```(\w[\w ]*)\n(.*?)^ *```$", re.M | re.S)
    return [
        Block(found[2], found[3], document.count("\n", 0, found.start(3)), found.start(3), found.end(3))
        for found in fence.finditer(document)
    ]


def commands(document: str) -> list[str]:
    """Return the detaug commands of a document, without comments."""
    return [command for block in blocks(document) if block.kind == "sh" for command in block_commands(block)]


def block_commands(block: Block) -> list[str]:
    lines = block.text.replace("\\\n", " ").splitlines()
    parts = [shlex.join(shlex.split(part, comments=True)) for line in lines for part in line.split("&&")]
    return [part for part in parts if part.startswith("detaug ")]


def is_training(block: Block) -> bool:
    return block.kind in TRAINING or any(map(needs_training, commands_of(block)))


def needs_training(command: str) -> bool:
    """Return whether a command trains, or uses a model that was trained."""
    return command.startswith(("detaug train ", "detaug predict ", "detaug export ")) or " --model run/" in command


def commands_of(block: Block) -> list[str]:
    return block_commands(block) if block.kind == "sh" else []


def run_document(path: Path, *, not_run: dict[str, str], train: bool = False) -> str:
    """Run a document in this folder and return it with what its Python printed.

    A "text" block behind a Python block is its output. In a "console" block, lines that begin with $ are commands, and
    the others their output. `not_run`: commands to leave out. `train`: run what trains too, made smaller.
    """
    document = path.read_text()
    namespace: dict[str, Any] = {"__name__": "__main__"}
    parts, done, printed = [], 0, None
    for block in blocks(document):
        if block.kind == "text" and printed is not None:
            parts += [document[done : block.start], printed]
            done = block.end
        if block.kind == "console":
            parts += [document[done : block.start], console(block)]
            done = block.end
        printed = run_python(block, path, namespace) if block.kind == "python" else None
        if train and block.kind in TRAINING:
            run_training_block(block, path, namespace)
        for command in commands_of(block):
            if command not in not_run and (train or not needs_training(command)):
                run_command(command)
    return "".join([*parts, document[done:]])


def console(block: Block) -> str:
    """Run the commands of a block; return it with what they print, to stdout and stderr. Any exit code is right."""
    shown = io.StringIO()
    for line in re.findall(r"^\$ (detaug .*)$", block.text, re.M):
        print("$", line, file=shown)
        with redirect_stdout(shown), redirect_stderr(shown):
            main(shlex.split(line)[1:])
    return shown.getvalue()


def run_python(block: Block, path: Path, namespace: dict[str, Any]) -> str:
    """Run a block and return what it prints. A traceback names the line of the document."""
    code = compile("\n" * block.line + block.text, str(path), "exec")
    with redirect_stdout(io.StringIO()) as printed:
        exec(code, namespace)
    return printed.getvalue()


def run_training_block(block: Block, path: Path, namespace: dict[str, Any], steps: int | None = 1) -> list[float]:
    """Run a block with small batches of small images; return the loss of each step.

    steps: the batches of each epoch; None: all, and all epochs.
    """
    text, losses = block.text, list[float]()
    for old, new in SMALLER.items():
        text = text.replace(old, new)
    if steps == 1:
        text = text.replace("epochs = 2\n", "epochs = 1\n")
    iterate, backward = da.Loader.__iter__, torch.Tensor.backward

    def record(loss: torch.Tensor) -> None:
        losses.append(loss.item())
        backward(loss)  # type: ignore[no-untyped-call]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(da.Loader, "__iter__", lambda loader: islice(iterate(loader), steps))
        patch.setattr(torch.Tensor, "backward", record)
        make_smaller(patch)
        run_python(block._replace(text=text), path, namespace)
    return losses


def make_smaller(patch: pytest.MonkeyPatch) -> None:
    """Have da.presets.retinanet and torchvision's detectors resize to 200 pixels instead of 800."""
    from torchvision.models.detection.transform import GeneralizedRCNNTransform

    recipe, make = da.presets.retinanet, GeneralizedRCNNTransform.__init__

    def small_recipe(*how: Any) -> list[da.Op]:
        return [da.Resize(SHORTER_SIDE) if isinstance(op, da.Resize) else op for op in recipe(*how)]

    def make_small(self: Any, min_size: int, *others: Any, **options: Any) -> None:
        make(self, SHORTER_SIDE if min_size == 800 else min_size, *others, **options)

    patch.setattr(da.presets, "retinanet", small_recipe)
    patch.setattr(GeneralizedRCNNTransform, "__init__", make_small)


def run_command(command: str) -> None:
    """Run a command in this process. A training is made smaller."""
    command = smaller_training(command) if command.startswith("detaug train ") else command
    assert main(shlex.split(command)[1:]) == 0, command


def smaller_training(command: str) -> str:
    """Return a command that trains one epoch: of FILE.json IMAGES two small images, of PATH all."""
    small = re.sub(r"--epochs \d+|--time \w+", "", re.sub(r"--size \d+", "--size 160", command))
    if "--model lraspp" in small and "--size" not in small:
        small += " --size 160"
    if not re.match(r"detaug train (--\S+ \S+ )*\S+\.json [^-]", command):
        return f"{small} --epochs 1 --batch-size 8"
    for name in set(re.findall(r"\S+\.json\b", command)):
        document = json.loads(Path(name).read_text())
        document["images"] = document["images"][:2]
        ids = {image["id"] for image in document["images"]}
        document["annotations"] = [each for each in document["annotations"] if each["image_id"] in ids]
        two = name.removesuffix(".json") + "-2.json"
        Path(two).write_text(json.dumps(document))
        small = re.sub(rf"{re.escape(name)}(?=\s)", two, small)
    return f"{small} --epochs 1 --batch-size 2"


def prose(document: str) -> str:
    """Return a document without its fenced blocks."""
    return re.sub(r"```.*?```", "", document, flags=re.S)


def anchors(document: str) -> list[str]:
    """Return the anchors of its headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(document), re.M)
    return [re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles]


def links(document: str) -> Iterator[tuple[str, str]]:
    """Yield the file and the anchor of each link that does not lead to the network."""
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(document)):
        if "://" not in target:
            file, _, anchor = target.partition("#")
            yield file, anchor
