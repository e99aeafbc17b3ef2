"""Choose the device and the shard of a process; keep or free its memory."""

from __future__ import annotations

import ctypes
import os
from functools import cache

import torch

from detaug.arguments import is_whole
from detaug.errors import InputError
from detaug.pipelines.internals import release_unused_memory


def resolve_device(device: torch.device | str | None) -> torch.device:
    """Return "cpu" or "cuda:N". None: the CUDA device of this process (torchrun's LOCAL_RANK), or the CPU without one.

    Raises InputError for another kind of device, or one that this machine does not have.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        resolved = torch.device(device)
    except RuntimeError:
        resolved = torch.device("meta")
    if resolved.type not in ("cpu", "cuda"):
        raise InputError(f"device must be None, 'cpu', 'cuda' or 'cuda:N', got {str(device)!r}")
    return torch.device("cpu") if resolved.type == "cpu" else _cuda_device(resolved)


def _cuda_device(device: torch.device) -> torch.device:
    count = torch.cuda.device_count()
    index = _local_device() if device.index is None else device.index
    if index >= count:
        reason = f"found {count} CUDA device{'s' * (count != 1)}"
        raise InputError(f"device {str(device)!r} is not there ({reason}); device='cpu' runs without one")
    return torch.device("cuda", index)


def _local_device() -> int:
    """Return the device that torch.cuda.set_device chose, else LOCAL_RANK's; 0 where a process sees only one."""
    if not torch.cuda.is_available():
        return 0
    chosen = torch.cuda.current_device()
    return chosen or choose_device(torch.cuda.device_count(), os.environ.get("LOCAL_RANK"), rank_and_world()[0])


def choose_device(count: int, local_rank: str | None, rank: int) -> int:
    """Return which of `count` CUDA devices a process uses. Raises InputError for a LOCAL_RANK that has no device."""
    if count == 1:
        return 0  # the launcher shows each process its own device
    if not local_rank:
        return rank % count
    if not (local_rank.isdecimal() and int(local_rank) < count):
        raise InputError(
            f"LOCAL_RANK is {local_rank}, but this process sees {count} CUDA devices; start one process for each "
            "device, or give device='cuda:N'"
        )
    return int(local_rank)


def rank_and_world() -> tuple[int, int]:
    """Return this process's rank and the world size: torch.distributed's, else torchrun's RANK and WORLD_SIZE."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)


def resolve_shard(shard: tuple[int, int] | None) -> tuple[int, int]:
    """Return (rank, world size), by default this process's. Raises InputError for a rank outside of the world."""
    if shard is not None and not (isinstance(shard, list | tuple) and len(shard) == 2):
        raise InputError(f"shard must be (rank, world size), got {shard!r}")
    rank, world = rank_and_world() if shard is None else shard
    if not (is_whole(rank, 0) and is_whole(world, 1) and rank < world):
        raise InputError(f"shard must be (rank, world size) with 0 <= rank < world size, got {(rank, world)}")
    return int(rank), int(world)  # NumPy's numbers would keep a state out of a JSON file


def ranks_of_machine(shard: tuple[int, int]) -> range:
    """Return the shards whose processes run on this machine: by torchrun's LOCAL_RANK, else only `shard`'s own."""
    rank, world = shard
    local, count = (os.environ.get(name, "") for name in ("LOCAL_RANK", "LOCAL_WORLD_SIZE"))
    if shard != rank_and_world() or not (local.isdecimal() and count.isdecimal()):
        return range(rank, rank + 1)
    first = max(0, rank - int(local))
    return range(first, min(first + int(count), world))


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
