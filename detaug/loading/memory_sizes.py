"""Sizes of memory that a user gives: bytes, or a fraction of what is free."""

from __future__ import annotations

import os

import torch

from detaug.arguments import is_number, parse_size
from detaug.errors import InputError
from detaug.machine.cores import available_memory

MemorySize = int | float | str
"""Bytes, such as "20GB" or 2e9, or a fraction of what is free, 0..1."""

CPU = torch.device("cpu")


def check_size(name: str, size: MemorySize) -> None:
    """Raise InputError for an argument that is not a size."""
    if not is_number(size, 0, 1):
        parse_size(name, _as_text(size))


def bytes_of(name: str, size: MemorySize, device: torch.device) -> int:
    """Return a size in bytes. Raises InputError for more than the device has free."""
    free = free_bytes(device)
    if is_number(size, 0, 1):
        return int(float(size) * free)
    wanted = parse_size(name, _as_text(size))
    if wanted > free:
        where = "main memory" if device.type == "cpu" else str(device)
        raise InputError(f"{name} is {wanted / 1e9:.1f} GB, {where} has {free / 1e9:.1f} GB left: give less")
    return wanted


def _as_text(size: MemorySize) -> str:
    """Return a size as text; 20e9 is "20000000000"."""
    return str(int(size)) if isinstance(size, float) and size.is_integer() else str(size)


def free_bytes(device: torch.device) -> int:
    """Return the free bytes of a device for this process.

    On a GPU those that torch holds in reserve, for example from a closed loader, count as free. Main memory is divided
    by the processes that torchrun started on this machine.
    """
    if device.type == "cuda":
        reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reserve
    return available_memory() // int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
