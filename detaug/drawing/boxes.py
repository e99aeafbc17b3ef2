"""Draw boxes on images and lay the images out on a sheet, to be looked at.

Boxes are (M, 4) XYXY in pixels, in continuous coordinates: 0, 0, W, H covers the whole image, and the outline
of a box is painted inside it, so that its outermost painted pixels are the outermost pixels of the box. Names
may be of any script; a letter for which the system has no font is written as its code point, `U+732B`.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import Image, ImageDraw

from detaug.drawing.labels import Boxes, Color, areas, paint_labels, snap
from detaug.drawing.page import lay_out

__all__ = [
    "Tile",
    "class_color",
    "draw_boxes",
    "hatch",
    "in_some_colors",
    "notebook_png",
    "padding",
    "sheet",
    "to_image",
]


# 24 colours, every two at least 0.05 apart in OKLab (0.02 is just noticeable) to normal sight and to those
# with deuteranopia, protanopia or tritanopia (Machado et al. 2009), and all light enough for black text.
PALETTE: tuple[Color, ...] = (
    (119, 204, 255), (102, 136, 17), (238, 255, 0), (204, 68, 255), (153, 204, 119), (170, 255, 238),
    (187, 136, 170), (102, 170, 255), (119, 238, 119), (221, 102, 119), (170, 221, 187), (204, 153, 0),
    (102, 119, 204), (0, 153, 102), (238, 153, 204), (204, 255, 170), (51, 238, 255), (204, 187, 0),
    (170, 102, 153), (238, 119, 221), (255, 17, 51), (255, 204, 34), (238, 0, 204), (119, 187, 136),
)  # fmt: skip
# With this salt the 20 classes of Pascal VOC get 20 different colours (and so do those of `detaug demo`).
SALT = b"315485"

SHADE = (0, 0, 0, 150)  # RGBA, beside outlines


class Tile(NamedTuple):
    """One image of a sheet, with what is to be drawn on it.

    image: PIL image, or an array or tensor that `to_image` takes.
    boxes: (M, 4) XYXY pixels of `image`; names: M class names; difficult: M flags, drawn dashed.
    hatched: (R, 4) XYXY pixels, areas that are padded or dropped. caption: text below the image, in
        lines where it has "\\n" or is too long for one, six at most.
    """

    image: Any
    boxes: Any = ()
    names: Sequence[str] = ()
    difficult: Sequence[bool] | None = None
    hatched: Any = ()
    caption: str = ""


# ---------------------------------------------------------------- public functions


def class_color(name: str) -> Color:
    """The colour of a class, (R, G, B) in 0..255: the same for a name in every image, data set and run.

    There are 24 colours, told apart in the common forms of colour blindness as well. Names are hashed, so
    that two classes may share one; the 20 of Pascal VOC do not.

    >>> class_color("dog") == class_color("dog") != class_color("cat")
    True
    """
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=4, salt=SALT).digest()
    return PALETTE[int.from_bytes(digest, "big") % len(PALETTE)]


def to_image(
    pixels: Any,
    *,
    mean: Sequence[float] | float | None = None,
    std: Sequence[float] | float | None = None,
    white: float = 1.0,
    layout: str | None = None,
) -> Image.Image:
    """One image of any kind as an RGB PIL image, always a new one.

    pixels: PIL image, or array or tensor (on any device) of (H, W), (H, W, C) or (C, H, W), C being 1 or 3;
        uint8, or float, in which `white` is white.
    mean, std: what `Normalize` was given, to be undone here: one number or one a channel.
    layout: "HWC" or "CHW", for when the shape fits both; without it, (3, H, 3) is read as CHW.
    Raises ValueError for another shape or type, and for floats so far outside [0, white] that mean, std or
    white was forgotten.

    >>> to_image(np.zeros((3, 20, 30), np.float32)).size
    (30, 20)
    """
    if isinstance(pixels, Image.Image):
        return pixels.convert("RGB")
    array = _channels_last(_as_array(pixels), layout)
    if array.dtype != np.uint8:
        array = _to_uint8(array.astype(np.float64), mean, std, white)
    return Image.fromarray(np.ascontiguousarray(np.broadcast_to(array, (*array.shape[:2], 3))))


def draw_boxes(
    image: Any,
    boxes: Any,
    names: Sequence[str],
    *,
    difficult: Sequence[bool] | None = None,
    size: tuple[int, int] | None = None,
) -> Image.Image:
    """A copy of `image` with its boxes outlined and named; difficult objects are dashed.

    image: what `to_image` takes.
    boxes: (M, 4) XYXY pixels of `image`. names: M class names, "" for no label. difficult: M flags.
    size: (H, W) pixels to which the image is resized before anything is drawn, so that lines and text are
        sharp on a small image too.
    In a crowd, labels are left out that would hide other objects, first those whose colour has been named.
    Boxes may reach over the border (those edges are not seen) and may be reversed; one that is wholly outside
    or not finite is not drawn. Raises ValueError where boxes, names and difficult are not equally many.

    >>> draw_boxes(Image.new("RGB", (64, 48)), [[8, 8, 40, 30]], ["cat"], size=(480, 640)).size
    (640, 480)
    """
    picture = to_image(image)
    xyxy = _check_boxes(boxes, "boxes")
    flags = _check_lengths(xyxy, names, difficult)
    canvas, scale = _resized(picture, size)
    _paint_boxes(canvas, xyxy * scale, names, flags)
    return canvas


def hatch(image: Any, regions: Any) -> Image.Image:
    """A copy of `image` with `regions`, (R, 4) XYXY pixels, hatched: areas that are padded, or were dropped.

    >>> hatch(Image.new("RGB", (64, 48)), [[0, 0, 16, 48]]).size
    (64, 48)
    """
    picture = to_image(image)
    mask = Image.new("L", picture.size)
    for box in _visible(_check_boxes(regions, "regions"), picture.size):
        mask.paste(255, (0, 0, 0, 0) if np.isnan(box).any() else snap(box))
    picture.paste(_stripes(picture.size), mask=mask.point(lambda m: m * 0.55))
    return picture


def sheet(
    rows: Sequence[Sequence[Tile | Image.Image]],
    *,
    title: str = "",
    columns: Sequence[str] = (),
    cell: tuple[int, int] = (300, 360),
) -> Image.Image:
    """A contact sheet: rows of images, each resized to fit `cell`, (H, W) pixels, before its boxes are drawn.

    The first column, the source, stands a little apart from the draws to its right. Rows may differ in length
    and images in size. title: a line at the top. columns: a heading for each column.
    Raises ValueError where there is no image at all.

    >>> sheet([[Tile(Image.new("RGB", (64, 48)), [[8, 8, 40, 30]], ["cat"], caption="one")]]).mode
    'RGB'
    """
    if not any(rows):
        raise ValueError("rows must hold at least one image, got none; pass [[image, ...], ...]")
    pictures = [[_render(tile, cell) for tile in row] for row in rows]
    captions = [[tile.caption if isinstance(tile, Tile) else "" for tile in row] for row in rows]
    return lay_out(pictures, captions, title, columns)


NOTEBOOK_IMAGES = 8
SLACK = 1e-3
LARGEST_NORMALIZED = 8.0  # ImageNet's mean and std make 2.64 of white; 0..255 has more in all but black images


def notebook_png(
    images: Sequence[Any], boxes: Sequence[Any], labels: Sequence[Sequence[int]], sizes: Sequence[Any] | None = None
) -> bytes:
    """The first 8 images, PIL or arrays as a loader yields them, with their boxes, as a PNG of bounded size.

    labels: N lists of M numbers, drawn as they are. sizes: N (H, W), of what is no padding; the rest is hatched.
    """
    shown, note = in_some_colors(images[:NOTEBOOK_IMAGES])
    each = zip(shown, boxes, labels, sizes if sizes is not None else [None] * len(images), strict=False)
    tiles = [
        Tile(image, xyxy, [str(label) for label in numbers], hatched=padding(image, size))
        for image, xyxy, numbers, size in each
    ]
    rest = f"{len(images):,} images, the first {len(tiles)}" if len(images) > len(tiles) else ""
    title, rows = ", ".join(filter(None, (rest, note))), [tiles[at : at + 4] for at in range(0, len(tiles), 4)]
    encoded = io.BytesIO()
    sheet(rows, title=title, cell=(240, 240)).save(encoded, "PNG")
    return encoded.getvalue()


def padding(image: Image.Image, size: Any) -> list[tuple[int, int, int, int]]:
    """XYXY of what lies right of `size`, (H, W), and below it; nothing for None."""
    height, width = (image.height, image.width) if size is None else map(int, size)
    strips = [(width, 0, image.width, image.height), (0, height, width, image.height)]
    return [(x1, y1, x2, y2) for x1, y1, x2, y2 in strips if x1 < x2 and y1 < y2]


def in_some_colors(images: Sequence[Any]) -> tuple[list[Image.Image], str]:
    """Images of one batch, when it is not known what Normalize did, and a note on their colours.

    In true colours where all are in 0..1 or 0..255; else they come out of a Normalize and are stretched, alike.
    """
    if all(isinstance(image, Image.Image) for image in images):
        return list(images), ""
    arrays = [_as_array(image) for image in images]
    low, high = (float(extreme([extreme(array) for array in arrays])) for extreme in (np.min, np.max))
    if low >= -SLACK and (arrays[0].dtype == np.uint8 or not 1 + SLACK < high <= LARGEST_NORMALIZED):
        return [to_image(array, white=1 if high <= 1 + SLACK else 255) for array in arrays], ""
    return [to_image((array - low) / (high - low)) for array in arrays], "normalised, so in false colours"


# ---------------------------------------------------------------- pixels


def _as_array(values: Any) -> npt.NDArray[Any]:
    """numpy from anything array-like; tensors are fetched from their device."""
    if hasattr(values, "detach"):
        values = values.detach()
        values = values.float() if values.is_floating_point() else values
    for fetch in ("cpu", "as_cpu"):
        values = getattr(values, fetch)() if hasattr(values, fetch) else values
    return np.asarray(values)


def _channels_last(array: npt.NDArray[Any], layout: str | None) -> npt.NDArray[Any]:
    if array.ndim == 2:
        return array[:, :, None]
    if array.ndim == 3 and layout != "HWC" and array.shape[0] in (1, 3):
        array = array.transpose(1, 2, 0)
    if array.ndim != 3 or array.shape[2] not in (1, 3) or 0 in array.shape:
        raise ValueError(
            f"pixels must be one image, (H, W), (H, W, 1 or 3) or (1 or 3, H, W), got shape {array.shape}; "
            "take one image of a batch, batch.images[0]"
        )
    return array


def _to_uint8(pixels: npt.NDArray[np.float64], mean: Any, std: Any, white: float) -> npt.NDArray[np.uint8]:
    pixels = pixels * (1.0 if std is None else np.asarray(std)) + (0.0 if mean is None else np.asarray(mean))
    pixels = np.nan_to_num(pixels / white, posinf=1.0, neginf=0.0)
    low, high = float(pixels.min()) * white, float(pixels.max()) * white
    if low < -white or high > 2 * white:
        raise ValueError(
            f"float pixels must be in 0..{white:g} (white={white:g}), got {low:.3g}..{high:.3g}; "
            "pass white=255, or the mean and std of Normalize"
        )
    return np.asarray((np.clip(pixels, 0, 1) * 255).round(), np.uint8)


def _resized(picture: Image.Image, size: tuple[int, int] | None) -> tuple[Image.Image, Boxes]:
    """`picture` in `size` (H, W), and the (4,) factors by which its boxes grow."""
    height, width = size or (picture.height, picture.width)
    factors = np.array([width / picture.width, height / picture.height] * 2)
    if factors.max() == factors.min() == 1:
        return picture, factors
    # A strongly enlarged image shows its pixels as squares: what a box covers can be counted.
    method = Image.Resampling.NEAREST if factors.min() >= 4 else Image.Resampling.LANCZOS
    return picture.resize((width, height), method), factors


def _stripes(size: tuple[int, int]) -> Image.Image:
    """Diagonal stripes, dark and light, to be seen on any background."""
    period = max(4, round(sum(size) / 60))
    y, x = np.ogrid[: size[1], : size[0]]
    return Image.fromarray(np.where((x + y) % period * 2 < period, 40, 225).astype(np.uint8)).convert("RGB")


# ---------------------------------------------------------------- boxes


def _check_boxes(boxes: Any, what: str) -> Boxes:
    xyxy = _as_array(boxes).astype(np.float64)
    xyxy = xyxy.reshape(0, 4) if xyxy.size == 0 else xyxy
    if xyxy.ndim != 2 or xyxy.shape[1] != 4:
        raise ValueError(f"{what} must be (M, 4) XYXY pixels, got shape {xyxy.shape}; reshape to (-1, 4)")
    return xyxy


def _check_lengths(boxes: Boxes, names: Sequence[str], difficult: Sequence[bool] | None) -> Sequence[bool]:
    flags = [False] * len(boxes) if difficult is None else [bool(flag) for flag in difficult]
    if not len(boxes) == len(names) == len(flags):
        raise ValueError(
            f"boxes, names and difficult must be equally many, got {len(boxes)}, {len(names)} and "
            f'{len(flags)}; pass "" for a box without a name'
        )
    return flags


def _paint_boxes(canvas: Image.Image, boxes: Boxes, names: Sequence[str], flags: Sequence[bool]) -> None:
    """Outlines from the largest to the smallest, then the labels, so that small ones stay on top."""
    kept = _visible(boxes, canvas.size)
    order = [k for k in np.argsort(-areas(kept), kind="stable") if not np.isnan(kept[k]).any()]
    draw = ImageDraw.Draw(canvas, "RGBA")
    text_height = _text_height(canvas.size)
    for k in order:
        _outline(draw, kept[k], class_color(names[k]), _line_width(kept[k], text_height), flags[k])
    order.reverse()
    beside = np.array([_with_halo(kept[k], text_height) for k in order]).reshape(-1, 4)
    colors = [class_color(names[k]) for k in order]
    paint_labels(draw, beside, [names[k] for k in order], colors, canvas.size, text_height)


def _visible(boxes: Boxes, size: tuple[int, int]) -> Boxes:
    """Corners sorted and brought near the image, edges outside staying outside; NaN for what is not seen."""
    width, height = size
    first, second = boxes[:, :2], boxes[:, 2:]
    corners = np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1)
    inside = (corners[:, :2] < (width, height)).all(1) & (corners[:, 2:] > 0).all(1)
    inside &= np.isfinite(corners).all(1)
    return np.where(inside[:, None], np.clip(corners, -99, np.array([width, height] * 2) + 99.0), np.nan)


def _text_height(size: tuple[int, int]) -> int:
    """Of the font, in pixels: 8 on an icon, 14 on 500 x 375, 56 at most."""
    return min(56, max(8, round(6 + sum(size) / 104)))


def _line_width(box: Boxes, text_height: int) -> int:
    """A sixth of the text, and never so wide that the outline fills the box."""
    x1, y1, x2, y2 = snap(box)
    return max(1, min(round(text_height / 6), min(x2 - x1, y2 - y1) // 5))


def _outline(draw: ImageDraw.ImageDraw, box: Boxes, color: Color, width: int, dashed: bool) -> None:
    """A frame inside the box with a thin dark one beside it, to be seen on a background of its colour too.

    The dark one is inside, or around a box that has no room for it. Gaps between dashes are dark.
    """
    x1, y1, x2, y2 = snap(box)
    inset = width if _has_room(box, width) else -_halo(width)
    _frame(draw, (x1 + inset, y1 + inset, x2 - inset, y2 - inset), SHADE, _halo(width), dashed and inset > 0)
    if dashed:
        _frame(draw, (x1, y1, x2, y2), SHADE, width, False)
    _frame(draw, (x1, y1, x2, y2), (*color, 255), width, dashed)


def _has_room(box: Boxes, width: int) -> bool:
    x1, y1, x2, y2 = snap(box)
    return min(x2 - x1, y2 - y1) > 4 * width + 2


def _with_halo(box: Boxes, text_height: int) -> Boxes:
    """The box with the dark line that surrounds it if it is small."""
    width = _line_width(box, text_height)
    return box if _has_room(box, width) else box + np.array([-1, -1, 1, 1]) * _halo(width)


def _halo(width: int) -> int:
    """The width of the dark line beside a frame of `width`."""
    return max(1, width // 2)


def _frame(
    draw: ImageDraw.ImageDraw,
    box: tuple[int, int, int, int],
    color: tuple[int, int, int, int],
    width: int,
    dashed: bool,
) -> None:
    x1, y1, x2, y2 = box
    for a, b in _dashes(x1, x2, width, dashed):
        draw.rectangle((a, y1, b - 1, y1 + width - 1), fill=color)
        draw.rectangle((a, y2 - width, b - 1, y2 - 1), fill=color)
    for a, b in _dashes(y1, y2, width, dashed):
        draw.rectangle((x1, a, x1 + width - 1, b - 1), fill=color)
        draw.rectangle((x2 - width, a, x2 - 1, b - 1), fill=color)


def _dashes(start: int, stop: int, width: int, dashed: bool) -> list[tuple[int, int]]:
    """Spans of a side from `start` to `stop`: one, or dashes that begin and end at its corners."""
    dash, gap = min(4 * width, max(2, (stop - start) // 4)), min(3 * width, max(1, (stop - start) // 6))
    count = (stop - start + gap) // (dash + gap)
    if not dashed or count < 2:
        return [(start, stop)]
    return [(int(a), int(a) + dash) for a in np.linspace(start, stop - dash, count).round()]


# ---------------------------------------------------------------- sheet


def _render(tile: Tile | Image.Image, cell: tuple[int, int]) -> Image.Image:
    """The image of a tile, resized to fit (H, W) `cell`, with its hatching and boxes."""
    tile = tile if isinstance(tile, Tile) else Tile(tile)
    picture = to_image(tile.image)
    factor = min(cell[0] / picture.height, cell[1] / picture.width)
    size = (max(1, round(picture.height * factor)), max(1, round(picture.width * factor)))
    canvas, scale = _resized(picture, size)
    canvas = hatch(canvas, _check_boxes(tile.hatched, "hatched") * scale)
    return draw_boxes(canvas, _check_boxes(tile.boxes, "boxes") * scale, tile.names, difficult=tile.difficult)
