"""Compile loops with Numba."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core.registry import CPUDispatcher


class _Interruptible(CPUDispatcher):  # type: ignore[misc]  # Numba has no types
    """A compiled loop. What a signal's handler raises while it runs, such as KeyboardInterrupt, is raised as it is.

    Where a loop returns several arrays, Numba raises a SystemError instead, with that as its cause.
    """

    def __call__(self, *args: Any) -> Any:
        try:
            return CPUDispatcher.__call__(self, *args)
        except SystemError as error:
            raised: BaseException = error
            while isinstance(raised, SystemError) and raised.__cause__:
                raised = raised.__cause__
            raise raised from None


def compiled(function: Callable[..., Any]) -> Any:
    """Compile at the first call, without Python's lock. Where no folder for the code is writable, in each process."""
    options = {"nogil": True, "error_model": "numpy"}
    try:
        loop = numba.njit(cache=True, **options)(function)
    except RuntimeError:
        loop = numba.njit(**options)(function)
    loop.__class__ = _Interruptible
    return loop
