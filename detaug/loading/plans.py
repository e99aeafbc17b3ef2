"""Plans: what the recipes do to a batch, and to a group of batches, or part of one, that a pipeline gets at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from detaug.arrays import Arrays, Bools, Ints, consecutive_slices
from detaug.loading.batch_targets import Targets


class ViewPlan(NamedTuple):
    """What the recipe of a view does to a batch."""

    params: tuple[Arrays, ...]
    """What each step of the recipe drew; empty unless the loader has return_params."""
    targets: Targets
    canvas: tuple[int, int]
    """(height, width) that all images of the batch are padded to."""


@dataclass(frozen=True, eq=False)
class BatchPlan:
    """One batch of n images, and what the recipes do to it: one, or one for each view."""

    epoch: int
    step: int
    indices: Ints
    """(n,) the images, as positions in the source."""
    inputs: Arrays
    """The renderer's inputs for each image, by name."""
    views: tuple[ViewPlan, ...]
    wanted: Bools
    """(n,) see `EpochBatches`."""


class BatchInGroup(NamedTuple):
    """A batch, and the slice of its group's images that it has."""

    images: slice
    plan: BatchPlan


@dataclass(frozen=True, eq=False)
class GroupPlan:
    """Consecutive batches that a pipeline processes as one, or part of a batch."""

    indices: Ints
    """The images of all batches, as positions in the source."""
    inputs: Arrays
    """Those of the batches, concatenated."""
    batches: list[BatchInGroup]
    """Those that are yielded. A group that was cut by a resumed step also has images of earlier batches."""


@dataclass(frozen=True)
class Grouping:
    """How batches go to the pipelines: several as one, or one in parts."""

    batches: int
    """Batches of a group; if more than 1, there are no parts."""
    parts: int
    """Parts of a batch at most."""
    mixed: int
    """Images that ops may mix with each other, from the start of a batch on. They are in one part."""

    def parts_of(self, images: int) -> list[slice]:
        """Return the parts of a batch. Images that do not fill a mixed group belong to the last one, as in mixing."""
        groups = max(1, images // self.mixed)
        parts = min(self.parts, groups) if self.batches == 1 else 1
        ends = [self.mixed * (groups * number // parts) for number in range(1, parts)]
        return [slice(*limits) for limits in zip([0, *ends], [*ends, images], strict=True)]

    def most_images(self, batch_size: int) -> int:
        """Return the number of images that a pipeline gets at once, at most, of batches up to this size."""
        if self.batches > 1:
            return self.batches * batch_size
        groups = batch_size // self.mixed
        return min(batch_size, self.mixed * -(-groups // self.parts) + self.mixed - 1)

    def slots(self, lengths: Sequence[int]) -> Ints:
        """Return (images,): the position of each image among those that the pipeline gets with it.

        `lengths`: of consecutive batches, from the start of a group on.
        """
        if self.batches == 1:
            sizes = [part.stop - part.start for length in lengths for part in self.parts_of(length)]
        else:
            sizes = [sum(lengths[start : start + self.batches]) for start in range(0, len(lengths), self.batches)]
        return np.concatenate([np.arange(size) for size in sizes])

    def group(self, plans: Sequence[BatchPlan], first_step: int) -> list[GroupPlan]:
        """Return the groups, or parts, of consecutive batches, without those that end before `first_step`."""
        if self.batches == 1:
            plans = [plan for plan in plans if plan.step >= first_step]
            return [part_of(plan, images) for plan in plans for images in self.parts_of(len(plan.indices))]
        groups = [plans[start : start + self.batches] for start in range(0, len(plans), self.batches)]
        return [group_of(group, first_step) for group in groups if group[-1].step >= first_step]


def part_of(plan: BatchPlan, images: slice) -> GroupPlan:
    """Return part of a batch as a group."""
    inputs = {name: array[images] for name, array in plan.inputs.items()}
    indices = plan.indices[images]
    return GroupPlan(indices, inputs, [BatchInGroup(slice(0, len(indices)), plan)])


def group_of(plans: Sequence[BatchPlan], first_step: int) -> GroupPlan:
    """Concatenate the plans of consecutive batches, of which those before `first_step` are not yielded."""
    slices = consecutive_slices([len(plan.indices) for plan in plans])
    inputs = {name: np.concatenate([plan.inputs[name] for plan in plans]) for name in plans[0].inputs}
    batches = [BatchInGroup(*pair) for pair in zip(slices, plans, strict=True) if pair[1].step >= first_step]
    return GroupPlan(np.concatenate([plan.indices for plan in plans]), inputs, batches)


def pad_to(size: Sequence[int], multiple: int) -> tuple[int, int]:
    """Round a (height, width) up to a multiple."""
    height, width = size
    return -(-height // multiple) * multiple, -(-width // multiple) * multiple
