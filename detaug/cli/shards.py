"""The commands that convert shards, and pack images into them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from detaug.cli import options
from detaug.cli.options import AT_LEAST_1, FOLDER, Command, print_converted

shards_argument = click.argument("shards", metavar="SHARD...", type=options.FILE, nargs=-1, required=True)
extract = click.option(
    "--extract", type=FOLDER, metavar="DIR", help="Write the images to DIR; the JSON file then names these files."
)
classes = options.classes(".  [default: those in the shards]")
jobs = click.option(
    "--jobs", type=AT_LEAST_1, help="Processes to read with.  [default: one for each core; one for small shards]"
)


def first_label(default: int) -> Callable[[Command], Command]:
    """Return the option --first-label."""
    return click.option(
        "--first-label",
        type=click.IntRange(0, 1),
        default=default,
        show_default=True,
        help="The number of the first class in the shards; it gets the category id 1.",
    )


def _feature_names(_: click.Context, __: click.Parameter, texts: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for key, equals, name in pairs:
        if not (key and equals and name):
            raise click.BadParameter(f"must be KEY=NAME, such as image=jpeg, got {key + equals + name!r}")
    options.check_once([key for key, *_ in pairs], "KEY")
    return {key: name for key, _, name in pairs}


@click.command()
@shards_argument
@options.output_json
@extract
@click.option(
    "--feature",
    "features",
    metavar="KEY=NAME",
    multiple=True,
    callback=_feature_names,
    help="Another name for a feature: image, filename, source_id, width, height, xmin, ymin, xmax, ymax, label, text, "
    "difficult, truncated, is_crowd, area, class_label, class_text. May be given several times.",
)
@classes
@first_label(1)
@options.on_error
@jobs
@options.report
@options.quiet
def convert_tfrecord(**arguments: Any) -> None:
    """Convert TFRecord shards to COCO JSON.

    The records are tf.train.Example with the features of TensorFlow's Object Detection API, or image/class/label.
    Nothing is unpacked: the JSON file has the position and the checksum of each image, and training reads it from
    there. All checksums of the records are verified. Needs pip install 'detaug[shards]'.

    \b
    detaug convert-tfrecord train-*.tfrecord -o train.json
    """
    from detaug.converters import tfrecord_to_coco

    print_converted(tfrecord_to_coco, "reading", **arguments)


@click.command()
@shards_argument
@options.output_json
@extract
@classes
@first_label(0)
@options.on_error
@jobs
@options.report
@options.quiet
def convert_webdataset(**arguments: Any) -> None:
    """Convert WebDataset shards to COCO JSON.

    The shards are tar files, not compressed. A sample is an image and, of the same key, .json with "annotations", .txt
    with YOLO's rows, or .cls with a class. Nothing is unpacked: the JSON file has the position and the checksum of each
    image, and training reads it from there. Needs pip install 'detaug[shards]'.

    \b
    detaug convert-webdataset train-*.tar -o train.json
    """
    from detaug.converters import webdataset_to_coco

    print_converted(webdataset_to_coco, "reading", **arguments)


@click.command()
@options.json_argument
@options.images_argument
@click.option("-o", "--output", metavar="DIR", type=options.FOLDER, required=True, help="The folder of the shards.")
@click.option(
    "--format",
    type=click.Choice(["webdataset", "tfrecord"]),
    default="webdataset",
    show_default=True,
    help="tar files as webdataset reads them, or TFRecord with TensorFlow's object-detection features.",
)
@click.option(
    "--shard-size",
    metavar="SIZE",
    default="256MB",
    show_default=True,
    help="The most bytes of a shard: 256MB, 1GB, 64MiB or a number.",
)
@options.on_error
@options.part("Only each N-th shard, from the I-th; detaug merge joins the JSON files")
@options.report
@options.quiet
def pack(**arguments: Any) -> None:
    """Pack a dataset into WebDataset or TFRecord.

    Writes NAME-00000.tar or .tfrecord, ..., with NAME from FILE.json, into DIR; beside each the index for DALI's
    readers, NAME-00000.idx; and NAME.json, which says for each image in which shard it lies, where, and its checksum.
    IMAGES is the folder that the JSON file's file names are relative to. No file is replaced by other content. Needs
    pip install 'detaug[shards]'.

    \b
    detaug pack train.json VOC2012/JPEGImages -o shards
    """
    from detaug.converters import pack_coco

    print_converted(pack_coco, "packing", **arguments)
