"""Which images an epoch's batches hold: a function of the seed and the epoch, and of nothing else."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.int64]


def train_batches(
    factors: NDArray[np.float64] | None,
    groups: Rows,
    batch_size: int,
    shard: tuple[int, int],
    seed: int,
    epoch: int,
) -> list[Rows]:
    """Shuffled full batches of this shard; all shards have equally many, in every epoch.

    `factors`: (n,) how often each image comes, on average; None is once. `groups`: (n,) images of different groups
    are never in one batch. What is filled up comes from the start of the epoch, or of the group.
    """
    rank, world = shard
    rng = np.random.default_rng([0, seed, epoch])
    kinds = np.unique(groups)
    if len(kinds) == 1:
        order, images = _order(np.arange(len(groups)), factors, rng)
        return list(np.resize(order, (-(-images // (batch_size * world)), world, batch_size))[:, rank])
    parts = []
    for kind in kinds:
        order, images = _order(np.flatnonzero(groups == kind), factors, rng)
        parts.append(np.resize(order, (-(-images // batch_size), batch_size)))
    batches = rng.permutation(np.concatenate(parts))
    return list(np.resize(batches, (-(-len(batches) // world), world, batch_size))[:, rank])


def _order(rows: Rows, factors: NDArray[np.float64] | None, rng: np.random.Generator) -> tuple[Rows, int]:
    """`rows` shuffled, each about `factors` times, and how many that makes at most, in any epoch.

    A factor is rounded up or down at random, so that the mean is right, and all of them together to one of two
    neighbouring whole numbers.
    """
    shuffled = rng.permutation(rows)
    if factors is None:
        return shuffled, len(rows)
    total = np.cumsum(factors[shuffled])
    times = np.diff(np.floor(total + rng.random()), prepend=0).astype(np.int64)
    if not times.any():
        times[np.argmax(factors[shuffled])] = 1
    return rng.permutation(np.repeat(shuffled, times)), int(np.ceil(factors[rows].sum() - 1e-6))


def evaluation_batches(n: int, batch_size: int, shard: tuple[int, int]) -> list[Rows]:
    """This shard's images in the json's order, each image in exactly one batch of one shard; none is empty."""
    rank, world = shard
    rows = np.arange(rank, n, world)
    return [rows[at : at + batch_size] for at in range(0, len(rows), batch_size)]


def without(skipped: NDArray[np.bool_], batches: list[Rows], groups: Rows, hop: int) -> list[Rows]:
    """The same batches with another image of the epoch, and of the group, in each place of a `skipped` one.

    `skipped` and `groups`: (n,); one image at least must be good. It is the next good image from `hop`
    places on, so that it depends on which images are broken, not on when that is found.
    """
    order = np.concatenate(batches)
    bad, result = skipped[order], order.copy()
    for kind in np.unique(groups[order[bad]]):
        places = np.flatnonzero(bad & (groups[order] == kind))
        good = np.flatnonzero(~bad & (groups[order] == kind))
        good = good if len(good) else np.flatnonzero(~bad)
        result[places] = order[good[np.searchsorted(good, places + hop) % len(good)]]
    return np.split(result, np.cumsum([len(batch) for batch in batches])[:-1])


def plan_rng(seed: int, epoch: int, first: int, rank: int) -> np.random.Generator:
    """The generator for the batches that are planned together, from step `first` on; not the shuffle's."""
    return np.random.default_rng([1, seed, epoch, first, rank])
