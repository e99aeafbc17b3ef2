"""How the process and DALI keep memory that is free, and give it back."""

from __future__ import annotations

import ctypes
import os
from functools import cache


@cache
def keep_freed_memory() -> None:
    """Have glibc keep what the images of a batch took for those of the next, unless the environment says how it works.

    It would give it back to the system, which clears each page that it hands out again. Now each thread of the process
    keeps the most that it took.
    """
    said = "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "") or any(
        name.startswith("MALLOC_") for name in os.environ
    )
    if not said and (mallopt := getattr(_libc, "mallopt", None)):
        for option, number in _KEEP.items():
            mallopt(option, number)


def give_freed_memory_back() -> None:
    """To the system, after all, but for the last piece of each thread's."""
    if malloc_trim := getattr(_libc, "malloc_trim", None):
        malloc_trim(0)


_libc = ctypes.CDLL(None)

_KEEP = {-1: 1 << 30, -2: 64 << 20, -3: 32 << 20}
"""M_TRIM_THRESHOLD; M_TOP_PAD, as large as a thread's piece of memory; M_MMAP_THRESHOLD, the most that it takes."""
