"""Plan batches from the seed, the epoch and the step: views and boxes in NumPy, whole blocks at once, no pixels."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count

import numpy as np
import torch

from detaug.boxes.views import Bools, Ints
from detaug.loading.bad_files import DataError, SkippedImages
from detaug.loading.batch_targets import build_targets
from detaug.loading.epochs import EpochOrder, draw_rng
from detaug.loading.plans import BatchPlan, GroupPlan, consecutive_slices, group_of, pad_to, select
from detaug.loading.renderers import Job, Renderer
from detaug.ops.op import Arrays
from detaug.ops.recipe import Plan, Recipe
from detaug.sources.source import Source

BLOCK_IMAGES = 2048
"""Images that are planned at once, since a NumPy call costs much. Another value gives other random numbers."""


@dataclass(frozen=True, eq=False)
class Planner:
    """Plans the batches of one shard, and makes the renderer's jobs of them."""

    reader: Source
    recipe: Recipe
    order: EpochOrder
    renderer: Renderer
    device: torch.device
    skipped: SkippedImages
    batches_per_group: int
    """Batches that a pipeline processes as one, within a block."""
    pad_multiple: int
    """Batches are padded to a multiple of this many pixels."""
    return_params: bool

    def jobs_from(self, epoch: int, step: int) -> Iterator[Job]:
        """Yield the jobs of all batches from here on: training continues with the next epochs, evaluation ends.

        The next block is planned op by op while the jobs of this one are taken: planned in one go it would take longer
        than the device needs for the batches in flight, and the device would wait.
        """
        ready: deque[Job] = deque()
        for jobs in self._blocks(epoch, step):
            ready.extend(jobs)
            while len(ready) > len(self.recipe.steps):
                yield ready.popleft()
            if ready:
                yield ready.popleft()
        yield from ready

    def replay(self, indices: Ints, params: tuple[Arrays, ...]) -> Job:
        """Return the job of one batch of these images, with the numbers that were drawn before."""
        plan = self.recipe.plan(self.reader.views(indices), np.random.default_rng(), params)
        (batch,) = self._split(0, 0, [indices], plan)
        (job,) = self.renderer.jobs([group_of([batch], 0)])
        return job

    def check_batch(self, epoch: int, step: int) -> None:
        """Raise DataError if the batch has a file that cannot be used and may not be skipped."""
        if self.skipped.refuses:
            self.skipped.check_batch(self.order.batches(epoch)[step])

    def _blocks(self, epoch: int, step: int) -> Iterator[list[Job]]:
        """Yield the jobs of each block; while it is planned, yield an empty list after each op."""
        block = self._block_batches()
        for each in count(epoch) if self.order.train else (epoch,):
            batches, first_step = self.order.batches(each), step if each == epoch else 0
            usable = self._without_skipped(batches)
            for start in range(first_step - first_step % block, len(batches), block):
                for plans in self._plan(each, start, batches[start : start + block]):
                    plans = [self._with_stand_ins(plan, usable[plan.step]) for plan in plans]
                    yield self.renderer.jobs(self._groups(plans, first_step))

    def _plan(self, epoch: int, first_step: int, batches: list[Ints]) -> Iterator[list[BatchPlan]]:
        """Yield the plans of consecutive batches of an epoch; before that, yield an empty list after each op."""
        indices = np.concatenate(batches)
        batch_of = np.repeat(np.arange(len(batches)), [len(batch) for batch in batches])
        in_block = first_step % self._block_batches() * self.order.batch_size
        slot = (in_block + np.arange(len(indices))) % (self.batches_per_group * self.order.batch_size)
        views = replace(self.reader.views(indices), batch=batch_of, slot=slot, epoch=epoch)
        rng = draw_rng(self.order.seed, epoch, first_step, self.order.shard[0])
        for plan in self.recipe.plan_by_op(views, rng):
            yield self._split(epoch, first_step, batches, plan) if plan else []

    def _block_batches(self) -> int:
        """Return how many batches are planned at once."""
        return max(1, BLOCK_IMAGES // self.order.batch_size)

    def _split(self, epoch: int, first_step: int, batches: list[Ints], plan: Plan) -> list[BatchPlan]:
        """Split the plan of the images of all batches into plans of batches."""
        indices, classes = np.concatenate(batches), self.reader.classes
        sizes, classes = self.reader.sizes[indices], None if classes is None else classes[indices]
        inputs, params = self.renderer.planned_inputs(plan, sizes), plan.drawn if self.return_params else ()
        slices = consecutive_slices([len(batch) for batch in batches])
        largest = np.maximum.reduceat(plan.views.size, [images.start for images in slices]).astype(int).tolist()
        targets = build_targets(plan.views, slices, self.device, classes)
        return [
            BatchPlan(
                epoch=epoch,
                step=first_step + at,
                indices=batches[at],
                inputs=select(images, inputs),
                params=tuple(select(images, drawn) for drawn in params),
                targets=targets[at],
                canvas=pad_to(largest[at], self.pad_multiple),
                wanted=np.ones(len(batches[at]), bool),
            )
            for at, images in enumerate(slices)
        ]

    def _groups(self, plans: list[BatchPlan], first_step: int) -> list[GroupPlan]:
        """Group consecutive batches, without the groups that end before `first_step`."""
        size = self.batches_per_group
        groups = [plans[start : start + size] for start in range(0, len(plans), size)]
        return [group_of(group, first_step) for group in groups if group[-1].step >= first_step]

    def _without_skipped(self, batches: list[Ints]) -> list[Ints]:
        """Return the batches of an epoch with stand-ins for the skipped images. Raises DataError if none is left."""
        skipped = self.skipped.mask()
        if not skipped.any() or not batches:
            return batches
        if skipped[np.concatenate(batches)].all():
            raise DataError(f"no image is left: all of shard {self.order.shard} are skipped; {self.reader.remedy}")
        return self.order.with_stand_ins(batches, skipped)

    def _with_stand_ins(self, plan: BatchPlan, indices: Ints) -> BatchPlan:
        """Plan a batch again with other images, alone, so that the other batches of its block do not change."""
        same: Bools = indices == plan.indices
        if same.all():
            return plan
        *_, (alone,) = self._plan(plan.epoch, plan.step, [indices])
        return replace(alone, wanted=np.ones(len(indices), bool) if self.order.train else same)
