"""Draw class names beside boxes, where they hide the least: the geometry of boxes on a canvas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import ImageDraw, ImageFont

from detaug.drawing.colors import Color
from detaug.drawing.images import as_array
from detaug.drawing.text import cut, typeset
from detaug.errors import InputError

Boxes = NDArray[np.float64]

MARGIN = 99
"""Pixels outside the image at which far edges are cut: they stay invisible, and numbers stay small."""

SMALLEST_TEXT = 7  # pixels
MOST_HIDDEN = 0.3  # fraction of an object under a label that is not needed; a quarter of a label counts as an object


class Plate(NamedTuple):
    """A label ready to draw: its text, its font, its (width, height), and the text's origin inside it."""

    text: str
    font: ImageFont.FreeTypeFont
    size: tuple[int, int]
    origin: tuple[int, int]


class BoxLabel(NamedTuple):
    """A plate at a box, (4,) XYXY, and how much it hides: 1 is one object or a quarter of a label."""

    box: Boxes
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
    """Draw a label at each of `boxes`, (M, 4) XYXY pixels, on an image of `size` (width, height).

    A box with an empty name has no label. A label is left out where it would hide as much as a whole object, or
    `MOST_HIDDEN` of one if the image has a label with this name already.
    """
    painted, named = np.zeros((0, 4)), dict[Color, str]()
    for box, name, color in zip(boxes, names, colors, strict=True):
        label = _label(box, name, painted, boxes, size, text_height) if name.strip() else None
        if label is None or label.hides > (MOST_HIDDEN if named.get(color) == name else 1):
            continue
        named.setdefault(color, name)
        painted = np.concatenate([painted, label.box[None]])
        paint_plate(draw, label.box, label.plate, color)


def share_of_labels(boxes: Boxes, names: Sequence[str], size: tuple[int, int], text_height: int) -> float:
    """Return the area of all labels as a fraction of their room: the boxes and what is within a label of them.

    boxes: (M, 4) XYXY in an image of `size` (width, height).
    """
    plates = [_set(*typeset(name, text_height), text_height).size for name in names if name.strip()]
    boxes = boxes[np.isfinite(boxes).all(1)]
    if not plates or not len(boxes):
        return 0.0
    margin = np.max(plates, 0)
    low, high = np.maximum(boxes[:, :2].min(0) - margin, 0), np.minimum(boxes[:, 2:].max(0) + margin, size)
    return float(np.prod(plates, 1).sum() / np.prod(np.maximum(high - low, 1)))


def _label(
    box: Boxes, name: str, painted: Boxes, boxes: Boxes, size: tuple[int, int], text_height: int
) -> BoxLabel | None:
    """Return the label in its usual size, or smaller where that hides less; None if no size fits the image."""
    best = None
    for height in (text_height, max(SMALLEST_TEXT, round(0.75 * text_height))):
        plate = _plate(name, height, size)
        label = _best_label(plate, _positions(box, plate.size, size), painted, boxes) if plate else None
        best = label if best is None or (label and label.hides < best.hides) else best
        if best is None or best.hides <= MOST_HIDDEN:
            break
    return best


def paint_plate(draw: ImageDraw.ImageDraw, box: Boxes, plate: Plate, color: Color) -> None:
    x1, y1, x2, y2 = (int(v) for v in box)
    draw.rectangle((x1, y1, x2 - 1, y2 - 1), fill=color)
    draw.text((x1 + plate.origin[0], y1 + plate.origin[1]), plate.text, (0, 0, 0), plate.font, anchor="ls")


def _plate(name: str, text_height: int, size: tuple[int, int]) -> Plate | None:
    """Set a label in the largest font, up to `text_height`, with which it fits the image; cut it if none fits."""
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


def _positions(box: Boxes, plate: tuple[int, int], size: tuple[int, int]) -> Boxes:
    """Return (K, 4) positions of a plate at its box, all inside the image, the usual one (above, flush left) first."""
    (x1, y1, x2, y2), (w, h) = snap(box), plate
    corners = [(x1, y1 - h), (x2 - w, y1 - h), (x1, y2), (x2 - w, y2)]  # above and below
    corners += [(x1, y1), (x2 - w, y1), (x1, y2 - h), (x2 - w, y2 - h)]  # inside
    corners += [(x2, y1), (x1 - w, y1), (x2, y2 - h), (x1 - w, y2 - h)]  # beside
    xy = np.clip(np.array(corners), 0, np.array(size) - plate)
    return np.concatenate([xy, xy + plate], 1).astype(np.float64)


def _best_label(plate: Plate, positions: Boxes, painted: Boxes, boxes: Boxes) -> BoxLabel:
    """Choose the position that hides the least: first of other labels, then of objects; the first of equals."""
    window = np.concatenate([positions[:, :2].min(0), positions[:, 2:].max(0)])
    painted, boxes = _near(window, painted), _near(window, boxes)
    hidden_labels = (overlaps(positions, painted) / areas(positions)[:, None]).sum(1)
    hidden_objects = (overlaps(positions, boxes) / np.maximum(areas(boxes), 1)).sum(1)
    best = np.argmin(10 * hidden_labels + hidden_objects + 0.01 * np.arange(len(positions)))
    return BoxLabel(positions[best], plate, float(4 * hidden_labels[best] + hidden_objects[best]))


def _near(window: Boxes, boxes: Boxes) -> Boxes:
    """Return the boxes that overlap the window, (4,) XYXY: of thousands of boxes, few matter to a label."""
    return boxes[((boxes[:, :2] < window[2:]) & (boxes[:, 2:] > window[:2])).all(1)]


# ---------------------------------------------------------------- boxes on a canvas


def as_boxes(boxes: Any, name: str) -> Boxes:
    """Return `boxes` as a float64 array of (M, 4). Raises InputError, with `name`, for another shape."""
    xyxy = as_array(boxes).astype(np.float64)
    xyxy = xyxy.reshape(0, 4) if xyxy.size == 0 else xyxy
    if xyxy.ndim != 2 or xyxy.shape[1] != 4:
        raise InputError(f"{name} must be (M, 4) XYXY pixels, got shape {xyxy.shape}; reshape to (-1, 4)")
    return xyxy


def clip_to_canvas(boxes: Boxes, size: tuple[int, int]) -> Boxes:
    """Sort corners and cut edges far outside the image of `size` (width, height); NaN for an invisible box.

    Edges outside the image stay outside, so that they are not drawn on its border.
    """
    width, height = size
    first, second = boxes[:, :2], boxes[:, 2:]
    corners = np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1)
    inside = (corners[:, :2] < (width, height)).all(1) & (corners[:, 2:] > 0).all(1)
    inside &= np.isfinite(corners).all(1)
    limits = np.array([width, height] * 2) + float(MARGIN)
    return np.where(inside[:, None], np.clip(corners, -MARGIN, limits), np.nan)


def snap(box: Boxes) -> tuple[int, int, int, int]:
    """Round a box to whole pixels x1, y1, x2, y2 (half-open), at least one wide and high."""
    x1, y1, x2, y2 = (int(v) for v in np.floor(box + 0.5))
    return x1, y1, max(x2, x1 + 1), max(y2, y1 + 1)


def areas(boxes: Boxes) -> Boxes:
    return np.asarray((boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1]))


def overlaps(a: Boxes, b: Boxes) -> Boxes:
    """Return the (K, M) areas shared by boxes (K, 4) and (M, 4)."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    return np.asarray(np.prod(np.maximum(high - low, 0), axis=2))
