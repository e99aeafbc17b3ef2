"""The commands that convert shards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from detaug.cli import options
from detaug.cli.options import AT_LEAST_1, FOLDER, Command, print_converted

shards_argument = click.argument("shards", metavar="SHARD...", type=options.FILE, nargs=-1, required=True)
extract = click.option(
    "--extract", type=FOLDER, metavar="DIR", help="Write the images to DIR; the json then names these files."
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


def _feature_names(_: click.Context, __: click.Parameter, given: tuple[str, ...]) -> dict[str, str]:
    pairs = [text.partition("=") for text in given]
    for key, equals, name in pairs:
        if not (key and equals and name):
            raise click.BadParameter(f"must be KEY=NAME, such as image=jpeg, got {key + equals + name!r}")
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
def convert_tfrecord(**given: Any) -> None:
    """Convert TFRecord shards to COCO json.

    The records are tf.train.Example with the features of TensorFlow's Object Detection API, or image/class/label.
    Nothing is unpacked: the json has the position and the checksum of each image, and training reads it from there.
    All checksums of the records are verified. Needs pip install 'detaug[shards]'.

    \b
    detaug convert-tfrecord train-*.tfrecord -o train.json
    """
    from detaug.converters import tfrecord_to_coco

    print_converted(tfrecord_to_coco, "reading", **given)


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
def convert_webdataset(**given: Any) -> None:
    """Convert WebDataset shards to COCO json.

    The shards are tar files, not compressed. A sample is an image and, of the same key, .json with "annotations", .txt
    with YOLO's rows, or .cls with a class. Nothing is unpacked: the json has the position and the checksum of each
    image, and training reads it from there. Needs pip install 'detaug[shards]'.

    \b
    detaug convert-webdataset train-*.tar -o train.json
    """
    from detaug.converters import webdataset_to_coco

    print_converted(webdataset_to_coco, "reading", **given)
