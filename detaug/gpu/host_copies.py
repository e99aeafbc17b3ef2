"""Copy images from pinned main memory to the GPU, beside the work of other streams."""

from __future__ import annotations

from contextlib import nullcontext
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from detaug.arrays import Ints, start_offsets
from detaug.gpu.launching import as_current
from detaug.gpu.streams import StreamGuard, to_device

PROGRAMS = 32
"""Programs of the kernel that copies: the bus of an H200 is busy with 16, and they take a part of its processors."""

BLOCK = 1024
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
            copy_images[PROGRAMS,](table, out.view(torch.int64), len(addresses), BLOCK)
            return Copies(out, StreamGuard(self._device))
