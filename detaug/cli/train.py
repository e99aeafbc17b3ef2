"""`detaug train`: the command."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

FILE, FOLDER = click.Path(dir_okay=False, path_type=Path), click.Path(file_okay=False, path_type=Path)
AT_LEAST_1, AT_LEAST_0 = click.IntRange(min=1), click.IntRange(min=0)


def _size(_: click.Context, __: click.Parameter, text: str | None) -> int | tuple[int, int] | None:
    if text is None:
        return None
    found = re.fullmatch(r"(\d+)(?:x(\d+))?", text)
    if not found or not all(int(side) for side in found.groups() if side):
        raise click.BadParameter(f"must be HxW pixels or the shorter side, such as 300x300 or 800, got {text!r}")
    return (int(found[1]), int(found[2])) if found[2] else int(found[1])


def _bar(done: int, total: int, text: str, columns: int) -> str:
    """So many characters: a bar as far as the text leaves room, which changes in steps of 5."""
    length = min(30, (columns - len(text) - 4) // 5 * 5)
    bar = f"[{'#' * (done * length // total):-<{length}}]  {text}" if length > 0 else text
    return bar[:columns].ljust(columns)


@contextmanager
def _terminal() -> Iterator[tuple[Callable[[str], None], Callable[[int, int, str], None] | None]]:
    """What says a line, and what draws the bar: None unless stdout and stderr both are terminals."""
    if not (sys.stdout.isatty() and sys.stderr.isatty()):
        yield click.echo, None
        return
    drawn = False

    def draw(done: int, total: int, text: str) -> None:
        nonlocal drawn
        click.echo("\r" + _bar(done, total, text, shutil.get_terminal_size().columns - 1), nl=False, err=True)
        drawn = True

    def end() -> None:
        nonlocal drawn
        if drawn:
            click.echo(err=True)
        drawn = False

    def say(line: str) -> None:
        end()
        click.echo(line)

    try:
        yield say, draw
    finally:
        end()


@click.command()
@click.argument("annotations", metavar="FILE.json", type=FILE)
@click.argument("images", type=FOLDER)
@click.option("-o", "--output", type=FOLDER, required=True, help="The folder for metrics, checkpoint and model.")
@click.option("--val", metavar="VAL.json", type=FILE, help="What to evaluate on.")
@click.option("--val-images", type=FOLDER, help="Its image folder.  [default: IMAGES]")
@click.option("--model", default="ssd300_vgg16", show_default=True, help="torchvision's name of the detector.")
@click.option("--epochs", type=AT_LEAST_1, default=100, show_default=True, help="Times over all images.")
@click.option("--batch-size", type=AT_LEAST_1, default=32, show_default=True, help="Images a step on each GPU.")
@click.option("--lr", type=float, help="The highest learning rate.  [default: the model's, by images a step]")
@click.option("--optimizer", type=click.Choice(["sgd", "adamw"]), default="sgd", show_default=True, help="Its kind.")
@click.option("--momentum", type=float, default=0.9, show_default=True, help="Of SGD.")
@click.option("--weight-decay", type=float, help="[default: the model's]")
@click.option("--warm-up", type=AT_LEAST_0, help="Steps.  [default: a tenth of all, at most 500]")
@click.option("--clip-norm", type=float, default=10.0, show_default=True, help="Shorten longer gradients; 0: never.")
@click.option("--size", metavar="HxW|N", callback=_size, help="Input, or its shorter side.  [default: the model's]")
@click.option("--recipe", type=FILE, help="Ops, a file of save_recipe.  [default: the model's]")
@click.option("--weights", type=FILE, help="A state dict to begin with; a head of other classes is made new.")
@click.option("--resume", is_flag=True, help="Go on from the checkpoint in the output folder, if there is one.")
@click.option("--amp/--no-amp", default=True, show_default=True, help="Compute in 16 bits on a GPU.")
@click.option("--seed", type=AT_LEAST_0, default=0, show_default=True, help="Of the weights and batches.")
@click.option("--device", help="cpu, cuda or cuda:N.  [default: CUDA if there is a GPU, else cpu]")
@click.option("--eval-every", type=AT_LEAST_1, default=10, show_default=True, help="Epochs; a checkpoint each time.")
@click.option(
    "--checkpoint-every", type=AT_LEAST_0, default=1000, show_default=True, help="Steps, for more of them; 0: no more."
)
@click.option("--log-every", type=AT_LEAST_1, default=20, show_default=True, help="Steps; a terminal has a bar.")
def train(**options: Any) -> None:
    """Train a detector of torchvision: SSD300, SSDlite, RetinaNet or FCOS.

    FILE.json is a COCO json, IMAGES the folder that its file names are relative to. Nothing is downloaded: the
    model begins at random, or with --weights. The output folder gets metrics.jsonl, checkpoint.pt,
    predictions.png and model.pt. On several GPUs:

    \b
    torchrun --nproc-per-node 4 -m detaug.cli.main train train.json VOC2012/JPEGImages -o run

    \b
    detaug train train.json VOC2012/JPEGImages --val val.json --model ssd300_vgg16 -o run
    """
    from detaug.training import TrainOptions
    from detaug.training import train as run_train

    with _terminal() as (say, bar):
        run_train(TrainOptions(**options), say=say, bar=bar)
