"""Key points: named points of objects, such as the joints of a person, and the rule by which a mirror swaps them.

Points are in continuous source pixels: pixel i covers i to i + 1, so the centre of the first one is 0.5. COCO's key
points count pixels instead, from 0: `CocoReader` adds 0.5 to them, as Detectron2 does (decision 22).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from detaug.arrays import Floats, Ints
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


_OTHER = {"left": "right", "right": "left", "l": "r", "r": "l"}
_TOKENS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^A-Za-z0-9]+")


def other_side(name: str) -> str | None:
    """Return the name of the same point on the other side; None for a name without a side.

    A side is the word left or right, or the letter l or r at the start or the end of a name: left_eye, LeftEye,
    upper-left corner, l_eye, eye-L, REar.
    """
    tokens = _TOKENS.findall(name)
    last = len(tokens) - 1
    for at, token in enumerate(tokens):
        neighbour = tokens[1] if at == 0 and last else tokens[last - 1]
        is_letter_at_end = len(token) == 1 and last > 0 and at in (0, last) and not neighbour[0].isdigit()
        if token.lower() in _OTHER and (len(token) > 1 or is_letter_at_end):
            tokens[at] = _in_case_of(token, _OTHER[token.lower()])
            return "".join(tokens)
    return None


def _in_case_of(example: str, word: str) -> str:
    if example.isupper():
        return word.upper()
    return word.capitalize() if example[0].isupper() else word


def swaps_of_names(names: Sequence[str], count: int) -> Ints:
    """Return (count,): the position that each point has after a mirror, from its name; those after the names stay.

    Raises InputError for a name with a side whose other side is missing: mirrored images would have wrong names.
    """
    at = {name: position for position, name in enumerate(names)}
    swaps = np.arange(count)
    for position, name in enumerate(names):
        other = other_side(name)
        if other is None:
            continue
        if other not in at:
            raise InputError(
                f"key point {name!r} has a side, and there is no {other!r}: which points change places in a mirrored "
                "image? Give flip_pairs, such as [(1, 2), (3, 4)], or [] if none do"
            )
        swaps[position] = at[other]
    return swaps


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
