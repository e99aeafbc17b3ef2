"""Numba's loops that place points in outputs that an elastic field bends: see `fields.py`."""

from __future__ import annotations

import numpy as np

from detaug.compiled import compiled

ITERATIONS = 30
CLOSE = 1e-5
"""Output pixels that a place may be off."""


@compiled
def undo_shifts(image, x, y, size, control, spacing):
    """Change points (P,) x, y of undistorted pictures to those of the outputs that show them, by Newton's method.

    `image` (P,); `size` (N, 2), `control` (N, R, C, 2) and `spacing` (N,) as in `Field`.
    """
    shift = np.zeros(6)
    for at in range(len(x)):
        number, to_x, to_y = image[at], x[at], y[at]
        if not (np.isfinite(to_x) and np.isfinite(to_y)):
            continue
        own, step, most = control[number], spacing[number], spacing[number] / 2
        if at > 0 and image[at - 1] == number:  # neighbours on an outline are shifted alike
            x[at], y[at] = to_x - shift[0], to_y - shift[1]
        for _ in range(ITERATIONS):
            _shift_at(x[at], y[at], size[number, 0], size[number, 1], own, step, shift)
            off_x, off_y = x[at] + shift[0] - to_x, y[at] + shift[1] - to_y
            if abs(off_x) < CLOSE and abs(off_y) < CLOSE:
                break
            a, b, c, d = 1 + shift[2], shift[3], shift[4], 1 + shift[5]
            area = max(a * d - b * c, 1e-3)
            x[at] -= min(max((d * off_x - b * off_y) / area, -most), most)
            y[at] -= min(max((a * off_y - c * off_x) / area, -most), most)


@compiled
def _shift_at(x, y, height, width, control, spacing, shift):
    """Write how far (x, y) is shifted along x and y, then how that grows: x by x, x by y, y by x, y by y."""
    inside_x, inside_y = min(max(x, 0.0), width), min(max(y, 0.0), height)
    column, row = int(inside_x / spacing), int(inside_y / spacing)
    part_x, part_y = inside_x / spacing - column, inside_y / spacing - row
    of_x, of_y, slope_x, slope_y = _weights(part_x), _weights(part_y), _slopes(part_x), _slopes(part_y)
    shift[:] = 0
    for down in range(4):
        for axis in range(2):
            along, change = 0.0, 0.0
            for across in range(4):
                value = control[row + down, column + across, axis]
                along += value * of_x[across]
                change += value * slope_x[across]
            shift[axis] += along * of_y[down]
            shift[2 + 2 * axis] += change * of_y[down] / spacing
            shift[3 + 2 * axis] += along * slope_y[down] / spacing
    if x != inside_x:
        shift[2] = shift[4] = 0.0
    if y != inside_y:
        shift[3] = shift[5] = 0.0


@compiled
def _weights(part):
    """Return the weights of four control points in a cubic B-spline."""
    squared, cubed, left = part * part, part * part * part, 1 - part
    second, third = (3 * cubed - 6 * squared + 4) / 6, (-3 * cubed + 3 * squared + 3 * part + 1) / 6
    return left * left * left / 6, second, third, cubed / 6


@compiled
def _slopes(part):
    """Return the derivatives of the weights."""
    squared, left = part * part, 1 - part
    return -left * left / 2, (3 * squared - 4 * part) / 2, (-3 * squared + 2 * part + 1) / 2, squared / 2
