"""`CocoReader(unused_parents="drop")`: categories that only group others, by RF-DETR's rule."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import detaug
from PIL import Image

import detaug as da

Categories = list[dict[str, Any]]
RESIZE = [da.Resize((40, 60))]


def category(number: int, name: str, parent: Any = "none") -> dict[str, Any]:
    return {"id": number, "name": name, "supercategory": parent}


def write(folder: Path, categories: Categories, used: list[int], **options: Any) -> tuple[Path, Path]:
    """Write an image, and a JSON file with an object of each category of `used`, side by side."""
    Image.new("RGB", (60, 40), (9, 99, 199)).save(folder / "a.png")
    objects = [
        {"id": at, "image_id": 1, "category_id": number, "bbox": [6 * at, 4, 5, 30], "area": 150, "iscrowd": 0}
        for at, number in enumerate(used, 1)
    ]
    for each in objects[: options.get("crowds", 0)]:
        each["iscrowd"] = 1
    image = {"id": 1, "file_name": "a.png", "width": 60, "height": 40} | options.get("image", {})
    path = folder / "a.json"
    path.write_text(json.dumps({"images": [image], "annotations": objects, "categories": categories}))
    return folder, path


def left(folder: Path, categories: Categories, used: list[int], **options: Any) -> list[int]:
    """Return the category ids that are left."""
    reader = da.CocoReader(*write(folder, categories, used, **options), unused_parents="drop")
    names = {each["id"]: each["name"] for each in categories}
    assert [names[number] for number in reader.category_ids[1:]] == [*reader.class_names[1:]]
    return [*reader.category_ids[1:]]


ROOT, CAT, DOG = category(0, "animals"), category(1, "cat", "animals"), category(2, "dog", "animals")


@pytest.mark.parametrize(
    ("categories", "used", "expected"),
    [
        ([ROOT, CAT, DOG], [1], [1, 2]),  # "dog" has no object, and is no parent
        ([CAT, category(5, "animals"), DOG], [1], [1, 2]),
        ([CAT, DOG, category(9, "animals", "animals")], [1, 2], [1, 2]),
        ([ROOT, CAT, DOG], [0, 1], [0, 1, 2]),
        ([ROOT, CAT], [], [1]),
        ([category(0, "cat"), CAT], [1], [0, 1]),  # "cat" is nobody's parent
        ([category(1, "person", "person"), category(2, "car", "vehicle")], [2], [1, 2]),
        ([category(1, "person", "person"), category(2, "child", "person")], [2], [2]),
        ([category(1, "a", "b"), category(2, "b", "a")], [], [1, 2]),  # all would be dropped
        ([category(1, "a", "b"), category(2, "b", "a")], [2], [2]),
        ([category(1, "none"), category(2, "null", ""), category(3, "x", "null"), category(4, "y")], [4], [1, 2, 3, 4]),
        ([category(1, "None"), category(2, "x", "None")], [2], [2]),
        (
            [category(1, "a", None), category(2, "b", ["a"]), category(3, "c", 1), {"id": 4, "name": "1"}],
            [3],
            [1, 2, 3, 4],
        ),
        ([category(1, "a", "root"), category(2, "b", "a"), category(3, "c", "b")], [3], [3]),
        ([category(7, "b", "a"), category(3, "c", "b"), category(5, "a")], [3], [3]),
    ],
)
def test_a_category_that_only_groups_others_is_dropped(
    tmp_path: Path, categories: Categories, used: list[int], expected: list[int]
) -> None:
    assert left(tmp_path, categories, used) == expected
    kept = da.CocoReader(tmp_path, tmp_path / "a.json")
    assert [*kept.category_ids[1:]] == sorted(each["id"] for each in categories)


def test_crowds_and_the_class_of_an_image_count(tmp_path: Path) -> None:
    assert left(tmp_path, [ROOT, CAT, DOG], [0, 1], crowds=1) == [0, 1, 2]
    assert left(tmp_path, [CAT, DOG, category(8, "animals")], [], image={"category_id": 8}) == [1, 2, 8]
    assert left(tmp_path, [CAT, DOG, category(8, "animals")], [], image={"category_id": 2}) == [1, 2]


@pytest.mark.slow
def test_the_categories_are_those_of_rf_detr(tmp_path: Path) -> None:
    coco = pytest.importorskip("rfdetr.datasets.coco", reason="needs rfdetr")
    rng, dropped = np.random.default_rng(0), 0
    names = ["a", "b", "c", "d", "none", "null"]
    for _ in range(300):
        numbers = rng.permutation(20)[: rng.integers(1, 7)].tolist()
        categories = [
            category(number, str(name), [*names, None, ""][rng.integers(8)])
            for number, name in zip(numbers, rng.permutation(names), strict=False)
        ]
        used = [number for number in numbers if rng.random() < 0.4]
        crowds = int(rng.integers(0, 2))
        ours = left(tmp_path, categories, used, crowds=crowds)
        annotated = coco.annotated_category_ids(json.loads((tmp_path / "a.json").read_text()))
        assert ours == [each["id"] for each in coco.filter_parent_categories(categories, annotated)]
        dropped += len(categories) - len(ours)
    assert dropped > 100


PARENT_INSIDE = [category(3, "cat", "animals"), category(5, "animals"), category(9, "dog", "animals")]


def test_labels_and_results_are_by_category_id(tmp_path: Path) -> None:
    folder, path = write(tmp_path, PARENT_INSIDE, [9, 3, 9])
    reader = da.CocoReader(folder, path, unused_parents="drop")
    assert reader.class_names == ("background", "cat", "dog")
    assert reader.category_ids == (-1, 3, 9)
    loader = da.Loader(reader, RESIZE, 1, train=False, device="cpu")
    batch = next(iter(loader))
    assert batch.labels.tolist() == [[2, 1, 2]]
    assert loader.category_ids == (-1, 3, 9)
    evaluator = da.CocoEvaluator(reader)
    evaluator.update(batch, [{**each, "scores": torch.ones(3)} for each in batch.targets()])
    metrics = evaluator.compute()
    assert metrics.AP == 1
    assert [*metrics.AP_by_class] == ["cat", "dog"]
    evaluator.save(tmp_path / "results.json")
    results = json.loads((tmp_path / "results.json").read_text())
    assert [each["category_id"] for each in results] == [9, 3, 9]
    assert da.CocoEvaluator(reader).load(tmp_path / "results.json").compute().AP == 1
    assert da.CocoEvaluator(path).load(tmp_path / "results.json").compute().AP == 1
    assert evaluator.errors(min_score=0.5).class_names == ("cat", "dog")
    with pytest.raises(da.InputError, match="labels"):
        evaluator.update(
            batch, [{**each, "labels": each["labels"] + 1, "scores": torch.ones(3)} for each in batch.targets()]
        )


def test_readers_made_of_it_have_its_classes(tmp_path: Path) -> None:
    folder, path = write(tmp_path, PARENT_INSIDE, [9, 3, 9])
    drop, keep = (da.CocoReader(folder, path, unused_parents=rule) for rule in ("drop", "keep"))
    assert keep.class_names == ("background", "cat", "animals", "dog")
    joined = da.ConcatReader([drop, keep])
    assert joined.class_names == ("background", "cat", "dog", "animals")
    assert joined.category_ids == (-1, 3, 9, 5)
    batch = next(iter(da.Loader(joined, RESIZE, 2, train=False, device="cpu")))
    assert batch.labels.tolist() == [[2, 1, 2]] * 2
    assert da.TileReader(drop, 30).class_names == drop.class_names
    loaders = [da.Loader(reader, RESIZE, 1, device="cpu") for reader in (drop, keep)]
    with pytest.raises(da.InputError, match="images, boxes or classes are not those of this state"):
        loaders[0].load_state_dict(loaders[1].state_dict())


def test_shards_have_the_same_classes(tmp_path: Path) -> None:
    folder, path = write(tmp_path, PARENT_INSIDE, [9, 3, 9])
    assert detaug("pack", path, folder, "-o", tmp_path / "shards").code == 0
    packed = next((tmp_path / "shards").glob("*.json"))
    reader = da.CocoReader(tmp_path / "shards", packed, unused_parents="drop")
    assert reader.class_names == ("background", "cat", "dog")
    batch = next(iter(da.Loader(reader, RESIZE, 1, train=False, device="cpu")))
    assert batch.labels.tolist() == [[2, 1, 2]]


def test_keypoints_are_of_the_classes_that_are_left(tmp_path: Path) -> None:
    categories = [category(1, "animals"), category(2, "cat", "animals") | {"keypoints": ["nose"]}]
    folder, path = write(tmp_path, categories, [2])
    document = json.loads(path.read_text())
    document["annotations"][0] |= {"keypoints": [10, 20, 2], "num_keypoints": 1}
    path.write_text(json.dumps(document))
    reader = da.CocoReader(folder, path, keypoints=True, unused_parents="drop")
    batch = next(islice(da.Loader(reader, [da.RandomHorizontalFlip(p=1), *RESIZE], 1, device="cpu"), 1))
    assert batch.keypoints.tolist() == [[[[49.5, 20.5, 2.0]]]]
    assert batch.labels.tolist() == [[1]]


def test_another_word_is_refused(tmp_path: Path) -> None:
    with pytest.raises(da.InputError, match="unused_parents must be 'drop' or 'keep', got True"):
        da.CocoReader(*write(tmp_path, PARENT_INSIDE, [9]), unused_parents=True)  # type: ignore[arg-type]


def test_clips_have_the_classes_that_are_left(tmp_path: Path) -> None:
    folder, path = write(tmp_path, PARENT_INSIDE, [9, 3, 9], image={"video_id": 1, "frame_id": 0})
    document = json.loads(path.read_text())
    document["videos"] = [{"id": 1}]
    for number, each in enumerate(document["annotations"]):
        each["track_id"] = number
    path.write_text(json.dumps(document))
    drop, keep = (da.ClipReader(folder, path, frames=1, unused_parents=rule) for rule in ("drop", "keep"))
    assert drop.class_names == ("background", "cat", "dog")
    assert keep.class_names == ("background", "cat", "animals", "dog")
    batch = next(iter(da.Loader(drop, RESIZE, 1, train=False, device="cpu")))
    assert batch.labels.flatten().tolist() == [2, 1, 2]
