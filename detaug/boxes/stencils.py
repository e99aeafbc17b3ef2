"""Stencils: which pixels of its rectangle a layer shows, where an op pastes the shapes of objects."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools
from detaug.coco.rings import box_of_mask

FAR = 1e9
"""Pixels: farther away than all that is shown."""


@dataclass(frozen=True, eq=False)
class Stencil:
    """Pixels of a rectangle of the output, a bit each.

    >>> from detaug.boxes.stencils import Stencil
    >>> shown = np.zeros((20, 30), bool)
    >>> shown[4:6, 17:19] = True
    >>> stencil = Stencil.of(shown)
    >>> print(stencil.x, stencil.y, stencil.bits.tolist(), stencil.shows(np.array([16, 17]), np.array([4, 4])))
    16 4 [[6], [6]] [False  True]
    """

    x: int
    y: int
    """The output pixel of the first bit."""
    bits: NDArray[np.uint8]
    """(height, bytes): rows of pixels, the first one in the lowest bit."""

    @classmethod
    def of(cls, shown: Bools) -> Stencil:
        """Return the stencil of some pixels of the output (H, W), of which at least one is shown."""
        left, top, right, bottom = box_of_mask(shown)
        x = left // 8 * 8
        return cls(x, top, np.packbits(shown[top:bottom, x:right], axis=1, bitorder="little"))

    def moved(self, x: float, y: float) -> Stencil:
        """Return it moved by whole pixels."""
        return replace(self, x=self.x + round(x), y=self.y + round(y))

    def shows(self, x: NDArray[Any], y: NDArray[Any]) -> Bools:
        """Return whether the pixels at positions of the output are shown: two arrays of one shape."""
        height, width = self.bits.shape[0], 8 * self.bits.shape[1]
        whole = (np.floor(np.nan_to_num(coordinate).clip(-FAR, FAR)).astype(np.int64) for coordinate in (x, y))
        column, row = (position - first for position, first in zip(whole, (self.x, self.y), strict=True))
        inside = (column >= 0) & (column < width) & (row >= 0) & (row < height)
        column, row = column.clip(0, width - 1), row.clip(0, height - 1)
        return np.asarray(inside & (self.bits[row, column // 8] >> (column % 8) & 1 > 0))

    def within(self, other: Stencil | None) -> Stencil:
        """Return the stencil of the pixels that both show."""
        if other is None:
            return self
        height, width = self.bits.shape[0], 8 * self.bits.shape[1]
        y, x = np.mgrid[self.y : self.y + height, self.x : self.x + width]
        return replace(self, bits=self.bits & np.packbits(other.shows(x, y), axis=1, bitorder="little"))


Stencils = NDArray[np.object_]
"""(N, L) of `Stencil`, and None where a layer shows all of its rectangle."""


def no_stencils(shape: tuple[int, ...]) -> Stencils:
    """Return an array of None."""
    return np.full(shape, None, object)


def places_of(stencils: Stencils | None) -> list[tuple[int, int]]:
    """Return the image and the layer of each stencil."""
    if stencils is None:
        return []
    image, layer = np.nonzero(stencils != no_stencils(stencils.shape))
    return list(zip(image.tolist(), layer.tolist(), strict=True))


def joined_bits(stencils: Stencils | None, shape: tuple[int, int]) -> tuple[NDArray[np.float64], NDArray[np.uint8]]:
    """Return (N, L, 4) where the bits of each stencil begin, -1 without one, x, y and bytes per row; and all bits."""
    table, parts = np.full((*shape, 4), -1.0), [np.zeros(0, np.uint8)]
    begin = 0
    for place in places_of(stencils):
        assert stencils is not None
        stencil: Stencil = stencils[place]
        table[place] = begin, stencil.x, stencil.y, stencil.bits.shape[1]
        parts.append(stencil.bits.ravel())
        begin += stencil.bits.size
    return table, np.concatenate(parts)


def packed_rows(shown: Bools, words: int) -> NDArray[np.uint32]:
    """Return pixels (H, W) as rows of `words` words of 32 bits, the first one in the lowest bit."""
    height, width = shown.shape
    padded = np.zeros((height, 32 * words), np.bool_)
    padded[:, :width] = shown
    return np.packbits(padded, axis=1, bitorder="little").view("<u4")
