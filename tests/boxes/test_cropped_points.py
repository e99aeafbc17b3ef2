"""Keypoints and the visible fraction of boxes after crops, told from pixels that name their own place in the source."""

from __future__ import annotations

import numpy as np
import pytest
from coded import NOWHERE, coded, origins
from numpy.typing import NDArray

import detaug as da

SIZES = [(80, 100), (61, 47), (90, 64)]
CROPS: dict[str, list[da.Op]] = {
    "crop": [da.RandomCrop((40, 30), fill=NOWHERE)],
    "crop, flip": [da.RandomCrop((40, 30), fill=NOWHERE), da.RandomVerticalFlip(), da.RandomHorizontalFlip()],
    "crop, pad": [da.RandomCrop((33, 41), fill=NOWHERE), da.Pad((9, 4), fill=NOWHERE)],
    "center, quarter turns": [da.CenterCrop((50, 31), fill=NOWHERE), da.RandomRotate90()],
    "pad, crop": [da.Pad((20, 12), fill=NOWHERE), da.RandomCrop((52, 60), fill=NOWHERE)],
}


def random_points(seed: int) -> NDArray[np.float64]:
    """Return (3, 60, 3): points in images and beside them, on borders of pixels, with v 0, 1 or 2."""
    rng = np.random.default_rng(seed)
    places = [rng.integers(-16, 2 * np.array(size[::-1]) + 17, (60, 2)) / 2 for size in SIZES]
    return np.concatenate([places, rng.integers(0, 3, (3, 60, 1))], axis=2)


@pytest.mark.parametrize("crop", CROPS)
def test_points_and_boxes_are_seen_where_their_pixels_are(crop: str) -> None:
    """A point on the border of what is seen belongs to it, on all sides (decision 26)."""
    counted = np.zeros(3, int)
    for seed in range(5):
        points, rng = random_points(seed), np.random.default_rng(seed)
        boxes = [[[*rng.integers(5, 20, 2), *rng.integers(25, 47, 2)]] for _ in SIZES]
        shapes = da.Shapes(keypoints=da.KeyPoints(points, swapped=np.arange(60)[None]))
        images = [coded(at, size) for at, size in enumerate(SIZES)]
        samples = da.batch(images, boxes, [[at + 1] for at in range(3)], shapes=shapes, seed=seed).then(*CROPS[crop])
        views = samples.plan.views
        for at, image in enumerate(samples.images):
            found = origins(image)
            row, column = np.nonzero(found[..., 0] == at)
            source = found[row, column, 1:]
            low, high = source.min(0), source.max(0) + 1
            assert len(source) == (high - low).prod()
            (x0, y0, x1, y1), inside = boxes[at][0], source + 0.5
            seen = ((inside > (x0, y0)) & (inside < (x1, y1))).all(1).sum() / ((x1 - x0) * (y1 - y0))
            assert len(samples.boxes[at]) == (seen > 0)
            if not seen:
                continue
            assert views.visible[at][views.labels[at] >= 0] == pytest.approx([seen])
            pixels = np.column_stack([inside, np.ones(len(inside))])
            affine, *_ = np.linalg.lstsq(pixels, np.column_stack([column, row]) + 0.5)
            ends = np.array([(x0, y0), (x1, y1)]).clip(low, high) @ affine[:2] + affine[2]
            np.testing.assert_allclose(samples.boxes[at], [[*ends.min(0), *ends.max(0)]], atol=1e-6)
            moved = points[at][:, :2] @ affine[:2] + affine[2]
            in_view = ((points[at][:, :2] >= low) & (points[at][:, :2] <= high)).all(1)
            v = np.where(in_view, points[at][:, 2], 0)
            expected = np.column_stack([np.where(v[:, None] > 0, moved, 0), v])
            np.testing.assert_allclose(samples.keypoints[at][0], expected, atol=1e-6)
            counted += [(v == 0).sum(), (v == 1).sum(), (v == 2).sum()]
    assert counted.min() > 20
