"""How much memory the decoded images of `Loader(cache=...)` may take."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, NamedTuple

import torch

from detaug.arguments import check, is_number
from detaug.converters.files.byte_sizes import parse_size
from detaug.converters.machine import available_memory
from detaug.errors import InputError

Place = Literal["device", "host"]
CacheSizes = Place | Mapping[Place, int | float | str]
"""Where images are kept, and how much memory they may take: bytes such as "20GB", or a share of what is free."""

DEFAULT_SHARE = 0.5
"""Of the free memory: the rest is left for the model and its training."""


class CacheRoom(NamedTuple):
    """Bytes for decoded images in the memory of the device, and in main memory."""

    device: int
    host: int


def check_cache(cache: CacheSizes | None) -> None:
    """Raise InputError for an argument `cache` that is wrong."""
    rule = '"device", "host", or sizes such as {"device": "10GB", "host": 0.5}'
    sizes = _sizes(cache)
    check("cache", cache, isinstance(sizes, Mapping) and {"device", "host"} >= set(sizes), rule)
    for place, size in sizes.items():
        if not is_number(size, 0, 1):
            parse_size(f"cache[{place!r}]", _as_text(size))


def room_for(cache: CacheSizes | None, device: torch.device, needed: int) -> CacheRoom:
    """Return the room for images of `needed` bytes in all. Raises InputError for more than is free.

    On the CPU the memory of the device is main memory too.
    """
    sizes = _sizes(cache)
    on_device = min(needed, _bytes_of("device", sizes["device"], device)) if "device" in sizes else 0
    in_main = min(needed - on_device, _bytes_of("host", sizes["host"], device)) if "host" in sizes else 0
    return CacheRoom(on_device, in_main)


def _sizes(cache: CacheSizes | None) -> Mapping[Place, int | float | str]:
    if cache is None:
        return {}
    return {cache: DEFAULT_SHARE} if isinstance(cache, str) else cache


def _bytes_of(place: Place, size: float | str, device: torch.device) -> int:
    """Return a size in bytes. Raises InputError for more than is free."""
    free = _free_on_device(device) if place == "device" else _free_main_memory()
    if is_number(size, 0, 1):
        return int(float(size) * free)
    wanted = parse_size(f"cache[{place!r}]", _as_text(size))
    if wanted > free:
        where = str(device) if place == "device" else "main memory"
        raise InputError(f"cache[{place!r}] is {wanted / 1e9:.1f} GB, {where} has {free / 1e9:.1f} GB left: give less")
    return wanted


def _as_text(size: float | str) -> str:
    """Return a size as text; 20e9 is "20000000000"."""
    return str(int(size)) if isinstance(size, float) and size.is_integer() else str(size)


def _free_on_device(device: torch.device) -> int:
    """Return the free bytes, with those that torch holds in reserve, for example from a closed loader."""
    if device.type == "cuda":
        reserve = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return torch.cuda.mem_get_info(device)[0] + reserve
    return _free_main_memory()


def _free_main_memory() -> int:
    """Return the free bytes for this process, one of those that torchrun started on this machine."""
    return available_memory() // int(os.environ.get("LOCAL_WORLD_SIZE") or 1)
