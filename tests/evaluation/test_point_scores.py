"""Scores of keypoints are pycocotools', and those of rotated boxes per second implementation's with Shapely."""

from __future__ import annotations

import io
import json
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from disc_files import paint_discs, write_discs
from numpy.typing import NDArray
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from seeds import seeds
from test_evaluator import blank_batch
from test_rotated_boxes import random_rectangles, rectangle, write_quadrangles

import detaug as da
from detaug.evaluation.rotated import iou_of_quadrangles

BLACK = (0.0, 0.0, 0.0)
NAMES = ("AP", "AP50", "AP75", "APm", "APl", "AR", "AR50", "AR75", "ARm", "ARl")
Pixels = NDArray[np.float64]

RECIPES: dict[str, list[da.Op]] = {
    "letterbox": [da.Resize((200, 260), letterbox="center")],
    "stretched": [da.Resize((200, 260))],
    "flipped": [da.RandomHorizontalFlip(p=1), da.Resize((300, 300))],
    "turned": [da.RandomRotation((30, 30), expand=True, fill=BLACK), da.Resize((300, 300))],
    "perspective": [da.RandomPerspective(distortion_scale=0.3, p=1, fill=BLACK), da.Resize((300, 300))],
}


def perfect(batch: da.Batch, key: str) -> list[dict[str, torch.Tensor]]:
    values = getattr(batch, key)
    return [
        {key: values[at, :count], "labels": batch.labels[at, :count], "scores": torch.ones(count)}
        for at, count in enumerate(batch.counts)
    ]


# --------------------------------------------------------------------------------------------- keypoints


@pytest.mark.parametrize("recipe", RECIPES)
def test_key_points_scored_against_themselves(recipe: str, tmp_path: Path, device: str) -> None:
    path = write_discs(tmp_path, paint_discs(8))
    reader = da.CocoReader(tmp_path, path, keypoints=True)
    evaluator, off = (da.CocoEvaluator(reader, kind="keypoints") for _ in range(2))
    for batch in da.Loader(reader, RECIPES[recipe], 4, device=device, train=False):
        found = perfect(batch, "keypoints")
        everything = [each for each in found if len(each["labels"])]
        assert all((each["keypoints"][..., 2] > 0).all() for each in everything) or recipe == "perspective"
        found = [{**each, "scores": each["scores"].to(device)} for each in found]
        evaluator.update(batch, found)
        swapped = [{**each, "keypoints": each["keypoints"][:, [1, 0, 2], :2]} for each in found]
        off.update(batch, swapped)
    metrics = evaluator.compute()
    assert metrics.AP > 0.999 if recipe != "perspective" else metrics.AP50 > 0.9
    assert metrics.images == 8
    assert off.compute().AP < 0.2  # left and right are two different points
    evaluator.save(tmp_path / "results.json")
    if recipe == "perspective":
        return
    rows = json.loads((tmp_path / "results.json").read_text())
    truth = json.loads(path.read_text())["annotations"]
    assert len(rows) == len(truth)
    moved = np.array([row["keypoints"] for row in rows]) - np.array([each["keypoints"] for each in truth])
    assert abs(moved.reshape(-1, 3, 3)[..., :2]).max() < 1e-3


def write_people(path: Path, seed: int, points: int, *, categories: int = 1) -> tuple[list[int], list[dict[str, Any]]]:
    """Write 20 images with objects, and return their ids and predictions, half of them near an object."""
    rng = np.random.default_rng(seed)
    ids = [int(each) for each in rng.permutation(500)[:20]]
    names = [f"point {at}" for at in range(points)]
    content: dict[str, Any] = {"images": [], "annotations": []}
    content["categories"] = [{"id": at, "name": f"c{at}", "keypoints": names} for at in range(1, categories + 1)]
    predictions = []
    for image_id in ids:
        content["images"].append({"id": image_id, "file_name": f"{image_id}.png", "width": 640, "height": 480})
        centers, sizes = rng.uniform(100, 380, (rng.integers(0, 5), 2)), rng.uniform(20, 190, 5)
        found = []
        for center, size in zip(centers, sizes, strict=False):
            xy = (center + rng.uniform(-size / 2, size / 2, (points, 2))).round(2)
            visible = rng.integers(0, 3, points) if rng.random() < 0.8 else np.zeros(points)
            annotation = {"id": len(content["annotations"]) + 1, "image_id": image_id}
            annotation |= {"category_id": int(rng.integers(1, categories + 1)), "iscrowd": int(rng.random() < 0.1)}
            box = [*(center - size / 2).tolist(), float(size), float(size)]
            keypoints = np.where(visible[:, None] > 0, np.concatenate([xy, visible[:, None]], 1), 0)
            annotation |= {"bbox": box, "area": float(size**2 * rng.uniform(0.3, 1))}
            annotation |= {"num_keypoints": int((visible > 0).sum()), "keypoints": keypoints.ravel().tolist()}
            content["annotations"].append(annotation)
            found += [xy + 0.5 + rng.normal(0, size / 20, xy.shape) for _ in range(rng.integers(0, 3))]
        found += [rng.uniform(0, 400, (points, 2)) for _ in range(rng.integers(0, 4))]
        predictions.append(
            {
                "keypoints": torch.tensor(np.array(found).reshape(-1, points, 2), dtype=torch.float64),
                "scores": torch.tensor(rng.integers(1, 30, len(found)) / 32),
                "labels": torch.tensor(rng.integers(1, categories + 1, len(found))),
            }
        )
    path.write_text(json.dumps(content))
    return ids, predictions


def by_hand(truth: Path, results: Path, sigmas: list[float] | None) -> list[float]:
    with redirect_stdout(io.StringIO()):
        coco = COCO(truth)
        scoring = COCOeval(coco, coco.loadRes(str(results)), "keypoints")
        if sigmas is not None:
            scoring.params.kpt_oks_sigmas = np.array(sigmas)
        scoring.evaluate()
        scoring.accumulate()
        scoring.summarize()
    return [float(each) for each in scoring.stats]


CASES: list[tuple[int, int, list[float] | None, list[float] | None]] = [
    (17, 1, None, None),
    (5, 2, None, [0.05] * 5),
    (4, 1, [0.02, 0.05, 0.1, 0.2], [0.02, 0.05, 0.1, 0.2]),
]


@pytest.mark.parametrize("seed", seeds(2, 30))
@pytest.mark.parametrize(("points", "categories", "sigmas", "used"), CASES)
def test_key_points_score_as_in_pycocotools(
    points: int,
    categories: int,
    sigmas: list[float] | None,
    used: list[float] | None,
    seed: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    path = tmp_path / "people.json"
    ids, predictions = write_people(path, seed, points, categories=categories)
    evaluator = da.CocoEvaluator(path, kind="keypoints", sigmas=sigmas)
    evaluator.update(blank_batch(ids, size=(480, 640)), predictions)
    evaluator.save(tmp_path / "results.json")
    expected = by_hand(path, tmp_path / "results.json", used)
    for engine in ("the installed one", "pycocotools"):
        metrics = evaluator.compute()
        assert [getattr(metrics, name) for name in NAMES] == expected, engine
        monkeypatch.setitem(sys.modules, "ultrafast_pycocotools", None)
    assert 0 < expected[0] < 1
    assert str(metrics).startswith(f"AP {metrics.AP:.3f}  AP50")


def test_a_json_without_areas_and_counts_of_points(tmp_path: Path) -> None:
    path = tmp_path / "people.json"
    ids, _ = write_people(path, 0, 4)
    content = json.loads(path.read_text())
    for each in content["annotations"]:
        del each["num_keypoints"], each["area"]
    del content["annotations"][0]["keypoints"]
    path.write_text(json.dumps(content))
    labelled = [each for each in content["annotations"] if any(each.get("keypoints", ())[2::3])]
    truth = {at: [each for each in labelled if each["image_id"] == at] for at in ids}
    found = [
        {
            "keypoints": torch.tensor([each["keypoints"] for each in truth[at]], dtype=torch.float64).reshape(-1, 4, 3)[
                ..., :2
            ]
            + 0.5,
            "scores": torch.ones(len(truth[at])),
            "labels": torch.ones(len(truth[at]), dtype=torch.int64),
        }
        for at in ids
    ]
    evaluator = da.CocoEvaluator(path, kind="keypoints")
    evaluator.update(blank_batch(ids, size=(480, 640)), found)
    assert pytest.approx(1) == evaluator.compute().AP


def test_mirrored_images_need_to_know_what_changes_places(tmp_path: Path) -> None:
    path = write_discs(tmp_path, paint_discs(4))
    recipe = RECIPES["flipped"]
    (knows,) = da.Loader(da.CocoReader(tmp_path, path, keypoints=True), recipe, 4, device="cpu", train=False)
    (batch,) = da.Loader(da.CocoReader(tmp_path, path), recipe, 4, device="cpu", train=False)
    evaluator = da.CocoEvaluator(path, kind="keypoints")
    with pytest.raises(da.InputError, match=r"CocoReader\(\.\.\., keypoints=True\), or leave flips out"):
        evaluator.update(batch, perfect(knows, "keypoints"))
    evaluator.update(knows, perfect(knows, "keypoints"))
    assert pytest.approx(1) == evaluator.compute().AP


def test_points_of_mixed_images_are_refused(tmp_path: Path) -> None:
    path = write_discs(tmp_path, paint_discs(4))
    reader = da.CocoReader(tmp_path, path, keypoints=True)
    (batch,) = da.Loader(reader, [da.Resize((300, 300)), da.Mosaic(p=1)], 4, device="cpu")
    with pytest.raises(da.InputError, match="where a point lies in its source is not known: evaluate without Mosaic"):
        batch.points_to_source(batch.keypoints[..., :2])


def test_points_to_source_undoes_the_batch(tmp_path: Path, device: str) -> None:
    discs = paint_discs(6)
    reader = da.CocoReader(tmp_path, write_discs(tmp_path, discs), keypoints=True)
    (batch,) = da.Loader(reader, RECIPES["turned"], 6, device=device, train=False)
    moved = batch.points_to_source(batch.keypoints[..., :2])
    lists = [each[:count, :, :2] for each, count in zip(batch.keypoints, batch.counts, strict=True)]
    as_list = batch.points_to_source(lists)
    for at, points in enumerate(discs.points):
        assert np.abs(moved[at, : len(points)].cpu().numpy() - points).max() < 1e-3
        assert torch.equal(moved[at, : len(points)], as_list[at])


# ------------------------------------------------------------------------------------------ rotated boxes


@pytest.mark.parametrize("recipe", RECIPES)
def test_rotated_boxes_scored_against_themselves(recipe: str, tmp_path: Path, device: str) -> None:
    corners = random_rectangles(np.random.default_rng(0), 8)
    reader = da.CocoReader(tmp_path, write_quadrangles(tmp_path, corners, "segmentation"), rotated=True)
    evaluator, off = (da.CocoEvaluator(reader, kind="rotated") for _ in range(2))
    for batch in da.Loader(reader, RECIPES[recipe], 4, device=device, train=False):
        found = perfect(batch, "corners")
        evaluator.update(batch, found)
        off.update(batch, [{**each, "corners": each["corners"].roll(1, -1)} for each in found])
    metrics = evaluator.compute()
    assert (metrics.AP, metrics.AP50, metrics.AP75, metrics.images) == (1, 1, 1, 8)
    assert metrics.AP50_by_class == {"ship": 1}
    assert off.compute().AP50 < 0.5
    evaluator.save(tmp_path / "results.json")
    rows = json.loads((tmp_path / "results.json").read_text())
    assert np.abs(np.array([row["corners"] for row in rows]) - corners).max() < 1e-3


def quadrangles(rng: np.random.Generator, n: int, kind: str) -> Pixels:
    """Return (n, 4, 2) in a square of 100: rectangles, others without a dent, or some with one."""
    if kind == "rectangles":
        made = [rectangle(rng.uniform(20, 80, 2), *rng.uniform(5, 60, 2), rng.uniform(0, 7)) for _ in range(n)]
    else:
        angles = np.sort(rng.uniform(0, 2 * np.pi, (n, 4)), axis=1)
        radius = rng.uniform(5, 40, (n, 4 if kind == "concave" else 1))
        around = np.stack([np.cos(angles), np.sin(angles)], 2) * radius[..., None]
        made = list(rng.uniform(30, 70, (n, 1, 2)) + around)
    return np.stack([each[::-1] if rng.random() < 0.5 else each for each in made])


@pytest.mark.parametrize("kind", ["rectangles", "convex", "concave"])
def test_the_iou_of_quadrangles_is_shapelys(kind: str) -> None:
    shapely = pytest.importorskip("shapely")
    rng = np.random.default_rng(1)
    one, other = quadrangles(rng, 60, kind), quadrangles(rng, 50, kind)
    shapes = [shapely.polygons(each) for each in (one, other)]
    valid = shapely.is_valid(shapes[0])[:, None] & shapely.is_valid(shapes[1])
    shapes = [np.where(shapely.is_valid(each), each, shapely.box(0, 0, 1, 1)) for each in shapes]
    shared = shapely.area(shapely.intersection(shapes[0][:, None], shapes[1]))
    expected = shared / (shapely.area(shapes[0])[:, None] + shapely.area(shapes[1]) - shared)
    assert valid.mean() > 0.7
    assert (expected > 0).mean() > 0.3
    assert np.abs(iou_of_quadrangles(one, other) - expected)[valid].max() < 1e-9


def test_the_iou_of_quadrangles_that_touch_and_coincide() -> None:
    rng = np.random.default_rng(2)
    shapes = quadrangles(rng, 40, "rectangles") + 1e5
    same = [shapes, shapes[:, ::-1], np.roll(shapes, 1, axis=1), shapes.astype(np.float32).astype(float)]
    for at, each in enumerate(same):
        iou = np.diag(iou_of_quadrangles(shapes, each))
        assert iou.min() > (1 - 1e-9 if at < 3 else 0.99)
        assert iou.max() <= 1
    square = rectangle((10, 10), 10, 10, 0)
    beside, half = np.add(square, (10, 0)), np.add(square, (5, 0))
    assert iou_of_quadrangles(square[None], np.stack([beside, half, square * 0])).tolist() == [[0, 1 / 3, 0]]
    assert iou_of_quadrangles(np.zeros((0, 4, 2)), square[None]).shape == (0, 1)


def second_ap(
    truth: dict[int, list[dict[str, Any]]],
    found: dict[int, list[tuple[float, Any]]],
    threshold: float,
    *,
    voc2007: bool,
) -> float:
    """Score one class by DOTA_devkit's description of its rule, one detection at a time."""
    shapely = pytest.importorskip("shapely")
    positives = sum(not each["difficult"] for objects in truth.values() for each in objects)
    order = sorted(((score, at, shape) for at, each in found.items() for score, shape in each), key=lambda one: -one[0])
    taken, right, wrong, curve = set(), 0, 0, []
    for _, at, shape in order:
        best, overlap = None, 0.0
        for number, each in enumerate(truth[at]):
            polygon = shapely.Polygon(each["corners"])
            shared = shape.intersection(polygon).area
            iou = shared / (shape.area + polygon.area - shared)
            best, overlap = (number, iou) if iou > overlap else (best, overlap)
        if best is not None and overlap > threshold:
            if truth[at][best]["difficult"]:
                continue
            right, wrong = (right, wrong + 1) if (at, best) in taken else (right + 1, wrong)
            taken.add((at, best))
        else:
            wrong += 1
        curve.append((right / positives, right / (right + wrong)))
    if voc2007:
        levels = [tenth / 10 for tenth in range(11)]
        return sum(max((p for r, p in curve if r >= level - 1e-12), default=0) for level in levels) / 11
    recalls = [0.0, *(r for r, _ in curve)]
    steps = [(recalls[at + 1] - recalls[at], max(p for _, p in curve[at:])) for at in range(len(curve))]
    return sum(width * height for width, height in steps)


@pytest.mark.parametrize("seed", seeds(2, 30))
def test_rotated_ap_is_that_of_a_second_implementation(seed: int, tmp_path: Path) -> None:
    shapely = pytest.importorskip("shapely")
    rng = np.random.default_rng(seed)
    ids = [3, 1, 8, 5]
    content: dict[str, Any] = {"images": [], "annotations": [], "categories": [{"id": 4, "name": "ship"}]}
    truth: dict[int, list[dict[str, Any]]] = {}
    found: dict[int, list[tuple[float, Any]]] = {}
    scores = iter(rng.permutation(1000) / 1000)
    predictions = []
    for image_id in ids:
        content["images"].append({"id": image_id, "file_name": f"{image_id}.png", "width": 100, "height": 100})
        objects = quadrangles(rng, 6, "rectangles") / 1.5
        truth[image_id] = []
        for corners in objects:
            low, high = corners.min(0).clip(0, 99), corners.max(0).clip(1, 100)
            entry = {"id": len(content["annotations"]) + 1, "image_id": image_id, "category_id": 4}
            entry |= {"bbox": [*low.tolist(), *(high - low).tolist()], "corners": corners.tolist()}
            entry |= {"difficult": int(rng.random() < 0.25)}
            content["annotations"].append(entry)
            truth[image_id].append(entry)
        near = objects[rng.integers(0, 6, 12)]
        shapes = np.concatenate(
            [near + rng.normal(0, 2, (12, 1, 2)) + rng.normal(0, 0.3, near.shape), quadrangles(rng, 2, "convex")]
        )
        shapes = np.concatenate([shapes, objects[:1]])
        own = [float(next(scores)) for _ in shapes]
        found[image_id] = [(score, shapely.Polygon(each)) for score, each in zip(own, shapes, strict=True)]
        predictions.append(
            {
                "corners": torch.tensor(shapes),
                "scores": torch.tensor(own, dtype=torch.float64),
                "labels": torch.ones(len(shapes), dtype=torch.int64),
            }
        )
    path = tmp_path / "ships.json"
    path.write_text(json.dumps(content))
    evaluator = da.CocoEvaluator(path, kind="rotated")
    evaluator.update(blank_batch(ids, size=(100, 100)), predictions)
    for voc2007 in (False, True):
        metrics = evaluator.compute(voc2007=voc2007)
        expected = [second_ap(truth, found, at / 100, voc2007=voc2007) for at in range(50, 100, 5)]
        assert 0 < expected[0] < 1
        assert metrics.AP50 == metrics.AP50_by_class["ship"] == pytest.approx(expected[0], abs=1e-9)
        assert pytest.approx(expected[5], abs=1e-9) == metrics.AP75
        assert pytest.approx(np.mean(expected), abs=1e-9) == metrics.AP


# --------------------------------------------------------------------------------------------- wrong input


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"kind": "boxes"}, "kind must be one of 'bbox', 'segm', 'keypoints', 'rotated', got 'boxes'"),
        ({"sigmas": [0.1]}, "sigmas are for kind='keypoints', got kind='bbox'"),
        ({"kind": "keypoints", "sigmas": [0.1]}, "sigmas must be 3 numbers above 0, one for each keypoint"),
        ({"kind": "keypoints", "sigmas": [0.1, 0, 0.1]}, "sigmas must be 3 numbers above 0"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(da.InputError, match=message):
        da.CocoEvaluator(write_discs(tmp_path, paint_discs(2)), **arguments)


def test_wrong_predictions_are_refused(tmp_path: Path) -> None:
    path = write_discs(tmp_path, paint_discs(2))
    evaluator = da.CocoEvaluator(path, kind="keypoints")
    one = {"scores": torch.ones(1), "labels": torch.ones(1, dtype=torch.int64)}
    batch = blank_batch([1], size=(320, 240))
    with pytest.raises(da.InputError, match=r"predictions\[0\] must have keypoints, scores and labels, got"):
        evaluator.update(batch, [{**one, "boxes": torch.zeros(1, 4)}])
    with pytest.raises(da.InputError, match=r"must have keypoints \(K, 3, 3\) or \(K, 3, 2\), scores \(K,\)"):
        evaluator.update(batch, [{**one, "keypoints": torch.zeros(1, 4, 3)}])
    with pytest.raises(da.InputError, match="finite keypoints and scores"):
        evaluator.update(batch, [{**one, "keypoints": torch.full((1, 3, 2), torch.nan)}])
    nothing = {name: torch.tensor([]) for name in ("keypoints", "scores", "labels")}
    evaluator.update(batch, [nothing])
    assert evaluator.compute(partial=True).AP == 0
    with pytest.raises(da.InputError, match="voc2007 is for boxes and rotated boxes"):
        evaluator.compute(partial=True, voc2007=True)


def test_a_json_without_key_points_is_refused(tmp_path: Path) -> None:
    path = write_quadrangles(tmp_path, random_rectangles(np.random.default_rng(0), 2), "corners")
    with pytest.raises(da.AnnotationError, match="keypoints"):
        da.CocoEvaluator(path, kind="keypoints")
