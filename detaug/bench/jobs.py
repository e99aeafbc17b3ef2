"""The job of a benchmark, and the batches that a loader makes for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from detaug import presets
from detaug.ops.op import Op


@dataclass(frozen=True)
class Job:
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


Source = Callable[[Job], Iterator[MadeBatch]]
"""Makes batches without end, in the order of a training loop: (N, 3, H, W) float32 in 0..1 on the device, boxes in
pixels of it, padded with zeros or as lists, and labels from 1."""


def new_images(images: int, step: int, batch_size: int) -> int:
    """Return the number of images in a step of an epoch of `images` that do not fill up the last batch."""
    return min(batch_size, images - step * batch_size)
