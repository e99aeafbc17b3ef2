"""Triton kernels that resample images through fields. They change whole batches, as those of `pixel_kernels`."""

from __future__ import annotations

import triton
import triton.language as tl

from detaug.gpu.triton_blocks import (
    batch_kernel,
    block_of,
    blocks,
    color_of,
    inside,
    load_pixels,
    position,
    rounded,
    store_pixels,
)


@batch_kernel
def resample(
    pixels, numbers, control, out, images, length, height, width, red, green, blue, points_down, points_across,
    SHIFTS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BANDS: tl.constexpr = 3,
):  # fmt: skip
    """Write `out`: `pixels` where fields show them, as `distortion_loops.resample`.

    A row of `numbers`: height, width, the coefficient of a lens, the distance between control points, and for images
    of float32, which may have other BANDS, the color around them. `control`: the
    shifts of these along x and y, `points_down` x `points_across` for each image, if SHIFTS.
    """
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own = numbers + image * length
        rows, columns, lens = tl.load(own), tl.load(own + 1), tl.load(own + 2)
        at_y, at_x = (y.to(tl.float32) + 0.5)[:, None], (x.to(tl.float32) + 0.5)[None, :]
        if SHIFTS:
            spacing = tl.load(own + 3)
            limit_y, limit_x = tl.maximum(rows, 0.5) - 0.5, tl.maximum(columns, 0.5) - 0.5
            row, down = _cell_of(tl.minimum(at_y, limit_y) / spacing)
            column, across = _cell_of(tl.minimum(at_x, limit_x) / spacing)
            first = control + 2 * ((image * points_down + row) * points_across + column)
            shift_x, shift_y = tl.zeros([ROWS, COLUMNS], tl.float32), tl.zeros([ROWS, COLUMNS], tl.float32)
            for point_y in tl.static_range(4):
                for point_x in tl.static_range(4):
                    weight = _weight(down, point_y) * _weight(across, point_x)
                    shifts = first + 2 * (point_y * points_across + point_x)
                    shift_x += tl.load(shifts) * weight
                    shift_y += tl.load(shifts + 1) * weight
            at_y, at_x = at_y + shift_y, at_x + shift_x
        away_y, away_x = at_y - rows / 2, at_x - columns / 2
        part_y, part_x = away_y / tl.maximum(rows, 1.0), away_x / tl.maximum(columns, 1.0)
        squared = part_x * part_x + part_y * part_y
        further = lens * squared * (1 + squared)
        down, across = at_y + away_y * further, at_x + away_x * further
        shown = (down >= 0) & (down < rows) & (across >= 0) & (across < columns)
        top, bottom, share_y = _between(down, rows)
        left, right, share_x = _between(across, columns)
        mask = inside(y, x, rows, columns)
        over = (image * height + top) * width, (image * height + bottom) * width
        r, g, b = load_pixels(pixels, (over[0] + left) * BANDS, mask, BANDS)
        r1, g1, b1 = load_pixels(pixels, (over[0] + right) * BANDS, mask, BANDS)
        r2, g2, b2 = load_pixels(pixels, (over[1] + left) * BANDS, mask, BANDS)
        r3, g3, b3 = load_pixels(pixels, (over[1] + right) * BANDS, mask, BANDS)
        around = color_of(own, length, red, green, blue, out, BANDS)
        r = tl.where(shown, _mixed(r, r1, r2, r3, share_x, share_y), around[0])
        g = tl.where(shown, _mixed(g, g1, g2, g3, share_x, share_y), around[1])
        b = tl.where(shown, _mixed(b, b1, b2, b3, share_x, share_y), around[2])
        padding = inside(y, x, height, width) & ~mask
        offset = position(image, y, x, height, width, BANDS)
        store_pixels(out, offset, mask, rounded(r, out), rounded(g, out), rounded(b, out), BANDS)
        store_pixels(out, offset, padding, tl.zeros_like(r), tl.zeros_like(r), tl.zeros_like(r), BANDS)


@triton.jit
def _cell_of(place):
    """Return the cell of the grid that places lie in, and how far they are in it, in 0..1."""
    cell = place.to(tl.int32)
    return cell, place - cell.to(tl.float32)


@triton.jit
def _weight(part, number: tl.constexpr):
    """Return the weight of one of four control points in a cubic B-spline."""
    left = 1 - part
    if number == 0:
        return left * left * left / 6
    if number == 1:
        return (3 * part * part * (part - 2) + 4) / 6
    if number == 2:
        return (3 * left * left * (left - 2) + 4) / 6
    return part * part * part / 6


@triton.jit
def _between(place, side):
    """Return the pixels before and after places, and how far these are from the middle of one to that of the other."""
    place = tl.minimum(tl.maximum(place - 0.5, 0.0), tl.maximum(side - 1, 0.0))
    before = place.to(tl.int32)
    return before, tl.minimum(before + 1, tl.maximum(side - 1, 0.0).to(tl.int32)), place - before.to(tl.float32)


@triton.jit
def _mixed(top_left, top_right, bottom_left, bottom_right, share_x, share_y):
    top, bottom = top_left + (top_right - top_left) * share_x, bottom_left + (bottom_right - bottom_left) * share_x
    return top + (bottom - top) * share_y
