"""The order of an epoch: which images each step holds, from the seed and the epoch alone, and each shard's part.

What is shuffled and counted are items: images, or clips of several images, their frames.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import count
from typing import Literal, NamedTuple, TypeAlias

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.loading.devices import ranks_of_machine
from detaug.storage.storage import Upcoming

LANE = 8
"""Slots of a step that take their clips from the same stretches of videos."""
OPEN = 8
"""Stretches from which they take them at a time, about."""

LastBatch: TypeAlias = Literal["fill", "partial", "drop"]


class EpochBatches(NamedTuple):
    """The batches of an epoch, on one shard."""

    epoch: int
    indices: list[Ints]
    """The images of each batch, as positions in the source; stand-ins for those that are skipped."""
    wanted: list[Bools]
    """False for the stand-in of an image that evaluation skips; neither of the two is yielded."""
    first_slots: list[int]
    """The slot of each batch's first item in the global batch."""


@dataclass(frozen=True, eq=False)
class EpochOrder:
    """The batches of one shard, epoch by epoch. The arguments are `Loader`'s."""

    clips: Ints
    """(n, F) the images of each item, as positions in the source: F frames of a clip, or a single image."""
    groups: Ints
    """(n,) items of different groups are never in one batch."""
    factors: Floats | None
    """(n,) how often each item comes in an epoch, on average; None is once."""
    stretches: Ints | None
    """(n,) the part of a video to which each clip belongs: training takes those of one near each other."""
    rounds: Bools | None
    """(R, n) the items that training takes in an epoch: those of row `epoch` % R; None is all."""
    batch_size: int
    shard: tuple[int, int]
    """(rank, world size)."""
    seed: int
    train: bool
    last_batch: LastBatch = "fill"
    """For training, what becomes of the items that do not make a full batch."""
    smallest_batch: int = 1
    """Items that a partial batch has at least: 2 for ops that combine images."""
    accumulate: int = 1
    """For training, the number of steps of an epoch is a multiple of it."""
    at_least: int = 1
    """For training, the steps that an epoch has at least."""

    @property
    def items(self) -> int:
        """Return the number of items of the source."""
        return len(self.clips)

    @property
    def frames(self) -> int:
        """Return the number of images of an item."""
        return int(self.clips.shape[1])

    @property
    def unit(self) -> str:
        """Return what the items are called."""
        return "images" if self.frames == 1 else "clips"

    @property
    def global_batch(self) -> int:
        """Return the number of items of a step, on all shards."""
        return self.batch_size * self.shard[1]

    def steps(self, epoch: int) -> list[Ints]:
        """Return the indices of the items of each step, on all shards: the same for any world size."""
        if self.train:
            least = min(self.smallest_batch, self.batch_size) * self.shard[1]
            return training_steps(
                self.factors,
                self.groups,
                self.global_batch,
                self.seed,
                epoch,
                self.last_batch,
                least,
                self.stretches,
                self.rounds,
                self.accumulate,
                self.at_least,
            )
        every = np.arange(self.items)
        return [every[start : start + self.global_batch] for start in range(0, self.items, self.global_batch)]

    def part(self, items: int) -> slice:
        """Return the part of a step of this many items that this shard has: shards differ by one item at most."""
        rank, world = self.shard
        share, rest = divmod(items, world)
        start = rank * share + min(rank, rest)
        return slice(start, start + share + (rank < rest))

    def batches(self, epoch: int) -> list[Ints]:
        """Return the indices of the images of each batch of an epoch, on this shard; none is empty."""
        return [self.images_of(batch) for batch in self._own(self.steps(epoch))]

    def images_of(self, items: Ints) -> Ints:
        """Return (N * F,) the images of items."""
        return self.clips[items].reshape(-1)

    def with_stand_ins(self, epoch: int, skipped: Bools) -> EpochBatches:
        """Return the batches with each item that has a skipped image replaced by another one of the epoch.

        `skipped`: for each image of the source. Training takes an item from a later step, of any shard; evaluation,
        where it is not yielded, one of this shard.
        """
        steps, skipped = self.steps(epoch), self._broken(skipped)
        batches = self._own(steps)
        first_slots = [self.part(len(items)).start for items in steps]
        wanted = [np.ones(len(batch), bool) if self.train else ~skipped[batch] for batch in batches]
        if skipped.any() and self.train:
            batches = self._own(replace_skipped(skipped, steps, self.groups, self.global_batch))
        elif skipped.any() and batches:
            batches = replace_skipped(skipped, batches, self.groups, 1)
        images = [self.images_of(batch) for batch in batches]
        return EpochBatches(epoch, images, [np.repeat(kept, self.frames) for kept in wanted], first_slots)

    def upcoming(self, epoch: int, step: int, skipped: Bools) -> Iterator[Upcoming]:
        """Yield the images that the processes of this machine will read from a step on, for each epoch."""
        ranks = ranks_of_machine(self.shard)
        for upcoming_epoch in count(epoch) if self.train else (epoch,):
            yield self._read_by(ranks, upcoming_epoch, step if upcoming_epoch == epoch else 0, skipped)

    def _read_by(self, ranks: range, epoch: int, first_step: int, skipped: Bools) -> Upcoming:
        steps, skipped = self.steps(epoch), self._broken(skipped)
        if self.train and skipped.any():
            steps = replace_skipped(skipped, steps, self.groups, self.global_batch)
        first, last = (replace(self, shard=(rank, self.shard[1])) for rank in (ranks[0], ranks[-1]))
        indices, mine = [np.arange(0)], [np.zeros(0, bool)]
        for items in steps[first_step:]:
            slots, own = np.arange(first.part(len(items)).start, last.part(len(items)).stop), self.part(len(items))
            indices.append(items[slots])
            mine.append((slots >= own.start) & (slots < own.stop))
        return Upcoming(self.images_of(np.concatenate(indices)), np.repeat(np.concatenate(mine), self.frames))

    def images_of_shard(self) -> Ints:
        """Return the indices of the images that this shard can get."""
        every = [self.clips.reshape(-1)] if self.train else self.batches(0)
        return np.unique(np.concatenate([*every, np.arange(0)]))

    def _broken(self, skipped: Bools) -> Bools:
        """Return (n,): whether an item has an image that is `skipped`."""
        return np.asarray(skipped[self.clips].any(1))

    def _own(self, steps: list[Ints]) -> list[Ints]:
        return [batch for items in steps if len(batch := items[self.part(len(items))])]


def training_steps(
    factors: Floats | None,
    groups: Ints,
    global_batch: int,
    seed: int,
    epoch: int,
    last_batch: LastBatch = "fill",
    least: int = 1,
    stretches: Ints | None = None,
    rounds: Bools | None = None,
    accumulate: int = 1,
    at_least: int = 1,
) -> list[Ints]:
    """Return shuffled steps of `global_batch` images, as many in every epoch.

    `factors` (n,): how often each image comes, on average; None is once. `groups` (n,): images of different groups are
    never in one step. `last_batch`: "fill" it with images from the start of the epoch, or of the group; yield it
    "partial", with at least `least` images; or "drop" it. `stretches`: see `_by_stretches`. `rounds` (R, n): the images
    of an epoch, in row `epoch` % R; an epoch with fewer than the others repeats some. `accumulate`: the number of steps
    is a multiple of it; "drop" rounds down to it, "fill" up. `at_least`: with "fill", the steps before that rounding.
    """
    # 0 for the order: what ops draw begins with 1, see `PositionDraws`
    rng = np.random.default_rng([0, seed, epoch])
    kinds = [_rows_of_rounds(np.flatnonzero(groups == kind), rounds) for kind in np.unique(groups)]
    lengths = np.array([max(_length(rows, factors) for rows in of_rounds) for of_rounds in kinds])
    further = _further_steps(lengths, global_batch, accumulate, at_least) if last_batch == "fill" else 0 * lengths
    steps: list[Ints] = []
    for of_rounds, images, more in zip(kinds, lengths.tolist(), further.tolist(), strict=True):
        rows = of_rounds[epoch % len(of_rounds)]
        order = _one_pass(rows, factors, stretches, global_batch, rng)
        if more:
            images = (-(-images // global_batch) + more) * global_batch
            while len(order) < images:
                again = _one_pass(rows, factors, stretches, global_batch, rng)
                # what the last, unfinished step has already comes late in the next pass
                late = np.isin(again, order[len(order) - len(order) % global_batch :])
                order = np.concatenate([order, again[~late], again[late]])
        steps += _deal(order, images, global_batch, last_batch, least)
    steps = steps if len(kinds) == 1 else [steps[index] for index in rng.permutation(len(steps))]
    return steps[: len(steps) - len(steps) % accumulate]


def _rows_of_rounds(rows: Ints, rounds: Bools | None) -> list[Ints]:
    """Return the items of a group that each round takes."""
    if rounds is None:
        return [rows]
    # A round that takes no image of this group takes all of them, so that each epoch has as many steps.
    return [own if len(own := rows[taken[rows]]) else rows for taken in rounds]


def _further_steps(images: Ints, global_batch: int, accumulate: int, at_least: int) -> Ints:
    """Return how many steps each group of this many images has beyond those that show them once.

    All steps are then at least `at_least`, rounded up to a multiple of `accumulate`. A group gets as many as it has
    images, so that an image of a small group does not come more often than others.
    """
    once = int((-(-images // global_batch)).sum())
    missing = -(-max(once, at_least) // accumulate) * accumulate - once
    further: Ints = missing * images // max(1, images.sum())
    further[np.argmax(images)] += missing - further.sum()
    return further


def _one_pass(
    rows: Ints, factors: Floats | None, stretches: Ints | None, global_batch: int, rng: np.random.Generator
) -> Ints:
    """Return the items `rows` in the order of an epoch, each about `factors` times."""
    order = _shuffled(rows, factors, rng)
    return order if stretches is None else _by_stretches(order, stretches[order], global_batch, rng)


def _by_stretches(order: Ints, stretches: Ints, global_batch: int, rng: np.random.Generator) -> Ints:
    """Return items in an order in which those of one of the `stretches`, (n,), come near each other.

    Each `LANE` slots of a step take turns through stretches of their own, `OPEN` at a time: so a shard needs few of
    them, and another one needs others.
    """
    names, number = np.unique(stretches, return_inverse=True)
    turn = rng.permutation(len(names))[number]
    lanes = global_batch // LANE if global_batch % LANE == 0 else 1
    lane, turn = turn % lanes, turn // lanes
    sorted_ = order[np.lexsort((turn + OPEN * rng.random(len(order)), lane))]
    steps = len(order) // global_batch
    dealt = sorted_[: steps * global_batch].reshape(lanes, steps, global_batch // lanes).swapaxes(0, 1)
    return np.concatenate([dealt.reshape(-1), sorted_[steps * global_batch :]])


def _deal(order: Ints, images: int, global_batch: int, last_batch: LastBatch, least: int) -> list[Ints]:
    """Return the steps of the first `images` of the order, which may be repeated."""
    full = -(-images // global_batch) if last_batch == "fill" else images // global_batch
    steps = list(np.resize(order, (full, global_batch)))
    rest = images - full * global_batch
    if last_batch == "partial" and rest > 0:
        steps.append(np.resize(order, full * global_batch + max(rest, least))[full * global_batch :])
    return steps


def _shuffled(indices: Ints, factors: Floats | None, rng: np.random.Generator) -> Ints:
    """Shuffle `indices`, each repeated about `factors` times.

    A factor is rounded up or down at random, so that its mean is right; the total varies by at most one.
    """
    shuffled = rng.permutation(indices)
    if factors is None:
        return shuffled
    total = np.cumsum(factors[shuffled])
    times = np.diff(np.floor(total + rng.random()), prepend=0).astype(np.int64)
    # an epoch has at least one image
    if not times.any():
        times[np.argmax(factors[shuffled])] = 1
    return rng.permutation(np.repeat(shuffled, times))


def _length(indices: Ints, factors: Floats | None) -> int:
    """Return the largest number of images of an epoch of `indices`."""
    return len(indices) if factors is None else int(np.ceil(factors[indices].sum() - 1e-6))


def replace_skipped(skipped: Bools, batches: list[Ints], groups: Ints, hop: int) -> list[Ints]:
    """Return the same batches with each skipped image replaced by a good one of the same epoch and group, if any is.

    `skipped` and `groups`: (n,). The stand-in is the next good image, starting `hop` positions later, so it depends
    on which images are broken and not on when that is found.
    """
    order = np.concatenate(batches)
    bad, result = skipped[order], order.copy()
    for kind in np.unique(groups[order[bad]]):
        positions = np.flatnonzero(bad & (groups[order] == kind))
        good = np.flatnonzero(~bad & (groups[order] == kind))
        good = good if len(good) else np.flatnonzero(~bad)
        if len(good):
            result[positions] = order[good[np.searchsorted(good, positions + hop) % len(good)]]
    return np.split(result, np.cumsum([len(batch) for batch in batches])[:-1])
