"""A second implementation of the even-odd fill."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def even_odd(rings: list[NDArray[np.float64]], shape: tuple[int, int]) -> NDArray[np.bool_]:
    """Fill rings at pixel centers: a pixel is inside if a ray to the right crosses an odd number of edges."""
    y, x = np.mgrid[: shape[0], : shape[1]] + 0.5
    crossings = np.zeros(shape, int)
    for ring in rings:
        for (x0, y0), (x1, y1) in zip(ring, np.roll(ring, -1, 0), strict=True):
            if y0 != y1:
                crossings += ((y0 <= y) != (y1 <= y)) & (x0 + (y - y0) / (y1 - y0) * (x1 - x0) > x)
    return crossings % 2 == 1
