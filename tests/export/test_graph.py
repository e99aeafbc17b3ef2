"""The exported graph's own arithmetic, on candidates that are written down."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import detaug as da
from detaug.export.graph import Candidates, DetectorGraph, NonMaxSuppression, rows_at
from detaug.export.verify import Verified, _compare

torchvision = pytest.importorskip("torchvision")

MEAN, STD = (0.4, 0.5, 0.6), (0.2, 0.3, 0.1)


class Written(DetectorGraph):
    """A graph whose model finds the given candidates, and keeps the images it is given."""

    def __init__(self, candidates: Candidates, letterbox: Any = None, most: int = 5) -> None:
        super().__init__(nn.Identity(), da.Resize((60, 80), letterbox=letterbox), da.Normalize(MEAN, STD), most)
        self.found = candidates

    def candidates(self, images: Tensor) -> Candidates:
        self.images = images
        return self.found


def candidates(boxes: list[list[float]], scores: list[float], labels: list[int]) -> Candidates:
    return Candidates(torch.tensor([boxes]), torch.tensor([scores]), torch.tensor([labels]))


@pytest.mark.parametrize(
    ("letterbox", "source", "expected"),
    [
        (None, (120, 400), [100.0, 40.0, 200.0, 100.0]),  # 5 times as wide, twice as high
        ("top-left", (120, 400), [100.0, 100.0, 200.0, 120.0]),  # 24 of 60 rows are the image: 5 times, clipped
        ("center", (120, 400), [100.0, 10.0, 200.0, 120.0]),  # it begins at row 18
        ("center", (120, 40), [-1.0, 40.0, 10.0, 100.0]),  # 20 of 80 columns, from column 30
    ],
)
def test_boxes_are_in_pixels_of_the_source_image(
    letterbox: Any, source: tuple[int, int], expected: list[float]
) -> None:
    graph = Written(candidates([[20, 20, 40, 50]], [0.5], [2]), letterbox)
    if source[1] == 40:
        graph.found = candidates([[20, 20, 35, 50]], [0.5], [2])
        expected = [max(0.0, value) for value in expected]
    count, boxes, scores, labels = graph(torch.rand(1, 3, 60, 80), torch.tensor([source]))
    assert count.tolist() == [1]
    assert boxes[0, 0].tolist() == pytest.approx(expected, abs=1e-4)
    assert (scores.tolist(), labels.tolist()) == ([[0.5]], [[2]])


def test_the_best_come_first_and_the_rest_is_zero() -> None:
    """Without the background, boxes in the fill of a letterbox, scores of 0, and what is more than the limit."""
    rows = [[0, 0, 9, 9], [10, 10, 30, 30], [20, 20, 40, 50], [1, 1, 5, 5], [0, 50, 9, 59], [2, 2, 3, 3.0]]
    graph = Written(candidates(rows, [0.2, 0.9, 0.3, 0.0, 0.8, 0.1], [1, 0, 2, 1, 1, 1]), "top-left", most=3)
    count, boxes, scores, labels = graph(torch.rand(1, 3, 60, 80), torch.tensor([(60, 160)]))
    assert count.tolist() == [3]
    assert scores[0].tolist() == pytest.approx([0.3, 0.2, 0.1])
    assert labels.tolist() == [[2, 1, 1]]
    assert boxes[0].tolist() == [[40, 40, 80, 60], [0, 0, 18, 18], [4, 4, 6, 6]]
    graph.most = 6
    count, boxes, scores, labels = graph(torch.rand(1, 3, 60, 80), torch.tensor([(60, 160)]))
    assert count.tolist() == [3]
    assert not boxes[0, 3:].any()
    assert not scores[0, 3:].any()
    assert not labels[0, 3:].any()


def test_images_are_normalized() -> None:
    graph = Written(candidates([[0, 0, 9, 9]], [0.2], [1]))
    graph(torch.tensor([0.6, 0.8, 0.5]).view(1, 3, 1, 1).expand(1, 3, 60, 80), torch.tensor([(60, 80)]))
    assert graph.images[0, :, 3, 4].tolist() == pytest.approx([1, 1, -1])


def test_rows_of_each_image_and_suppression_of_each_class() -> None:
    values = torch.arange(24).view(2, 3, 4)
    assert rows_at(values, torch.tensor([[2], [0]])).tolist() == [[[8, 9, 10, 11]], [[12, 13, 14, 15]]]
    boxes = torch.tensor([[[0, 0, 10, 10], [0, 0, 10, 9], [20, 20, 30, 30]]] * 2).float()
    scores = torch.tensor([[[0.5, 0.6, 0.7], [0.4, 0.1, 0.2]], [[0.9, 0.1, 0.3], [0.2, 0.3, 0.25]]])
    kept = NonMaxSuppression.apply(boxes, scores, 0.5, 0.2)
    # Of image, class and position; a score equal to the least one goes.
    assert sorted(kept.tolist()) == [[0, 0, 1], [0, 0, 2], [0, 1, 0], [1, 0, 0], [1, 0, 2], [1, 1, 1], [1, 1, 2]]


def detections(boxes: list[list[float]], scores: list[float], labels: list[int]) -> dict[str, Tensor]:
    return {"boxes": torch.tensor(boxes).view(-1, 4), "scores": torch.tensor(scores), "labels": torch.tensor(labels)}


def test_detections_are_compared() -> None:
    """Those of a score of 0.05 or more need a partner of their class in the other, in both directions."""
    one = detections([[0, 0, 10, 10], [20, 20, 40, 40.0]], [0.9, 0.05], [1, 2])
    assert _compare(one, one) == ([2, 0, 0], 0.0)
    moved = detections([[20, 20, 40, 40.5], [0, 0, 10, 10]], [0.05, 0.9], [2, 1])
    assert _compare(one, moved) == ([2, 0, 0], 0.5)
    other_class = detections([[0, 0, 10, 10], [20, 20, 40, 40]], [0.9, 0.05], [1, 1])
    assert _compare(one, other_class) == ([2, 2, 0], 0.0)
    more = detections([[0, 0, 10, 10], [20, 20, 40, 40], [50, 50, 60, 60]], [0.9, 0.05, 0.5], [1, 2, 1])
    assert _compare(one, more) == ([2, 1, 0], 0.0)
    assert _compare(more, one) == ([3, 1, 0], 0.0)
    nothing = detections([], [], [])
    assert _compare(one, nothing) == ([2, 2, 0], 0.0)
    tied = detections([[0, 0, 10, 10], [20, 20, 40, 40.0]], [0.5, 0.5], [1, 2])
    assert _compare(tied, tied) == ([2, 0, 2], 0.0)


def test_both_scores_agree_or_not() -> None:
    for of_torch, of_onnx, shapes, agrees in [
        (0.5, 0.5009, None, True),
        (0.5, 0.502, None, False),
        (0.502, 0.5, None, False),
        (0.5, 0.5, ("masks", 0.4, 0.4), True),
        (0.5, 0.5, ("masks", 0.4, 0.39), False),
    ]:
        verified = Verified(3, of_torch, of_onnx, 9, 0, 0.0, 0, shapes)
        assert verified.agrees == agrees
        assert ("NOT equal" in str(verified)) != agrees
