"""Make the tables with which OpenCV converts 8-bit colors between RGB and CIELAB, in integers.

OpenCV's formulas: modules/imgproc/src/color_lab.cpp. All colors come out as OpenCV's, bit by bit.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from detaug.arrays import Floats

LINEAR, ROOTS, GAMMA, LUMINANCE, ROOT_OF_LIGHTNESS, END = (
    int(start) for start in np.cumsum([0, 256, 2041, 4096, 256, 256], dtype=np.int64)
)
"""Where in `color_tables` each table starts, and where the last one ends."""

WHITE = np.array([0.950456, 1, 1.088754])
"""X, Y and Z of white, D65."""
TO_XYZ = np.array(
    [[0.412453, 0.357580, 0.180423], [0.212671, 0.715160, 0.072169], [0.019334, 0.119193, 0.950227]]
)  # fmt: skip
FROM_XYZ = np.array(
    [[3.240479, -1.53715, -0.498535], [-0.969256, 1.875991, 0.041556], [0.055648, -0.204043, 1.057311]]
)  # fmt: skip

RGB_TO_XYZ: list[int] = np.rint(4096 * TO_XYZ / WHITE[:, None]).astype(int).ravel().tolist()
"""(3, 3), flat, in 1/4096: from linear R, G, B to X, Y, Z, of which white has 1 each."""
XYZ_TO_RGB: list[int] = np.rint(4096 * FROM_XYZ * WHITE).astype(int).ravel().tolist()
"""(3, 3), flat, in 1/4096: the inverse."""


def color_tables() -> NDArray[np.int32]:
    """Return all tables, concatenated.

    LINEAR: linear values of bytes, in 1/2040. ROOTS: cube roots of X, Y or Z in 1/2040, in 1/32768. GAMMA: bytes of
    linear values in 1/4096. LUMINANCE, ROOT_OF_LIGHTNESS: Y and its cube root from the lightness, a byte, in 1/16384.
    """
    byte = np.arange(256)
    share, value = byte / 255, np.arange(4096) / 4096
    linear = np.where(share <= 0.04045, share / 12.92, ((share + 0.055) / 1.055) ** 2.4)
    gamma = np.where(value <= 0.0031308, value * 12.92, value ** (1 / 2.4) * 1.055 - 0.055)
    luminance = np.where(byte <= 20, share * 100 * 27 / 29**3, ((share * 100 + 16) / 116) ** 3)
    root_of_lightness = 16384 * (share * 100 + 16) / 116
    roots = _root(np.arange(2041) / 2040)
    tables = [2040 * linear, 32768 * roots, 255 * gamma, 16384 * luminance, root_of_lightness]
    return np.concatenate([np.rint(table) for table in tables]).astype(np.int32)


def _root(value: Floats) -> Floats:
    """Return cube roots, of small values a line. OpenCV has them in float32, which changes how two of them round."""
    roots = np.where(value < 216 / 24389, value * 841 / 108 + 16 / 116, np.cbrt(value))
    return roots.astype(np.float32).astype(np.float64)


_on_device: dict[torch.device, Tensor] = {}


def color_tables_on(device: torch.device) -> Tensor:
    """Return `color_tables` on this device. The first call waits for the copy, so that all streams may use it."""
    if device not in _on_device:
        _on_device[device] = torch.from_numpy(color_tables()).to(device)
    return _on_device[device]
