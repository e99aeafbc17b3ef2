"""Draw boxes with class names on images, and hatch regions.

Boxes are (M, 4) XYXY in pixels, in continuous coordinates: 0, 0, W, H covers the whole image, and the outline
of a box is drawn inside it, so that its outermost pixels are the outermost pixels of the box. Names
may be of any script; a letter for which the system has no font is written as its code point, `U+732B`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from detaug.drawing.colors import Color, class_colors
from detaug.drawing.images import as_array, to_image
from detaug.drawing.labels import Boxes, areas, as_boxes, clip_to_canvas, paint_labels, snap
from detaug.drawing.points import paint_quadrangle
from detaug.errors import InputError

SHADE = (0, 0, 0, 150)  # RGBA, beside outlines


class Resized(NamedTuple):
    """An image in another size, and the (4,) factors by which its boxes grow."""

    image: Image.Image
    factors: Boxes


def draw_boxes(
    image: Any,
    boxes: Any,
    names: Sequence[str],
    *,
    difficult: Sequence[bool] | None = None,
    size: tuple[int, int] | None = None,
    labels: Sequence[str] | None = None,
    colors: Mapping[str, Color] | None = None,
    corners: Any = None,
) -> Image.Image:
    """Return a copy of `image` with its boxes outlined and named; difficult objects are dashed.

    image: PIL image, array or tensor, as `to_image` takes it.
    boxes: (M, 4) XYXY pixels of `image`. names: M class names, "" for no label. difficult: M flags.
    labels: M texts to write instead of the names, "" for none. colors: the color of each name; without it
        `class_colors` of the names.
    corners: (M, 4, 2) of rotated boxes, which are outlined instead of the boxes; names stand at the boxes.
    size: (H, W) pixels to which the image is resized before anything is drawn, so that lines and text are
        sharp on a small image too.
    In a crowd, labels that would hide other objects are left out, first those of a class already named.
    Boxes may cross the border (edges outside are not drawn) and may be reversed; a box that is outside the image
    or not finite is not drawn. Raises InputError where boxes, names and difficult differ in number.

    >>> draw_boxes(Image.new("RGB", (64, 48)), [[8, 8, 40, 30]], ["cat"], size=(480, 640)).size
    (640, 480)
    """
    rgb = to_image(image)
    xyxy = as_boxes(boxes, "boxes")
    flags = _check_lengths(xyxy, names, difficult)
    canvas, factors = resize(rgb, size)
    color_of = class_colors(names) if colors is None else colors
    texts, of_objects = names if labels is None else labels, [color_of[name] for name in names]
    quadrangles = None if corners is None else _as_corners(corners, len(xyxy)) * factors[:2]
    _paint_boxes(canvas, xyxy * factors, texts, flags, of_objects, quadrangles)
    return canvas


def hatch(image: Any, regions: Any) -> Image.Image:
    """Return a copy of `image` with `regions`, (R, 4) XYXY pixels, hatched: padding, crowds, erased areas.

    >>> hatch(Image.new("RGB", (64, 48)), [[0, 0, 16, 48]]).size
    (64, 48)
    """
    canvas = to_image(image)
    mask = Image.new("L", canvas.size)
    for box in clip_to_canvas(as_boxes(regions, "regions"), canvas.size):
        mask.paste(255, (0, 0, 0, 0) if np.isnan(box).any() else snap(box))
    canvas.paste(_stripes(canvas.size), mask=mask.point(lambda m: m * 0.55))
    return canvas


def resize(image: Image.Image, size: tuple[int, int] | None) -> Resized:
    """Resize to `size`, (H, W) pixels; None leaves the image as it is."""
    height, width = size or (image.height, image.width)
    factors = np.array([width / image.width, height / image.height] * 2)
    if factors.max() == factors.min() == 1:
        return Resized(image, factors)
    # A strongly enlarged image shows its pixels as squares, so that the pixels in a box can be counted.
    method = Image.Resampling.NEAREST if factors.min() >= 4 else Image.Resampling.LANCZOS
    return Resized(image.resize((width, height), method), factors)


def _stripes(size: tuple[int, int]) -> Image.Image:
    """Draw diagonal stripes, dark and light: visible on any background."""
    period = max(4, round(sum(size) / 60))
    y, x = np.ogrid[: size[1], : size[0]]
    return Image.fromarray(np.where((x + y) % period * 2 < period, 40, 225).astype(np.uint8)).convert("RGB")


def _check_lengths(boxes: Boxes, names: Sequence[str], difficult: Sequence[bool] | None) -> Sequence[bool]:
    flags = [False] * len(boxes) if difficult is None else [bool(flag) for flag in difficult]
    if not len(boxes) == len(names) == len(flags):
        raise InputError(
            f"boxes, names and difficult must have equal lengths, got {len(boxes)}, {len(names)} and "
            f'{len(flags)}; pass "" for a box without a name'
        )
    return flags


def _as_corners(corners: Any, count: int) -> Boxes:
    quadrangles = as_array(corners).astype(np.float64)
    if quadrangles.shape != (count, 4, 2) and (quadrangles.size or count):
        raise InputError(f"corners must be (M, 4, 2), for {count} boxes, got shape {quadrangles.shape}")
    return quadrangles.reshape(count, 4, 2)


# ---------------------------------------------------------------- outlines


def _paint_boxes(
    canvas: Image.Image,
    boxes: Boxes,
    labels: Sequence[str],
    flags: Sequence[bool],
    colors: Sequence[Color],
    corners: Boxes | None,
) -> None:
    """Draw outlines from the largest box to the smallest, then the labels, so that small boxes stay on top."""
    visible = clip_to_canvas(boxes, canvas.size)
    order = [k for k in np.argsort(-areas(visible), kind="stable") if not np.isnan(visible[k]).any()]
    draw = ImageDraw.Draw(canvas, "RGBA")
    text_height = usual_text_height(canvas.size)
    for k in order:
        width = _line_width(visible[k], text_height)
        if corners is None:
            _outline(draw, visible[k], colors[k], width, flags[k])
        elif np.isfinite(corners[k]).all():
            paint_quadrangle(canvas, corners[k], colors[k], width, dashed=flags[k])
    order.reverse()
    places = visible if corners is None else _from_top_corner(visible, corners, canvas.size)
    beside = np.array([_with_shade(places[k], text_height) for k in order]).reshape(-1, 4)
    texts, plate_colors = [labels[k] for k in order], [colors[k] for k in order]
    paint_labels(draw, beside, texts, plate_colors, canvas.size, text_height)


def _from_top_corner(boxes: Boxes, corners: Boxes, size: tuple[int, int]) -> Boxes:
    """Return boxes that begin at the highest corner in the image of each quadrangle, where its name belongs."""
    inside = np.asarray(((corners >= 0) & (corners <= size)).all(2))
    y = np.where(inside, corners[..., 1], np.inf)
    highest = np.take_along_axis(corners, y.argmin(1)[:, None, None], 1)[:, 0]
    return np.where(np.isfinite(y.min(1))[:, None], np.concatenate([highest, boxes[:, 2:]], 1), boxes)


def usual_text_height(size: tuple[int, int]) -> int:
    """Return the font's height in pixels: 8 on an icon, 14 on 500 x 375, 56 at most."""
    return min(56, max(8, round(6 + sum(size) / 104)))


def _line_width(box: Boxes, text_height: int) -> int:
    """Return a sixth of the text height, less where the outline would fill the box."""
    x1, y1, x2, y2 = snap(box)
    return max(1, min(round(text_height / 6), min(x2 - x1, y2 - y1) // 5))


def _outline(draw: ImageDraw.ImageDraw, box: Boxes, color: Color, width: int, dashed: bool) -> None:
    """Draw a frame inside the box with a thin dark frame beside it, visible on a background of its own color.

    The dark frame is inside, or around a box without room for it. Gaps between dashes are dark.
    """
    x1, y1, x2, y2 = snap(box)
    inset = width if _has_room(box, width) else -_shade_width(width)
    _frame(draw, (x1 + inset, y1 + inset, x2 - inset, y2 - inset), SHADE, _shade_width(width), dashed and inset > 0)
    if dashed:
        _frame(draw, (x1, y1, x2, y2), SHADE, width, False)
    _frame(draw, (x1, y1, x2, y2), (*color, 255), width, dashed)


def _has_room(box: Boxes, width: int) -> bool:
    x1, y1, x2, y2 = snap(box)
    return min(x2 - x1, y2 - y1) > 4 * width + 2


def _with_shade(box: Boxes, text_height: int) -> Boxes:
    """Return the box, enlarged by its dark frame where that is outside."""
    width = _line_width(box, text_height)
    return box if _has_room(box, width) else box + np.array([-1, -1, 1, 1]) * _shade_width(width)


def _shade_width(width: int) -> int:
    """Return the width of the dark frame beside a frame of `width`."""
    return max(1, width // 2)


def _frame(
    draw: ImageDraw.ImageDraw,
    box: tuple[int, int, int, int],
    color: tuple[int, int, int, int],
    width: int,
    dashed: bool,
) -> None:
    x1, y1, x2, y2 = box
    for a, b in dashes(x1, x2, width, dashed):
        draw.rectangle((a, y1, b - 1, y1 + width - 1), fill=color)
        draw.rectangle((a, y2 - width, b - 1, y2 - 1), fill=color)
    for a, b in dashes(y1, y2, width, dashed):
        draw.rectangle((x1, a, x1 + width - 1, b - 1), fill=color)
        draw.rectangle((x2 - width, a, x2 - 1, b - 1), fill=color)


def dashes(start: int, stop: int, width: int, dashed: bool) -> list[tuple[int, int]]:
    """Return the drawn spans of a side from `start` to `stop`: one, or dashes that begin and end at its corners."""
    dash, gap = min(4 * width, max(2, (stop - start) // 4)), min(3 * width, max(1, (stop - start) // 6))
    count = (stop - start + gap) // (dash + gap)
    if not dashed or count < 2:
        return [(start, stop)]
    return [(int(a), int(a) + dash) for a in np.linspace(start, stop - dash, count).round()]
