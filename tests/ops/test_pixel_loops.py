"""The loop that fills what is outside of a polygon, against the same rule for all pixels at once.

That of medians is tested in test_pixel_ops.py.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from detaug.ops.cpu_kernels import fill_outside
from detaug.ops.resize import _half_planes

FILL = (123.0, 117.0, 104.0)


def expected(image: np.ndarray, edges: np.ndarray) -> np.ndarray:
    height, width = image.shape[:2]
    y, x = np.float32(np.mgrid[:height, :width] + 0.5)
    inside = (edges[0] * x[..., None] + edges[2] + edges[1] * y[..., None]).min(2, keepdims=True)
    return np.rint(np.float32(FILL) + (image - np.float32(FILL)) * np.clip(inside + np.float32(0.5), 0, 1))


@pytest.mark.parametrize("seed", range(6))
def test_it_mixes_each_pixel_by_how_far_inside_it_is(seed: int) -> None:
    rng = np.random.default_rng(seed)
    image = rng.integers(0, 256, (50, 70, 3), np.uint8)
    angles = np.sort(rng.uniform(0, 2 * np.pi, 3 + seed))
    polygon = rng.uniform(-10, 60, 2) + rng.uniform(5, 60) * np.stack([np.cos(angles), np.sin(angles)], 1)
    edges = np.float32(_half_planes(polygon[None])["edges"][0])
    found = fill_outside(torch.from_numpy(image).permute(2, 0, 1), edges, FILL).permute(1, 2, 0).numpy()
    assert np.abs(found - expected(image, edges)).max() <= 1
    assert (found != expected(image, edges)).mean() < 0.001
    assert (found != image).any()


@pytest.mark.parametrize(
    "edges", [[[0], [0], [1e6]], [[0], [0], [-1e6]], [[1], [0], [-70]], [[-1], [0], [0]], [[0], [1], [-20]]]
)
def test_borders_along_the_axes(edges: list[list[float]]) -> None:
    image = np.full((30, 70, 3), 9, np.uint8)
    planes = np.float32(edges)
    found = fill_outside(torch.from_numpy(image).permute(2, 0, 1), planes, FILL).permute(1, 2, 0).numpy()
    np.testing.assert_array_equal(found, expected(image, planes))
    assert (image == 9).all()  # what DALI gave is not written to
