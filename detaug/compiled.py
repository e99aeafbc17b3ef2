"""Compile loops with Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any


def compiled(function: Callable[..., Any]) -> Any:
    """Compile at the first call, without Python's lock. Where no folder for the code is writable, in each process."""
    import numba

    options = {"nogil": True, "error_model": "numpy"}
    try:
        return numba.njit(cache=True, **options)(function)
    except RuntimeError:
        return numba.njit(**options)(function)
