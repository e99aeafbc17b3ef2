"""Contact sheets: rows of images with their boxes, resized to one size, with headings and captions."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any, NamedTuple

from PIL import Image

from detaug.converters.findings.errors import InputError
from detaug.drawing.boxes import draw_boxes, hatch, resize
from detaug.drawing.images import to_image, to_images
from detaug.drawing.page import lay_out
from detaug.drawing.rectangles import as_boxes

NOTEBOOK_IMAGES = 8


class Tile(NamedTuple):
    """One image of a sheet, with what to draw on it.

    image: PIL image, or an array or tensor that `to_image` takes.
    boxes: (M, 4) XYXY pixels of `image`; names: M class names; difficult: M flags, drawn dashed.
    hatched: (R, 4) XYXY pixels, areas that are padding or are ignored. caption: text below the image; lines are
        broken at "\\n" and where they are too long, six lines at most.
    """

    image: Any
    boxes: Any = ()
    names: Sequence[str] = ()
    difficult: Sequence[bool] | None = None
    hatched: Any = ()
    caption: str = ""


def make_sheet(
    rows: Sequence[Sequence[Tile | Image.Image]],
    *,
    title: str = "",
    columns: Sequence[str] = (),
    cell: tuple[int, int] = (300, 360),
) -> Image.Image:
    """Lay out rows of images, each resized to fit `cell`, (H, W) pixels, before its boxes are drawn.

    The first column, the source, stands a little apart from the others. Rows may differ in length
    and images in size. title: a line at the top. columns: a heading for each column.
    Raises InputError where there is no image at all.

    >>> make_sheet([[Tile(Image.new("RGB", (64, 48)), [[8, 8, 40, 30]], ["cat"], caption="one")]]).mode
    'RGB'
    """
    if not any(rows):
        raise InputError("rows must hold at least one image, got none; pass [[image, ...], ...]")
    pictures = [[_render(tile, cell) for tile in row] for row in rows]
    captions = [[tile.caption if isinstance(tile, Tile) else "" for tile in row] for row in rows]
    return lay_out(pictures, captions, title, columns)


def notebook_png(
    images: Sequence[Any], boxes: Sequence[Any], labels: Sequence[Sequence[int]], sizes: Sequence[Any] | None = None
) -> bytes:
    """Return a PNG of bounded size: the first 8 images, PIL or arrays as a loader yields them, with their boxes.

    labels: N lists of M numbers, written as numbers. sizes: N (H, W) of the images without padding, which is hatched.
    """
    pictures, note = to_images(images[:NOTEBOOK_IMAGES])
    each = zip(pictures, boxes, labels, sizes if sizes is not None else [None] * len(images), strict=False)
    tiles = [
        Tile(image, xyxy, [str(label) for label in numbers], hatched=padding(image, size))
        for image, xyxy, numbers, size in each
    ]
    rest = f"{len(images):,} images, the first {len(tiles)}" if len(images) > len(tiles) else ""
    sheet = make_sheet(in_rows(tiles, 4), title=", ".join(filter(None, (rest, note))), cell=(240, 240))
    encoded = io.BytesIO()
    sheet.save(encoded, "PNG")
    return encoded.getvalue()


def in_rows(tiles: Sequence[Tile], columns: int) -> list[Sequence[Tile]]:
    """Break a list of tiles into rows of `columns`."""
    return [tiles[start : start + columns] for start in range(0, len(tiles), columns)]


def padding(image: Image.Image, size: Any) -> list[tuple[int, int, int, int]]:
    """Return the areas, XYXY, right of and below `size`, (H, W) pixels; none for None."""
    height, width = (image.height, image.width) if size is None else map(int, size)
    strips = [(width, 0, image.width, image.height), (0, height, width, image.height)]
    return [(x1, y1, x2, y2) for x1, y1, x2, y2 in strips if x1 < x2 and y1 < y2]


def _render(tile: Tile | Image.Image, cell: tuple[int, int]) -> Image.Image:
    """Draw a tile, resized to fit (H, W) `cell`, with its hatching and boxes."""
    tile = tile if isinstance(tile, Tile) else Tile(tile)
    picture = to_image(tile.image)
    factor = min(cell[0] / picture.height, cell[1] / picture.width)
    size = (max(1, round(picture.height * factor)), max(1, round(picture.width * factor)))
    canvas, factors = resize(picture, size)
    canvas = hatch(canvas, as_boxes(tile.hatched, "hatched") * factors)
    return draw_boxes(canvas, as_boxes(tile.boxes, "boxes") * factors, tile.names, difficult=tile.difficult)
