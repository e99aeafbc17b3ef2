"""RandomIoUCrop: its boxes and the rule by which they stay. Its draws: test_against_torchvision.py."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from painted import RESAMPLED, assert_boxes_on_pixels, painted_batch

import detaug as da


@pytest.mark.parametrize("min_visibility", [None, 0.4])
def test_iou_crop_moves_boxes_with_pixels(min_visibility: float | None, device: str) -> None:
    read = 0
    for seed in range(10):
        samples = da.RandomIoUCrop(min_visibility=min_visibility)(painted_batch(seed, device=device))
        read += assert_boxes_on_pixels(da.Resize((200, 200))(samples), RESAMPLED)
    assert read > 100


def test_iou_crop_keeps_the_image_whole_where_every_window_would_lose_its_boxes() -> None:
    corner = [[0, 0, 1, 1]]  # a window of half the side hardly ever holds the center of the corner's pixel
    op = da.RandomIoUCrop(thresholds=(0.9,), scaling=(0.3, 0.5), allow_no_crop=False)
    samples = op(da.batch([np.zeros((100, 100, 3), np.uint8)] * 32, [corner] * 32))
    assert all(len(boxes) == 1 for boxes in samples.boxes)


def test_iou_crop_drops_by_the_rule_that_was_set() -> None:
    for min_visibility in (None, 0.5, 0.9):
        samples = painted_batch(7, n=32)
        op = da.RandomIoUCrop(thresholds=(0.0,), min_visibility=min_visibility, allow_no_crop=False)
        cropped = op(samples)
        for source, matrix, size, labels in zip(
            replace(samples, ops=()).boxes,
            cropped.matrix,
            [i.shape for i in cropped.images],
            cropped.labels,
            strict=True,
        ):
            moved = (source.reshape(-1, 2) @ matrix[:, :2].T + matrix[:, 2]).reshape(-1, 4)
            clipped = np.clip(moved, 0, (size[1], size[0]) * 2)
            centre = (moved[:, :2] + moved[:, 2:]) / 2
            visible = np.prod(clipped[:, 2:] - clipped[:, :2], 1) / np.prod(moved[:, 2:] - moved[:, :2], 1)
            inside = ((centre > 1e-6) & (centre < np.subtract((size[1], size[0]), 1e-6))).all(1)
            stays = inside if min_visibility is None else visible >= min_visibility
            if stays.any():
                assert labels.tolist() == (np.flatnonzero(stays) + 1).tolist()


def test_iou_crop_happens_with_its_probability() -> None:
    images, boxes = [np.zeros((40, 40, 3), np.uint8)] * 2000, [[[2, 2, 38, 38]]] * 2000
    (drawn,) = da.batch(images, boxes).then(da.RandomIoUCrop((0.0,), allow_no_crop=False, p=0.3)).params[:1]
    assert abs((drawn["window"] != (0, 0, 1, 1)).any(1).mean() - 0.3) < 0.05
