"""Plan batches from the seed, the epoch and the step: views and boxes in NumPy, whole blocks at once, no pixels."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import count

import numpy as np
import torch

from detaug.arrays import Ints
from detaug.errors import DataError
from detaug.loading.bad_files import SkippedImages
from detaug.loading.batch_targets import build_targets
from detaug.loading.draws import STEPS, PositionDraws
from detaug.loading.epochs import EpochBatches, EpochOrder
from detaug.loading.plans import BatchPlan, Grouping, consecutive_slices, pad_to
from detaug.loading.renderers import Job, Renderer
from detaug.ops.op import Arrays, select
from detaug.ops.recipe import Plan, Recipe, draws_from
from detaug.sources.source import Source

BLOCK_IMAGES = 2048
"""Images that are planned at once, about, since a NumPy call costs much."""


@dataclass(frozen=True, eq=False)
class Planner:
    """Plans the batches of one shard, and makes the renderer's jobs of them."""

    reader: Source
    recipe: Recipe
    end: int | None
    """The first epoch that has another recipe."""
    order: EpochOrder
    renderer: Renderer
    device: torch.device
    skipped: SkippedImages
    grouping: Grouping
    """Of the batches of a block."""
    pad_multiple: int
    """Batches are padded to a multiple of this many pixels."""
    return_params: bool

    @cached_property
    def draws(self) -> PositionDraws:
        """Return the random numbers of all positions."""
        return PositionDraws(self.order.seed, self.order.global_batch)

    def jobs_from(self, epoch: int, step: int) -> Iterator[Job]:
        """Yield the jobs of all batches from here on: training continues up to epoch `end`, evaluation ends.

        The next block is planned op by op while the jobs of this one are taken: planned in one go it would take longer
        than the device needs for the batches in flight, and the device would wait.
        """
        self.prefetch(epoch, step)
        ready: deque[Job] = deque()
        for jobs in self._blocks(epoch, step):
            ready.extend(jobs)
            while len(ready) > len(self.recipe.steps):
                yield ready.popleft()
            if ready:
                yield ready.popleft()
        yield from ready

    def prefetch(self, epoch: int, step: int) -> None:
        """Let the source know which images will be read from here on."""
        upcoming = self.order.upcoming(epoch, step, self.skipped.mask())
        self.renderer.feed.prefetch(upcoming)

    def replay(self, indices: Ints, params: tuple[Arrays, ...], epoch: int) -> list[Job]:
        """Return the jobs of one batch of these images, with the numbers that were drawn before."""
        views = replace(self.reader.clip_views(indices), slot=self.grouping.slots([len(indices)]), epoch=epoch)
        plan = self.recipe.plan(views, draws_from(np.random.default_rng()), params)
        batches = self._split(EpochBatches(epoch, [indices], [np.ones(len(indices), bool)], [0]), range(1), plan)
        return self.renderer.jobs(self.grouping.group(batches, 0))

    def check_batch(self, epoch: int, step: int) -> None:
        """Raise DataError if the batch has a file that cannot be used and may not be skipped."""
        if self.skipped.refuses:
            self.skipped.check_batch(self.order.batches(epoch)[step])

    def _blocks(self, epoch: int, step: int) -> Iterator[list[Job]]:
        """Yield the jobs of each block; while it is planned, yield an empty list after each op."""
        block = self._block_batches()
        for each in self._epochs_from(epoch):
            batches, first_step = self._epoch(each), step if each == epoch else 0
            for start in range(first_step - first_step % block, len(batches.indices), block):
                for plans in self._plan(batches, range(start, min(start + block, len(batches.indices)))):
                    yield self.renderer.jobs(self.grouping.group(plans, first_step))

    def _epochs_from(self, epoch: int) -> Iterable[int]:
        if not self.order.train:
            return (epoch,)
        return count(epoch) if self.end is None else range(epoch, self.end)

    def _epoch(self, epoch: int) -> EpochBatches:
        """Return the batches of an epoch, with stand-ins for the skipped images. Raises DataError if none is left."""
        skipped = self.skipped.mask()
        batches = self.order.with_stand_ins(epoch, skipped)
        if batches.indices and skipped[np.concatenate(batches.indices)].reshape(-1, self.order.frames).any(1).all():
            raise DataError(f"no image is left: all of shard {self.order.shard} are skipped; {self.reader.remedy}")
        return batches

    def _plan(self, batches: EpochBatches, steps: range) -> Iterator[list[BatchPlan]]:
        """Yield the plans of consecutive batches of an epoch; before that, yield an empty list after each op."""
        lengths = [len(batches.indices[step]) for step in steps]
        batch, at = np.repeat(np.arange(len(steps)), lengths), np.concatenate([np.arange(n) for n in lengths])
        first_slots, frames = np.array(batches.first_slots[steps.start : steps.stop]), self.order.frames
        positions = steps.start + batch[::frames], first_slots[batch[::frames]] + at[::frames] // frames
        draws = self.draws.at(batches.epoch, len(batches.first_slots), *positions)
        views = self.reader.clip_views(np.concatenate([batches.indices[step] for step in steps]))
        views = replace(views, batch=batch, slot=self.grouping.slots(lengths), epoch=batches.epoch)
        for plan in self.recipe.plan_by_op(views, draws):
            yield self._split(batches, steps, plan) if plan else []

    def _block_batches(self) -> int:
        """Return how many batches are planned at once: a multiple of the steps that are drawn at once, or a part."""
        batches = max(1, BLOCK_IMAGES // (self.order.batch_size * self.order.frames))
        return batches - batches % STEPS if batches >= STEPS else 1 << batches.bit_length() - 1

    def _split(self, batches: EpochBatches, steps: range, plan: Plan) -> list[BatchPlan]:
        """Split the plan of the images of all batches into plans of batches."""
        indices = [batches.indices[step] for step in steps]
        images, classes = np.concatenate(indices), self.reader.classes
        sizes, classes = self.reader.sizes[images], None if classes is None else classes[images]
        inputs, params = self.renderer.planned_inputs(plan, sizes), plan.drawn if self.return_params else ()
        slices = consecutive_slices([len(batch) for batch in indices])
        largest = np.maximum.reduceat(plan.views.size, [images.start for images in slices]).astype(int).tolist()
        targets = build_targets(plan.views, images, slices, self.device, classes)
        return [
            BatchPlan(
                epoch=batches.epoch,
                step=step,
                indices=indices[at],
                inputs=select(images, inputs),
                params=tuple(select(images, drawn) for drawn in params),
                targets=targets[at],
                canvas=pad_to(largest[at], self.pad_multiple),
                wanted=batches.wanted[step],
            )
            for at, (step, images) in enumerate(zip(steps, slices, strict=True))
        ]
