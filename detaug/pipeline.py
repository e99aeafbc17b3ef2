"""One DALI pipeline around a recipe: what the loader feeds and collects, and what eager mode runs once."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import torch
from nvidia.dali import Pipeline, fn

from detaug.sample import Node, Random, Sample

OpLike: TypeAlias = Callable[[Sample], Sample]
Inputs: TypeAlias = dict[str, Any]
"""By input name: an array whose first axis is the batch, or a list of arrays."""


class Lane:
    """A pipeline that works on one batch at a time, in the background: `start`, then `finish`."""

    def __init__(
        self, graph: Callable[[Random], list[Node]], batch_size: int, threads: int, device: torch.device
    ) -> None:
        self.device, self.random = device, Random()
        device_id = device.index if device.type == "cuda" else None
        self.pipeline = Pipeline(batch_size, threads, device_id, seed=0, prefetch_queue_depth=1)
        with self.pipeline:
            self.pipeline.set_outputs(*graph(self.random))
        self.pipeline.build()

    def start(self, inputs: Inputs, rng: np.random.Generator, n: int) -> None:
        """Feed one batch of n, its random numbers drawn from `rng`, and let it run."""
        for name, array in (inputs | self.random.arrays(rng, n)).items():
            self.pipeline.feed_input(name, array)
        self.pipeline.schedule_run()

    def finish(self) -> list[Any]:
        """Wait for the batch; its outputs are DALI tensor lists that own their memory."""
        stream = torch.cuda.current_stream(self.device) if self.device.type == "cuda" else None
        outputs = self.pipeline.share_outputs(cuda_stream=stream)
        self.pipeline.release_outputs()
        return list(outputs)


def run_recipe(sample: Sample, ops: Iterable[OpLike]) -> Sample:
    """The sample after all ops."""
    return reduce(lambda done, op: op(done), ops, sample)


def boxes_in_pixels(sample: Sample) -> Node:
    """(M, 4) float32 XYXY, in pixels of the view."""
    size = fn.reshape(sample.size, shape=[1, 2])
    return sample.boxes * fn.coord_transform(size, M=[0.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0, 0.0])  # (w, h, w, h)


def resolve_device(device: torch.device | str | None) -> torch.device:
    """None: the CUDA device of this process (LOCAL_RANK, as torchrun sets it) if there is one, else the CPU."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    device = torch.device(device)
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
