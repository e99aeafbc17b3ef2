"""Copies to a CUDA device, and tensors that are made on one CUDA stream and used on another."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


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
