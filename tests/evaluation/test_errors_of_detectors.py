"""`CocoEvaluator.errors` and `load`: kinds of errors, confusion, precision and recall, against rules written again."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pycocotools.coco import COCO
from pycocotools.cocoeval import COCOeval
from seeds import seeds

import detaug as da

CLASSES = {3: "cat", 7: "dog", 5: "cow"}  # not in the order of their ids


def write(folder: Path, objects: list[list[Any]], images: int = 1) -> Path:
    """Write a JSON file. `objects`: [image, category, x, y, width, height] and, after them, what else an entry has."""
    document = {
        "images": [{"id": at, "file_name": f"{at}.jpg", "width": 400, "height": 300} for at in range(images)],
        "categories": [{"id": at, "name": name} for at, name in CLASSES.items()],
        "annotations": [
            {"id": at, "image_id": image, "category_id": category, "bbox": box, "area": box[2] * box[3], **(more or {})}
            for at, (image, category, box, *rest) in enumerate(objects, 1)
            for more in [rest[0] if rest else {}]
        ],
    }
    path = folder / "objects.json"
    path.write_text(json.dumps(document))
    return path


def write_results(folder: Path, rows: list[list[Any]]) -> Path:
    keys = ("image_id", "category_id", "bbox", "score")
    path = folder / "results.json"
    path.write_text(json.dumps([dict(zip(keys, row, strict=True)) for row in rows]))
    return path


def test_each_kind(tmp_path: Path) -> None:
    """One detection of each kind, around objects that lie far apart."""
    box = [0, 0, 40, 40]
    objects = [
        [0, 3, box],  # found, and found twice
        [0, 3, [100, 0, 40, 40]],  # in another place
        [0, 3, [200, 0, 40, 40]],  # as a dog
        [0, 3, [300, 0, 40, 40]],  # as a dog in another place
        [0, 7, [0, 100, 40, 40]],  # missed
        [0, 5, [100, 100, 40, 40], {"difficult": 1}],
        [0, 5, [200, 100, 200, 100], {"iscrowd": 1}],
    ]
    detections = [
        [0, 3, [1, 0, 40, 40], 0.9],
        [0, 3, [0, 1, 40, 40], 0.8],
        [0, 3, [120, 0, 40, 40], 0.7],
        [0, 7, [200, 2, 40, 40], 0.6],
        [0, 7, [320, 0, 40, 40], 0.6],
        [0, 5, [0, 200, 40, 40], 0.5],
        [0, 5, [100, 101, 40, 40], 0.5],  # of what is difficult
        [0, 5, [230, 120, 30, 30], 0.5],  # in a crowd
        [0, 7, [0, 100, 40, 40], 0.3],  # below the score
    ]
    evaluator = da.CocoEvaluator(write(tmp_path, objects)).load(write_results(tmp_path, detections))
    errors = evaluator.errors()
    assert errors.class_names == ("cat", "cow", "dog")
    assert {kind: each.tolist() for kind, each in errors.kinds.items()} == {
        "localization": [1, 0, 0], "classification": [0, 0, 1], "both": [0, 0, 1],
        "duplicate": [1, 0, 0], "background": [0, 1, 0], "missed": [1, 0, 1],
    }  # fmt: skip
    assert errors.confusion.tolist() == [[1, 0, 1, 2], [0, 0, 0, 0], [0, 0, 0, 1], [2, 1, 1, 0]]
    counts = [each.tolist() for each in (errors.objects, errors.detections, errors.right)]
    assert counts == [[4, 0, 1], [3, 1, 2], [1, 0, 0]]
    assert errors.errors_of_image == {0: 7}
    assert errors.curve.scores.tolist() == [0.9, 0.8, 0.7, 0.6, 0.5, 0.3]
    assert errors.curve.recall[-1] == 2 / 5
    assert errors.curve.precision[-1] == pytest.approx(2 / 7)
    assert evaluator.errors(min_score=0.2).kinds["missed"].tolist() == [1, 0, 0]
    assert errors.best_score == 0.9


@pytest.mark.parametrize(
    ("category", "box", "kind"),
    [
        (3, [0, 0, 20, 10], None),  # an IoU of exactly 0.5 finds
        (3, [0, 0, 20.001, 10], "localization"),
        (7, [0, 0, 20, 10], "classification"),
        (7, [0, 0, 20.001, 10], "both"),
        (3, [0, 0, 100, 10], "localization"),  # exactly 0.1 is an attempt
        (7, [0, 0, 100, 10], "both"),
        (3, [0, 0, 100.001, 10], "background"),
        (7, [0, 0, 100.001, 10], "background"),
    ],
)
def test_limits_of_the_iou(tmp_path: Path, category: int, box: list[float], kind: str | None) -> None:
    """The object is 10 x 10 pixels, in the corner of the detection."""
    path = write(tmp_path, [[0, 3, [0, 0, 10, 10]]])
    errors = da.CocoEvaluator(path).load(write_results(tmp_path, [[0, category, box, 0.9]])).errors()
    assert {name for name, each in errors.kinds.items() if each.any()} - {"missed"} == ({kind} if kind else set())
    assert errors.confusion[:-1, :-1].sum() == (kind in (None, "classification"))


@pytest.mark.parametrize(
    ("rows", "kinds"),
    [
        # near an object of its class, on one of another: a wrong place, as TIDE has it, not a wrong class
        ([[0, 3, [0, 12, 20, 20], 0.9]], {"localization": 1, "missed": 1}),
        # on an object of its class that is found, and on one of another: a wrong class before a second detection
        ([[0, 3, [0, 0, 20, 20], 0.9], [0, 3, [0, 3, 20, 20], 0.8]], {"classification": 1}),
    ],
)
def test_the_order_of_kinds(tmp_path: Path, rows: list[Any], kinds: dict[str, int]) -> None:
    objects = [[0, 3, [0, 0, 20, 20]], [0, 7, [0, 8, 20, 20]]]
    errors = da.CocoEvaluator(write(tmp_path, objects)).load(write_results(tmp_path, rows)).errors()
    assert {name: int(each.sum()) for name, each in errors.kinds.items() if each.any()} == kinds


@pytest.mark.parametrize("scores", [[0.5], [0.3, 0.5, 0.9], [0.5, 0.9]])
def test_a_threshold_takes_all_detections_of_equal_scores(tmp_path: Path, scores: list[float]) -> None:
    """The curve and the best score count what a threshold would leave, in no order of the file."""
    rng, box = np.random.default_rng(0), [0.0, 0, 40, 40]
    objects = [[at, 3, box] for at in range(20)]
    found = [[at, 3, box if rng.random() < 0.6 else [200.0, 0, 40, 40], float(rng.choice(scores))] for at in range(20)]
    evaluator = da.CocoEvaluator(write(tmp_path, objects, 20)).load(write_results(tmp_path, found))
    curve = evaluator.errors().curve
    assert curve.scores.tolist() == sorted(scores, reverse=True)
    for score, precision, recall in zip(curve.scores, curve.precision, curve.recall, strict=True):
        shown = evaluator.errors(min_score=score)
        assert precision == shown.right.sum() / shown.detections.sum()
        assert recall == shown.right.sum() / 20


def test_the_best_score_as_printed_keeps_the_detections_that_have_it(tmp_path: Path) -> None:
    """Two decimals would be 1.00 and 0.14: no detection has the first, and those of 0.141 are all wrong."""
    objects = [[at, 3, [0.0, 0, 40, 40]] for at in range(4)]
    for score, shown in ((0.9968, "0.9968"), (0.14349, "0.1434"), (0.89999997, "0.8999"), (1.0, "1")):
        right = [[at, 3, [0.0, 0, 40, 40], score] for at in range(4)]
        wrong = [[at, 3, [200.0, 0, 40, 40], score - 0.002] for at in range(4)]
        evaluator = da.CocoEvaluator(write(tmp_path, objects, 4)).load(write_results(tmp_path, right + wrong))
        errors = evaluator.errors()
        assert errors.best_score_text == shown
        errors = evaluator.errors(min_score=float(shown))
        assert (errors.right.sum(), errors.detections.sum()) == (4, 4)


def iou(a: list[float], b: list[float]) -> float:
    width = min(a[0] + a[2], b[0] + b[2]) - max(a[0], b[0])
    height = min(a[1] + a[3], b[1] + b[3]) - max(a[1], b[1])
    shared = max(width, 0) * max(height, 0)
    return shared / (a[2] * a[3] + b[2] * b[3] - shared)


def kinds_again(objects: list[Any], detections: list[Any]) -> Counter[str]:
    """Count the kinds of errors in one image, as the paper words them."""
    found: dict[int, int] = {}
    for at, (_, category, box, _) in enumerate(detections):
        left = [(iou(box, each[2]), -k) for k, each in enumerate(objects) if k not in found and each[1] == category]
        if left and max(left)[0] >= 0.5:
            found[-max(left)[1]] = at
    counts, explained = Counter[str](), set(found)
    for at, (_, category, box, _) in enumerate(detections):
        if at in found.values():
            continue
        mine = max([(iou(box, each[2]), -k) for k, each in enumerate(objects) if each[1] == category], default=(0, 0))
        others = max([(iou(box, each[2]), -k) for k, each in enumerate(objects) if each[1] != category], default=(0, 0))
        if 0.1 <= mine[0] < 0.5:
            counts["localization"] += 1
            explained.add(-mine[1])
        elif others[0] >= 0.5:
            counts["classification"] += 1
            explained.add(-others[1])
        elif mine[0] >= 0.5:
            counts["duplicate"] += 1
        else:
            counts["both" if others[0] >= 0.1 else "background"] += 1
    counts["missed"] = len(objects) - len(explained)
    return counts


@pytest.mark.parametrize("seed", seeds(1, 20))
def test_a_second_implementation(tmp_path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    objects, detections, wanted, images = [], [], Counter[str](), 30
    for image in range(images):
        boxes = [[*rng.uniform(0, 200, 2).tolist(), *rng.uniform(30, 90, 2).tolist()] for _ in range(rng.integers(7))]
        mine = [[image, int(rng.choice(list(CLASSES))), box] for box in boxes]
        moved = [[each + rng.normal(0, 12) if k < 2 else each for k, each in enumerate(box)] for box in boxes * 2]
        found = [[image, int(rng.choice(list(CLASSES))), box, float(rng.random())] for box in moved]
        objects, detections = objects + mine, detections + found
        shown = sorted((each for each in found if each[3] >= 0.4), key=lambda each: -each[3])
        wanted += kinds_again(mine, shown)
    evaluator = da.CocoEvaluator(write(tmp_path, objects, images)).load(write_results(tmp_path, detections))
    errors = evaluator.errors(min_score=0.4)
    assert Counter({kind: int(each.sum()) for kind, each in errors.kinds.items()}) == wanted
    assert sum(errors.errors_of_image.values()) == wanted.total()
    assert errors.confusion[:-1].sum(1).tolist() == errors.objects.tolist()
    assert errors.confusion[:, :-1].sum(0).tolist() == errors.detections.tolist()
    assert errors.confusion.diagonal()[:-1].tolist() == errors.right.tolist()
    for at, name in enumerate(errors.class_names):  # pycocotools' recall at an IoU of 0.5, with all detections
        last = errors.curves[name].recall[-1] if len(errors.curves[name].recall) else 0
        assert last * errors.objects[at] == pytest.approx(round(last * errors.objects[at]))


def test_results_are_those_that_were_saved(tmp_path: Path) -> None:
    path = write(tmp_path, [[0, 3, [10, 10, 50, 60]], [1, 7, [5, 6, 70, 80]]], images=3)
    given = write_results(
        tmp_path, [[0, 3, [11, 10, 50, 60], 0.9], [0, 5, [1, 2, 3, 4], 0.1], [1, 7, [5, 9, 70, 80], 0.5]]
    )
    evaluator = da.CocoEvaluator(path).load(given)
    evaluator.save(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_bytes()) == json.loads(given.read_bytes())
    assert evaluator.compute().images == 3


BOX = [1, 2, 3, 4]
BAD_ROWS = {
    "has image_id 9, which the JSON file": [9, 3, BOX, 0.5],
    "has category_id 1, which the JSON file": [0, 1, BOX, 0.5],
    "a whole number as category_id, got \\[\\]": [0, [], BOX, 0.5],
    "a whole number as image_id, got 0\\.5": [0.5, 3, BOX, 0.5],
    "a whole number as image_id, got '0'": ["0", 3, BOX, 0.5],
    "a whole number as category_id, got True": [0, True, BOX, 0.5],
    "a whole number as category_id, got nan": [0, float("nan"), BOX, 0.5],
    "a bbox must be four numbers": [0, 3, [1, 2, 3], 0.5],
    "a bbox must be four numbers ": [0, 3, [[1, 2, 3, 4]], 0.5],
    "inhomogeneous": [0, 3, [1, 2, 3, [4]], 0.5],
    "finite numbers as bbox, got \\[1, 2, 3, 'a'\\]": [0, 3, [1, 2, 3, "a"], 0.5],
    "finite numbers as bbox, got \\['1'": [0, 3, ["1", "2", "3", "4"], 0.5],
    "finite numbers as bbox, got \\[1, 2, None, 4\\]": [0, 3, [1, 2, None, 4], 0.5],
    "finite numbers as bbox, got None": [0, 3, None, 0.5],
    "finite numbers as bbox, got \\[True": [0, 3, [True, 2, 3, 4], 0.5],
    "finite numbers as bbox, got .*inf": [0, 3, [1, 2, float("inf"), 4], 0.5],
    "finite numbers as bbox, got \\[10": [0, 3, [10**400, 2, 3, 4], 0.5],
    "finite number as score, got 10": [0, 3, BOX, 10**400],
    "finite number as score, got \\[0\\.5\\]": [0, 3, BOX, [0.5]],
    "finite number as score, got nan": [0, 3, BOX, float("nan")],
    "finite number as score, got '0\\.9'": [0, 3, BOX, "0.9"],
    "finite number as score, got True": [0, 3, BOX, True],
    "finite number as score, got None": [0, 3, BOX, None],
}


@pytest.mark.parametrize("message", BAD_ROWS)
def test_rows_that_do_not_fit(tmp_path: Path, message: str) -> None:
    path = write(tmp_path, [[0, 3, [10, 10, 50, 60]]])
    bad = write_results(tmp_path, [[0, 3, BOX, 0.5], BAD_ROWS[message]])
    with pytest.raises(da.InputError, match=rf"results\.json: \[1\] .*{message.strip()}") as raised:
        da.CocoEvaluator(path).load(bad)
    assert len(str(raised.value)) < 400
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("missing", ["image_id", "category_id", "bbox", "score"])
def test_a_row_without_an_entry(tmp_path: Path, missing: str) -> None:
    path, given = write(tmp_path, [[0, 3, [10, 10, 50, 60]]]), write_results(tmp_path, [[0, 3, BOX, 0.5]])
    rows = json.loads(given.read_bytes())
    del rows[0][missing]
    given.write_text(json.dumps(rows))
    with pytest.raises(da.InputError, match=rf"results\.json: \[0\] .*{missing}"):
        da.CocoEvaluator(path).load(given)


SHAPES = {"segm": "segmentation", "keypoints": "keypoints", "rotated": "corners"}


@pytest.mark.parametrize("kind", SHAPES)
@pytest.mark.parametrize("value", [None, "1", [], ["1"] * 51, [True] * 8, [[1, 2]], {"size": [1, 1]}, 5], ids=repr)
def test_rows_of_other_shapes(tmp_path: Path, kind: Any, value: Any) -> None:
    points = {"keypoints": [1, 2, 2] * 17, "num_keypoints": 17}
    path, name = write(tmp_path, [[0, 3, [10, 10, 50, 60], points]]), SHAPES[kind]
    given = tmp_path / "results.json"
    given.write_text(json.dumps([{"image_id": 0, "category_id": 3, "score": 0.5, name: value}]))
    with pytest.raises(da.InputError, match=rf"results\.json: \[0\] .*{name}"):
        da.CocoEvaluator(path, kind).load(given)


ODD_ROWS = {
    "2 scores outside 0..1, such as 90.0": [[0, 3, BOX, 0.5], [0, 3, [50, 60, 20, 30], 90], [0, 5, BOX, -1.5]],
    "1 bbox has a negative width or height, such as [50.0, 60.0, 20.0, -30.0]": [
        [0, 3, BOX, 0.5],
        [0, 3, [50, 60, 20, -30], 0.5],
    ],
    "each bbox looks like [x0, y0, x1, y1], such as [300.0, 200.0, 390.0, 280.0]": [
        [0, 3, [300, 200, 390, 280], at / 10] for at in range(5)
    ],
    "each bbox is in 0..1, such as [0.25, 0.25, 0.5, 0.5]": [[0, 3, [0.25, 0.25, 0.5, 0.5], 0.5]],
}


@pytest.mark.parametrize("message", ODD_ROWS)
def test_rows_that_are_odd_are_scored_and_counted(tmp_path: Path, message: str) -> None:
    path = write(tmp_path, [[0, 3, [50, 60, 20, 30], {"iscrowd": 0}], [0, 3, [10, 10, 90, 80], {"iscrowd": 0}]])
    with pytest.warns(UserWarning, match=re.escape(message)) as warned:
        found = da.CocoEvaluator(path).load(write_results(tmp_path, ODD_ROWS[message]))
    assert len(warned) == 1
    truth = COCO(str(path))
    peer = COCOeval(truth, truth.loadRes(json.loads((tmp_path / "results.json").read_bytes())), "bbox")
    peer.evaluate()
    peer.accumulate()
    peer.summarize()
    metrics = found.compute()
    assert [peer.stats[at] for at in (0, 1, 8)] == [metrics.AP, metrics.AP50, metrics.AR100]


@pytest.mark.parametrize("text", ["{}", "[1]", "not JSON", '{"annotations": []}'])
def test_files_in_another_form(tmp_path: Path, text: str) -> None:
    path, bad = write(tmp_path, [[0, 3, [10, 10, 50, 60]]]), tmp_path / "results.json"
    bad.write_text(text)
    with pytest.raises(da.InputError, match=r"results\.json"):
        da.CocoEvaluator(path).load(bad)


def test_errors_are_of_boxes(tmp_path: Path) -> None:
    path = write(tmp_path, [[0, 3, [10, 10, 50, 60], {"segmentation": [[10, 10, 60, 10, 60, 70]]}]])
    with pytest.raises(da.InputError, match="kind='bbox'"):
        da.CocoEvaluator(path, "segm").errors()
