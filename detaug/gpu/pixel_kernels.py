"""Triton kernels of the ops that the fused kernel does not know: tables, filters, noise, rectangles.

They change whole batches of rendered images, (N, H, W, 3) uint8, in which an image fills the top left of (H, W). Those
with BANDS also take (N, H, W, BANDS) float32. Each has a row of numbers for every image that says what happens to it;
the size of the image is at its start.
"""

from __future__ import annotations

import triton
import triton.language as tl

from detaug.gpu.pixel_changes import KINDS
from detaug.gpu.triton_blocks import (
    bands_of,
    batch_kernel,
    block_of,
    blocks,
    color_of,
    inside,
    load_pixels,
    map_channel,
    position,
    reflected,
    round_to_bytes,
    rounded,
    store_pixels,
)

LEVELS = 256
"""Values of a byte."""

_, _LINEAR, _FILTER, _POSTERIZE, _SOLARIZE, _AUTOCONTRAST, _EQUALIZE, _GAMMA = map(tl.constexpr, KINDS)
_LEVELS = tl.constexpr(LEVELS)


# --------------------------------------------------------------------------------- colors and filters


@batch_kernel
def count_levels(
    source, numbers, counts, images, length, height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Add to `counts`, (images, 3, 256) int32, how many pixels have each level, for images that need tables."""
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own = numbers + image * length
        if tl.load(own + 2) >= _AUTOCONTRAST:
            offset, counted = position(image, y, x, height, width), inside(y, x, tl.load(own), tl.load(own + 1))
            beside = ROWS * COLUMNS - tl.sum(tl.sum(counted.to(tl.int32), 1), 0)  # they count as level 0
            level = tl.arange(0, _LEVELS)
            for number in range(3):
                value = tl.load(source + offset + number, counted, 0).to(tl.int32)
                count = tl.histogram(tl.reshape(value, [ROWS * COLUMNS]), _LEVELS)
                count -= tl.where(level == 0, beside, 0)
                tl.atomic_add(counts + (image * 3 + number) * _LEVELS + level, count, count > 0)


@batch_kernel
def make_tables(numbers, counts, tables, length):
    """Write `tables`, (images, 3, 256) uint8: the new value of each level of a channel. A program for each table."""
    table = tl.program_id(0)
    level, count = tl.arange(0, _LEVELS), tl.load(counts + table * _LEVELS + tl.arange(0, _LEVELS))
    first = tl.min(tl.where(count > 0, level, _LEVELS - 1), 0)
    last = tl.max(tl.where(count > 0, level, 0), 0)
    if tl.load(numbers + table // 3 * length + 2) == _EQUALIZE:
        before = tl.sum(tl.where(level == first, count, 0), 0)
        below, above = tl.cumsum(count, 0) - before, tl.sum(count, 0) - before
    else:
        below, above = level - first, last - first
    value = round_to_bytes(below.to(tl.float32) * (255.0 / tl.maximum(above, 1).to(tl.float32)))
    tl.store(tables + table * _LEVELS + level, tl.where(first < last, value, level.to(tl.float32)).to(tl.uint8))


@batch_kernel
def change(
    source, numbers, tables, out, images, length, height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BANDS: tl.constexpr = 3,
):  # fmt: skip
    """Write `out`: a linear map of colors, a filter of 3 x 3, fewer bits, inverted highlights, a power, or tables.

    A row of `numbers` has the image's height and width, the kind, and 12 numbers that depend on it. `tables`: see
    `make_tables`. Of images of float32 only the power changes: a number, and the value that counts as 1.
    """
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own = numbers + image * length
        kind, parameters = tl.load(own + 2), own + 3
        offset, mask = position(image, y, x, height, width, BANDS), inside(y, x, height, width)
        r, g, b = load_pixels(source, offset, mask, BANDS)
        if out.dtype.element_ty != tl.uint8:
            if kind == _GAMMA:
                r, g, b = _share_to_power(r, parameters), _share_to_power(g, parameters), _share_to_power(b, parameters)
        elif kind == _LINEAR:
            r, g, b = (
                map_channel(parameters, r, g, b),
                map_channel(parameters + 4, r, g, b),
                map_channel(parameters + 8, r, g, b),
            )
        elif kind == _FILTER:
            r, g, b = _filtered(source, own, parameters, image, y, x, height, width)
        elif kind == _POSTERIZE:
            r, g, b = _posterized(r, parameters), _posterized(g, parameters), _posterized(b, parameters)
        elif kind == _SOLARIZE:
            r, g, b = _solarized(r, parameters), _solarized(g, parameters), _solarized(b, parameters)
        elif kind == _GAMMA:
            r, g, b = _to_power(r, parameters), _to_power(g, parameters), _to_power(b, parameters)
        elif kind >= _AUTOCONTRAST:
            own_tables = tables + image * 3 * _LEVELS
            r, g, b = _of(own_tables, r), _of(own_tables + _LEVELS, g), _of(own_tables + 2 * _LEVELS, b)
        store_pixels(out, offset, mask, r, g, b, BANDS)


@triton.jit
def _posterized(value, mask):
    return (value.to(tl.int32) & tl.load(mask).to(tl.int32)).to(tl.float32)


@triton.jit
def _solarized(value, threshold):
    return tl.where(value >= tl.load(threshold), 255 - value, value)


@triton.jit
def _to_power(value, power):
    share = tl.exp(tl.load(power) * tl.log(tl.maximum(value, 1.0) / 255.0))
    return tl.where(value > 0, round_to_bytes(255.0 * share), value)


@triton.jit
def _share_to_power(value, parameters):
    """Raise a value above 0, as a fraction of the second given number, to the power of the first."""
    white = tl.load(parameters + 1)
    return tl.where(
        value > 0, tl.exp(tl.load(parameters) * tl.log(tl.where(value > 0, value, 1.0) / white)) * white, value
    )


@triton.jit
def _of(table, value):
    return tl.load(table + value.to(tl.int32)).to(tl.float32)


@triton.jit
def _filtered(source, own, factors, image, y, x, height, width):
    """Return R, G and B after a filter of 3 x 3 pixels; beyond the border the image is reflected."""
    mask = inside(y, x, height, width)
    r = tl.zeros(mask.shape, tl.float32)
    g, b = r, r
    for down in range(3):
        for across in range(3):
            line = reflected(y + down - 1, tl.load(own).to(tl.int32))
            column = reflected(x + across - 1, tl.load(own + 1).to(tl.int32))
            red, green, blue = load_pixels(source, position(image, line, column, height, width), mask)
            factor = tl.load(factors + 3 * down + across)
            r, g, b = r + factor * red, g + factor * green, b + factor * blue
    return round_to_bytes(r), round_to_bytes(g), round_to_bytes(b)


@batch_kernel
def blur(
    source, numbers, out, images, length, height, width, DOWN: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BANDS: tl.constexpr = 3,
):  # fmt: skip
    """Write `out`: blurred along one axis. A row of `numbers`: height, width, the filter's reach in pixels, sigma."""
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own = numbers + image * length
        reach, sigma = tl.load(own + 2).to(tl.int32), tl.load(own + 3)
        mask = inside(y, x, height, width)
        r = tl.zeros(mask.shape, tl.float32)
        g, b, total = r, r, 0.0
        for step in range(2 * reach + 1):
            away = step - reach
            weight = tl.exp(-0.5 * (away * away).to(tl.float32) / (sigma * sigma))
            line = reflected(y + away, tl.load(own).to(tl.int32)) if DOWN else y
            column = x if DOWN else reflected(x + away, tl.load(own + 1).to(tl.int32))
            red, green, blue = load_pixels(source, position(image, line, column, height, width, BANDS), mask, BANDS)
            r, g, b, total = r + weight * red, g + weight * green, b + weight * blue, total + weight
        r, g, b = r / total, g / total, b / total
        r, g, b = rounded(r, out), rounded(g, out), rounded(b, out)
        store_pixels(out, position(image, y, x, height, width, BANDS), mask, r, g, b, BANDS)


@batch_kernel
def convolve(
    source, numbers, out, images, length, height, width, SIDE: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BANDS: tl.constexpr = 3,
):  # fmt: skip
    """Write `out`: filtered by a kernel of SIDE x SIDE numbers. Beyond the border the image is reflected.

    A row of `numbers`: height, width, the kernel's reach in pixels (0: the image stays), and the kernel.
    """
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own, mask = numbers + image * length, inside(y, x, height, width)
        offset, reach = position(image, y, x, height, width, BANDS), tl.load(own + 2).to(tl.int32)
        r, g, b = load_pixels(source, offset, mask, BANDS)
        if reach > 0:
            r, g, b = r * 0, g * 0, b * 0
            for down in range(-reach, reach + 1):
                line = reflected(y + down, tl.load(own).to(tl.int32))
                for across in range(-reach, reach + 1):
                    column = reflected(x + across, tl.load(own + 1).to(tl.int32))
                    source_offset = position(image, line, column, height, width, BANDS)
                    red, green, blue = load_pixels(source, source_offset, mask, BANDS)
                    factor = tl.load(own + 3 + (SIDE // 2 + down) * SIDE + SIDE // 2 + across)
                    r, g, b = r + factor * red, g + factor * green, b + factor * blue
        store_pixels(out, offset, mask, rounded(r, out), rounded(g, out), rounded(b, out), BANDS)


@batch_kernel
def take_median(
    source, numbers, out, images, length, height, width, REACH: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Write `out`: the median of each value's square. Beyond the border the outermost pixels repeat.

    A row of `numbers`: height, width, whether the image changes. The median's bits are found from the highest on: a bit
    is set if at most half of the values are below the number with it.
    """
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own, mask = numbers + image * length, inside(y, x, height, width)
        offset = position(image, y, x, height, width)
        r, g, b = load_pixels(source, offset, mask)
        if tl.load(own + 2) > 0:
            last_line, last_column = tl.load(own).to(tl.int32) - 1, tl.load(own + 1).to(tl.int32) - 1
            half = (2 * REACH + 1) * (2 * REACH + 1) // 2
            r, g, b = r * 0, g * 0, b * 0
            bit = 128.0
            for _ in range(8):
                below_r, below_g, below_b = r * 0, g * 0, b * 0
                for down in range(-REACH, REACH + 1):
                    line = tl.minimum(tl.maximum(y + down, 0), last_line)
                    for across in range(-REACH, REACH + 1):
                        column = tl.minimum(tl.maximum(x + across, 0), last_column)
                        red, green, blue = load_pixels(source, position(image, line, column, height, width), mask)
                        below_r += (red < r + bit).to(tl.float32)
                        below_g += (green < g + bit).to(tl.float32)
                        below_b += (blue < b + bit).to(tl.float32)
                r = tl.where(below_r <= half, r + bit, r)
                g = tl.where(below_g <= half, g + bit, g)
                b = tl.where(below_b <= half, b + bit, b)
                bit = bit / 2
        store_pixels(out, offset, mask, r, g, b)


@batch_kernel
def coarsen(
    source, numbers, out, images, length, height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BANDS: tl.constexpr = 3,
):  # fmt: skip
    """Write `out`: each pixel from a coarser grid. A row of `numbers`: height, width, whether it changes, the grid."""
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own, mask = numbers + image * length, inside(y, x, height, width)
        line, column = y, x
        if tl.load(own + 2) > 0:
            line, column = _picked(y, tl.load(own), tl.load(own + 3)), _picked(x, tl.load(own + 1), tl.load(own + 4))
        r, g, b = load_pixels(source, position(image, line, column, height, width, BANDS), mask, BANDS)
        store_pixels(out, position(image, y, x, height, width, BANDS), mask, r, g, b, BANDS)


@triton.jit
def _picked(pixel, side, coarse):
    """Return where the pixel in a coarse grid came from that a pixel lies in."""
    side, coarse = tl.maximum(side.to(tl.int32), 1), coarse.to(tl.int32)
    cell = (
        (2 * tl.minimum(pixel, side - 1) + 1) * coarse // (2 * side)
    )  # whole numbers: a middle may be between two pixels
    return (2 * cell + 1) * side // (2 * coarse)


# ----------------------------------------------------------------------------------------------- noise


@batch_kernel
def add_noise(
    source, numbers, seeds, out, images, length, height, width, SALT: tl.constexpr, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr, BANDS: tl.constexpr = 3,
):  # fmt: skip
    """Write `out`: with Gaussian noise, or with SALT and pepper.

    A row of `numbers`: height, width, whether the image changes, then mean and standard deviation, or the fraction of
    the pixels that change, and white. `seeds`: (images, 2) int32, the bits of uint32, of which salt takes the first.
    The noise is that of detaug/ops/noise.py.
    """
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own, seed = numbers + image * length, seeds + 2 * image
        offset, mask = position(image, y, x, height, width, BANDS), inside(y, x, height, width)
        r, g, b = load_pixels(source, offset, mask, BANDS)
        if tl.load(own + 2) > 0:
            if SALT:
                number, half = _uniform(_bits(seed, y, x, 0)), tl.load(own + 3) / 2
                white = 255.0 if out.dtype.element_ty == tl.uint8 else tl.load(own + 4)
                r, g = _salted(r, number, half, white), _salted(g, number, half, white)
                b = _salted(b, number, half, white)
            else:
                first, second, third = bands_of(BANDS)
                r, g = _noisy(r, own, seed, y, x, first, out), _noisy(g, own, seed, y, x, second, out)
                b = _noisy(b, own, seed, y, x, third, out)
        store_pixels(out, offset, mask, r, g, b, BANDS)


@triton.jit
def _noisy(value, own, seed, y, x, number, out):
    """Return a channel with noise (Box, Muller 1958)."""
    first, second = _uniform(_bits(seed, y, x, number)), _uniform(_bits(seed + 1, y, x, number))
    normal = tl.sqrt(-2.0 * tl.log(first)) * tl.cos(second * 6.283185307179586)
    return rounded(value + tl.load(own + 3) + tl.load(own + 4) * normal, out)


@triton.jit
def _salted(value, number, half, white):
    return tl.where(number < half, 0.0, tl.where(number > 1 - half, white, value))


@triton.jit
def _bits(seed, y, x, number):
    """Return random bits of pixels, uint32."""
    bits = y.to(tl.uint32)[:, None] * 0x9E3779B1 + x.to(tl.uint32)[None, :] * 0x85EBCA77
    bits += tl.full([1, 1], number, tl.uint32) * 0xC2B2AE3D + tl.load(seed).to(tl.uint32, bitcast=True)
    bits = (bits ^ (bits >> 16)) * 0x21F0AAAD
    bits = (bits ^ (bits >> 15)) * 0x735A2D97
    return bits ^ (bits >> 15)


@triton.jit
def _uniform(bits):
    # above 0, which has no logarithm
    return ((bits >> 8).to(tl.int32).to(tl.float32) + 1.0) * (1.0 / (1 << 24))


# ------------------------------------------------------------------------------------------ rectangles


@batch_kernel
def fill_rectangles(
    out, numbers, images, length, height, width, red, green, blue, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
    BANDS: tl.constexpr = 3,
):  # fmt: skip
    """Fill rectangles of `out` with a color. A row of `numbers`: corners (y, x) of all, then their heights, widths.

    For images of float32 it has the color at its end.
    """
    beside = 0 if out.dtype.element_ty == tl.uint8 else BANDS
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own, covered = numbers + image * length, tl.zeros([ROWS, COLUMNS], tl.int32)
        for number in range((length - beside) // 4):
            corner, sides = own + 2 * number, own + (length - beside) // 2 + 2 * number
            down, across = y - tl.load(corner), x - tl.load(corner + 1)
            rows, columns = (down >= 0) & (down < tl.load(sides)), (across >= 0) & (across < tl.load(sides + 1))
            covered |= (rows[:, None] & columns[None, :]).to(tl.int32)
        mask = inside(y, x, height, width) & (covered > 0)
        value = tl.zeros(mask.shape, tl.float32)
        offset = position(image, y, x, height, width, BANDS)
        r, g, b = color_of(own, length, red, green, blue, out, BANDS)
        store_pixels(out, offset, mask, value + r, value + g, value + b, BANDS)
