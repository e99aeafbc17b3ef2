"""The values of one map in memory: classes and segments as runs of equal pixels, depths as they are."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Floats, Ints
from detaug.maps.segments import Segments


def is_scaled(size: tuple[int, int], image: tuple[int, int]) -> bool:
    """Return whether a map is an image, smaller or larger: either side is that of the other one's scale, rounded.

    Both: height and width.
    """
    return min(size) > 0 and abs(size[0] * image[1] - size[1] * image[0]) <= max(image)


LONGEST = (1 << 16) - 1
"""Pixels of a run, whose length has 16 bits: a longer one is cut."""


@dataclass(frozen=True, eq=False)
class Runs:
    """The pixels of a map: classes and segments as runs of equal pixels, depths as they are.

    Maps of classes have few runs in a row: a map of COCO's takes 8 to 23 KB instead of 200 to 300.
    """

    values: NDArray[Any]
    """(R,): that of each run; of a depth map (H * W,), of each pixel."""
    lengths: NDArray[np.uint16] | None
    """(R,): how many pixels each run has, row by row; None: one each."""
    shape: tuple[int, int]
    """H and W."""

    @classmethod
    def of(cls, pixels: NDArray[Any]) -> Runs:
        """Return the runs of pixels (H, W)."""
        (height, width), flat = pixels.shape, pixels.ravel()
        first = np.flatnonzero(np.append(True, flat[1:] != flat[:-1]))
        lengths = np.diff(np.append(first, len(flat)))
        parts = -(-lengths // LONGEST)
        cut = np.full(parts.sum(), LONGEST)
        cut[np.cumsum(parts) - 1] = lengths - (parts - 1) * LONGEST
        return cls(np.repeat(flat[first], parts), cut.astype(np.uint16), (height, width))

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory that they take."""
        return self.values.nbytes + (0 if self.lengths is None else self.lengths.nbytes)

    def pixels(self) -> NDArray[Any]:
        """Return (H * W,) the value of each pixel."""
        return self.values if self.lengths is None else np.repeat(self.values, self.lengths)


@dataclass(frozen=True, eq=False)
class MapValues:
    """A map of one image: its values, and where in them the pixels of the image are."""

    runs: Runs
    scale: tuple[float, float]
    """Pixels of the map for a pixel of the image: x, y."""
    offset: tuple[float, float] = (0.0, 0.0)
    """Where the image's first pixel begins in the map: x, y."""
    segments: Segments | None = None
    """What the values of a panoptic map are."""

    @classmethod
    def of(cls, runs: Runs, image_size: Ints, segments: Segments | None = None) -> MapValues:
        """Return the map of a whole image of `image_size` (height, width)."""
        height, width = runs.shape
        return cls(runs, (width / float(image_size[1]), height / float(image_size[0])), segments=segments)

    def of_part(self, window: Floats, size: Ints) -> MapValues:
        """Return the map of a part of the image, `window` XYWH in its pixels, that is shown at `size` (height, width).

        It has the same values in memory.
        """
        x, y, width, height = (float(number) for number in window)
        (across, down), (left, top) = self.scale, self.offset
        scale = across * width / float(size[1]), down * height / float(size[0])
        return replace(self, scale=scale, offset=(left + x * across, top + y * down))

    @property
    def shape(self) -> tuple[int, int]:
        """Return the height and width of the map."""
        return self.runs.shape

    def pixels(self) -> NDArray[Any]:
        """Return (H * W,) the value of each pixel."""
        return self.runs.pixels()


def no_map(dtype: Any) -> MapValues:
    """Return what stands for the map of an image that has none."""
    return MapValues(Runs(np.zeros(0, dtype), None, (0, 0)), (1.0, 1.0))
