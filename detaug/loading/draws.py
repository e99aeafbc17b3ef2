"""The random numbers of a position in an epoch: the same for any world size, any planning block, any other images.

A position is a step and a slot, 0 .. global batch - 1. Ops draw for many images at once, so positions are drawn in
blocks of `STEPS` x `SLOTS`, each from a generator of its own. A shard draws all blocks that it needs a part of: no more
than its positions where its batch is a multiple of `SLOTS`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import product
from typing import NamedTuple

import numpy as np

from detaug.arrays import Arrays, Ints
from detaug.boxes.views import Views
from detaug.ops.op import Op, check_drawn, select

SLOTS = 8
STEPS = 128
"""The size of a block; the last ones of an epoch are smaller. Other numbers give other draws, and so another
fingerprint in a state."""


class PositionBlock(NamedTuple):
    """A block of positions of an epoch."""

    epoch: int
    row: int
    """Its steps are from STEPS * row on."""
    column: int
    """Its slots are from SLOTS * column on."""
    size: int
    """The number of its positions."""


@dataclass(eq=False)
class PositionDraws:
    """Draws for positions of one recipe.

    Keeps what the blocks of the last call drew: the next call may need the same blocks.
    """

    seed: int
    global_batch: int
    view: int = 0
    """The number of the view, from 0: each has draws of its own, the first those of a loader without views."""
    _last: dict[int, tuple[list[PositionBlock], Arrays]] = field(default_factory=dict)
    """By step of the recipe: blocks, and what its op drew for them, (positions of all blocks, ...) each."""

    def at(self, epoch: int, epoch_steps: int, steps: Ints, slots: Ints) -> DrawsAt:
        """Return the draws of the positions `steps`, `slots`, (N,) each, of an epoch of this many steps."""
        return DrawsAt(self, epoch, epoch_steps, steps, slots)

    def of_blocks(self, step: int, op: Op, blocks: list[PositionBlock]) -> Arrays:
        """Return what the op of a step of the recipe draws for all positions of the blocks, concatenated."""
        before, arrays = self._last.get(step, ([], {}))
        if before != blocks:
            parts = [self._of_block(step, op, block) for block in blocks]
            arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
            self._last[step] = blocks, arrays
        return arrays

    def _of_block(self, step: int, op: Op, block: PositionBlock) -> Arrays:
        # 1 for what ops draw: the order of an epoch begins with 0, see `training_steps`
        key = [1, self.seed, block.epoch, block.row, block.column, step]
        rng = np.random.default_rng([*key, self.view] if self.view else key)
        return check_drawn(op.draw(rng, block.size), block.size)


@dataclass(frozen=True, eq=False)
class DrawsAt:
    """The draws of N positions; see `Draws`."""

    draws: PositionDraws
    epoch: int
    epoch_steps: int
    steps: Ints
    slots: Ints

    def __call__(self, step: int, op: Op, views: Views) -> Arrays:
        """Return what the op draws for the images of these positions."""
        if type(op).draw is Op.draw:
            return {}
        blocks, rows = self._rows_of_steps if op.one_draw_a_batch else self._rows
        return select(rows, self.draws.of_blocks(step, op, blocks))

    @cached_property
    def _rows(self) -> tuple[list[PositionBlock], Ints]:
        return self._blocks(self.slots)

    @cached_property
    def _rows_of_steps(self) -> tuple[list[PositionBlock], Ints]:
        """The same for slot 0 of each image's step."""
        return self._blocks(np.zeros_like(self.slots))

    def _blocks(self, slots: Ints) -> tuple[list[PositionBlock], Ints]:
        """Return the blocks around the positions, and where each position is among those of the blocks, (N,)."""
        row, column = self.steps // STEPS, slots // SLOTS
        rows, columns = (
            range(int(block_numbers.min()), int(block_numbers.max()) + 1) for block_numbers in (row, column)
        )
        heights = np.minimum(STEPS, self.epoch_steps - STEPS * np.arange(rows.stop))
        widths = np.minimum(SLOTS, self.draws.global_batch - SLOTS * np.arange(columns.stop))
        blocks = [
            PositionBlock(self.epoch, *block, int(heights[block[0]] * widths[block[1]]))
            for block in product(rows, columns)
        ]
        before = (row - rows.start) * STEPS * widths[columns.start :].sum()  # positions in blocks of earlier rows
        before += (column - columns.start) * SLOTS * heights[row]
        return blocks, before + self.steps % STEPS * widths[column] + slots % SLOTS
