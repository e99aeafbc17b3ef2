"""Bring together what the processes of torch.distributed have counted."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TypeVar

import torch
from torch import distributed as dist

from detaug.loading.devices import resolve_device

T = TypeVar("T")


def of_all_ranks(own: T) -> list[T] | None:
    """Return what each rank gave, in their order; None without a process group. Every rank must call it."""
    if not (dist.is_available() and dist.is_initialized()):
        return None
    parts: list[T] = [own] * dist.get_world_size()
    with torch.cuda.device(resolve_device("cuda")) if dist.get_backend() == "nccl" else nullcontext():
        dist.all_gather_object(parts, own)
    return parts
