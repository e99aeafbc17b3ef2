"""Launch Triton kernels that go over blocks of pixels."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any

import torch

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
    """Run this many programs of a kernel on a device. `more`: see `launch`."""
    with as_current(device):
        kernel[count,](*arguments, **OPTIONS | more)


@cache
def programs(device: torch.device) -> int:
    """Return how many programs of a kernel run on this device."""
    if device.type == "cpu":
        return 1
    return PROGRAMS_PER_PROCESSOR * torch.cuda.get_device_properties(device).multi_processor_count


def as_current(device: torch.device) -> AbstractContextManager[object]:
    """Make it torch's current device, where Triton runs kernels."""
    return nullcontext() if device.type == "cpu" else torch.cuda.device(device.index)
