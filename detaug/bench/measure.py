"""Measure one loader: its job, its batches, images per second and their costs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from detaug import presets
from detaug.ops.op import Op


@dataclass(frozen=True)
class BenchJob:
    """Data, recipe and device of a measurement. `workers`: processes of PyTorch DataLoaders."""

    annotations: str
    images: str
    preset: str = "ssd300"
    batch_size: int = 32
    device: str = "cpu"
    seconds: float = 10.0
    workers: int = 1
    settings: str | None = None

    def recipe(self) -> list[Op]:
        return list(getattr(presets, self.preset)())


class MadeBatch(NamedTuple):
    """One batch. `new`: the number of its images that were not in this epoch before."""

    images: torch.Tensor | None
    boxes: Any
    labels: Any
    new: int


BatchMaker = Callable[[BenchJob], Iterator[MadeBatch]]
"""Makes batches without end, in the order of a training loop: (N, 3, H, W) float32 in 0..1 on the device, boxes in
pixels of it, padded with zeros or as lists, and labels from 1."""


def new_images(images: int, step: int, batch_size: int) -> int:
    """Return the number of images in a step of an epoch of `images` that do not fill up the last batch."""
    return min(batch_size, images - step * batch_size)


Result = dict[str, Any]

WARM_UP = 0.3
"""Seconds of warm-up, as a fraction of the timed seconds."""

LEAST_BATCHES = 8


def measure(make: BatchMaker, job: BenchJob) -> Result:
    """Time the batches of one loader for `job.seconds`, after a warm-up."""
    memory = _gpu_memory(job)
    start = time.perf_counter()
    batches = make(job)
    first = next(batches)
    _synchronize(job)
    result: Result = {"first_batch_s": time.perf_counter() - start, "batch": describe_batch(first)}
    _take(batches, job.seconds * WARM_UP)
    _synchronize(job)
    begin, cpu = time.perf_counter(), cpu_seconds()
    taken = _take(batches, job.seconds)
    _synchronize(job)
    seconds, cpu = time.perf_counter() - begin, cpu_seconds() - cpu
    p50, p99 = np.percentile(taken.intervals, [50, 99]) * 1000
    result |= {"images_per_s": taken.images / seconds, "cpu_s_per_1000": cpu / taken.images * 1000}
    result |= {"images": taken.images, "p50_ms": p50, "p99_ms": p99}
    return result | {"gpu_mb": (_gpu_memory(job) - memory) / 1e6}


class Taken(NamedTuple):
    """The number of new images in some batches, and the seconds from each batch to the next."""

    images: int
    intervals: list[float]


def _take(batches: Iterator[MadeBatch], seconds: float) -> Taken:
    """Take batches for some seconds, at least `LEAST_BATCHES`."""
    images, start = 0, time.perf_counter()
    before, intervals = start, list[float]()
    while before - start < seconds or len(intervals) < LEAST_BATCHES:
        images += next(batches).new
        now = time.perf_counter()
        intervals.append(now - before)
        before = now
    return Taken(images, intervals)


def describe_batch(batch: MadeBatch) -> Result:
    """Return shape, type, range and boxes of a batch, for `check_alike`; {} for a batch without images.

    Labels below 0 are padding.
    """
    if batch.images is None:
        return {}
    images, pairs = batch.images, list(zip(batch.boxes, batch.labels, strict=True))
    real = [boxes[labels.reshape(-1) >= 0].float().cpu() for boxes, labels in pairs]
    boxes = torch.cat([own_boxes.reshape(-1, 4) for own_boxes in real])
    limit = torch.tensor([images.shape[3], images.shape[2]] * 2) + 0.01
    outside = ((boxes < -0.01) | (boxes > limit)).any(1).sum()
    reversed_corners = (boxes[:, :2] > boxes[:, 2:]).any(1).sum()
    return {
        "shape": [*images.shape],
        "dtype": str(images.dtype),
        "low": float(images.min()),
        "high": float(images.max()),
        "boxes": len(boxes),
        "wrong_boxes": int(outside + reversed_corners),
    }


def cpu_seconds() -> float:
    """Return the CPU time of this process and all processes that it started, their children included."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # a program's name, in brackets, may have spaces; after it come state, parent, ..., user and system time
            pid, rest = int(path.parent.name), path.read_text().rpartition(") ")[2].split()
        except OSError:  # it ended
            continue
        parents[pid], used[pid] = int(rest[1]), int(rest[11]) + int(rest[12])
    family, more = {os.getpid()}, {os.getpid()}
    while more:
        more = {pid for pid, parent in parents.items() if parent in more}
        family |= more
    own = os.times()
    alive = sum(used[pid] for pid in family - {os.getpid()}) / os.sysconf("SC_CLK_TCK")
    return own.user + own.system + own.children_user + own.children_system + alive


def _synchronize(job: BenchJob) -> None:
    if torch.device(job.device).type == "cuda":
        torch.cuda.synchronize(job.device)


def _gpu_memory(job: BenchJob) -> int:
    """Return the bytes in use on the device, by all processes, 0 on the CPU."""
    if torch.device(job.device).type != "cuda":
        return 0
    torch.zeros(1, device=job.device)  # creates this process's context, so that no difference counts it
    free, total = torch.cuda.mem_get_info(job.device)
    return total - free
