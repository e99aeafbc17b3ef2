"""Plans: what the recipe does to a batch, and to a group of batches that a pipeline processes as one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from detaug.arrays import Bools, Ints
from detaug.loading.batch_targets import BatchTargets
from detaug.ops.op import Arrays


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """One batch of n images, and what the recipe does to it."""

    epoch: int
    step: int
    indices: Ints
    """(n,) the images, as positions in the source."""
    inputs: Arrays
    """The renderer's inputs for each image, by name."""
    params: tuple[Arrays, ...]
    """What each step of the recipe drew; empty unless the loader has return_params."""
    targets: BatchTargets
    canvas: tuple[int, int]
    """(height, width) that all images of the batch are padded to."""
    wanted: Bools
    """(n,) see `EpochBatches`."""


class BatchInGroup(NamedTuple):
    """A batch, and the slice of its group's images that it has."""

    images: slice
    plan: BatchPlan


@dataclass(frozen=True, eq=False)
class GroupPlan:
    """Consecutive batches that a pipeline processes as one."""

    indices: Ints
    """The images of all batches, as positions in the source."""
    inputs: Arrays
    """Those of the batches, concatenated."""
    batches: list[BatchInGroup]
    """Those that are yielded. A group that was cut by a resumed step also has images of earlier batches."""


def group_of(plans: Sequence[BatchPlan], first_step: int) -> GroupPlan:
    """Concatenate the plans of consecutive batches, of which those before `first_step` are not yielded."""
    slices = consecutive_slices([len(plan.indices) for plan in plans])
    inputs = {name: np.concatenate([plan.inputs[name] for plan in plans]) for name in plans[0].inputs}
    batches = [BatchInGroup(*each) for each in zip(slices, plans, strict=True) if each[1].step >= first_step]
    return GroupPlan(np.concatenate([plan.indices for plan in plans]), inputs, batches)


def consecutive_slices(lengths: Sequence[int]) -> list[slice]:
    """Return the slices of concatenated pieces of these lengths."""
    return [slice(end - length, end) for end, length in zip(accumulate(lengths), lengths, strict=True)]


def pad_to(size: Sequence[int], multiple: int) -> tuple[int, int]:
    """Round a (height, width) up to a multiple."""
    height, width = size
    return -(-height // multiple) * multiple, -(-width // multiple) * multiple
