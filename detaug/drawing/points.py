"""Draw keypoints with their skeletons, and quadrangles: lines and discs with smooth edges, in continuous pixels."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np
from PIL import Image

from detaug.arrays import Floats
from detaug.drawing.colors import Color
from detaug.drawing.images import as_array, to_image
from detaug.errors import InputError

Side = Literal["left", "right", ""]
Distance = Callable[[Floats, Floats], Floats]

SIDES: dict[str, Color] = {"left": (255, 122, 64), "right": (80, 170, 255), "": (255, 236, 110)}
"""The colors of points of the left side, of the right side and of neither: apart in all forms of color blindness."""

SHADE: Color = (0, 0, 0)
SHADE_OPACITY = 0.6


class Marks(NamedTuple):
    """What M objects of an image have beside boxes, in pixels of the image."""

    keypoints: Any = None
    """(M, K, 3): x, y, v; 2 is drawn as a disc, 1 as a ring, 0 not at all."""
    skeletons: Sequence[Sequence[tuple[int, int]]] = ()
    """M lists of pairs of points, from 0, to connect."""
    sides: Sequence[Sequence[Side]] = ()
    """M lists of K sides; without them, "" for all."""
    corners: Any = None
    """(M, 4, 2): rotated boxes, drawn instead of boxes."""
    masks: Any = None
    """(M, H, W) bool, or a function that takes the height and width of an image and returns masks of this size."""

    def scaled(self, factors: Floats) -> Marks:
        """Return the marks in an image `factors` (2,) times as large: of x and y."""
        points, corners = self.keypoints, self.corners
        if points is not None:
            points = as_array(points).astype(np.float64) * [*factors, 1]
        return self._replace(keypoints=points, corners=None if corners is None else as_array(corners) * factors)


def draw_key_points(image: Any, marks: Marks) -> Image.Image:
    """Return a copy of `image`, as `to_image` takes it, with the keypoints and skeletons of its objects.

    Points of the left and of the right side have two colors, and so have their lines; others have a third.
    Raises InputError for keypoints of another shape than (M, K, 3).

    >>> marks = Marks(keypoints=[[[20, 10, 2], [40, 30, 1]]], skeletons=[[(0, 1)]])
    >>> draw_key_points(Image.new("RGB", (64, 48)), marks).getpixel((20, 10))
    (255, 236, 110)
    """
    canvas, keypoints = to_image(image), as_array(marks.keypoints).astype(np.float64)
    if not keypoints.size:
        return canvas
    if keypoints.ndim != 3 or keypoints.shape[2] != 3:
        raise InputError(f"keypoints must be (M, K, 3): x, y, visibility; got shape {keypoints.shape}")
    usual = max(2.0, sum(canvas.size) / 170)
    for number, points in enumerate(keypoints):
        shown = (points[:, 2] > 0) & np.isfinite(points).all(1)
        if not shown.any():
            continue
        sides: Sequence[str] = marks.sides[number] if len(marks.sides) else ("",) * len(points)
        extent = float(np.ptp(points[shown, :2], axis=0).max())
        radius = max(1.5, min(usual, extent / 12)) if shown.sum() > 1 else usual
        bones = [(a, b) for a, b in (marks.skeletons[number] if len(marks.skeletons) else ()) if shown[a] and shown[b]]
        for shade in (True, False):
            for a, b in bones:
                color = SHADE if shade else SIDES[_side_of_bone(sides[a], sides[b])]
                width = max(1.5, radius * 0.6) + 2 * shade
                paint_line(canvas, points[a, :2], points[b, :2], width, color)
        for index in np.flatnonzero(shown).tolist():
            _paint_point(canvas, points[index], radius, SIDES[sides[index]])
    return canvas


def _side_of_bone(one: str, other: str) -> str:
    """Return the side of a line between two points: theirs, or "" between the left and the right side."""
    return one or other if "" in (one, other) or one == other else ""


def paint_quadrangle(canvas: Image.Image, corners: Floats, color: Color, width: float, *, dashed: bool = False) -> None:
    """Draw the outline of a quadrangle (4, 2) on an image, with a thin dark line on both sides of it."""
    pairs = [*zip(corners, np.roll(corners, -1, axis=0), strict=True)]
    for start, end in pairs:
        paint_line(canvas, start, end, width + 2, SHADE)
    for start, end in pairs:
        paint_line(canvas, start, end, width, color, dashed=dashed)


def paint_line(
    canvas: Image.Image, start: Floats, end: Floats, width: float, color: Color, *, dashed: bool = False
) -> None:
    """Draw a line with round ends between two points, x, y; black lines, which are shades, let the image through."""
    along = end - start
    length = float(np.hypot(*along))
    unit = along / length if length else np.zeros(2)

    def distance(x: Floats, y: Floats) -> Floats:
        place = (x - start[0]) * unit[0] + (y - start[1]) * unit[1]
        nearest = place.clip(0, length)
        apart = np.hypot(x - start[0] - nearest * unit[0], y - start[1] - nearest * unit[1])
        return np.where((place / (4 * width)).astype(int) % 2 == 0, apart, np.inf) if dashed else np.asarray(apart)

    _paint(canvas, np.stack([start, end]), width / 2, distance, color)


def _paint_point(canvas: Image.Image, point: Floats, radius: float, color: Color) -> None:
    """Draw a disc, or a ring for a hidden point."""
    x0, y0, visible = point

    def from_center(x: Floats, y: Floats) -> Floats:
        return np.asarray(np.hypot(x - x0, y - y0))

    center, ring = point[None, :2], max(1.2, radius / 2.5)
    if visible >= 2:
        _paint(canvas, center, radius + 1, from_center, SHADE)
        _paint(canvas, center, radius, from_center, color)
        return
    _paint(canvas, center, radius + 1, from_center, SHADE)
    _paint(canvas, center, ring / 2, lambda x, y: abs(from_center(x, y) - radius + ring / 2), color, radius)


def _paint(
    canvas: Image.Image, points: Floats, reach: float, distance: Distance, color: Color, around: float | None = None
) -> None:
    """Paint the pixels whose centers are within `reach` of a shape; at its edge, in part.

    `distance`: of pixels from the shape. `points`: (P, 2); what is painted lies within `around` of the box around them,
    by default within `reach`.
    """
    margin = (reach if around is None else around) + 1
    left, top = np.floor(points.min(0) - margin).clip(0, canvas.size).astype(int).tolist()
    right, bottom = np.ceil(points.max(0) + margin).clip(0, canvas.size).astype(int).tolist()
    if left >= right or top >= bottom:
        return
    y, x = np.mgrid[top:bottom, left:right] + 0.5
    share = (reach + 0.5 - distance(x, y)).clip(0, 1) * (SHADE_OPACITY if color == SHADE else 1)
    canvas.paste(color, (left, top, right, bottom), Image.fromarray((share * 255).round().astype(np.uint8)))
