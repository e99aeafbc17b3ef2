"""Draw lines as SVG."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from markupsafe import Markup
from numpy.typing import NDArray

from detaug.pages.frame import render

SIDE, LEFT, BOTTOM = 240, 56, 264
MOST_POINTS, MOST_MARKERS = 200, 12  # of a line; of a line whose points are marked
BLUE, ORANGE, GREEN, PINK, GREY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#8a9099"

WHOLE = ("step", "epoch")
"""Names of axes that count."""

Range = tuple[float, float]


class Line(NamedTuple):
    """A line through points (N,), (N,), in a color of CSS."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    color: str
    width: float = 2.0


def line_chart(
    title: str,
    x: str,
    y: str,
    lines: Mapping[str, Line],
    faint: Sequence[Line] = (),
    *,
    x_range: Range = (0, 1),
    y_range: Range = (0, 1),
) -> Markup:
    """Return a figure with the lines, by their names, which a legend lists, and `faint` ones without names below.

    `x`, `y`: names of the axes, and the ranges that they show.
    """
    return render(
        "pages/line_chart.html",
        title=title,
        x=x,
        y=y,
        left=LEFT,
        side=SIDE,
        bottom=BOTTOM,
        width=LEFT + SIDE + 14,
        rows=[(BOTTOM - SIDE * part, f"{value:.3g}") for part, value in _ticks(y_range)],
        columns=[(LEFT + SIDE * part, f"{value:.6g}") for part, value in _ticks(x_range, is_whole=x in WHOLE)],
        most_markers=MOST_MARKERS,
        lines=lines,
        drawn=[(line, _points(line, x_range, y_range)) for line in (*faint, *lines.values())],
    )


def _ticks(shown: Range, *, is_whole: bool = False) -> list[tuple[float, float]]:
    """Return the fraction of an axis and the value of its ends and its middle, or of the whole number nearest to it."""
    low, high = shown
    middle = float(round((low + high) / 2)) if is_whole else (low + high) / 2
    return [((value - low) / ((high - low) or 1), value) for value in sorted({low, middle, high})]


def round_up(value: float) -> float:
    """Return the end of an axis that shows values up to this one: 1, 2, 4 or 6 times a power of 10."""
    if value <= 0:
        return 1.0
    power = 10.0 ** math.floor(math.log10(value))
    return float(next(factor for factor in (1, 2, 4, 6, 10) if factor * power >= value * (1 - 1e-9)) * power)


def _points(line: Line, x_range: Range, y_range: Range) -> list[str]:
    """Return at most `MOST_POINTS` of the points, evenly spread, with the first and the last, as "across,up"."""
    last = max(len(line.x) - 1, 0)
    chosen = np.unique(np.linspace(0, last, MOST_POINTS).round().astype(int))[: len(line.x)]
    x, y = (
        (values[chosen] - low) / ((high - low) or 1) for values, (low, high) in ((line.x, x_range), (line.y, y_range))
    )
    across, up = LEFT + SIDE * x, BOTTOM - SIDE * y
    return [f"{a:.1f},{b:.1f}" for a, b in zip(across, up, strict=True)]
