"""Numba's loop that says which points lie in outlines: see `visible_part.py`."""

from __future__ import annotations

from detaug.compiled import compiled


@compiled
def contain(points, first, last, vertices, ring, following, out):
    """Set in `out`, (B, K) of False, which points (B, K, 2) lie in one of the rings of their object, even-odd.

    Object b has the vertices first[b]:last[b]; `vertices` (Q, 2), `ring` (Q,) and `following` (Q,) as in `Vertices`.
    """
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
