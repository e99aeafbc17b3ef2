"""A DALI pipeline that is fed and collected by hand, and the device it runs on."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import torch
from nvidia.dali import Pipeline

from detaug.recipe import Node


class Lane:
    """A pipeline that works on one batch at a time, in the background: `start`, then `finish`."""

    def __init__(self, graph: Callable[[], list[Node]], batch_size: int, threads: int, device: torch.device) -> None:
        self.device = device
        device_id = device.index if device.type == "cuda" else None
        self.pipeline = Pipeline(batch_size, threads, device_id, seed=0, prefetch_queue_depth=1)
        with self.pipeline:
            self.pipeline.set_outputs(*graph())
        self.pipeline.build()

    def start(self, inputs: dict[str, Any]) -> None:
        """Feed one batch, by input name an array whose first axis is the batch or a list, and let it run."""
        for name, array in inputs.items():
            self.pipeline.feed_input(name, array)
        self.pipeline.schedule_run()

    def finish(self) -> list[Any]:
        """Wait for the batch; its outputs are DALI tensor lists that own their memory."""
        stream = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        outputs = self.pipeline.share_outputs(cuda_stream=stream)
        self.pipeline.release_outputs()
        return list(outputs)


def resolve_device(device: torch.device | str | None) -> torch.device:
    """None: the CUDA device of this process (LOCAL_RANK, as torchrun sets it) if there is one, else the CPU."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(device)
    except RuntimeError:
        raise ValueError(f"device must be None, 'cpu', 'cuda' or 'cuda:N', got {device!r}") from None
    if device.type == "cpu":
        return torch.device("cpu")
    if device.type != "cuda":
        raise ValueError(f"device must be None, 'cpu', 'cuda' or 'cuda:N', got {str(device)!r}")
    return _cuda_device(device)


def _cuda_device(device: torch.device) -> torch.device:
    count = torch.cuda.device_count()
    index = _local_device() if device.index is None else device.index
    if index >= count:
        found = f"found {count} CUDA device{'s' * (count != 1)}"
        raise ValueError(f"device {str(device)!r} is not there ({found}); device='cpu' runs without one")
    return torch.device("cuda", index)


def _local_device() -> int:
    if torch.cuda.is_available() and torch.cuda.current_device() == 0:
        return int(os.environ.get("LOCAL_RANK", 0))
    return torch.cuda.current_device() if torch.cuda.is_available() else 0
