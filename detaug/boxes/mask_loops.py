"""Numba's loops that rasterize masks: see `masks.py`. `detaug/gpu/mask_kernels.py` gives the same bits.

Every step is in whole numbers, or in floating point in the same order and without fused products. Positions in the
source are in single precision. An object is a row of the outlines and the number of a layer; `table` is points,
first_point, first_ring, runs, first_run, run_boxes and heights of a `MaskTable`, `scene` layers, borders and stencils
of `Objects`, and how many layers an image has.
"""

from __future__ import annotations

import numpy as np

from detaug.boxes.units import (
    BOUNDS,
    COPY,
    FAR,
    FARTHEST,
    INTERVAL,
    NEAREST,
    ONE,
    RECTANGLE,
    STENCIL,
    TO_OUTPUT,
    TO_SOURCE,
)
from detaug.compiled import compiled

SINGLE_ONE, SINGLE_FARTHEST, HALF, ZERO, MINUS_ONE = (np.float32(number) for number in (ONE, FARTHEST, 0.5, 0, -1))

SAMPLES = 4, 16, 1 << 30
"""Points along the longer side of a box, at most, that are looked at first, then, and at last: all."""


@compiled
def fill(table, scene, rows, layer_of, alone, grid_y, grid_x, out):
    """Set the points of masks in `out`, (B, R, C) of zeros, that show objects.

    `alone`: (B,) whether no other layer shows the same copy. `grid_y`, `grid_x`: points (B or 1, R), (B or 1, C).
    """
    for index in range(len(rows)):
        y, x = grid_y[index if len(grid_y) > 1 else 0], grid_x[index if len(grid_x) > 1 else 0]
        layer = scene[0][layer_of[index]]
        outline = _place(table, layer, rows[index])
        top, bottom, left, right = _window(outline[3], layer, alone[index], y, x)
        if top == bottom or left == right:
            continue
        mask, y, x = out[index, top:bottom, left:right], y[top:bottom], x[left:right]
        _fill_outline(table, rows[index], layer, outline, y, x, mask)
        if _may_be_hidden(scene, layer_of[index], alone[index], y, x):
            for line in range(len(y)):
                for column in range(len(x)):
                    if mask[line, column] and not _is_seen(scene, layer_of[index], y[line], x[column]):
                        mask[line, column] = False


@compiled
def fill_points(table, scene, rows, layer_of, y, x, out):
    """Set in `out`, (B, R, C) of False, which of the points of an image show each object.

    `y`, `x`: (R, C) units, not below 0, but for those far away that show nothing.
    """
    lines = y.max() // ONE + 1 if y.size else 0
    for index in range(len(rows)):
        layer = scene[0][layer_of[index]]
        vertex_x, vertex_y, in_source, (x0, y0, x1, y1) = _place(table, layer, rows[index])
        edges = _edges_of_lines(table, rows[index], vertex_y, 0 if in_source else lines)
        for line in range(y.shape[0]):
            for column in range(y.shape[1]):
                point_y, point_x = y[line, column], x[line, column]
                # a point far away is at -FAR, for which `edges` has no line
                if x0 <= point_x <= x1 and y0 <= point_y <= y1 and point_y >= 0:
                    if in_source:
                        inside = _in_source(table, rows[index], layer, vertex_x, vertex_y, point_y, point_x)
                    else:
                        inside = _in_edges(edges, vertex_x, vertex_y, point_y, point_x)
                    out[index, line, column] = inside and _is_seen(scene, layer_of[index], point_y, point_x)


@compiled
def _edges_of_lines(table, row, vertex_y, lines):
    """Return the edges that meet each of the first lines of pixels: where those of each begin, and the upper vertex,
    the lower one and the ring of each, ring by ring.
    """
    first_point, first_ring = table[1], table[2]
    start, counts = first_point[first_ring[row]], np.zeros(lines + 1, np.int64)
    kept = np.empty((3, 0), np.int64)
    for writes in (False, True):  # first they are counted
        for ring in range(first_ring[row], first_ring[row + 1]):
            begin, end = first_point[ring] - start, first_point[ring + 1] - start
            for vertex in range(begin, end):
                after = vertex + 1 if vertex + 1 < end else begin
                low, high = (vertex, after) if vertex_y[vertex] <= vertex_y[after] else (after, vertex)
                first, last = max(vertex_y[low] // ONE, 0), min((vertex_y[high] - 1) // ONE, lines - 1)
                for line in range(first, last + 1):
                    if writes:
                        kept[0, counts[line]], kept[1, counts[line]], kept[2, counts[line]] = low, high, ring
                    counts[line] += 1
        if not writes:
            ends = np.cumsum(counts)
            kept, counts[0], counts[1:] = np.empty((3, ends[-1]), np.int64), 0, ends[:-1]
    return counts, kept


@compiled
def _in_edges(edges, vertex_x, vertex_y, y, x):
    """Do as `_in_rings` for a point of a line of `edges`."""
    ends, kept = edges
    line, inside = y // ONE, False
    first = ends[line - 1] if line else 0
    for number in range(first, ends[line]):
        # the ring before has ended, and had it inside; else the count starts again at outside
        if inside and kept[2, number] != kept[2, number - 1]:
            return True
        low, high = kept[0, number], kept[1, number]
        # without the lower end, which the next edge has: a vertex would count twice
        if vertex_y[low] <= y < vertex_y[high]:
            dx, dy = vertex_x[high] - vertex_x[low], vertex_y[high] - vertex_y[low]
            inside ^= (x - vertex_x[low]) * dy >= (y - vertex_y[low]) * dx
    return inside


@compiled
def show_fewer(table, scene, rows, layer_of, boxes, pixels, out):
    """Set in `out`, (B,), which objects show fewer than `pixels` pixels in boxes (B, 4) XYXY of whole pixels."""
    for index in range(len(rows)):
        left, top, right, bottom = boxes[index]
        outline, shown = _place(table, scene[0][layer_of[index]], rows[index]), 0
        for samples in SAMPLES:
            # enough of a few pixels are enough of all of them, so most large objects are decided by few
            if shown < pixels:
                step = max(1, -(-max(right - left, bottom - top) // samples))
                shown = _count(table, scene, rows[index], layer_of[index], outline, boxes[index], step, pixels)
        out[index] = shown < pixels


@compiled
def _count(table, scene, row, own, outline, box, step, pixels):
    """Return how many of each `step`-th pixel of a box show an object, or some number of at least `pixels`."""
    y = np.arange(box[1] + step // 2, box[3], step) * ONE + ONE // 2
    x = np.arange(box[0] + step // 2, box[2], step) * ONE + ONE // 2
    mask = np.zeros((len(y), len(x)), np.bool_)
    _fill_outline(table, row, scene[0][own], outline, y, x, mask)
    shown = 0
    for line in range(len(y)):
        for column in range(len(x)):
            shown += mask[line, column] and _is_seen(scene, own, y[line], x[column])
        if shown >= pixels:
            break
    return shown


@compiled
def _fill_outline(table, row, layer, outline, y, x, mask):
    """Set the points of `mask`, zeros, that are in an object, seen or not. `outline`: what `_place` returned."""
    vertex_x, vertex_y, in_source, _ = outline
    if in_source:
        for line in range(len(y)):
            for column in range(len(x)):
                mask[line, column] = _in_source(table, row, layer, vertex_x, vertex_y, y[line], x[column])
    else:
        _fill_rings(table, row, vertex_x, vertex_y, y, x, mask)


@compiled
def _place(table, layer, row):
    """Return the vertices of an object in units: x and y, in the output or, of one behind the horizon, in the source.

    Also whether it is tested in its source, as one behind the horizon and RLE are, and the box around it.
    """
    points, first_point, first_ring, _, first_run, run_boxes, _ = table
    begin, end = first_point[first_ring[row]], first_point[first_ring[row + 1]]
    vertex_x, vertex_y = np.empty(end - begin, np.int64), np.empty(end - begin, np.int64)
    x0, y0, x1, y1, behind = FAR, FAR, -FAR, -FAR, False
    matrix = layer[TO_OUTPUT:TO_SOURCE]
    has_runs = first_run[row + 1] > first_run[row]
    if has_runs:
        for corner in range(4):
            x, y = np.float64(run_boxes[row, corner % 2 * 2]), np.float64(run_boxes[row, corner // 2 * 2 + 1])
            unit_x, unit_y, near = _moved(matrix, x, y)
            x0, y0, x1, y1 = min(x0, unit_x), min(y0, unit_y), max(x1, unit_x), max(y1, unit_y)
            behind |= not near
    for point in range(begin, end):
        unit_x, unit_y, near = _moved(matrix, np.float64(points[point, 0]), np.float64(points[point, 1]))
        vertex_x[point - begin], vertex_y[point - begin] = unit_x, unit_y
        x0, y0, x1, y1 = min(x0, unit_x), min(y0, unit_y), max(x1, unit_x), max(y1, unit_y)
        behind |= not near
    if behind:
        x0, y0, x1, y1 = -FAR, -FAR, FAR, FAR
        for point in range(begin, end):
            vertex_x[point - begin] = _units(np.float64(points[point, 0]))
            vertex_y[point - begin] = _units(np.float64(points[point, 1]))
    return vertex_x, vertex_y, has_runs or behind, (x0, y0, x1, y1)


@compiled
def _moved(matrix, x, y):
    """Return a point after a map in units, and whether it is near enough."""
    w = (matrix[6] * x + matrix[7] * y) + matrix[8]
    x, y = ((matrix[0] * x + matrix[1] * y) + matrix[2]) / w, ((matrix[3] * x + matrix[4] * y) + matrix[5]) / w
    return _units(x), _units(y), w > NEAREST and abs(x) < FARTHEST and abs(y) < FARTHEST


@compiled
def _units(pixels):
    """Return a coordinate in units, rounded; NaN is far away."""
    if not pixels < FARTHEST:
        pixels = FARTHEST
    return np.int64(np.floor(max(pixels, -FARTHEST) * ONE + 0.5))


@compiled
def _single_units(pixels):
    """Do as `_units` in single precision."""
    if not pixels < SINGLE_FARTHEST:
        pixels = SINGLE_FARTHEST
    return np.int64(np.floor(max(pixels, -SINGLE_FARTHEST) * SINGLE_ONE + HALF))


@compiled
def _window(hull, layer, alone, y, x):
    """Return the first row and the end, and the first column and the end, outside of which nothing is shown."""
    x0, y0, x1, y1 = hull
    x1, y1 = x1 + 1, y1 + 1
    if alone:
        left, top, right, bottom = layer[RECTANGLE:INTERVAL]
        x0, y0 = max(x0, _edge(left)), max(y0, _edge(top))
        x1, y1 = min(x1, _edge(right)), min(y1, _edge(bottom))
    top, left = np.searchsorted(y, y0), np.searchsorted(x, x0)
    return top, max(top, np.searchsorted(y, y1)), left, max(left, np.searchsorted(x, x1))


@compiled
def _edge(pixels):
    return np.int64(min(max(np.ceil(pixels * ONE), -FAR), FAR))


@compiled
def _fill_rings(table, row, vertex_x, vertex_y, y, x, mask):
    """Set the points between the crossings of each ring with the rows."""
    first_point, first_ring = table[1], table[2]
    start = first_point[first_ring[row]]
    crossings = np.empty((len(y), len(x) + 1), np.bool_)
    for ring in range(first_ring[row], first_ring[row + 1]):
        begin, end = first_point[ring] - start, first_point[ring + 1] - start
        crossings[:] = False
        for vertex in range(begin, end):
            after = vertex + 1 if vertex + 1 < end else begin
            low, high = (vertex, after) if vertex_y[vertex] <= vertex_y[after] else (after, vertex)
            dx, dy = vertex_x[high] - vertex_x[low], vertex_y[high] - vertex_y[low]
            first, last = np.searchsorted(y, vertex_y[low]), np.searchsorted(y, vertex_y[high])
            for line in range(first, last):
                edge = vertex_x[low] - (vertex_y[low] - y[line]) * dx // dy  # the smallest whole x not left of it
                # from the edge on, points are on its other side
                crossings[line, np.searchsorted(x, edge)] ^= True
        for line in range(len(y)):
            inside = False
            for column in range(len(x)):
                inside ^= crossings[line, column]
                mask[line, column] |= inside


@compiled
def _in_rings(table, row, vertex_x, vertex_y, y, x):
    """Return whether a point is in one of the rings."""
    first_point, first_ring = table[1], table[2]
    start = first_point[first_ring[row]]
    for ring in range(first_ring[row], first_ring[row + 1]):
        begin, end = first_point[ring] - start, first_point[ring + 1] - start
        inside = False
        for vertex in range(begin, end):
            after = vertex + 1 if vertex + 1 < end else begin
            low, high = (vertex, after) if vertex_y[vertex] <= vertex_y[after] else (after, vertex)
            if vertex_y[low] <= y < vertex_y[high]:
                dx, dy = vertex_x[high] - vertex_x[low], vertex_y[high] - vertex_y[low]
                # exact: FARTHEST keeps products of units within 64 bits
                inside ^= (x - vertex_x[low]) * dy >= (y - vertex_y[low]) * dx
        if inside:
            return True
    return False


@compiled
def _to_source(layer, y, x):
    """Return where a point is in the source, and its depth, in single precision."""
    x, y = np.float32(x) / SINGLE_ONE, np.float32(y) / SINGLE_ONE
    w = _sum(layer, TO_SOURCE + 6, y, x)
    return _sum(layer, TO_SOURCE, y, x) / w, _sum(layer, TO_SOURCE + 3, y, x) / w, w


@compiled
def _sum(numbers, first, y, x):
    """Return a x + b y + c, with the numbers from `first` on, in single precision."""
    return (np.float32(numbers[first]) * x + np.float32(numbers[first + 1]) * y) + np.float32(numbers[first + 2])


@compiled
def _in_source(table, row, layer, vertex_x, vertex_y, y, x):
    """Return whether a point is in an object, tested in its source."""
    runs, first_run, heights = table[3], table[4], table[6]
    source_x, source_y, _ = _to_source(layer, y, x)
    first, end = first_run[row], first_run[row + 1]
    if end == first:
        return _in_rings(table, row, vertex_x, vertex_y, _single_units(source_y), _single_units(source_x))
    # on the border below, a point would be in the next column
    position = _whole(source_x) * heights[row] + min(_whole(source_y), heights[row] - 1)
    before = np.searchsorted(runs[first:end], position, side="right")
    return before % 2 == 1 and position < runs[end - 1]


@compiled
def _whole(pixels):
    """Return the pixel of a coordinate in the source; 0 for NaN, -1 for all below 0."""
    if pixels != pixels:
        return 0
    return np.int64(np.floor(min(max(pixels, MINUS_ONE), SINGLE_FARTHEST)))


@compiled
def _in_bounds(layer, y, x):
    """Return whether a point shows the source of a layer, not fill."""
    source_x, source_y, depth = _to_source(layer, y, x)
    across = np.float32(layer[BOUNDS]) <= source_x <= np.float32(layer[BOUNDS + 2])
    return depth > ZERO and across and np.float32(layer[BOUNDS + 1]) <= source_y <= np.float32(layer[BOUNDS + 3])


@compiled
def _is_seen(scene, own, y, x):
    """Return whether a point shows the source of a layer, and no later layer covers it there."""
    layers, borders, stencils, count = scene
    if not _in_bounds(layers[own], y, x):
        return False
    pixel_x, pixel_y = np.float32(x) / SINGLE_ONE, np.float32(y) / SINGLE_ONE
    for side in range(borders.shape[1]):
        if not _sum(borders[own, side], 0, pixel_y, pixel_x) >= ZERO:
            return False
    copy, on_top, first = layers[own, COPY], False, own - own % count
    for number in range(first, first + count):
        layer = layers[number]
        if layer[COPY] == copy or _covers(layer, layers[own]):
            inside = layer[RECTANGLE] <= pixel_x < layer[RECTANGLE + 2]
            inside = inside and layer[RECTANGLE + 1] <= pixel_y < layer[RECTANGLE + 3]
            if inside and (layer[STENCIL] < 0 or _in_stencil(stencils, layer, pixel_y, pixel_x)):
                on_top = layer[COPY] == copy
    return on_top


@compiled
def _covers(layer, earlier):
    """Return whether a layer covers an earlier one: if it fills all that this one fills of an average."""
    return layer[INTERVAL] <= earlier[INTERVAL] and layer[INTERVAL + 1] >= earlier[INTERVAL + 1]


@compiled
def _in_stencil(stencils, layer, y, x):
    """Return whether a pixel of the rectangle of a stencil is shown."""
    column, row = np.int64(np.floor(x) - layer[STENCIL + 1]), np.int64(np.floor(y) - layer[STENCIL + 2])
    eight = stencils[np.int64(layer[STENCIL]) + row * np.int64(layer[STENCIL + 3]) + column // 8]
    return (eight >> (column % 8)) & 1 == 1


@compiled
def _may_be_hidden(scene, own, alone, y, x):
    """Return whether some of the points may not show an object: fill, or what a later layer covers."""
    layers, borders, _, count = scene
    if not alone or borders.shape[1] or layers[own, STENCIL] >= 0:
        return True
    top, bottom = np.float32(y[0]) / SINGLE_ONE, np.float32(y[-1]) / SINGLE_ONE
    left, right = np.float32(x[0]) / SINGLE_ONE, np.float32(x[-1]) / SINGLE_ONE
    for number in range(own + 1, own - own % count + count):
        x0, y0, x1, y1 = layers[number, RECTANGLE:INTERVAL]
        meets = left < x1 and right >= x0 and top < y1 and bottom >= y0
        if meets and _covers(layers[number], layers[own]):
            return True
    # bounds are convex: points between corners within them are within too
    return not (
        _in_bounds(layers[own], y[0], x[0])
        and _in_bounds(layers[own], y[0], x[-1])
        and _in_bounds(layers[own], y[-1], x[0])
        and _in_bounds(layers[own], y[-1], x[-1])
    )
