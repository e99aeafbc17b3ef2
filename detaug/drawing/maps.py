"""Draw maps on images: the class of each pixel in its color, transparent, or its depth in a scale of colors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from detaug.drawing.colors import Color
from detaug.drawing.images import as_array, to_image
from detaug.errors import InputError

FILL, DEPTH_FILL = 0.5, 0.75
"""Fractions of the color, of classes and of depths: those are seen by their borders, too."""

STRIPE = 4
"""Pixels of a stripe over what is ignored."""

BACKGROUND = frozenset(("background", "_background_", "__background__"))
"""Names of a class that is not painted, so that objects are seen."""

# viridis of matplotlib (CC0) at 0, 1/8, ..., 1: it grows lighter all the way, for any eye
SCALE = np.array(
    [
        (68, 1, 84), (71, 45, 123), (59, 82, 139), (44, 114, 142), (33, 145, 140),
        (40, 174, 128), (94, 201, 98), (173, 220, 48), (253, 231, 37),
    ],
    np.float64,
)  # fmt: skip
"""Colors of depths, from far to near."""


@dataclass(frozen=True, eq=False)
class MapMarks:
    """A map to draw on an image, over which it is stretched."""

    values: NDArray[Any]
    """(H, W): whole numbers of classes, or depths."""
    empty: float
    """The value of what is ignored, or not known: striped."""
    names: Mapping[int, str] | None = None
    """By number of a class; None for a map of depths."""
    limits: tuple[float, float] = (0.0, 1.0)
    """The depths of the first and the last color: the nearest and the farthest."""

    def class_names(self) -> list[str]:
        """Return the names of the classes that it shows, without the background."""
        if self.names is None:
            return []
        numbers = [number for number in np.unique(self.values).tolist() if number != self.empty]
        names = [self.names.get(number, str(number)) for number in numbers]
        return [name for name in names if name not in BACKGROUND]


def depth_limits(maps: Iterable[NDArray[Any]]) -> tuple[float, float]:
    """Return the depths, of those above 0, from the 2nd to the 98th percentile, so that a few do not count."""
    known = np.concatenate([values[values > 0] for values in maps] or [np.zeros(0)])
    low, high = np.percentile(known, (2, 98)) if len(known) else (0.0, 1.0)
    return float(low), float(max(high, low + 1e-6))


def depth_legend(limits: tuple[float, float]) -> list[tuple[str, Color]]:
    """Return three depths and their colors."""
    low, high = limits
    parts = ((low, 1.0), ((low + high) / 2, 0.5), (high, 0.0))
    return [(f"{meters:.3g} m", _as_color(_of_scale(np.array(nearness)))) for meters, nearness in parts]


def draw_map(image: Any, marks: MapMarks, colors: Mapping[str, Color]) -> Image.Image:
    """Return a copy of `image`, as `to_image` takes it, below a map. `colors`: of classes, by name.

    What is ignored is striped; the class "background" is not painted. Raises InputError for values that are not (H, W).

    >>> marks = MapMarks(np.ones((48, 64), np.uint8), empty=255, names={1: "car"})
    >>> draw_map(Image.new("RGB", (64, 48)), marks, {"car": (255, 0, 0)}).getpixel((20, 20))
    (128, 0, 0)
    """
    canvas, own = to_image(image), as_array(marks.values)
    if own.ndim != 2 or not own.size:
        raise InputError(f"values of a map must be (H, W), got shape {own.shape}")
    rows, columns = (
        ((np.arange(side) + 0.5) * length / side).astype(int)
        for side, length in zip((canvas.height, canvas.width), own.shape, strict=True)
    )
    values = own[rows[:, None], columns]
    pixels, empty = np.asarray(canvas).astype(np.float64), values == marks.empty
    if marks.names is None:
        low, high = marks.limits
        painted, fill = _of_scale(1 - (values.astype(np.float64) - low) / (high - low)), DEPTH_FILL
        covered = ~empty
    else:
        numbers, of_pixel = np.unique(values, return_inverse=True)
        names = [marks.names.get(number, str(number)) for number in numbers.tolist()]
        painted = np.array([colors.get(name, (0, 0, 0)) for name in names], np.float64)[of_pixel.reshape(values.shape)]
        covered = ~empty & np.array([name not in BACKGROUND for name in names])[of_pixel.reshape(values.shape)]
        fill = FILL
    pixels[covered] += fill * (painted[covered] - pixels[covered])
    if marks.names is not None:
        pixels[_borders(values)] *= 0.4
    y, x = np.indices(values.shape)
    pixels[empty & ((x + y) // STRIPE % 2 == 0)] *= 0.5
    return Image.fromarray(pixels.round().clip(0, 255).astype(np.uint8))


def _borders(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return the pixels whose right or lower neighbor has another value."""
    borders = np.zeros(values.shape, bool)
    borders[:, :-1] |= values[:, 1:] != values[:, :-1]
    borders[:-1] |= values[1:] != values[:-1]
    return borders


def _of_scale(nearness: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return (..., 3) the colors of numbers from 0, far, to 1, near."""
    positions = np.linspace(0, 1, len(SCALE))
    return np.stack([np.interp(nearness, positions, channel) for channel in SCALE.T], axis=-1)


def _as_color(values: NDArray[np.float64]) -> Color:
    red, green, blue = values.round().astype(int).tolist()
    return red, green, blue
