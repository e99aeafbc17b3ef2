"""The commands that measure: parse, call one function of the library, print."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

FILE = click.Path(dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
_ANNOTATIONS = click.argument("annotations", metavar="FILE.json", type=FILE)
_IMAGES = click.argument("images", type=FOLDER)
_BATCH_SIZE = click.option(
    "--batch-size", type=click.IntRange(min=1), default=32, show_default=True, help="Images a batch."
)
_DEVICE = click.option("--device", help="cpu, cuda or cuda:N.  [default: CUDA if there is a GPU, else cpu]")
_PRESET = click.option(
    "--preset",
    type=click.Choice(["ssd300", "retinanet", "yolo640"]),
    default="ssd300",
    show_default=True,
    help="The recipe; of yolo640 there is no version by hand or of torchvision.",
)


@click.command()
@_ANNOTATIONS
@_IMAGES
@_BATCH_SIZE
@_DEVICE
@_PRESET
@click.option("--seconds", type=click.FloatRange(min=0.1), default=5.0, show_default=True, help="Timed in each turn.")
@click.option("--turns", type=click.IntRange(min=1), default=3, show_default=True, help="Times that each is measured.")
@click.option(
    "--workers",
    type=click.IntRange(min=1),
    multiple=True,
    help="Processes of torchvision's DataLoader; may be given several times.  [default: the cores, at most 16]",
)
@click.option(
    "--only",
    multiple=True,
    help="Rows to measure: loader, decode, by hand, torchvision; or cached, the loader with images decoded once.",
)
@click.option("--json", "json_file", type=FILE, help="A json file for all that was measured, after each turn.")
@click.option("--chart", type=FILE, help="A PNG file for a chart.")
@click.option("-q", "--quiet", is_flag=True, help="Print the table and nothing else.")
def bench(
    annotations: Path, images: Path, json_file: Path | None, chart: Path | None, quiet: bool, **options: Any
) -> None:
    """Measure the loader on this machine and this data.

    Beside it, in turns and in processes of their own: decoding alone, which bounds it; the same recipe as DALI's
    examples write it; and torchvision's transforms in a DataLoader, where torchvision is installed. What they make
    is compared first. CPU time includes worker processes; images that fill up a last batch are not counted.

    \b
    detaug bench train.json VOC2012/JPEGImages --batch-size 32 --chart bench.png
    """
    from detaug.bench.bench import bench as run_bench
    from detaug.bench.bench import table
    from detaug.bench.chart import draw_chart

    def keep(result: dict[str, Any]) -> None:
        if json_file:
            json_file.write_text(json.dumps(result, indent=1), encoding="utf-8")

    def say(line: str) -> None:
        if not quiet:
            click.echo(line, err=True)

    result = run_bench(annotations, images, say=say, after_turn=keep, **options)
    click.echo(table(result))
    if chart:
        draw_chart(result, chart)


@click.command()
@_ANNOTATIONS
@_IMAGES
@_BATCH_SIZE
@_DEVICE
@_PRESET
@click.option("-o", "--output", type=FILE, help="A json file for Loader(settings=...).")
@click.option("--seconds", type=click.FloatRange(min=1), default=90.0, show_default=True, help="Time to spend.")
@click.option("-q", "--quiet", is_flag=True, help="Print the result and nothing else.")
def tune(annotations: Path, images: Path, quiet: bool, **options: Any) -> None:
    """Find the loader's fastest settings for this machine and this data.

    Tries numbers of pipelines, threads and batches in work, and on a GPU the share of its JPEG engine, one after
    the other. Batches are the same with any of them.

    \b
    detaug tune train.json VOC2012/JPEGImages --batch-size 32 -o settings.json
    """
    from detaug.bench.tune import tune as run_tune

    result = run_tune(annotations, images, say=lambda line: None if quiet else click.echo(line, err=True), **options)
    click.echo(str(result))
