"""Seeds and other values as parameters of a test, quick and slow ones."""

from __future__ import annotations

from typing import Any

import pytest


def seeds(quick: int, total: int) -> list[Any]:
    """Return 0, 1, ... below `total`; those from `quick` on are marked slow."""
    return [seed if seed < quick else pytest.param(seed, marks=pytest.mark.slow) for seed in range(total)]


def slow(*values: Any) -> list[Any]:
    """Further values of a parameter, which only the slow run takes."""
    return [
        pytest.param(*(value if isinstance(value, tuple) else (value,)), marks=pytest.mark.slow) for value in values
    ]


SLOW_ON_GPU = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.slow])]
)
"""On the CPU, and on a GPU only in the slow run."""
