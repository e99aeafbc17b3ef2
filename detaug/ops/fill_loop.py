"""Fill what is outside of a polygon on the CPU: a loop that Numba compiles, kept on disk as those of `color_loops`.

DALI's arithmetic takes 10 ms for 640 x 640 pixels, more than the warp before it; the loop visits only what changes.
"""

from __future__ import annotations

import numpy as np

from detaug.compiled import compiled

ZERO, HALF, ONE = (np.float32(each) for each in (0, 0.5, 1))


@compiled
def fill_outside(image, edges, fill):
    """Change `image` (H, W, 3) uint8 outside of half planes, with edges as smooth as a resample's.

    `edges` (3, V) float32: a, b, c, with (x, y) lying a * x + b * y + c pixels inside of one. `fill` (3,) float32.
    """
    width = image.shape[1]
    for y in range(image.shape[0]):
        first, end = 0, width  # the pixels that are wholly inside
        for edge in range(edges.shape[1]):
            slope, rest = edges[0, edge], edges[1, edge] * np.float32(y + 0.5) + edges[2, edge]
            if slope > 0:
                first = max(first, int(np.ceil(min((HALF - rest) / slope - HALF, np.float32(width)))))
            elif slope < 0:
                end = min(end, int(np.floor(max((HALF - rest) / slope - HALF, -ONE))) + 1)
            elif rest < HALF:
                first, end = width, width
        first = min(first, width)
        end = max(end, first)
        _blend(image, edges, fill, y, 0, first)
        _blend(image, edges, fill, y, end, width)


@compiled
def _blend(image, edges, fill, y, start, stop):
    """Mix the pixels of a part of a row with the fill, by how far inside they are."""
    for x in range(start, stop):
        inside = np.float32(np.inf)
        for edge in range(edges.shape[1]):
            down = edges[1, edge] * np.float32(y + 0.5)
            inside = min(inside, edges[0, edge] * np.float32(x + 0.5) + edges[2, edge] + down)
        share = max(min(inside + HALF, ONE), ZERO)
        for channel in range(3):
            value = fill[channel] + (np.float32(image[y, x, channel]) - fill[channel]) * share
            image[y, x, channel] = np.uint8(np.rint(value))
