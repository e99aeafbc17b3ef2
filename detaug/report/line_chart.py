"""Draw lines over 0..1 in both directions as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

SIDE, LEFT, BOTTOM = 240, 34, 264
MOST_POINTS = 200  # of a line


class Line(NamedTuple):
    """A line through points (N,), (N,), in 0..1, in a colour of CSS."""

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    color: str
    width: float = 2.0


def line_chart(title: str, x: str, y: str, lines: Mapping[str, Line], faint: Sequence[Line] = ()) -> str:
    """Return a figure with the lines, by their names, which a legend lists, and `faint` ones without names below."""
    width, height = LEFT + SIDE + 14, BOTTOM + 34
    parts = [f"<figure style='width:{width}px'><h3>{escape(title)}</h3>"]
    parts.append(f'<svg width="{width}" height="{height}" viewBox="0 0 {width} {height}" role="img">')
    for tick in (0, 0.5, 1):
        across, up = LEFT + SIDE * tick, BOTTOM - SIDE * tick
        parts.append(f'<line x1="{LEFT}" y1="{up}" x2="{LEFT + SIDE}" y2="{up}"/>')
        parts.append(f'<line x1="{across}" y1="{BOTTOM}" x2="{across}" y2="{BOTTOM - SIDE}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{up + 4}" text-anchor="end">{tick:g}</text>')
        parts.append(f'<text x="{across}" y="{BOTTOM + 15}" text-anchor="middle">{tick:g}</text>')
    parts.append(f'<text x="{LEFT + SIDE / 2}" y="{BOTTOM + 30}" text-anchor="middle">{escape(x)}</text>')
    parts.append(f'<text x="{LEFT - 6}" y="{BOTTOM - SIDE - 12}">{escape(y)}</text>')
    for line in (*faint, *lines.values()):
        style = f'fill="none" stroke="{line.color}" stroke-width="{line.width}"'
        parts.append(f'<polyline {style} points="{_points(line)}"/>')
    swatches = (f'<span style="color:{line.color}">&#9644;</span> {escape(name)}' for name, line in lines.items())
    return "".join([*parts, "</svg>", "<br>".join(swatches), "</figure>"])


def _points(line: Line) -> str:
    """Return at most `MOST_POINTS` of the points, evenly spread, with the first and the last."""
    last = max(len(line.x) - 1, 0)
    at = np.unique(np.linspace(0, last, MOST_POINTS).round().astype(int))[: len(line.x)]
    across, up = LEFT + SIDE * line.x[at], BOTTOM - SIDE * line.y[at]
    return " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(across, up, strict=True))
