"""Read COCO's keypoints and what categories have about them: names, skeletons, places in a flipped image."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.coco.outlines import LARGEST
from detaug.errors import InputError
from detaug.findings.finding import shown
from detaug.named_options import option

Fault = tuple[str, str]
"""The kind of a finding of `detaug check`, and what is wrong."""


def read_key_points(values: Sequence[Any], known: Sequence[int]) -> tuple[Floats, dict[int, Fault]]:
    """Return (A, K, 3) x, y, visibility as in the JSON file, 0 where an annotation has none, and what is wrong, by row.

    values: `keypoints` of A annotations. known: how many names of keypoints the category of each has, 0 for none. x, y
    count pixels from 0 at their centers.
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
        faults[row] = "keypoints-visibility", f"the visibility of a keypoint must be 0, 1 or 2, got {got}"
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
    """Return the names of the keypoints of a category; [] where it has none, or they are wrong."""
    names = category.get("keypoints")
    fits = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return list(names or []) if fits else []


def faults_of_category(category: Mapping[str, Any], count: int) -> Iterator[Fault]:
    """Yield what is wrong with the keys of a category about its keypoints. count: how many an annotation has."""
    names, pairs, flips = (category.get(key) for key in ("keypoints", "skeleton", "flip_idx"))
    if names is not None and names_of_points(category) != names:
        yield "keypoints-names", f"keypoints must be a list of names, got {shown(names)}"
    count = len(names_of_points(category)) or count
    if pairs is not None and not (isinstance(pairs, list) and all(_is_pair(pair, count) for pair in pairs)):
        yield "keypoints-skeleton", f"skeleton must be pairs of 1..{count}, got {shown(pairs)}"
    are_places = (
        isinstance(flips, list)
        and all(type(position) is int for position in flips)
        and sorted(flips) == [*range(count)]
    )
    if flips is not None and not are_places:
        yield "keypoints-flips", f"flip_idx must have each of 0..{count - 1} once, got {shown(flips)}"


def bones_of(category: Mapping[str, Any], count: int) -> list[tuple[int, int]]:
    """Return the pairs of keypoints, from 0, that a category has lines between; [] where they are anything else.

    Only images show them, so a wrong skeleton, as public datasets have it, does not refuse a JSON file.
    """
    pairs, count = category.get("skeleton"), len(names_of_points(category)) or count
    if not isinstance(pairs, list) or not all(_is_pair(pair, count) for pair in pairs):
        return []
    return [(one - 1, other - 1) for one, other in pairs]


def _is_pair(pair: Any, count: int) -> bool:
    is_pair = isinstance(pair, list) and len(pair) == 2
    return is_pair and all(type(number) is int and 1 <= number <= count for number in pair)


def places_in_mirror(category: Mapping[str, Any], count: int) -> Ints:
    """Return (count,): the position that each keypoint has after a flip, from `flip_idx`, else from the names.

    `count`: how many points objects of this category have. Raises InputError, with the remedy, where neither tells.
    """
    if (flips := category.get("flip_idx")) is not None:
        return np.array([*flips, *range(len(flips), count)])
    names = names_of_points(category)
    try:
        return swaps_of_names(names, max(count, len(names)))
    except InputError as error:
        identity = shown([*range(max(count, len(names)))])
        raise InputError(
            f"{error}: which keypoints swap when an image is flipped? Give "
            f"{option('flip_pairs', '1:2,3:4', python='[(1, 2), (3, 4)]')}, or "
            f"{option('flip_pairs', 'none', python='[]')} if none do; or in the JSON file flip_idx of the category, "
            f"such as {identity} if none do"
        ) from None


def count_of_points(labeled: Bools) -> int:
    """Return how many points the objects of a class have. labeled: (A, K), whether each point of these is."""
    return int(np.flatnonzero(labeled.any(0)).max(initial=-1)) + 1


_OTHER = {"left": "right", "right": "left", "l": "r", "r": "l"}
_TOKENS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+|[^A-Za-z0-9]+")
_MIDLINE = {"abdomen", "neck", "spine", "tail", "thorax", "trunk", "vertebra"}
"""Parts of a body that are one behind another along its middle: spine1, spine2, ... have no sides."""
_ONE_OF_A_KIND = {
    *(*_MIDLINE, "back", "base", "belly", "body", "bottom", "center", "centre", "chest", "chin", "end", "forehead"),
    *("front", "head", "lower", "mid", "middle", "mouth", "nose", "of", "pelvis", "rear", "root", "start", "throat"),
    *("tip", "top", "upper", "withers"),
}
"""Words that prove that a point has no side. Others, none of which has one, do not: they may be of another language."""


def side_of(name: str) -> Literal["left", "right", ""]:
    """Return the side in the name of a point, as `other_side` finds it; "" for a name without one.

    Without the other names, a letter beside a digit counts too: forelegL1.
    """
    index, tokens = _find_side(name)
    if index is None:
        sides = [token for token in tokens[1:] if token in ("L", "R")]
        return "" if len(sides) != 1 else "left" if sides == ["L"] else "right"
    return "left" if tokens[index].lower() in ("left", "l") else "right"


def other_side(name: str) -> str | None:
    """Return the name of the same point on the other side; None for a name without a side.

    A side is the word left or right, or the letter l or r at the start or the end of a name: left_eye, LeftEye,
    upper-left corner, l_eye, eye-L, REar.
    """
    index, tokens = _find_side(name)
    return None if index is None else _with_other(tokens, index)


def _with_other(tokens: Sequence[str], index: int) -> str:
    """Return the name with the other side at one of its tokens."""
    return "".join([*tokens[:index], _other_word(tokens[index]), *tokens[index + 1 :]])


def _other_word(side: str) -> str:
    other = _OTHER[side.lower()]
    if side.isupper():
        return other.upper()
    return other.capitalize() if side[0].isupper() else other


def _find_side(name: str) -> tuple[int | None, list[str]]:
    """Return the parts of a name, and which of them is a side."""
    tokens = _TOKENS.findall(name)
    last = len(tokens) - 1
    for index, token in enumerate(tokens):
        neighbor = tokens[1] if index == 0 and last else tokens[last - 1]
        is_letter_at_end = len(token) == 1 and last > 0 and index in (0, last) and not neighbor[0].isdigit()
        if token.lower() in _OTHER and (len(token) > 1 or is_letter_at_end):
            return index, tokens
    return None, tokens


def _weak_sides(name: str) -> Iterator[str]:
    """Yield what the other side of a name could be called: a pair only if there is a point of that name.

    A letter beside a digit (forelegL1), or a side without a border to the next word (lefteye, lknee).
    """
    tokens = _TOKENS.findall(name)
    for index, token in enumerate(tokens):
        if token.lower() in _OTHER:
            yield _with_other(tokens, index)
        for side in (word for word in _OTHER if len(word) < len(token)):
            for start in (0, len(token) - len(side)):
                if (part := token[start : start + len(side)]).lower() == side:
                    changed = token[:start] + _other_word(part) + token[start + len(side) :]
                    yield "".join([*tokens[:index], changed, *tokens[index + 1 :]])


def swaps_of_names(names: Sequence[str], count: int) -> Ints:
    """Return (count,): the position that each point has after a flip, from its name; those after the names stay.

    Raises InputError, with the reason alone, where names do not tell: a side without its other side; a row of numbered
    names without a side, such as face-0, face-1; several names, and none has a side. Numbers have no middle, and a name
    that says nothing does not prove that nothing swaps, as front and rear are.
    """
    position_of = {name: position for position, name in enumerate(names)}
    swaps = np.arange(count)
    if count < 2 or len(names) == 1:
        return swaps
    if not names:
        raise InputError("the keypoints have no names")
    for position, name in enumerate(names):
        other = other_side(name)
        if other is None:
            other = next((candidate for candidate in _weak_sides(name) if candidate in position_of), name)
        if other not in position_of:
            raise InputError(f"keypoint {shown(name)} has a side, and there is no {shown(other)}")
        swaps[position] = position_of[other]
    if not (swaps[swaps] == np.arange(count)).all():
        raise InputError(f"the keypoint names {shown(list(names))} do not form pairs of sides")
    stay = [name for name in names if swaps[position_of[name]] == position_of[name]]
    if len(stay) == len(names) and not all(_is_known(name) for name in names):
        raise InputError(f"none of the keypoint names {shown(stay)} has a side, such as left")
    if numbered := _numbered(stay):
        raise InputError(f"the numbered keypoints {shown(numbered)} have no side, and others have")
    return swaps


def _is_known(name: str) -> bool:
    """Return whether all words of a name are parts that are one of a kind: front, tail base."""
    return all(not token.isalpha() or token.lower() in _ONE_OF_A_KIND for token in _TOKENS.findall(name))


def _numbered(names: Sequence[str]) -> list[str]:
    """Return the first names that differ in a number or a letter only, but for those of a body's middle; or []."""
    families: dict[tuple[str, ...], list[str]] = {}
    for name in names:
        tokens = _TOKENS.findall(name)
        if not any(token.lower() in _MIDLINE for token in tokens):
            is_number = [token.isdigit() or (len(token) == 1 and token.isalpha()) for token in tokens]
            key = tuple("#" if is_one else token for is_one, token in zip(is_number, tokens, strict=True))
            families.setdefault(key, []).append(name)
    return next((family for key, family in families.items() if "#" in key and len(family) > 1), [])


Pairs = Sequence[tuple[int | str, int | str]]
"""Pairs of keypoints that swap when an image is flipped: names, or positions from 0."""


def swaps_of_pairs(pairs: Pairs, names: Sequence[str], count: int) -> Ints:
    """Return (count,): the position that each point has after a flip, from pairs of positions, from 0, or names."""
    swaps, paired = np.arange(count), set[int]()
    for pair in pairs:
        if not (isinstance(pair, tuple | list) and len(pair) == 2):
            raise InputError(f"flip_pairs must be pairs of names or positions, got {shown(pair)}")
        a, b = (_position(point, names, count) for point in pair)
        if {a, b} & paired:
            raise InputError(f"flip_pairs must have each keypoint in one pair at most, got {shown(list(pairs))}")
        paired |= {a, b}
        swaps[a], swaps[b] = b, a
    return swaps


def swaps_of_classes(pairs: Pairs, names: Sequence[Sequence[str]], count: int) -> Ints:
    """Return (C, count) `swaps_of_pairs` of classes with names each. Names of other classes' points are for these."""
    every = {*chain.from_iterable(names)}
    of_classes = []
    for own in names:
        others = every - {*own}
        is_of_others = [bool(pair) and all(isinstance(end, str) and end in others for end in pair) for pair in pairs]
        left = [pair for pair, is_other in zip(pairs, is_of_others, strict=True) if not is_other]
        of_classes.append(swaps_of_pairs(left, own, count))
    return np.array(of_classes)


def _position(point: int | str, names: Sequence[str], count: int) -> int:
    if isinstance(point, str) and point in names:
        return list(names).index(point)
    if isinstance(point, int) and 0 <= point < count:
        return point
    there = shown(list(names)) if names else f"0..{count - 1}"
    raise InputError(f"flip_pairs: no keypoint {shown(point)}; there are {there}")
