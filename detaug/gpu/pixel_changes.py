"""What ops that change colours, or filter 3 x 3 pixels, do to each image: a kind of change, and its numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

from detaug.arrays import Floats, Ints
from detaug.ops.auto_augment import CHANGES, ColorSteps
from detaug.ops.camera import RandomGamma
from detaug.ops.filters import (
    RandomAdjustSharpness,
    RandomAutocontrast,
    RandomEqualize,
    RandomInvert,
    RandomPosterize,
    RandomSolarize,
)
from detaug.ops.op import Arrays, Op

KINDS = NOTHING, LINEAR, FILTER, POSTERIZE, SOLARIZE, AUTOCONTRAST, EQUALIZE, GAMMA = range(8)
"""Kinds of changes, those between NOTHING and GAMMA in the order of `auto_augment.CHANGES`."""

NUMBERS = 12
"""Numbers of a change: a linear map (3, 4), a filter (3, 3), a mask of the bits that stay, a threshold, or a power."""

Changes: TypeAlias = tuple[Ints, Floats]
"""(N, S), the kind of each step of each image, and (N, S, NUMBERS)."""


def _of_color_steps(op: Op, inputs: Arrays) -> Changes:
    """Return the changes of RandAugment and TrivialAugmentWide. `inputs`: what the op planned."""
    applied = inputs["apply"] != 0
    kinds = np.where(applied.any(2), applied.argmax(2) + 1, NOTHING)
    numbers = np.zeros((*kinds.shape, NUMBERS))
    for kind, change in enumerate(CHANGES, start=1):
        if change.input:
            given = inputs[change.input].reshape(*kinds.shape, -1)
            numbers[..., : given.shape[-1]] += given * (kinds == kind)[..., None]
    return kinds, numbers


def _of_one(kind: int, numbers_of: Callable[[Any, Arrays], Any] = lambda op, inputs: 0.0) -> Callable[..., Changes]:
    """Return a function that returns the changes of an op of one kind. `numbers_of`: (N, K), or those of all images."""

    def changes(op: Op, inputs: Arrays) -> Changes:
        kinds = np.where(inputs["apply"], kind, NOTHING)[:, None]
        given = np.atleast_1d(numbers_of(op, inputs))
        numbers = np.zeros((*kinds.shape, NUMBERS))
        numbers[:, 0, : given.shape[-1]] = given
        return kinds, numbers

    return changes


_INVERT = np.column_stack([-np.eye(3), np.full(3, 255)]).ravel()

CHANGES_OF: dict[type[Op], Callable[[Any, Arrays], Changes]] = {
    ColorSteps: _of_color_steps,
    RandomAdjustSharpness: _of_one(FILTER, lambda op, inputs: inputs["kernel"].reshape(-1, 9)),
    RandomAutocontrast: _of_one(AUTOCONTRAST),
    RandomEqualize: _of_one(EQUALIZE),
    RandomGamma: _of_one(GAMMA, lambda op, inputs: inputs["gamma"][:, None]),
    RandomInvert: _of_one(LINEAR, lambda op, inputs: _INVERT),
    RandomPosterize: _of_one(POSTERIZE, lambda op, inputs: 256 - (1 << (8 - op.bits))),
    RandomSolarize: _of_one(SOLARIZE, lambda op, inputs: op.threshold),
}
"""For each class of ops, a function of the op and its planned inputs that returns its changes."""
