"""Convert the corners of a VOC box to COCO's box."""

from __future__ import annotations

from typing import Literal, NamedTuple

from detaug.converters.coco.table import THIN
from detaug.converters.coco.writer import Box

Origin = Literal["one", "zero"]
"""Whether pixels count from 1 and boxes include their last one (VOC), or from 0 with an exclusive end."""
Corners = tuple[float, float, float, float]
"""(xmin, ymin, xmax, ymax), as in the XML."""


class CocoBox(NamedTuple):
    """The box inside its image, None where nothing is left of it; and the kinds of findings about it."""

    box: Box | None
    kinds: tuple[str, ...]


def to_coco_box(corners: Corners, origin: Origin, size: tuple[int, int]) -> CocoBox:
    """Convert VOC's corners to COCO's (x, y, width, height) inside an image of size (H, W); pixels.

    Decisions 1 and 7.
    """
    xmin, ymin, xmax, ymax = corners
    height, width = size
    first = 1 if origin == "one" else 0
    (xmin, xmax), (ymin, ymax) = _in_order(xmin, xmax, first), _in_order(ymin, ymax, first)
    kinds = [] if (xmin, ymin, xmax, ymax) == corners else ["box-reversed"]
    edges = (xmin - first, ymin - first, xmax, ymax)
    left, top, right, bottom = max(edges[0], 0), max(edges[1], 0), min(xmax, width), min(ymax, height)
    if right - left < THIN or bottom - top < THIN:
        return CocoBox(None, (*kinds, "box-outside" if _is_outside(edges, size) else "box-empty"))
    if (left, top, right, bottom) != edges:
        kinds.append("box-clipped")
    return CocoBox((left, top, right - left, bottom - top), tuple(kinds))


def _in_order(low: float, high: float, first: int) -> tuple[float, float]:
    """Return the two corners of an axis, the lower one first; a box narrower than a pixel may end before its start."""
    return (high, low) if low > high and low - high >= first else (low, high)


def _is_outside(edges: Corners, size: tuple[int, int]) -> bool:
    left, top, right, bottom = edges
    is_thin = right - left < THIN or bottom - top < THIN
    return not is_thin or left >= size[1] or top >= size[0] or right <= 0 or bottom <= 0
