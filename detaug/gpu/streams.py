"""Copies to a CUDA device, its streams, and launches of Triton kernels."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.arrays import Ints, start_offsets


def to_device(array: NDArray[Any], device: torch.device) -> Tensor:
    """Copy an array to the device on the current stream, without waiting. On the CPU, share the array's memory.

    NumPy copies into pinned memory first: for more than 32,768 numbers torch would use all cores, and its threads spin
    for a while afterwards, on cores that the decoders need.
    """
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, device="cpu", pin_memory=True)
    np.copyto(pinned.numpy(), array)
    return pinned.to(device, non_blocking=True)


def packed_to_device(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[Tensor]:
    """Copy arrays to the device at once, since a copy costs more than its bytes. Each becomes a flat tensor."""
    parts = [np.ascontiguousarray(array).ravel().view(np.uint8) for array in arrays]
    # larger numbers first: each part then begins at a multiple of their size, which `view` needs
    order = sorted(range(len(arrays)), key=lambda place: -arrays[place].itemsize)
    together = to_device(np.concatenate([parts[place] for place in order]), device)
    split = dict(zip(order, together.split_with_sizes([parts[place].size for place in order]), strict=True))
    return [split[place].view(torch.from_numpy(np.empty(0, array.dtype)).dtype) for place, array in enumerate(arrays)]


class StreamGuard:
    """Mark the work queued on the current CUDA stream so far, so that another stream can wait for it.

    Make one directly after the tensors that it guards. On the CPU it does nothing.
    """

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.current_stream(device.index) if device.type == "cuda" else None
        self.event = self.stream.record_event() if self.stream else None

    def wait(self, *tensors: Tensor) -> None:
        """Let the current stream wait for these tensors, and keep their memory until that stream is done with them.

        The memory must be torch's.
        """
        if self.event and (current := self._other_stream()):
            current.wait_event(self.event)
            for tensor in tensors:
                tensor.record_stream(current)

    def wait_for_copy(self, tensor: Tensor) -> Tensor:
        """Return the tensor, or for another stream a copy: for memory that is not torch's, which DALI reuses."""
        if not self._other_stream():
            return tensor
        with torch.cuda.stream(self.stream):
            copy, guard = tensor.clone(), StreamGuard(tensor.device)
        guard.wait(copy)
        return copy

    def _other_stream(self) -> torch.cuda.Stream | None:
        """Return the current stream if it is not the one of this guard."""
        current = torch.cuda.current_stream(self.stream.device_index) if self.stream else None
        return current if current != self.stream else None


COPY_PROGRAMS = 32
"""Programs of the kernel that copies: the bus of an H200 is busy with 16, and they take a part of its processors."""

COPY_BLOCK = 1024
"""Numbers of 8 bytes that a program copies at once."""


class Copies(NamedTuple):
    """Images on the device. `guard` guards them."""

    memory: Tensor
    guard: StreamGuard


class HostCopier:
    """Copies images on a stream of its own. A kernel reads main memory: a call for each image would take 14 us."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def copy(self, addresses: Ints, lengths: Ints, stored: StreamGuard) -> Copies:
        """Return images one behind the other.

        `addresses`: (n,) of the images in pinned memory; `lengths`: (n,) bytes; both are multiples of 8. `stored`
        guards that memory.
        """
        from detaug.gpu.triton_kernel import copy_images

        with torch.cuda.stream(self._stream) if self._stream else nullcontext(), as_current(self._device):
            stored.wait()
            table = to_device(np.stack([addresses, start_offsets(lengths) // 8, lengths // 8]), self._device)
            out = torch.empty(int(lengths.sum()), dtype=torch.uint8, device=self._device)
            copy_images[COPY_PROGRAMS,](table, out.view(torch.int64), len(addresses), COPY_BLOCK)
            return Copies(out, StreamGuard(self._device))


BLOCK = (8, 64)
"""(rows, columns) of the output that a program of the kernel renders at once: the fastest of eight on an H200."""

PROGRAMS_PER_PROCESSOR = 4
"""Programs for each of the GPU's multiprocessors: few enough to leave room for the decoder's kernels."""

OPTIONS = {"enable_fp_fusion": True}
"""Triton 3.9 warns without it, because 3.10 changes the default."""


def launch(kernel: Any, device: torch.device, *arguments: Any, **more: Any) -> None:
    """Run a kernel on a device, in as many programs as fit, each of which takes one block after the other.

    `more`: arguments by name, and options other than OPTIONS.
    """
    rows, columns = BLOCK
    launch_programs(kernel, device, programs(device), *arguments, **more, ROWS=rows, COLUMNS=columns)


def launch_programs(kernel: Any, device: torch.device, count: int, *arguments: Any, **more: Any) -> None:
    """Run this many programs of a kernel on a device, for three BANDS each. `more`: see `launch`."""
    with as_current(device):
        kernel[count, -(-more.get("BANDS", 3) // 3)](*arguments, **OPTIONS | more)


def bands_argument(bands: int) -> dict[str, int]:
    """Return the argument BANDS of a kernel; none for three, which not all kernels have."""
    return {} if bands == 3 else {"BANDS": bands}


@cache
def programs(device: torch.device) -> int:
    """Return how many programs of a kernel run on this device."""
    if device.type == "cpu":
        return 1
    return PROGRAMS_PER_PROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count


def as_current(device: torch.device) -> AbstractContextManager[object]:
    """Make it torch's current device, where Triton runs kernels."""
    return nullcontext() if device.type == "cpu" else torch.cuda.device(device.index)
