"""Colour as one linear map: (N, 3, 4) matrices on RGB in 0..255, the last column added.

Brightness, contrast, saturation, hue and the order of the channels are linear in RGB, so any chain of them is
one matrix a sample, drawn with NumPy and applied in one pass over the pixels.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray

Matrix = NDArray[np.float64]

GRAY = np.array([0.299, 0.587, 0.114])  # luma, ITU-R BT.601, as Pillow and torchvision weigh it
RGB_TO_YIQ = np.array([GRAY, [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])  # NTSC
IDENTITY = np.eye(3, 4)
MIDDLE = 128.0  # contrast turns about this gray, as DALI's contrast_center does


def brightness(factor: Matrix) -> Matrix:
    """RGB * factor. `factor`: (N,)."""
    return _affine(np.eye(3) * factor[:, None, None])


def contrast(factor: Matrix) -> Matrix:
    """(RGB - 128) * factor + 128. `factor`: (N,)."""
    return _affine(np.eye(3) * factor[:, None, None], MIDDLE * (1 - factor))


def saturation(factor: Matrix) -> Matrix:
    """gray + (RGB - gray) * factor, torchvision's `adjust_saturation`. `factor`: (N,)."""
    factor = factor[:, None, None]
    return _affine(np.eye(3) * factor + np.tile(GRAY, (3, 1)) * (1 - factor))


def hue(turn: Matrix) -> Matrix:
    """Turn the hue from red towards green, the luma stays: I and Q rotated. `turn`: (N,), 1 is the whole circle."""
    cos, sin = np.cos(2 * np.pi * turn), -np.sin(2 * np.pi * turn)
    rotation = np.tile(np.eye(3), (len(turn), 1, 1))
    rotation[:, 1, 1], rotation[:, 1, 2], rotation[:, 2, 1], rotation[:, 2, 2] = cos, -sin, sin, cos
    return _affine(np.linalg.inv(RGB_TO_YIQ) @ rotation @ RGB_TO_YIQ)


def permutation(order: NDArray[np.int64]) -> Matrix:
    """Channel c of the result is channel order[c]. `order`: (N, 3)."""
    return _affine(np.eye(3)[order])


def chain(*steps: Matrix) -> Matrix:
    """One map that does what `steps` do, the first one first."""
    return np.round(reduce(_then, steps), 9)  # what changes nothing is exactly the identity


def _then(first: Matrix, second: Matrix) -> Matrix:
    both = second[:, :, :3] @ first
    both[:, :, 3] += second[:, :, 3]
    return both


def _affine(linear: Matrix, offset: Matrix | None = None) -> Matrix:
    column = np.zeros(len(linear)) if offset is None else offset
    return np.concatenate([linear, np.tile(column[:, None, None], (1, 3, 1))], axis=2)
