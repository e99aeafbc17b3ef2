"""`PanopticEvaluator` against a second implementation, after panopticapi's evaluation.py, equal to the last bit."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from panoptic_files import as_color
from PIL import Image

import detaug as da
from detaug.errors import InputError

CATEGORIES = [
    {"id": 11, "name": "dog", "isthing": 1},
    {"id": 17, "name": "cat", "isthing": 1},
    {"id": 20, "name": "sky", "isthing": 0},
    {"id": 25, "name": "grass", "isthing": 0},
    {"id": 30, "name": "snow", "isthing": 0},
]
POSITIONS = {each["id"]: index for index, each in enumerate(CATEGORIES)}


class Painted:
    """Random maps of true and predicted segments, with crowds, void, and segments that are near each other."""

    def __init__(self, folder: Path, seed: int, count: int = 4, size: tuple[int, int] = (40, 56)) -> None:
        rng = np.random.default_rng(seed)
        self.folder, self.size = folder, size
        for name in ("images", "panoptic"):
            (folder / name).mkdir(parents=True)
        self.truth, self.found = [], []
        images, entries, things = [], [], []
        for index in range(count):
            truth = self._drawn(rng, rng.integers(1 << 23, 1 << 24, 9).tolist())
            found = self._moved(rng, *truth)
            self.truth.append(truth)
            self.found.append(found)
            Image.fromarray(as_color(truth[0])).save(folder / f"panoptic/{index}.png")
            Image.fromarray(np.full((*size, 3), 100, np.uint8)).save(folder / f"images/{index}.png")
            images.append({"id": index + 1, "file_name": f"{index}.png", "height": size[0], "width": size[1]})
            entries.append({"image_id": index + 1, "file_name": f"{index}.png", "segments_info": truth[1]})
            things += [
                {"image_id": index + 1, **{key: each[key] for key in ("category_id", "bbox", "area", "iscrowd")}}
                for each in truth[1] if each["category_id"] < 20
            ]  # fmt: skip
        categories = [{"id": each["id"], "name": each["name"]} for each in CATEGORIES if each["isthing"]]
        things = [{"id": number, **each} for number, each in enumerate(things)]
        content = {"images": images, "annotations": things, "categories": categories}
        (folder / "things.json").write_text(json.dumps(content))
        content = {"images": images, "annotations": entries, "categories": CATEGORIES}
        (folder / "panoptic.json").write_text(json.dumps(content))

    def _drawn(self, rng: np.random.Generator, ids: list[int]) -> tuple[NDArray[np.int64], list[dict[str, Any]]]:
        """Return a map of rectangles, some of which are crowds, and its segments_info."""
        numbers = np.zeros(self.size, np.int64)
        numbers[: rng.integers(10, 30)], numbers[-8:] = ids[0], ids[1]
        categories = [20, 25] + [int(rng.choice([11, 17])) for _ in ids[2:]]
        crowds = [0, 0] + [int(rng.random() < 0.35) for _ in ids[2:]]
        for number in ids[2:]:
            top, left = rng.integers(0, (30, 40))
            height, width = rng.integers(4, 20, 2)
            numbers[top : top + height, left : left + width] = number
        infos = []
        for number, category, crowd in zip(ids, categories, crowds, strict=True):
            if (numbers == number).any():
                y, x = np.nonzero(numbers == number)
                bbox = [*map(int, (x.min(), y.min(), np.ptp(x) + 1, np.ptp(y) + 1))]
                info = {"id": number, "category_id": category, "iscrowd": crowd, "bbox": bbox, "area": len(x)}
                infos.append(info)
        return numbers, [infos[index] for index in rng.permutation(len(infos))]

    def _moved(
        self, rng: np.random.Generator, truth: NDArray[np.int64], infos: list[dict[str, Any]]
    ) -> tuple[NDArray[np.int64], dict[int, int]]:
        """Return a prediction: the truth moved, with other numbers, some classes wrong, some lost and some invented."""
        shifted = np.roll(truth, rng.integers(-2, 3, 2), (0, 1))
        found, labels = np.zeros_like(truth), {}
        for number, info in enumerate(infos, 1):
            where = shifted == info["id"]
            if rng.random() < 0.85 and where.any():
                found[where] = number
        for number in (20, 21, 22):
            top, left = rng.integers(0, (30, 40))
            found[top : top + rng.integers(2, 12), left : left + rng.integers(2, 12)] = number
        for number in np.unique(found[found > 0]).tolist():
            right = infos[number - 1]["category_id"] if number < 20 else None
            labels[number] = right if right and rng.random() < 0.8 else int(rng.choice([11, 17, 20, 25]))
        return found, labels

    def reader(self) -> da.CocoReader:
        maps = {"panoptic": da.PanopticMap("panoptic")}
        return da.CocoReader(self.folder / "images", self.folder / "things.json", maps=maps)

    def predictions(self, scale: int = 1) -> list[dict[str, Any]]:
        """Return what a model would predict, of class positions."""
        return [
            {
                "segmentation": torch.from_numpy(np.repeat(np.repeat(found, scale, 0), scale, 1)),
                "segments_info": [{"id": number, "label_id": POSITIONS[each]} for number, each in labels.items()],
            }
            for found, labels in self.found
        ]


def reference(data: Painted) -> dict[str, Any]:
    """Return PQ, SQ and RQ as panopticapi's pq_compute_single_core and pq_average describe them."""
    counts: dict[int, dict[str, Any]] = defaultdict(lambda: {"iou": 0.0, "tp": 0, "fp": 0, "fn": 0})
    for (truth, infos), (found, labels) in zip(data.truth, data.found, strict=True):
        true_of = {each["id"]: each for each in infos}
        areas = {number: int((found == number).sum()) for number in labels}
        joint, times = np.unique(truth.astype(np.uint64) * 2**24 + found.astype(np.uint64), return_counts=True)
        shared = {(int(each) >> 24, int(each) & (2**24 - 1)): int(n) for each, n in zip(joint, times, strict=True)}
        true_matched, found_matched = set(), set()
        for (one, other), both in shared.items():
            if one not in true_of or other not in labels or true_of[one]["iscrowd"]:
                continue
            category = true_of[one]["category_id"]
            if category != labels[other]:
                continue
            union = areas[other] + true_of[one]["area"] - both - shared.get((0, other), 0)
            if both / union > 0.5:
                counts[category]["tp"] += 1
                counts[category]["iou"] += both / union
                true_matched.add(one)
                found_matched.add(other)
        crowds = {}
        for one in true_of:
            if one in true_matched:
                continue
            if true_of[one]["iscrowd"]:
                crowds[true_of[one]["category_id"]] = one
            else:
                counts[true_of[one]["category_id"]]["fn"] += 1
        for other, category in labels.items():
            if other in found_matched:
                continue
            outside = shared.get((0, other), 0) + shared.get((crowds.get(category, -1), other), 0)
            if outside / areas[other] <= 0.5:
                counts[category]["fp"] += 1
    result: dict[str, Any] = {}
    for part, things in (("", (0, 1)), ("_things", (1,)), ("_stuff", (0,))):
        sums, n = [0.0, 0.0, 0.0], 0
        for each in CATEGORIES:
            own = counts[each["id"]]
            if each["isthing"] not in things or own["tp"] + own["fp"] + own["fn"] == 0:
                continue
            weight = own["tp"] + 0.5 * own["fp"] + 0.5 * own["fn"]
            scores = own["iou"] / weight, own["iou"] / own["tp"] if own["tp"] else 0.0, own["tp"] / weight
            sums, n = [a + b for a, b in zip(sums, scores, strict=True)], n + 1
            if not part:
                result[f"PQ of {each['name']}"] = scores[0]
        result |= {f"{name}{part}": value / n for name, value in zip(("PQ", "SQ", "RQ"), sums, strict=True)}
    return result


def evaluate(reader: da.Source, size: tuple[int, int] = (40, 56)) -> da.Batch:
    return next(iter(da.Loader(reader, [da.Resize(size)], len(reader), train=False, device="cpu")))


@pytest.mark.filterwarnings("ignore:.*objects are void")
@pytest.mark.parametrize("scale", [1, 3])
def test_scores_are_those_of_panopticapi(tmp_path: Path, scale: int) -> None:
    """Of 12 random sets; with a scale, the output is larger than the files, and predictions go back to their pixels."""
    crowds = wrong = 0
    for seed in range(12):
        data = Painted(tmp_path / str(seed), seed)
        batch = evaluate(data.reader(), (40 * scale, 56 * scale))
        evaluator = da.PanopticEvaluator()
        evaluator.update(batch, data.predictions(scale))
        metrics, wanted = evaluator.compute(), reference(data)
        for name in [f"{name}{part}" for name in ("PQ", "SQ", "RQ") for part in ("", "_things", "_stuff")]:
            # not bit for bit: sum() is finer from Python 3.12 on
            assert getattr(metrics, name) == pytest.approx(wanted[name], rel=1e-12, abs=0), name
        for each in CATEGORIES:
            name = each["name"]
            own = metrics.PQ_by_class[name]
            assert own == pytest.approx(wanted.get(f"PQ of {name}", np.nan), abs=0, nan_ok=True)
        infos = [info for _, infos in data.truth for info in infos]
        assert metrics.segments == sum(not info["iscrowd"] for info in infos)
        crowds += sum(info["iscrowd"] for info in infos)
        wrong += metrics.RQ < 1
    assert crowds > 20
    assert wrong == 12


def test_the_truth_is_right_and_stays_so_through_a_letterbox(tmp_path: Path) -> None:
    data = Painted(tmp_path, 0)
    data.found = []
    for truth, infos in data.truth:
        labels = {info["id"]: info["category_id"] for info in infos if not info["iscrowd"]}
        data.found.append((np.where(np.isin(truth, [*labels]), truth, 0), labels))
    reader = data.reader()
    evaluator = da.PanopticEvaluator()
    evaluator.update(evaluate(reader), data.predictions())
    assert (evaluator.compute().PQ, evaluator.compute().SQ_things, evaluator.compute().RQ_stuff) == (1, 1, 1)
    assert str(evaluator.compute()) == "PQ 1.000  SQ 1.000  RQ 1.000  things 1.000  stuff 1.000"
    assert repr(evaluator) == "PanopticEvaluator(map='panoptic', 4 images)"
    recipe = [da.Resize((112, 112), letterbox="center")]
    batch = next(iter(da.Loader(reader, recipe, 4, train=False, device="cpu")))
    predictions = data.predictions(2)
    for each in predictions:
        each["segmentation"] = torch.nn.functional.pad(each["segmentation"], (0, 0, 16, 16))
    evaluator.update(batch, predictions)
    assert evaluator.compute().PQ == 1


def test_wrong_predictions(tmp_path: Path) -> None:
    data = Painted(tmp_path, 0, count=1)
    batch, evaluator = evaluate(data.reader()), da.PanopticEvaluator()
    numbers = torch.ones(4, 4, dtype=torch.int64)
    for wrong in ([], [numbers], [{"segmentation": numbers}], [{"segmentation": numbers[0], "segments_info": []}]):
        with pytest.raises(InputError, match=r"predictions must be a list of 1 dicts with segmentation"):
            evaluator.update(batch, wrong)
    for rows, message in (
        ([], "the segment 1 has pixels and must be in segments_info; pixels of no segment are 0 or -1"),
        ([{"id": 1, "label_id": 5}], r"must be a dict with id, a whole number, and label_id in 0..4, got \{'id': 1"),
        ([{"id": 1, "label_id": 1}, {"id": 1, "label_id": 2}], "the segment 1 must have one class"),
    ):
        with pytest.raises(InputError, match=rf"predictions\[0\].*{message}"):
            evaluator.update(batch, [{"segmentation": numbers, "segments_info": rows}])
    with pytest.raises(InputError, match="nothing to score"):
        evaluator.compute()
    with pytest.raises(InputError, match="no map 'other'"):
        da.PanopticEvaluator(map="other").update(batch, [])
    evaluator.update(batch, [{"segmentation": torch.zeros(4, 4), "segments_info": []}])
    assert evaluator.compute().PQ == 0
