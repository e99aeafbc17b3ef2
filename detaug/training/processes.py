"""The device and the process group of a training under torchrun."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import distributed as dist

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
