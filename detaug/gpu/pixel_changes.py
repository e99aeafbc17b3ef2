"""Changes of colors, and filters of 3 x 3 pixels: kinds that one kernel knows, each with its numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from detaug.arrays import Arrays, Floats, Ints

KINDS = NOTHING, LINEAR, FILTER, POSTERIZE, SOLARIZE, AUTOCONTRAST, EQUALIZE, GAMMA = range(8)
"""Kinds of changes."""

NUMBERS = 12
"""Numbers of a change: a linear map (3, 4), a filter (3, 3), a mask of the bits that stay, a threshold, or a power."""

Changes: TypeAlias = tuple[Ints, Floats]
"""(N, S), the kind of each step of each image, and (N, S, NUMBERS)."""


@dataclass(frozen=True)
class OneChange:
    """Returns the changes of an op that does one thing to the images that drew it."""

    kind: int
    numbers: str | ArrayLike = 0.0
    """The numbers of all images, (K,), or the name of the input that has those of each image, (N, ...)."""

    def __call__(self, inputs: Arrays) -> Changes:
        kinds = np.where(inputs["apply"], self.kind, NOTHING)[:, None]
        of_images = inputs[self.numbers] if isinstance(self.numbers, str) else np.tile(self.numbers, (len(kinds), 1))
        values = of_images.reshape(len(kinds), -1)
        numbers = np.zeros((*kinds.shape, NUMBERS))
        numbers[:, 0, : values.shape[-1]] = values
        return kinds, numbers
