"""Read COCO's key points and what categories have about them: names, skeletons, places in a mirrored image."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np

from detaug.converters.coco.outlines import LARGEST, Ints
from detaug.converters.coco.table import Floats
from detaug.converters.findings.finding import shown
from detaug.errors import InputError

Fault = tuple[str, str]
"""The kind of a finding of `detaug check`, and what is wrong."""


def read_key_points(values: Sequence[Any], known: Sequence[int]) -> tuple[Floats, dict[int, Fault]]:
    """Return (A, K, 3) x, y, visibility as in the json, 0 where an annotation has none, and what is wrong, by row.

    values: `keypoints` of A annotations. known: how many names of key points the category of each has, 0 for none. x, y
    count pixels from 0 at their centres.
    """
    faults: dict[int, Fault] = {}
    lists: list[list[float]] = []
    for row, value in enumerate(values):
        fault = value is not None and value != [] and _fault(value, known[row])
        if fault:
            faults[row] = fault
        lists.append([] if fault or value is None else value)
    lengths = np.fromiter(map(len, lists), np.int64, len(lists)) // 3
    flat = np.fromiter(chain.from_iterable(lists), np.float64, 3 * int(lengths.sum())).reshape(-1, 3)
    points = np.zeros((len(lists), max([*known, *lengths.tolist()], default=0), 3))
    points[np.arange(points.shape[1]) < lengths[:, None]] = flat
    wrong = ~np.isfinite(points).all((1, 2)) | ~np.isin(points[..., 2], (0, 1, 2)).all(1)
    for row in np.flatnonzero(wrong).tolist():
        got = shown([whole for whole in points[row, :, 2].tolist() if whole not in (0, 1, 2)])
        faults[row] = "keypoints-visibility", f"the visibility of a key point must be 0, 1 or 2, got {got}"
        if not np.isfinite(points[row]).all():
            faults[row] = "keypoints-number", "keypoints must be finite numbers"
    points[wrong] = 0
    return points, faults


def _fault(value: Any, known: int) -> Fault | None:
    if not isinstance(value, list) or len(value) % 3 or (known and len(value) != 3 * known):
        rule = f"3 numbers for each of {known}" if known else "3 numbers for each"
        got = f"{len(value)} numbers" if isinstance(value, list) else shown(value)
        return "keypoints-number", f"keypoints must have {rule}, got {got}"
    if not set(map(type, value)) <= {int, float} or max(value) > LARGEST or min(value) < -LARGEST:
        return "keypoints-number", f"keypoints must be finite numbers, got {shown(value)}"
    return None


def names_of_points(category: Mapping[str, Any]) -> list[str]:
    """Return the names of the key points of a category; [] where it has none, or they are wrong."""
    names = category.get("keypoints")
    fits = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return list(names or []) if fits else []


def faults_of_category(category: Mapping[str, Any], count: int) -> Iterator[Fault]:
    """Yield what is wrong with the keys of a category about its key points. count: how many an annotation has."""
    names, pairs, flips = (category.get(key) for key in ("keypoints", "skeleton", "flip_idx"))
    if names is not None and names_of_points(category) != names:
        yield "keypoints-names", f"keypoints must be a list of names, got {shown(names)}"
    count = len(names_of_points(category)) or count
    if pairs is not None and not (isinstance(pairs, list) and all(_is_pair(pair, count) for pair in pairs)):
        yield "keypoints-skeleton", f"skeleton must be pairs of 1..{count}, got {shown(pairs)}"
    are_places = isinstance(flips, list) and all(type(at) is int for at in flips) and sorted(flips) == [*range(count)]
    if flips is not None and not are_places:
        yield "keypoints-flips", f"flip_idx must have each of 0..{count - 1} once, got {shown(flips)}"


def _is_pair(pair: Any, count: int) -> bool:
    is_pair = isinstance(pair, list) and len(pair) == 2
    return is_pair and all(type(at) is int and 1 <= at <= count for at in pair)


def places_in_mirror(category: Mapping[str, Any], count: int) -> Ints | None:
    """Return (count,) the position that each point has in a mirrored image; None where the json does not tell.

    Raises InputError for a name with a side whose other side is missing.
    """
    if (flips := category.get("flip_idx")) is not None:
        return np.array([*flips, *range(len(flips), count)])
    names = names_of_points(category)
    return swaps_of_names(names, max(count, len(names))) if names else None


_OTHER = {"left": "right", "right": "left", "l": "r", "r": "l"}
_TOKENS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^A-Za-z0-9]+")


def side_of(name: str) -> Literal["left", "right", ""]:
    """Return the side in the name of a point, as `other_side` finds it; "" for a name without one."""
    at, tokens = _find_side(name)
    if at is None:
        return ""
    return "left" if tokens[at].lower() in ("left", "l") else "right"


def other_side(name: str) -> str | None:
    """Return the name of the same point on the other side; None for a name without a side.

    A side is the word left or right, or the letter l or r at the start or the end of a name: left_eye, LeftEye,
    upper-left corner, l_eye, eye-L, REar.
    """
    at, tokens = _find_side(name)
    if at is None:
        return None
    side = tokens[at]
    other = _OTHER[side.lower()]
    if side.isupper():
        other = other.upper()
    elif side[0].isupper():
        other = other.capitalize()
    return "".join([*tokens[:at], other, *tokens[at + 1 :]])


def _find_side(name: str) -> tuple[int | None, list[str]]:
    """Return the parts of a name, and which of them is a side."""
    tokens = _TOKENS.findall(name)
    last = len(tokens) - 1
    for at, token in enumerate(tokens):
        neighbour = tokens[1] if at == 0 and last else tokens[last - 1]
        is_letter_at_end = len(token) == 1 and last > 0 and at in (0, last) and not neighbour[0].isdigit()
        if token.lower() in _OTHER and (len(token) > 1 or is_letter_at_end):
            return at, tokens
    return None, tokens


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
                "image? Give flip_pairs, such as [(1, 2), (3, 4)], or [] if none do; or in the json flip_idx of the "
                f"category, such as {[*range(count)]} if none do"
            )
        swaps[position] = at[other]
    return swaps
