"""Numbers and values as messages show them."""

from __future__ import annotations

import reprlib

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = 160
_repr.maxlist = 8


def shown(value: object) -> str:
    """Any json value on one line of bounded length, with control characters escaped."""
    return _repr.repr(value)


def counted(number: int, one: str, many: str = "") -> str:
    """1 box, 2,000 boxes."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
