"""Cut boxes at the edges of their image, the same for every format."""

from __future__ import annotations

from detaug.converters.coco.table import THIN
from detaug.converters.coco.writer import Box

DECIMALS = 3
"""Of a pixel: the precision of a relative side with the customary six decimals."""

_ROUNDING = 0.01  # pixels by which a box may leave its image because of the decimals it is written with


def cut_to_image(edges: tuple[float, float, float, float], size: tuple[int, int]) -> tuple[Box | None, str]:
    """Return COCO's box in pixels, rounded, inside an image of size (H, W), and the kind of finding, "" where none.

    edges: left, top, right, bottom in pixels. The box is None if nothing is left of it.
    """
    sides = (size[1], size[0]) * 2
    rounded = [round(edge, DECIMALS) for edge in edges]
    inside = [min(max(edge, 0), side) for edge, side in zip(rounded, sides, strict=True)]
    past = max(abs(edge - cut) for edge, cut in zip(rounded, inside, strict=True))
    left, top, right, bottom = inside
    if right - left < THIN or bottom - top < THIN:
        return None, "box-empty" if rounded == inside else "box-outside"
    box = (left, top, round(right - left, DECIMALS), round(bottom - top, DECIMALS))
    return box, "box-clipped" if past > _ROUNDING else ""
