"""Numba's loops over outlines and what is seen of them: see `visible_part.py`.

Objects are B, with the vertices first[b]:last[b] of Q; `points` (Q, 2), `ring` (Q,), `following` (Q,) and `of_object`
(Q,) as in `Vertices`; `to_output` (B, 3, 3). They are seen through `windows` (B, 8): the rectangle of the output and
the bounds in the source, XYXY each; and through `corners` (B, V, 2), convex polygons of the output that go round as
`turns` (B,) has it, see `polygons.turn_of`; V is 0 where there are none.
"""

from __future__ import annotations

import numpy as np

from detaug.boxes.point_loops import inside_convex
from detaug.boxes.polygon_loops import cut, pad
from detaug.boxes.units import NEAREST
from detaug.compiled import compiled


@compiled
def contain(points, first, last, vertices, ring, following, out):
    """Set in `out`, (B, K) of False, which points (B, K, 2) lie in one of the rings of their object, even-odd."""
    for at in range(points.shape[0]):
        for number in range(points.shape[1]):
            x, y = points[at, number, 0], points[at, number, 1]
            inside = False
            for edge in range(first[at], last[at]):
                if edge == first[at] or ring[edge] != ring[edge - 1]:
                    out[at, number] |= inside
                    inside = False
                x0, y0 = vertices[edge, 0], vertices[edge, 1]
                x1, y1 = vertices[following[edge], 0], vertices[following[edge], 1]
                if (y0 > y) != (y1 > y) and x < x0 + (y - y0) / (y1 - y0) * (x1 - x0):
                    inside = not inside
            out[at, number] |= inside


@compiled
def enclose(points, first, last, to_output, windows, corners, boxes, whole):
    """Write the boxes (B, 4) XYXY of outlines in the output, and to `whole` (B,) if they are in view as a whole."""
    for at in range(len(first)):
        box, low, high = boxes[at], points[first[at]].copy(), points[first[at]].copy()
        box[:2], box[2:] = np.inf, -np.inf
        in_front = True
        for vertex in range(first[at], last[at]):
            x, y, depth = _moved(to_output[at], points[vertex])
            in_front &= depth > NEAREST
            depth = max(depth, NEAREST)
            to = x / depth, y / depth
            for axis in range(2):
                box[axis], box[axis + 2] = min(box[axis], to[axis]), max(box[axis + 2], to[axis])
                low[axis], high[axis] = min(low[axis], points[vertex, axis]), max(high[axis], points[vertex, axis])
        inside = in_front
        for axis in range(2):
            inside &= windows[at, axis] <= box[axis] and box[axis + 2] <= windows[at, axis + 2]
            inside &= windows[at, axis + 4] <= low[axis] and high[axis] <= windows[at, axis + 6]
        if inside and corners.shape[1]:
            for corner in range(4):
                inside &= inside_convex(corners[at], box[2 * (corner % 2)], box[2 * (corner // 2) + 1])
        whole[at] = inside


@compiled
def _moved(matrix, point):
    """Return a point (x, y) in homogeneous coordinates of the output."""
    x, y = point
    return (
        matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2],
        matrix[1, 0] * x + matrix[1, 1] * y + matrix[1, 2],
        matrix[2, 0] * x + matrix[2, 1] * y + matrix[2, 2],
    )


@compiled
def _moved_in_pairs(matrix, point):
    """Return the same point, summed in the order of NumPy's einsum, which gives the last bits of earlier versions."""
    x, y = point
    return (
        matrix[0, 0] * x + matrix[0, 2] + matrix[0, 1] * y,
        matrix[1, 0] * x + matrix[1, 2] + matrix[1, 1] * y,
        matrix[2, 0] * x + matrix[2, 2] + matrix[2, 1] * y,
    )


@compiled
def cut_edges(points, following, of_object, to_output, windows, corners, turns, start, end, seen, cuts):
    """Cut the edge from each vertex to what is seen: write `start` and `end` (Q, 2) where `seen` (Q,).

    `cuts` (B,) of False becomes True for objects that have a vertex outside.
    """
    here, there = np.empty(9 + corners.shape[1]), np.empty(9 + corners.shape[1])
    for at in range(len(points)):
        number, after = of_object[at], following[at]
        own = to_output[number], windows[number], corners[number], turns[number]
        x, y, depth = _moved_in_pairs(own[0], points[at])
        to_x, to_y, to_depth = _moved_in_pairs(own[0], points[after])
        _distances(points[at], x, y, depth, own, here)
        _distances(points[after], to_x, to_y, to_depth, own, there)
        first, last, visible = 0.0, 1.0, True
        for border in range(len(here)):
            one, other = here[border], there[border]
            if one < 0:
                cuts[number] = True
                visible &= other >= 0
                if other >= 0:
                    first = max(first, one / (one - other))
            elif other < 0:
                last = min(last, one / (one - other))
        seen[at] = visible and first <= last
        if seen[at]:
            for share, out in ((first, start), (last, end)):
                far = depth + share * (to_depth - depth)
                out[at, 0], out[at, 1] = (x + share * (to_x - x)) / far, (y + share * (to_y - y)) / far


@compiled
def _distances(point, x, y, depth, own, out):
    """Write how far inside of each border of what is seen a vertex is, not in one unit; at (x, y, depth) once moved."""
    _, window, corners, turn = own
    out[0] = depth - NEAREST
    out[1], out[2] = x - window[0] * depth, window[2] * depth - x
    out[3], out[4] = y - window[1] * depth, window[3] * depth - y
    for axis in range(2):
        out[5 + axis], out[7 + axis] = point[axis] - window[4 + axis], window[6 + axis] - point[axis]
    for at in range(len(corners)):
        after = at + 1 if at + 1 < len(corners) else 0
        along_x, along_y = corners[after, 0] - corners[at, 0], corners[after, 1] - corners[at, 1]
        across = along_x * (y - corners[at, 1] * depth)
        out[9 + at] = turn * (across - along_y * (x - corners[at, 0] * depth))


@compiled
def are_in_view(points, source, of_object, to_output, windows, corners, turns, out):
    """Write to `out` (P,) if points (P, 2) of the output, which are at `source` (P, 2), are in what is seen."""
    found = np.empty(9 + corners.shape[1])
    for at in range(len(points)):
        number = of_object[at]
        own = to_output[number], windows[number], corners[number], turns[number]
        _distances(source[at], points[at, 0], points[at, 1], 1.0, own, found)
        out[at] = np.all(found >= 0)


@compiled
def regions(to_source, windows, corners, turns):
    """Return (B, V', 2): the convex polygons of the output through which objects are seen; a point where nothing is.

    `to_source` (B, 3, 3): of the layers of the objects. Where others have more points, the first one is repeated.
    """
    most = 1
    for at in range(len(windows)):
        most = max(most, len(_region(to_source[at], windows[at], corners[at], turns[at])))
    out = np.empty((len(windows), most, 2))
    for at in range(len(windows)):
        pad(_region(to_source[at], windows[at], corners[at], turns[at]), out[at])
    return out


@compiled
def _region(matrix, window, corners, turn):
    region = np.empty((4, 2))
    for at in range(4):
        region[at, 0], region[at, 1] = window[2 * ((at + 1) // 2 % 2)], window[2 * (at // 2) + 1]
    for axis in range(2):
        for side, sign in ((0, 1), (1, -1)):
            distance = np.empty(len(region))
            for at in range(len(region)):
                in_source = _moved(matrix, region[at])
                distance[at] = sign * (in_source[axis] / in_source[2] - window[4 + 2 * side + axis])
            region = cut(region, distance)
    for border in range(len(corners)):
        start, end = corners[border], corners[border + 1 if border + 1 < len(corners) else 0]
        along_x, along_y = end[0] - start[0], end[1] - start[1]
        distance = np.empty(len(region))
        for at in range(len(region)):
            distance[at] = turn * (along_x * (region[at, 1] - start[1]) - along_y * (region[at, 0] - start[0]))
        region = cut(region, distance)
    return region


@compiled
def extend(points, of_object, axis, extents):
    """Widen `extents` (B, 2) to the smallest and the largest coordinate of points (P, 2) along axes (B, 2)."""
    for at in range(len(points)):
        number = of_object[at]
        along = points[at, 0] * axis[number, 0] + points[at, 1] * axis[number, 1]
        extents[number, 0], extents[number, 1] = min(extents[number, 0], along), max(extents[number, 1], along)
