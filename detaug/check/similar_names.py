"""Find classes whose names are a hyphen, a plural or a typo apart."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from detaug.files.text import name_key

RARE = 20
"""How many times as many objects the class with the right name has, if the other one is misspelt."""

_BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])[\s_-]+(?=[^\W\d_])")
_PLURAL = re.compile(r"(?:(?<=x)|(?<=ch)|(?<=sh))es$|(?<=[^\W\d_s])s$")
_SHORTEST, _SHORTEST_REPLACED = 5, 8  # letters of words: horse and house, plate and plane are different things


def similar_names(names: Sequence[str], counts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Yield (position, position of the name that it is like); names that differ in case or spaces alone are left out.

    Names are alike if they differ in spaces, hyphens and underscores between letters, or in a plural's s. If one class
    has RARE times the objects of the other, they are alike, too, where they differ in one word by one typo: see
    `_is_typo`. counts: objects of each class.
    """
    keys = [name_key(name) for name in names]
    plain = [_PLURAL.sub("", _BETWEEN_LETTERS.sub("", key)) for key in keys]
    first: dict[str, int] = {}
    near: dict[tuple[str, ...], list[int]] = {}
    for index, key in enumerate(plain):
        other = first.setdefault(key, index)
        if keys[other] != keys[index] and len(key) > 2:
            yield index, other
        for neighbor in _neighbors(re.split(r"[\W_]+", keys[index])):
            near.setdefault(neighbor, []).append(index)
    most: dict[int, int] = {}
    for positions in near.values():
        best = max(positions, key=lambda index: counts[index])
        for index in positions:
            if max(RARE * counts[index], RARE) <= counts[best] and plain[index] != plain[best]:
                known = most.get(index, best)
                if _differ_by_typo(keys[index], keys[best]) and counts[best] >= counts[known]:
                    most[index] = best
    yield from sorted(most.items())


def _neighbors(words: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Yield the words with one of them whole or without a letter: names that are a typo apart have one in common."""
    for index, word in enumerate(words):
        if len(word) >= _SHORTEST - 1 and word.isalpha():
            for one in {word, *(word[:cut] + word[cut + 1 :] for cut in range(1, len(word)))}:
                yield (*words[:index], f"?{one}", *words[index + 1 :])


def _differ_by_typo(one: str, other: str) -> bool:
    pairs = zip(re.split(r"[\W_]+", one), re.split(r"[\W_]+", other), strict=True)
    differing = [pair for pair in pairs if pair[0] != pair[1]]
    return len(differing) == 1 and _is_typo(*sorted(differing[0], key=len))


def _is_typo(short: str, long: str) -> bool:
    """Return whether words differ by a letter that is left out, two that are exchanged, or one in a long word.

    The first letter is the same, and what is left out or replaced is not the last one, which makes other words: bike
    and biker, legal and illegal.
    """
    if short[0] != long[0] or len(long) < _SHORTEST:
        return False
    start = next(index for index in range(len(long)) if short[index : index + 1] != long[index])
    if len(short) < len(long):
        return start < len(long) - 1 and short[start:] == long[start + 1 :]
    if short[start : start + 2] == long[start : start + 2][::-1]:
        return short[start + 2 :] == long[start + 2 :]
    is_inside = len(long) >= _SHORTEST_REPLACED and start < len(long) - 1
    return is_inside and short[start + 1 :] == long[start + 1 :]
