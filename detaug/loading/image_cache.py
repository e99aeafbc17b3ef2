"""Keep decoded images in the memory of the device or in main memory: `Loader(cache=...)`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from mmap import mmap
from typing import Any, Literal, NamedTuple
from weakref import finalize

import numpy as np
import torch
from torch import Tensor

from detaug.arguments import check
from detaug.arrays import Ints
from detaug.gpu.streams import StreamGuard
from detaug.loading.memory_sizes import CPU, MemorySize, bytes_of, check_size
from detaug.sources.source import Source

Place = Literal["device", "host"]
CacheSizes = Place | Mapping[Place, MemorySize]
"""Where images are kept, and how much memory they may take: bytes such as "20GB", or a fraction of what is free."""

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
        check_size(f"cache[{place!r}]", size)


def room_for(cache: CacheSizes | None, device: torch.device, needed: int) -> CacheRoom:
    """Return the room for images of `needed` bytes in all. Raises InputError for more than is free.

    On the CPU the memory of the device is main memory too.
    """
    sizes = _sizes(cache)
    on_device = min(needed, bytes_of("cache['device']", sizes["device"], device)) if "device" in sizes else 0
    in_main = min(needed - on_device, bytes_of("cache['host']", sizes["host"], CPU)) if "host" in sizes else 0
    return CacheRoom(on_device, in_main)


def _sizes(cache: CacheSizes | None) -> Mapping[Place, MemorySize]:
    if cache is None:
        return {}
    return {cache: DEFAULT_SHARE} if isinstance(cache, str) else cache


ALIGNMENT = 256
"""Bytes: each image starts at a multiple, as an allocation of its own would."""

CHUNK = 256 << 20
"""Bytes of main memory that are allocated at once. A larger image is not stored."""


class ImageCache:
    """Decoded images, (H, W, 3) uint8 RGB, in the memory of the device and, for a GPU, in main memory.

    `addresses`: (n,) where each image of the source is; 0 for one that is not stored. `on_host`: (n,) whether a GPU
    needs a copy of it. `lengths`: (n,) bytes that each takes.
    """

    def __init__(self, source: Source, room: CacheRoom, device: torch.device) -> None:
        self.addresses, self.on_host = np.zeros(len(source), np.int64), np.zeros(len(source), bool)
        self.lengths: Ints = _aligned(3 * source.pixels)
        self._sizes, self._device = source.sizes, device
        self._chunk_of: dict[int, Tensor] = {}  # the memory in which each image is
        self._memory = (
            _Memory(room.device, device),
            _Memory(room.host, torch.device("cpu"), pinned=device.type == "cuda"),
        )
        self.guard = StreamGuard(device)
        """Guards all images."""

    def __len__(self) -> int:
        """Return the number of images that are stored."""
        return len(self._chunk_of)

    def missing(self, indices: Ints) -> Ints:
        """Return the positions in `indices` of images that are not stored."""
        return np.flatnonzero(self.addresses[indices] == 0)

    def storable(self, indices: Ints) -> list[int]:
        """Return the positions in `indices` of images that are not stored and for which there is room."""
        room = max(memory.room for memory in self._memory)
        positions: list[int] = np.flatnonzero((self.addresses[indices] == 0) & (self.lengths[indices] <= room)).tolist()
        return positions

    def store(self, images: dict[int, Tensor]) -> None:
        """Store images by index, (H, W, 3) or their bytes, that are used on the current stream, while there is room."""
        for index, image in images.items():
            length = int(self.lengths[index])
            if memory := next((memory for memory in self._memory if memory.room >= length), None):
                place, self._chunk_of[index] = memory.take(length)
                place[: image.numel()].copy_(image.view(-1), non_blocking=True)
                self.addresses[index], self.on_host[index] = place.data_ptr(), place.device != self._device
        if images:
            self.guard = StreamGuard(self._device)

    def image(self, index: int) -> Tensor:
        """Return a stored image, (H, W, 3) on the device."""
        height, width = self._sizes[index].tolist()
        chunk = self._chunk_of[index]
        content = chunk[int(self.addresses[index]) - chunk.data_ptr() :][: 3 * height * width]
        return content.to(self._device, non_blocking=True).view(height, width, 3)

    def keep_for_current_stream(self) -> None:
        """Let the current stream wait until all images are stored, and keep their memory until it is done with them."""
        self.guard.wait()
        if self._device.type == "cuda":
            for chunk in self._memory[0].chunks:
                chunk.record_stream(torch.cuda.current_stream(self._device.index))

    def free(self) -> None:
        """Give the memory back. The cache cannot be used afterwards."""
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self._chunk_of.clear()
        for memory in self._memory:
            memory.free()


def make_cache(source: Source, images: Ints, sizes: CacheSizes | None, device: torch.device) -> ImageCache:
    """Return a cache of these sizes for images of the source. Raises InputError for more memory than is free."""
    needed = int(_aligned(3 * source.pixels[np.setdiff1d(images, source.missing)]).sum())
    return ImageCache(source, room_for(sizes, device, needed), device)


def _aligned(lengths: Ints) -> Ints:
    """Round bytes up to a multiple of `ALIGNMENT`."""
    return -(-lengths // ALIGNMENT) * ALIGNMENT


class _Memory:
    """At most `left` bytes on a device. On a GPU they are allocated at once, for they may be gone later."""

    def __init__(self, left: int, device: torch.device, *, pinned: bool = False) -> None:
        self._left, self._device, self._pinned = left, device, pinned
        self.chunks: list[Tensor] = []
        self._rest = torch.empty(0, dtype=torch.uint8, device="cpu")  # of the last chunk
        self._unpin = finalize(self, _unpin, self.chunks) if pinned else None
        if left and device.type == "cuda":
            self._allocate()

    @property
    def room(self) -> int:
        """Return the largest number of bytes that `take` has."""
        return max(len(self._rest), min(self._left, CHUNK))

    def take(self, length: int) -> tuple[Tensor, Tensor]:
        """Return the next bytes, at most `room`, and the chunk in which they are."""
        if length > len(self._rest):
            self._allocate()
        taken, self._rest = self._rest[:length], self._rest[length:]
        return taken, self.chunks[-1]

    def free(self) -> None:
        """Give the memory back."""
        if self._unpin:
            self._unpin()
        self.chunks.clear()
        self._left, self._rest = 0, torch.empty(0, dtype=torch.uint8, device="cpu")

    def _allocate(self) -> None:
        size = self._left if self._device.type == "cuda" else min(self._left, CHUNK)
        make: Callable[..., Tensor] = _pinned if self._pinned else torch.empty
        self._rest = make(size, dtype=torch.uint8, device=self._device)
        self.chunks.append(self._rest)
        self._left -= size


def _pinned(size: int, **_: object) -> Tensor:
    """Return bytes of main memory that a GPU reads by itself.

    torch's own pinned memory has sizes that are powers of two, and stays pinned when it is freed.
    """
    memory = torch.frombuffer(mmap(-1, size), dtype=torch.uint8)
    torch.cuda.check_error(_cudart().cudaHostRegister(memory.data_ptr(), size, 0))
    return memory


def _unpin(chunks: list[Tensor]) -> None:
    """Unpin memory, when no kernel reads it any more."""
    torch.cuda.synchronize()
    for chunk in chunks:
        _cudart().cudaHostUnregister(chunk.data_ptr())
    chunks.clear()


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
