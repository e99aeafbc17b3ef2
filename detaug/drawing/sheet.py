"""Contact sheets: rows of images with their boxes, resized to one size, with headings and captions."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from PIL import Image

from detaug.drawing.boxes import draw_boxes, hatch, resize, usual_text_height
from detaug.drawing.colors import PALETTE, Color, class_colors
from detaug.drawing.images import to_image, to_images
from detaug.drawing.labels import Boxes, as_boxes, share_of_labels
from detaug.drawing.maps import MapMarks, depth_legend, draw_map
from detaug.drawing.masks import draw_masks
from detaug.drawing.page import lay_out
from detaug.drawing.points import Marks, draw_key_points
from detaug.errors import InputError

NOTEBOOK_IMAGES = 8
SMALL = 160  # pixels, the longer side of an image that has no room for labels
CROWD = 6  # boxes; fewer have room for their labels
MOST_LABELS = 0.15  # fraction of the room around boxes that labels may cover


class Tile(NamedTuple):
    """One image of a sheet, with what to draw on it.

    image: PIL image, or an array or tensor that `to_image` takes.
    boxes: (M, 4) XYXY pixels of `image`; names: M class names; difficult: M flags, drawn dashed.
    hatched: (R, 4) XYXY pixels, areas that are padding or are ignored. caption: text below the image; lines are
        broken at "\\n" and where they are too long, six lines at most. scores: M numbers in 0..1, for predictions,
        written beside the names. marks: masks, keypoints, and rotated boxes, which are drawn instead of boxes.
    map: of classes or depths, below all of these.
    """

    image: Any
    boxes: Any = ()
    names: Sequence[str] = ()
    difficult: Sequence[bool] | None = None
    hatched: Any = ()
    caption: str = ""
    scores: Sequence[float] | None = None
    marks: Marks | None = None
    map: MapMarks | None = None


def make_sheet(
    rows: Sequence[Sequence[Tile | Image.Image]],
    *,
    title: str = "",
    columns: Sequence[str] = (),
    cell: tuple[int, int] = (300, 360),
    class_names: Sequence[str] = (),
) -> Image.Image:
    """Lay out rows of images, each resized to fit `cell`, (H, W) pixels, before its boxes are drawn.

    The first column, the source, stands a little apart from the others. Rows may differ in length
    and images in size. title: a line at the top. columns: a heading for each column. class_names: all classes of the
    dataset, so that they have the same colors in all its sheets.

    Classes have different colors while there are enough (`class_colors`). In a small image, or one that labels would
    fill, a legend at the top, of all classes of the sheet, names them instead.
    Raises InputError where there is no image at all.

    >>> make_sheet([[Tile(Image.new("RGB", (64, 48)), [[8, 8, 40, 30]], ["cat"], caption="one")]]).mode
    'RGB'
    """
    if not any(rows):
        raise InputError("rows must hold at least one image, got none; pass [[image, ...], ...]")
    lines = [[tile if isinstance(tile, Tile) else Tile(tile) for tile in row] for row in rows]
    maps = [tile.map for line in lines for tile in line if tile.map is not None]
    of_maps = {name for marks in maps for name in marks.class_names()}
    shown = {name for line in lines for tile in line for name in tile.names} | of_maps
    every = shown.union(class_names)
    colors = class_colors(every if len(every) <= len(PALETTE) else shown)
    drawn = [[_render(tile, cell, colors) for tile in line] for line in lines]
    names = [name for name in dict.fromkeys([*class_names, *sorted(shown)]) if name and name in shown]
    has_legend = any(item.by_legend for line in drawn for item in line)
    legend = [(name, colors[name]) for name in names if has_legend or name in of_maps]
    legend += [
        entry
        for limits in dict.fromkeys(own.limits for own in maps if own.names is None)
        for entry in depth_legend(limits)
    ]
    images = [[item.image for item in line] for line in drawn]
    captions = [[tile.caption for tile in line] for line in lines]
    return lay_out(images, captions, title, columns, legend)


def notebook_png(
    images: Sequence[Any],
    boxes: Sequence[Any],
    labels: Sequence[Sequence[int]],
    sizes: Sequence[Any] | None = None,
    marks: Sequence[Marks | None] | None = None,
) -> bytes:
    """Return a PNG of bounded size: the first 8 images, PIL or arrays as a loader yields them, with their boxes.

    labels: N lists of M numbers, written as numbers. sizes: N (H, W) of the images without padding, which is hatched.
    marks: N, of the masks, keypoints and rotated boxes.
    """
    shown, note = to_images(images[:NOTEBOOK_IMAGES])
    nothing = [None] * len(images)
    per_image = zip(shown, boxes, labels, sizes or nothing, marks or nothing, strict=False)
    tiles = [
        Tile(image, xyxy, [str(label) for label in numbers], hatched=padding(image, size), marks=own)
        for image, xyxy, numbers, size, own in per_image
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


class _Drawn(NamedTuple):
    """The image of a tile, and whether a legend must name its classes, since the image does not."""

    image: Image.Image
    by_legend: bool


def _render(tile: Tile, cell: tuple[int, int], colors: Mapping[str, Color]) -> _Drawn:
    """Draw a tile, resized to fit (H, W) `cell`, with its hatching and boxes."""
    image = to_image(tile.image, layout="HWC")
    factor = min(cell[0] / image.height, cell[1] / image.width)
    size = (max(1, round(image.height * factor)), max(1, round(image.width * factor)))
    canvas, factors = resize(image, size)
    if tile.map is not None:
        canvas = draw_map(canvas, tile.map, colors)
    canvas = hatch(canvas, as_boxes(tile.hatched, "hatched") * factors)
    boxes = as_boxes(tile.boxes, "boxes") * factors
    by_legend = _needs_legend(boxes, tile.names, canvas.size, colors)
    labels = _labels(tile, by_legend=by_legend)
    marks = Marks() if tile.marks is None else tile.marks.scaled(factors[:2])
    if marks.masks is not None:
        canvas = draw_masks(canvas, marks.masks, [colors[name] for name in tile.names])
    if marks.keypoints is not None:
        canvas = draw_key_points(canvas, marks)
    drawn = draw_boxes(
        canvas, boxes, tile.names, difficult=tile.difficult, labels=labels, colors=colors, corners=marks.corners
    )
    return _Drawn(drawn, by_legend)


def _needs_legend(boxes: Boxes, names: Sequence[str], size: tuple[int, int], colors: Mapping[str, Color]) -> bool:
    """Return whether labels give way to a legend: they would hide the objects, and colors tell the classes apart."""
    if not any(names) or len(set(colors.values())) < len(colors):
        return False
    if max(size) < SMALL:
        return True
    return len(names) >= CROWD and share_of_labels(boxes, names, size, usual_text_height(size)) > MOST_LABELS


def _labels(tile: Tile, *, by_legend: bool) -> list[str]:
    """Return the text at each box: its name unless there is a legend, and its score if it has one."""
    names = [""] * len(tile.names) if by_legend else list(tile.names)
    if tile.scores is None:
        return names
    return [f"{name} {score:.2f}".strip() for name, score in zip(names, tile.scores, strict=True)]
