"""Detections in tiles, merged: a perfect detector that reads painted tiles finds every object once."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import detaug, usage_error
from tiled_scenes import CLASSES, Detector, detect, write_scenes

import detaug as da
from detaug.coco.outlines import decode_counts
from detaug.evaluation import pycoco
from detaug.training.predict import TrainedModel

Scenes = tuple[Path, Path]
KINDS = {"bbox": "bbox", "segm": "segmentation", "keypoints": "keypoints", "rotated": "corners"}


@pytest.fixture(scope="module")
def scenes(tmp_path_factory: pytest.TempPathFactory) -> Scenes:
    return write_scenes(tmp_path_factory.mktemp("scenes"), [(400, 560), (300, 330), (200, 230)], objects=12, largest=38)


def find(
    scenes: Scenes, kind: Any, size: int, source: str, **evaluation: Any
) -> tuple[da.CocoEvaluator[Any], list[dict[str, Any]]]:
    """Detect, merge, and return the evaluator and the rows that it saves."""
    folder, annotations = scenes
    out = annotations.parent / f"tiles of {size}"
    tiles: Any
    if source == "command":
        if not out.exists():
            da.tile_coco(annotations, folder, out, size=size)
        tiles = out / "scenes.json"
        loaded: da.Source = da.CocoReader(out / "images", tiles)
    else:
        tiles = loaded = da.TileReader(da.CocoReader(folder, annotations), size)
    evaluator = da.CocoEvaluator(annotations, kind, tiles=tiles, **evaluation)
    recipe = [da.Resize((size, size)), da.Normalize(dtype="uint8")]
    for batch in da.Loader(loaded, recipe, batch_size=4, train=False, device="cpu"):
        evaluator.update(batch, detect(batch))
    target = annotations.parent / f"{kind} {source}.json"
    evaluator.save(target)
    return evaluator, json.loads(target.read_text())


@pytest.mark.parametrize(("kind", "source"), [*((kind, "reader") for kind in KINDS), ("segm", "command")])
def test_every_object_is_found_once(scenes: Scenes, kind: str, source: str) -> None:
    evaluator, rows = find(scenes, kind, 200, source)
    check_all_found(json.loads(scenes[1].read_text())["annotations"], rows, kind)
    assert pytest.approx(1) == evaluator.compute().AP


def check_all_found(objects: list[dict[str, Any]], rows: list[dict[str, Any]], kind: str) -> None:
    """Each object has one detection, in its place."""
    assert len(rows) == len(objects)
    for item in objects:
        key = KINDS[kind]
        mine = [row for row in rows if row["image_id"] == item["image_id"] and is_same(row[key], item[key], key)]
        assert [row["category_id"] for row in mine] == [item["category_id"]], item


def is_same(found: Any, wanted: Any, key: str) -> bool:
    if key != "segmentation":
        return bool(np.abs(np.ravel(found) - np.ravel(wanted))[[0, 1, 3, 4] if key == "keypoints" else ...].max() < 0.1)
    return found["size"] == wanted["size"] and np.array_equal(
        without_zeros(decode_counts(found["counts"])), without_zeros(wanted["counts"])
    )


def without_zeros(counts: Any) -> list[int]:
    """Return RLE without one of 0 at the end, which a mask at the last pixel may have."""
    return [*map(int, counts)][: len(counts) - (counts[-1] == 0)]


@pytest.mark.slow
def test_every_object_of_a_large_picture_is_found_once(tmp_path: Path) -> None:
    folder, annotations = write_scenes(tmp_path, [(3000, 4000)], objects=300, largest=100)
    tiles = da.TileReader(da.CocoReader(folder, annotations), 512)
    evaluators = {
        kind: da.CocoEvaluator(annotations, kind, tiles=tiles, max_detections=None if kind == "rotated" else 300)  # type: ignore[call-overload]
        for kind in KINDS
    }
    recipe = [da.Resize((512, 512)), da.Normalize(dtype="uint8")]
    for batch in da.Loader(tiles, recipe, batch_size=4, train=False, device="cpu"):
        found = detect(batch)
        for evaluator in evaluators.values():
            evaluator.update(batch, found)
    for kind, evaluator in evaluators.items():
        evaluator.save(tmp_path / "found.json")
        rows = json.loads((tmp_path / "found.json").read_text())
        check_all_found(json.loads(annotations.read_text())["annotations"], rows, kind)
        assert pytest.approx(1) == evaluator.compute().AP


def test_nms_alone_would_leave_parts_of_objects(scenes: Scenes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("detaug.evaluation.merging._without_covered", lambda where, *_: np.arange(len(where.boxes)))
    _, rows = find(scenes, "bbox", 200, "reader")
    assert len(rows) > len(json.loads(scenes[1].read_text())["annotations"])


@pytest.mark.parametrize("engine", ["pycocotools", "ultrafast"])
def test_more_than_100_detections_count_by_choice(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if engine == "pycocotools":
        monkeypatch.setattr(pycoco, "_module", lambda name: None)
    scenes = write_scenes(tmp_path, [(400, 500)], objects=130, largest=12)
    document = json.loads(scenes[1].read_text())
    for each in document["annotations"]:
        each["category_id"] = 10
    scenes[1].write_text(json.dumps(document))
    reader = da.CocoReader(*scenes)
    scores = []
    for most in (None, 100, 200):
        evaluator = da.CocoEvaluator(reader, max_detections=most)
        for batch in da.Loader(reader, da.presets.evaluation((400, 500)), batch_size=1, train=False, device="cpu"):
            evaluator.update(batch, [{**each, "scores": torch.ones(130)} for each in batch.targets()])
        scores.append(evaluator.compute())
    assert scores[0] == scores[1]
    assert scores[1].AP < 0.8
    assert scores[1].AR100 == scores[2].AR100 == pytest.approx(100 / 130)
    assert (scores[2].AP, scores[2].APs, scores[2].ARs) == (pytest.approx(1),) * 3


def boxes(*values: tuple[float, ...], scores: float | tuple[float, ...] = 0.9) -> dict[str, torch.Tensor]:
    count = len(values)
    each = torch.tensor(scores if isinstance(scores, tuple) else [scores] * count)
    return {
        "boxes": torch.tensor(values).reshape(-1, 4),
        "scores": each,
        "labels": torch.ones(count, dtype=torch.int64),
    }


WINDOWS = [(0, 0, 100, 100), (80, 0, 100, 100)]


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [
        ([(70, 10, 100, 40)], [(0, 10, 15, 40)], [(70, 10, 100, 40)]),  # reaches to 95 only: whole in the first
        ([(90, 10, 100, 40)], [(10, 10, 40, 40)], [(90, 10, 120, 40)]),
        ([(10, 10, 100, 40)], [(0, 10, 60, 40)], [(10, 10, 100, 40), (80, 10, 140, 40)]),  # whole in none: both parts
        ([(60, 0, 98, 60), (80, 9, 100, 30)], [], [(60, 0, 98, 60), (80, 9, 100, 30)]),  # in one tile: its own decision
        ([(85, 9, 95, 30), (86, 9, 96, 30)], [(5, 9, 15, 30), (6, 9, 16, 30)], [(85, 9, 95, 30), (86, 9, 96, 30)]),
    ],
)  # fmt: skip
def test_what_merging_leaves(left: Any, right: Any, expected: Any) -> None:
    found = da.merge_tiles([boxes(*left), boxes(*right, scores=0.8)], WINDOWS, (100, 180))
    assert sorted(map(tuple, found["boxes"].tolist())) == expected


def test_a_box_of_a_low_score_replaces_no_part() -> None:
    left, right = boxes((90, 10, 100, 40)), boxes((0, 0, 60, 60), scores=0.1)
    assert len(da.merge_tiles([left, right], WINDOWS, (100, 180))["boxes"]) == 2


def test_boxes_of_other_classes_stay() -> None:
    left, right = boxes((85, 10, 95, 30)), boxes((5, 10, 15, 30))
    right["labels"] += 1
    assert len(da.merge_tiles([left, right], WINDOWS, (100, 180))["boxes"]) == 2


def test_key_points_and_corners_come_along() -> None:
    left, right = boxes(), boxes((10, 10, 40, 40))
    for each in (left, right):
        each["keypoints"] = torch.full((len(each["scores"]), 1, 3), 1.0)
        each["corners"] = torch.zeros(len(each["scores"]), 4, 2)
    found = da.merge_tiles([left, right], WINDOWS, (100, 180))
    assert found["keypoints"].tolist() == [[[81, 1, 1]]]
    assert found["corners"][0, 0].tolist() == [80, 0]


def ship(x: float, y: float) -> torch.Tensor:
    """Return the corners (4, 2) of a slim box on a diagonal, 64 x 64 pixels as a whole."""
    return torch.tensor([[0.0, 4], [4, 0], [64, 60], [60, 64]]) + torch.tensor([x, y])


@pytest.mark.parametrize("with_boxes", [True, False])
@pytest.mark.parametrize("x", [70.0, 135.5])
def test_slim_neighbours_on_a_diagonal_stay(x: float, with_boxes: bool) -> None:
    """The boxes around them overlap, and one ends at an edge of its tile; they do not touch each other."""
    tiles = []
    for window, corners in ((0, ship(x, 70)), (50, ship(x - 6, 76))):
        moved = (corners - torch.tensor([window, 0.0]))[None]
        each = {"corners": moved, "scores": torch.tensor([0.9]), "labels": torch.ones(1, dtype=torch.int64)}
        tiles.append(each | ({"boxes": torch.cat([moved.amin(1), moved.amax(1)], 1)} if with_boxes else {}))
    found = da.merge_tiles(tiles, [(0, 0, 200, 200), (50, 0, 200, 200)], (200, 250))
    assert ("boxes" in found) == with_boxes
    assert sorted(found["corners"][:, 0, 0].tolist()) == [x - 6, x]
    tiles[1]["corners"] = tiles[0]["corners"] - torch.tensor([50.0, 0])
    assert len(da.merge_tiles(tiles, [(0, 0, 200, 200), (50, 0, 200, 200)], (200, 250))["scores"]) == 1


def test_tiles_that_lack_what_others_have_are_refused() -> None:
    left, right = boxes((10, 10, 40, 40)), boxes((10, 10, 40, 40))
    with pytest.raises(da.InputError, match="keypoints if some have"):
        da.merge_tiles([left | {"keypoints": torch.zeros(1, 2, 3)}, right], WINDOWS, (100, 180))
    for each in (left, right):
        del each["boxes"]
    with pytest.raises(da.InputError, match="must all have boxes or corners"):
        da.merge_tiles([left, right], WINDOWS, (100, 180))


def test_tiles_at_another_scale() -> None:
    """The second tile shows the whole source image, of 180 x 100, at half its size."""
    part, whole = boxes((10, 10, 40, 40)), boxes((5, 5, 20, 20), (50, 5, 85, 45), scores=(0.8, 0.7))
    for each in (part, whole):
        each["keypoints"] = torch.cat([each["boxes"][:, None, :2], torch.ones(len(each["boxes"]), 1, 1)], 2)
    windows = [(0, 0, 100, 100), (0, 0, 180, 100)]
    for size in ((100, 180), np.array([100, 180]), torch.Size([100, 180])):
        found = da.merge_tiles([part, whole], windows, size, sizes=[(100, 100), (50, 90)])
        assert found["boxes"].tolist() == [[10, 10, 40, 40], [100, 10, 170, 90]]
        assert found["keypoints"].tolist() == [[[10, 10, 1]], [[100, 10, 1]]]


@pytest.mark.parametrize(
    ("tiles", "size", "sizes", "message"),
    [
        (0, (100, 180), None, "predictions must be of at least one tile"),
        (2, 100, None, r"size must be \(height, width\) of the source image, got 100"),
        (2, (100, 180), [(100, 100)], r"sizes must be of shape \(2, 2\), above 0"),
        (2, (100, 180), [(100, 100), (0, 9)], r"sizes must be of shape \(2, 2\), above 0"),
    ],
)
def test_arguments_that_do_not_fit(tiles: int, size: Any, sizes: Any, message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        da.merge_tiles([boxes()] * tiles, np.reshape(WINDOWS[:tiles], (-1, 4)), size, sizes=sizes)


def test_a_whole_picture_finds_what_is_larger_than_the_overlap(tmp_path: Path) -> None:
    folder, annotations = write_scenes(tmp_path, [(300, 400)], objects=1, largest=12)
    document = json.loads(annotations.read_text())
    document["annotations"] = [
        {"id": 1, "image_id": 50, "category_id": 10, "bbox": [20, 40, 300, 200], "iscrowd": 0, "area": 60000}
    ]
    annotations.write_text(json.dumps(document))
    for whole, count in ((None, 6), (200, 1)):
        tiles = da.TileReader(da.CocoReader(folder, annotations), 150, 0.3, whole=whole, min_visibility=0.2)
        evaluator = da.CocoEvaluator(annotations, tiles=tiles)
        for batch in da.Loader(tiles, da.presets.evaluation((300, 300)), batch_size=4, train=False, device="cpu"):
            targets = [{**each, "scores": torch.full((len(each["labels"]),), 0.9)} for each in batch.targets()]
            evaluator.update(batch, targets)
        evaluator.save(tmp_path / "found.json")
        found = json.loads((tmp_path / "found.json").read_text())
        assert len(found) == count or (whole is None and len(found) > 1)
    assert np.abs(np.subtract(found[0]["bbox"], [20, 40, 300, 200])).max() < 0.1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("empty", "cut them with empty=1"),
        ("other", "an image with id 50 that"),
        ("no tiles", "has no tile_of and window; give the JSON file that detaug tile wrote"),
    ],
)
def test_tiles_that_do_not_fit_are_refused(scenes: Scenes, change: str, message: str, tmp_path: Path) -> None:
    folder, annotations = scenes
    reader, tiles = da.CocoReader(folder, annotations), annotations
    if change == "empty":
        tiles = da.TileReader(reader, 64, empty=0)  # type: ignore[assignment]
    if change == "other":
        tiles = da.TileReader(reader, 200)  # type: ignore[assignment]
        document = json.loads(annotations.read_text())
        document["images"] = document["images"][1:]
        document["annotations"] = [each for each in document["annotations"] if each["image_id"] != 50]
        annotations = tmp_path / "others.json"
        annotations.write_text(json.dumps(document))
    with pytest.raises(da.InputError, match=message):
        da.CocoEvaluator(annotations, tiles=tiles)


def test_missing_tiles_are_an_error(scenes: Scenes) -> None:
    tiles = da.TileReader(da.CocoReader(*scenes), 200)
    evaluator = da.CocoEvaluator(scenes[1], tiles=tiles)
    recipe = [da.Resize((200, 200)), da.Normalize(dtype="uint8")]
    batch = next(iter(da.Loader(tiles, recipe, batch_size=2, train=False, device="cpu")))
    evaluator.update(batch, detect(batch))
    with pytest.raises(da.InputError, match=rf"{len(tiles) - 2} of {len(tiles)} tiles of the images of .* image_id 3"):
        evaluator.compute()
    assert evaluator.compute(partial=True).images == 1
    with pytest.raises(da.InputError, match="make the evaluator without tiles"):
        evaluator.load(scenes[1])


def test_saved_detections_and_errors_are_those_of_the_pictures(scenes: Scenes) -> None:
    evaluator, rows = find(scenes, "bbox", 200, "reader")
    again = da.CocoEvaluator(scenes[1]).load(scenes[1].parent / "bbox reader.json")
    assert {image: len(each.scores) for image, each in evaluator.detections.items()} == {50: 12, 51: 12, 52: 12}
    assert again.compute() == evaluator.compute()
    assert str(evaluator.errors(min_score=0.5)) == str(again.errors(min_score=0.5))
    assert len(rows) == 36


def test_the_command_evaluates_in_tiles(scenes: Scenes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = (da.Resize((200, 200)), da.Normalize((0, 0, 0), (1, 1, 1)))
    model = TrainedModel(Detector(), recipe, ("background", *CLASSES), torch.device("cpu"))
    monkeypatch.setattr("detaug.scoring.evaluate.load_model", lambda *_: model)
    order = ("evaluate", scenes[1], scenes[0], "--model", tmp_path / "model.pt", "--device", "cpu", "-q")
    report, found = tmp_path / "report.json", tmp_path / "found.json"
    code, _, error = detaug(*order, "--tile", 200, "--max-detections", 200, "--report", report, "-o", found)
    assert (code, error) == (0, "")
    check_all_found(json.loads(scenes[1].read_text())["annotations"], json.loads(found.read_text()), "bbox")
    assert json.loads(report.read_text())["metrics"]["bbox"]["AP"] == pytest.approx(1)
    assert "--tile is for --model" in usage_error(*order[:3], "--detections", found, "--tile", 200)


@pytest.mark.parametrize("axis", [0, 1])
def test_merging_by_hand(axis: int) -> None:
    """Along x and along y: an IoU of the threshold stays, a box a little before an edge is cut, scales differ."""
    order = [0, 1, 2, 3] if axis == 0 else [1, 0, 3, 2]

    def merged(boxes: list[list[float]], windows: list[list[int]], **options: Any) -> list[list[float]]:
        found = [
            {"boxes": torch.tensor([each])[:, order], "scores": torch.tensor([0.9 - 0.1 * at]), "labels": torch.ones(1)}
            for at, each in enumerate(boxes)
        ]
        frames, size = np.array(windows)[:, order], (100, 150) if axis == 0 else (150, 100)
        return da.merge_tiles(found, frames, size, **options)["boxes"][:, order].tolist()

    tiles = [[0, 0, 100, 100], [50, 0, 100, 100]]
    same = [[60.0, 20, 80, 40], [10.0, 20, 30, 30]]  # the second one is half of the first
    assert merged(same, tiles, min_iou=0.5) == [[60, 20, 80, 40], [60, 20, 80, 30]]
    assert merged(same, tiles, min_iou=0.49) == [[60, 20, 80, 40]]
    cut = [[60.0, 20, 99.1, 40], [10.0, 20, 90, 40]]  # their IoU is 0.49
    assert merged(cut, tiles) == [[60, 20, 140, 40]]
    assert len(merged([[60.0, 20, 98.9, 40], [10.0, 20, 90, 40]], tiles)) == 2
    sizes = np.array([[50, 100], [100, 25]])[:, :: 1 if axis == 0 else -1]  # height, width
    scaled = merged([[10.0, 10, 20, 20], [10.0, 60, 20, 70]], tiles, sizes=sizes)
    assert scaled == [[10, 20, 20, 40], [90, 60, 130, 70]]
