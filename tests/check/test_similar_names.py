"""Classes whose names are a slip apart, in `detaug check`: found in lists of people, and quiet in usual ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from coco_files import write
from command import detaug
from torchvision.models import _meta
from voc_files import image_bytes

from detaug.check.similar_names import RARE, similar_names
from detaug.converters import check_coco


def is_like(rare: str, common: str, times: int = RARE) -> bool:
    found = {tuple(sorted(pair)) for pair in similar_names([common, rare], [2 * times, 2])}
    return found == {(0, 1)}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("traffic-light", "traffic light"), ("trafficLight", "Traffic_Light"), ("no mask", "nomask")),
        *(("cars", "car"), ("boxes", "box"), ("Traffic lights", "traffic_light"), ("branches", "branch")),
    ],
)
def test_hyphens_and_plurals(one: str, other: str) -> None:
    assert is_like(one, other, 1)
    assert is_like(other, one, 1)


@pytest.mark.parametrize(
    ("rare", "common"),
    [
        *(("perosn", "person"), ("peron", "person"), ("truk", "truck"), ("motorcyle", "motorcycle")),
        *(("pedextrian", "pedestrian"), ("pedestrain", "pedestrian"), ("fire extingusher", "fire_extinguisher")),
        *(("fire extinguisher", "firre extinguisher"), ("Vehicel", "vehicle")),
    ],
)
def test_slips_of_the_keyboard(rare: str, common: str) -> None:
    assert is_like(rare, common)
    assert not is_like(rare, common, RARE - 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        *(("car", "cat"), ("left_eye", "right_eye"), ("class1", "class2"), ("class 1", "class 11"), ("x1", "x2")),
        *(("horse", "house"), ("plate", "plane"), ("type_a", "type_b"), ("bike", "biker"), ("plane", "planet")),
        *(("legal", "illegal"), ("typical", "atypical"), ("with_mask", "without_mask"), ("glass", "glasses")),
        *(("blinder", "blender"), ("speed_limit_30", "speed_limit_80"), ("1-0", "10"), ("gas", "ga"), ("Car", "car ")),
    ],
)
def test_what_are_two_classes(one: str, other: str) -> None:
    for times in (1, 1000):
        assert not is_like(one, other, times)
        assert not is_like(other, one, times)


@pytest.mark.parametrize("name", ["_COCO_CATEGORIES", "_VOC_CATEGORIES", "_IMAGENET_CATEGORIES"])
def test_quiet_on_lists_that_people_use(name: str) -> None:
    names = list(dict.fromkeys(getattr(_meta, name)))
    counts = [10 ** (at * 7 % 5) for at in range(len(names))]
    assert [(names[one], names[other]) for one, other in similar_names(names, counts)] == []


def test_the_rare_name_is_like_the_most_common_one() -> None:
    assert [*similar_names(["person", "perzon", "perron"], [9, 0, 900])] == []  # six letters
    assert [*similar_names(["pedestrain", "pedestrian", "pedesrtian"], [3, 90, 1])] == [(0, 1), (2, 1)]


def test_what_check_says(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(image_bytes())
    boxes = [{"id": at, "image_id": 1, "category_id": 7, "bbox": [at, 10, 20, 20 + at]} for at in range(1, 41)]
    boxes += [{"id": 50, "image_id": 1, "category_id": 3, "bbox": [50, 10, 30, 20]}]
    content = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 80}],
        "annotations": boxes,
        "categories": [{"id": 7, "name": "person"}, {"id": 3, "name": "perosn"}, {"id": 8, "name": "Persons"}],
    }
    path = write(tmp_path / "a.json", content)
    said = detaug("check", path, tmp_path, "--report", tmp_path / "r.json", "--html", tmp_path / "r.html")
    slip = "'perosn' with 1 object is like 'person' with 40, categories[0]"
    plural = "'Persons' with 0 objects is like 'person' with 40, categories[0]"
    assert "category-similar" in said.out
    assert slip in said.out + (tmp_path / "r.json").read_text()
    found = [
        each
        for each in json.loads((tmp_path / "r.json").read_bytes())["findings"]
        if each["kind"] == "category-similar"
    ]
    assert sorted(each["message"] for each in found) == sorted([slip, plural])
    page = (tmp_path / "r.html").read_text()
    assert "perosn" in page
    assert "give its objects one label in the labeling tool" in page
    assert check_coco(path, tmp_path).kind_counts["category-similar"] == 2
