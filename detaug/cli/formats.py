"""The commands that convert any format, and list the formats."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from detaug.cli import options
from detaug.cli.options import AT_LEAST_1, FOLDER, PATH, print_unless
from detaug.cli.progress_bar import progress_bar


@click.command()
@click.argument("path", type=PATH)
@options.output_json
@click.option("--from", "format", metavar="NAME", help="The format; detaug formats lists them.  [default: detected]")
@click.option("--images", type=FOLDER, help="The folder that has the images, at any depth.  [default: PATH's]")
@click.option("--split", metavar="NAME", help="The split to convert, of formats that have some.")
@options.classes("; others are dropped.  [default: all]")
@options.on_error
@click.option(
    "--jobs", type=AT_LEAST_1, help="Processes to read with.  [default: 1; of large shards one for each core]"
)
@options.part("Only the I-th of N parts of the images, videos whole; detaug merge joins the JSON files")
@options.report
@options.quiet
def convert(path: Path, format: str | None, quiet: bool, **arguments: Any) -> None:
    """Convert any known format to COCO JSON.

    PATH is a file, or a folder with annotations at any depth. What it is, is detected and said. Images are found by
    the names that the annotations give, below PATH or --images.

    \b
    detaug convert VOC2012 -o train.json --split train
    """
    from detaug.converters import convert_to_coco
    from detaug.converters.formats.recognise import recognise

    recognised = recognise(path, format, arguments["images"])
    with progress_bar("reading", quiet) as progress:
        summary = convert_to_coco(recognised, progress=progress, **arguments)
    print_unless(quiet, f"{recognised}\n{summary}")


@click.command()
def formats() -> None:
    """List the formats that convert reads.

    \b
    detaug formats
    """
    from detaug.files.formats import FORMATS

    width = max(len(row.name) for row in FORMATS)
    for row in FORMATS:
        lost = f"; not {row.lost}" if row.lost else ""
        click.echo(f"{row.name:<{width}}  {row.title}: {row.kept}{lost}")
