"""The device and the process group of a training under torchrun."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from torch import distributed as dist

from detaug.errors import InputError
from detaug.loading.devices import rank_and_world, resolve_device


@contextmanager
def process_group(device: torch.device | str | None) -> Iterator[torch.device]:
    """Yield the device of this process; under torchrun, join its process group for the block."""
    chosen = resolve_device(device)
    if chosen.type == "cuda":
        torch.cuda.set_device(chosen)
    ours = int(os.environ.get("WORLD_SIZE") or 1) > 1 and not dist.is_initialized()
    if ours:
        dist.init_process_group("nccl" if chosen.type == "cuda" else "gloo")
    try:
        yield chosen
    finally:
        if ours:
            dist.destroy_process_group()


def is_first_rank() -> bool:
    return rank_and_world()[0] == 0


@contextmanager
def only_training(output: Path) -> Iterator[None]:
    """Keep other trainings out of a folder for the block, also after a kill: the lock ends with the process.

    Raises InputError where another one is in it.
    """
    folder = os.open(output, os.O_RDONLY)
    try:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(f"another detaug train is running in {output}; choose another --output") from None
        except OSError:
            pass  # a network file system without locks
        yield
    finally:
        os.close(folder)
