"""Triton kernels that resample images through fields. They change whole batches, as those of `pixel_kernels`."""

from __future__ import annotations

import triton
import triton.language as tl

from detaug.gpu.triton_blocks import (
    batch_kernel,
    block_of,
    blocks,
    inside,
    load_pixels,
    position,
    round_to_bytes,
    store_pixels,
)


@batch_kernel
def resample(
    pixels, numbers, out, images, length, height, width, red, green, blue, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Write `out`: `pixels` where fields show them, as `distortion_loops.resample`.

    A row of `numbers`: height, width, and the coefficient of a lens.
    """
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own = numbers + image * length
        rows, columns, lens = tl.load(own), tl.load(own + 1), tl.load(own + 2)
        at_y, at_x = (y.to(tl.float32) + 0.5)[:, None], (x.to(tl.float32) + 0.5)[None, :]
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
        r, g, b = load_pixels(pixels, (over[0] + left) * 3, mask)
        r1, g1, b1 = load_pixels(pixels, (over[0] + right) * 3, mask)
        r2, g2, b2 = load_pixels(pixels, (over[1] + left) * 3, mask)
        r3, g3, b3 = load_pixels(pixels, (over[1] + right) * 3, mask)
        r = tl.where(shown, _mixed(r, r1, r2, r3, share_x, share_y), red)
        g = tl.where(shown, _mixed(g, g1, g2, g3, share_x, share_y), green)
        b = tl.where(shown, _mixed(b, b1, b2, b3, share_x, share_y), blue)
        padding = inside(y, x, height, width) & ~mask
        at = position(image, y, x, height, width)
        store_pixels(out, at, mask, round_to_bytes(r), round_to_bytes(g), round_to_bytes(b))
        store_pixels(out, at, padding, tl.zeros_like(r), tl.zeros_like(r), tl.zeros_like(r))


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
