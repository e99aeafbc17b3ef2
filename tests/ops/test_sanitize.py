"""SanitizeBoundingBoxes against torchvision's, and against Albumentations' definition of visibility."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from coded import coded_batch

import detaug as da

SIZE = (80, 100)
RESIZE = da.Resize(SIZE)


@pytest.mark.parametrize(("min_size", "min_area"), [(1.0, 1.0), (10.0, 1.0), (1.0, 300.0), (7.5, 150.0)])
def test_small_boxes_are_dropped_as_in_torchvision(min_size: float, min_area: float) -> None:
    from test_against_torchvision import tv_tensors, v2

    samples = coded_batch(0, 32, SIZE).then(RESIZE)
    after, op = samples.then(da.SanitizeBoundingBoxes(min_size, min_area)), v2.SanitizeBoundingBoxes(min_size, min_area)
    for at, boxes in enumerate(samples.boxes):
        given = torch.from_numpy(np.round(boxes, 6))
        target = {
            "boxes": tv_tensors.BoundingBoxes(given, format="XYXY", canvas_size=SIZE),
            "labels": torch.from_numpy(samples.labels[at]),
        }
        expected = op(target)
        assert after.labels[at].tolist() == expected["labels"].tolist()
        assert np.abs(after.boxes[at] - np.asarray(expected["boxes"])).max(initial=0) < 1e-5
    assert sum(map(len, after.labels)) < sum(map(len, samples.labels)) or min_size == 1 == min_area


def test_sizes_are_those_of_the_output() -> None:
    samples = da.batch([np.zeros((100, 100, 3), np.uint8)], [[[0, 0, 20, 20], [0, 0, 30, 30]]], [[1, 2]])
    after = samples.then(da.Resize((50, 50)), da.SanitizeBoundingBoxes(min_size=12))
    assert after.labels[0].tolist() == [2]


@pytest.mark.parametrize("min_visibility", [0.0, 0.2, 0.5, 1.0])
def test_min_visibility_is_albumentations(min_visibility: float) -> None:
    """BboxParams: the area after all transforms, at the scale of before, is at least this fraction of it."""
    samples, dropped = coded_batch(2, 32, (130, 150)), 0
    cropped = samples.then(da.RandomHorizontalFlip(), da.RandomCrop((60, 70)), da.Resize((90, 140)))
    after = cropped.then(da.SanitizeBoundingBoxes(min_size=0, min_area=0, min_visibility=min_visibility))
    for at, (boxes, matrix) in enumerate(zip(replace(samples, ops=()).boxes, cropped.matrix, strict=True)):
        moved = (boxes.reshape(-1, 2) @ matrix[:, :2].T + matrix[:, 2]).reshape(-1, 2, 2)
        low, high = moved.min(1), moved.max(1)
        inside = (high.clip(0, (140, 90)) - low.clip(0, (140, 90))).prod(1) / (high - low).prod(1)
        numbers = 10 * at + np.flatnonzero(inside >= min_visibility - 1e-9) + 1
        expected = [label for label in cropped.labels[at].tolist() if label in numbers]
        assert after.labels[at].tolist() == expected
        dropped += len(cropped.labels[at]) - len(expected)
    assert dropped > 10 or min_visibility == 0


def test_covered_area_is_not_visible() -> None:
    hidden = coded_batch(3, 32, SIZE).then(RESIZE, da.RandomErasing(p=1, scale=(0.3, 0.6), max_hidden=1))
    after = hidden.then(da.SanitizeBoundingBoxes(min_visibility=0.6))
    stricter = coded_batch(3, 32, SIZE).then(RESIZE, da.RandomErasing(p=1, scale=(0.3, 0.6), max_hidden=0.4))
    assert [labels.tolist() for labels in after.labels] == [labels.tolist() for labels in stricter.labels]
    assert sum(map(len, after.labels)) < sum(map(len, hidden.labels))


def test_thin_boxes_are_dropped_by_their_aspect_ratio() -> None:
    boxes = [[0, 0, 40, 10], [0, 0, 10, 41], [0, 0, 41, 10], [5, 5, 6, 6]]
    samples = da.batch([np.zeros((*SIZE, 3), np.uint8)], [boxes], [[1, 2, 3, 4]])
    after = samples.then(RESIZE, da.SanitizeBoundingBoxes(max_aspect_ratio=4))
    assert after.labels[0].tolist() == [1, 4]


def test_pixels_and_matrix_stay(device: str) -> None:
    before = coded_batch(0, 4, SIZE, device).then(RESIZE)
    after = before.then(da.SanitizeBoundingBoxes(min_size=30))
    assert all(np.array_equal(a, b) for a, b in zip(before.images, after.images, strict=True))
    assert np.array_equal(before.matrix, after.matrix)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda: da.SanitizeBoundingBoxes(min_size=-1), "min_size must be a number from 0"),
        (lambda: da.SanitizeBoundingBoxes(min_area="1"), "min_area must be a number from 0"),
        (lambda: da.SanitizeBoundingBoxes(min_visibility=1.1), "min_visibility must be a fraction"),
        (lambda: da.SanitizeBoundingBoxes(max_aspect_ratio=0.5), "max_aspect_ratio must be a number of at least 1"),
        (lambda: coded_batch(0, 1).then(da.SanitizeBoundingBoxes(), RESIZE), r"\(1st\) must come after Resize \(2nd\)"),
    ],
)
def test_wrong_arguments_are_refused(wrong: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        wrong()
