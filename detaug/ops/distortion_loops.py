"""Loops that resample images through fields, which Numba compiles, kept on disk as those of `color_loops`."""

from __future__ import annotations

import numpy as np

from detaug.compiled import compiled
from detaug.ops.color_loops import HALF, ONE, ZERO


@compiled
def resample(pixels, lens, control, spacing, fill, added, out):
    """Write `out` (H, W, C): `pixels` (H, W, C) where a field shows them, between four pixels, and `fill` (C,) outside.

    `added`: 0.5 where `out` has whole numbers, to round, else 0. All are float32 but the pixels.
    """
    height, width, channels = pixels.shape
    places = np.empty((width, 2), np.float32)
    for y in range(height):
        find_places(places, y, height, lens, control, spacing)
        for x in range(width):
            across, down = places[x]
            if across < 0 or across >= width or down < 0 or down >= height:
                for channel in range(channels):
                    out[y, x, channel] = fill[channel] + added
                continue
            left, right, share_right = _between(across, width)
            top, bottom, share_bottom = _between(down, height)
            for channel in range(channels):
                over = np.float32(pixels[top, left, channel])
                over += (np.float32(pixels[top, right, channel]) - over) * share_right
                under = np.float32(pixels[bottom, left, channel])
                under += (np.float32(pixels[bottom, right, channel]) - under) * share_right
                out[y, x, channel] = over + (under - over) * share_bottom + added


@compiled
def find_places(places, y, height, lens, control, spacing):
    """Write `places` (W, 2) float32: x and y in the undistorted image of the centers of the pixels of row y.

    `lens`, `control` (R, C, 2) and `spacing`: those of a `Field`, float32. Without rows of `control` nothing shifts.
    """
    width = np.float32(len(places))
    half_x, half_y, high = width * HALF, np.float32(height) * HALF, np.float32(height)
    shifts = len(control) > 0
    row = _shifts_of_row(control, np.float32(y) + HALF, spacing)
    for x in range(len(places)):
        center_x, center_y = np.float32(x) + HALF, np.float32(y) + HALF
        if shifts:
            column = int(center_x / spacing)
            first, second, third, fourth = _weights(center_x / spacing - np.float32(column))
            for axis in range(2):
                shift = row[column, axis] * first + row[column + 1, axis] * second
                shift += row[column + 2, axis] * third + row[column + 3, axis] * fourth
                places[x, axis] = shift
            center_x, center_y = center_x + places[x, 0], center_y + places[x, 1]
        across, down = center_x - half_x, center_y - half_y
        squared = (across / width) ** 2 + (down / high) ** 2
        further = lens * squared * (ONE + squared)
        places[x, 0] = center_x + across * further
        places[x, 1] = center_y + down * further


@compiled
def _shifts_of_row(control, middle, spacing):
    """Return (C, 2): the sums of the shifts of control points above and below a row of pixels, weighted."""
    sums = np.zeros(control.shape[1:], np.float32)
    if len(control) > 0:
        row = int(middle / spacing)
        weights = _weights(middle / spacing - np.float32(row))
        for down in range(4):
            for column in range(len(sums)):
                for axis in range(2):
                    sums[column, axis] += control[row + down, column, axis] * weights[down]
    return sums


@compiled
def _weights(part):
    """Return the weights of four control points in a cubic B-spline."""
    left, six = ONE - part, np.float32(6)
    second = (np.float32(3) * part * part * (part - np.float32(2)) + np.float32(4)) / six
    third = (np.float32(3) * left * left * (left - np.float32(2)) + np.float32(4)) / six
    return left * left * left / six, second, third, part * part * part / six


@compiled
def _between(place, side):
    """Return the pixels before and after a place, and how far it is from the middle of one to that of the other."""
    place = min(max(place - HALF, ZERO), np.float32(side - 1))
    before = int(place)
    return before, min(before + 1, side - 1), np.float32(place - np.float32(before))
