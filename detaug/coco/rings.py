"""Geometry of polygons: rings of points and masks, as COCO's annotations have them, and as other formats need them.

Points are (n, 2) x, y in continuous pixels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Floats, Ints
from detaug.coco.boxes import DECIMALS, rounded_numbers
from detaug.coco.outlines import encode_counts, ends_of_runs
from detaug.coco.table import THIN
from detaug.coco.writer import whole

Points = Sequence[float] | Floats


def points_of(numbers: Points) -> Floats:
    """Return (n, 2) the points of x, y, x, y, ..."""
    return np.asarray(numbers, np.float64).reshape(-1, 2)


def keys_of_rings(rings: Sequence[Points]) -> dict[str, Any]:
    """Return the keys of an annotation with a polygon of rings, each x, y, x, y, ... in pixels."""
    rounded = [rounded_numbers(_numbers(ring)) for ring in rings]
    return {"area": whole(round(sum(map(area_of, rounded)), DECIMALS)), "segmentation": rounded}


def keys_of_corners(numbers: Points) -> dict[str, Any]:
    """Return the keys of an annotation with a rotated box, of four corners x, y, x, y, ... in pixels."""
    keys = keys_of_rings([numbers])
    (ring,) = keys["segmentation"]
    return {**keys, "corners": [ring[:2], ring[2:4], ring[4:6], ring[6:8]]}


def keys_of_mask(mask: NDArray[np.bool_]) -> dict[str, Any]:
    """Return the keys of an annotation with a mask (H, W)."""
    counts = encode_counts(np.diff(ends_of_runs(mask), prepend=0))
    return {"area": int(mask.sum()), "segmentation": {"size": [*mask.shape], "counts": counts}}


def area_of(points: Points) -> float:
    """Return the area of a ring that does not cross itself."""
    numbers = _numbers(points)
    doubled, last_x, last_y = 0.0, *(numbers[-2:] or (0.0, 0.0))
    for x, y in zip(numbers[::2], numbers[1::2], strict=True):
        doubled += last_x * y - x * last_y
        last_x, last_y = x, y
    return abs(doubled) / 2


def _numbers(points: Points) -> Sequence[float]:
    """Return x, y, x, y, ...: for the few points of a ring Python is quicker than NumPy."""
    numbers: Sequence[float] = points.ravel().tolist() if isinstance(points, np.ndarray) else points
    return numbers


def cut_ring(points: Floats, width: float, height: float) -> Floats:
    """Return the part of a ring inside an image: Sutherland and Hodgman's polygon clipping; none of 0 points.

    Parts of a concave ring are joined along the edges of the image.
    """
    whole = points
    for axis, limit, sign in ((0, 0.0, 1), (1, 0.0, 1), (0, width, -1), (1, height, -1)):
        distance = sign * (points[:, axis] - limit)
        if (distance >= 0).all():
            continue
        after, distance_after = np.roll(points, -1, 0), np.roll(distance, -1)
        crosses = (distance >= 0) != (distance_after >= 0)
        share = distance / np.where(crosses, distance - distance_after, 1)
        crossing = points + share[:, None] * (after - points)
        # Exactly on the edge: the product above rounds.
        crossing[:, axis] = limit
        both = np.stack([points, crossing], axis=1).reshape(-1, 2)
        points = both[np.stack([distance >= 0, crosses], axis=1).ravel()]
    return points if points is whole else _without_spikes(points)


def _without_spikes(points: Floats) -> Floats:
    """Return a ring without points at which it goes back the way that it came: cutting leaves these at edges."""
    ring, index, since = points.tolist(), 0, 0
    while len(ring) > 2 and since < len(ring):
        a, b, c = ring[index - 1], ring[index], ring[(index + 1) % len(ring)]
        ahead = (b[0] - a[0]) * (c[0] - b[0]) + (b[1] - a[1]) * (c[1] - b[1])
        # b is a spike if the path turns straight back there
        if ahead <= 0 and _turn(a, b, c) == 0:
            del ring[index]
            index, since = (index - 1) % len(ring), 0
        else:
            index, since = (index + 1) % len(ring), since + 1
    return np.asarray(ring).reshape(-1, 2)


def join_rings(rings: Sequence[Floats]) -> Floats:
    """Return one ring with the area of several: bridges of no width join each with the nearest point of the others.

    A bridge is walked there and back, so an even-odd fill paints the same pixels as one of the rings.
    """
    rest = list(rings)
    joined = rest.pop(0)
    while rest:
        near = [_nearest(joined, ring) for ring in rest]
        nearest = min(range(len(rest)), key=lambda n: near[n][0])
        _, here, there = near[nearest]
        ring = np.roll(rest.pop(nearest), -there, 0)
        joined = np.concatenate([joined[: here + 1], ring, ring[:1], joined[here:]])
    return joined


def without_overlaps(rings: list[Floats]) -> tuple[list[Floats], bool]:
    """Return rings whose even-odd fill has the pixels of the union of `rings`, which is what a COCO polygon means.

    Rings that have a pixel in common become the polygons of all their pixels, and True is returned with them; the
    others stay as they are.
    """
    boxes = [np.concatenate([np.floor(ring.min(0)), np.ceil(ring.max(0))]).astype(int) for ring in rings]
    overlapping = set[int]()
    for one, other in combinations(range(len(rings)), 2):
        left, top = np.maximum(boxes[one][:2], boxes[other][:2]).tolist()
        right, bottom = np.minimum(boxes[one][2:], boxes[other][2:]).tolist()
        # painting is slow: only what may overlap, and is not known to
        if left < right and top < bottom and not overlapping >= {one, other}:
            window = left, top, right, bottom
            if (paint_ring(rings[one], window) & paint_ring(rings[other], window)).any():
                overlapping |= {one, other}
    if not overlapping:
        return rings, False
    own = np.array([boxes[index] for index in overlapping])
    (left, top), (right, bottom) = own[:, :2].min(0).tolist(), own[:, 2:].max(0).tolist()
    union = np.zeros((bottom - top, right - left), bool)
    for index in overlapping:
        x0, y0, x1, y1 = boxes[index].tolist()
        union[y0 - top : y1 - top, x0 - left : x1 - left] |= paint_ring(rings[index], (x0, y0, x1, y1))
    apart = [ring for index, ring in enumerate(rings) if index not in overlapping]
    return [*apart, *(ring + np.array([left, top]) for ring in rings_of_mask(union))], True


def paint_ring(ring: Floats, window: tuple[int, int, int, int]) -> NDArray[np.bool_]:
    """Return (H, W) the pixels of a window (x0, y0, x1, y1) whose centers are in a ring, by the even-odd rule."""
    left, top, right, bottom = window
    height, width = bottom - top, right - left
    crossings = np.zeros((height, width + 1), bool)
    for (x0, y0), (x1, y1) in zip(
        (ring - (left, top)).tolist(), (np.roll(ring, -1, 0) - (left, top)).tolist(), strict=True
    ):
        rows = np.arange(*(min(max(math.ceil(y - 0.5), 0), height) for y in sorted((y0, y1))))
        if len(rows):
            x = x0 + (rows + 0.5 - y0) / (y1 - y0) * (x1 - x0)
            # from this pixel on, the row is on the other side of the edge
            crossings[rows, np.ceil(x - 0.5).astype(int).clip(0, width)] ^= True
    return np.asarray(np.logical_xor.accumulate(crossings, axis=1)[:, :width])


def _nearest(one: Floats, other: Floats) -> tuple[float, int, int]:
    """Return the squared distance of the nearest two points of two rings, and their positions."""
    squared = ((one[:, None] - other[None]) ** 2).sum(2)
    here, there = np.unravel_index(int(squared.argmin()), squared.shape)
    return float(squared[here, there]), int(here), int(there)


def smallest_rectangle(points: Floats) -> Floats:
    """Return (4, 2) the corners of the rectangle of the smallest area around points.

    One of its sides lies along an edge of the hull: Freeman and Shapira, "Determining the minimum-area encasing
    rectangle for an arbitrary closed curve", 1975.
    """
    around = convex_hull(points)
    edges = np.roll(around, -1, 0) - around
    length = np.hypot(*edges.T)
    # all points are the same one
    if not length.any():
        return np.repeat(around[:1], 4, 0)
    along = edges[length > 0] / length[length > 0, None]
    across = np.stack([-along[:, 1], along[:, 0]], axis=1)
    on_along, on_across = around @ along.T, around @ across.T  # (points, edges)
    best = int(np.argmin(np.ptp(on_along, axis=0) * np.ptp(on_across, axis=0)))
    (a0, a1), (b0, b1) = (
        (projections[:, best].min(), projections[:, best].max()) for projections in (on_along, on_across)
    )
    return np.asarray([a * along[best] + b * across[best] for a, b in ((a0, b0), (a1, b0), (a1, b1), (a0, b1))])


@np.errstate(over="ignore", invalid="ignore")  # products of enormous coordinates, which others refuse
def are_flat(corners: Any) -> NDArray[np.bool_]:
    """Return (A,): which four corners (A, 4, 2) have no area: are in a strip that is thinner than a box may be."""
    x, y = np.moveaxis(np.asarray(corners, np.float64).reshape(-1, 4, 2), (2, 1), (0, 1))
    first, second = np.triu_indices(4, 1)
    along_x, along_y = x[second] - x[first], y[second] - y[first]  # (6, A): a narrowest strip is along one of them
    length = np.maximum(np.hypot(along_x, along_y), 1e-12)
    across = (y[:, None] * along_x - x[:, None] * along_y) / length  # (4, 6, A)
    return np.asarray((across.max(0) - across.min(0)).min(0) < THIN)


def turned_box(corners: Floats) -> tuple[float, float, float, float, float] | None:
    """Return x, y of the center, width, height and degrees, 0 to 360 clockwise, of the box with these corners (4, 2).

    The first side is the width. None for corners that are not a rectangle, but for two thousandths of a pixel.
    """
    x, y = corners.mean(0).tolist()
    across = (corners[1] - corners[0] + corners[2] - corners[3]) / 2
    down = (corners[3] - corners[0] + corners[2] - corners[1]) / 2
    if across[0] * down[1] - across[1] * down[0] < 0:  # the other way round
        return turned_box(corners[[0, 3, 2, 1]])
    # all four sides count: rounded corners are not an exact rectangle
    degrees = math.degrees(math.atan2(across[1] - down[0], across[0] + down[1])) % 360
    cos, sin = math.cos(math.radians(degrees)), math.sin(math.radians(degrees))
    width, height = float(across @ (cos, sin)), float(down @ (-sin, cos))
    half = np.array([[-width, -height], [width, -height], [width, height], [-width, height]]) / 2
    again = half @ np.array([[cos, sin], [-sin, cos]]) + (x, y)
    return (x, y, width, height, degrees) if np.abs(again - corners).max() <= 2e-3 else None


def convex_hull(points: Floats) -> Floats:
    """Return the convex hull of points, in order: Andrew's monotone chains."""
    ordered = np.unique(points, axis=0).tolist()
    if len(ordered) < 3:
        return np.asarray(ordered)
    chains = []
    for direction in (ordered, ordered[::-1]):
        chain: list[list[float]] = []
        for x, y in direction:
            while len(chain) > 1 and _turn(chain[-2], chain[-1], (x, y)) <= 0:
                chain.pop()
            chain.append([x, y])
        chains += chain[:-1]
    return np.asarray(chains)


def _turn(a: Sequence[float], b: Sequence[float], c: Sequence[float]) -> float:
    return (b[0] - a[0]) * (c[1] - a[1]) - (b[1] - a[1]) * (c[0] - a[0])


def mask_of_runs(ends: Ints, height: int, width: int) -> NDArray[np.bool_]:
    """Return (H, W) the mask of runs that end at `ends`, down its columns, the first one outside of the object."""
    values = np.arange(len(ends)) % 2 == 1
    return np.asarray(np.repeat(values, np.diff(ends, prepend=0)).reshape(width, height).T)


def box_of_mask(mask: NDArray[np.bool_]) -> tuple[int, int, int, int]:
    """Return the left, top, right and bottom edge of the pixels of a mask (H, W) that is not empty."""
    (top, bottom), (left, right) = (np.flatnonzero(mask.any(axis))[[0, -1]].tolist() for axis in (1, 0))
    return left, top, right + 1, bottom + 1


def rings_of_mask(mask: NDArray[np.bool_]) -> list[Floats]:
    """Return the polygons of a mask (H, W) along the edges of its pixels, those of holes too.

    Pixels that meet at a corner only are in two rings. Filled by the even-odd rule, they are the mask again.
    """
    if not mask.any():
        return []
    left, top, right, bottom = box_of_mask(mask)
    part = np.pad(mask[top:bottom, left:right], 1)
    following = _edges_of_pixels(part)
    rings = []
    while following:
        start = corner = next(iter(following))
        step, ring = (0, 0), []
        while True:
            steps = following[corner]
            # At a corner of two pixels, turn right: stay with the own one.
            next_step = max(steps, key=lambda candidate: step[0] * candidate[1] - step[1] * candidate[0])
            steps.remove(next_step)
            if not steps:
                del following[corner]
            if next_step != step:
                ring.append(corner)
            step, corner = next_step, (corner[0] + next_step[0], corner[1] + next_step[1])
            if corner == start:
                break
        rings.append(np.array(ring, np.float64) + np.array([left - 1, top - 1]))
    return rings


def _edges_of_pixels(mask: NDArray[np.bool_]) -> dict[tuple[int, int], list[tuple[int, int]]]:
    """Return corner (x, y) -> the steps from it along edges between a pixel inside, to the right, and one outside."""
    following: dict[tuple[int, int], list[tuple[int, int]]] = {}
    above, left = np.zeros_like(mask), np.zeros_like(mask)
    above[1:], left[:, 1:] = mask[:-1], mask[:, :-1]
    for edges, (dx, dy), step in (
        (mask & ~above, (0, 0), (1, 0)),
        (above & ~mask, (1, 0), (-1, 0)),
        (left & ~mask, (0, 0), (0, 1)),
        (mask & ~left, (0, 1), (0, -1)),
    ):
        for y, x in np.argwhere(edges).tolist():
            following.setdefault((x + dx, y + dy), []).append(step)
    return following
