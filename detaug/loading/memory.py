"""Keep freed memory for the next batches, and give it back."""

from __future__ import annotations

import ctypes
import os
from functools import cache

import torch

from detaug.ops.dali_internals import release_unused_memory

_LIBC = ctypes.CDLL(None)

_MALLOC_OPTIONS = {-1: 1 << 30, -2: 64 << 20, -3: 32 << 20}
"""M_TRIM_THRESHOLD; M_TOP_PAD, as large as a thread's heap; M_MMAP_THRESHOLD, the largest value that glibc accepts."""


@cache
def keep_freed_memory() -> None:
    """Let glibc keep the memory of one batch's images for the next, unless the environment configures malloc.

    Otherwise glibc returns it to the system, which clears every page that it hands out again. The price: each thread of
    the process keeps its peak.
    """
    configured = "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "") or any(
        name.startswith("MALLOC_") for name in os.environ
    )
    if not configured and (mallopt := getattr(_LIBC, "mallopt", None)):
        for option, number in _MALLOC_OPTIONS.items():
            mallopt(option, number)


def give_memory_back(device: torch.device) -> None:
    """Free what DALI, and on the CPU glibc, keep of pipelines that no longer exist."""
    if device.type == "cuda":
        release_unused_memory()
    elif malloc_trim := getattr(_LIBC, "malloc_trim", None):
        malloc_trim(0)
