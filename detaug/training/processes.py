"""The device and the process group of a training under torchrun."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

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


def on_first_rank(work: Callable[[], None]) -> None:
    """Do work on the first rank alone while the others wait; an error of it is raised on all. Each must call this."""
    if not dist.is_initialized():
        work()
        return
    # The default group gives up on a rank after minutes, and large datasets are prepared for longer.
    group: Any = dist.new_group(backend="gloo", timeout=timedelta(days=7))
    outcome: list[str | None] = [None]
    try:
        if is_first_rank():
            work()
    except (InputError, OSError) as error:
        outcome = [str(error)]
        raise
    finally:
        dist.broadcast_object_list(outcome, src=0, group=group)
    dist.destroy_process_group(group)
    if outcome[0] is not None:
        raise InputError(outcome[0])
