"""Which images an epoch's batches hold: a function of the seed and the epoch, and of nothing else."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def train_batches(n: int, batch_size: int, shard: tuple[int, int], seed: int, epoch: int) -> list[NDArray[np.int64]]:
    """Shuffled full batches of this shard. Every image is there at least once over all shards.

    All shards have the same number of batches; the last ones are filled up from the start of the epoch.
    """
    rank, world = shard
    order = np.random.default_rng([0, seed, epoch]).permutation(n)
    steps = -(-n // (batch_size * world))
    return list(np.resize(order, (steps, world, batch_size))[:, rank])


def evaluation_batches(n: int, batch_size: int, shard: tuple[int, int]) -> list[NDArray[np.int64]]:
    """This shard's images in the json's order, each image in exactly one batch of one shard; none is empty."""
    rank, world = shard
    rows = np.arange(rank, n, world)
    return [rows[at : at + batch_size] for at in range(0, len(rows), batch_size)]


def plan_rng(seed: int, epoch: int, first: int, rank: int) -> np.random.Generator:
    """The generator for the batches that are planned together, from step `first` on; not the shuffle's."""
    return np.random.default_rng([1, seed, epoch, first, rank])
