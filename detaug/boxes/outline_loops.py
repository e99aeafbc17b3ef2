"""Numba's loops over outlines and the visible part of them: see `visible_part.py`.

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
    for index in range(points.shape[0]):
        for number in range(points.shape[1]):
            x, y = points[index, number, 0], points[index, number, 1]
            inside = False
            for edge in range(first[index], last[index]):
                if edge == first[index] or ring[edge] != ring[edge - 1]:
                    out[index, number] |= inside
                    inside = False
                inside ^= _is_left_of(x, y, vertices[edge], vertices[following[edge]])
            out[index, number] |= inside


@compiled
def enclose(points, first_point, first_ring, last_ring, to_output, windows, corners, boxes, whole):
    """Write the boxes (B, 4) XYXY of outlines in the output, and to `whole` (B,) if they are in view as a whole.

    The first four arguments are `Rings`. The box of an object without points is inf, inf, -inf, -inf.
    """
    for index in range(len(first_ring)):
        first, last = first_point[first_ring[index]], first_point[last_ring[index]]
        whole[index] = _enclose(points[first:last], to_output[index], windows[index], corners[index], boxes[index])


@compiled
def _enclose(points, to_output, window, corners, box):
    """Write the box of an outline, and return whether it is in view as a whole."""
    box[:2], box[2:] = np.inf, -np.inf
    if len(points) == 0:
        return True
    low_x, low_y, high_x, high_y, in_front = np.inf, np.inf, -np.inf, -np.inf, True
    for point in range(len(points)):
        x, y, depth = _moved(to_output, points[point, 0], points[point, 1])
        in_front &= depth > NEAREST
        # of an outline behind the horizon the box is not used, only its numbers must be finite
        depth = max(depth, NEAREST)
        _widen(box, x / depth, y / depth)
        low_x, low_y = min(low_x, points[point, 0]), min(low_y, points[point, 1])
        high_x, high_y = max(high_x, points[point, 0]), max(high_y, points[point, 1])
    inside = in_front and window[0] <= box[0] and window[1] <= box[1] and box[2] <= window[2] and box[3] <= window[3]
    inside &= window[4] <= low_x and window[5] <= low_y and high_x <= window[6] and high_y <= window[7]
    if inside and len(corners):
        for corner in range(4):
            inside &= inside_convex(corners, box[2 * (corner % 2)], box[2 * (corner // 2) + 1])
    return inside


@compiled
def _widen(box, x, y):
    box[0], box[1], box[2], box[3] = min(box[0], x), min(box[1], y), max(box[2], x), max(box[3], y)


@compiled
def see(points, first_point, first_ring, last_ring, to_output, to_source, windows, corners, turns, boxes):
    """Write the boxes (B, 4) XYXY of the visible part of outlines; inf, inf, -inf, -inf where nothing is.

    The first four arguments are `Rings`; `to_source` (B, 3, 3): of the layers of the objects.
    """
    ends = np.empty((2, 9 + corners.shape[1]))
    for index in range(len(first_ring)):
        first, last = first_point[first_ring[index]], first_point[last_ring[index]]
        own = windows[index], corners[index]
        if _enclose(points[first:last], to_output[index], *own, boxes[index]):
            continue
        boxes[index, :2], boxes[index, 2:] = np.inf, -np.inf
        leaves = False
        for ring in range(first_ring[index], last_ring[index]):
            one_ring = points[first_point[ring] : first_point[ring + 1]]
            leaves |= _see_ring(one_ring, to_output[index], *own, turns[index], boxes[index], ends)
        # a corner of the visible part can only be in an outline that leaves it
        if leaves:
            region = _region(to_source[index], *own, turns[index])
            for corner in range(len(region)):
                x, y, depth = _moved(to_source[index], region[corner, 0], region[corner, 1])
                if _contains(points, first_point, first_ring[index], last_ring[index], x / depth, y / depth):
                    _widen(boxes[index], region[corner, 0], region[corner, 1])


@compiled
def _see_ring(points, to_output, window, corners, turn, box, ends):
    """Widen a box to the visible part of the edges of a ring; return whether a vertex is outside.

    `ends`: room for `_distances` of both ends of an edge.
    """
    last, leaves = len(points) - 1, False
    x, y, depth = _moved_in_pairs(to_output, points[last, 0], points[last, 1])
    was_inside = _distances(points[last, 0], points[last, 1], x, y, depth, window, corners, turn, ends, 1)
    for point in range(len(points)):
        # rows of `ends`, in turns: the end of an edge is where the next one starts
        here, there = 1 - point % 2, point % 2
        to_x, to_y, to_depth = _moved_in_pairs(to_output, points[point, 0], points[point, 1])
        source = points[point, 0], points[point, 1]
        inside = _distances(*source, to_x, to_y, to_depth, window, corners, turn, ends, there)
        if inside:
            _widen(box, to_x / to_depth, to_y / to_depth)
        if not (inside and was_inside):
            leaves = True
            start, end, _ = _cut(ends, here, there)
            if start <= end:
                for share in (start, end):
                    far = depth + share * (to_depth - depth)
                    _widen(box, (x + share * (to_x - x)) / far, (y + share * (to_y - y)) / far)
        x, y, depth, was_inside = to_x, to_y, to_depth, inside
    return leaves


@compiled
def _contains(points, first_point, first_ring, last_ring, x, y):
    """Return whether a point lies in one of the rings of an object, even-odd."""
    for ring in range(first_ring, last_ring):
        inside, before = False, first_point[ring + 1] - 1
        for after in range(first_point[ring], first_point[ring + 1]):
            inside ^= _is_left_of(x, y, points[before], points[after])
            before = after
        if inside:
            return True
    return False


@compiled
def _is_left_of(x, y, start, end):
    """Return whether a ray from (x, y) to the right crosses an edge."""
    from_x, from_y, to_x, to_y = float(start[0]), float(start[1]), float(end[0]), float(end[1])
    return (from_y > y) != (to_y > y) and x < from_x + (y - from_y) / (to_y - from_y) * (to_x - from_x)


@compiled
def _moved(matrix, x, y):
    """Return a point in homogeneous coordinates of the output."""
    return (
        matrix[0, 0] * x + matrix[0, 1] * y + matrix[0, 2],
        matrix[1, 0] * x + matrix[1, 1] * y + matrix[1, 2],
        matrix[2, 0] * x + matrix[2, 1] * y + matrix[2, 2],
    )


@compiled
def _moved_in_pairs(matrix, x, y):
    """Return the same point, summed in the order of NumPy's einsum, which gives the last bits of earlier versions."""
    return (
        matrix[0, 0] * x + matrix[0, 2] + matrix[0, 1] * y,
        matrix[1, 0] * x + matrix[1, 2] + matrix[1, 1] * y,
        matrix[2, 0] * x + matrix[2, 2] + matrix[2, 1] * y,
    )


@compiled
def cut_edges(points, following, of_object, to_output, windows, corners, turns, slack, start, end, seen, cuts):
    """Cut the edge from each vertex to the visible part: write `start` and `end` (Q, 2) where `seen` (Q,).

    `cuts` (B,) of False becomes True for objects that have a vertex outside. `slack`: see `_cut`.
    """
    ends = np.empty((2, 9 + corners.shape[1]))
    for vertex in range(len(points)):
        number, after = of_object[vertex], following[vertex]
        borders = windows[number], corners[number], turns[number]
        x, y, depth = _moved_in_pairs(to_output[number], points[vertex, 0], points[vertex, 1])
        to_x, to_y, to_depth = _moved_in_pairs(to_output[number], points[after, 0], points[after, 1])
        _distances(points[vertex, 0], points[vertex, 1], x, y, depth, *borders, ends, 0)
        _distances(points[after, 0], points[after, 1], to_x, to_y, to_depth, *borders, ends, 1)
        first, last, outside = _cut(ends, 0, 1, slack)
        cuts[number] |= outside
        seen[vertex] = first <= last
        if seen[vertex]:
            for share, out in ((first, start), (last, end)):
                far = depth + share * (to_depth - depth)
                out[vertex, 0], out[vertex, 1] = (x + share * (to_x - x)) / far, (y + share * (to_y - y)) / far


@compiled
def _cut(ends, here, there, slack=0.0):
    """Return where the visible part of an edge starts and ends, in 0..1 along it, and if its first vertex is outside.

    `here` and `there`: the rows of its vertices in `ends`, see `_distances`. If nothing is visible, the start is larger
    than the end. An edge that lies less than `slack` outside of a border is on it.
    """
    first, last, outside = 0.0, 1.0, False
    for border in range(ends.shape[1]):
        one, other = ends[here, border], ends[there, border]
        if one < 0:
            outside = True
            if one > -slack and 0 > other > -slack:
                continue
            first = max(first, one / (one - other)) if other >= 0 else np.inf
        elif other < 0:
            last = min(last, one / (one - other))
    return first, last, outside


@compiled
def _distances(from_x, from_y, x, y, depth, window, corners, turn, out, row):
    """Write to a row of `out` how far inside of each border of the visible part a vertex is, not in one unit.

    Returns whether it is inside of all. It is at (from_x, from_y) in the source, and at (x, y, depth) once moved.
    """
    out[row, 0] = depth - NEAREST
    out[row, 1], out[row, 2] = x - window[0] * depth, window[2] * depth - x
    out[row, 3], out[row, 4] = y - window[1] * depth, window[3] * depth - y
    out[row, 5], out[row, 7] = from_x - window[4], window[6] - from_x
    out[row, 6], out[row, 8] = from_y - window[5], window[7] - from_y
    for corner in range(len(corners)):
        after = corner + 1 if corner + 1 < len(corners) else 0
        along_x, along_y = corners[after, 0] - corners[corner, 0], corners[after, 1] - corners[corner, 1]
        across = along_x * (y - corners[corner, 1] * depth)
        out[row, 9 + corner] = turn * (across - along_y * (x - corners[corner, 0] * depth))
    inside = True
    for border in range(out.shape[1]):
        inside &= out[row, border] >= 0
    return inside


@compiled
def are_in_view(points, source, of_object, to_output, windows, corners, turns, out):
    """Write to `out` (P,) if points (P, 2) of the output, which are at `source` (P, 2), are in the visible part."""
    distances = np.empty((1, 9 + corners.shape[1]))
    for point in range(len(points)):
        number = of_object[point]
        borders = windows[number], corners[number], turns[number]
        out[point] = _distances(
            source[point, 0], source[point, 1], points[point, 0], points[point, 1], 1.0, *borders, distances, 0
        )


@compiled
def regions(to_source, windows, corners, turns):
    """Return (B, V', 2): the convex polygons of the output through which objects are seen; a point where nothing is.

    `to_source` (B, 3, 3): of the layers of the objects. Where others have more points, the first one is repeated.
    """
    most = 1
    for index in range(len(windows)):
        most = max(most, len(_region(to_source[index], windows[index], corners[index], turns[index])))
    out = np.empty((len(windows), most, 2))
    for index in range(len(windows)):
        pad(_region(to_source[index], windows[index], corners[index], turns[index]), out[index])
    return out


@compiled
def _region(matrix, window, corners, turn):
    region = np.empty((4, 2))
    for corner in range(4):
        region[corner, 0], region[corner, 1] = window[2 * ((corner + 1) // 2 % 2)], window[2 * (corner // 2) + 1]
    for axis in range(2):
        for side, sign in ((0, 1), (1, -1)):
            distance = np.empty(len(region))
            for vertex in range(len(region)):
                in_source = _moved(matrix, region[vertex, 0], region[vertex, 1])
                distance[vertex] = sign * (in_source[axis] / in_source[2] - window[4 + 2 * side + axis])
            region = cut(region, distance)
    for border in range(len(corners)):
        start, end = corners[border], corners[border + 1 if border + 1 < len(corners) else 0]
        along_x, along_y = end[0] - start[0], end[1] - start[1]
        distance = np.empty(len(region))
        for vertex in range(len(region)):
            distance[vertex] = turn * (
                along_x * (region[vertex, 1] - start[1]) - along_y * (region[vertex, 0] - start[0])
            )
        region = cut(region, distance)
    return region


@compiled
def extend(points, of_object, axis, extents):
    """Widen `extents` (B, 2) to the smallest and the largest coordinate of points (P, 2) along axes (B, 2)."""
    for point in range(len(points)):
        number = of_object[point]
        along = points[point, 0] * axis[number, 0] + points[point, 1] * axis[number, 1]
        extents[number, 0], extents[number, 1] = min(extents[number, 0], along), max(extents[number, 1], along)
