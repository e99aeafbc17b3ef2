"""What goes to a CUDA device, and what is made on one of its streams and used on another."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray


def on_device(array: NDArray[Any], device: torch.device) -> torch.Tensor:
    """The array there, copied by the current stream; nobody waits for it. On the CPU it is the array's own memory.

    NumPy moves it into pinned memory: torch would use all cores for more than 32,768 numbers, and its threads spin for
    a while when they are done, where others have work for the cores.
    """
    tensor = torch.from_numpy(array)
    if device.type == "cpu":
        return tensor
    pinned = torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)
    np.copyto(pinned.numpy(), array)
    return pinned.to(device, non_blocking=True)


class MadeOn:
    """The stream that is a device's current one, and all that it has been given to do. On the CPU this is nothing."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.current_stream(device.index) if device.type == "cuda" else None
        self.event = self.stream.record_event() if self.stream else None

    def hand_over(self, *tensors: torch.Tensor) -> None:
        """Tensors that were made on it, to the stream that is current by now, if that is another one.

        That one waits for them, and their memory, which must be torch's, is not used again before it is done with them.
        """
        if self.event and (now := self._other_stream()):
            now.wait_event(self.event)
            for tensor in tensors:
                tensor.record_stream(now)

    def hand_over_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same for one whose memory is not torch's, which is free again when this stream is done with it."""
        if not self._other_stream():
            return tensor
        with torch.cuda.stream(self.stream):
            copy, made_on = tensor.clone(), MadeOn(tensor.device)
        made_on.hand_over(copy)
        return copy

    def _other_stream(self) -> torch.cuda.Stream | None:
        """The current one, if it is another."""
        now = torch.cuda.current_stream(self.stream.device_index) if self.stream else None
        return now if now != self.stream else None
