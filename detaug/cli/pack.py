"""The command that packs images into shards."""

from __future__ import annotations

from typing import Any

import click

from detaug.cli import options
from detaug.cli.options import print_converted


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
@options.report
@options.quiet
def pack(**given: Any) -> None:
    """Pack a COCO json and its images into shards.

    Writes NAME-00000.tar or .tfrecord, ..., with NAME from FILE.json, into DIR; beside each the index for DALI's
    readers, NAME-00000.idx; and NAME.json, which says for each image in which shard it lies, where, and its checksum.
    IMAGES is the folder that the json's file names are relative to. No file is replaced by other content. Needs pip
    install 'detaug[shards]'.

    \b
    detaug pack train.json VOC2012/JPEGImages -o shards
    """
    from detaug.converters import pack_coco

    print_converted(pack_coco, "packing", **given)
