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
    return _affine(np.eye(3)[..., None] * factor)


def contrast(factor: Matrix) -> Matrix:
    """(RGB - 128) * factor + 128. `factor`: (N,)."""
    return _affine(np.eye(3)[..., None] * factor, MIDDLE * (1 - factor))


def saturation(factor: Matrix) -> Matrix:
    """gray + (RGB - gray) * factor, torchvision's `adjust_saturation`. `factor`: (N,)."""
    return _affine(np.eye(3)[..., None] * factor + GRAY[:, None] * (1 - factor))


def hue(turn: Matrix) -> Matrix:
    """Turn the hue from red towards green, the luma stays: I and Q rotated. `turn`: (N,), 1 is the whole circle."""
    cos, sin = np.cos(2 * np.pi * turn), -np.sin(2 * np.pi * turn)
    stays, along, across = _HUE_TURN[..., None]
    return _affine(stays + along * cos + across * sin)


def permutation(order: NDArray[np.int64]) -> Matrix:
    """Channel c of the result is channel order[c]. `order`: (N, 3)."""
    return _affine(np.eye(3)[:, order.T].swapaxes(0, 1))


def chain(*steps: Matrix) -> Matrix:
    """One map that does what `steps` do, the first one first."""
    return np.round(reduce(_then, steps), 9)  # what changes nothing is exactly the identity


def _then(first: Matrix, second: Matrix) -> Matrix:
    both = np.einsum("nij,njk->nik", second[:, :, :3], first)  # a stack of small matrices: faster than @
    both[:, :, 3] += second[:, :, 3]
    return np.asarray(both)


def _affine(linear: Matrix, offset: Matrix | float = 0.0) -> Matrix:
    """(N, 3, 4) of (3, 3, N) and (N,)."""
    matrix = np.empty((3, 4, linear.shape[2]))  # NumPy is slow where the last axis is short
    matrix[:, :3], matrix[:, 3] = linear, offset
    return np.asarray(matrix.transpose(2, 0, 1))


def _in_rgb(yiq: list[list[float]]) -> Matrix:
    """A linear map of YIQ, (3, 3), as one of RGB."""
    return np.asarray(np.linalg.inv(RGB_TO_YIQ) @ yiq @ RGB_TO_YIQ)


_HUE_TURN = np.stack(
    [
        _in_rgb([[1, 0, 0], [0, 0, 0], [0, 0, 0]]),
        _in_rgb([[0, 0, 0], [0, 1, 0], [0, 0, 1]]),
        _in_rgb([[0, 0, 0], [0, 0, -1], [0, 1, 0]]),
    ]
)
"""(3, 3, 3): of a turn of I and Q, what stays, and what its cosine and its sine are multiplied with."""
