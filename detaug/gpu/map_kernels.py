"""The Triton kernel that samples maps: see `detaug/boxes/map_loops.py`, which gives the same bits."""

from __future__ import annotations

import triton
import triton.language as tl

from detaug.boxes import layers
from detaug.gpu.mask_kernels import (
    BOUNDS,
    FAR,
    NUMBERS,
    ONE,
    RECTANGLE,
    STENCIL,
    _in_stencil,
    _pixels,
    _single,
    _source_of_pixels,
)

ERASED_SHOWN = tl.constexpr(layers.ERASED_SHOWN)

SIZES = ["parts", "layers_of_image", "sides", "height", "width", "empty"]
ARRAYS = ["layers", "borders", "stencils", "filled", "lengths", "shown", "places", "maps", "first_table", "tables"]
ARRAYS += ["images", "grid_y", "grid_x"]
map_kernel = triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=ARRAYS)


@map_kernel
def sample(
    layers, borders, stencils, filled, lengths, shown, places, maps, first_table, tables, images, grid_y, grid_x, out,
    second, fraction, parts, layers_of_image, sides, height, width, empty, AVERAGED: tl.constexpr,
    HAS_TABLES: tl.constexpr, LINEAR: tl.constexpr, KEEPS_ERASED: tl.constexpr,
    POINTS: tl.constexpr, PAIR: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write to `out`, (N, height, width), the values that `images` (P,) show, `empty` where nothing is.

    `filled`, `lengths` (N, `parts`): see `Layers.parts_of_average`; AVERAGED: if there are several. `shown` (N * L,):
    which map each layer shows, below 0 for none. `places` (K, 4): of each map its scale and offset x, y. `maps` (K, 7):
    see `MapsOnGpu`; with LINEAR they have float32 for each pixel, else runs of values of the type of `out`.
    `first_table` (N * L,), `tables`, with HAS_TABLES: by which a value becomes one of the batch, see `map_loops`.
    POINTS: `grid_y` holds P grids of points, the `out` of `mask_kernels.undistort`; else the rows and `grid_x` the
    columns of all images. PAIR: write to `second` and `fraction`, of the shape of `out`, what is averaged with it.
    """
    across, down = tl.cdiv(width, COLUMNS), tl.cdiv(height, ROWS)
    place, block = (tl.program_id(0) // (across * down)).to(tl.int64), tl.program_id(0) % (across * down)
    image = tl.load(images + place).to(tl.int64)
    rows, columns = block // across * ROWS + tl.arange(0, ROWS), block % across * COLUMNS + tl.arange(0, COLUMNS)
    in_grid = (rows < height)[:, None] & (columns < width)[None, :]
    offset = rows[:, None] * width + columns[None, :]
    if POINTS:
        grid = grid_y + 2 * place * height * width
        y, x = tl.load(grid + offset, in_grid, -FAR), tl.load(grid + height * width + offset, in_grid, -FAR)
    else:
        nothing = tl.zeros((ROWS, COLUMNS), tl.int32)
        y = tl.load(grid_y + tl.minimum(rows, height - 1))[:, None] + nothing
        x = tl.load(grid_x + tl.minimum(columns, width - 1))[None, :] + nothing
    first = image * layers_of_image
    layer, shown, borders = layers + first * NUMBERS, shown + first, borders + first * sides * 3
    filled, first_table = filled + first, first_table + first
    sought = in_grid & (y >= 0) & (x >= 0)
    if AVERAGED:
        top, other, share = _largest(
            layer, filled, lengths + image * parts, parts, layers_of_image, stencils, shown, y, x, sought, KEEPS_ERASED
        )  # fmt: skip
    else:
        top = _last(layer, layers_of_image, stencils, shown, y, x, sought, KEEPS_ERASED)
        other, share = tl.full(y.shape, -1, tl.int32), tl.full(y.shape, 1.0, tl.float32)
    result = _values_of(
        top, layer, layers_of_image, borders, sides, shown, places, maps, first_table, tables, y, x, empty,
        out.dtype.element_ty, HAS_TABLES, LINEAR,
    )  # fmt: skip
    offset += image * height * width
    tl.store(out + offset, result.to(out.dtype.element_ty), in_grid)
    if PAIR:
        of_other = _values_of(
            other, layer, layers_of_image, borders, sides, shown, places, maps, first_table, tables, y, x, empty,
            out.dtype.element_ty, HAS_TABLES, LINEAR,
        )  # fmt: skip
        tl.store(second + offset, tl.where(other >= 0, of_other, result).to(second.dtype.element_ty), in_grid)
        tl.store(fraction + offset, tl.where(other >= 0, share, 1.0), in_grid)


@triton.jit
def _largest(
    layer, filled, lengths, parts, count, stencils, shown, y, x, sought, KEEPS_ERASED: tl.constexpr
):  # fmt: skip
    """Return the layer with the largest share that is seen at each point `sought`, of equal ones the last, -1 for none;
    the next one; and the share of the first.
    """
    top, most = tl.full(y.shape, -1, tl.int32), tl.zeros(y.shape, tl.float32)
    other, next_most = top, most
    free = tl.where(sought, (tl.full((), 1, tl.int64) << parts) - 1, 0)  # what no later layer fills
    number = count - 1
    while number >= 0:
        seen = tl.load(filled + number) & free
        inside = _in_layer(layer + number * NUMBERS, stencils, shown + number, y, x, seen != 0, KEEPS_ERASED)
        if tl.max(inside.to(tl.int32), None) > 0:
            seen = tl.where(inside, seen, 0)
            free = free & ~seen
            share = tl.zeros(y.shape, tl.float32)
            for part in range(parts):
                share += tl.where(((seen >> part) & 1) > 0, tl.load(lengths + part), 0.0)
            first, second = share > most, (share > next_most) & (share <= most)
            other, next_most = tl.where(first, top, other), tl.where(first, most, next_most)
            other, next_most = tl.where(second, number, other), tl.where(second, share, next_most)
            top, most = tl.where(first, number, top), tl.where(first, share, most)
        number -= 1
    return top, other, most


@triton.jit
def _last(layer, count, stencils, shown, y, x, sought, KEEPS_ERASED: tl.constexpr):
    """Return the last layer that is seen at each point `sought`, -1 for none."""
    top = tl.full(y.shape, -1, tl.int32)
    for number in range(count):
        inside = _in_layer(layer + number * NUMBERS, stencils, shown + number, y, x, sought, KEEPS_ERASED)
        top = tl.where(inside, number, top)
    return top


@triton.jit
def _in_layer(layer, stencils, shown, y, x, sought, KEEPS_ERASED: tl.constexpr):
    """Return which of the points `sought` a layer shows."""
    rectangle, stencil = layer + RECTANGLE, layer + STENCIL
    # whole units, since few GPUs are fast in double precision
    left, top = tl.ceil(tl.load(rectangle) * ONE).to(tl.int32), tl.ceil(tl.load(rectangle + 1) * ONE).to(tl.int32)
    right = tl.ceil(tl.load(rectangle + 2) * ONE).to(tl.int32)
    bottom = tl.ceil(tl.load(rectangle + 3) * ONE).to(tl.int32)
    inside = sought & (x >= left) & (y >= top) & (x < right) & (y < bottom)
    if KEEPS_ERASED:
        inside = inside & (tl.load(shown) != ERASED_SHOWN)
    inside = tl.where(inside, 1, 0) > 0  # a mask, see `_values_of`
    if tl.load(stencil) >= 0:
        inside = inside & _in_stencil(stencil, stencils, _pixels(y), _pixels(x), inside)
    return inside


@triton.jit
def _values_of(
    top, layer, count, borders, sides, shown, places, maps, first_table, tables, y, x, empty,
    ELEMENT: tl.constexpr, HAS_TABLES: tl.constexpr, LINEAR: tl.constexpr,
):  # fmt: skip
    """Return the value of the layer `top` of each point, `empty` where it shows fill, or there is none."""
    result = tl.zeros(top.shape, tl.float32 if LINEAR else tl.int32) + empty
    if HAS_TABLES:
        result = tl.load(tables + tl.load(first_table) + result)
    # half a unit further right and below, see `map_loops._value`
    later_y, later_x = (2 * y + 1).to(tl.float32) / (2 * ONE), (2 * x + 1).to(tl.float32) / (2 * ONE)
    bounds = layer + BOUNDS
    for number in range(count):
        here, which = top == number, tl.load(shown + number)
        if (tl.max(here.to(tl.int32), None) > 0) & (which >= 0):
            own, place = maps + 7 * which, places + 4 * which
            values, tall, wide = tl.load(own + 1).to(tl.pointer_type(ELEMENT)), tl.load(own + 4), tl.load(own + 5)
            later_in_source_x, later_in_source_y, depth = _source_of_pixels(layer, later_y, later_x)
            seen = here & (depth > 0) & (tall > 0)
            seen = seen & (later_in_source_x >= _single(bounds)) & (later_in_source_x <= _single(bounds + 2))
            seen = seen & (later_in_source_y >= _single(bounds + 1)) & (later_in_source_y <= _single(bounds + 3))
            for side in range(sides):
                border = borders + side * 3
                distance = (_single(border) * later_x + _single(border + 1) * later_y) + _single(border + 2)
                seen = seen & (distance >= 0)
            seen = tl.where(seen, 1, 0) > 0  # a mask also for the interpreter, which may have made bytes
            source_x, source_y, _ = _source_of_pixels(layer, _pixels(y), _pixels(x))
            # in whole units, see `map_loops._value`
            unit_x = tl.floor(tl.where(seen, source_x, 0.0) * ONE + 0.5)
            unit_y = tl.floor(tl.where(seen, source_y, 0.0) * ONE + 0.5)
            if LINEAR:
                at_y, at_x = _of_map(unit_y, place + 1), _of_map(unit_x, place)
                value = _between(values, tall, wide, at_y - 0.5, at_x - 0.5, seen, empty)
            else:
                row, column = unit_y.to(tl.int32) // ONE, unit_x.to(tl.int32) // ONE
                if tl.load(own + 6) == 0:
                    row = tl.floor(_of_map(unit_y, place + 1)).to(tl.int32)
                    column = tl.floor(_of_map(unit_x, place)).to(tl.int32)
                row = tl.minimum(tl.maximum(row, 0), tall.to(tl.int32) - 1)
                column = tl.minimum(tl.maximum(column, 0), wide.to(tl.int32) - 1)
                value = _of_runs(own, values, row, column + row * wide.to(tl.int32), seen)
                value = tl.where(seen, value, empty)
                if HAS_TABLES:
                    value = tl.load(tables + tl.load(first_table + number) + value)
            result = tl.where(here & seen, value, result)
        layer += NUMBERS
        bounds += NUMBERS
        borders += sides * 3
    return result


@triton.jit
def _of_map(units, place):
    """Return where coordinates of the image, in units, are in its map."""
    return units.to(tl.float64) / ONE * tl.load(place) + tl.load(place + 2)


@triton.jit
def _within(position, size):
    """Return the pixel of a coordinate, the first or the last one beyond the sides."""
    return tl.minimum(tl.maximum(tl.floor(position), 0.0), (size - 1).to(tl.float64)).to(tl.int32)


@triton.jit
def _of_runs(own, values, row, position, seen):
    """Return the values of pixels of a map, the row `own` of `maps`."""
    ends, rows = tl.load(own).to(tl.pointer_type(tl.int32)), tl.load(own + 2).to(tl.pointer_type(tl.int32))
    first, last = tl.load(rows + row, seen, 0), tl.load(rows + row + 1, seen, 0)
    step, most = 1, tl.load(own + 3)
    while step < most:
        step *= 2
    while step > 0:  # the number of the row's runs that end before each pixel, bit by bit
        more = seen & (first + step <= last)
        end = tl.load(ends + first + step - 1, more, 0)
        first += tl.where(more & (end <= position), step, 0)
        step //= 2
    return tl.load(values + first, seen, 0).to(tl.int32)


@triton.jit
def _between(values, tall, wide, y, x, seen, empty):
    """Interpolate linearly between those of four pixels that are known; `empty` where the nearest one is not."""
    above, before = tl.floor(y), tl.floor(x)
    down, right = (y - above).to(tl.float32), (x - before).to(tl.float32)
    total, weights = tl.zeros(y.shape, tl.float32), tl.zeros(y.shape, tl.float32)
    best, known = tl.full(y.shape, -1.0, tl.float32), tl.zeros(y.shape, tl.int32)
    for corner in tl.static_range(4):
        row, column = _within(above + corner // 2, tall), _within(before + corner % 2, wide)
        across = right if corner % 2 else 1.0 - right
        weight = (down if corner // 2 else 1.0 - down) * across
        value = tl.load(values + row.to(tl.int64) * wide + column, seen, empty)
        nearest = weight >= best  # of equal ones the last, as of `floor`
        best, known = tl.where(nearest, weight, best), tl.where(nearest, (value != empty).to(tl.int32), known)
        total += tl.where(value != empty, weight * value, 0.0)
        weights += tl.where(value != empty, weight, 0.0)
    # Triton's / is not rounded correctly in single precision, which the CPU's is
    return tl.where(seen & (known > 0), tl.div_rn(total, tl.where(known > 0, weights, 1.0)), empty)
