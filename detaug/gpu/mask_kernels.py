"""Triton kernels that rasterize masks: see `detaug/boxes/masks.py`. `detaug/boxes/mask_loops.py` gives the same bits.

One kernel places the vertices of outlines, and one samples the masks in blocks of points. It goes over the edges of an
object only in blocks that the box around the object touches.
"""

from __future__ import annotations

import triton
import triton.language as tl

from detaug.boxes import units

ONE, FAR = tl.constexpr(units.ONE), tl.constexpr(units.FAR)
FARTHEST, NEAREST = tl.constexpr(units.FARTHEST), tl.constexpr(units.NEAREST)
TO_OUTPUT, TO_SOURCE, BOUNDS = (tl.constexpr(number) for number in (units.TO_OUTPUT, units.TO_SOURCE, units.BOUNDS))
RECTANGLE, INTERVAL, COPY = (tl.constexpr(number) for number in (units.RECTANGLE, units.INTERVAL, units.COPY))
STENCIL, NUMBERS = tl.constexpr(units.STENCIL), tl.constexpr(units.NUMBERS)

SIZES = ["layers_of_image", "sides", "vertices", "height", "width", "y_step", "x_step", "cell", "programs"]
SIZES += ["points_down", "points_across"]
PARTS = ["annotations", "layer_of", "layers", "borders", "stencils", "starts"]
PARTS += ["objects", "ranks", "first_object", "labels", "out", "images", "places"]
mask_kernel = triton.jit(do_not_specialize=SIZES, do_not_specialize_on_alignment=[*PARTS, "grid_y", "grid_x"])
"""Else Triton compiles the kernels again for other numbers of objects, and for parts of arrays."""


@mask_kernel
def place(
    annotations, layer_of, layers, points, first_point, first_ring, first_run, run_boxes, starts, placed, hulls,
    VERTICES: tl.constexpr,
):  # fmt: skip
    """Write the vertices of each object in units to `placed` (2, Q), from `starts` on, and to `hulls` (B, 5) the box
    around it, XYXY, and whether it is tested in its source.
    """
    which = tl.program_id(0)
    layer = layers + tl.load(layer_of + which) * NUMBERS
    row = tl.load(annotations + which)
    begin = tl.load(first_point + tl.load(first_ring + row)).to(tl.int64)
    end = tl.load(first_point + tl.load(first_ring + row + 1)).to(tl.int64)
    has_runs = tl.load(first_run + row + 1) > tl.load(first_run + row)
    lane = tl.arange(0, VERTICES)
    x0, y0 = tl.full((), FAR, tl.int32), tl.full((), FAR, tl.int32)
    x1, y1, behind = -x0, -y0, x0 * 0
    if has_runs:
        box = run_boxes + row * 4
        x = tl.load(box + 2 * (lane % 2)).to(tl.float64)
        y = tl.load(box + 1 + lane // 2 % 2 * 2).to(tl.float64)
        x0, y0, x1, y1, behind = _around(layer, x, y, lane < 4, x0, y0, x1, y1, behind)
    for start in range(begin, end, VERTICES):
        real = start + lane < end
        x, y = _source_points(points, start + lane, real)
        x0, y0, x1, y1, behind = _around(layer, x, y, real, x0, y0, x1, y1, behind)
    to = placed + tl.load(starts + which)
    # only now is known whether all of them are in front of the horizon
    for start in range(begin, end, VERTICES):
        real = start + lane < end
        x, y = _source_points(points, start + lane, real)
        moved_x, moved_y, _ = _project(layer + TO_OUTPUT, x, y)
        x, y = tl.where(behind > 0, x, moved_x), tl.where(behind > 0, y, moved_y)
        tl.store(to + start - begin + lane, _units(x), real)
        tl.store(to + start - begin + lane + tl.load(starts + tl.num_programs(0)), _units(y), real)
    hull = hulls + which * 5
    tl.store(hull, tl.where(behind > 0, -FAR, x0))
    tl.store(hull + 1, tl.where(behind > 0, -FAR, y0))
    tl.store(hull + 2, tl.where(behind > 0, FAR, x1))
    tl.store(hull + 3, tl.where(behind > 0, FAR, y1))
    tl.store(hull + 4, behind)


@triton.jit
def _source_points(points, index, real):
    return tl.load(points + 2 * index, real, 0).to(tl.float64), tl.load(points + 2 * index + 1, real, 0).to(tl.float64)


@triton.jit
def _around(layer, x, y, real, x0, y0, x1, y1, behind):
    """Return the box around points, in units, and those before, and whether one is far away."""
    x, y, w = _project(layer + TO_OUTPUT, x, y)
    near = (w > NEAREST) & (tl.abs(x) < FARTHEST) & (tl.abs(y) < FARTHEST)
    whole_x, whole_y = _units(x), _units(y)
    x0 = tl.minimum(x0, tl.min(tl.where(real, whole_x, FAR), 0))
    y0 = tl.minimum(y0, tl.min(tl.where(real, whole_y, FAR), 0))
    x1 = tl.maximum(x1, tl.max(tl.where(real, whole_x, -FAR), 0))
    y1 = tl.maximum(y1, tl.max(tl.where(real, whole_y, -FAR), 0))
    behind = tl.maximum(behind, tl.max(tl.where(real & (near == 0), 1, 0), 0))
    return x0, y0, x1, y1, behind


@triton.jit
def _project(matrix, x, y):
    """Return x, y and depth of points after a projective map. Products are not fused with sums: see OPTIONS."""
    w = (tl.load(matrix + 6) * x + tl.load(matrix + 7) * y) + tl.load(matrix + 8)
    at_x = ((tl.load(matrix) * x + tl.load(matrix + 1) * y) + tl.load(matrix + 2)) / w
    at_y = ((tl.load(matrix + 3) * x + tl.load(matrix + 4) * y) + tl.load(matrix + 5)) / w
    return at_x, at_y, w


@triton.jit
def _units(pixels):
    """Return coordinates in units, rounded; NaN is far away."""
    pixels = tl.where(pixels == pixels, pixels, FARTHEST)
    pixels = tl.minimum(tl.maximum(pixels, -FARTHEST), FARTHEST)
    return tl.floor(pixels * ONE + 0.5).to(tl.int32)


@mask_kernel
def sample(
    annotations, layer_of, layers, borders, stencils, placed, hulls, starts, first_point, first_ring, runs, first_run,
    heights, objects, grid_y, grid_x, out, layers_of_image, sides, vertices, height, width, y_step, x_step, cell,
    programs,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, COUNT: tl.constexpr,
):  # fmt: skip
    """Set the points of masks in `out`, (R, height, width), that show `objects` (R,); or COUNT them in `out` (R,).

    `out` has zeros before. Each mask has some `programs`, which take its blocks of points in turn. `sides`: borders of
    an object; `vertices`: of all objects. `grid_y`, `grid_x`: the points; those of a mask begin `y_step` and `x_step`
    after those of the one before. `cell`: units from a point to the next, 0 if that differs.
    """
    mask = (tl.program_id(0) // programs).to(tl.int64)
    which = tl.load(objects + mask)
    grid_y, grid_x = grid_y + mask * y_step, grid_x + mask * x_step
    hull = hulls + which * 5
    left, right = _blocks(tl.load(hull), tl.load(hull + 2), cell, width, COLUMNS)
    top, bottom = _blocks(tl.load(hull + 1), tl.load(hull + 3), cell, height, ROWS)
    across = tl.maximum(right - left, 1)
    for block in range(tl.program_id(0) % programs, (bottom - top) * (right - left), programs):
        row, column = (top + block // across) * ROWS, (left + block % across) * COLUMNS
        if _touches(hull, grid_y, grid_x, row, column, height, width, ROWS, COLUMNS):
            rows, columns = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
            shown = _shown(
                which, annotations, layer_of, layers, borders, stencils, placed, hulls, starts, first_point,
                first_ring, runs, first_run, heights, layers_of_image, sides, vertices,
                tl.load(grid_y + tl.minimum(rows, height - 1)), tl.load(grid_x + tl.minimum(columns, width - 1)), cell,
            )  # fmt: skip
            in_grid = (rows < height)[:, None] & (columns < width)[None, :]
            if COUNT:
                tl.atomic_add(out + mask, tl.sum(tl.sum(tl.where(in_grid, shown, 0), 1), 0))
            else:
                to = out + (mask * height + rows[:, None]) * width + columns[None, :]
                tl.store(to, shown.to(out.dtype.element_ty), in_grid)


@mask_kernel
def undistort(
    numbers, control, images, grid_y, grid_x, out, points_down, points_across, height, width, y_step, x_step, programs,
    SHIFTS: tl.constexpr, RIM: tl.constexpr, ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write to `out`, (P, 2, height, width), where the points of P grids come from in undistorted images: y and x.

    `images` (P,): of each grid. A row of `numbers`: height, width, the coefficient of a lens and the distance between
    control points, whose shifts are `control`, `points_down` x `points_across` for each image, if SHIFTS. RIM and the
    bits are those of `Field.undistorted_units`: products and sums come in its order.
    """
    place = (tl.program_id(0) // programs).to(tl.int64)
    image = tl.load(images + place).to(tl.int64)
    grid_y, grid_x = grid_y + place * y_step, grid_x + place * x_step
    own, across = numbers + image * 4, tl.cdiv(width, COLUMNS)
    rows_of, columns_of, lens = tl.load(own), tl.load(own + 1), tl.load(own + 2)
    for block in range(tl.program_id(0) % programs, tl.cdiv(height, ROWS) * across, programs):
        rows, columns = block // across * ROWS + tl.arange(0, ROWS), block % across * COLUMNS + tl.arange(0, COLUMNS)
        y = tl.load(grid_y + tl.minimum(rows, height - 1)).to(tl.float64)[:, None] / ONE
        x = tl.load(grid_x + tl.minimum(columns, width - 1)).to(tl.float64)[None, :] / ONE
        if SHIFTS:
            spacing = tl.load(own + 3)
            cell_y = tl.minimum(tl.maximum(y, 0.0), rows_of) / spacing
            cell_x = tl.minimum(tl.maximum(x, 0.0), columns_of) / spacing
            row, column = tl.floor(cell_y), tl.floor(cell_x)
            down, right = cell_y - row, cell_x - column
            first = (image * points_down + row.to(tl.int64)) * points_across + column.to(tl.int64)
            shift_x, shift_y = tl.zeros([ROWS, COLUMNS], tl.float64), tl.zeros([ROWS, COLUMNS], tl.float64)
            for point_y in tl.static_range(4):
                for point_x in tl.static_range(4):
                    weight = _weight(down, point_y) * _weight(right, point_x)
                    shifts = control + 2 * (first + point_y * points_across + point_x)
                    shift_x += tl.load(shifts).to(tl.float64) * weight
                    shift_y += tl.load(shifts + 1).to(tl.float64) * weight
            x, y = x + shift_x, y + shift_y
        away_x, away_y = x - columns_of / 2, y - rows_of / 2
        part_x, part_y = away_x / columns_of, away_y / rows_of
        squared = part_x * part_x + part_y * part_y
        further = lens * squared * (1 + squared)
        x, y = x + away_x * further, y + away_y * further
        seen = (x >= -RIM) & (x < columns_of + RIM) & (y >= -RIM) & (y < rows_of + RIM)
        x, y = tl.floor(x * ONE + 0.5), tl.floor(y * ONE + 0.5)
        if RIM > 0:
            x = tl.minimum(tl.maximum(x, 0.0), columns_of * ONE - 1)
            y = tl.minimum(tl.maximum(y, 0.0), rows_of * ONE - 1)
        in_grid = (rows < height)[:, None] & (columns < width)[None, :]
        to = out + (2 * place * height + rows[:, None]) * width + columns[None, :]
        tl.store(to, tl.where(seen, y, -FAR).to(tl.int32), in_grid)
        tl.store(to + height * width, tl.where(seen, x, -FAR).to(tl.int32), in_grid)


@triton.jit
def _weight(part, number: tl.constexpr):
    """Return the weight of one of four control points in a cubic B-spline, rounded as `fields._weights` is."""
    left, squared, cubed = 1 - part, part * part, part * part * part
    if number == 0:
        return left * left * left / 6
    if number == 1:
        return (3 * cubed - 6 * squared + 4) / 6
    if number == 2:
        return (-3 * cubed + 3 * squared + 3 * part + 1) / 6
    return cubed / 6


@mask_kernel
def sample_points(
    annotations, layer_of, layers, borders, stencils, placed, hulls, starts, first_point, first_ring, runs, first_run,
    heights, objects, places, at_points, out, layers_of_image, sides, vertices, height, width, programs,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Do as `sample` for points without a grid: of each mask those of a place, (R,), in `at_points`, the `out`
    of `undistort`.
    """
    mask = (tl.program_id(0) // programs).to(tl.int64)
    which = tl.load(objects + mask)
    at_points += 2 * tl.load(places + mask).to(tl.int64) * height * width
    hull, across = hulls + which * 5, tl.cdiv(width, COLUMNS)
    for block in range(tl.program_id(0) % programs, tl.cdiv(height, ROWS) * across, programs):
        rows, columns = block // across * ROWS + tl.arange(0, ROWS), block % across * COLUMNS + tl.arange(0, COLUMNS)
        in_grid = (rows < height)[:, None] & (columns < width)[None, :]
        offset = rows[:, None] * width + columns[None, :]
        y, x = tl.load(at_points + offset, in_grid, -FAR), tl.load(at_points + height * width + offset, in_grid, -FAR)
        near = (x >= tl.load(hull)) & (x <= tl.load(hull + 2)) & (y >= tl.load(hull + 1)) & (y <= tl.load(hull + 3))
        if tl.max(near.to(tl.int32), None) > 0:
            shown = _shown_at(
                which, annotations, layer_of, layers, borders, stencils, placed, hulls, starts, first_point,
                first_ring, runs, first_run, heights, layers_of_image, sides, vertices, y, x,
            )  # fmt: skip
            tl.store(
                out + mask * height * width + offset, (shown * near.to(tl.int32)).to(out.dtype.element_ty), in_grid
            )


@mask_kernel
def label(
    annotations, layer_of, layers, borders, stencils, placed, hulls, starts, first_point, first_ring, runs, first_run,
    heights, objects, grid_y, grid_x, out, layers_of_image, sides, vertices, height, width, cell, ranks, first_object,
    labels,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write to `out`, (N, height, width), the label of the object that each point shows, -1 for none.

    Of several it is the one with the largest of `ranks`. `first_object`, (N + 1,): those of each image in `objects`,
    `ranks` and `labels`.
    """
    across, down = tl.cdiv(width, COLUMNS), tl.cdiv(height, ROWS)
    image, block = (tl.program_id(0) // (across * down)).to(tl.int64), tl.program_id(0) % (across * down)
    row, column = block // across * ROWS, block % across * COLUMNS
    rows, columns = row + tl.arange(0, ROWS), column + tl.arange(0, COLUMNS)
    y, x = tl.load(grid_y + tl.minimum(rows, height - 1)), tl.load(grid_x + tl.minimum(columns, width - 1))
    best = tl.full((ROWS, COLUMNS), -1, tl.int32)
    result = best
    for index in range(tl.load(first_object + image), tl.load(first_object + image + 1)):
        which = tl.load(objects + index)
        if _touches(hulls + which * 5, grid_y, grid_x, row, column, height, width, ROWS, COLUMNS):
            shown = _shown(
                which, annotations, layer_of, layers, borders, stencils, placed, hulls, starts, first_point,
                first_ring, runs, first_run, heights, layers_of_image, sides, vertices, y, x, cell,
            )  # fmt: skip
            rank = tl.load(ranks + index)
            above = (shown > 0) & (rank > best)
            best, result = tl.where(above, rank, best), tl.where(above, tl.load(labels + index), result)
    in_grid = (rows < height)[:, None] & (columns < width)[None, :]
    tl.store(out + (image * height + rows[:, None]) * width + columns[None, :], result, in_grid)


@triton.jit
def _blocks(low, high, cell, count, BLOCK: tl.constexpr):
    """Return the first block of points that a span, in units, may touch, and the end."""
    first, end = tl.zeros((), tl.int32), count + tl.zeros((), tl.int32)
    if cell > 0:
        first = tl.maximum(low, 0) // cell
        end = tl.minimum(tl.maximum(high, 0) // cell + 1, count)
    return first // BLOCK, tl.maximum(tl.cdiv(end, BLOCK), first // BLOCK)


@triton.jit
def _touches(
    hull, grid_y, grid_x, row, column, height, width, ROWS: tl.constexpr, COLUMNS: tl.constexpr
):  # fmt: skip
    """Return whether a block of points touches the box around an object."""
    first_y, last_y = tl.load(grid_y + row), tl.load(grid_y + tl.minimum(row + ROWS, height) - 1)
    first_x, last_x = tl.load(grid_x + column), tl.load(grid_x + tl.minimum(column + COLUMNS, width) - 1)
    across = (tl.load(hull) <= last_x) & (tl.load(hull + 2) >= first_x)
    return across & (tl.load(hull + 1) <= last_y) & (tl.load(hull + 3) >= first_y)


@triton.jit
def _shown(
    which, annotations, layer_of, layers, borders, stencils, placed, hulls, starts, first_point, first_ring, runs,
    first_run, heights, layers_of_image, sides, vertices, y, x, cell,
):  # fmt: skip
    """Return where points, in rows `y` and columns `x`, show an object, as 1. `cell`: see `sample`."""
    annotation, own = tl.load(annotations + which), tl.load(layer_of + which)
    layer, first_layer = layers + own * NUMBERS, layers + (own - own % layers_of_image) * NUMBERS
    first, end = tl.load(first_run + annotation), tl.load(first_run + annotation + 1)
    ring, last = tl.load(first_ring + annotation), tl.load(first_ring + annotation + 1)
    vertex = placed + tl.load(starts + which) - tl.load(first_point + ring)
    shown = tl.zeros((y.shape[0], x.shape[0]), tl.int32)
    in_source = (end > first) | (tl.load(hulls + which * 5 + 4) > 0)
    if in_source:
        source_x, source_y, _ = _in_source(layer, y[:, None], x[None, :])
        if end > first:
            shown = _in_runs(runs + first, end - first, source_x, source_y, tl.load(heights + annotation))
        else:
            y_units, x_units = _units(source_y), _units(source_x)
            shown = _in_rings(vertex, vertices, first_point, ring, last, y_units, x_units, cell, shown, _crossed)
    elif cell > 0:
        words = tl.zeros(y.shape, tl.int32)
        words = _in_rings(vertex, vertices, first_point, ring, last, y, x, cell, words, _crossed_bits)
        shown = (words[:, None] >> tl.arange(0, x.shape[0])[None, :]) & 1
    else:
        shown = _in_rings(vertex, vertices, first_point, ring, last, y[:, None], x[None, :], cell, shown, _crossed)
    if in_source | (layers_of_image > 1) | (sides > 0) | (_whole(layer, y, x) == 0):
        own_borders = borders + own * sides * 3
        shown &= _seen(
            layer, first_layer, layers_of_image, own_borders, sides, stencils, y[:, None], x[None, :]
        )  # fmt: skip
    return shown


@triton.jit
def _shown_at(
    which, annotations, layer_of, layers, borders, stencils, placed, hulls, starts, first_point, first_ring, runs,
    first_run, heights, layers_of_image, sides, vertices, y, x,
):  # fmt: skip
    """Return where points (R, C) show an object, as 1."""
    annotation, own = tl.load(annotations + which), tl.load(layer_of + which)
    layer, first_layer = layers + own * NUMBERS, layers + (own - own % layers_of_image) * NUMBERS
    first, end = tl.load(first_run + annotation), tl.load(first_run + annotation + 1)
    ring, last = tl.load(first_ring + annotation), tl.load(first_ring + annotation + 1)
    vertex = placed + tl.load(starts + which) - tl.load(first_point + ring)
    shown = tl.zeros(y.shape, tl.int32)
    if (end > first) | (tl.load(hulls + which * 5 + 4) > 0):
        source_x, source_y, _ = _in_source(layer, y, x)
        if end > first:
            shown = _in_runs(runs + first, end - first, source_x, source_y, tl.load(heights + annotation))
        else:
            y_units, x_units = _units(source_y), _units(source_x)
            shown = _in_rings(vertex, vertices, first_point, ring, last, y_units, x_units, 0, shown, _crossed)
    else:
        shown = _in_rings(vertex, vertices, first_point, ring, last, y, x, 0, shown, _crossed)
    return shown & _seen(layer, first_layer, layers_of_image, borders + own * sides * 3, sides, stencils, y, x)


@triton.jit
def _seen(layer, first_layer, layers_of_image, borders, sides, stencils, y, x):
    """Return where points (R, C) show the source of an object, and nothing covers it, as 1."""
    output_y, output_x, seen = _pixels(y), _pixels(x), _in_bounds(layer, y, x)
    for side in range(sides):
        border = borders + side * 3
        distance = (_single(border) * output_x + _single(border + 1) * output_y) + _single(border + 2)
        seen = seen & (distance >= 0)
    return seen.to(tl.int32) & _on_top(first_layer, layers_of_image, stencils, layer, output_y, output_x, seen)


@triton.jit
def _whole(layer, y, x):
    """Return 1 if all points show the source of an object that is alone in its image: if those at the corners do."""
    y0, y1, x0, x1 = tl.min(y, 0), tl.max(y, 0), tl.min(x, 0), tl.max(x, 0)
    rectangle = layer + RECTANGLE
    whole = (_pixels(x0) >= tl.load(rectangle)) & (_pixels(y0) >= tl.load(rectangle + 1))
    whole = whole & (_pixels(x1) < tl.load(rectangle + 2)) & (_pixels(y1) < tl.load(rectangle + 3))
    whole = whole & _in_bounds(layer, y0, x0) & _in_bounds(layer, y0, x1)
    return (whole & _in_bounds(layer, y1, x0) & _in_bounds(layer, y1, x1)).to(tl.int32)


@triton.jit
def _in_bounds(layer, y, x):
    """Return whether points show the source of an object."""
    x, y, depth = _in_source(layer, y, x)
    bounds = layer + BOUNDS
    across = (x >= _single(bounds)) & (x <= _single(bounds + 2))
    return (depth > 0) & across & (y >= _single(bounds + 1)) & (y <= _single(bounds + 3))


@triton.jit
def _in_source(layer, y, x):
    """Return where points, in units, are in the source, and their depth, in single precision."""
    return _source_of_pixels(layer, _pixels(y), _pixels(x))


@triton.jit
def _source_of_pixels(layer, y, x):
    matrix = layer + TO_SOURCE
    w = (_single(matrix + 6) * x + _single(matrix + 7) * y) + _single(matrix + 8)
    at_x = (_single(matrix) * x + _single(matrix + 1) * y) + _single(matrix + 2)
    at_y = (_single(matrix + 3) * x + _single(matrix + 4) * y) + _single(matrix + 5)
    if (tl.load(matrix + 6) != 0) | (tl.load(matrix + 7) != 0) | (tl.load(matrix + 8) != 1):
        # Triton's / is not rounded correctly in single precision, which the CPU's is
        at_x, at_y = tl.div_rn(at_x, w), tl.div_rn(at_y, w)
    return at_x, at_y, w


@triton.jit
def _single(number):
    return tl.load(number).to(tl.float32)


@triton.jit
def _pixels(units):
    return units.to(tl.float32) / ONE


@triton.jit
def _in_rings(vertex, vertices, first_point, ring, last, y, x, cell, inside, crossed: tl.constexpr):
    """Return where points are in one of the rings: as 1, or with `_crossed_bits` as bits."""
    low, high, right = tl.min(y, None), tl.max(y, None), tl.max(x, None)
    for at_ring in range(ring, last):
        begin, end = tl.load(first_point + at_ring), tl.load(first_point + at_ring + 1)
        parity = tl.zeros(inside.shape, tl.int32)
        x0, y0 = tl.load(vertex + end - 1), tl.load(vertex + vertices + end - 1)
        for index in range(begin, end):
            x1, y1 = tl.load(vertex + index), tl.load(vertex + vertices + index)
            # others are beside the rows of all points, or right of them
            if (tl.minimum(y0, y1) <= high) & (tl.maximum(y0, y1) > low) & (tl.minimum(x0, x1) <= right):
                parity ^= crossed(x0, y0, x1, y1, y, x, cell)
            x0, y0 = x1, y1
        inside |= parity
    return inside


@triton.jit
def _crossed(x0, y0, x1, y1, y, x, cell):
    """Return 1 where an edge is left of points, in their row."""
    from_x, from_y, to_x, to_y = _downwards(x0, y0, x1, y1)
    left = (x - from_x).to(tl.int64) * (to_y - from_y).to(tl.int64)
    crossed = left >= (y - from_y).to(tl.int64) * (to_x - from_x).to(tl.int64)
    return ((y >= from_y) & (y < to_y) & crossed).to(tl.int32)


@triton.jit
def _crossed_bits(x0, y0, x1, y1, y, x, cell):
    """Do as `_crossed` for rows (R,) and columns (32,) that are `cell` apart: return a word (R,) with a bit for each
    column, so that a thread takes an edge through a whole row at once.
    """
    from_x, from_y, to_x, to_y = _downwards(x0, y0, x1, y1)
    # a level edge crosses no row, its division must only not fail
    rise = tl.maximum(to_y - from_y, 1).to(tl.int64)
    distance = (from_x - tl.min(x, 0)) * rise + (y - from_y).to(tl.int64) * (to_x - from_x)
    step = rise * cell
    column = tl.ceil(tl.minimum(tl.maximum(distance.to(tl.float32) / step.to(tl.float32), 1.0), 32.0)).to(tl.int32)
    column -= ((column - 1) * step >= distance).to(tl.int32)  # single precision may be one column off
    column += (column * step < distance).to(tl.int32)
    crossed = (y >= from_y) & (y < to_y) & (column < 32)
    return tl.where(crossed, -1 << tl.minimum(column, 31), 0)


@triton.jit
def _downwards(x0, y0, x1, y1):
    """Return the ends of an edge, the upper one first."""
    up = y0 > y1
    return tl.where(up, x1, x0), tl.where(up, y1, y0), tl.where(up, x0, x1), tl.where(up, y0, y1)


@triton.jit
def _in_runs(ends, count, x, y, height):
    """Return where points are in a mask of `count` runs, as 1."""
    x = tl.floor(tl.minimum(tl.maximum(tl.where(x == x, x, 0.0), -1.0), FARTHEST)).to(tl.int64)
    y = tl.floor(tl.minimum(tl.maximum(tl.where(y == y, y, 0.0), -1.0), FARTHEST)).to(tl.int64)
    position = x * height.to(tl.int64) + tl.minimum(y, height.to(tl.int64) - 1)
    before = tl.zeros(position.shape, tl.int32)
    step = 1
    while step < count:
        step *= 2
    while step > 0:  # the number of runs that end before each position, bit by bit
        more = before + step <= count
        before += tl.where(more & (tl.load(ends + before + step - 1, more, 0) <= position), step, 0)
        step //= 2
    return (before % 2) * (position < tl.load(ends + count - 1)).to(tl.int32)


@triton.jit
def _on_top(layer, count, stencils, shown, y, x, shape):
    """Return where no later layer covers those of the copy of the layer `shown`, as 1."""
    on_top = tl.zeros(shape.shape, tl.int32)
    copy, start, end = tl.load(shown + COPY), tl.load(shown + INTERVAL), tl.load(shown + INTERVAL + 1)
    for _ in range(count):
        own, rectangle = tl.load(layer + COPY) == copy, layer + RECTANGLE
        if own | ((tl.load(layer + INTERVAL) <= start) & (tl.load(layer + INTERVAL + 1) >= end)):
            inside = (x >= tl.load(rectangle)) & (y >= tl.load(rectangle + 1))
            inside = inside & (x < tl.load(rectangle + 2)) & (y < tl.load(rectangle + 3))
            if tl.load(layer + STENCIL) >= 0:
                inside = inside & _in_stencil(layer + STENCIL, stencils, y, x, inside)
            on_top = tl.where(inside, own.to(tl.int32), on_top)
        layer += NUMBERS
    return on_top


@triton.jit
def _in_stencil(stencil, bits, y, x, inside):
    """Return whether pixels `inside` the rectangle of a stencil are shown."""
    start, stride = tl.load(stencil).to(tl.int64), tl.load(stencil + 3).to(tl.int64)
    column = tl.floor(x).to(tl.int64) - tl.load(stencil + 1).to(tl.int64)
    row = tl.floor(y).to(tl.int64) - tl.load(stencil + 2).to(tl.int64)
    eight = tl.load(bits + start + row * stride + column // 8, inside, 0).to(tl.int64)
    return ((eight >> (column % 8)) & 1) > 0
