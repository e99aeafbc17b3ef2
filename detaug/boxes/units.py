"""Units of rasterized masks, and where the numbers of a layer are, for NumPy, Numba and Triton."""

from __future__ import annotations

ONE = 256
"""Units of a pixel."""

FARTHEST = 1e6
"""Pixels: outlines with points farther away are tested in the source, as those behind a horizon are."""

FAR = 2**30
"""Units: farther away than all that is placed."""

NEAREST = 1e-6
"""The least depth of points that are in front of a perspective's horizon."""

EDGE = 1e-6
"""Pixels that a point may lie beside a border and be on it: flips and resizing round."""

TO_OUTPUT, TO_SOURCE, BOUNDS, RECTANGLE, INTERVAL, COPY, STENCIL, NUMBERS = 0, 9, 18, 22, 26, 28, 29, 33
"""Where the numbers of a layer start: maps, bounds, rectangle, what it fills of an average, its copy, its stencil
(where that begins, -1 without one, its x, y and bytes per row); and how many they are."""
