"""Color changes: as steps, which are torchvision's, and as linear maps, which are near them.

A linear map is a matrix (N, 3, 4) on RGB in 0..255, whose last column is added. Brightness, contrast about a constant,
saturation, hue in YIQ and the order of the channels are linear in RGB. So any chain of them is one matrix for each
image, drawn with NumPy and applied in one pass over the pixels.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
from numpy.typing import NDArray

from detaug.gpu.color_steps import BRIGHTNESS, CONTRAST, HUE, SATURATION

Matrix = NDArray[np.float64]

GRAY = np.array([0.299, 0.587, 0.114])  # luma, ITU-R BT.601, as in Pillow and torchvision
RGB_TO_YIQ = np.array([GRAY, [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])  # NTSC
IDENTITY = np.eye(3, 4)
MIDDLE = 128.0  # contrast scales about this gray, DALI's contrast_center


def steps(kind: NDArray[np.int64], amount: Matrix, channels: NDArray[np.int64]) -> Matrix:
    """Return (N, 11): for each step its kind and amount, then the order of the channels.

    `kind`, `amount`: (N, 4); an amount is a factor, and turns for hue. `channels`: (N, 3).
    """
    pairs = np.stack([kind, amount], axis=2).reshape(len(kind), -1)
    return np.concatenate([pairs, channels], axis=1)


def linear_map(kind: NDArray[np.int64], amount: Matrix, channels: NDArray[np.int64]) -> Matrix:
    """Return the linear map (N, 3, 4) of what `steps` takes."""
    return chain(*map(_step, kind.T, amount.T), permutation(channels))


def _step(kind: NDArray[np.int64], amount: Matrix) -> Matrix:
    """Return the maps (N, 3, 4) of one step. `kind`, `amount`: (N,)."""
    maps = np.tile(IDENTITY, (len(kind), 1, 1))
    for known, change in {BRIGHTNESS: brightness, CONTRAST: contrast, SATURATION: saturation, HUE: hue}.items():
        maps[kind == known] = change(amount[kind == known])
    return maps


def brightness(factor: Matrix) -> Matrix:
    """Return RGB * factor. `factor`: (N,)."""
    return _affine(np.eye(3)[..., None] * factor)


def contrast(factor: Matrix) -> Matrix:
    """Return (RGB - 128) * factor + 128. `factor`: (N,)."""
    return _affine(np.eye(3)[..., None] * factor, MIDDLE * (1 - factor))


def saturation(factor: Matrix) -> Matrix:
    """Return gray + (RGB - gray) * factor, as torchvision's `adjust_saturation`. `factor`: (N,)."""
    return _affine(np.eye(3)[..., None] * factor + GRAY[:, None] * (1 - factor))


def hue(turn: Matrix) -> Matrix:
    """Turn the hue from red towards green by rotating I and Q; the luma stays. `turn`: (N,), 1 is the whole circle."""
    cos, sin = np.cos(2 * np.pi * turn), -np.sin(2 * np.pi * turn)
    stays, along, across = _HUE_TURN[..., None]
    return _affine(stays + along * cos + across * sin)


def permutation(order: NDArray[np.int64]) -> Matrix:
    """Permute the channels: channel c of the result is channel order[c]. `order`: (N, 3)."""
    return _affine(np.eye(3)[:, order.T].swapaxes(0, 1))


def chain(*steps: Matrix) -> Matrix:
    """Compose the maps, the first one first."""
    return np.round(reduce(_then, steps), 9)  # so that neutral steps give exactly the identity


def _then(first: Matrix, second: Matrix) -> Matrix:
    both = np.einsum("nij,njk->nik", second[:, :, :3], first)  # a stack of small matrices: faster than @
    both[:, :, 3] += second[:, :, 3]
    return np.asarray(both)


def _affine(linear: Matrix, offset: Matrix | float = 0.0) -> Matrix:
    """Return (N, 3, 4) from (3, 3, N) and (N,)."""
    matrix = np.empty((3, 4, linear.shape[2]))  # the short axes first: NumPy loops over the last one
    matrix[:, :3], matrix[:, 3] = linear, offset
    return np.asarray(matrix.transpose(2, 0, 1))


def _in_rgb(yiq: list[list[float]]) -> Matrix:
    """Return a linear map of YIQ, (3, 3), as a map of RGB."""
    return np.asarray(np.linalg.inv(RGB_TO_YIQ) @ yiq @ RGB_TO_YIQ)


_HUE_TURN = np.stack(
    [
        _in_rgb([[1, 0, 0], [0, 0, 0], [0, 0, 0]]),
        _in_rgb([[0, 0, 0], [0, 1, 0], [0, 0, 1]]),
        _in_rgb([[0, 0, 0], [0, 0, -1], [0, 1, 0]]),
    ]
)
"""(3, 3, 3): the constant part of a rotation of I and Q, the factor of its cosine and that of its sine."""
