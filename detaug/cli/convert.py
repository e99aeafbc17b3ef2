"""The commands that convert annotations: parse, call one function of the library, print."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

FOLDER = click.Path(file_okay=False, path_type=Path)
FILE = click.Path(dir_okay=False, path_type=Path)


@contextmanager
def progress_bar(label: str, quiet: bool) -> Iterator[Callable[[int, int], None] | None]:
    """A progress bar on stderr, as a function (done, total); None where stderr is not a terminal."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    with click.progressbar(length=1, label=label, file=sys.stderr) as bar:

        def show(done: int, total: int) -> None:
            bar.length = total
            bar.update(done - bar.pos)

        yield show


@click.command()
@click.argument("root", type=FOLDER)
@click.option("-o", "--output", type=FILE, required=True, help="The COCO json file to write.")
@click.option("--split", metavar="NAME", help="Only the images of ROOT/ImageSets/Main/NAME.txt, in its order.")
@click.option(
    "--classes",
    metavar="a,b,c|FILE",
    help="Class names in the order of their ids, or a file, one a line; others are dropped.  [default: all]",
)
@click.option(
    "--origin",
    type=click.Choice(["one", "zero"]),
    default="one",
    show_default=True,
    help="Pixels count from 1 and boxes include the last (VOC), or from 0 and they exclude it.",
)
@click.option(
    "--difficult",
    type=click.Choice(["keep", "crowd", "drop"]),
    default="keep",
    show_default=True,
    help="Objects marked difficult: keep the mark, write iscrowd 1 as well, or leave them out.",
)
@click.option(
    "--unlabelled",
    type=click.Choice(["keep", "skip"]),
    default="keep",
    show_default=True,
    help="Images without XML: keep them as images without boxes, or leave them out.",
)
@click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="Files that cannot be used: list them all and stop, or leave them out.",
)
@click.option("--images", type=FOLDER, help="The folder of the images.  [default: ROOT/JPEGImages, else ROOT]")
@click.option("--annotations", type=FOLDER, help="The folder of the XML.  [default: ROOT/Annotations, else ROOT]")
@click.option("--jobs", type=click.IntRange(min=1), default=1, show_default=True, help="Processes to read with.")
@click.option("--report", type=FILE, help="A json file for everything repaired, dropped or refused.")
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
def convert_voc(root: Path, output: Path, classes: str | None, quiet: bool, **options: Any) -> None:
    """Convert a Pascal VOC data set to COCO json.

    ROOT holds Annotations, JPEGImages and ImageSets, or images beside their XML, subfolders included.

    \b
    detaug convert-voc VOC2012 -o train.json --split train
    """
    from detaug.converters import read_class_names, voc_to_coco

    class_names = None if classes is None else read_class_names(classes)
    with progress_bar("reading", quiet) as progress:
        summary = voc_to_coco(root, output, classes=class_names, progress=progress, **options)
    if not quiet:
        click.echo(str(summary))


_on_error = click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="What cannot be used: list all of it and stop, or leave it out.",
)
_with_images = click.option(
    "--with-images",
    type=click.Choice(["none", "copy", "link"]),
    default="none",
    show_default=True,
    help="Leave the images where they are, copy them into OUT_FOLDER, or make symbolic links there.",
)
_image_folder = click.option("--images", type=FOLDER, help="The folder that the json's file names are relative to.")
_report = click.option("--report", type=FILE, help="A json file for everything repaired, dropped or refused.")
_quiet = click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")


@click.command()
@click.argument("annotations", metavar="FILE.json", type=FILE)
@click.argument("output", metavar="OUT_FOLDER", type=FOLDER)
@click.option("--split", metavar="NAME", help="The split to write: ImageSets/Main/NAME.txt.  [default: FILE]")
@click.option(
    "--origin",
    type=click.Choice(["one", "zero"]),
    default="one",
    show_default=True,
    help="Count pixels from 1 and include a box's last (VOC), or from 0 and exclude it.",
)
@_image_folder
@_with_images
@_on_error
@_report
@_quiet
def convert_coco_to_voc(annotations: Path, output: Path, quiet: bool, **options: Any) -> None:
    """Convert a COCO json to Pascal VOC.

    Writes Annotations, ImageSets/Main/NAME.txt and classes.txt into OUT_FOLDER, which may hold other splits
    already: no file is ever replaced by other content. convert-voc with that split and those classes gives
    the same boxes, ids and names again.

    \b
    detaug convert-coco-to-voc train.json VOC --images photos --with-images link
    """
    from detaug.converters import coco_to_voc

    with progress_bar("writing", quiet) as progress:
        summary = coco_to_voc(annotations, output, progress=progress, **options)
    if not quiet:
        click.echo(str(summary))


@click.command()
@click.argument("data", metavar="ROOT|data.yaml", type=click.Path(path_type=Path))
@click.option("-o", "--output", type=FILE, required=True, help="The COCO json file to write.")
@click.option("--split", metavar="NAME", default="train", show_default=True, help="train, val or test of data.yaml.")
@_on_error
@_report
@_quiet
def convert_yolo(data: Path, output: Path, quiet: bool, **options: Any) -> None:
    """Convert YOLO labels to COCO json.

    ROOT holds a data.yaml in Ultralytics' layout: path, train, val, test and names. Rows of labels are
    "class cx cy w h"; a polygon becomes the smallest box that holds it.

    \b
    detaug convert-yolo coco8/data.yaml -o val.json --split val
    """
    from detaug.converters import yolo_to_coco

    with progress_bar("reading", quiet) as progress:
        summary = yolo_to_coco(data, output, progress=progress, **options)
    if not quiet:
        click.echo(str(summary))


@click.command()
@click.argument("annotations", metavar="FILE.json", type=FILE)
@click.argument("output", metavar="OUT_FOLDER", type=FOLDER)
@click.option(
    "--split",
    type=click.Choice(["train", "val", "test"]),
    default="train",
    show_default=True,
    help="The split of data.yaml to write.",
)
@_image_folder
@_with_images
@_on_error
@_report
@_quiet
def convert_coco_to_yolo(annotations: Path, output: Path, quiet: bool, **options: Any) -> None:
    """Convert a COCO json to YOLO labels.

    Writes labels/SPLIT and data.yaml into OUT_FOLDER, in Ultralytics' layout. A data.yaml that an earlier run
    made gets the split added; no other file is ever replaced by other content.

    \b
    detaug convert-coco-to-yolo train.json yolo --images photos --with-images link
    """
    from detaug.converters import coco_to_yolo

    with progress_bar("writing", quiet) as progress:
        summary = coco_to_yolo(annotations, output, progress=progress, **options)
    if not quiet:
        click.echo(str(summary))


@click.command()
@click.argument("annotations", metavar="A.json B.json ...", type=FILE, nargs=-1, required=True)
@click.option("-o", "--output", type=FILE, required=True, help="The COCO json file to write.")
@click.option(
    "--images",
    type=FOLDER,
    multiple=True,
    help="The folder of a file's images, once for each file in their order.  [default: one folder for all]",
)
@click.option("--join", is_flag=True, help="Put the boxes of an image that is in several files together.")
@_on_error
@_report
@_quiet
def merge(annotations: tuple[Path, ...], output: Path, quiet: bool, **options: Any) -> None:
    """Merge COCO json files into one.

    Ids are given anew and classes are joined by name. With --images for each file, the merged file names are
    relative to the deepest folder that holds all of them; without, they stay as they are.

    \b
    detaug merge 2007.json 2012.json -o both.json --images VOC2007/JPEGImages --images VOC2012/JPEGImages
    """
    from detaug.converters import merge_coco

    summary = merge_coco(annotations, output, **options)
    if not quiet:
        click.echo(str(summary))
