"""Plan batches from the seed, the epoch and the step: views and boxes in NumPy, whole blocks at once, no pixels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count
from typing import NamedTuple

import numpy as np
import torch

from detaug.arrays import Arrays, Ints, consecutive_slices
from detaug.boxes.tight import fit_to_shapes
from detaug.boxes.views import Views
from detaug.errors import DataError
from detaug.loading.bad_files import SkippedImages
from detaug.loading.batch_targets import Targets, pack_targets
from detaug.loading.draws import STEPS, PositionDraws
from detaug.loading.epochs import EpochBatches, EpochOrder
from detaug.loading.fixed_rows import FixedRows
from detaug.loading.plans import BatchPlan, Grouping, ViewPlan, pad_to
from detaug.loading.renderers import Job, Renderer
from detaug.machine.threads import Threads
from detaug.ops.op import select
from detaug.recipes.recipe import Draws, Recipe, draws_from
from detaug.sources.source import Source

BLOCK_IMAGES = 2048
"""Images that are planned at once, about, since a NumPy call costs much."""


class PlannedView(NamedTuple):
    """What the recipe of a view does to a block."""

    params: tuple[Arrays, ...]
    """What each step of the recipe drew; empty unless the loader has return_params."""
    targets: Targets


class PlannedBlock(NamedTuple):
    """The plan of consecutive batches of an epoch, in main memory."""

    epoch: EpochBatches
    steps: range
    slices: list[slice]
    """The images of each batch, among those of all."""
    inputs: Arrays
    """The renderer's inputs for each image, by name."""
    views: list[PlannedView]


@dataclass(frozen=True, eq=False)
class Planner:
    """Plans the batches of one shard, and makes the renderer's jobs of them."""

    reader: Source
    recipes: tuple[Recipe, ...]
    """One, or one for each view of the images."""
    end: tuple[int, int] | None
    """The epoch and the step of the first batch that has other recipes."""
    order: EpochOrder
    renderer: Renderer
    device: torch.device
    skipped: SkippedImages
    grouping: Grouping
    """Of the batches of a block."""
    pad_to_multiple: int
    """Batches of images of several sizes are padded to a multiple of this many pixels."""
    return_params: bool
    fixed: FixedRows | None = None
    """The rows that the targets of each image have."""

    @cached_property
    def draws(self) -> list[PositionDraws]:
        """Return the random numbers of all positions, for each recipe."""
        seed, global_batch = self.order.seed, self.order.global_batch
        return [PositionDraws(seed, global_batch, view) for view in range(len(self.recipes))]

    @cached_property
    def pad_multiples(self) -> list[int]:
        """Return what the batches of each recipe are padded to a multiple of."""
        return [1 if recipe.uniform else self.pad_to_multiple for recipe in self.recipes]

    def jobs_from(self, epoch: int, step: int) -> Iterator[Job]:
        """Yield the jobs of all batches from here on: training continues up to `end`, evaluation ends.

        A thread plans the next block while the jobs of this one are taken. Planned in between it would take longer than
        the device needs for the batches in flight, and the device would wait.
        """
        self.prefetch(epoch, step)
        blocks = self._blocks(epoch, step)
        with Threads(1, "detaug-planner") as thread:
            planned = thread.submit(next, blocks, None)
            while block := planned.result():
                planned = thread.submit(next, blocks, None)
                first_step = step if block.epoch.epoch == epoch else 0
                yield from self.renderer.jobs(self.grouping.group(self._batches(block), first_step))

    def prefetch(self, epoch: int, step: int) -> None:
        """Let the source know which images will be read from here on."""
        upcoming = self.order.upcoming(epoch, step, self.skipped.mask())
        self.renderer.feed.prefetch(upcoming)

    def replay(self, indices: Ints, params: Sequence[tuple[Arrays, ...]], epoch: int) -> list[Job]:
        """Return the jobs of one batch of these images, with the numbers that each recipe drew before."""
        views = replace(self.reader.clip_views(indices), slot=self.grouping.slots([len(indices)]), epoch=epoch)
        batches = EpochBatches(epoch, [indices], [np.ones(len(indices), bool)], [0])
        unused = [draws_from(np.random.default_rng())] * len(self.recipes)
        block = self._pack(batches, range(1), views, unused, params)
        return self.renderer.jobs(self.grouping.group(self._batches(block), 0))

    def check_batch(self, epoch: int, step: int) -> None:
        """Raise DataError if the batch has a file that cannot be used and may not be skipped."""
        if self.skipped.refuses:
            self.skipped.check_batch(self.order.batches(epoch)[step])

    def _blocks(self, epoch: int, step: int) -> Iterator[PlannedBlock]:
        block = self._block_batches()
        last, last_steps = (self.end or (None, 0)) if self.order.train else (epoch + 1, 0)
        for number in count(epoch) if last is None else range(epoch, last + (last_steps > 0)):
            batches, first_step = self._epoch(number), step if number == epoch else 0
            steps = last_steps if number == last else len(batches.indices)
            # from the start of a block, as in an epoch that is not resumed: so groups and slots are the same
            for start in range(first_step - first_step % block, steps, block):
                yield self._plan(batches, range(start, min(start + block, steps)))

    def _epoch(self, epoch: int) -> EpochBatches:
        """Return the batches of an epoch, with stand-ins for the skipped images. Raises DataError if none is left."""
        skipped = self.skipped.mask()
        batches = self.order.with_stand_ins(epoch, skipped)
        if batches.indices and skipped[np.concatenate(batches.indices)].reshape(-1, self.order.frames).any(1).all():
            raise DataError(f"no image is left: all of shard {self.order.shard} are skipped; {self.reader.remedy}")
        return batches

    def _plan(self, batches: EpochBatches, steps: range) -> PlannedBlock:
        """Plan consecutive batches of an epoch."""
        lengths = [len(batches.indices[step]) for step in steps]
        batch, in_batch = np.repeat(np.arange(len(steps)), lengths), np.concatenate([np.arange(n) for n in lengths])
        first_slots, frames = np.array(batches.first_slots[steps.start : steps.stop]), self.order.frames
        positions = steps.start + batch[::frames], first_slots[batch[::frames]] + in_batch[::frames] // frames
        draws = [draws.at(batches.epoch, len(batches.first_slots), *positions) for draws in self.draws]
        views = self.reader.clip_views(np.concatenate([batches.indices[step] for step in steps]))
        views = replace(views, batch=batch, slot=self.grouping.slots(lengths), epoch=batches.epoch)
        return self._pack(batches, steps, views, draws)

    def _block_batches(self) -> int:
        """Return how many batches are planned at once: a multiple of the steps that are drawn at once, or a part."""
        batches = max(1, BLOCK_IMAGES // (self.order.batch_size * self.order.frames))
        return batches - batches % STEPS if batches >= STEPS else 1 << batches.bit_length() - 1

    def _pack(
        self,
        batches: EpochBatches,
        steps: range,
        views: Views,
        draws: Sequence[Draws],
        drawn: Sequence[Sequence[Arrays]] | None = None,
    ) -> PlannedBlock:
        """Plan the images of consecutive batches, with the `draws` of each recipe.

        `drawn`: what an earlier plan of each recipe drew, used again.
        """
        indices = [batches.indices[step] for step in steps]
        images, slices = np.concatenate(indices), consecutive_slices([len(batch) for batch in indices])
        plans = [
            recipe.plan(views, draws[view], None if drawn is None else drawn[view])
            for view, recipe in enumerate(self.recipes)
        ]
        inputs = self.renderer.planned_inputs(plans, self.reader.sizes[images])
        planned = [
            PlannedView(
                plan.drawn if self.return_params else (),
                pack_targets(fit_to_shapes(plan.views), images, slices, self.reader, self.fixed),
            )
            for plan in plans
        ]
        return PlannedBlock(batches, steps, slices, inputs, planned)

    def _batches(self, block: PlannedBlock) -> list[BatchPlan]:
        """Return the plans of the batches of a block, with their targets on the device."""
        views = [self._plans(*parts, block.slices) for parts in zip(block.views, self.pad_multiples, strict=True)]
        return [
            BatchPlan(
                epoch=block.epoch.epoch,
                step=step,
                indices=block.epoch.indices[step],
                inputs=select(images, block.inputs),
                views=of_views,
                wanted=block.epoch.wanted[step],
            )
            for step, images, of_views in zip(block.steps, block.slices, zip(*views, strict=True), strict=True)
        ]

    def _plans(self, view: PlannedView, pad_multiple: int, slices: list[slice]) -> list[ViewPlan]:
        """Return the plans of a view for the batches of a block, each a slice of its images."""
        targets = view.targets.batches(self.device)
        largest = np.maximum.reduceat(view.targets.image_size, [images.start for images in slices]).tolist()
        return [
            ViewPlan(tuple(select(images, drawn) for drawn in view.params), own, pad_to(size, pad_multiple))
            for images, own, size in zip(slices, targets, largest, strict=True)
        ]
