"""The command that cuts large source images into tiles."""

from __future__ import annotations

from typing import Any

import click

from detaug.cli import options
from detaug.cli.options import AT_LEAST_0, AT_LEAST_1, print_converted

_SHARE = click.FloatRange(0, 1)


class _Quality(click.IntRange):
    def convert(self, value: Any, *arguments: Any) -> Any:
        return value if value == "keep" else super().convert(value, *arguments)


@click.command()
@options.json_argument
@options.images_argument
@click.option("-o", "--output", metavar="DIR", type=options.FOLDER, required=True, help="The folder to make.")
@click.option("--size", type=AT_LEAST_1, default=1024, show_default=True, help="The side of a tile in pixels.")
@click.option(
    "--overlap",
    type=click.FloatRange(0, 1, max_open=True),
    default=0.2,
    show_default=True,
    help="The fraction of a side that neighbors have in common. Objects smaller than that are whole in some tile.",
)
@click.option(
    "--min-visibility",
    type=_SHARE,
    default=0.1,
    show_default=True,
    help="Leave out an object where a tile shows less than this fraction of its area.",
)
@click.option(
    "--empty", type=_SHARE, default=1.0, show_default=True, help="The fraction of the tiles without objects to keep."
)
@click.option(
    "--whole",
    type=AT_LEAST_1,
    help="Also write each source image as a whole, its longer side scaled to this length in pixels.",
)
@click.option(
    "--format",
    type=click.Choice(["png", "jpeg", "tiff", "npy"]),
    help="PNG, the default, keeps each pixel, and takes several times the space of JPEG. TIFF, the default with "
    "--channels or --dtype, and npy keep all bands and types.",
)
@click.option(
    "--quality",
    type=_Quality(1, 100),
    metavar="1..100|keep",
    help="Of --format jpeg; keep cuts JPEGs without loss, at multiples of 16 pixels: pip install 'detaug[lossless]'.  "
    "[default: 95]",
)
@options.channels
@options.dtype
@click.option("--seed", type=AT_LEAST_0, default=0, show_default=True, help="Random seed of --empty.")
@options.part("Only the tiles of the I-th of N parts of the source images; detaug merge joins the JSON files")
@options.quiet
@options.needs("torch", "numba")
def tile(**arguments: Any) -> None:
    """Cut large images into tiles (slicing, SAHI).

    Writes the tiles to DIR/images, and a JSON file with the name of FILE.json to DIR: each tile has the key tile_of,
    the id and file name of its source image, and window, its place there. Boxes, polygons, masks, keypoints and rotated
    boxes are cut with the source images. The last tiles of rows and columns are moved inwards; a source image smaller
    than a tile is copied. IMAGES is the folder that the JSON file's file names are relative to.

    \b
    detaug tile train.json photos -o tiles --size 1024 --overlap 0.2
    """
    from detaug.tiles.write import tile_coco

    print_converted(tile_coco, "cutting", **arguments)
