"""Compile loops with Numba, which is imported when one first runs: that takes a quarter of a second."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock
from typing import Any

from detaug.packages import require

_making = Lock()
"""Held while a loop is given to Numba, so that two threads that call it first compile it once."""


class compiled:  # a decorator
    """Compile a loop at its first call, without Python's lock. Compiled loops may call each other.

    Where no folder for the code is writable, it is compiled in each process. What a signal's handler raises while it
    runs, such as KeyboardInterrupt, is raised as it is.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function
        self._loop: Any = None

    def __call__(self, *args: Any) -> Any:
        """Run the loop. Where one returns several arrays, Numba raises a SystemError instead of a handler's error."""
        try:
            return (self._loop or self._made())(*args)
        except SystemError as error:
            raised: BaseException = error
            while isinstance(raised, SystemError) and raised.__cause__:
                raised = raised.__cause__
            raise raised from None

    def _made(self) -> Any:
        require("a compiled loop", "numba")
        import numba

        with _making:
            if self._loop is None:
                options = {"nogil": True, "error_model": "numpy"}
                try:
                    self._loop = numba.njit(cache=True, **options)(self._function)
                except RuntimeError:
                    self._loop = numba.njit(**options)(self._function)
        return self._loop

    @property
    def _numba_type_(self) -> Any:
        """What Numba sees where a loop calls this one."""
        import numba

        return numba.typeof(self._made())
