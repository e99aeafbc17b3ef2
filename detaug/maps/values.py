"""The values of one map in memory: numbers of classes as runs of equal pixels, depths as they are."""

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


@dataclass(frozen=True, eq=False)
class MapValues:
    """A map of one image: (H, W) values, and where in them the pixels of the image are.

    Maps of classes have few runs in a row, so they are kept as runs: 8 to 23 KB instead of 200 to 300.
    """

    values: NDArray[Any]
    """(R,): that of each run; of a depth map (H * W,), of each pixel."""
    lengths: NDArray[np.int32] | None
    """(R,): how many pixels each run has, row by row; None: one each."""
    shape: tuple[int, int]
    """H and W."""
    scale: tuple[float, float]
    """Pixels of the map for a pixel of the image: x, y."""
    offset: tuple[float, float] = (0.0, 0.0)
    """Where the image's first pixel begins in the map: x, y."""
    segments: Segments | None = None
    """What the values of a panoptic map are."""

    @classmethod
    def of(
        cls, values: NDArray[Any], image_size: Ints, *, in_runs: bool, segments: Segments | None = None
    ) -> MapValues:
        """Return a map (H, W) of an image of `image_size` (height, width)."""
        (height, width), flat = values.shape, values.ravel()
        scale = width / float(image_size[1]), height / float(image_size[0])
        if not in_runs:
            return cls(flat, None, (height, width), scale)
        first = np.flatnonzero(np.append(True, flat[1:] != flat[:-1]))
        lengths = np.diff(np.append(first, len(flat))).astype(np.int32)
        return cls(flat[first], lengths, (height, width), scale, segments=segments)

    def of_part(self, window: Floats, size: Ints) -> MapValues:
        """Return the map of a part of the image, `window` XYWH in its pixels, that is shown at `size` (height, width).

        It has the same values in memory.
        """
        x, y, width, height = (float(number) for number in window)
        (across, down), (left, top) = self.scale, self.offset
        scale = across * width / float(size[1]), down * height / float(size[0])
        return replace(self, scale=scale, offset=(left + x * across, top + y * down))

    @property
    def nbytes(self) -> int:
        """Return the bytes of memory that it takes."""
        return self.values.nbytes + (0 if self.lengths is None else self.lengths.nbytes)

    def pixels(self) -> NDArray[Any]:
        """Return (H * W,) the value of each pixel."""
        return self.values if self.lengths is None else np.repeat(self.values, self.lengths)


def no_map(dtype: Any) -> MapValues:
    """Return what stands for the map of an image that has none."""
    return MapValues(np.zeros(0, dtype), None, (0, 0), (1.0, 1.0))
