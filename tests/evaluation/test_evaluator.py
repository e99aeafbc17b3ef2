"""The evaluator against perfect detectors in real batches, the VOC devkit's description, and pycocotools by hand."""

from __future__ import annotations

import io
import json
import math
import os
import subprocess
import sys
from contextlib import redirect_stdout
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image
from places import REPOSITORY
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from seeds import seeds, slow

import detaug as da
from detaug.evaluation.voc_ap import average_precision

NAMES = ("AP", "AP50", "AP75", "APs", "APm", "APl", "AR1", "AR10", "AR100", "ARs", "ARm", "ARl")

RECIPES = {
    "stretched": lambda: da.presets.evaluation((64, 81)),
    "shorter side": lambda: da.presets.evaluation(50, max_size=83),
    "letterbox": lambda: [da.Resize((90, 70), letterbox="center"), da.Normalize()],
    "letterbox, top-left": lambda: [da.Resize((70, 90), letterbox="top-left"), da.Normalize()],
    "flipped": lambda: [da.RandomHorizontalFlip(p=1), *da.presets.evaluation(64)],
}

Detections = dict[int, list[tuple[list[float], float, int]]]
"""image_id -> (XYXY source pixels, score, category id)."""


# ------------------------------------------------------------------------------------- perfect detectors


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """11 images of odd sizes, ids of all kinds, with difficult objects, crowds, and two images without a box."""
    folder, rng = tmp_path_factory.mktemp("odd"), np.random.default_rng(0)
    images, annotations = [], []
    for at in range(11):
        width, height = [(131, 97), (97, 131), (151, 40), (63, 63)][at % 4]
        name, image_id = f"{at}.png", [5, 0, 2**62, 7][at % 4] + 1000 * at
        Image.new("RGB", (width, height)).save(folder / name)
        images.append({"id": image_id, "file_name": name, "width": width, "height": height})
        for n in range(0 if at in (3, 10) else 4):
            size = rng.integers(8, 30, 2)
            start = rng.integers(0, (width, height) - size + 1)
            box = {"id": len(annotations), "image_id": image_id, "bbox": [*start.tolist(), *size.tolist()]}
            annotations.append(
                {**box, "category_id": (3, 0, 90)[n % 3], "iscrowd": int(n == 3), "difficult": int(at % 3 == n)}
            )
    categories = [{"id": 90, "name": "z"}, {"id": 3, "name": "a"}, {"id": 0, "name": "m"}]
    path = folder / "odd.json"
    path.write_text(json.dumps({"images": images, "annotations": annotations, "categories": categories}))
    return folder, path


def perfect(batch: da.Batch) -> list[dict[str, torch.Tensor]]:
    """Return the predictions of a perfect detector."""
    return [{**target, "scores": torch.ones_like(target["labels"], dtype=torch.float32)} for target in batch.targets()]


def with_wrong_origin(batch: da.Batch) -> list[dict[str, torch.Tensor]]:
    """Move left and top edges by a source pixel, as when boxes that count from 1 are taken to count from 0."""
    scale = batch.matrix[:, [0, 1], [0, 1]]
    off = torch.cat([scale, torch.zeros_like(scale)], 1).to(batch.boxes)
    return [{**each, "boxes": each["boxes"] + move} for each, move in zip(perfect(batch), off, strict=True)]


@pytest.mark.parametrize("batch_size", [4, *slow(1, 11)])
@pytest.mark.parametrize("recipe", RECIPES)
def test_a_perfect_detector_scores_1(odd: tuple[Path, Path], recipe: str, batch_size: int, device: str) -> None:
    reader = da.CocoReader(*odd)
    loader = da.Loader(reader, RECIPES[recipe](), batch_size, device=device, train=False, pipelines=1)
    evaluator, shifted = da.CocoEvaluator(reader), da.CocoEvaluator(odd[1])
    for batch in loader:
        evaluator.update(batch, perfect(batch))
        shifted.update(batch, with_wrong_origin(batch))
    metrics = evaluator.gather().compute()
    assert pytest.approx((1, 1, 1)) == (metrics.AP, metrics.AR100, metrics.VOC_AP50)
    assert metrics.VOC_AP50_by_class == pytest.approx({"a": 1, "m": 1, "z": 1})
    assert (metrics.images, metrics.repeated) == (11, 0)
    wrong = shifted.compute()
    assert wrong.AP < 0.95
    assert wrong.AP50 == wrong.VOC_AP50 == pytest.approx(1)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", ["stretched", "shorter side"])
def test_a_perfect_detector_scores_1_on_photographs(bccd: tuple[Path, Path], recipe: str) -> None:
    reader = da.CocoReader(*bccd)
    evaluator = da.CocoEvaluator(reader)
    for batch in da.Loader(reader, RECIPES[recipe](), 60, device="cpu", train=False):
        evaluator.update(batch, perfect(batch))
    metrics = evaluator.compute()
    assert pytest.approx((1, 1)) == (metrics.AP50, metrics.VOC_AP50)
    assert metrics.AP > 0.999


@pytest.mark.slow
def test_ranks_gather_their_detections(odd: tuple[Path, Path], device: str, tmp_path: Path) -> None:
    """Real processes. Rank 1 also has the images of rank 0, without detections; those of rank 0 count."""
    world = 2 if device == "cpu" else min(2, torch.cuda.device_count())
    ranks = []
    for rank in range(world):
        variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(world)}
        environment = {
            **os.environ,
            **variables,
            "PYTHONPATH": os.pathsep.join([str(REPOSITORY), *sys.path]),
        }
        command = [sys.executable, __file__, *map(str, odd), str(tmp_path), device]
        ranks.append(subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True))
    errors = [process.communicate()[1] for process in ranks]
    assert [process.returncode for process in ranks] == [0] * world, errors
    results = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(world)]
    assert results[0] == results[-1]
    assert results[0] == [1.0, 1.0, 11, 6 if world == 2 else 0]
    saved = [(tmp_path / f"results{rank}.json").read_bytes() for rank in range(world)]
    assert saved[0] == saved[-1]


def one_rank(folder: str, annotations: str, out: str, device: str) -> None:
    from torch import distributed as dist

    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        "nccl" if device == "cuda" else "gloo", init_method=f"file://{out}/store", rank=rank, world_size=world
    )
    reader = da.CocoReader(folder, annotations)
    evaluator = da.CocoEvaluator(reader)
    loader = da.Loader(reader, RECIPES["shorter side"](), 4, device=device, train=False)
    for batch in loader:
        evaluator.update(batch, perfect(batch))
    if rank == 1:
        for batch in da.Loader(reader, RECIPES["shorter side"](), 4, device=device, train=False, shard=(0, world)):
            evaluator.update(
                batch, [{name: each[name][:0] for name in each if each[name].ndim} for each in perfect(batch)]
            )
    metrics = evaluator.gather().compute()
    assert evaluator.gather().compute() == metrics
    evaluator.save(f"{out}/results{rank}.json")
    values = [round(metrics.AP, 9), round(metrics.VOC_AP50, 9), metrics.images, metrics.repeated]
    (Path(out) / f"{rank}.json").write_text(json.dumps(values))
    dist.destroy_process_group()


# ------------------------------------------------------------------------- against two other programs


CATEGORIES = {12: "second", 4: "first"}
SIZE = 40


def box_strategy(size: int = SIZE) -> st.SearchStrategy[list[int]]:
    """Draw boxes of whole pixels with an area. With few coordinates, boxes often overlap by a half or are equal."""
    edges = st.lists(st.sampled_from([0, 4, 8, 12, 16, 24, size]), min_size=2, max_size=2, unique=True).map(sorted)
    return st.tuples(edges, edges).map(lambda each: [each[0][0], each[1][0], each[0][1], each[1][1]])


objects_strategy = st.lists(
    st.lists(
        st.fixed_dictionaries(
            {
                "box": box_strategy(),
                "category": st.sampled_from([*CATEGORIES]),
                "difficult": st.integers(0, 1),
                "crowd": st.sampled_from([0, 0, 0, 1]),
            }
        ),
        max_size=4,
    ),
    min_size=1,
    max_size=4,
)
detections_strategy = st.lists(
    st.lists(
        st.tuples(box_strategy(), st.sampled_from([0.125, 0.25, 0.5, 0.75]), st.sampled_from([*CATEGORIES])),
        max_size=6,
    ),
    min_size=4,
    max_size=4,
)


def write_objects(path: Path, images: list[list[dict[str, Any]]], ids: list[int]) -> Path:
    rows = [{"id": at, "file_name": f"{at}.jpg", "width": SIZE, "height": SIZE} for at in ids]
    annotations = [
        {
            "image_id": image_id,
            "category_id": each["category"],
            "bbox": [x0, y0, x1 - x0, y1 - y0],
            "area": (x1 - x0) * (y1 - y0),
            "iscrowd": each.get("crowd", 0),
            "difficult": each.get("difficult", 0),
        }
        for image_id, objects in zip(ids, images, strict=True)
        for each in objects
        for x0, y0, x1, y1 in [each["box"]]
    ]
    numbered = [{"id": at, **row} for at, row in enumerate(annotations, 1)]
    categories = [{"id": at, "name": name} for at, name in CATEGORIES.items()]
    path.write_text(json.dumps({"images": rows, "annotations": numbered, "categories": categories}))
    return path


def blank_batch(ids: list[int], scale: float = 1.0, size: tuple[int, int] = (SIZE, SIZE)) -> da.Batch:
    """Make a batch without boxes, its images `scale` times as large as the source, of `size` (height, width)."""
    n, shown = len(ids), [int(side * scale) for side in size]
    return da.Batch(
        images=torch.zeros(n, 3, *shown),
        boxes=torch.zeros(n, 0, 4),
        labels=torch.zeros(n, 0, dtype=torch.int64),
        valid=torch.zeros(n, 0, dtype=torch.bool),
        image_id=torch.tensor(ids),
        source_size=torch.tensor([size] * n),
        image_size=torch.tensor([shown] * n),
        matrix=torch.tensor([[scale, 0, 0], [0, scale, 0]]).repeat(n, 1, 1),
        counts=(0,) * n,
    )


def as_predictions(found: Detections, scale: float = 1.0) -> list[dict[str, torch.Tensor]]:
    """Convert detections to predictions: the category ids in their order are the labels 1, 2."""
    return [
        {
            "boxes": torch.tensor([box for box, _, _ in each], dtype=torch.float32).reshape(-1, 4) * scale,
            "scores": torch.tensor([score for _, score, _ in each], dtype=torch.float32),
            "labels": torch.tensor([1 + sorted(CATEGORIES).index(k) for _, _, k in each], dtype=torch.int64),
        }
        for each in found.values()
    ]


@pytest.mark.slow
@settings(max_examples=40, deadline=None)
@given(objects_strategy, detections_strategy, st.booleans(), st.sampled_from([1.0, 2.0]))
def test_random_detections_score_as_in_the_devkit_and_pycocotools(
    tmp_path_factory: pytest.TempPathFactory, images: list, found: list, voc2007: bool, scale: float
) -> None:
    ids = [31, 4, 2**62, 0][: len(images)]
    folder = tmp_path_factory.mktemp("random")
    path = write_objects(folder / "truth.json", images, ids)
    detections: Detections = dict(zip(ids, found, strict=False))
    evaluator = da.CocoEvaluator(path)
    evaluator.update(blank_batch(ids, scale), as_predictions(detections, scale))
    metrics = evaluator.compute(voc2007=voc2007)

    for category, name in CATEGORIES.items():
        expected = devkit_ap(dict(zip(ids, images, strict=True)), detections, category, voc2007)
        assert metrics.VOC_AP50_by_class[name] == pytest.approx(float(expected), abs=1e-12)
    real = [value for value in metrics.VOC_AP50_by_class.values() if value >= 0]
    assert pytest.approx(np.mean(real) if real else -1) == metrics.VOC_AP50

    rows = [
        {"image_id": at, "category_id": k, "bbox": [x0, y0, x1 - x0, y1 - y0], "score": score}
        for at, each in detections.items()
        for (x0, y0, x1, y1), score, k in each
    ]
    evaluator.save(folder / "results.json")
    assert json.loads((folder / "results.json").read_text()) == rows
    if rows:
        expected = by_hand(path, rows)
        assert [getattr(metrics, name) for name in NAMES] == expected
        assert by_hand(path, str(folder / "results.json")) == expected


def devkit_ap(images: dict[int, list[dict]], detections: Detections, category: int, voc2007: bool) -> Fraction | int:
    """Translate VOCevaldet.m to Python, with exact numbers and its inclusive pixels."""
    truth = {at: [each for each in objects if each["category"] == category] for at, objects in images.items()}
    ignored = {at: [each["difficult"] or each["crowd"] for each in objects] for at, objects in truth.items()}
    taken = {at: [False] * len(objects) for at, objects in truth.items()}
    positives = sum(not each for flags in ignored.values() for each in flags)
    if not positives:
        return -1
    mine = [(score, at, box) for at, found in detections.items() for box, score, k in found if k == category]
    tp, fp = 0, 0
    recall, precision = [], []
    for _, at, box in sorted(mine, key=lambda each: -each[0]):
        largest, nearest = Fraction(-1), None
        for j, each in enumerate(truth[at]):
            overlap = inclusive_overlap(box, each["box"])
            if overlap > largest:
                largest, nearest = overlap, j
        if nearest is not None and largest >= Fraction(1, 2):
            if not ignored[at][nearest]:
                tp, fp = (tp, fp + 1) if taken[at][nearest] else (tp + 1, fp)
                taken[at][nearest] = True
        else:
            fp += 1
        if tp + fp:
            recall.append(Fraction(tp, positives))
            precision.append(Fraction(tp, tp + fp))
    if voc2007:
        tenths = [Fraction(k, 10) for k in range(11)]
        best = [max((p for r, p in zip(recall, precision, strict=True) if r >= t), default=0) for t in tenths]
        return sum(best, Fraction(0)) / 11
    recall, precision = [Fraction(0), *recall, Fraction(1)], [Fraction(0), *precision, Fraction(0)]
    for at in range(len(precision) - 2, -1, -1):
        precision[at] = max(precision[at], precision[at + 1])
    return sum(((recall[at] - recall[at - 1]) * precision[at] for at in range(1, len(recall))), Fraction(0))


def inclusive_overlap(one: list[float], other: list[float]) -> Fraction:
    """Return the IoU of boxes x0..x1, which are the pixels x0 + 1..x1."""
    (a0, b0, a1, b1), (c0, d0, c1, d1) = (
        [int(x0) + 1, int(y0) + 1, int(x1), int(y1)] for x0, y0, x1, y1 in (one, other)
    )
    width, height = min(a1, c1) - max(a0, c0) + 1, min(b1, d1) - max(b0, d0) + 1
    if width <= 0 or height <= 0:
        return Fraction(-1)
    union = (a1 - a0 + 1) * (b1 - b0 + 1) + (c1 - c0 + 1) * (d1 - d0 + 1) - width * height
    return Fraction(width * height, union)


def by_hand(path: Path, results: Any) -> list[float]:
    with redirect_stdout(io.StringIO()):
        truth = COCO(str(path))
        scoring = COCOeval(truth, truth.loadRes(results), "bbox")
        scoring.evaluate()
        scoring.accumulate()
        scoring.summarize()
    return [float(value) for value in scoring.stats]


# ------------------------------------------------------------------------------------------------ rules


@pytest.fixture
def truth(tmp_path: Path) -> Path:
    """Write two images with an object of category 4 (label 1) each, and one without."""
    objects = [[{"box": [8, 8, 24, 24], "category": 4}], [{"box": [0, 0, 40, 40], "category": 4}], []]
    return write_objects(tmp_path / "truth.json", objects, [1, 2, 3])


FOUND: Detections = {1: [([8, 8, 24, 24], 0.9, 4)], 2: [([0, 0, 40, 40], 0.9, 4)], 3: []}


def evaluated(truth: Path, found: Detections, **arguments: bool) -> da.Metrics:
    evaluator = da.CocoEvaluator(truth)
    evaluator.update(blank_batch([*found]), as_predictions(found))
    return evaluator.compute(**arguments)


def test_an_overlap_of_exactly_a_half_finds_its_object(truth: Path) -> None:
    for bottom, area, eleven in ((20, 1, 1), (19.9, 1 / 2, 6 / 11)):
        found = {**FOUND, 2: [([0, 0, 40, bottom], 0.8, 4)]}
        assert pytest.approx(area) == evaluated(truth, found).VOC_AP50
        assert pytest.approx(eleven) == evaluated(truth, found, voc2007=True).VOC_AP50


@pytest.mark.parametrize("found", range(11))
def test_a_recall_that_is_just_reached_counts(found: int) -> None:
    """The first detections are right, so that the recall found/10 is one of the eleven points; the next is wrong."""
    scores, best = np.linspace(1, 0.5, found + 1), np.array([*range(found), -1])
    of = scores, best, np.zeros(10, bool), 10
    assert average_precision(*of) == pytest.approx(found / 10)
    assert average_precision(*of, eleven_points=True) == pytest.approx((found + 1) / 11 if found else 0)


def test_boxes_are_cut_at_the_source_image(truth: Path) -> None:
    outside = {**FOUND, 2: [([-30, -9, 60, 55], 0.9, 4)]}
    assert pytest.approx(1) == evaluated(truth, outside).AP


def test_detections_in_an_image_without_objects_are_wrong(truth: Path) -> None:
    metrics = evaluated(truth, {**FOUND, 3: [([8, 8, 24, 24], 0.95, 4)]})
    assert pytest.approx(2 / 3, abs=0.01) == metrics.AP
    assert pytest.approx(2 / 3) == metrics.VOC_AP50


def test_a_box_in_the_padding_stays_a_wrong_detection(truth: Path) -> None:
    metrics = evaluated(truth, {**FOUND, 3: [([50, 50, 60, 60], 0.95, 4)]})
    assert pytest.approx(2 / 3) == metrics.VOC_AP50


def test_an_image_counts_once_and_the_first_detections_stay(truth: Path) -> None:
    evaluator = da.CocoEvaluator(truth)
    evaluator.update(blank_batch([*FOUND]), as_predictions(FOUND))
    evaluator.update(blank_batch([1, 2]), as_predictions({1: [], 2: []}))
    metrics = evaluator.compute()
    assert pytest.approx(1) == metrics.AP
    assert (metrics.images, metrics.repeated) == (3, 2)


def test_images_that_were_never_updated_are_an_error(truth: Path) -> None:
    part = {1: FOUND[1]}
    with pytest.raises(ValueError, match=r"2 of 3 images of .*truth.json were never updated, the first has image_id 2"):
        evaluated(truth, part)
    metrics = evaluated(truth, part, partial=True)
    assert (metrics.AP, metrics.VOC_AP50, metrics.images) == (pytest.approx(1), 1, 1)
    with pytest.raises(ValueError, match="nothing to compute"):
        da.CocoEvaluator(truth).compute(partial=True)


def test_without_detections_all_metrics_are_0_and_the_file_is_an_empty_list(truth: Path, tmp_path: Path) -> None:
    evaluator = da.CocoEvaluator(truth)
    evaluator.update(blank_batch([1, 2, 3]), as_predictions({1: [], 2: [], 3: []}))
    metrics = evaluator.compute()
    assert (metrics.AP, metrics.AR100, metrics.VOC_AP50) == (0, 0, 0)
    assert metrics.VOC_AP50_by_class == {"first": 0, "second": -1}
    evaluator.save(tmp_path / "results.json")
    assert json.loads((tmp_path / "results.json").read_text()) == []


# ---------------------------------------------------------------------------------------------- engines


@pytest.fixture
def only_pycocotools(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make `import ultrafast_pycocotools` fail, as where the extra is not installed."""
    monkeypatch.setitem(sys.modules, "ultrafast_pycocotools", None)


def drawn_case(path: Path, seed: int, *, classes: int, per_image: int, scores: int) -> tuple[list[int], Detections]:
    """Write 30 images with objects, one of 8 a crowd, and return their ids and detections.

    Half of the detections are near an object. `per_image`: the largest number of them; above 100, COCO's maxDets cuts.
    `scores`: the number of different scores; few of them are ties.
    """
    rng = np.random.default_rng(seed)
    ids = [int(number) for number in rng.permutation(1000)[:30]]
    rows, annotations, detections = [], [], Detections()
    for at, image_id in enumerate(ids):
        rows.append({"id": image_id, "file_name": f"{image_id}.jpg", "width": 640, "height": 480})
        count = int(rng.integers(0, 9)) if at % 5 else 0
        boxes = np.concatenate([rng.uniform(0, 300, (count, 2)), rng.uniform(4, 180, (count, 2))], 1).round(2)
        categories = rng.integers(1, classes + 1, count)
        for box, category in zip(boxes.tolist(), categories.tolist(), strict=True):
            annotation = {"id": len(annotations) + 1, "image_id": image_id, "category_id": category, "bbox": box}
            area = box[2] * box[3] * float(rng.uniform(0.4, 1))
            annotations.append({**annotation, "area": area, "iscrowd": int(rng.random() < 1 / 8)})
        detections[image_id] = []
        for _ in range(int(rng.integers(0, per_image + 1)) if at % 7 else 0):
            near = int(rng.integers(count)) if count and rng.random() < 0.5 else None
            x, y, w, h = boxes[near] if near is not None else rng.uniform(4, 200, 4)
            x0, y0 = max(0, x + rng.normal(0, 4)), max(0, y + rng.normal(0, 4))
            score = float(rng.integers(1, scores + 1)) / scores
            category = int(categories[near]) if near is not None else int(rng.integers(1, classes + 1))
            detections[image_id].append(([x0, y0, min(640, x0 + w), min(480, y0 + h)], score, category))
    names = [{"id": number, "name": f"class {number}"} for number in range(1, classes + 1)]
    path.write_text(json.dumps({"images": rows, "annotations": annotations, "categories": names}))
    return ids, detections


CASES = {
    "crowds": {"classes": 3, "per_image": 40, "scores": 1000},
    "ties": {"classes": 2, "per_image": 40, "scores": 3},
    "many categories": {"classes": 300, "per_image": 20, "scores": 1000},
    "more than maxDets": {"classes": 1, "per_image": 250, "scores": 50},
    "no detections": {"classes": 2, "per_image": 0, "scores": 1},
}


@pytest.mark.parametrize("seed", seeds(1, 8))
@pytest.mark.parametrize("case", CASES)
def test_the_fast_engine_gives_the_bits_of_pycocotools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, seed: int
) -> None:
    fast_engine = pytest.importorskip("ultrafast_pycocotools")
    ids, found = drawn_case(tmp_path / "truth.json", seed, **CASES[case])
    evaluator = da.CocoEvaluator(tmp_path / "truth.json")
    labels = [
        {
            "boxes": torch.tensor([box for box, _, _ in found[at]]).reshape(-1, 4),
            "scores": torch.tensor([score for _, score, _ in found[at]]),
            "labels": torch.tensor([category for _, _, category in found[at]], dtype=torch.int64),
        }
        for at in ids[:-2]  # the last two are not evaluated
    ]
    evaluator.update(blank_batch(ids[:-2], size=(480, 640)), labels)

    calls = []
    monkeypatch.setattr(
        fast_engine, "COCOeval", lambda *args, real=fast_engine.COCOeval: calls.append(1) or real(*args)
    )
    fast = evaluator.compute(partial=True)
    assert calls == [1]
    monkeypatch.setitem(sys.modules, "ultrafast_pycocotools", None)
    assert evaluator.compute(partial=True) == fast
    assert calls == [1]
    if case != "no detections":
        assert 0 < fast.AP < 1


@pytest.mark.usefixtures("only_pycocotools")
def test_a_slow_evaluation_says_how_to_make_it_faster(
    truth: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    evaluated(truth, FOUND)
    assert not caplog.messages
    monkeypatch.setattr("detaug.evaluation.pycoco.SLOW_SECONDS", 0)
    assert evaluated(truth, FOUND).AP == 1
    (message,) = caplog.messages
    assert message == (
        "COCO's metrics of 2 detections took 0 s; pip install 'detaug[fast-eval]' computes the same numbers faster"
    )


def test_the_fast_engine_says_nothing(
    truth: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("ultrafast_pycocotools")
    monkeypatch.setattr("detaug.evaluation.pycoco.SLOW_SECONDS", 0)
    evaluated(truth, FOUND)
    assert not caplog.messages


def test_a_model_that_found_nothing_may_return_flat_tensors(truth: Path) -> None:
    """`torch.tensor([])` has shape (0,)."""
    nothing = {name: torch.tensor([]) for name in ("boxes", "scores", "labels")}
    for predictions in ([nothing, nothing], [nothing, as_predictions({2: [([1, 1, 9, 9], 0.5, 4)]})[0]]):
        evaluator = da.CocoEvaluator(truth)
        evaluator.update(blank_batch([1, 2]), predictions)
        assert evaluator.compute(partial=True).images == 2


def test_saving_over_the_annotations_is_refused(truth: Path) -> None:
    before = truth.read_bytes()
    with pytest.raises(ValueError, match=r"truth\.json"):
        da.CocoEvaluator(truth).save(truth)
    assert truth.read_bytes() == before


def test_a_change_of_the_working_folder_changes_nothing(
    odd: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    images, truth = odd
    monkeypatch.chdir(truth.parent)
    reader = da.CocoReader(images, truth.name)
    evaluator = da.CocoEvaluator(truth.name)
    before = truth.read_bytes()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="is an input"):
        evaluator.save(truth)
    assert truth.read_bytes() == before
    da.CocoEvaluator(reader).save("results.json")
    assert json.loads(Path("results.json").read_text()) == []


def test_half_precision_on_the_device(truth: Path, device: str) -> None:
    predictions = [
        {name: value.to(device, torch.float16) if value.is_floating_point() else value.to(device)}
        | {key: each[key].to(device) for key in each if key != name}
        for each in as_predictions(FOUND)
        for name, value in [("scores", each["scores"])]
    ]
    evaluator = da.CocoEvaluator(truth)
    evaluator.update(blank_batch([*FOUND]).to(device), predictions)
    assert pytest.approx(1) == evaluator.compute().AP


BOX = {"boxes": torch.zeros(1, 4), "scores": torch.ones(1), "labels": torch.ones(1, dtype=torch.int64)}


@pytest.mark.parametrize(
    ("ids", "predictions", "message"),
    [
        ([1, 2], [BOX], "one dict for each of the batch's 2 images, got 1"),
        ([1], [{**BOX, "labels": torch.tensor([3])}], r"must be 1\.\.2, the JSON file's classes, got 3"),
        ([1], [{**BOX, "labels": torch.tensor([0])}], "leave out those of 0, the background"),
        ([1], [{**BOX, "scores": torch.ones(2)}], r"predictions\[0\] must have boxes \(K, 4\)"),
        (
            [1],
            [{"boxes": BOX["boxes"], "scores": BOX["scores"]}],
            r"boxes, scores and labels, got \['boxes', 'scores'\]",
        ),
        ([1], [{**BOX, "boxes": torch.full((1, 4), float("nan"))}], "finite boxes and scores"),
        ([9], [BOX], r"image_id 9 is not in .*truth\.json"),
    ],
)
def test_wrong_predictions_are_refused(truth: Path, ids: list[int], predictions: list, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        da.CocoEvaluator(truth).update(blank_batch(ids), predictions)


def test_mistakes_of_the_json_are_errors() -> None:
    with pytest.raises(ValueError, match=r"no\.json: no such file"):
        da.CocoEvaluator("no.json")


if __name__ == "__main__":
    one_rank(*sys.argv[1:])


def own_files(folder: Path, document: dict[str, Any], results: list[dict[str, Any]]) -> tuple[Path, Path]:
    """Write a JSON file with its images of 300 x 150 and the defaults of an annotation, and detections."""
    rows = [{"file_name": f"{each['id']}.jpg", "width": 300, "height": 150, **each} for each in document["images"]]
    annotations = [
        {"id": at, "image_id": 1, "category_id": 1, "iscrowd": 0, "area": each["bbox"][2] * each["bbox"][3], **each}
        for at, each in enumerate(document["annotations"], 1)
    ]
    names = document.get("categories", {1: "a"})
    categories = [{"id": at, "name": name} for at, name in names.items()]
    paths = folder / "truth.json", folder / "results.json"
    paths[0].write_text(json.dumps({"images": rows, "annotations": annotations, "categories": categories}))
    paths[1].write_text(json.dumps([{"image_id": 1, "category_id": 1, **each} for each in results]))
    return paths


def test_boxes_that_were_read_keep_their_width(tmp_path: Path) -> None:
    """1.98 + 32 - 1.98 is less than 32, and a box of 32 x 32 is no small one."""
    boxes = [{"bbox": [200, 10, 40, 40], "score": 0.5}, {"bbox": [1.98, 10, 32, 32], "score": 0.9}]
    document = {"images": [{"id": 1}], "annotations": [{"bbox": [200, 10, 40, 40]}]}
    truth, results = own_files(tmp_path, document, boxes)
    evaluator = da.CocoEvaluator(truth).load(results)
    evaluator.save(tmp_path / "saved.json")
    assert [row["bbox"] for row in json.loads((tmp_path / "saved.json").read_text())] == [
        each["bbox"] for each in boxes
    ]
    metrics = evaluator.compute()
    assert [getattr(metrics, name) for name in NAMES] == by_hand(truth, str(results))


def test_classes_of_one_name_are_scored_apart(tmp_path: Path) -> None:
    objects = [{"bbox": [10, 10, 40, 40], "category_id": 2}, {"bbox": [100, 10, 40, 40], "category_id": 5}]
    document = {"images": [{"id": 1}], "annotations": objects, "categories": {2: "a", 5: "a"}}
    truth, results = own_files(tmp_path, document, [{**objects[1], "score": 0.9}])
    evaluator = da.CocoEvaluator(truth).load(results)
    metrics = evaluator.compute()
    assert metrics.VOC_AP50_by_class == {"a (id 2)": 0, "a (id 5)": 1}
    assert pytest.approx(metrics.AP50) == metrics.VOC_AP50
    assert [*evaluator.errors().curves] == ["a (id 2)", "a (id 5)"]


def test_images_of_another_size_than_the_jsons_are_refused(tmp_path: Path) -> None:
    truth, _ = own_files(tmp_path, {"images": [{"id": 1}], "annotations": [{"bbox": [1, 1, 9, 9]}]}, [])
    with pytest.raises(da.InputError, match="image_id 1 is 640 x 480 pixels, and 300 x 150 in the JSON file"):
        da.CocoEvaluator(truth).update(blank_batch([1], size=(480, 640)), as_predictions({1: []}))


def test_a_box_with_swapped_corners_finds_nothing_and_hides_nothing(tmp_path: Path) -> None:
    document = {"images": [{"id": 1}], "annotations": [{"bbox": [10, 10, 40, 40]}], "categories": {1: "a", 2: "b"}}
    found = [{"bbox": [10, 10, 40, 40], "score": 0.9}, {"bbox": [90, 10, -40, 40], "score": 0.8}]
    truth, results = own_files(tmp_path, document, [{**each, "category_id": 2} for each in found])
    with pytest.warns(UserWarning, match="1 bbox has a negative width or height"):
        evaluator = da.CocoEvaluator(truth).load(results)
    assert evaluator.errors(min_score=0.1).confusion.tolist() == [[0, 1, 0], [0, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize("area", [math.nan, math.inf, -5, None, "5"])
def test_an_area_that_is_no_area_is_that_of_the_box(tmp_path: Path, area: Any) -> None:
    document = {"images": [{"id": 1}], "annotations": [{"bbox": [10, 10, 50, 50], "area": area}]}
    truth, results = own_files(tmp_path, document, [{"bbox": [10, 10, 50, 50], "score": 1.0}])
    metrics = da.CocoEvaluator(truth).load(results).compute()
    assert (metrics.APs, round(metrics.APm, 9), metrics.APl) == (-1, 1, -1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda one: {**one, "labels": one["labels"].float()},
            r"labels of .* must be whole .* labels.long",
        ),
        (lambda one: {**one, "labels": one["labels"] > 0}, r"must be whole numbers, got torch.bool"),
        (
            lambda one: {**one, "scores": one["scores"].numpy()},
            r"scores of .* must be a tensor, got ndarray",
        ),
        (lambda one: {**one, "boxes": one["boxes"].tolist()}, r"boxes of .* must be a tensor, got list"),
    ],
)
def test_predictions_of_other_types_are_refused(tmp_path: Path, change: Any, message: str) -> None:
    truth, _ = own_files(tmp_path, {"images": [{"id": 1}], "annotations": [{"bbox": [1, 1, 9, 9]}]}, [])
    (one,) = as_predictions({1: [((1, 1, 10, 10), 0.5, min(CATEGORIES))]})
    with pytest.raises(da.InputError, match=message):
        da.CocoEvaluator(truth).update(blank_batch([1], size=(150, 300)), [change(one)])
