"""What each batch holds and what the recipe does to it, from the seed, the epoch and the step; no pixels yet."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, count
from typing import NamedTuple

import numpy as np
import torch

from detaug.boxes.views import Bools, Floats, Ints, start_offsets
from detaug.gpu.fused_kernel import OneKernel
from detaug.gpu.streams import MadeOn
from detaug.loading.bad_files import DataError, remedy
from detaug.loading.batch_targets import Outcome, outcomes
from detaug.loading.epochs import evaluation_batches, plan_rng, train_batches, without
from detaug.loading.image_cache import check_kept
from detaug.ops.op import Arrays
from detaug.ops.recipe import Plan, Recipe
from detaug.sources.coco_reader import CocoReader, Rows

PLANNED_AT_ONCE = 2048
"""Images: NumPy plans several batches together, since its calls cost much and its numbers little."""


class Planned(NamedTuple):
    """A batch, and what the recipe does to it."""

    epoch: int
    step: int
    rows: Rows
    inputs: Arrays
    """What `Recipe.dali_graph` must be fed, by input name; for a kernel only its "table"."""
    drawn: tuple[Arrays, ...]
    """For each step of the recipe, the random numbers it drew, if they are asked for."""
    outcome: Outcome
    largest: tuple[int, int]
    """The largest height and the largest width of its images, after the recipe."""
    kept: Bools | None = None
    """(n,) False for an image that only stands in for one that evaluation skips; None if there is none."""


class Run(NamedTuple):
    """Batches that a pipeline works on as one."""

    rows: Rows
    inputs: Arrays
    """As those of its batches."""
    batches: list[tuple[slice, Planned]]
    """Those that are wanted, and where in it their images are."""
    table: torch.Tensor | None = None
    """For a kernel, on the device: what `OneKernel.paint` is told of its images."""
    made_on: MadeOn | None = None
    """The stream of `table`."""


@dataclass(frozen=True, eq=False)
class Planner:
    """The batches of one shard. Its arguments are those of `Loader`."""

    reader: CocoReader
    recipe: Recipe
    batch_size: int
    shard: tuple[int, int]
    seed: int
    train: bool
    factors: Floats | None
    """(n,) how often each image comes in an epoch, on average; None is once."""
    groups: Rows
    """(n,) images of different groups are never in one batch."""
    return_params: bool
    device: torch.device
    kernel: OneKernel | None
    """What paints the batches, if it is not DALI."""
    together: int = 1
    """Batches of a run, of those that are planned at once."""
    kept_at: Rows | None = None
    """`DecodedImages.at`, if images are kept; not those themselves, which an exception would hold with its frames."""

    def batches(self, epoch: int) -> list[Rows]:
        """Which images each batch of an epoch holds."""
        if self.train:
            return train_batches(self.factors, self.groups, self.batch_size, self.shard, self.seed, epoch)
        return evaluation_batches(len(self.reader), self.batch_size, self.shard)

    def plan_from(self, epoch: int, step: int, skipped: Collection[int]) -> Iterator[Run]:
        """The batches from here on, as runs: training goes on with the next epochs, evaluation ends.

        While one group of batches is taken, the next is planned, an op at each: all at once would take as long as some
        batches take the device, which would be done with its work and wait.
        """
        stock: deque[Run] = deque()
        for runs in self._groups(epoch, step, skipped):
            stock.extend(runs)
            while len(stock) > len(self.recipe.steps):
                yield stock.popleft()
            if stock:
                yield stock.popleft()
        yield from stock

    def _groups(self, epoch: int, step: int, skipped: Collection[int]) -> Iterator[list[Run]]:
        """The batches that are planned together, as runs; before them, for each op that they went through, none."""
        group = self._at_once()
        for each in count(epoch) if self.train else (epoch,):
            batches, begin = self.batches(each), step if each == epoch else 0
            usable = self._without(list(skipped), batches)
            for first in range(begin - begin % group, len(batches), group):
                for planned in self._planned(each, first, batches[first : first + group]):
                    if usable is not None:
                        planned = [self._with_stand_ins(one, usable[one.step]) for one in planned]
                    parts = [planned[at : at + self.together] for at in range(0, len(planned), self.together)]
                    yield self._runs([part for part in parts if part[-1].step >= begin], begin)

    def _at_once(self) -> int:
        return max(1, PLANNED_AT_ONCE // self.batch_size)

    def _planned(self, epoch: int, first: int, batches: list[Rows]) -> Iterator[list[Planned]]:
        """The plans of some batches of an epoch, which begin at step `first`; before them, after each op, none."""
        rows, lengths = np.concatenate(batches), [len(batch) for batch in batches]
        which = np.repeat(np.arange(len(batches)), lengths)
        in_group = first % self._at_once() * self.batch_size + np.arange(len(rows))
        place = in_group % (self.together * self.batch_size)
        views = replace(self.reader.views(rows), batch=which, slot=place, epoch=epoch)
        for plan in self.recipe.plan_by_op(views, plan_rng(self.seed, epoch, first, self.shard[0])):
            yield [*self._parts(epoch, first, rows, lengths, plan)] if plan else []

    def replay(self, rows: Rows, drawn: tuple[Arrays, ...]) -> Run:
        """The run of one batch: of these images, with the numbers `drawn` before."""
        plan = self.recipe.plan(self.reader.views(rows), np.random.default_rng(), drawn)
        (run,) = self._runs([[*self._parts(0, 0, rows, [len(rows)], plan)]])
        return run

    def _runs(self, parts: list[list[Planned]], begin: int = 0) -> list[Run]:
        """Each part as one run, of which the batches before step `begin` are not wanted."""
        runs = [_run_of(part, begin) for part in parts]
        if not self.kernel or not runs:
            return runs
        offsets = [self._offsets(run.rows) for run in runs]
        tables, made_on = self.kernel.with_offsets([run.inputs["table"] for run in runs], offsets), MadeOn(self.device)
        return [run._replace(table=table, made_on=made_on) for run, table in zip(runs, tables, strict=True)]

    def _offsets(self, rows: Rows) -> Ints:
        """Where the bytes of a run's images begin, in those of all that are kept, else of the run."""
        if self.kept_at is not None:
            check_kept(self.kept_at, rows)
            return self.kept_at[rows]
        return start_offsets(3 * self.reader.pixels[rows])

    def _parts(self, epoch: int, first: int, rows: Rows, lengths: list[int], plan: Plan) -> Iterator[Planned]:
        """Batches of these lengths, from step `first` on, out of what was planned for all their images."""
        inputs, drawn = plan.inputs, plan.drawn if self.return_params else ()
        if self.kernel:
            inputs = {"table": self.kernel.table(plan.views.slot, self.reader.sizes[rows], inputs)}
        parts = _slices(lengths)
        largest = np.maximum.reduceat(plan.views.size, [part.start for part in parts]).astype(int).tolist()
        after = outcomes(plan.views, parts, self.device)
        for step, (at, outcome, (height, width)) in enumerate(zip(parts, after, largest, strict=True), first):
            draws = tuple(at_rows(at, each) for each in drawn)
            yield Planned(epoch, step, rows[at], at_rows(at, inputs), draws, outcome, (height, width))

    def _without(self, skipped: list[int], batches: list[Rows]) -> list[Rows] | None:
        """The batches of an epoch with stand-ins for the images that are skipped; None if there are none."""
        if not skipped or not batches:
            return None
        is_skipped = np.zeros(len(self.reader), bool)
        is_skipped[skipped] = True
        if is_skipped[np.concatenate(batches)].all():
            raise DataError(f"no image is left: all of shard {self.shard} are skipped; {remedy(self.reader)}")
        return without(is_skipped, batches, self.groups, self.batch_size if self.train else 1)

    def _with_stand_ins(self, planned: Planned, rows: Rows) -> Planned:
        """A batch planned anew, and alone, so that the others of its group stay what they were."""
        if (rows == planned.rows).all():
            return planned
        kept = None if self.train else rows == planned.rows
        *_, [alone] = self._planned(planned.epoch, planned.step, [rows])
        return alone._replace(kept=kept)


def _run_of(planned: list[Planned], begin: int) -> Run:
    """Batches that follow each other as one; those before step `begin` are not wanted."""
    batches = list(zip(_slices([len(batch.rows) for batch in planned]), planned, strict=True))
    inputs = {name: np.concatenate([batch.inputs[name] for batch in planned]) for name in planned[0].inputs}
    rows = np.concatenate([batch.rows for batch in planned])
    return Run(rows, inputs, [(at, batch) for at, batch in batches if batch.step >= begin])


def _slices(lengths: list[int]) -> list[slice]:
    """Where parts of these lengths lie, one behind the other."""
    return [slice(end - length, end) for end, length in zip(accumulate(lengths), lengths, strict=True)]


def at_rows(rows: slice | Rows, arrays: Arrays) -> Arrays:
    """Those of some images of a batch, or of several."""
    return {name: array[rows] for name, array in arrays.items()}
