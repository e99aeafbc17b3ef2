"""Compile loops with Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def compiled(function: Callable[..., Any]) -> Any:
    """Compile at the first call, without Python's lock. Where no folder for the code is writable, in each process."""
    import numba

    options = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)


def in_order(*arrays: NDArray[Any]) -> list[NDArray[Any]]:
    """Return the arrays in C order: a loop is compiled again for each other layout."""
    return [np.ascontiguousarray(each) for each in arrays]
