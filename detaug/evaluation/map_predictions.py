"""Take what a model predicts for the pixels of its input to the pixels of the maps, as they are in the files."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional


def at_points(predictions: Tensor, points: Tensor, size: Sequence[int], *, nearest: bool = False) -> Tensor:
    """Return (C, H, W): predictions at points, interpolated linearly, or those of the nearest place.

    `predictions`: (C, h, w), of the whole output, at its size or another. `points`: (H, W, 2) x, y in pixels of the
    output, which has `size` (height, width). Beyond the last places, predictions are theirs.
    """
    grid = points.to(predictions.device).double() / torch.tensor([size[1], size[0]], device=predictions.device) * 2 - 1
    mode = "nearest" if nearest else "bilinear"
    values = predictions[None].double()
    return functional.grid_sample(values, grid[None], mode=mode, padding_mode="border", align_corners=False)[0]


STRIP = 1 << 23
"""Scores that are interpolated at once, of 8 bytes each: those of a large image and of many classes take gigabytes."""


def classes_at(scores: Tensor, points: Tensor, size: Sequence[int]) -> Tensor:
    """Return (H, W) int64, the class with the largest score at each point; arguments as those of `at_points`."""
    rows = max(1, STRIP // (len(scores) * points.shape[1]))
    strips = (points[start : start + rows] for start in range(0, len(points), rows))
    return torch.cat([at_points(scores, strip, size).argmax(0) for strip in strips])
