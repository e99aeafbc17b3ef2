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
    height, width = size
    left, top, right, bottom = rounded = tuple([round(edge, DECIMALS) for edge in edges])
    if not (0 <= left <= right <= width and 0 <= top <= bottom <= height):
        left, right = min(max(left, 0), width), min(max(right, 0), width)
        top, bottom = min(max(top, 0), height), min(max(bottom, 0), height)
    cut = left, top, right, bottom
    if right - left < THIN or bottom - top < THIN:
        return None, "box-empty" if cut == rounded else "box-outside"
    box = (left, top, round(right - left, DECIMALS), round(bottom - top, DECIMALS))
    if cut != rounded and max(abs(edge - inside) for edge, inside in zip(rounded, cut, strict=True)) > _ROUNDING:
        return box, "box-clipped"
    return box, ""
