"""Test-time augmentation: painted objects, detected in every view, come back to their pixels, and merge as stated."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from painted_files import write_coco
from PIL import Image
from torch import Tensor, nn

import detaug as da
from detaug.boxes.keypoints import KeyPoints
from detaug.evaluation.fusion import fuse, weighted_mean
from detaug.scoring import evaluate_model, predict_files
from detaug.scoring.predict import Predicted
from detaug.training import TrainedModel
from detaug.training.predict_batches import predicted_batches

HEIGHT, WIDTH = 60, 80
BOX = [10, 6, 50, 30]
"""XYXY of an L, whose other arm goes down to it from y = 6 at x = 10..18."""
OPS = (da.Resize((120, 160)), da.Normalize((0, 0, 0), (1, 1, 1)))
WHOLE = (0.5, 1, 1.5)
"""Scales that show each pixel of the image as 1, 2 or 3: a threshold then finds exact edges."""


def l_shape() -> np.ndarray:
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[6:30, 10:18] = True
    mask[22:30, 10:50] = True
    return mask


def pixels_of(mask: np.ndarray) -> np.ndarray:
    return np.repeat(np.where(mask, 255, 0).astype(np.uint8)[..., None], 3, 2)


class FindsWhite(nn.Module):
    """Finds the white pixels: their box, mask, corners, and two points, of which it calls the left one in view left."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        return [self.found(image) for image in images]

    def found(self, image: Tensor) -> dict[str, Tensor]:
        self.shapes.append(tuple(image.shape[1:]))
        white = image.mean(0) > 0.5
        rows, columns = torch.nonzero(white, as_tuple=True)
        if not len(rows):
            empty = {"boxes": (0, 4), "scores": (0,), "masks": (0, 1, *white.shape), "keypoints": (0, 2, 3)}
            none = {name: torch.zeros(shape) for name, shape in (*empty.items(), ("corners", (0, 4, 2)))}
            return {**none, "labels": torch.zeros(0, dtype=torch.int64)}
        x0, y0, x1, y1 = (float(n) for n in (columns.min(), rows.min(), columns.max() + 1, rows.max() + 1))
        return {
            "boxes": torch.tensor([[x0, y0, x1, y1]]),
            "scores": torch.tensor([0.8]),
            "labels": torch.tensor([2]),
            "masks": white[None, None].float(),
            "keypoints": torch.tensor([[[x0, y0, 1], [x1, y0, 1]]]),
            "corners": torch.tensor([[[x0, y0], [x1, y0], [x1, y1], [x0, y1]]]),
        }


POINTS = KeyPoints(np.zeros((0, 2, 3)), [["left_hand", "right_hand"]])


def model(detector: nn.Module | None = None, **more: Any) -> TrainedModel:
    names = ("background", "cat", "dog")
    return TrainedModel(detector or FindsWhite(), OPS, names, torch.device("cpu"), **{"keypoints": POINTS, **more})


ALL = {
    "flip": da.TTA(scales=(1,)),
    "scales": da.TTA(flip=False, scales=WHOLE),
    "rotations": da.TTA(flip=False, scales=(1,), rotations=(0, 90, 180, 270)),
    "all": da.TTA(scales=WHOLE, rotations=(0, 90, 180, 270)),
    "nms": da.TTA(scales=WHOLE, rotations=(90, 270), merge="nms"),
    "recipe": da.TTA(scales=(1,), recipes=[[da.RandomVerticalFlip(p=1)], [da.RandomAffine(degrees=(90, 90), p=1)]]),
    "recipe with its own size": da.TTA(scales=(1,), recipes=[[da.Resize((180, 240)), da.RandomVerticalFlip(p=1)]]),
}
VIEWS = {"flip": 2, "scales": 3, "rotations": 4, "all": 24, "nms": 12, "recipe": 4, "recipe with its own size": 3}


@pytest.mark.parametrize("name", ALL)
def test_each_view_leads_back_to_the_same_pixels(name: str) -> None:
    detector, tta = FindsWhite(), ALL[name]
    (found,) = model(detector).predict(pixels_of(l_shape()), tta=tta, min_score=0)
    assert len(detector.shapes) == VIEWS[name]
    assert found["boxes"].numpy() == pytest.approx(np.array([BOX]), abs=0.3 if name == "recipe" else 1e-3)
    assert found["scores"].tolist() == [pytest.approx(0.8)]
    assert found["labels"].tolist() == [2]
    wrong = (found["masks"][0].numpy() != l_shape()).sum()
    assert wrong <= (4 if name == "recipe" else 0)
    assert sorted(map(tuple, found["corners"][0].round().tolist())) == [(10, 6), (10, 30), (50, 6), (50, 30)]


def test_corners_of_rotated_views_are_one_rectangle() -> None:
    (found,) = model().predict(pixels_of(l_shape()), tta=ALL["all"], min_score=0)
    corners = found["corners"][0].double().numpy()
    sides = np.roll(corners, -1, 0) - corners
    assert np.hypot(*sides.T) == pytest.approx([40, 24, 40, 24], abs=1e-3)
    assert (sides * np.roll(sides, -1, 0)).sum(1) == pytest.approx(np.zeros(4), abs=1e-2)


def test_left_and_right_are_swapped_back_after_a_flip() -> None:
    """In a flipped image, what the model calls left is the right one."""
    for tta in (ALL["flip"], ALL["scales"], replace(ALL["flip"], merge="nms")):
        (found,) = model().predict(pixels_of(l_shape()), tta=tta, min_score=0)
        assert found["keypoints"][0].numpy() == pytest.approx(np.array([[10, 6, 1], [50, 6, 1]]), abs=1e-3)


def test_swaps_are_those_of_the_class() -> None:
    """Of the first class the points do not swap, of the second they do."""
    of_classes = replace(POINTS, swapped=np.array([[0, 1], [1, 0]]))
    (found,) = model(keypoints=of_classes).predict(pixels_of(l_shape()), tta=ALL["flip"])
    assert found["keypoints"][0, :, 0].tolist() == pytest.approx([10, 50], abs=1e-3)


def test_sizes_are_those_that_the_model_takes() -> None:
    detector = FindsWhite()
    own = model(detector, stride=32, smallest=128)
    own = replace(own, ops=(da.Resize((160, 192)), OPS[1]))
    own.predict(pixels_of(l_shape()), tta=da.TTA(flip=False, scales=(0.5, 0.8, 1, 1.2), rotations=(0, 90)))
    sizes = [(128, 128), (128, 160), (160, 192), (192, 224)]
    assert detector.shapes == [turned for h, w in sizes for turned in ((h, w), (w, h))]
    detector.shapes.clear()
    replace(own, ops=(da.Resize(160, max_size=200), OPS[1]), stride=1, smallest=1).predict(
        pixels_of(l_shape()), tta=da.TTA(flip=False)
    )
    assert detector.shapes == [(120, 160), (150, 200), (180, 240)]  # 80 x 60 pixels


def test_a_model_of_one_size_is_not_scaled() -> None:
    detector = FindsWhite()
    fixed = model(detector, stride=0)
    fixed.predict(pixels_of(l_shape()), tta=da.TTA())
    assert detector.shapes == [(120, 160)] * 2
    with pytest.raises(da.InputError, match=r"scales must be \(1,\) for this model, whose input has one size"):
        fixed.predict(pixels_of(l_shape()), tta=da.TTA(scales=(1, 1.2)))


class SeesEverySecond(FindsWhite):
    """Finds nothing in every second image."""

    def found(self, image: Tensor) -> dict[str, Tensor]:
        seen = super().found(image)
        rows = slice(len(self.shapes) % 2)  # the first, the third, ...
        return {name: values[rows] for name, values in seen.items()}


def test_what_half_of_the_views_find_has_half_the_score() -> None:
    (found,) = model(SeesEverySecond()).predict(pixels_of(l_shape()), tta=ALL["flip"], min_score=0)
    assert found["scores"].tolist() == [pytest.approx(0.4)]
    assert not len(model(SeesEverySecond()).predict(pixels_of(l_shape()), tta=ALL["flip"], min_score=0.41)[0]["boxes"])
    best = replace(ALL["flip"], merge="nms")
    assert model(SeesEverySecond()).predict(pixels_of(l_shape()), tta=best)[0]["scores"].tolist() == [
        pytest.approx(0.8)
    ]


def test_a_view_that_does_not_show_an_object_does_not_count() -> None:
    """The crop shows the middle 20 x 20 pixels: columns 30 to 50, without the box's center at x = 15."""
    mask = np.zeros((HEIGHT, WIDTH), bool)
    mask[10:20, 10:20] = True
    crop = da.TTA(flip=False, scales=(1,), recipes=[[da.CenterCrop(20)]])
    (found,) = model().predict(pixels_of(mask), tta=crop, min_score=0)
    assert found["scores"].tolist() == [pytest.approx(0.8)]
    mask[22:38, 32:48] = True
    mask[10:20, 10:20] = False
    (found,) = model(SeesEverySecond()).predict(pixels_of(mask), tta=crop, min_score=0)
    assert found["scores"].tolist() == [pytest.approx(0.4)]


def boxes_of_paper(boxes: np.ndarray, scores: np.ndarray, views: int, min_iou: float) -> list[list[float]]:
    """Fuse boxes of one class as section 3 of the paper says, in plain Python: rows of a score and a box."""
    lists: list[list[int]] = []
    fused: list[np.ndarray] = []
    for row in sorted(range(len(boxes)), key=lambda row: -scores[row]):
        ious = []
        for box in fused:
            w = min(box[2], boxes[row][2]) - max(box[0], boxes[row][0])
            h = min(box[3], boxes[row][3]) - max(box[1], boxes[row][1])
            inter = max(w, 0) * max(h, 0)
            areas = sum((b[2] - b[0]) * (b[3] - b[1]) for b in (box, boxes[row]))
            ious.append(inter / (areas - inter))
        if ious and max(ious) > min_iou:
            own = ious.index(max(ious))
            lists[own].append(row)
            fused[own] = sum(scores[r] * boxes[r] for r in lists[own]) / sum(scores[r] for r in lists[own])
        else:
            lists.append([row])
            fused.append(boxes[row])
    means = [np.mean([scores[r] for r in own]) * min(len(own), views) / views for own in lists]
    return sorted([mean, *box.tolist()] for mean, box in zip(means, fused, strict=True))


class Says(nn.Module):
    """Returns what it is told, for one image after the other."""

    def __init__(self, *found: dict[str, Tensor]) -> None:
        super().__init__()
        self.left = list(found)

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        return [self.left.pop(0) for _ in images]


@pytest.mark.parametrize("seed", range(4))
def test_boxes_merge_as_in_the_paper(seed: int) -> None:
    rng = np.random.default_rng(seed)
    views = []
    for count in (12, 20, 16):  # rather many boxes around few places, so that some views have several in one
        centers = rng.choice([20.0, 34, 50], (count, 2)) + rng.normal(0, 2, (count, 2))
        sides = rng.uniform(8, 16, (count, 2))
        boxes = np.concatenate([centers - sides / 2, centers + sides / 2], 1).clip(0, [80, 60] * 2)
        views.append((boxes, rng.uniform(0.1, 1, count)))
    found = [
        {"boxes": torch.tensor(boxes), "scores": torch.tensor(scores), "labels": torch.ones(len(scores)).long()}
        for boxes, scores in views
    ]
    own = replace(model(Says(*found)), ops=(da.Resize((HEIGHT, WIDTH)), OPS[1]), keypoints=None)
    tta = da.TTA(flip=False, scales=(1, 1, 1), min_iou=0.5)
    (merged,) = own.predict(np.zeros((HEIGHT, WIDTH, 3), np.uint8), tta=tta, min_score=0)
    boxes, scores = (np.concatenate(column) for column in zip(*views, strict=True))
    expected = boxes_of_paper(boxes, scores, 3, 0.5)[::-1][:20]  # as many as the view with the most has
    assert merged["scores"].tolist() == pytest.approx([row[0] for row in expected], abs=1e-5)
    assert merged["boxes"].tolist() == [pytest.approx(row[1:], abs=1e-4) for row in expected]


def test_classes_do_not_merge() -> None:
    boxes, scores = np.array([[0.0, 0, 10, 10]] * 4), np.array([0.5, 0.9, 0.7, 0.6])
    fused = fuse(boxes, scores, np.array([3, 1, 3, 1]), "wbf", 0.5)
    assert fused.labels.tolist() == [1, 3]
    assert [rows.tolist() for rows in fused.members] == [[1, 3], [2, 0]]
    assert len(fuse(boxes, scores, np.ones(4, int), "wbf", 1.0).members) == 4  # an IoU of 1 is not above 1


def test_the_mean_of_rotated_boxes_is_one_at_their_mean_angle() -> None:
    def rectangle(degrees: float, width: float, height: float) -> np.ndarray:
        angle = np.deg2rad(degrees)
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        half = np.array([[-1, -1], [1, -1], [1, 1], [-1, 1]]) * [width / 2, height / 2]
        return half @ turn.T + [50, 40]

    one, other = rectangle(10, 40, 10), rectangle(20, 30, 14)
    for changed in (other, np.roll(other, 2, 0), other[::-1], np.roll(other, 1, 0)[::-1]):
        mean = weighted_mean(np.stack([one, changed]), np.array([0.5, 0.5]))
        sides = np.roll(mean, -1, 0) - mean
        cosine = np.cos(np.deg2rad(5))
        assert np.hypot(*sides.T) == pytest.approx([35 * cosine, 12 * cosine] * 2, rel=2e-3)
        assert np.rad2deg(np.arctan2(sides[0, 1], sides[0, 0])) == pytest.approx(15, abs=0.8)
        assert (sides[0] * sides[1]).sum() == pytest.approx(0, abs=1e-9)
    only = weighted_mean(np.stack([one, other]), np.array([1.0, 0]))
    assert only == pytest.approx(one, abs=1e-6)


def test_masks_are_those_of_most_views_by_score() -> None:
    """Three views have the L with 0.3, 0.3 and 0.5: what the last has alone stays out, what it lacks alone stays in."""
    other = l_shape()
    other[6:14, 10:18], other[40:44, 60:64] = False, True
    found = [
        {
            "boxes": torch.tensor([BOX]).float(),
            "scores": torch.tensor([score]),
            "labels": torch.tensor([1]),
            "masks": torch.from_numpy(mask)[None, None].float(),
        }
        for mask, score in ((l_shape(), 0.3), (l_shape(), 0.3), (other, 0.5))
    ]
    own = replace(model(Says(*found)), ops=(da.Resize((HEIGHT, WIDTH)), OPS[1]))
    tta = da.TTA(flip=False, scales=(1, 1, 1))
    (merged,) = own.predict(np.zeros((HEIGHT, WIDTH, 3), np.uint8), tta=tta, min_score=0)
    assert (merged["masks"][0].numpy() == l_shape()).all()


def test_boxes_end_at_the_edges_of_the_image() -> None:
    box = {"boxes": torch.tensor([[-9.0, -9, 999, 999]]), "scores": torch.ones(1), "labels": torch.tensor([1])}
    (merged,) = model(Says(box, box)).predict(np.zeros((HEIGHT, WIDTH, 3), np.uint8), tta=ALL["flip"])
    assert merged["boxes"].tolist() == [[0, 0, WIDTH, HEIGHT]]


@pytest.fixture
def data(tmp_path: Path) -> tuple[Path, Path]:
    """Images of two sizes, each with an L of its own."""
    images = []
    for number in range(5):
        mask = np.zeros((HEIGHT + 20 * (number % 2), WIDTH), bool)
        mask[: HEIGHT - 5, 5 + number :] = l_shape()[5:, : WIDTH - 5 - number]
        Image.fromarray(pixels_of(mask)).save(tmp_path / f"{number}.png")
        rows, columns = np.nonzero(mask)
        images.append((f"{number}.png", mask.shape, [[columns.min(), rows.min(), columns.max() + 1, rows.max() + 1]]))
    return write_coco(tmp_path, images, classes=2)


class FindsFirst(FindsWhite):
    def found(self, image: Tensor) -> dict[str, Tensor]:
        return {**super().found(image), "labels": torch.tensor([1])}


def test_over_a_dataset_with_a_loader_for_each_view(data: tuple[Path, Path]) -> None:
    own = replace(model(FindsFirst()), ops=(da.Resize(120, max_size=200), OPS[1]))
    reader = da.CocoReader(*data)
    evaluator = da.CocoEvaluator(reader)
    shown = []
    for batch, found in predicted_batches(own, reader, 2, ALL["all"]):
        evaluator.update(batch, found)
        shown += [*batch.image_id.tolist()]
        assert [tuple(each["masks"].shape[1:]) for each in found] == [*map(tuple, batch.source_size.tolist())]
    assert shown == [10, 11, 12, 13, 14]
    assert evaluator.compute().AP == 1


def test_evaluate_and_predict_files_take_it(
    data: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = replace(model(FindsFirst(), keypoints=None), class_names=("background", "class 1", "class 2"))
    monkeypatch.setattr("detaug.scoring.evaluate.load_model", lambda *_: own)
    evaluated = evaluate_model("model.pt", data[1], data[0], tta=ALL["flip"], draw=2)
    assert evaluated.metrics.AP == 1
    assert [len(one.boxes) for one in evaluated.drawn] == [1, 1]
    once = predict_files(own, [data[0]], tmp_path / "once.json")
    merged = predict_files(own, [data[0]], tmp_path / "merged.json", tta=ALL["all"])
    assert isinstance(merged, Predicted)
    assert (once.objects, merged.objects) == (5, 5)
    rows, same = (json.loads((tmp_path / f"{name}.json").read_bytes())["annotations"] for name in ("once", "merged"))
    assert [row["image_id"] for row in same] == [row["image_id"] for row in rows]
    # the images of 80 x 80 pixels are stretched to 160 x 120
    assert [row["bbox"] for row in same] == [pytest.approx(row["bbox"], abs=0.6) for row in rows]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"recipes": [[da.Resize((32, 32)), da.Mosaic()]]}, "recipes must be without ops that mix images"),
        ({"recipes": [[da.Resize((32, 32)), da.MixUp(alpha=1)]]}, "recipes must be without ops that mix images"),
        ({"recipes": [da.CLAHE()]}, "recipes must be a list of lists of ops"),
        ({"scales": ()}, "scales must be None, or a list"),
        ({"scales": (0,)}, "scales must be None, or a list"),
        ({"rotations": (45,)}, "rotations must be a list of 0, 90, 180 and 270"),
        ({"merge": "mean"}, "merge must be 'wbf' or 'nms', got 'mean'"),
        ({"min_iou": 2}, "min_iou must be in 0..1, got 2"),
        ({"flip": "yes"}, "flip must be True or False, got 'yes'"),
    ],
)
def test_wrong_arguments(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(da.InputError) as raised:
        da.TTA(**arguments)
    assert message in str(raised.value)


def test_what_cannot_be_looked_at_in_several_views(data: tuple[Path, Path]) -> None:
    batch = next(iter(da.Loader(da.CocoReader(*data), [da.Resize((32, 32))], 2, device="cpu")))
    with pytest.raises(da.InputError, match="tta must be None for a batch: give the images themselves"):
        model().predict(batch, tta=da.TTA())
    image = pixels_of(l_shape())
    with pytest.raises(da.InputError, match=r"tta must be None or a da.TTA\(...\), got True"):
        model().predict(image, tta=True)  # type: ignore[arg-type]
    with pytest.raises(da.InputError, match="tta must be left out for a model of semantic segmentation"):
        model(finds="semantic").predict(image, tta=da.TTA())
    unknown = KeyPoints(np.zeros((0, 2, 3)), [["left_hand", "left_foot"]])
    with pytest.raises(da.InputError, match="flip must be False, and recipes without flips, for this model"):
        model(keypoints=unknown).predict(image, tta=da.TTA())
    assert len(model(keypoints=unknown).predict(image, tta=da.TTA(flip=False))[0]["boxes"]) == 1
