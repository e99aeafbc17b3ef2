"""Loops over the pixels of an image, which Numba compiles, kept on disk as those of `color_loops`.

DALI's arithmetic takes 10 ms to fill what is outside of a polygon in 640 x 640 pixels, more than the warp before it;
the loop visits only what changes. Medians of 3 x 3 take Pillow 14 ms for 300 x 300 pixels, and the loop 1.
"""

from __future__ import annotations

import numpy as np

from detaug.compiled import compiled

ZERO, HALF, ONE = (np.float32(number) for number in (0, 0.5, 1))


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


@compiled
def take_median(padded, side, out):
    """Write `out` (H, 3 W) uint8: the median of the `side` x `side` values around each, of its own channel.

    `padded` (H + side - 1, 3 (W + side - 1)) uint8. The medians' bits are found from the highest on: a bit is set if at
    most half of the values are below the number with it. So the inner loop is a comparison of bytes, 32 at once.
    """
    length, half = out.shape[1], np.uint8(side * side // 2)
    candidate, below = np.empty(length, np.uint8), np.empty(length, np.uint8)
    for y in range(out.shape[0]):
        median = out[y]
        median[:] = 0
        for place in range(8):
            bit = np.uint8(128 >> place)
            below[:] = 0
            _add(median, bit, candidate)
            for down in range(side):
                for across in range(side):
                    _count_below(padded[y + down, 3 * across : 3 * across + length], candidate, below)
            _set_bit(median, below, half, bit)


@compiled
def _add(median, bit, candidate):
    for index in range(len(candidate)):
        candidate[index] = median[index] + bit


@compiled
def _count_below(values, candidate, below):
    for index in range(len(below)):
        below[index] += np.uint8(values[index] < candidate[index])


@compiled
def _set_bit(median, below, half, bit):
    for index in range(len(median)):
        median[index] += bit * np.uint8(below[index] <= half)
