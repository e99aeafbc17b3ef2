"""The commands that measure: bench and tune."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from detaug.cli import options
from detaug.cli.options import AT_LEAST_1, FILE

_preset = click.option(
    "--preset",
    type=click.Choice(options.PRESETS),
    default="ssd300",
    show_default=True,
    help="The recipe. For yolo640, bench has no rows by hand and torchvision.",
)


@click.command()
@options.json_argument
@options.images_argument
@options.batch_size
@options.device
@_preset
@click.option("--seconds", type=click.FloatRange(min=0.1), default=5.0, show_default=True, help="Time for each turn.")
@click.option("--turns", type=AT_LEAST_1, default=3, show_default=True, help="Turns for each row.")
@click.option(
    "--workers",
    type=AT_LEAST_1,
    multiple=True,
    help="Processes of torchvision's DataLoader; may be given several times.  [default: the cores, at most 16]",
)
@click.option(
    "--only",
    multiple=True,
    help="Rows to measure: loader, decode, by hand, torchvision; or cached, the loader with images decoded once.",
)
@click.option("--json", "json_file", type=FILE, help="A JSON file of all measurements, written after each turn.")
@click.option("--chart", type=FILE, help="A PNG file for a chart.")
@click.option("-q", "--quiet", is_flag=True, help="Print the table and nothing else.")
@options.needs()
def bench(
    annotations: Path, images: Path, json_file: Path | None, chart: Path | None, quiet: bool, **more: Any
) -> None:
    """Measure the loader's speed on your data.

    Compares it with decoding alone, which is its limit; with the same recipe as DALI's examples write it; and with
    torchvision's transforms in a DataLoader, if torchvision is installed. They take turns, each in a process of its
    own, and their batches are compared first. CPU time includes worker processes; images that fill up a last batch are
    not counted.

    \b
    detaug bench train.json VOC2012/JPEGImages --batch-size 32 --chart bench.png
    """
    from detaug.bench import bench as run_bench
    from detaug.bench import draw_chart, format_table
    from detaug.drawing.images import PICTURES
    from detaug.files.atomic import write_json
    from detaug.outputs.guards import output_files

    output_files({"json": json_file}, annotations, images)
    output_files({"chart": chart}, annotations, images, extensions=PICTURES)

    def save(result: dict[str, Any]) -> None:
        if json_file:
            write_json(json_file, result)

    result = run_bench(annotations, images, say=_say(quiet), after_turn=save, **more)
    options.echo(format_table(result))
    if chart:
        draw_chart(result, chart)


@click.command()
@options.json_or_address
@options.images_or_address
@options.batch_size
@options.device
@_preset
@click.option("-o", "--output", type=FILE, help="A JSON file for Loader(settings=...).")
@click.option("--seconds", type=click.FloatRange(min=1), default=90.0, show_default=True, help="Time to spend.")
@click.option("-q", "--quiet", is_flag=True, help="Print the result and nothing else.")
@options.needs()
def tune(annotations: Path, images: Path, quiet: bool, device: str | None, **more: Any) -> None:
    """Find the loader's fastest settings.

    Tries numbers of pipelines, threads and batches in flight on this machine and this data, one after the other, and on
    a GPU the fraction of its JPEG engine. The batches are the same with all of them.

    \b
    detaug tune train.json VOC2012/JPEGImages --batch-size 32 -o settings.json
    """
    from detaug.bench import tune as run_tune

    options.keep_freed_memory_on_cpu(device)
    options.echo(str(run_tune(annotations, images, device=device, say=_say(quiet), **more)))


def _say(quiet: bool) -> Callable[[str], None]:
    """Return a function that prints a line of progress."""
    return lambda line: None if quiet else options.echo(line, err=True)
