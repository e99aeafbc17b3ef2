"""Numba's loops over polygons: see `polygons.py`."""

from __future__ import annotations

import numpy as np

from detaug.compiled import compiled


@compiled
def clip(polygons, real):
    """Return (B, V', 2): the polygons (B, V, 2) that are `real`, (B,), clipped to the unit square; zeros for others.

    Where others have more points, the first one is repeated, which is all that is left of a polygon outside.
    """
    most = 1
    for index in range(len(polygons)):
        if real[index]:
            most = max(most, len(_clip(polygons[index])))
    out = np.zeros((len(polygons), most, 2))
    for index in range(len(polygons)):
        if real[index]:
            pad(_clip(polygons[index]), out[index])
    return out


@compiled
def cut_each(polygons, distance):
    """Return (B, V', 2): what is left of polygons (B, V, 2), see `cut`. `distance`: (B, V)."""
    most = 1
    for index in range(len(polygons)):
        most = max(most, len(cut(polygons[index], distance[index])))
    out = np.empty((len(polygons), most, 2))
    for index in range(len(polygons)):
        pad(cut(polygons[index], distance[index]), out[index])
    return out


@compiled
def _clip(polygon):
    """Return a polygon (V, 2) clipped to the unit square."""
    inside = True
    for x, y in polygon:
        inside &= 0 <= x <= 1 and 0 <= y <= 1
    if inside:
        return polygon
    for axis in range(2):
        polygon = cut(polygon, polygon[:, axis].copy())
        polygon = cut(polygon, 1 - polygon[:, axis])
    return polygon


@compiled
def cut(polygon, distance):
    """Return what is left of a polygon (V, 2) where its points' `distance` (V,) from a line is not negative.

    That is the first point where nothing is left.
    """
    count = len(polygon)
    if np.all(distance >= 0):
        return polygon
    out, left = np.empty((2 * count, 2)), 0
    for vertex in range(count):
        after = vertex + 1 if vertex + 1 < count else 0
        within = distance[vertex] >= 0
        if within:
            out[left, 0], out[left, 1] = polygon[vertex, 0], polygon[vertex, 1]
            left += 1
        if within != (distance[after] >= 0):
            share = distance[vertex] / (distance[vertex] - distance[after])
            for axis in range(2):
                out[left, axis] = polygon[vertex, axis] + share * (polygon[after, axis] - polygon[vertex, axis])
            left += 1
    return out[:left] if left else polygon[:1]


@compiled
def pad(polygon, out):
    """Write a polygon to `out`, which has room for as many points or more, and repeat the first one."""
    for number in range(len(out)):
        source = number if number < len(polygon) else 0
        out[number, 0], out[number, 1] = polygon[source, 0], polygon[source, 1]


@compiled
def areas(polygons):
    """Return (B,): the areas of polygons (B, V, 2)."""
    out = np.zeros(len(polygons))
    for index in range(len(polygons)):
        total = 0.0
        for number in range(polygons.shape[1]):
            x, y = polygons[index, number]
            after = number + 1 if number + 1 < polygons.shape[1] else 0
            next_x, next_y = polygons[index, after]
            total += x * next_y - next_x * y
        out[index] = abs(total) / 2
    return out


@compiled
def hulls(polygons):
    """Return (B, 4) XYXY: the boxes around polygons (B, V, 2)."""
    out = np.empty((len(polygons), 4))
    for index in range(len(polygons)):
        for axis in range(2):
            low = high = polygons[index, 0, axis]
            for number in range(1, polygons.shape[1]):
                value = polygons[index, number, axis]
                low, high = value if value <= low else low, value if value >= high else high
            out[index, axis], out[index, axis + 2] = low, high
    return out


@compiled
def transform(matrix, polygons, out):
    """Write the polygons (N, P, 2), moved by the maps (N, 3, 3), to `out`."""
    for index in range(len(polygons)):
        a, b, c, d, e, f, g, h, i = matrix[index].ravel()
        for number in range(polygons.shape[1]):
            x, y = polygons[index, number]
            depth = g * x + h * y + i
            out[index, number, 0], out[index, number, 1] = (a * x + b * y + c) / depth, (d * x + e * y + f) / depth


@compiled
def relative(points, start, length, out):
    """Write points (N, P, 2), relative to parts that begin at `start` and are as long as `length`, (N, 2), to `out`."""
    for index in range(len(points)):
        for number in range(points.shape[1]):
            for axis in range(2):
                out[index, number, axis] = (points[index, number, axis] - start[index, axis]) / length[index, axis]
