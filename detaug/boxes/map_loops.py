"""Numba's loops that sample maps, which have a value for each pixel of an image.

For each output pixel they go over the layers of its image, as `mask_loops` do, and look up the value of the one that is
seen there: of those that are averaged, the one with the largest share. The average is cut where a layer begins or ends
to fill it, see `Layers.parts_of_average`, and of each part the last layer that fills it is seen.
"""

from __future__ import annotations

import numpy as np

from detaug.boxes.layers import ERASED_SHOWN
from detaug.boxes.mask_loops import SINGLE_ONE, _in_bounds, _in_stencil, _sum, _to_source
from detaug.boxes.units import ONE, RECTANGLE, STENCIL
from detaug.compiled import compiled


@compiled
def sample(scene, parts, first, shown, maps, tables, y, x, keeps_erased, linear, empty, out, second, fraction):
    """Write to `out` (R, C) the values that the image shows whose layers begin at `first`, `empty` where nothing is.

    `scene`: as of `mask_loops`. `parts`: see `Layers.parts_of_average`. `shown`: (N * L,) which map each layer shows,
    below 0 for none, see `Layers.of_source`. `maps`: the values of all maps, one behind the other, and of each map
    where it begins, (height, width), and scale and offset x, y. `tables`: (N * L,) where the table of each layer
    begins, and all tables, by which a value of its map becomes one of the batch; both empty where values stay. `y`,
    `x`: (R, C) points in units, before a field; far away where there is nothing. `second`, `fraction`, of the same
    shape, or empty: the value of what is averaged with it, and the share of the first.
    """
    for line in range(out.shape[0]):
        for column in range(out.shape[1]):
            point_y, point_x = y[line, column], x[line, column]
            top, other, share = -1, -1, ZERO
            if point_y >= 0 and point_x >= 0:
                top, other, share = _on_top(scene, parts, first, shown, point_y, point_x, keeps_erased)
            value = _value(scene, top, shown, maps, point_y, point_x, linear, empty)
            out[line, column] = _looked_up(tables, top, value)
            if second.size:
                second[line, column], fraction[line, column] = out[line, column], ONE_SHARE
                if other >= 0:
                    value = _value(scene, other, shown, maps, point_y, point_x, linear, empty)
                    second[line, column] = _looked_up(tables, other, value)
                    fraction[line, column] = share


ONE_SHARE, HALF, ZERO = np.float32(1), np.float32(0.5), np.float32(0)


@compiled
def _looked_up(tables, number, value):
    starts, values = tables
    return values[starts[max(number, 0)] + np.int64(value)] if starts.size else value


@compiled
def _on_top(scene, parts, first, shown, y, x, keeps_erased):
    """Return the layer with the largest share that is seen at a point, of equal ones the last, the next one, and the
    share of the first.
    """
    layers, _, stencils, count = scene
    filled, lengths = parts
    pixel_x, pixel_y = np.float32(x) / SINGLE_ONE, np.float32(y) / SINGLE_ONE
    top, most, other, next_most = -1, ZERO, -1, ZERO
    free = (1 << lengths.shape[1]) - 1  # what no later layer fills
    for number in range(first + count - 1, first - 1, -1):
        seen = filled[number] & free
        if seen == 0:
            continue
        layer = layers[number]
        inside = layer[RECTANGLE] <= pixel_x < layer[RECTANGLE + 2]
        inside = inside and layer[RECTANGLE + 1] <= pixel_y < layer[RECTANGLE + 3]
        if not inside or (keeps_erased and shown[number] == ERASED_SHOWN):
            continue
        if layer[STENCIL] >= 0 and not _in_stencil(stencils, layer, pixel_y, pixel_x):
            continue
        free &= ~seen
        share = ZERO
        for part in range(lengths.shape[1]):
            if (seen >> part) & 1:
                share += lengths[first // count, part]
        if share > most:
            top, most, other, next_most = number, share, top, most
        elif share > next_most:
            other, next_most = number, share
        if free == 0:
            break
    return top, other, most


@compiled
def _value(scene, number, shown, maps, y, x, linear, empty):
    """Return the value of a layer's map at a point; `empty` where it shows fill, or nothing."""
    layers, borders, _, _ = scene
    if number < 0 or shown[number] < 0:
        return empty
    values, starts, sizes, places = maps
    start, (height, width) = starts[shown[number]], sizes[shown[number]]
    # Half a unit further right and below: on the seam of two tiles, where both round, this is in one of them.
    if height == 0 or not _in_bounds(layers[number], y + HALF, x + HALF):
        return empty
    # This, and the test of rectangles in `_on_top`, is also in `mask_loops._is_seen`: functions for both, which take
    # the arrays, make this loop several times slower.
    pixel_x, pixel_y = np.float32(x + HALF) / SINGLE_ONE, np.float32(y + HALF) / SINGLE_ONE
    for side in range(borders.shape[1]):
        if not _sum(borders[number, side], 0, pixel_y, pixel_x) >= ZERO:
            return empty
    source_x, source_y, _ = _to_source(layers[number], y, x)
    scale_x, scale_y, left, top = places[shown[number]]
    # In whole units, so that a point on the edge of two pixels is in the same one wherever it is computed.
    at_x = np.floor(source_x * SINGLE_ONE + HALF) / ONE * scale_x + left
    at_y = np.floor(source_y * SINGLE_ONE + HALF) / ONE * scale_y + top
    if linear:
        return _between(values, start, height, width, at_y - 0.5, at_x - 0.5, empty)
    row = min(max(np.int64(np.floor(at_y)), 0), height - 1)
    return values[start + row * width + min(max(np.int64(np.floor(at_x)), 0), width - 1)]


@compiled
def _between(values, start, height, width, y, x, empty):
    """Interpolate linearly between those of four pixels that are known; `empty` where the nearest one is not."""
    top, left = np.int64(np.floor(y)), np.int64(np.floor(x))
    down, right = np.float32(y - top), np.float32(x - left)
    total, weights, nearest, best = ZERO, ZERO, False, -ONE_SHARE
    for corner in range(4):
        lower, further = corner // 2, corner % 2
        row, column = min(max(top + lower, 0), height - 1), min(max(left + further, 0), width - 1)
        weight = (down if lower else ONE_SHARE - down) * (right if further else ONE_SHARE - right)
        value = values[start + row * width + column]
        if weight >= best:  # of equal ones the last, as of `floor`
            best, nearest = weight, value != empty
        if value != empty:
            total, weights = total + weight * value, weights + weight
    return total / weights if nearest else empty
