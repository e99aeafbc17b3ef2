"""Triton kernels of CLAHE: tables of tiles, and images through them, as OpenCV has them for 8-bit colors.

Integers are OpenCV's, and so are float32 numbers if products and sums are not fused: no pixel differs.
Sources: Zuiderveld 1994; OpenCV, modules/imgproc/src/clahe.cpp and color_lab.cpp.

A row of `numbers`: height and width of the image, whether it changes, height and width of a tile, the most pixels that
a level may have in a tile, 1 / height and 1 / width of a tile, 255 / its pixels.
`colors`: `cielab_tables.color_tables`.
"""

from __future__ import annotations

import triton
import triton.language as tl

from detaug.gpu import cielab_tables
from detaug.gpu.triton_blocks import batch_kernel, block_of, blocks, inside, position, reflected

LEVELS = 256
"""Values of a lightness."""
PIXELS = 1024
"""Pixels of a tile that a program counts at once."""

_LEVELS = tl.constexpr(LEVELS)
_LINEAR = tl.constexpr(cielab_tables.LINEAR)
_ROOTS = tl.constexpr(cielab_tables.ROOTS)
_GAMMA = tl.constexpr(cielab_tables.GAMMA)
_LUMINANCE = tl.constexpr(cielab_tables.LUMINANCE)
_ROOT_OF_LIGHTNESS = tl.constexpr(cielab_tables.ROOT_OF_LIGHTNESS)
_XR, _XG, _XB, _YR, _YG, _YB, _ZR, _ZG, _ZB = map(tl.constexpr, cielab_tables.RGB_TO_XYZ)
_RX, _RY, _RZ, _GX, _GY, _GZ, _BX, _BY, _BZ = map(tl.constexpr, cielab_tables.XYZ_TO_RGB)


# ---------------------------------------------------------------------------------------------- tables


@batch_kernel
def make_tables(source, numbers, colors, tables, length, height, width, rows, columns, PIXELS: tl.constexpr):
    """Write `tables`, (images, rows * columns, 256) uint8: the new lightness of each. A program for each tile."""
    table = tl.program_id(0)
    image, tile = (table // (rows * columns)).to(tl.int64), table % (rows * columns)
    own = numbers + image * length
    if tl.load(own + 2) > 0:
        down, across = tl.load(own + 3).to(tl.int32), tl.load(own + 4).to(tl.int32)
        start = source + image * height * width * 3
        top, left = tile // columns * down, tile % columns * across
        count = tl.zeros([_LEVELS], tl.int32)
        for begin in range(0, down * across, PIXELS):
            pixel = begin + tl.arange(0, PIXELS)
            count += _counts(
                start, own, colors, top + pixel // across, left + pixel % across, width, pixel < down * across
            )
        count = _clipped(count, tl.load(own + 5).to(tl.int32))
        value = _round_to_even(tl.cumsum(count, 0).to(tl.float32) * tl.load(own + 8))
        tl.store(tables + table.to(tl.int64) * _LEVELS + tl.arange(0, _LEVELS), value.to(tl.uint8))


@triton.jit
def _counts(start, own, colors, y, x, width, counted):
    """Return how many pixels have each lightness; beyond the border the image is reflected."""
    y, x = reflected(y, tl.load(own).to(tl.int32)), reflected(x, tl.load(own + 1).to(tl.int32))
    r, g, b = _linear(start, colors, (y.to(tl.int64) * width + x) * 3, counted)
    lightness = tl.where(counted, _lightness(_root(colors, r, g, b, _YR, _YG, _YB)), 0)
    beside = tl.sum(1 - counted.to(tl.int32), 0)  # they count as level 0
    return tl.histogram(lightness, _LEVELS) - tl.where(tl.arange(0, _LEVELS) == 0, beside, 0)


@triton.jit
def _clipped(count, limit):
    """Return counts of at most `limit`, after which all levels get equal parts of the rest.

    What is left of the rest goes to single levels at equal distances.
    """
    level = tl.arange(0, _LEVELS)
    rest = tl.sum(tl.maximum(count - limit, 0), 0)
    single = rest % _LEVELS
    distance = _LEVELS // tl.maximum(single, 1)
    gets_one = (level % distance == 0) & (level // distance < single)
    return tl.minimum(count, limit) + rest // _LEVELS + gets_one.to(tl.int32)


@triton.jit
def _round_to_even(value):
    """Round numbers in 0..255, halves to the even one; that far from 0, float32 has whole numbers only."""
    return (value + 12582912.0) - 12582912.0


# ---------------------------------------------------------------------------------------------- images


@batch_kernel
def equalize(
    out, numbers, colors, tables, images, length, height, width, rows, columns, ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
):  # fmt: skip
    """Change the lightness of `out` by the tables of the four tiles around each pixel, mixed by its distances."""
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, y, x = block_of(block, height, width, ROWS, COLUMNS)
        own = numbers + image * length
        if tl.load(own + 2) > 0:
            offset, mask = position(image, y, x, height, width), inside(y, x, tl.load(own), tl.load(own + 1))
            r, g, b = _linear(out, colors, offset, mask)
            root_x, root_y = _root(colors, r, g, b, _XR, _XG, _XB), _root(colors, r, g, b, _YR, _YG, _YB)
            root_z = _root(colors, r, g, b, _ZR, _ZG, _ZB)
            lightness = _mixed(tables + image * rows * columns * _LEVELS, own, y, x, _lightness(root_y), rows, columns)
            a = _to_byte(500 * (root_x - root_y) + 128 * 32768)
            b = _to_byte(200 * (root_y - root_z) + 128 * 32768)
            _store_lab(out, colors, offset, mask, lightness, a, b)


@triton.jit
def _mixed(tables, own, y, x, lightness, rows, columns):
    """Return the lightness after the tables of four tiles, bilinearly between their middles."""
    above, below, down = _neighbors(y, tl.load(own + 6), rows)
    left, right, across = _neighbors(x, tl.load(own + 7), columns)
    above, below, down = above[:, None] * columns, below[:, None] * columns, down[:, None]
    left, right, across = left[None, :], right[None, :], across[None, :]
    upper = _of(tables, above + left, lightness) * (1 - across) + _of(tables, above + right, lightness) * across
    lower = _of(tables, below + left, lightness) * (1 - across) + _of(tables, below + right, lightness) * across
    return _round_to_even(upper * (1 - down) + lower * down).to(tl.int32)


@triton.jit
def _neighbors(pixel, per_pixel, tiles):
    """Return the tiles before and after positions along an axis, and the fraction of the second one."""
    place = pixel.to(tl.float32) * per_pixel - 0.5
    before = tl.floor(place)
    share, before = place - before, before.to(tl.int32)
    return tl.minimum(tl.maximum(before, 0), tiles - 1), tl.minimum(before + 1, tiles - 1), share


@triton.jit
def _of(tables, tile, lightness):
    return tl.load(tables + tile * _LEVELS + lightness).to(tl.float32)


# --------------------------------------------------------------------------------------------- colors


@triton.jit
def _linear(start, colors, offset, mask):
    """Return linear R, G and B in 1/2040."""
    r, g, b = (
        tl.load(start + offset, mask, 0),
        tl.load(start + offset + 1, mask, 0),
        tl.load(start + offset + 2, mask, 0),
    )
    table = colors + _LINEAR
    return tl.load(table + r.to(tl.int32)), tl.load(table + g.to(tl.int32)), tl.load(table + b.to(tl.int32))


@triton.jit
def _root(colors, r, g, b, red, green, blue):
    """Return the cube root, in 1/32768, of X, Y or Z, of which white has 1."""
    return tl.load(colors + _ROOTS + (r * red + g * green + b * blue + 2048 >> 12))


@triton.jit
def _lightness(root):
    """Return 116 * root - 16 in 0..255 instead of 0..100, from a root in 1/32768."""
    return _to_byte(296 * root - 1336934)


@triton.jit
def _to_byte(value):
    """Round numbers in 1/32768, and clip them to 0..255."""
    return tl.minimum(tl.maximum(value + 16384 >> 15, 0), 255)


@triton.jit
def _store_lab(out, colors, offset, mask, lightness, a, b):
    """Write colors as R, G and B."""
    root, y = tl.load(colors + _ROOT_OF_LIGHTNESS + lightness), tl.load(colors + _LUMINANCE + lightness)
    x = _cube(root + (5 * a * 53687 + 128 >> 13) - 4194)  # a / 500 and b / 200, in 1/16384
    z = _cube(root - (b * 41943 + 16 >> 9) + 10484)
    _store_channel(out + offset, colors, mask, x * _RX + y * _RY + z * _RZ)
    _store_channel(out + offset + 1, colors, mask, x * _GX + y * _GY + z * _GZ)
    _store_channel(out + offset + 2, colors, mask, x * _BX + y * _BY + z * _BZ)


@triton.jit
def _cube(root):
    """Return X or Z of its root, both in 1/16384; of a small root a line."""
    line = tl.abs(root) * 108 // 841  # cut off towards 0
    line = tl.where(root < 0, -line, line) - 290
    return tl.where(root <= 3390, line, (root * root >> 14) * root >> 14)


@triton.jit
def _store_channel(to, colors, mask, linear):
    """Write a channel from its linear values in 1/4096, in 1/16384."""
    level = tl.minimum(tl.maximum(linear + 8192 >> 14, 0), 4095)
    tl.store(to, tl.load(colors + _GAMMA + level).to(tl.uint8), mask)
