"""Tell rows of boxes with keypoints, whose data.yaml has no kpt_shape, from polygons."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

_FEWEST = 3
"""Rows that it takes: a single polygon may look like anything."""
_SPREAD = 0.3
"""Of a side of the box, that keypoints span at least. Of polygons, whose second point is taken for the sides of a box,
points lie closer together."""


@dataclass
class PoseSigns:
    """Whether all polygons of a dataset may be boxes with keypoints, of 2 or of 3 numbers each."""

    rows: int = 0
    numbers: int = 0
    """Of each row, without the class."""
    pairs: bool = True
    triples: bool = True

    def add(self, keys: Mapping[str, Any], size: tuple[int, int]) -> None:
        """Add the row of an object, by the keys of its annotation, of an image of size (H, W)."""
        if (self.pairs or self.triples) and "segmentation" in keys and "corners" not in keys:
            self._add(np.array(keys["segmentation"][0]).reshape(-1, 2) / size[::-1])

    def _add(self, points: np.ndarray) -> None:
        same = not self.rows or points.size == self.numbers
        self.rows, self.numbers = self.rows + 1, points.size
        middle, sides, rest = points[0], points[1], points[2:]
        low, high = middle - sides / 2 - 1e-3, middle + sides / 2 + 1e-3
        inside = bool(len(rest)) and bool(((rest >= low) & (rest <= high)).all())
        spread = rest.max(0, initial=0) - rest.min(0, initial=1)
        self.pairs &= same and inside and bool((spread >= _SPREAD * sides).all())
        threes = rest.reshape(-1, 3) if rest.size and rest.size % 3 == 0 else None
        self.triples &= same and threes is not None and set(threes[:, 2].tolist()) <= {0, 1}

    def fault(self) -> str:
        """Return what is wrong, and a remedy; "" where rows may be polygons."""
        per_point = 3 if self.triples else 2
        if self.rows < _FEWEST or not (self.pairs or self.triples):
            return ""
        shape = f"[{(self.numbers - 4) // per_point}, {per_point}]"
        return (
            f"all {self.rows:,} rows that are not boxes have {self.numbers + 1} numbers and look like boxes with "
            f"keypoints; write kpt_shape: {shape} into the data.yaml, or give convert-yolo --task segment for polygons"
        )


def fault_of_outlines(objects: Iterable[tuple[tuple[int, int], Mapping[str, Any]]]) -> str:
    """Return that all polygons are boxes with keypoints, and a remedy; "" where they may be polygons.

    objects: size (H, W) of the image and keys of the annotation of each.
    """
    signs = PoseSigns()
    for size, keys in objects:
        signs.add(keys, size)
    return signs.fault()
