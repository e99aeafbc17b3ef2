"""Loops that make and mix in what lies over an image, which Numba compiles, kept on disk as those of `color_loops`."""

from __future__ import annotations

import numpy as np

from detaug.compiled import compiled
from detaug.ops.color_loops import BLOCK, HALF, ONE, TOP, ZERO, load_planes, store_planes


@compiled
def lay_over(pixels, shares, color, covers, brightness):
    """Change `pixels` (3 P,) uint8: add `color` (3,) by its `shares` (P,), up to 255, and multiply by `brightness`.

    `covers`: 1 where the color covers what it lies over, 0 where that shines through. All are float32.
    """
    planes = np.empty((3, BLOCK), np.float32)
    for first in range(0, len(shares), BLOCK):
        own = shares[first : first + BLOCK]
        part = pixels[3 * first : 3 * (first + len(own))]
        r, g, b = planes[0, : len(own)], planes[1, : len(own)], planes[2, : len(own)]
        load_planes(part, r, g, b)
        _lay_over(r, own, color[0], covers, brightness)
        _lay_over(g, own, color[1], covers, brightness)
        _lay_over(b, own, color[2], covers, brightness)
        store_planes(r, g, b, part)


@compiled
def _lay_over(values, shares, color, covers, brightness):
    for pixel in range(len(values)):
        value = min(values[pixel] + (color - values[pixel] * covers) * min(shares[pixel], ONE), TOP)
        values[pixel] = np.floor(value * brightness + HALF)


@compiled
def add_polygon(shares, corners, share):
    """Let pixels of `shares` (H, W) float32 keep 1 - `share` of what is left, if their centers are in a polygon.

    `corners` (K, 2) float32, x and y. Inside is where a line from the left has crossed an odd number of sides.
    """
    height, width = shares.shape
    crossings = np.empty(len(corners), np.float32)
    for y in range(height):
        middle, count = np.float32(y) + HALF, 0
        for side in range(len(corners)):
            x0, y0 = corners[side - 1]
            x1, y1 = corners[side]
            if (y0 <= middle) != (y1 <= middle):
                crossings[count] = x0 + (middle - y0) * (x1 - x0) / (y1 - y0)
                count += 1
        ends = np.sort(crossings[:count])
        for first in range(0, count, 2):
            for x in range(_first_after(ends[first], width), _first_after(ends[first + 1], width)):
                shares[y, x] = ONE - (ONE - shares[y, x]) * (ONE - share)


@compiled
def _first_after(x, width):
    """Return the first pixel whose center is not left of `x`."""
    return int(np.ceil(min(max(x, ZERO), np.float32(width)) - HALF))


@compiled
def interpolate(shares, grid):
    """Write `shares` (H, W) float32: linear between the values of `grid` (K, K) float32 at the middles of its cells."""
    height, width = shares.shape
    columns, rights, parts = np.empty(width, np.int64), np.empty(width, np.int64), np.empty(width, np.float32)
    for x in range(width):
        columns[x], rights[x], parts[x] = _between(x, width, grid.shape[1])
    for y in range(height):
        row, below, part = _between(y, height, grid.shape[0])
        for x in range(width):
            over = grid[row, columns[x]] + (grid[row, rights[x]] - grid[row, columns[x]]) * parts[x]
            under = grid[below, columns[x]] + (grid[below, rights[x]] - grid[below, columns[x]]) * parts[x]
            shares[y, x] = over + (under - over) * part


@compiled
def _between(pixel, side, cells):
    """Return the cell before a pixel's middle, the cell after it, and how far the pixel is from one to the other."""
    place = min(max((np.float32(pixel) + HALF) * np.float32(cells) / np.float32(side) - HALF, ZERO), cells - ONE)
    before = int(place)
    return before, min(before + 1, cells - 1), np.float32(place - before)


@compiled
def add_streak(shares, x, y, slant, length, width, blur):
    """Add the fraction that a streak from (x, y) to (x + slant, y + length) has of `blur` x `blur` around each pixel.

    Within that square it is taken as upright.
    """
    reach, half = blur / 2, width * np.sqrt(ONE + (slant / length) ** 2) / 2
    for row in range(max(int(y - reach), 0), min(int(y + length + reach) + 1, shares.shape[0])):
        middle = np.float32(row) + HALF
        down = min(middle + reach, y + length) - max(middle - reach, y)
        if down > 0:
            center = x + slant * min(max((middle - y) / length, ZERO), ONE)
            first, end = int(center - half - reach), int(center + half + reach) + 1
            for column in range(max(first, 0), min(end, shares.shape[1])):
                middle_x = np.float32(column) + HALF
                across = min(middle_x + reach, center + half) - max(middle_x - reach, center - half)
                shares[row, column] += max(across, ZERO) * down / (blur * blur)
