"""Numba's loop that places keypoints: see `placement.py`."""

from __future__ import annotations

import numpy as np

from detaug.boxes.units import EDGE
from detaug.compiled import compiled

HIDDEN, VISIBLE = 1, 2


@compiled
def place(points, rows, swaps, to_output, own, edges, borders, layers, bits, out):
    """Write K keypoints of B annotations in output pixels to `out`, (B, K, 3): x, y, v, zeros where out of view.

    `points`: (A, K, 3) of the source; `rows`: (B,); `swaps`: (B, K) which point each shows; `to_output`: (B, 3, 3);
    `own`: (B, 2) the image and the layer of each; `edges`: (B, 4) XYXY of what is shown of the source; `borders`:
    (B, V, 2) convex polygons in output pixels that bound it too, or (0, 0, 2). `layers`: (N, L, 11) of the images:
    XYXY, the copy, the interval, and the stencil as `joined_bits` has it, whose `bits` they are.

    A point on a border is in view, whichever side that is on (decision 26), so that a flip changes nothing.
    """
    for index in range(len(rows)):
        image, layer, row = own[index, 0], own[index, 1], rows[index]
        a, b, c, d, e, f, g, h, i = to_output[index].ravel()
        x0, y0, x1, y1 = edges[index]
        for number in range(swaps.shape[1]):
            shown = swaps[index, number]
            x, y, visibility = points[row, shown, 0], points[row, shown, 1], points[row, shown, 2]
            if visibility == 0 or not (x0 - EDGE <= x <= x1 + EDGE and y0 - EDGE <= y <= y1 + EDGE):
                continue
            depth = g * x + h * y + i
            to_x, to_y = (a * x + b * y + c) / depth, (d * x + e * y + f) / depth
            if len(borders) and not inside_convex(borders[index], to_x, to_y, EDGE):
                continue
            on_top = _best_around(layers, image, layer, bits, to_x, to_y)
            if on_top:
                out[index, number, 0], out[index, number, 1] = to_x, to_y
                out[index, number, 2] = visibility if on_top == VISIBLE else HIDDEN


@compiled
def _best_around(layers, image, own, bits, x, y):
    """Do as `_on_top` for the pixels that a point touches, up to four: it is seen if one of them shows the copy."""
    best = 0
    for side_y in (y + EDGE, y - EDGE):
        for side_x in (x + EDGE, x - EDGE):
            if best < VISIBLE:
                best = max(best, _on_top(layers, image, own, bits, side_x, side_y))
    return best


@compiled
def _on_top(layers, image, own, bits, x, y):
    """Return VISIBLE if the copy of layer `own` is seen at a point, HIDDEN if another covers it, 0 where it is not."""
    state = 0
    for layer in range(layers.shape[1]):
        same = layers[image, layer, 4] == layers[image, own, 4]
        fills = layers[image, layer, 5] <= layers[image, own, 5] and layers[image, layer, 6] >= layers[image, own, 6]
        if not (same or fills):  # see decision 29
            continue
        inside = (
            layers[image, layer, 0] <= x < layers[image, layer, 2]
            and layers[image, layer, 1] <= y < layers[image, layer, 3]
        )
        if inside and _shows(layers[image, layer], bits, x, y):
            if same:
                state = VISIBLE
            elif state:
                state = HIDDEN
    return state


@compiled
def _shows(layer, bits, x, y):
    """Return whether a layer's stencil, if it has one, shows the pixel at a point of its rectangle."""
    if layer[7] < 0:
        return True
    column, row = np.int64(np.floor(x) - layer[8]), np.int64(np.floor(y) - layer[9])
    eight = bits[np.int64(layer[7]) + row * np.int64(layer[10]) + column // 8]
    return (eight >> (column % 8)) & 1 == 1


@compiled
def inside_convex(polygon, x, y, slack=0.0):
    """Return whether a point is in a convex polygon (V, 2), whichever way round it goes, or `slack` beside it."""
    left = right = True
    for vertex in range(len(polygon)):
        a, b = polygon[vertex], polygon[(vertex + 1) % len(polygon)]
        side = (b[0] - a[0]) * (y - a[1]) - (b[1] - a[1]) * (x - a[0])
        most = slack * (abs(b[0] - a[0]) + abs(b[1] - a[1]))
        left, right = left and side >= -most, right and side <= most
    return left or right
