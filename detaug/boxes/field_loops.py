"""Numba's loops that place points in outputs that an elastic field bends: see `fields.py`."""

from __future__ import annotations

import numpy as np

from detaug.compiled import compiled

ITERATIONS = 30
CLOSE = 1e-5
"""Output pixels that a place may be off."""


@compiled
def undo_shifts(image, x, y, size, control, spacing):
    """Change points (P,) x, y of undistorted images to those of the outputs that show them, by Newton's method.

    The first guess for a point follows the slopes at the point before it, since outlines have their points close
    together. A step that starts d pixels from the place ends at most 4 d^2 / spacing pixels from it, because shifts are
    smaller than half the spacing. So a small enough step is the last one and needs no check, except at the border,
    where the slopes jump.

    `image` (P,); `size` (N, 2), `control` (N, R, C, 2) and `spacing` (N,) as in `Field`.
    """
    before, seen_x, seen_y, a, b, c, d = -1, 0.0, 0.0, 1.0, 0.0, 0.0, 1.0
    for point in range(len(x)):
        number, to_x, to_y = image[point], x[point], y[point]
        if not (np.isfinite(to_x) and np.isfinite(to_y)):
            continue
        height, width, own, own_spacing = size[number, 0], size[number, 1], control[number], spacing[number]
        at_x, at_y, near, most = to_x, to_y, np.sqrt(CLOSE * own_spacing / 4), own_spacing / 2
        if before >= 0 and image[before] == number:
            along_x, along_y = to_x - seen_x, to_y - seen_y
            ahead_x, ahead_y = _solved(a, b, c, d, along_x, along_y)
            at_x = x[before] + along_x + _limited(ahead_x - along_x, most)
            at_y = y[before] + along_y + _limited(ahead_y - along_y, most)
        for _ in range(ITERATIONS):
            right, down, a, b, c, d = _shift_at(at_x, at_y, height, width, own, own_spacing)
            off_x, off_y = at_x + right - to_x, at_y + down - to_y
            smooth = near < at_x < width - near and near < at_y < height - near
            back_x, back_y = _solved(a, b, c, d, off_x, off_y)
            at_x, at_y = at_x - _limited(back_x, most), at_y - _limited(back_y, most)
            close = near if smooth else CLOSE
            if abs(off_x) < close and abs(off_y) < close:
                break
        x[point], y[point], before, seen_x, seen_y = at_x, at_y, point, to_x, to_y


@compiled
def _solved(a, b, c, d, right, down):
    """Return x and y with a x + b y = right and c x + d y = down."""
    area = max(a * d - b * c, 1e-3)
    return (d * right - b * down) / area, (a * down - c * right) / area


@compiled
def _limited(value, most):
    return min(max(value, -most), most)


@compiled
def _shift_at(x, y, height, width, control, spacing):
    """Return how far (x, y) is shifted along x and y, and how the places grow: x by x, x by y, y by x, y by y."""
    inside_x, inside_y = min(max(x, 0.0), width), min(max(y, 0.0), height)
    cell_x, cell_y = inside_x / spacing, inside_y / spacing
    column, row = int(cell_x), int(cell_y)
    of_x, of_y = _weights(cell_x - column), _weights(cell_y - row)
    slope_x, slope_y = _slopes(cell_x - column), _slopes(cell_y - row)
    right = down = right_by_x = right_by_y = down_by_x = down_by_y = 0.0
    for line in range(4):
        along_x = along_y = more_x = more_y = 0.0
        for across in range(4):
            point_x, point_y = control[row + line, column + across, 0], control[row + line, column + across, 1]
            along_x, along_y = along_x + point_x * of_x[across], along_y + point_y * of_x[across]
            more_x, more_y = more_x + point_x * slope_x[across], more_y + point_y * slope_x[across]
        right, down = right + along_x * of_y[line], down + along_y * of_y[line]
        right_by_x, down_by_x = right_by_x + more_x * of_y[line], down_by_x + more_y * of_y[line]
        right_by_y, down_by_y = right_by_y + along_x * slope_y[line], down_by_y + along_y * slope_y[line]
    by_x, by_y = (1 / spacing if x == inside_x else 0.0), (1 / spacing if y == inside_y else 0.0)
    return right, down, 1 + right_by_x * by_x, right_by_y * by_y, down_by_x * by_x, 1 + down_by_y * by_y


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
