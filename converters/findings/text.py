"""Format numbers and values for messages."""

from __future__ import annotations

import reprlib

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 160
_repr.maxlist = 8


def shown(value: object) -> str:
    """Return the repr of a json value on one line of bounded length, with control characters escaped."""
    return _repr.repr(value)


def on_one_line(text: str) -> str:
    """Return text with its line breaks, control characters and bytes that are not UTF-8 escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def counted(number: int, one: str, many: str = "") -> str:
    """Return a number with its noun: 1 box, 2,000 boxes."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
