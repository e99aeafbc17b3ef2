"""The order of an epoch: which images each batch holds, from the seed and the epoch alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from detaug.boxes.views import Bools, Floats, Ints

LastBatch: TypeAlias = Literal["fill", "partial", "drop"]


@dataclass(frozen=True, eq=False)
class EpochOrder:
    """The batches of one shard, epoch by epoch. The arguments are `Loader`'s."""

    batch_size: int
    shard: tuple[int, int]
    """(rank, world size)."""
    seed: int
    train: bool
    groups: Ints
    """(n,) images of different groups are never in one batch."""
    factors: Floats | None = None
    """(n,) how often each image comes in an epoch, on average; None is once."""
    last_batch: LastBatch = "fill"
    """For training, what becomes of the images that do not make a full batch."""
    smallest_batch: int = 1
    """Images that a partial batch has at least: 2 for ops that combine images."""

    @property
    def images(self) -> int:
        """Return the number of images of the source."""
        return len(self.groups)

    def batches(self, epoch: int) -> list[Ints]:
        """Return the indices of the images of each batch of an epoch."""
        if self.train:
            return training_batches(
                self.factors,
                self.groups,
                self.batch_size,
                self.shard,
                self.seed,
                epoch,
                last_batch=self.last_batch,
                smallest_batch=self.smallest_batch,
            )
        return evaluation_batches(self.images, self.batch_size, self.shard)

    def images_of_shard(self) -> Ints:
        """Return the indices of the images that this shard can get."""
        return np.arange(self.images) if self.train else np.concatenate([*self.batches(0), np.arange(0)])

    def with_stand_ins(self, batches: list[Ints], skipped: Bools) -> list[Ints]:
        """Return the same batches with each `skipped` (n,) image replaced by another image of the epoch."""
        return replace_skipped(skipped, batches, self.groups, self.batch_size if self.train else 1)


def training_batches(
    factors: Floats | None,
    groups: Ints,
    batch_size: int,
    shard: tuple[int, int],
    seed: int,
    epoch: int,
    *,
    last_batch: LastBatch = "fill",
    smallest_batch: int = 1,
) -> list[Ints]:
    """Return shuffled batches of this shard; all shards have equally many.

    `factors` (n,): how often each image comes, on average; None is once. `groups` (n,): images of different groups are
    never in one batch. `last_batch`: "fill" it with images from the start of the epoch, or of the group; yield it
    "partial", with at least `smallest_batch` images on each shard; or "drop" it.
    """
    rank, world = shard
    rng = np.random.default_rng([0, seed, epoch])
    kinds = np.unique(groups)
    if len(kinds) == 1:
        order, images = _shuffled(np.arange(len(groups)), factors, rng)
        return _deal(order, images, batch_size, world, last_batch, smallest_batch)[rank]
    parts: list[Ints] = []
    for kind in kinds:
        order, images = _shuffled(np.flatnonzero(groups == kind), factors, rng)
        parts += _deal(order, images, batch_size, 1, last_batch, smallest_batch)[0]
    shuffled = [parts[at] for at in rng.permutation(len(parts))]
    steps = len(parts) // world if last_batch == "drop" else -(-len(parts) // world)
    return [shuffled[at % len(parts)] for at in range(rank, steps * world, world)]


def _deal(
    order: Ints, images: int, batch_size: int, world: int, last_batch: LastBatch, smallest_batch: int
) -> list[list[Ints]]:
    """Return the batches of each of `world` shards, of the first `images` of the order, which may be repeated."""
    step = batch_size * world
    full = -(-images // step) if last_batch == "fill" else images // step
    dealt = np.resize(order, (full, world, batch_size))
    batches = [list(dealt[:, rank]) for rank in range(world)]
    rest = images - full * step
    if last_batch == "partial" and rest > 0:
        least = min(smallest_batch, batch_size) * world
        indices = np.resize(order, full * step + max(rest, least))[full * step :]
        for shard, part in zip(batches, np.array_split(indices, world), strict=True):
            shard.append(part)
    return batches


def _shuffled(indices: Ints, factors: Floats | None, rng: np.random.Generator) -> tuple[Ints, int]:
    """Shuffle `indices`, each repeated about `factors` times; and return the largest length in any epoch.

    A factor is rounded up or down at random, so that its mean is right; the total varies by at most one.
    """
    shuffled = rng.permutation(indices)
    if factors is None:
        return shuffled, len(indices)
    total = np.cumsum(factors[shuffled])
    times = np.diff(np.floor(total + rng.random()), prepend=0).astype(np.int64)
    if not times.any():
        times[np.argmax(factors[shuffled])] = 1
    return rng.permutation(np.repeat(shuffled, times)), int(np.ceil(factors[indices].sum() - 1e-6))


def evaluation_batches(n: int, batch_size: int, shard: tuple[int, int]) -> list[Ints]:
    """Return this shard's images in the source's order, each image in exactly one batch of one shard; none is empty."""
    rank, world = shard
    indices = np.arange(rank, n, world)
    return [indices[start : start + batch_size] for start in range(0, len(indices), batch_size)]


def replace_skipped(skipped: Bools, batches: list[Ints], groups: Ints, hop: int) -> list[Ints]:
    """Return the same batches with each skipped image replaced by a good one of the same epoch and group.

    `skipped` and `groups`: (n,); at least one image must be good. The stand-in is the next good image, starting `hop`
    positions later, so it depends on which images are broken and not on when that is found.
    """
    order = np.concatenate(batches)
    bad, result = skipped[order], order.copy()
    for kind in np.unique(groups[order[bad]]):
        positions = np.flatnonzero(bad & (groups[order] == kind))
        good = np.flatnonzero(~bad & (groups[order] == kind))
        good = good if len(good) else np.flatnonzero(~bad)
        result[positions] = order[good[np.searchsorted(good, positions + hop) % len(good)]]
    return np.split(result, np.cumsum([len(batch) for batch in batches])[:-1])


def draw_rng(seed: int, epoch: int, first_step: int, rank: int) -> np.random.Generator:
    """Return the generator of the draws for the block of batches that starts at `first_step`; not the shuffle's."""
    return np.random.default_rng([1, seed, epoch, first_step, rank])
