"""LabelMe's JSON files: every kind of shape, against a second reading; damaged files."""

from __future__ import annotations

import base64
import io
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_files import converted, data_set, kinds, refused
from PIL import Image
from pycocotools import mask as coco_mask
from voc_files import image_bytes

POLYGON = [[10, 10], [40.5, 12], [30, 40], [12, 30]]
BLOB = np.random.default_rng(0).random((9, 7)) > 0.4


def shape(kind: str | None, points: Any, label: Any = "cat", **more: Any) -> dict[str, Any]:
    """Return a shape as LabelMe 5 writes it."""
    usual = {"group_id": None, "description": "", "shape_type": kind, "flags": {}, "mask": None}
    return {"label": label, "points": points, **usual, **more}


def png(mask: Any) -> str:
    file = io.BytesIO()
    Image.fromarray(mask.astype(np.uint8) * 255).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def labelme(*shapes: dict[str, Any], image: str = "a.jpg", **more: Any) -> str:
    size = {"imageHeight": 80, "imageWidth": 100}
    document = {"version": "5.5.0", "flags": {}, "shapes": shapes, "imagePath": image, "imageData": None, **size}
    return json.dumps(document | more)


SHAPES = [
    shape("polygon", POLYGON),
    shape(None, POLYGON[:3], "dog", description="far away", flags={"truncated": True}),
    shape("rectangle", [[60, 50], [40, 20.25]]),
    shape("rectangle", [[40, 20], [60, 20], [60, 50], [40, 50]], "dog", difficult=True, attributes={"color": "red"}),
    shape("circle", [[50, 40], [53, 44]]),
    shape("oriented_rectangle", [[20, 10], [40, 20], [35, 30], [15, 20]], "ship"),
    shape("mask", [[30, 20], [36, 28]], "blob", mask=png(BLOB)),
    shape("polygon", [[1, 1], [9, 1], [9, 9]], "part", group_id=1),
    shape("polygon", [[11, 1], [19, 1], [19, 9]], "part", group_id=1),
    shape("rectangle", [[60, 10], [90, 70]], "person", group_id=2),
    shape("point", [[70, 20.5]], "nose", group_id=2),
    shape("point", [[75, 60]], "foot", group_id=2, difficult=True),
    shape("point", [[5, 5]], "lone"),
    shape("line", [[5, 5], [9, 9]]),
    shape("linestrip", [[5, 5], [9, 9], [10, 10]]),
]


def second_reading(shapes: list[dict[str, Any]]) -> list[tuple[str, list[float], float]]:
    """Return the class, the box and the area of each object: read again, with nothing of detaug."""
    objects: dict[Any, tuple[str, list[Any], float]] = {}
    for at, each in enumerate(shapes):
        points, kind = np.array(each["points"], float), each["shape_type"] or "polygon"
        x, y = points.T
        area = abs(sum(x * np.roll(y, -1) - y * np.roll(x, -1))) / 2
        if kind in ("line", "linestrip", "point"):
            continue
        if kind == "circle":
            radius = math.dist(*points)
            points, area = np.array([points[0] - radius, points[0] + radius]), math.pi * radius**2
        if kind == "rectangle":
            area = math.prod(np.ptp(points, axis=0))
        if kind == "mask":
            rows, columns = np.nonzero(BLOB)
            corners = [(columns.min(), rows.min()), (columns.max() + 1, rows.max() + 1)]
            points, area = points[0] + np.array(corners), BLOB.sum()
        key = (each["label"], at if each["group_id"] is None else f"group {each['group_id']}")
        _, earlier, sum_of_areas = objects.get(key, ("", [], 0.0))
        objects[key] = each["label"], [*earlier, *points.tolist()], sum_of_areas + area
    boxes = [(name, np.array(points), area) for name, points, area in objects.values()]
    return [(name, [*points.min(0), *np.ptp(points, axis=0)], area) for name, points, area in boxes]


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # of pycocotools
def test_every_kind_of_shape(tmp_path: Path) -> None:
    root = data_set(tmp_path / "set", {"a.json": labelme(*SHAPES)}, "a.jpg", "b.jpg")
    document, summary = converted(root)
    rows, names = document["annotations"], {row["id"]: row["name"] for row in document["categories"]}
    for row, (name, box, area) in zip(rows, second_reading(SHAPES), strict=True):
        assert names[row["category_id"]] == name
        assert row["bbox"] == pytest.approx(box, abs=1e-3)
        assert row["area"] == pytest.approx(area, rel=2e-3)
    assert rows[0]["segmentation"] == [[10, 10, 40.5, 12, 30, 40, 12, 30]]
    assert (rows[1]["description"], rows[1]["flags"]) == ("far away", {"truncated": True})
    assert (rows[3]["difficult"], rows[3]["color"], "segmentation" in rows[3]) == (1, "red", False)
    assert rows[5]["corners"] == SHAPES[5]["points"]
    decoded = coco_mask.decode(rows[6]["segmentation"] | {"counts": rows[6]["segmentation"]["counts"].encode()})
    assert (decoded[20:29, 30:37] == BLOB).all()
    assert decoded.sum() == BLOB.sum()
    assert rows[7]["segmentation"] == [[1, 1, 9, 1, 9, 9], [11, 1, 19, 1, 19, 9]]
    person = next(row for row in document["categories"] if row["name"] == "person")
    assert person["keypoints"] == ["nose", "foot"]
    assert (rows[8]["keypoints"], rows[8]["num_keypoints"]) == ([69.5, 20, 2, 74.5, 59.5, 1], 2)
    assert kinds(summary) == {"shape-unused": 3, "shapes-joined": 1, "label-missing": 1}
    assert summary.image_folder == root


def test_joined_shapes_keep_what_each_has(tmp_path: Path) -> None:
    square = [[40, 40], [60, 60]]
    shapes = [
        shape("rectangle", square, group_id=1, description="first"),
        shape("polygon", POLYGON, group_id=1, description="second", difficult=True, flags={"iscrowd": True}),
        shape("oriented_rectangle", [[20, 10], [40, 20], [35, 30], [15, 20]], group_id=1),
        shape("rectangle", square, group_id=2),
    ]
    document, summary = converted(data_set(tmp_path / "set", {"a.json": labelme(*shapes)}, "a.jpg"))
    joined, other = document["annotations"]
    flat = [number for point in POLYGON for number in point]
    assert joined["segmentation"] == [[40, 40, 60, 40, 60, 60, 40, 60], flat]
    assert joined["corners"] == shapes[2]["points"]
    assert (joined["description"], joined["difficult"], joined["iscrowd"]) == ("first", 1, 1)
    assert (other["bbox"], other["iscrowd"], "segmentation" in other) == ([40, 40, 20, 20], 0, False)
    assert kinds(summary) == {"shapes-joined": 2}


def test_regions_to_ignore_are_crowds_of_each_class(tmp_path: Path) -> None:
    shapes = [*SHAPES[:2], shape("polygon", [[60, 60], [90, 60], [90, 79]], "__ignore__")]
    document, summary = converted(data_set(tmp_path / "set", {"a.json": labelme(*shapes)}, "a.jpg"))
    assert [row["name"] for row in document["categories"]] == ["cat", "dog"]
    assert [(row["category_id"], row["iscrowd"]) for row in document["annotations"]] == [(1, 0), (2, 0), (1, 1), (2, 1)]
    assert kinds(summary) == {"region-ignored": 1}


def test_images_are_found_by_stem_and_by_path(tmp_path: Path) -> None:
    box = shape("rectangle", [[10, 10], [40, 30]])
    files = {
        "json/one/a.json": labelme(box, image="..\\..\\images\\one\\a.jpg"),
        "json/two/a.json": labelme(box, image="a.jpg"),
        "json/three/old.json": labelme(box, image="../../images/three/new.jpg"),
        "json/B.json": labelme(box, image="B.png"),
    }
    images = [f"images/{name}.jpg" for name in ("one/a", "two/a", "three/new", "b")]
    document, summary = converted(data_set(tmp_path / "set", files, *images))
    names = {row["id"]: row["file_name"] for row in document["images"]}
    assert sorted(names[row["image_id"]] for row in document["annotations"]) == sorted(names.values())
    assert [*names.values()] == ["b.jpg", "one/a.jpg", "three/new.jpg", "two/a.jpg"]
    assert (kinds(summary), summary.image_folder) == ({}, tmp_path / "set/images")


def test_outlines_are_cut_at_the_edge(tmp_path: Path) -> None:
    shapes = [
        shape("polygon", [[-20, 10], [20, 10], [20, 30]]),
        shape("mask", [[-3, 76], [3, 84]], mask=png(np.ones_like(BLOB))),
        shape("polygon", [[200, 10], [220, 10], [220, 30]]),
        shape("mask", [[200, 100], [206, 108]], mask=png(BLOB)),
        shape("rectangle", [[90, 70], [110, 90]]),
    ]
    document, summary = converted(data_set(tmp_path / "set", {"a.json": labelme(*shapes)}, "a.jpg"))
    assert [row["bbox"] for row in document["annotations"]] == [[0, 10, 20, 20], [0, 76, 4, 4], [90, 70, 10, 10]]
    assert [row["area"] for row in document["annotations"]] == [300, 16, 100]
    assert kinds(summary) == {"box-outside": 1, "box-empty": 1, "box-clipped": 1, "outline-cut": 3}
    shapes.insert(0, shape("line", [[1, 1], [2, 2]]))  # positions are those in the file
    _, summary = converted(data_set(tmp_path / "more", {"a.json": labelme(*shapes)}, "a.jpg"))
    assert [finding.object_index for finding in summary.findings if finding.kind == "box-outside"] == [3]


@pytest.mark.parametrize(
    ("one", "message"),
    [
        (shape("polygon", [[1, 2], [3, 4]]), "points must be at least 3 points, got 2"),
        (shape("polygon", [[1, 2], [3, 4], [5, "x"]]), "points must be a finite number, got 'x'"),
        (shape("rectangle", [[1, 2], [3, float("nan")]]), "points must be a finite number, got nan"),
        (shape("circle", None), "points must be points [[x, y], ...], got None"),
        (shape("mask", [[1, 2], [3, 4]], mask="iVBO"), "mask must be a PNG as base64 text"),
        (shape("polygon", POLYGON, None), "label must be text, got None"),
        ({}, "label must be text"),
    ],
)
def test_a_shape_that_cannot_be_read_costs_its_image(tmp_path: Path, one: dict[str, Any], message: str) -> None:
    good = shape("rectangle", [[10, 10], [40, 30]])
    files = {"a.json": labelme(good, one), "b.json": labelme(good, image="b.jpg")}
    root = data_set(tmp_path / "set", files, "a.jpg", "b.jpg")
    assert refused(root).startswith(f"a.json: object 1: {message}")
    document, summary = converted(root, on_error="skip")
    assert kinds(summary) == {"object-no-name" if "label" in message else "object-invalid": 1}
    assert [row["file_name"] for row in document["images"]] == ["b.jpg"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b'{"shapes": [', "a.json: does not parse as JSON"),
        (b'{"shapes": 7}', "a.json: is not LabelMe's JSON, which has a list of shapes"),
        (b"[" * 100_000, "a.json: is nested too deeply"),
        ('{"shapes": [{"label": "中文"}]}'.encode("gbk"), "a.json: does not parse as JSON: 'utf-8' codec"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, content: bytes, message: str) -> None:
    root = data_set(tmp_path / "set", {"a.json": content}, "a.jpg")
    assert message in refused(root, format="labelme")


def test_one_file_alone(tmp_path: Path) -> None:
    files = {"a.json": labelme(*SHAPES[:1]), "b.json": labelme(*SHAPES[:2], image="b.jpg")}
    root = data_set(tmp_path / "set", files, "a.jpg", "b.jpg")
    (root / "c.jpg").write_bytes(image_bytes())
    document, summary = converted(root / "b.json")
    assert (len(document["images"]), kinds(summary)) == (1, {"image-unlisted": 2})
