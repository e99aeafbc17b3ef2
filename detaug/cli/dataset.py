"""The commands that look at a dataset: check, preview, demo."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from detaug.cli import options
from detaug.cli.options import AT_LEAST_0, AT_LEAST_1, FILE, FOLDER, print_unless
from detaug.cli.progress_bar import progress_bar


@click.command()
@options.json_argument
@options.images_argument
@click.option(
    "--decode", is_flag=True, help="Decode every image whole, with DALI, on the GPU if there is one; open every video."
)
@click.option(
    "--isolated",
    is_flag=True,
    help="With --decode, for untrusted files: limit the time and the memory of the process that decodes.",
)
@options.part("With --decode, decode only the I-th of N parts of the images")
@click.option("--against", metavar="OTHER.json", multiple=True, type=FILE, help="Another split: find images in both.")
@click.option(
    "--near",
    is_flag=True,
    help="Compare pixels: find images that are the same but for size, format, a small crop, a flip or brightness.",
)
@options.group_key
@options.group_name
@options.size_option("Find boxes that are tiny at this training size, such as 300x300.")
@click.option("--clean", type=FILE, help="A JSON file to write, with entries repaired or left out.")
@click.option(
    "--drop-class",
    "drop_classes",
    metavar="CLASS",
    multiple=True,
    help="With --clean, a class without objects to leave out; may be given several times.",
)
@options.channels
@options.dtype
@options.maps
@click.option("--report", type=FILE, help="A JSON file for every finding.")
@click.option("--html", type=FILE, help="A page for a browser: counts, charts, an image of each finding.")
@click.option("-q", "--quiet", is_flag=True, help="Print only usage errors.")
def check(annotations: Path, images: Path, quiet: bool, html: Path | None, **more: Any) -> int:
    """Find what is wrong with a dataset.

    FILE.json is a COCO JSON file, IMAGES the folder that its file names are relative to. The exit code is 1 if training
    would stop or learn something wrong, 0 if there are at most warnings, 2 if FILE.json is not a COCO JSON file.

    \b
    detaug check train.json VOC2012/JPEGImages --decode --clean clean.json
    """
    from detaug.check.clean import NotCleaned
    from detaug.converters import check_coco
    from detaug.report import check_to_html

    with progress_bar("checking", quiet) as progress:
        if html is None:
            summary = check_coco(annotations, images, progress=progress, **more)
        else:
            summary = check_to_html(annotations, images, html, progress=progress, **more)
    print_unless(quiet, summary)
    if html is not None:
        print_unless(quiet, f"written: {html}")
    return int(summary.errors > 0 or isinstance(summary.cleaned, NotCleaned))


@click.command()
@options.json_argument
@options.images_argument
@click.option(
    "-o", "--output", type=FILE, required=True, help="The image to write: .png, .jpg or .webp; of clips also .gif."
)
@click.option("--preset", type=click.Choice(options.PRESETS), help="The recipe.  [default: ssd300]")
@click.option("--recipe", type=FILE, help="Your own recipe instead: a JSON or YAML file.")
@options.own_ops
@click.option(
    "--epoch", type=AT_LEAST_0, default=0, show_default=True, help="The epoch to show, of a recipe with stages."
)
@click.option("--rows", type=AT_LEAST_1, default=4, show_default=True, help="Images to show.")
@click.option("--columns", type=AT_LEAST_1, help="Samples of the recipe per image.  [default: 4]")
@click.option("--seed", type=AT_LEAST_0, default=0, show_default=True, help="Random seed of images and samples.")
@click.option(
    "--steps", is_flag=True, help="Show the image after each op, with what the op drew, instead of several draws."
)
@click.option(
    "--size",
    type=click.IntRange(min=16),
    default=300,
    show_default=True,
    help="The longer side of each image, in pixels.",
)
@options.channels
@options.dtype
@click.option(
    "--bands", metavar="A,B,C", callback=options.read_positions, help="The bands that are red, green, blue, or one."
)
@click.option("--frames", type=AT_LEAST_1, help="Show clips of this length in frames, of a JSON file with videos.")
@click.option("--stride", type=AT_LEAST_1, help="Take each STRIDE-th frame.  [default: 1]")
@click.option("--only", metavar="CLASS", help="Show only images with objects of this class.")
@click.option("--smallest", is_flag=True, help="Show the images with the smallest boxes.")
@click.option("--crowded", is_flag=True, help="Show the images with the most boxes.")
@click.option("--suspicious", is_flag=True, help="Show images with odd boxes: alike, thin, tiny, huge.")
@options.maps
@options.needs()
def preview(
    annotations: Path,
    images: Path,
    output: Path,
    frames: int | None,
    stride: int | None,
    rows: int,
    seed: int,
    **more: Any,
) -> None:
    """Draw images before and after augmentation.

    Each row has an image of FILE.json, a COCO JSON file, with its boxes, and several samples of the recipe; samples
    that are mostly fill are left out. Difficult objects are dashed. Without --smallest, --crowded or --suspicious the
    images are chosen at random, those without boxes last. With --channels, --dtype or --bands each image is a random
    image after the recipe, stretched from the 2nd to the 98th percentile. IMAGES is the folder that the JSON file's
    file names are relative to.

    \b
    detaug preview train.json VOC2012/JPEGImages -o sheet.png --preset ssd300
    """
    chosen = [name for name in ("smallest", "crowded", "suspicious") if more.pop(name)]
    if len(chosen) > 1:
        raise click.UsageError(f"--{chosen[0]} and --{chosen[1]} show different images: give one of them")
    more["how"] = chosen[0] if chosen else None
    if stride and frames is None:
        options.refuse("stride", "clips: give --frames, too")
    options.say_working("loading torch and DALI, and drawing")
    from detaug.sheets import preview_bands, preview_clips, preview_file

    bands = {name: more.pop(name) for name in ("channels", "dtype", "bands")}
    if bands != {"channels": 3, "dtype": "uint8", "bands": ()}:
        kept = {name: more.pop(name) for name in ("recipe", "ops", "epoch", "columns", "size", "maps")}
        _refuse_with("--channels", more | {"frames": frames})
        options.echo(preview_bands(annotations, images, output, rows=rows, seed=seed, **bands, **kept))
        return
    if frames is None:
        options.echo(preview_file(annotations, images, output, rows=rows, seed=seed, **more))
        return
    kept = {name: more.pop(name) for name in ("preset", "recipe", "ops", "epoch", "size")}
    _refuse_with("--frames", more)
    options.echo(
        preview_clips(annotations, images, output, frames=frames, stride=stride or 1, rows=rows, seed=seed, **kept)
    )


def _refuse_with(option: str, more: Mapping[str, Any]) -> None:
    """Raise an error for options that choose images or draws."""
    names = {"how": more.get("how"), "maps": "map"}
    options_given = [f"--{names.get(name, name)}" for name, value in more.items() if value]
    if options_given:
        raise click.UsageError(f"{options_given[0]} is for {_FOR[option]}: leave it out, or {option}")


_FOR = {"--frames": "images", "--channels": "8-bit RGB"}


@click.command()
@click.option("--out", type=FOLDER, default="demo", show_default=True, help="The folder to make.")
@options.device
@click.option("--seed", type=AT_LEAST_0, default=0, show_default=True, help="Random seed of images and draws.")
@options.needs()
def demo(device: str | None, **more: Any) -> None:
    """Run every step on a small drawn dataset.

    Draws a Pascal VOC dataset, converts and checks it, times the loader, and trains a small detector on it. Leaves a
    folder with the dataset, its train.json and sheet.png; masks, people with keypoints and ships with rotated boxes
    (masks.json, people.json, ships.json, shapes.png); two short videos with clips.json; and prediction.png. Prints
    Python code to continue with.

    \b
    detaug demo --out demo
    """
    from detaug.demo.demo import demo as run_demo

    options.keep_freed_memory_on_cpu(device)
    run_demo(**more, device=device, say=options.echo)
