"""The detaug command: parse, call one function of the library, print.

Each command imports what it needs inside its function, so that `detaug --help` stays quick and loads neither
torch nor DALI. Whatever a command raises as ValueError or OSError is the user's input: it is printed without
a traceback and ends with exit code 2. Anything else is a bug and shows its traceback.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from detaug.cli.bench import bench, tune
from detaug.cli.convert import (
    FILE,
    FOLDER,
    convert_coco_to_voc,
    convert_coco_to_yolo,
    convert_voc,
    convert_yolo,
    merge,
    progress_bar,
)
from detaug.cli.train import train


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if not wanted:
        return
    from importlib import metadata

    try:
        click.echo(f"detaug {metadata.version('detaug')}")
    except metadata.PackageNotFoundError:
        click.echo("detaug, not installed: running from its source")
    context.exit()


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version.",
)
def cli() -> None:
    """Object-detection augmentation on NVIDIA DALI, from Pascal VOC to PyTorch batches."""


def _check_device(_: click.Context, __: click.Parameter, device: str | None) -> str | None:
    if device is not None and not re.fullmatch(r"cpu|cuda(:\d+)?", device):
        raise click.BadParameter(f"must be cpu, cuda or cuda:N, got {device!r}")
    return device


# A new command goes below, as @cli.command() with a docstring (its help) that ends in an example. Those that
# convert are in cli_convert.py, those that measure in cli_bench.py.


cli.add_command(convert_voc)
cli.add_command(convert_coco_to_voc)
cli.add_command(convert_yolo)
cli.add_command(convert_coco_to_yolo)
cli.add_command(merge)
cli.add_command(bench)
cli.add_command(tune)
cli.add_command(train)


def _size(_: click.Context, __: click.Parameter, text: str | None) -> tuple[int, int] | None:
    if text is None:
        return None
    height, _x, width = text.lower().partition("x")
    if not (height.isdecimal() and width.isdecimal() and int(height) and int(width)):
        raise click.BadParameter(f"must be HxW pixels, such as 300x300, got {text!r}")
    return int(height), int(width)


@cli.command()
@click.argument("annotations", metavar="FILE.json", type=FILE)
@click.argument("images", type=FOLDER)
@click.option("--decode", is_flag=True, help="Decode every image whole, with DALI, on the GPU if there is one.")
@click.option("--against", metavar="OTHER.json", multiple=True, type=FILE, help="Another split: find shared images.")
@click.option("--size", metavar="HxW", callback=_size, help="What training resizes to, for tiny boxes: 300x300.")
@click.option("--clean", type=FILE, help="A json file to write, without what cannot be used.")
@click.option("--report", type=FILE, help="A json file for every finding.")
@click.option("--html", type=FILE, help="A page for a browser: counts, charts, a picture of each finding.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors of usage.")
def check(annotations: Path, images: Path, quiet: bool, html: Path | None, **options: Any) -> int:
    """Find what is wrong with a data set, before training does.

    FILE.json is a COCO json, IMAGES the folder that its file names are relative to. The exit code is 1 if
    training would stop or learn something wrong, 0 if there are at most warnings, 2 if FILE.json is no COCO
    json at all.

    \b
    detaug check train.json VOC2012/JPEGImages --decode --clean clean.json
    """
    from detaug.converters.check.check import check_coco
    from detaug.drawing import check_to_html

    with progress_bar("checking", quiet) as progress:
        options["progress"] = progress
        if html is None:
            summary = check_coco(annotations, images, **options)
        else:
            summary = check_to_html(annotations, images, html, **options)
    if not quiet:
        click.echo(str(summary))
    if html is not None and not quiet:
        click.echo(f"written: {html}")
    return int(summary.errors > 0)


@cli.command()
@click.argument("annotations", metavar="FILE.json", type=FILE)
@click.argument("images", type=FOLDER)
@click.option("-o", "--output", type=FILE, required=True, help="The picture to write: .png, .jpg or .webp.")
@click.option("--preset", help="The recipe: a function of detaug.presets.  [default: ssd300]")
@click.option("--recipe", type=FILE, help="Or a recipe of your own: a JSON or YAML file.")
@click.option("--rows", type=click.IntRange(min=1), default=4, show_default=True, help="Images to show.")
@click.option("--columns", type=click.IntRange(min=1), help="Draws of each image.  [default: 4]")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the images and draws.")
@click.option("--steps", is_flag=True, help="Instead of draws, the image after each op, what it did and what it drew.")
@click.option(
    "--size",
    type=click.IntRange(min=16),
    default=300,
    show_default=True,
    help="The longer side of each picture, in pixels.",
)
@click.option("--only", metavar="CLASS", help="Images with objects of this class.")
@click.option("--smallest", "how", flag_value="smallest", help="Images with the smallest boxes.")
@click.option("--crowded", "how", flag_value="crowded", help="Images with the most boxes.")
@click.option("--suspicious", "how", flag_value="suspicious", help="Images with odd boxes: alike, thin, tiny, huge.")
def preview(annotations: Path, images: Path, output: Path, **options: Any) -> None:
    """Draw images beside what a recipe makes of them, with boxes.

    Each row has an image of FILE.json, a COCO json, with its boxes, and several draws of the recipe. Difficult
    objects are dashed. Without --smallest, --crowded or --suspicious the images are chosen at random, those
    without boxes last. IMAGES is the folder that the json's file names are relative to.

    \b
    detaug preview train.json VOC2012/JPEGImages -o sheet.png --preset ssd300 --rows 6
    """
    from detaug.sheets import preview_file

    click.echo(preview_file(annotations, images, output, **options))


@cli.command()
@click.option("--out", type=FOLDER, default="demo", show_default=True, help="The folder to make.")
@click.option(
    "--device", callback=_check_device, help="cpu, cuda or cuda:N.  [default: CUDA if there is a GPU, else cpu]"
)
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the pictures and draws.")
def demo(**options: Any) -> None:
    """Convert, check, augment: all of it on a small data set.

    Draws a Pascal VOC data set, converts and checks it, times the loader, and leaves a folder with the data
    set, its train.json and sheet.png. Prints the lines of Python to go on with.

    \b
    detaug demo --out demo
    """
    from detaug.demo.demo import demo as run_demo

    run_demo(**options, say=click.echo)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; the exit code: 0, 2 for an error in the input, 130 if interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        result = cli.main(args=given or ["--help"], prog_name="detaug", standalone_mode=False)
        return result if isinstance(result, int) else 0
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted", 130)
    except BrokenPipeError:  # detaug ... | head
        return 1
    except click.ClickException as error:
        return _fail(error.format_message())
    except OSError as error:
        return _fail(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    except ValueError as error:
        return _fail(str(error))


def _fail(message: str, code: int = 2) -> int:
    click.echo(f"detaug: {message}", err=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
