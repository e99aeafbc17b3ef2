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
    """Let glibc keep freed memory for the next batch, unless the environment sets options of malloc.

    Call it once in a process, before the first loader on the CPU. Otherwise glibc returns the memory of a batch to the
    system, which clears every page that it hands out again; that can make the loader up to 40 % slower. The price: each
    thread of the process keeps its peak. `Loader` does not call it; on the CPU the commands that measure or train do.

    >>> da.keep_freed_memory()
    >>> loader = da.Loader(da.CocoReader("demo/VOC/JPEGImages", "train.json"), da.presets.ssd300(), batch_size=8)
    >>> print(len(loader), "batches")
    6 batches
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
