"""Triton kernels of what lies over images: shadows, fog. They change whole batches, as those of `pixel_kernels`."""

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
def add_shadows(
    out, numbers, images, length, height, width, CORNERS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Darken polygons of `out`.

    A row of `numbers`: height, width, whether the image changes, then for each polygon the share of the light that it
    takes, and its corners x, y.
    """
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own = numbers + image * length
        if tl.load(own + 2) > 0:
            at, mask = position(image, y, x, height, width), inside(y, x, height, width)
            left = tl.full([ROWS, COLUMNS], 1.0, tl.float32)
            for polygon in range((length - 3) // (1 + 2 * CORNERS)):
                share = own + 3 + polygon * (1 + 2 * CORNERS)
                left = tl.where(_in_polygon(share + 1, y, x, CORNERS), left * (1 - tl.load(share)), left)
            r, g, b = load_pixels(out, at, mask)
            store_pixels(out, at, mask, round_to_bytes(r * left), round_to_bytes(g * left), round_to_bytes(b * left))


@triton.jit
def _in_polygon(corners, y, x, CORNERS: tl.constexpr):
    """Return whether the middles of pixels are in a polygon: an odd number of sides is left of them."""
    middle, across = y.to(tl.float32)[:, None] + 0.5, x.to(tl.float32)[None, :] + 0.5
    odd = (middle + across) < 0
    x0, y0 = tl.load(corners + 2 * CORNERS - 2), tl.load(corners + 2 * CORNERS - 1)
    for side in range(CORNERS):
        x1, y1 = tl.load(corners + 2 * side), tl.load(corners + 2 * side + 1)
        crosses = (y0 <= middle) != (y1 <= middle)
        crossing = x0 + (middle - y0) * (x1 - x0) / tl.where(y0 == y1, 1.0, y1 - y0)
        odd = odd ^ (crosses & (crossing <= across))
        x0, y0 = x1, y1
    return odd


@batch_kernel
def add_fog(
    out, numbers, images, length, height, width, CELLS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Mix `out` with white. A row of `numbers`: height, width, whether the image changes, shares at CELLS x CELLS."""
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own = numbers + image * length
        if tl.load(own + 2) > 0:
            at, mask = position(image, y, x, height, width), inside(y, x, tl.load(own), tl.load(own + 1))
            row, below, down = _between(y, tl.load(own), CELLS)
            column, right, across = _between(x, tl.load(own + 1), CELLS)
            over = _in_row(own + 3 + row * CELLS, column, right, across)
            under = _in_row(own + 3 + below * CELLS, column, right, across)
            share = over + (under - over) * down[:, None]
            r, g, b = load_pixels(out, at, mask)
            r, g, b = r + (255 - r) * share, g + (255 - g) * share, b + (255 - b) * share
            store_pixels(out, at, mask, round_to_bytes(r), round_to_bytes(g), round_to_bytes(b))


@triton.jit
def _between(at, side, CELLS: tl.constexpr):
    """Return the cells before and after the middles of pixels, and how far they are from one to the other."""
    place = tl.minimum(tl.maximum((at.to(tl.float32) + 0.5) * CELLS / tl.maximum(side, 1.0) - 0.5, 0.0), CELLS - 1.0)
    before = place.to(tl.int32)
    return before, tl.minimum(before + 1, CELLS - 1), place - before.to(tl.float32)


@triton.jit
def _in_row(row, column, right, across):
    left = tl.load(row[:, None] + column[None, :])
    return left + (tl.load(row[:, None] + right[None, :]) - left) * across[None, :]
