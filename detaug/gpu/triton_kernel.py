"""The Triton kernel: crop, resize, paste, change colors and normalize, in one pass over the output.

Each program renders blocks of output pixels. For every pixel it goes backwards: through the tiles of the image, the
last one on top, to the place in the source, and takes a weighted mean there. The filter is a triangle, two pixels of
the source or of the output wide, whichever are larger: linear interpolation that is antialiased when the image shrinks.
Source pixels outside of the region have no weight, as if the image had been cropped first. Nothing is stored in
between, so the pixels are read once and written once. Contrast needs the mean gray of an image before, which a pass of
its own computes: it renders those images that change their contrast, up to that step.

Sources of float32 with BANDS are rendered three bands at a time, see `triton_blocks`: unrounded, without colors, and
at places in double precision, so that flips and crops of whole pixels keep every value. A pixel of weight 0 adds
nothing, even if it is NaN.
"""

from __future__ import annotations

from functools import cache

import numpy as np
import triton
import triton.language as tl

from detaug.gpu import color_steps
from detaug.gpu.triton_blocks import (
    bands_of,
    batch_kernel,
    blocks,
    corner_of,
    inside,
    load_pixels,
    map_channel,
    masks_of_others,
    position,
    rounded,
)

LOWEST_ADDRESS = 1 << 40


@cache
def tile_type(edges: int | None = None, bands: int = 3) -> np.dtype[np.void]:
    """Return the type of one tile's parameters. `edges`: how many a rotated view is cut off at, None: it is not turned.

    The region of a view that is not turned is mirrored along an axis where its second corner comes first. The source
    starts at a byte of `decoded`; below 0 it is a byte of `copied`, counted from -1 downwards; from `LOWEST_ADDRESS` on
    it is an address in memory.
    """
    rotated = [
        ("to_source", "f4", (3, 3)),  # see `resize._plan_warp`
        ("margin", "f4"),  # how far beyond the shrunk window places count, the others as the nearest of these
        ("edges", "f4", (3, edges)),
    ]
    fields = [
        ("region", "f4", (5, 2)),  # (y, x): two corners in the source, size in the output, -offset there, image size
        ("shown", "f4", (2, 2)),  # (y, x): the corners, in the output, of what this tile shows
        ("size", "f4", 2),  # (height, width) of the source
        ("fill", "f4", bands),
        ("color", "f4", 12),  # a linear map (3, 4), or steps as in detaug/ops/color.py
        ("picture", "f4", (2, 2)),  # (y, x): the corners, in the output, of what changes its colors
        ("mean", "f4", bands),
        ("scale", "f4", bands),  # 1 / std
        *(rotated if edges is not None else []),
        ("start", "i8"),  # where the source's (height, width, bands) pixels start; must be the last field
    ]
    return np.dtype(fields, align=True)


# positions of the fields of three bands, counted in numbers of 4 bytes; the start has two of these
_LOWEST_ADDRESS = tl.constexpr(LOWEST_ADDRESS)
SHOWN, SIZE, FILL, COLOR, PICTURE, MEAN, SCALE, TO_SOURCE, MARGIN, EDGES = (
    tl.constexpr(tile_type(0).fields[name][1] // 4)  # type: ignore[index]
    for name in ("shown", "size", "fill", "color", "picture", "mean", "scale", "to_source", "margin", "edges")
)
STEPS, CHANNELS = tl.constexpr(color_steps.STEPS), tl.constexpr(COLOR.value + 2 * color_steps.STEPS)
FILLED_AROUND, REPEATED_AROUND = 1.0, -0.5
"""The margins with which all beyond the window is fill, or its outermost pixels."""
STRAIGHT, ROTATED, READY = range(3)
"""How images come to the kernel: as sources, of which a view is rendered that is turned or not, or rendered already."""
_ROTATED, _READY = map(tl.constexpr, (ROTATED, READY))
KEPT, MAPPED, IN_STEPS = range(3)
"""What happens to colors: nothing, a linear map, or steps."""
_KEPT, _IN_STEPS = map(tl.constexpr, (KEPT, IN_STEPS))
CONTRAST, SATURATION, HUE = map(tl.constexpr, (color_steps.CONTRAST, color_steps.SATURATION, color_steps.HUE))
_TO_BYTES = tl.constexpr(color_steps.TO_BYTES)


@batch_kernel
def render(
    decoded, copied, parameters, starts, grays, out, images, tiles, length, height, width,
    image_stride, channel_stride, row_stride, pixel_stride,
    VIEW: tl.constexpr, COLORS: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr, BANDS: tl.constexpr = 3,
):  # fmt: skip
    """Write `out`, (images, BANDS, height, width), in blocks of ROWS x COLUMNS pixels, several for each program.

    `decoded`, `copied`: memory of source images; `decoded` has (images, height, width, BANDS) if they are READY. It is
    of the type of their values, bytes or float32.
    `parameters`: a `tile_type` for each tile of each image, later ones over earlier ones, as `length` float32;
    `starts`: the same memory as int64. Color, image, mean and scale are the first tile's, and so is the fill where
    no tile is. `grays`: what `sum_grays` wrote, if COLORS change in steps; those of float32 are kept.
    """
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, top, left = corner_of(block, height, width, ROWS, COLUMNS)
        y, x = top + tl.arange(0, ROWS), left + tl.arange(0, COLUMNS)
        whole = parameters + image * tiles * length
        first = starts + image * tiles * length // 2
        r, g, b = _pixels(
            decoded, copied, whole, first, image, tiles, length, top, left, y, x, height, width, VIEW, BANDS
        )
        if COLORS != _KEPT:
            if COLORS == _IN_STEPS:
                red, green, blue = _stepped(whole, r, g, b, _mean_gray(whole, grays + image), STEPS)
                red, green, blue = _permuted(whole + CHANNELS, red, green, blue)
            else:
                red, green, blue = _mapped(whole + COLOR, r, g, b)
            changes = _in_picture(whole, y, x)
            r, g, b = tl.where(changes, red, r), tl.where(changes, green, g), tl.where(changes, blue, b)
        in_image, in_canvas = _in_image(whole, y, x), inside(y, x, height, width)
        to = out + image * image_stride + y[:, None] * row_stride + x[None, :] * pixel_stride
        first_band, second, third = bands_of(BANDS)
        mask_second, mask_third = masks_of_others(in_canvas, BANDS)
        own, to_own = whole + first_band, to + first_band * channel_stride
        _store(to_own, r, own, in_image, in_canvas, BANDS)
        own, to_own = whole + second, to + second * channel_stride
        _store(to_own, g, own, in_image, mask_second, BANDS)
        own, to_own = whole + third, to + third * channel_stride
        _store(to_own, b, own, in_image, mask_third, BANDS)


@batch_kernel
def sum_grays(
    decoded, copied, parameters, starts, grays, images, tiles, length, height, width,
    VIEW: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Add to `grays` (images,) the gray values of each image before its contrast changes, in whole numbers.

    Images whose contrast stays are left out. The other arguments are those of `render`.
    """
    for block in range(tl.program_id(0), blocks(images, height, width, ROWS, COLUMNS), tl.num_programs(0)):
        image, top, left = corner_of(block, height, width, ROWS, COLUMNS)
        y, x = top + tl.arange(0, ROWS), left + tl.arange(0, COLUMNS)
        whole = parameters + image * tiles * length
        before = _steps_before_contrast(whole)
        if before < STEPS:
            first = starts + image * tiles * length // 2
            r, g, b = _pixels(
                decoded, copied, whole, first, image, tiles, length, top, left, y, x, height, width, VIEW, 3
            )
            r, g, b = _stepped(whole, r, g, b, 0.0, before)
            counted = _in_picture(whole, y, x) & _in_image(whole, y, x)
            gray = tl.sum(tl.sum(tl.where(counted, _gray(r, g, b), 0.0), 1), 0)
            tl.atomic_add(grays + image, gray.to(tl.int64))


@triton.jit
def _pixels(
    decoded, copied, whole, starts, image, tiles, length, top, left, y, x, height, width,
    VIEW: tl.constexpr, BANDS: tl.constexpr,
):  # fmt: skip
    """Return R, G and B of an image before its colors change. `top`, `left`: the first row and column, `y` and `x`."""
    if VIEW == _READY:
        offset, mask = position(image, y, x, height, width, BANDS), inside(y, x, height, width)
        r, g, b = load_pixels(decoded, offset, mask, BANDS)
    else:
        r, g, b = _pasted(decoded, copied, whole, starts, tiles, length, top, left, y, x, VIEW, BANDS)
    return r, g, b


@triton.jit
def _pasted(decoded, copied, whole, starts, tiles, length, top, left, y, x, VIEW: tl.constexpr, BANDS: tl.constexpr):
    """Return R, G and B of all tiles of an image, and of its fill."""
    fill = tl.zeros([y.shape[0], x.shape[0]], tl.float32)
    first, second, third = bands_of(BANDS)
    r, g = fill + tl.load(whole + FILL + first), fill + tl.load(whole + FILL + second)
    b = fill + tl.load(whole + FILL + third)
    for number in range(tiles):
        tile = whole + number * length
        if _overlaps(tile + SHOWN, top, y.shape[0]) & _overlaps(tile + SHOWN + 1, left, x.shape[0]):
            source = _source(decoded, copied, tl.load(starts + (number + 1) * length // 2 - 1))
            if VIEW == _ROTATED:
                edges = (length - (2 + EDGES + 3 * (BANDS - 3))) // 3
                r, g, b = _paste_rotated(tile, edges, source, y, x, r, g, b, BANDS)
            else:
                r, g, b = _paste(tile, source, top, left, y, x, r, g, b, BANDS)
    return r, g, b


@triton.jit
def _overlaps(corners, first, count):
    """Return whether a tile shows any of `count` rows, or columns, from the `first` one on."""
    return (tl.load(corners) < first + count) & (tl.load(corners + 2) > first)


@triton.jit
def _in_image(whole, y, x):
    return inside(y, x, tl.load(whole + 8), tl.load(whole + 9))


@triton.jit
def _in_picture(whole, y, x):
    from_y, from_x = tl.load(whole + PICTURE), tl.load(whole + PICTURE + 1)
    to_y, to_x = tl.load(whole + PICTURE + 2), tl.load(whole + PICTURE + 3)
    return ((y >= from_y) & (y < to_y))[:, None] & ((x >= from_x) & (x < to_x))[None, :]


@triton.jit
def _store(to, value, tile, in_image, in_canvas, BANDS: tl.constexpr):
    """Write a channel, normalized. `tile`: moved by the number of the channel."""
    value = (value - tl.load(tile + (MEAN + BANDS - 3))) * tl.load(tile + (SCALE + 2 * (BANDS - 3)))
    tl.store(to, tl.where(in_image, value, 0.0).to(to.dtype.element_ty), in_canvas)


@triton.jit
def _source(decoded, copied, start):
    """Return the pointer to a source image, from its `start` in a tile."""
    copied_at = copied.to(tl.int64) - 1 - start
    decoded_at = decoded.to(tl.int64) + start
    address = tl.where(start < 0, copied_at, tl.where(start < _LOWEST_ADDRESS, decoded_at, start))
    return address.to(tl.pointer_type(decoded.dtype.element_ty))


@triton.jit
def _paste(tile, source, top, left, y, x, r, g, b, BANDS: tl.constexpr):
    """Return R, G and B with this tile over them: its region of the source, and the fill beside that."""
    middle_y, reach_y, in_region_y, shown_y = _axis(tile, source, y)
    middle_x, reach_x, in_region_x, shown_x = _axis(tile + 1, source, x)
    in_region, shown = in_region_y[:, None] & in_region_x[None, :], shown_y[:, None] & shown_x[None, :]
    wanted = _meets_region(tile, top, y.shape[0]) & _meets_region(tile + 1, left, x.shape[0])
    red, green, blue = _resized(source, tile, middle_y, reach_y, middle_x, reach_x, wanted, BANDS)
    first, second, third = bands_of(BANDS)
    r = tl.where(shown, tl.where(in_region, red, tl.load(tile + FILL + first)), r)
    g = tl.where(shown, tl.where(in_region, green, tl.load(tile + FILL + second)), g)
    b = tl.where(shown, tl.where(in_region, blue, tl.load(tile + FILL + third)), b)
    return r, g, b


@triton.jit
def _precise(number, source):
    """Return a number with which places in the source are computed."""
    return number if source.dtype.element_ty == tl.uint8 else number.to(tl.float64)


@triton.jit
def _axis(tile, source, pixels):
    """Return along one axis, for output pixels `pixels`: their middles in the source, how far the filter reaches from
    there, whether they are in the region, and whether the tile shows them.
    """
    first, length, in_region = _precise(tl.load(tile), source), tl.load(tile + 4), pixels + tl.load(tile + 6)
    spacing = (tl.load(tile + 2) - first) / length
    middle, reach = first + (in_region + 0.5) * spacing, tl.maximum(tl.abs(spacing), 1.0)
    shown = (pixels >= tl.load(tile + SHOWN)) & (pixels < tl.load(tile + SHOWN + 2))
    return middle, reach, (in_region >= 0) & (in_region < length), shown


@triton.jit
def _meets_region(tile, first, count):
    """Return whether any of `count` rows, or columns, from the `first` one on are in the region, or next to it."""
    in_region = first + tl.load(tile + 6)
    return (in_region < tl.load(tile + 4) + 1) & (in_region + count > -1)


@triton.jit
def _resized(source, tile, middle_y, reach_y, middle_x, reach_x, wanted, BANDS: tl.constexpr):
    """Return R, G and B, of bytes in whole numbers: means of source pixels, weighted by the triangle.

    They are 0 unless `wanted`.
    """
    top, bottom = _bounds(tile, tl.load(tile + SIZE))
    left, right = _bounds(tile + 1, tl.load(tile + SIZE + 1))
    stride = _stride(tile, source)
    first, second, third = bands_of(BANDS)
    first_y, first_x = _first_tap(middle_y, reach_y), _first_tap(middle_x, reach_x)
    rows, columns = tl.ceil(2 * reach_y).to(tl.int32) * wanted.to(tl.int32), tl.ceil(2 * reach_x).to(tl.int32)
    r = tl.zeros([middle_y.shape[0], middle_x.shape[0]], tl.float32)
    g, b, total_y, total_x = r, r, (middle_y * 0).to(tl.float32), (middle_x * 0).to(tl.float32)
    # weights are products, so the sum of all is that of the rows times that of the columns
    for j in range(columns):
        total_x += _weight(first_x + j, middle_x, reach_x, left, right)
    for i in range(rows):
        weight_y = _weight(first_y + i, middle_y, reach_y, top, bottom)
        total_y += weight_y
        line = _inside(first_y + i, top, bottom) * stride
        for j in range(columns):
            weight = weight_y[:, None] * _weight(first_x + j, middle_x, reach_x, left, right)[None, :]
            pixel = source + (line[:, None] + _inside(first_x + j, left, right)[None, :]) * BANDS
            r += _weighted(weight, pixel + first)
            g += _weighted(weight, pixel + second)
            b += _weighted(weight, pixel + third)
    share = 1 / tl.maximum(total_y[:, None] * total_x[None, :], 1e-9)
    return _whole(r * share, source), _whole(g * share, source), _whole(b * share, source)


@triton.jit
def _whole(mean, source):
    """Return a mean of bytes in whole numbers, which needs no clipping; of float32 itself."""
    return tl.floor(mean + 0.5) if source.dtype.element_ty == tl.uint8 else mean


@triton.jit
def _stride(tile, source):
    """Return the width of the source, with which the positions of its pixels are counted."""
    width = tl.load(tile + SIZE + 1)
    return width.to(tl.int32) if source.dtype.element_ty == tl.uint8 else width.to(tl.int64)


@triton.jit
def _weighted(weight, pointer):
    """Return a value of the source times its weight; of float32, 0 without a weight, also where it is NaN."""
    value = tl.load(pointer).to(tl.float32)
    return weight * (value if pointer.dtype.element_ty == tl.uint8 else tl.where(weight > 0, value, 0.0))


# ------------------------------------------------------------------------------------- rotated views


@triton.jit
def _paste_rotated(tile, edges, source, y, x, r, g, b, BANDS: tl.constexpr):
    """Return R, G and B with this tile over them: its view of the source, cut off at the edges, and fill around that.

    As `resize._warp`: the window of the source shrinks, and is then interpolated linearly, with fill around it or, as
    its margin says, its outermost pixels. Here a pixel is one weighted mean of what both steps would take.
    """
    y_in_view, x_in_view = y + tl.load(tile + 6) + 0.5, x + tl.load(tile + 7) + 0.5
    at_y, at_x = _in_window(tile + (TO_SOURCE + 3 * (BANDS - 3)), y_in_view[:, None], x_in_view[None, :])
    shown_y = (y >= tl.load(tile + SHOWN)) & (y < tl.load(tile + SHOWN + 2))
    shown_x = (x >= tl.load(tile + SHOWN + 1)) & (x < tl.load(tile + SHOWN + 3))
    shown = shown_y[:, None] & shown_x[None, :]
    within = _within(tile + (EDGES + 3 * (BANDS - 3)), edges, y_in_view[:, None], x_in_view[None, :])
    red, green, blue, share = _interpolated(source, tile, at_y, at_x, shown & (within > 0), BANDS)
    first, second, third = bands_of(BANDS)
    red, green = _filled(tile + first, source, red, share), _filled(tile + second, source, green, share)
    blue = _filled(tile + third, source, blue, share)
    red, green = _mixed(tile + first, source, red, within), _mixed(tile + second, source, green, within)
    blue = _mixed(tile + third, source, blue, within)
    return tl.where(shown, red, r), tl.where(shown, green, g), tl.where(shown, blue, b)


@triton.jit
def _filled(tile, source, value, share):
    """Return a channel of which the source gives a fraction. `tile`: moved by the number of the channel."""
    return rounded(value + (1 - share) * tl.load(tile + FILL), source)


@triton.jit
def _mixed(tile, source, value, share):
    """Return a fraction of a channel's value, and fill; of float32 the value itself, where its fraction is 1."""
    fill = tl.load(tile + FILL)
    mixed = rounded(fill + (value - fill) * share, source)
    return mixed if source.dtype.element_ty == tl.uint8 else tl.where(share < 1, mixed, value)


@triton.jit
def _in_window(to_source, y, x):
    """Return the places of output pixels in the shrunk window, (y, x)."""
    depth = tl.load(to_source + 6) * x + tl.load(to_source + 7) * y + tl.load(to_source + 8)
    # no division by 0 on the horizon
    depth = tl.where(tl.abs(depth) < 1e-9, 1e-9, depth)
    at_x = (tl.load(to_source) * x + tl.load(to_source + 1) * y + tl.load(to_source + 2)) / depth
    at_y = (tl.load(to_source + 3) * x + tl.load(to_source + 4) * y + tl.load(to_source + 5)) / depth
    return at_y, at_x


@triton.jit
def _within(edge, edges, y, x):
    """Return how much of each pixel, 0 to 1, is on the inner side of all edges."""
    inside = 0 * (y + x) + 1.0
    for number in range(edges):
        a, b, c = tl.load(edge + number), tl.load(edge + edges + number), tl.load(edge + 2 * edges + number)
        inside = tl.minimum(inside, a * x + b * y + c + 0.5)
    return tl.maximum(inside, 0.0)


@triton.jit
def _interpolated(source, tile, at_y, at_x, wanted, BANDS: tl.constexpr):
    """Return R, G and B times the fraction of the window in the interpolation, and that share."""
    top, bottom = _bounds(tile, tl.load(tile + SIZE))
    left, right = _bounds(tile + 1, tl.load(tile + SIZE + 1))
    stride = _stride(tile, source)
    first, second, third = bands_of(BANDS)
    margin = tl.load(tile + (MARGIN + 3 * (BANDS - 3)))
    middle_y, first_y, near_y, next_y, spacing_y, reach_y = _pair(tile, source, at_y, margin, top, bottom)
    middle_x, first_x, near_x, next_x, spacing_x, reach_x = _pair(tile + 1, source, at_x, margin, left, right)
    rows = tl.ceil(2 * reach_y + spacing_y).to(tl.int32) * tl.max(tl.max(wanted.to(tl.int32), 1), 0)
    columns = tl.ceil(2 * reach_x + spacing_x).to(tl.int32)
    r = tl.zeros(wanted.shape, tl.float32)
    g, b, share_y, share_x = r, r, r, r
    for j in range(columns):
        share_x += _weight_in_pair(first_x + j, middle_x, near_x, next_x, spacing_x, reach_x, left, right)
    for i in range(rows):
        weight_y = _weight_in_pair(first_y + i, middle_y, near_y, next_y, spacing_y, reach_y, top, bottom)
        share_y += weight_y
        line = _inside(first_y + i, top, bottom) * stride
        for j in range(columns):
            weight_x = _weight_in_pair(first_x + j, middle_x, near_x, next_x, spacing_x, reach_x, left, right)
            weight, pixel = weight_y * weight_x, source + (line + _inside(first_x + j, left, right)) * BANDS
            r += _weighted(weight, pixel + first)
            g += _weighted(weight, pixel + second)
            b += _weighted(weight, pixel + third)
    return r, g, b, share_y * share_x


@triton.jit
def _pair(tile, source, place, margin, low, high):
    """Return along one axis what two shrunk pixels, around each place `place` in the shrunk window, take of the source.

    Namely the middle of the first of them in the source, the first source pixel that it takes, a factor of the weights
    of either, how far their middles are from each other, and how far the filter reaches from there.
    """
    first, length = tl.load(tile), tl.load(tile + 4)
    spacing = (_precise(tl.load(tile + 2) - first, source) / length).to(tl.float32)
    reach = tl.maximum(spacing, 1.0)
    # beyond the margin nothing changes; places near a horizon are too large for whole numbers
    place = tl.minimum(tl.maximum(place, -margin), length + margin) - 0.5
    near = tl.floor(place)
    middle, tap = first + (near + 0.5) * spacing, _first_tap(first + (near + 0.5) * spacing, reach)
    sum_near, sum_next = middle * 0, middle * 0
    for j in range(tl.ceil(2 * reach + spacing).to(tl.int32)):
        sum_near += _weight(tap + j, middle, reach, low, high)
        sum_next += _weight(tap + j, middle + spacing, reach, low, high)
    share_near = tl.where((near >= 0) & (near < length), 1 - (place - near), 0.0)
    share_next = tl.where((near >= -1) & (near < length - 1), place - near, 0.0)
    share_near, share_next = share_near / tl.maximum(sum_near, 1e-9), share_next / tl.maximum(sum_next, 1e-9)
    return middle, tap, share_near, share_next, spacing, reach


@triton.jit
def _weight_in_pair(tap, middle, near, after, spacing, reach, low, high):
    """Return the weight of a source pixel in the mean of a pair."""
    return near * _weight(tap, middle, reach, low, high) + after * _weight(tap, middle + spacing, reach, low, high)


# ------------------------------------------------------------------------------------------- filters


@triton.jit
def _bounds(tile, side):
    """Return the first source pixel of the region and the one after its last, in an image of `side` pixels."""
    one, other = tl.load(tile), tl.load(tile + 2)
    low = tl.minimum(tl.maximum(tl.floor(tl.minimum(one, other)), 0.0), side - 1)
    high = tl.minimum(tl.maximum(tl.ceil(tl.maximum(one, other)), low + 1), side)
    return low.to(tl.int32), high.to(tl.int32)


@triton.jit
def _first_tap(middle, reach):
    return tl.floor(middle - reach + 0.5).to(tl.int32)


@triton.jit
def _weight(tap, middle, reach, low, high):
    """Return the weight of a source pixel; 0 outside of the region."""
    counts = (tap >= low) & (tap < high)
    return tl.where(counts, tl.maximum(reach - tl.abs(tap + 0.5 - middle), 0.0), 0.0).to(tl.float32)


@triton.jit
def _inside(tap, low, high):
    # a pixel outside has no weight, but is loaded like others
    return tl.minimum(tl.maximum(tap, low), high - 1)


# ------------------------------------------------------------------------------------------- colors


@triton.jit
def _mapped(color, r, g, b):
    """Apply a linear map."""
    return map_channel(color, r, g, b), map_channel(color + 4, r, g, b), map_channel(color + 8, r, g, b)


@triton.jit
def _steps_before_contrast(whole):
    """Return how many steps come before the one that changes the contrast; STEPS if none does."""
    before = STEPS
    for step in range(STEPS):
        before = tl.where(tl.load(whole + COLOR + 2 * step) == CONTRAST, step, before)
    return before


@triton.jit
def _mean_gray(whole, sum_of_grays):
    """Return the mean gray of the image, from the sum."""
    height = tl.minimum(tl.load(whole + PICTURE + 2), tl.load(whole + 8)) - tl.load(whole + PICTURE)
    width = tl.minimum(tl.load(whole + PICTURE + 3), tl.load(whole + 9)) - tl.load(whole + PICTURE + 1)
    return tl.load(sum_of_grays).to(tl.float32) / tl.maximum(height * width, 1.0)


@triton.jit
def _stepped(whole, r, g, b, mean_gray, steps):
    """Change R, G and B in the first `steps` steps, as detaug/ops/cpu_colors.py does."""
    for step in range(steps):
        kind, amount = tl.load(whole + COLOR + 2 * step), tl.load(whole + COLOR + 2 * step + 1)
        if kind == HUE:
            r, g, b = _turned(r, g, b, amount)
        elif kind > 0:
            other = tl.where(kind == CONTRAST, mean_gray, tl.where(kind == SATURATION, _gray(r, g, b), 0.0))
            r, g, b = _blended(r, other, amount), _blended(g, other, amount), _blended(b, other, amount)
    return r, g, b


@triton.jit
def _gray(r, g, b):
    return tl.floor(0.2989 * r + 0.587 * g + 0.114 * b)


@triton.jit
def _blended(value, other, amount):
    return tl.floor(tl.minimum(tl.maximum(value * amount + other * (1 - amount), 0.0), 255.0))


@triton.jit
def _turned(r, g, b, turn):
    """Turn the hue in HSV."""
    value = tl.maximum(tl.maximum(r, g), b)
    chroma = value - tl.minimum(tl.minimum(r, g), b)
    # of whole numbers: 0, or at least 1
    per_chroma = 1 / tl.maximum(chroma, 0.5)
    others = tl.where(value == g, (b - r) * per_chroma + 2, (r - g) * per_chroma + 4)
    angle = tl.where(value == r, (g - b) * per_chroma, others) + 6 * turn
    angle -= tl.floor(angle / 6) * 6
    red = _share(value, chroma, 2 - tl.abs(angle - 3))
    return red, _share(value, chroma, tl.abs(angle - 2) - 1), _share(value, chroma, tl.abs(angle - 4) - 1)


@triton.jit
def _share(value, chroma, share):
    return tl.floor((value - chroma * tl.minimum(tl.maximum(share, 0.0), 1.0)) * _TO_BYTES)


@triton.jit
def _permuted(channels, r, g, b):
    return _of_channels(channels, r, g, b), _of_channels(channels + 1, r, g, b), _of_channels(channels + 2, r, g, b)


@triton.jit
def _of_channels(channel, r, g, b):
    number = tl.load(channel)
    return tl.where(number == 0, r, tl.where(number == 1, g, b))


@batch_kernel
def copy_images(images_at, out, images, BLOCK: tl.constexpr):
    """Copy images to `out`, in numbers of 8 bytes: all programs copy a part of each.

    `images_at`: (3, images) int64: addresses, first positions in `out`, and lengths.
    """
    for image in range(images):
        source = tl.load(images_at + image).to(tl.pointer_type(tl.int64))
        to, length = out + tl.load(images_at + images + image), tl.load(images_at + 2 * images + image)
        for first in range(tl.program_id(0) * BLOCK, length, tl.num_programs(0) * BLOCK):
            index = first + tl.arange(0, BLOCK)
            tl.store(to + index, tl.load(source + index, index < length), index < length)
