"""A DALI pipeline that is fed and collected by hand, and the device it runs on."""

from __future__ import annotations

import os
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from nvidia.dali import Pipeline, backend, tensors
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from detaug.loading.memory import give_freed_memory_back
from detaug.ops.cpu_kernels import end_threads
from detaug.ops.op import Node

DALI_ERRORS = (RuntimeError, IndexError, TypeError, ValueError, MemoryError)
"""What a pipeline raises, by what went wrong in C++."""


class Lane:
    """A pipeline that works on up to `depth` batches in the background, in order: `start` them, then `finish`."""

    def __init__(
        self, graph: Callable[[], list[Node]], batch_size: int, threads: int, device: torch.device, depth: int = 1
    ) -> None:
        self.device, self.depth = device, depth
        device_id = device.index if device.type == "cuda" else None
        self.pipeline = Pipeline(batch_size, threads, device_id, seed=0, prefetch_queue_depth=depth)
        with self.pipeline:
            self.pipeline.set_outputs(*graph())
        weakref.finalize(self, end_threads, self.pipeline).atexit = False
        self.pipeline.build()
        self._fed: deque[bool] = deque()  # for each batch in the pipeline: is it wanted?
        self._unused: set[str] = set()
        self._runs = False

    def start(self, inputs: dict[str, Any]) -> None:
        """Feed one batch, by input name an array whose first axis is the batch or a list, and let it run."""
        self._feed(inputs, wanted=True)
        self._last = inputs

    def finish(self) -> list[Any]:
        """Wait for the batch started first; its outputs are DALI tensor lists that own their memory."""
        while not self._runs:  # DALI begins with `depth` batches at once: fill up with what nobody will see
            self._feed(self._last, wanted=False)
        while not self._fed.popleft():
            self._take()
        return self._take()

    def _feed(self, inputs: dict[str, Any], wanted: bool) -> None:
        for name in [name for name in inputs if name not in self._unused]:
            try:
                self.pipeline.feed_input(name, _to_feed(inputs[name]), use_copy_kernel=True)  # one for all images
            except KeyError:  # an op plans what its `paint` makes nothing of, so DALI left it out
                self._unused.add(name)
        self._fed.append(wanted)
        if self._runs or len(self._fed) == self.depth:
            self.pipeline.schedule_run()
            self._runs = True

    def _take(self) -> list[Any]:
        stream = torch.cuda.current_stream(self.device.index) if self.device.type == "cuda" else None
        return list(self.pipeline.outputs(cuda_stream=stream))


def _to_feed(data: Any) -> Any:
    """DALI takes twice as long for an array."""
    return tensors.TensorListCPU(data) if isinstance(data, np.ndarray) else data


def as_torch(output: Any, device: torch.device) -> Tensor:
    """An output of `Lane.finish` on this device, whose samples are of one size, as one tensor."""
    return _shared(output.as_tensor(), device)


def in_one_piece(output: Any, length: int, device: torch.device) -> Tensor:
    """The `length` values of an output of `Lane.finish` on this device, one sample behind the other."""
    return _shared(output.as_reshaped_tensor([length]), device)


def _shared(tensor: Any, device: torch.device) -> Tensor:
    """DALI's tensor as torch's, with the memory that it has."""
    # the current stream waits for it already: to let DALI make it wait once more costs ten times the rest
    return from_dlpack(tensor.__dlpack__(stream=-1) if device.type == "cuda" else tensor)


def give_memory_back(device: torch.device) -> None:
    """What DALI, and on the CPU glibc, keep from pipelines that are gone, for the next ones."""
    if device.type == "cpu":
        give_freed_memory_back()
    else:
        backend.ReleaseUnusedMemory()  # type: ignore[attr-defined]


def resolve_device(device: torch.device | str | None) -> torch.device:
    """None: the CUDA device of this process (LOCAL_RANK, as torchrun sets it) if there is one, else the CPU."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        found = torch.device(device)
    except RuntimeError:
        found = torch.device("meta")
    if found.type not in ("cpu", "cuda"):
        raise ValueError(f"device must be None, 'cpu', 'cuda' or 'cuda:N', got {str(device)!r}")
    return torch.device("cpu") if found.type == "cpu" else _cuda_device(found)


def _cuda_device(device: torch.device) -> torch.device:
    count = torch.cuda.device_count()
    index = _local_device() if device.index is None else device.index
    if index >= count:
        found = f"found {count} CUDA device{'s' * (count != 1)}"
        raise ValueError(f"device {str(device)!r} is not there ({found}); device='cpu' runs without one")
    return torch.device("cuda", index)


def _local_device() -> int:
    """The device that was set, or LOCAL_RANK's; one that is alone is every process's own."""
    if not torch.cuda.is_available() or torch.cuda.current_device() != 0:
        return torch.cuda.current_device() if torch.cuda.is_available() else 0
    count = torch.cuda.device_count()
    rank = int(os.environ.get("LOCAL_RANK") or rank_and_world()[0] % count)
    return rank if rank < count else 0


def rank_and_world() -> tuple[int, int]:
    """This process's rank and the number of processes: torch.distributed's, else torchrun's RANK and WORLD_SIZE."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return int(os.environ.get("RANK") or 0), int(os.environ.get("WORLD_SIZE") or 1)
