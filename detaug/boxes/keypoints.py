"""Key points: named points of objects, such as the joints of a person, and the rule by which a mirror swaps them.

Points are in continuous source pixels: pixel i covers i to i + 1, so the centre of the first one is 0.5. COCO's key
points count pixels instead, from 0: `CocoReader` adds 0.5 to them, as Detectron2 does (decision 22).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from detaug.arrays import Floats, Ints
from detaug.converters.coco.key_points import side_of, swaps_of_names
from detaug.errors import InputError

Pairs = Sequence[tuple[int | str, int | str]]
"""Pairs of key points that change places in a mirrored image: names, or positions from 0."""


@dataclass(frozen=True, eq=False)
class KeyPoints:
    """K key points of each of A annotations.

    >>> points = [[[40, 30, 2], [60, 30, 2], [50, 50, 1]]]  # x, y in pixels of the image, visibility
    >>> faces = da.KeyPoints(points, [["left_eye", "right_eye", "mouth"]])
    >>> print(faces.swapped)
    [[1 0 2]]
    """

    points: Floats
    """(A, K, 3): x, y in continuous pixels of the image, v: 0 not labelled, 1 labelled but hidden, 2 visible."""
    names: Sequence[Sequence[str]] = ()
    """The names of the points of each class, or one list for all classes."""
    skeletons: Sequence[Sequence[tuple[int, int]]] = ()
    """Pairs of points, from 0, which pictures connect, of each class, or one list for all."""
    swapped: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """(C, K), or (1, K) for all classes: the position that each point has after a mirror; by default from `names`."""

    def __post_init__(self) -> None:
        points = np.asarray(self.points, np.float64)
        if points.ndim != 3 or points.shape[2] != 3:
            raise InputError(f"key points must be (A, K, 3): x, y, visibility; got shape {points.shape}")
        if not np.isfinite(points).all() or not np.isin(points[..., 2], (0, 1, 2)).all():
            raise InputError("key points must be finite numbers, and their visibility 0, 1 or 2")
        count = points.shape[1]
        object.__setattr__(self, "points", points)
        swapped = np.asarray(self.swapped, np.int64)
        if not swapped.size:
            swapped = np.array([swaps_of_names(names, count) for names in self.names or [[]]])
        if not (np.sort(swapped, axis=1) == np.arange(count)).all():
            raise InputError(f"swapped must have each of 0..{count - 1} once in each row, got {swapped.tolist()}")
        object.__setattr__(self, "swapped", swapped)

    @property
    def count(self) -> int:
        """Return K."""
        return int(self.points.shape[1])

    def of_class(self, at: int, count: int) -> tuple[list[str], list[tuple[int, int]], Ints]:
        """Return the names, the skeleton and (count,) the places after a mirror of a class, 0..C - 1."""
        names = self.names[at if len(self.names) > 1 else 0] if self.names else []
        skeleton = self.skeletons[at if len(self.skeletons) > 1 else 0] if self.skeletons else []
        swapped = self.swapped[at if len(self.swapped) > 1 else 0]
        return list(names), list(skeleton), np.concatenate([swapped, np.arange(self.count, count)])

    def sides_of_class(self, at: int) -> list[Literal["left", "right", ""]]:
        """Return the side of each of K points of a class, 0..C - 1, from its name; "" for those without one."""
        names = self.of_class(at, self.count)[0]
        return [side_of(name) for name in [*names, *[""] * (self.count - len(names))]]


def swaps_of_pairs(pairs: Pairs, names: Sequence[str], count: int) -> Ints:
    """Return (count,): the position that each point has after a mirror, from pairs of positions, from 0, or names."""
    swaps = np.arange(count)
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise InputError(f"flip_pairs must be pairs of names or positions, got {pair!r}")
        a, b = (_position(each, names, count) for each in pair)
        swaps[a], swaps[b] = b, a
    return swaps


def _position(point: int | str, names: Sequence[str], count: int) -> int:
    if isinstance(point, str) and point in names:
        return list(names).index(point)
    if isinstance(point, int) and 0 <= point < count:
        return point
    raise InputError(f"flip_pairs: no key point {point!r}; there are {list(names) or f'0..{count - 1}'}")
