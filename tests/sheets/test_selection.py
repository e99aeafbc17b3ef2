"""The selection of images for a sheet."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image

import detaug as da
from detaug.sheets.photos import How, select_images

Box = tuple[str, list[float]]

ORDINARY: Box = ("dog", [10, 10, 100, 80])
IMAGES: list[list[Box]] = [
    [],
    [ORDINARY],
    [ORDINARY, ("cat", [50, 50, 6, 8])],
    [("dog", [40 * at, 10, 30, 30]) for at in range(6)],
    [ORDINARY, ("cat", [11, 10, 100, 80])],
    [("cat", [0, 0, 400, 300])],
    [("dog", [5, 100, 390, 21])],
    [("dog", [5, 100, 20, 1])],
]


@pytest.fixture
def reader(tmp_path: Path) -> da.CocoReader:
    rows, boxes = [], []
    for image_id, objects in enumerate(IMAGES, 1):
        Image.new("RGB", (400, 300)).save(tmp_path / f"{image_id}.png")
        rows.append({"id": image_id, "file_name": f"{image_id}.png", "width": 400, "height": 300})
        for name, box in objects:
            category = 1 + (name == "dog")
            boxes.append({"id": len(boxes) + 1, "image_id": image_id, "category_id": category, "bbox": box})
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}, {"id": 3, "name": "cow"}]
    path = tmp_path / "all.json"
    path.write_text(json.dumps({"images": rows, "annotations": boxes, "categories": categories}))
    return da.CocoReader(tmp_path, path)


def rows(reader: da.CocoReader, count: int, how: How, only: str | None = None, seed: int = 0) -> list[int]:
    return [each.row for each in select_images(reader, count, how=how, only=only, seed=seed)]


def test_at_random(reader: da.CocoReader) -> None:
    assert sorted(rows(reader, 99, "random")) == list(range(8))
    assert rows(reader, 3, "random", seed=1) == rows(reader, 3, "random", seed=1)
    assert len({tuple(rows(reader, 3, "random", seed=seed)) for seed in range(9)}) > 5
    assert sorted(rows(reader, 99, "random", "cat")) == [2, 4, 5]


def test_at_random_an_image_without_boxes_comes_last(reader: da.CocoReader) -> None:
    assert {rows(reader, 99, "random", seed=seed)[-1] for seed in range(9)} == {0}


def test_the_smallest_the_most_crowded_and_the_oddest_come_first(reader: da.CocoReader) -> None:
    assert rows(reader, 2, "smallest") == [7, 2]
    assert rows(reader, 2, "smallest", "cat") == [2, 4]
    assert rows(reader, 3, "crowded") == [3, 2, 4]
    assert sorted(rows(reader, 4, "suspicious")) == [4, 5, 6, 7]
    assert 0 not in rows(reader, 99, "suspicious")


def test_the_reason_is_in_the_note(reader: da.CocoReader) -> None:
    notes = {each.row: each.note for each in select_images(reader, 99, how="suspicious")}
    assert notes[4] == "two boxes alike, IoU 0.98"
    assert notes[5] == "a box over 100% of the image"
    assert notes[6] == "a box 18.6 : 1"
    assert select_images(reader, 1, how="smallest")[0].note == "smallest 20 x 1"
    assert select_images(reader, 1, how="crowded")[0].note == "6 boxes"
    assert {each.note for each in select_images(reader, 99)} == {""}


def test_a_class_without_images_is_an_error(reader: da.CocoReader) -> None:
    with pytest.raises(ValueError, match=r"only must be a class of .*all.json: cat, dog, cow; got 'background'"):
        select_images(reader, 1, only="background")
    with pytest.raises(ValueError, match=r"all.json has no image with a cow"):
        select_images(reader, 1, only="cow")
    with pytest.raises(ValueError, match="rows must be at least 1, got 0"):
        select_images(reader, 0)
