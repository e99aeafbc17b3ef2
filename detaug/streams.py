"""What is made on one CUDA stream and used on another."""

from __future__ import annotations

import torch


class MadeOn:
    """The stream that is a device's current one, and all that it has been given to do. On the CPU this is nothing."""

    def __init__(self, device: torch.device) -> None:
        self.stream = torch.cuda.current_stream(device) if device.type == "cuda" else None
        self.event = self.stream.record_event() if self.stream else None

    def hand_over(self, *tensors: torch.Tensor) -> None:
        """Tensors that were made on it, to the stream that is current by now, if that is another one.

        That one waits for them, and their memory, which must be torch's, is not used again before it is done with them.
        """
        if self.stream and self.event and (now := torch.cuda.current_stream(self.stream.device)) != self.stream:
            now.wait_event(self.event)
            for tensor in tensors:
                tensor.record_stream(now)

    def hand_over_copy(self, tensor: torch.Tensor) -> torch.Tensor:
        """The same for one whose memory is not torch's, which is free again when this stream is done with it."""
        if not self.stream or torch.cuda.current_stream(self.stream.device) == self.stream:
            return tensor
        with torch.cuda.stream(self.stream):
            copy = tensor.clone()
        self.event = self.stream.record_event()
        self.hand_over(copy)
        return copy
