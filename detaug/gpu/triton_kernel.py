"""Triton's kernel: a window of each image resized, its colours mapped and normalised, in one pass over the output."""

from __future__ import annotations

import numpy as np
import triton
import triton.language as tl

ROW = np.dtype(
    [
        ("region", "f4", (5, 2)),  # (y, x): two corners of the window, its output size, -offset, the image's size
        ("shown", "f4", (2, 2)),  # (y, x): the corners of what this part shows of it, in the output
        ("size", "f4", 2),  # (height, width) of the source
        ("fill", "f4", 3),
        ("color", "f4", (3, 4)),
        ("mean", "f4", 3),
        ("scale", "f4", 3),  # 1 / std
        ("offset", "i8"),  # where the source's (height, width, 3) bytes begin; the last
    ],
    align=True,
)
"""What the kernel is told of a part of an image. The window is mirrored where its second corner comes first."""

# in numbers of 4 bytes, two of which are an offset
LENGTH = tl.constexpr(ROW.itemsize // 4)
SHOWN, SIZE, FILL, COLOR, MEAN, SCALE, OFFSET = (
    tl.constexpr(ROW.fields[name][1] // 4)  # type: ignore[index]
    for name in ("shown", "size", "fill", "color", "mean", "scale", "offset")
)


@triton.jit(do_not_specialize=["images", "height", "image_stride"])  # for them alone it would be built once more
def paint(
    sources, table, offsets, out, images, parts, height, width,
    image_stride, channel_stride, row_stride, pixel_stride, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """`out`, (images, 3, height, width), in tiles of ROWS x COLUMNS pixels, of which each program takes several.

    `sources`: the bytes of all sources. `table`: a `ROW` for each of the parts of each image, later ones over earlier
    ones, as float32; `offsets`: the same as int64. Colour, mean and scale are the first part's.
    """
    down, across = tl.cdiv(height, ROWS), tl.cdiv(width, COLUMNS)
    for tile in range(tl.program_id(0), images * down * across, tl.num_programs(0)):
        image, y, x = (tile // (down * across)).to(tl.int64), tile // across % down * ROWS, tile % across * COLUMNS
        y, x = y + tl.arange(0, ROWS), x + tl.arange(0, COLUMNS)
        first = image * parts * LENGTH
        r = tl.zeros([ROWS, COLUMNS], tl.float32)
        g, b = r, r
        for part in range(parts):
            at = first + part * LENGTH
            source = sources + tl.load(offsets + (at + OFFSET) // 2)
            r, g, b = _with_part(table + at, source, y, x, r, g, b)
        row = table + first
        in_image = (y < tl.load(row + 8))[:, None] & (x < tl.load(row + 9))[None, :]
        there = (y < height)[:, None] & (x < width)[None, :]
        to = out + image * image_stride + y[:, None] * row_stride + x[None, :] * pixel_stride
        for channel in tl.static_range(3):
            mapped = _mapped(row + COLOR + 4 * channel, r, g, b)
            value = (mapped - tl.load(row + MEAN + channel)) * tl.load(row + SCALE + channel)
            tl.store(to + channel * channel_stride, tl.where(in_image, value, 0.0).to(out.dtype.element_ty), there)


@triton.jit
def _with_part(row, source, y, x, r, g, b):
    """R, G and B with this part over them: its window of the source, and the fill beside that."""
    middle_y, reach_y, in_window_y, shown_y = _axis(row, y)
    middle_x, reach_x, in_window_x, shown_x = _axis(row + 1, x)
    in_window, shown = in_window_y[:, None] & in_window_x[None, :], shown_y[:, None] & shown_x[None, :]
    red, green, blue = _resized(source, row, middle_y, reach_y, middle_x, reach_x, in_window & shown)
    r = tl.where(shown, tl.where(in_window, red, tl.load(row + FILL)), r)
    g = tl.where(shown, tl.where(in_window, green, tl.load(row + FILL + 1)), g)
    b = tl.where(shown, tl.where(in_window, blue, tl.load(row + FILL + 2)), b)
    return r, g, b


@triton.jit
def _axis(row, at):
    """Along one axis, for output pixels `at`: the middle of each in the source; how far the filter reaches from there;
    does the window show it; does the part?
    """
    first, length, in_window = tl.load(row), tl.load(row + 4), at + tl.load(row + 6)
    step = (tl.load(row + 2) - first) / length
    middle, reach = first + (in_window + 0.5) * step, tl.maximum(tl.abs(step), 1.0)
    shown = (at >= tl.load(row + SHOWN)) & (at < tl.load(row + SHOWN + 2))
    return middle, reach, (in_window >= 0) & (in_window < length), shown


@triton.jit
def _resized(source, row, middle_y, reach_y, middle_x, reach_x, wanted):
    """R, G and B in whole numbers: means of the window weighed by a triangle, of two pixels of source or output."""
    top, bottom = _window(row, tl.load(row + SIZE))
    left, right = _window(row + 1, tl.load(row + SIZE + 1))
    stride = tl.load(row + SIZE + 1).to(tl.int32)
    first_y, first_x = _first_tap(middle_y, reach_y), _first_tap(middle_x, reach_x)
    rows = tl.ceil(2 * reach_y).to(tl.int32) * tl.max(tl.max(wanted.to(tl.int32), 1), 0)  # none where none is wanted
    columns = tl.ceil(2 * reach_x).to(tl.int32)
    r = tl.zeros(wanted.shape, tl.float32)
    g, b, total_y, total_x = r, r, middle_y * 0, middle_x * 0
    for j in range(columns):
        total_x += _weight(first_x + j, middle_x, reach_x, left, right)
    for i in range(rows):
        weight_y = _weight(first_y + i, middle_y, reach_y, top, bottom)
        total_y += weight_y
        line = _inside(first_y + i, top, bottom) * stride
        for j in range(columns):
            weight = weight_y[:, None] * _weight(first_x + j, middle_x, reach_x, left, right)[None, :]
            pixel = source + (line[:, None] + _inside(first_x + j, left, right)[None, :]) * 3
            r += weight * tl.load(pixel).to(tl.float32)
            g += weight * tl.load(pixel + 1).to(tl.float32)
            b += weight * tl.load(pixel + 2).to(tl.float32)
    share = 1 / tl.maximum(total_y[:, None] * total_x[None, :], 1e-9)
    return _whole(r * share), _whole(g * share), _whole(b * share)


@triton.jit
def _window(row, side):
    """The first source pixel of it and the one behind its last, in an image of `side` pixels."""
    one, other = tl.load(row), tl.load(row + 2)
    low = tl.minimum(tl.maximum(tl.floor(tl.minimum(one, other)), 0.0), side - 1)
    high = tl.minimum(tl.maximum(tl.ceil(tl.maximum(one, other)), low + 1), side)
    return low.to(tl.int32), high.to(tl.int32)


@triton.jit
def _first_tap(middle, reach):
    return tl.floor(middle - reach + 0.5).to(tl.int32)


@triton.jit
def _weight(tap, middle, reach, low, high):
    """Of a source pixel; 0 for one that is not in the window."""
    return tl.where((tap >= low) & (tap < high), tl.maximum(reach - tl.abs(tap + 0.5 - middle), 0.0), 0.0)


@triton.jit
def _inside(tap, low, high):
    return tl.minimum(tl.maximum(tap, low), high - 1)


@triton.jit
def _mapped(color, r, g, b):
    red, green, blue, added = tl.load(color), tl.load(color + 1), tl.load(color + 2), tl.load(color + 3)
    return _whole(red * r + green * g + blue * b + added)


@triton.jit
def _whole(value):
    """Rounded, and clipped to 0..255."""
    return tl.minimum(tl.maximum(tl.floor(value + 0.5), 0.0), 255.0)
