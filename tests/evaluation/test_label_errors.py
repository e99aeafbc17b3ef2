"""`detaug evaluate --label-errors`: planted errors come first, with the numbers of the rule; page and JSON file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import detaug
from PIL import Image
from test_html_report import Page

import detaug as da
from detaug.converters import check_coco

OBJECTS = {
    1: [(1, [10, 10, 20, 20]), (2, [60, 10, 30, 30])],
    2: [(1, [10, 50, 40, 20]), (1, [70, 60, 20, 30])],
    3: [(2, [20, 20, 40, 40])],
    4: [(1, [0, 0, 30, 50])],
}
"""The classes and boxes of objects by image, all found with a score of 0.9."""


def write(folder: Path, objects: dict[int, list[tuple[int, list[float]]]], **more: Any) -> Path:
    images = [{"id": number, "file_name": f"{number}.png", "width": 100, "height": 100} for number in OBJECTS]
    rows = [
        {"image_id": number, "category_id": category, "bbox": box, "area": box[2] * box[3], "iscrowd": 0}
        for number, own in objects.items()
        for category, box in own
    ]
    rows = [{"id": 10 + index, **row, **more.get("rows", {}).get(index, {})} for index, row in enumerate(rows)]
    categories = [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    rng = np.random.default_rng(0)
    for image in images:
        pixels = rng.integers(0, 256, (100, 100, 3)).astype(np.uint8)
        Image.fromarray(pixels).save(folder / str(image["file_name"]))
    (folder / "val.json").write_text(json.dumps({"images": images, "annotations": rows, "categories": categories}))
    return folder / "val.json"


def detections(folder: Path, *more: tuple[int, int, list[float], float]) -> Path:
    rows = [(number, category, box, 0.9) for number, own in OBJECTS.items() for category, box in own]
    names = ("image_id", "category_id", "bbox", "score")
    (folder / "found.json").write_text(json.dumps([dict(zip(names, row, strict=True)) for row in (*rows, *more)]))
    return folder / "found.json"


def errors_of(annotations: Path, found: Path) -> list[tuple[str, int, int, float]]:
    """Return the kind, the image, the position of the annotation and the suspicion of each, of more than 0.11."""
    errors = da.CocoEvaluator(da.CocoReader(annotations.parent, annotations)).load(found).label_errors()
    assert [error.suspicion for error in errors] == sorted((error.suspicion for error in errors), reverse=True)
    return [
        (error.kind, error.image_id, error.annotation, pytest.approx(error.suspicion, abs=1e-6))
        for error in errors
        if error.suspicion > 0.11
    ]


def test_what_is_right_is_not_suspected(tmp_path: Path) -> None:
    assert errors_of(write(tmp_path, OBJECTS), detections(tmp_path)) == []


def test_one_error_of_each_kind(tmp_path: Path) -> None:
    planted = {**OBJECTS, 1: OBJECTS[1][:1], 2: [(2, [10, 50, 40, 20]), OBJECTS[2][1]]}
    planted |= {3: [(2, [20, 40, 40, 40])], 4: [*OBJECTS[4], (1, [60, 60, 30, 30])]}
    found = errors_of(write(tmp_path, planted), detections(tmp_path))
    assert found == [
        ("missing", 1, -1, 0.9),
        ("class", 2, 1, 0.9),
        ("extra", 4, 5, 0.75),  # three of the four cats are confirmed
        ("location", 3, 3, 0.9 * (1 - 1 / 3) * (1 - 0.9 / 3)),
    ]


def test_a_duplicate_is_hardly_missing(tmp_path: Path) -> None:
    """The less, the more the object explains it; and what a detection with a higher score shows counts once."""
    duplicates = [(1, 1, [14, 14, 24, 24], 0.8), (1, 2, [62, 12, 30, 30], 0.8)]
    found = errors_of(write(tmp_path, OBJECTS), detections(tmp_path, *duplicates))
    overlap = 16 * 16 / (20 * 20 + 24 * 24 - 16 * 16)  # less than the 0.5 from which an object explains a detection
    assert found == [("missing", 1, -1, 0.8 * (1 - overlap / 0.5))]
    without = {**OBJECTS, 1: OBJECTS[1][:1]}
    found = errors_of(write(tmp_path, without), detections(tmp_path, *duplicates))
    assert found == [("missing", 1, -1, 0.9), ("missing", 1, -1, 0.8 * (1 - overlap / 0.5))]


def test_a_fitting_detection_of_the_class_outweighs_another(tmp_path: Path) -> None:
    other = (3, 1, [20, 20, 40, 40], 0.8)
    found = errors_of(write(tmp_path, OBJECTS), detections(tmp_path, other))
    assert found == []  # 0.8 x (1 - 0.9) x (1 - 0.9)
    weak = (3, 1, [20, 20, 40, 40], 0.95)
    (tmp_path / "found.json").write_text(
        json.dumps(
            [
                {"image_id": 3, "category_id": category, "bbox": box, "score": score}
                for category, box, score in ((2, [20, 20, 40, 40], 0.3), weak[1:])
            ]
        )
    )
    found = [row for row in errors_of(write(tmp_path, OBJECTS), tmp_path / "found.json") if row[1] == 3]
    assert found == [("class", 3, 4, 0.95 * 0.7 * 0.7)]


def test_crowds_and_difficult_objects_are_not_suspected(tmp_path: Path) -> None:
    planted = {**OBJECTS, 3: [(2, [10, 10, 80, 80])], 4: [(2, [60, 60, 30, 30]), *OBJECTS[4]]}
    flags = {4: {"iscrowd": 1}, 5: {"difficult": 1}}
    assert errors_of(write(tmp_path, planted, rows=flags), detections(tmp_path)) == []


def test_what_the_detector_often_misses_is_less_suspect(tmp_path: Path) -> None:
    """Of the class of dogs it finds none: that one lacks a detection says nothing."""
    path = detections(tmp_path)
    rows = [row for row in json.loads(path.read_bytes()) if row["category_id"] == 1]
    path.write_text(json.dumps(rows))
    assert errors_of(write(tmp_path, OBJECTS), path) == []


def test_images_without_detections_or_annotations(tmp_path: Path) -> None:
    (tmp_path / "found.json").write_text("[]")
    assert errors_of(write(tmp_path, OBJECTS), tmp_path / "found.json") == []
    found = errors_of(write(tmp_path, {**OBJECTS, 3: []}), detections(tmp_path))
    assert found == [("missing", 3, -1, 0.9)]


def test_rotated_boxes(tmp_path: Path) -> None:
    """A square and the same one rotated by 45 degrees have an IoU of 0.71."""
    square, center = [[10, 10], [50, 10], [50, 50], [10, 50]], np.array([[30, 30]] * 4)
    rotated = center + np.array([[0, -28.284], [28.284, 0], [0, 28.284], [-28.284, 0]])
    path = write(tmp_path, {1: [(1, [10, 10, 40, 40])]}, rows={0: {"corners": square}})
    reader = da.CocoReader(tmp_path, path, rotated=True)
    evaluator = da.CocoEvaluator(reader, kind="rotated")
    row = {"image_id": 1, "category_id": 1, "bbox": [1.7, 1.7, 56.6, 56.6], "corners": rotated.tolist(), "score": 0.9}
    (tmp_path / "found.json").write_text(json.dumps([row]))
    (error,) = evaluator.load(tmp_path / "found.json").label_errors()
    overlap = 2 * (np.sqrt(2) - 1) / (2 - 2 * (np.sqrt(2) - 1))
    assert (error.kind, error.suspicion) == (
        "location",
        pytest.approx(0.9 * (1 - overlap) * (1 - 0.9 * overlap), abs=1e-3),
    )
    with pytest.raises(da.InputError, match="label errors are found by boxes"):
        da.CocoEvaluator(da.CocoReader(tmp_path, path, masks=True), kind="segm").label_errors()


@pytest.fixture
def evaluated(tmp_path: Path) -> tuple[Path, str]:
    planted = {**OBJECTS, 1: OBJECTS[1][:1], 2: [(2, [10, 50, 40, 20]), OBJECTS[2][1]]}
    planted |= {3: [(2, [20, 40, 40, 40])], 4: [*OBJECTS[4], (1, [60, 60, 30, 30])]}
    annotations, found = write(tmp_path, planted), detections(tmp_path)
    order = ("--label-errors", tmp_path / "errors.json", "--html", tmp_path / "page.html")
    result = detaug("evaluate", annotations, tmp_path, "--detections", found, *order)
    assert result.code == 0
    return tmp_path, result.out


def test_the_file_is_a_dataset_for_labeling_tools(evaluated: tuple[Path, str]) -> None:
    folder, printed = evaluated
    assert "label errors with a suspicion of 0.3 or more: missing 1, class 1, location 1, extra 1" in printed
    assert f"written: {folder / 'errors.json'}" in printed
    document = json.loads((folder / "errors.json").read_bytes())
    assert [row["id"] for row in document["images"]] == [1, 2, 4, 3]  # the worst first
    rows = {row["id"]: row for row in document["annotations"]}
    assert {number: row["label_error"]["kind"] for number, row in rows.items() if "label_error" in row} == {
        11: "class",
        13: "location",
        15: "extra",
        16: "missing",
    }
    assert (rows[16]["image_id"], rows[16]["category_id"], rows[16]["bbox"]) == (1, 2, [60, 10, 30, 30])
    assert rows[16]["score"] == 0.9
    assert rows[11]["category_id"] == 2
    assert rows[11]["label_error"] == {
        "kind": "class", "suspicion": 0.9, "score": 0.9, "category_id": 1, "bbox": [10, 50, 40, 20]
    }  # fmt: skip
    assert rows[13]["bbox"] == [20, 40, 40, 40]
    assert rows[13]["label_error"]["bbox"] == [20, 20, 40, 40]
    assert check_coco(folder / "errors.json", folder).errors == 0
    for tool in ("labelme", "cvat", "label-studio"):
        assert detaug(f"convert-coco-to-{tool}", folder / "errors.json", folder / tool, "--images", folder).code == 0


def test_the_page_draws_them(evaluated: tuple[Path, str]) -> None:
    folder, _ = evaluated
    page = Page((folder / "page.html").read_text(encoding="utf-8"))
    texts = ("missing, suspicion 0.90", "class, suspicion 0.90", "extra, suspicion 0.75")
    places = [page.text.index(text) for text in texts]
    assert places == sorted(places)
    assert len(page.pictures("jpeg")) >= 4


def test_an_output_that_is_read_is_refused(tmp_path: Path) -> None:
    annotations, found = write(tmp_path, OBJECTS), detections(tmp_path)
    result = detaug("evaluate", annotations, tmp_path, "--detections", found, "--label-errors", annotations)
    assert result.code == 2
    assert "must be another file than" in result.err
