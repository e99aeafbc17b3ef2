"""Checks of arguments: one clear error that names the argument, the rule and the value."""

from __future__ import annotations

from typing import Any

import numpy as np

Range = tuple[float, float]
"""(smallest, largest)."""

RGB = tuple[float, float, float]
"""Red, green, blue, 0..255."""

FILL: RGB = (123.0, 117.0, 104.0)
"""What lies beside an image, unless an op says otherwise: the mean colour of photographs (SSD, Liu et al. 2016)."""


def check(name: str, value: Any, holds: bool, rule: str) -> None:
    if not holds:
        raise ValueError(f"{name} must be {rule}, got {value!r}")


def is_numbers(value: Any, count: int | None = None) -> bool:
    """Is it a tuple or list of `count` finite numbers, or of one or more?"""
    if not isinstance(value, tuple | list) or not value or count not in (None, len(value)):
        return False
    return all(isinstance(each, int | float) and np.isfinite(each) for each in value)


def check_p(p: float) -> None:
    check("p", p, isinstance(p, int | float) and 0 <= p <= 1, "a probability in 0..1")


def check_range(name: str, bounds: Any, low: float, high: float) -> None:
    in_order = is_numbers(bounds, 2) and low <= bounds[0] <= bounds[1] <= high
    check(name, bounds, in_order, f"(smallest, largest) within {low}..{high}")


def check_share(name: str, value: Any) -> None:
    check(name, value, isinstance(value, int | float) and 0 <= value <= 1, "a share of the area in 0..1")


def check_rgb(name: str, value: Any) -> None:
    in_range = is_numbers(value, 3) and all(0 <= each <= 255 for each in value)
    check(name, value, in_range, "three numbers in 0..255: red, green, blue")
