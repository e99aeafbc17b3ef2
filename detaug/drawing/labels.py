"""Names on plates beside boxes, where they hide the least, for `detaug.drawing.boxes`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from PIL import ImageDraw, ImageFont

from detaug.drawing.text import cut, typeset

Color = tuple[int, int, int]
Boxes = npt.NDArray[np.float64]

SMALLEST_TEXT = 7  # pixels
MOST_HIDDEN = 0.3  # of an object, by a label that is not needed; a quarter of a label counts as an object


class Plate(NamedTuple):
    """A label ready to be set: its text, its font, its (width, height), and the text's origin inside it."""

    text: str
    font: ImageFont.FreeTypeFont
    size: tuple[int, int]
    origin: tuple[int, int]


class Label(NamedTuple):
    """A plate at a spot, (4,) XYXY, and how much of other labels and of objects it hides."""

    spot: Boxes
    plate: Plate
    hides: float


def paint_labels(
    draw: ImageDraw.ImageDraw,
    boxes: Boxes,
    names: Sequence[str],
    colors: Sequence[Color],
    size: tuple[int, int],
    text_height: int,
) -> None:
    """A plate at each of `boxes`, (M, 4) XYXY pixels, on an image of `size` (width, height); none for an empty name.

    None either where it would hide as much as a whole object, or less where its colour has been named already.
    """
    placed, named = np.zeros((0, 4)), dict[Color, str]()
    for box, name, color in zip(boxes, names, colors, strict=True):
        found = _label(box, name, placed, boxes, size, text_height) if name.strip() else None
        if found is None or found.hides > (MOST_HIDDEN if named.get(color) == name else 1):
            continue
        named.setdefault(color, name)
        placed = np.concatenate([placed, found.spot[None]])
        paint_plate(draw, found.spot, found.plate, color)


def _label(box: Boxes, name: str, placed: Boxes, boxes: Boxes, size: tuple[int, int], text_height: int) -> Label | None:
    """The label in its usual size, or smaller where that hides less; None if no size fits the image."""
    best = None
    for height in (text_height, max(SMALLEST_TEXT, round(0.75 * text_height))):
        plate = _plate(name, height, size)
        label = _best_label(plate, _spots(box, plate.size, size), placed, boxes) if plate else None
        best = label if best is None or (label and label.hides < best.hides) else best
        if best is None or best.hides <= MOST_HIDDEN:
            break
    return best


def paint_plate(draw: ImageDraw.ImageDraw, spot: Boxes, plate: Plate, color: Color) -> None:
    x1, y1, x2, y2 = (int(v) for v in spot)
    draw.rectangle((x1, y1, x2 - 1, y2 - 1), fill=color)
    draw.text((x1 + plate.origin[0], y1 + plate.origin[1]), plate.text, (0, 0, 0), plate.font, anchor="ls")


def _plate(name: str, text_height: int, size: tuple[int, int]) -> Plate | None:
    """The label in the largest font, up to `text_height`, that fits the image; cut if none does."""
    for height in range(text_height, SMALLEST_TEXT - 1, -1):
        text, font = typeset(name, height)
        plate = _set(text, font, height)
        if _fits(plate, size):
            return plate
    plate = _set(cut(text, font, size[0] - 3), font, height)
    return plate if _fits(plate, size) else None


def _fits(plate: Plate, size: tuple[int, int]) -> bool:
    return bool(plate.text) and plate.size[0] <= size[0] and plate.size[1] <= size[1]


def _set(text: str, font: ImageFont.FreeTypeFont, height: int) -> Plate:
    left, top, right, bottom = font.getbbox(text, anchor="ls")
    _, line_top, _, line_bottom = font.getbbox("Ag", anchor="ls")
    top, bottom = int(min(top, line_top)), int(max(bottom, line_bottom))
    pad = max(1, round(height / 5))
    size = int(right - left) + 2 * pad, bottom - top + pad
    return Plate(text, font, size, (pad - int(left), pad // 2 - top))


def _spots(box: Boxes, plate: tuple[int, int], size: tuple[int, int]) -> Boxes:
    """(K, 4) places for a plate at its box, all inside the image, the usual one (above, flush left) first."""
    (x1, y1, x2, y2), (w, h) = snap(box), plate
    corners = [(x1, y1 - h), (x2 - w, y1 - h), (x1, y2), (x2 - w, y2)]  # above and below
    corners += [(x1, y1), (x2 - w, y1), (x1, y2 - h), (x2 - w, y2 - h)]  # inside
    corners += [(x2, y1), (x1 - w, y1), (x2, y2 - h), (x1 - w, y2 - h)]  # beside
    xy = np.clip(np.array(corners), 0, np.array(size) - plate)
    return np.concatenate([xy, xy + plate], 1).astype(np.float64)


def _best_label(plate: Plate, spots: Boxes, placed: Boxes, boxes: Boxes) -> Label:
    """At the spot that hides the least: of other labels above all, then of the objects, then the first."""
    placed, boxes = (
        _within(np.concatenate([spots[:, :2].min(0), spots[:, 2:].max(0)]), each) for each in (placed, boxes)
    )
    hidden_labels = (overlaps(spots, placed) / areas(spots)[:, None]).sum(1)
    hidden_objects = (overlaps(spots, boxes) / np.maximum(areas(boxes), 1)).sum(1)
    best = np.argmin(10 * hidden_labels + hidden_objects + 0.01 * np.arange(len(spots)))
    return Label(spots[best], plate, float(4 * hidden_labels[best] + hidden_objects[best]))


def _within(window: Boxes, boxes: Boxes) -> Boxes:
    """Those that meet the window, (4,) XYXY: of thousands of boxes, few matter to a label."""
    return boxes[((boxes[:, :2] < window[2:]) & (boxes[:, 2:] > window[:2])).all(1)]


def overlaps(a: Boxes, b: Boxes) -> Boxes:
    """(K, 4) and (M, 4) to (K, M): the areas that they share."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    return np.asarray(np.prod(np.maximum(high - low, 0), axis=2))


def areas(boxes: Boxes) -> Boxes:
    return np.asarray((boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1]))


def snap(box: Boxes) -> tuple[int, int, int, int]:
    """Whole pixels x1, y1, x2, y2 (half-open), at least one wide and high."""
    x1, y1, x2, y2 = (int(v) for v in np.floor(box + 0.5))
    return x1, y1, max(x2, x1 + 1), max(y2, y1 + 1)
