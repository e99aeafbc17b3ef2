"""Geometry of boxes on a canvas: (M, 4) XYXY in pixels."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from detaug.drawing.images import as_array
from detaug.errors import InputError

Boxes = NDArray[np.float64]

MARGIN = 99
"""Pixels outside the image at which far edges are cut: they stay invisible, and numbers stay small."""


def as_boxes(boxes: Any, name: str) -> Boxes:
    """Return `boxes` as a float64 array of (M, 4). Raises InputError, with `name`, for another shape."""
    xyxy = as_array(boxes).astype(np.float64)
    xyxy = xyxy.reshape(0, 4) if xyxy.size == 0 else xyxy
    if xyxy.ndim != 2 or xyxy.shape[1] != 4:
        raise InputError(f"{name} must be (M, 4) XYXY pixels, got shape {xyxy.shape}; reshape to (-1, 4)")
    return xyxy


def clip_to_canvas(boxes: Boxes, size: tuple[int, int]) -> Boxes:
    """Sort corners and cut edges far outside the image of `size` (width, height); NaN for an invisible box.

    Edges outside the image stay outside, so that they are not drawn on its border.
    """
    width, height = size
    first, second = boxes[:, :2], boxes[:, 2:]
    corners = np.concatenate([np.minimum(first, second), np.maximum(first, second)], 1)
    inside = (corners[:, :2] < (width, height)).all(1) & (corners[:, 2:] > 0).all(1)
    inside &= np.isfinite(corners).all(1)
    limits = np.array([width, height] * 2) + float(MARGIN)
    return np.where(inside[:, None], np.clip(corners, -MARGIN, limits), np.nan)


def snap(box: Boxes) -> tuple[int, int, int, int]:
    """Round a box to whole pixels x1, y1, x2, y2 (half-open), at least one wide and high."""
    x1, y1, x2, y2 = (int(v) for v in np.floor(box + 0.5))
    return x1, y1, max(x2, x1 + 1), max(y2, y1 + 1)


def areas(boxes: Boxes) -> Boxes:
    return np.asarray((boxes[..., 2] - boxes[..., 0]) * (boxes[..., 3] - boxes[..., 1]))


def overlaps(a: Boxes, b: Boxes) -> Boxes:
    """Return the (K, M) areas shared by boxes (K, 4) and (M, 4)."""
    low = np.maximum(a[:, None, :2], b[None, :, :2])
    high = np.minimum(a[:, None, 2:], b[None, :, 2:])
    return np.asarray(np.prod(np.maximum(high - low, 0), axis=2))
