"""Keypoints: named points of objects, such as the joints of a person, and the rule by which a mirror swaps them.

Points are in continuous source pixels: pixel i covers i to i + 1, so the center of the first one is 0.5. COCO's
keypoints count pixels instead, from 0: `CocoReader` adds 0.5 to them, as Detectron2 does (decision 22).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from detaug.arrays import Floats, Ints
from detaug.coco.key_points import side_of, swaps_of_names
from detaug.errors import InputError
from detaug.findings.finding import shown


@dataclass(frozen=True, eq=False)
class KeyPoints:
    """K keypoints of each of A annotations.

    >>> points = [[[40, 30, 2], [60, 30, 2], [50, 50, 1]]]  # x, y in pixels of the image, visibility
    >>> faces = da.KeyPoints(points, [["left_eye", "right_eye", "mouth"]])
    >>> print(faces.swapped)
    [[1 0 2]]
    """

    points: Floats
    """(A, K, 3): x, y in continuous pixels of the image, v: 0 not labeled, 1 labeled but hidden, 2 visible."""
    names: Sequence[Sequence[str]] = ()
    """The names of the points of each class, or one list for all classes."""
    skeletons: Sequence[Sequence[tuple[int, int]]] = ()
    """Pairs of points, from 0, which images connect, of each class, or one list for all."""
    swapped: Ints = field(default_factory=lambda: np.zeros((0, 0), np.int64))
    """(C, K), or (1, K) for all classes: the position that each point has after a mirror; by default from `names`."""
    flips_unknown: str = ""
    """Why it is not known which points swap in a flipped image, and the remedy; "" where `swapped` is right."""

    def __post_init__(self) -> None:
        points = np.asarray(self.points, np.float64)
        if points.ndim != 3 or points.shape[2] != 3:
            raise InputError(f"keypoints must be (A, K, 3): x, y, visibility; got shape {points.shape}")
        if not np.isfinite(points).all() or not np.isin(points[..., 2], (0, 1, 2)).all():
            raise InputError("keypoints must be finite numbers, and their visibility 0, 1 or 2")
        count = points.shape[1]
        object.__setattr__(self, "points", points)
        swapped = np.asarray(self.swapped, np.int64)
        if not swapped.size:
            swapped = self._swaps_of_names()
        if not (np.sort(swapped, axis=1) == np.arange(count)).all():
            raise InputError(f"swapped must have each of 0..{count - 1} once in each row, got {swapped.tolist()}")
        object.__setattr__(self, "swapped", swapped)

    def _swaps_of_names(self) -> Ints:
        """Return `swapped` by the names; where these do not tell, keep the reason for `check_flips`."""
        count, named = self.points.shape[1], any(map(len, self.names))  # a class without names then has no points
        try:
            swaps = [np.arange(count) if named and not names else swaps_of_names(names, count) for names in self.names]
            return np.array(swaps or [swaps_of_names((), count)])
        except InputError as error:
            remedy = "which of them swap when an image is flipped? Give swapped, such as"
            text = f"{error}: {remedy} {shown([[*range(count)]])} if none do"
            object.__setattr__(self, "flips_unknown", text)
            return np.arange(count)[None]

    def check_flips(self) -> None:
        """Raise InputError if it is not known which points swap in a flipped image."""
        if self.flips_unknown:
            raise InputError(self.flips_unknown)

    @property
    def count(self) -> int:
        """Return K."""
        return int(self.points.shape[1])

    def of_class(self, index: int, count: int) -> tuple[list[str], list[tuple[int, int]], Ints]:
        """Return the names, the skeleton and (count,) the places after a mirror of a class, 0..C - 1."""
        names = self.names[index if len(self.names) > 1 else 0] if self.names else []
        skeleton = self.skeletons[index if len(self.skeletons) > 1 else 0] if self.skeletons else []
        swapped = self.swapped[index if len(self.swapped) > 1 else 0]
        return list(names), list(skeleton), np.concatenate([swapped, np.arange(self.count, count)])

    def sides_of_class(self, index: int) -> list[Literal["left", "right", ""]]:
        """Return the side of each of K points of a class, 0..C - 1, from its name; "" for those without one."""
        names = self.of_class(index, self.count)[0]
        return [side_of(name) for name in [*names, *[""] * (self.count - len(names))]]
