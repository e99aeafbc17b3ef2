"""Triton kernels of shadows, fog and rain over images. They change whole batches, as those of `pixel_kernels`."""

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
    rounded,
    store_pixels,
)


@batch_kernel
def add_shadows(
    out, numbers, images, length, height, width, CORNERS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BANDS: tl.constexpr = 3,
):  # fmt: skip
    """Darken polygons of `out`, which may have BANDS of float32.

    A row of `numbers`: height, width, whether the image changes, then for each polygon the fraction of the light that
    it takes, and its corners x, y.
    """
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own = numbers + image * length
        if tl.load(own + 2) > 0:
            offset, mask = position(image, y, x, height, width, BANDS), inside(y, x, height, width)
            left = tl.full([ROWS, COLUMNS], 1.0, tl.float32)
            for polygon in range((length - 3) // (1 + 2 * CORNERS)):
                share = own + 3 + polygon * (1 + 2 * CORNERS)
                left = tl.where(_in_polygon(share + 1, y, x, CORNERS), left * (1 - tl.load(share)), left)
            r, g, b = load_pixels(out, offset, mask, BANDS)
            r, g, b = rounded(r * left, out), rounded(g * left, out), rounded(b * left, out)
            store_pixels(out, offset, mask, r, g, b, BANDS)


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
    """Mix `out` with white. A row of `numbers`: height, width, whether it changes, fractions at CELLS x CELLS."""
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own = numbers + image * length
        if tl.load(own + 2) > 0:
            offset, mask = position(image, y, x, height, width), inside(y, x, tl.load(own), tl.load(own + 1))
            row, below, down = _between(y, tl.load(own), CELLS)
            column, right, across = _between(x, tl.load(own + 1), CELLS)
            over = _in_row(own + 3 + row * CELLS, column, right, across)
            under = _in_row(own + 3 + below * CELLS, column, right, across)
            share = over + (under - over) * down[:, None]
            r, g, b = load_pixels(out, offset, mask)
            r, g, b = r + (255 - r) * share, g + (255 - g) * share, b + (255 - b) * share
            store_pixels(out, offset, mask, round_to_bytes(r), round_to_bytes(g), round_to_bytes(b))


@triton.jit
def _between(pixel, side, CELLS: tl.constexpr):
    """Return the cells before and after the middles of pixels, and how far they are from one to the other."""
    place = tl.minimum(tl.maximum((pixel.to(tl.float32) + 0.5) * CELLS / tl.maximum(side, 1.0) - 0.5, 0.0), CELLS - 1.0)
    before = place.to(tl.int32)
    return before, tl.minimum(before + 1, CELLS - 1), place - before.to(tl.float32)


@triton.jit
def _in_row(row, column, right, across):
    left = tl.load(row[:, None] + column[None, :])
    return left + (tl.load(row[:, None] + right[None, :]) - left) * across[None, :]


@batch_kernel
def add_rain(
    out, numbers, images, length, height, width, red, green, blue, brightness, thickness, blur, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Add streaks to `out` as `weather_loops.add_streak`, and darken it.

    A row of `numbers`: height, width, whether the image changes, how far streaks go to the right and down, then x and y
    of their upper ends.
    """
    reach = blur / 2
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own = numbers + image * length
        if tl.load(own + 2) > 0:
            slant, down = tl.load(own + 3), tl.load(own + 4)
            half = thickness * tl.sqrt(1 + (slant / down) * (slant / down)) / 2
            middle, middle_x = y.to(tl.float32) + 0.5, x.to(tl.float32) + 0.5
            top, bottom = tl.min(middle, 0) - reach, tl.max(middle, 0) + reach
            left = tl.min(middle_x, 0) - reach - half - tl.maximum(slant, 0.0)
            right = tl.max(middle_x, 0) + reach + half - tl.minimum(slant, 0.0)
            share = tl.zeros([ROWS, COLUMNS], tl.float32)
            for streak in range((length - 5) // 2):
                begin_x, begin_y = tl.load(own + 5 + 2 * streak), tl.load(own + 6 + 2 * streak)
                if (begin_y < bottom) & (begin_y + down > top) & (begin_x > left) & (begin_x < right):
                    rows = tl.minimum(middle + reach, begin_y + down) - tl.maximum(middle - reach, begin_y)
                    center = begin_x + slant * tl.minimum(tl.maximum((middle - begin_y) / down, 0.0), 1.0)
                    columns = tl.minimum(middle_x[None, :] + reach, center[:, None] + half)
                    columns -= tl.maximum(middle_x[None, :] - reach, center[:, None] - half)
                    share += tl.maximum(columns, 0.0) * tl.maximum(rows, 0.0)[:, None]
            share = tl.minimum(share / (blur * blur), 1.0)
            positions, mask = position(image, y, x, height, width), inside(y, x, height, width)
            r, g, b = load_pixels(out, positions, mask)
            r, g = _rained(r, share * red, brightness), _rained(g, share * green, brightness)
            store_pixels(out, positions, mask, r, g, _rained(b, share * blue, brightness))


@triton.jit
def _rained(value, added, brightness):
    return round_to_bytes(tl.minimum(value + added, 255) * brightness)
