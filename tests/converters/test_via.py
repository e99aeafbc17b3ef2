"""VGG Image Annotator 1, 2 and 3: projects, JSON and CSV exports, against a second reading; damaged files."""

from __future__ import annotations

import csv
import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
from format_files import converted, data_set, kinds, refused

SHAPES: list[dict[str, Any]] = [
    {"name": "rect", "x": 10, "y": 10, "width": 30, "height": 20},
    {"name": "polygon", "all_points_x": [10, 40, 30], "all_points_y": [10, 12, 40]},
    {"name": "circle", "cx": 50, "cy": 40, "r": 10.5},
    {"name": "ellipse", "cx": 50, "cy": 40, "rx": 20, "ry": 10, "theta": math.pi / 2},
    {"name": "point", "cx": 5, "cy": 5},
    {"name": "polyline", "all_points_x": [1, 2], "all_points_y": [1, 2]},
]
AS_XY = [
    [2, 10, 10, 30, 20],
    [7, 10, 10, 40, 12, 30, 40],
    [3, 50, 40, 10.5],
    [1, 5, 5],
    [8, 10, 20, 30, 5, 50, 20, 30, 60],
]
BOXES = [[10, 10, 30, 20], [10, 10, 30, 30], [39.5, 29.5, 21, 21], [40, 20, 20, 40]]
"""A second reading of the first four, by hand."""


def image(name: str, shapes: list[dict[str, Any]], attributes: Any = None, **more: Any) -> dict[str, Any]:
    attributes = {"type": "cat", "color": "red"} if attributes is None else attributes
    regions = [{"shape_attributes": shape, "region_attributes": attributes} for shape in shapes]
    return {
        f"{name}99": {"filename": name, "size": 99, "regions": regions, "file_attributes": {"caption": "x"}, **more}
    }


def project(images: dict[str, Any]) -> str:
    attributes = {"region": {"type": {"type": "dropdown", "options": {"cat": ""}}}, "file": {}}
    return json.dumps({"_via_settings": {}, "_via_img_metadata": images, "_via_attributes": attributes})


def table(images: dict[str, Any]) -> str:
    head = ["#filename", "file_size", "file_attributes", "region_count", "region_id", "region_shape_attributes"]
    file = io.StringIO()
    writer = csv.writer(file)
    writer.writerow([*head, "region_attributes"])
    for entry in images.values():
        start = [entry["filename"], 99, json.dumps(entry["file_attributes"]), len(entry["regions"])]
        for number, region in enumerate(entry["regions"] or [{"shape_attributes": {}, "region_attributes": {}}]):
            writer.writerow(
                [*start, number, *(json.dumps(region[key]) for key in ("shape_attributes", "region_attributes"))]
            )
    return file.getvalue()


IMAGES = image("a.jpg", SHAPES) | image("b.jpg", [])
VIA_1 = image("a.jpg", SHAPES) | image("b.jpg", [])
VIA_1["a.jpg99"] = VIA_1["a.jpg99"] | {"regions": dict(enumerate(VIA_1["a.jpg99"]["regions"]))}
_METADATA = {
    f"1_{n}": {"vid": "1", "flg": 0, "z": [], "xy": xy, "av": {"1": "cat", "2": n}} for n, xy in enumerate(AS_XY)
}
VIA_3 = {
    "project": {"pid": "x", "data_format_version": "3.1.1"},
    "config": {},
    "attribute": {"1": {"aname": "class", "type": 4}, "2": {"aname": "number", "type": 1}},
    "file": {
        "1": {"fid": "1", "fname": "a.jpg", "type": 2, "loc": 1},
        "2": {"fid": "2", "fname": "v.mp4", "type": 4},
    },
    "metadata": _METADATA | {"2_0": {"vid": "2", "flg": 0, "z": [1.5, 2], "xy": [], "av": {"1": "cat"}}},
    "view": {"1": {"fid_list": ["1"]}, "2": {"fid_list": ["2"]}},
}
FILES = {
    "project.json": project(IMAGES),
    "export.json": json.dumps(IMAGES),
    "via1.json": json.dumps(VIA_1),
    "a.csv": table(IMAGES),
    "via3.json": json.dumps(VIA_3),
}


@pytest.mark.parametrize("name", [name for name in FILES if name != "via3.json"])
def test_via_2(tmp_path: Path, name: str) -> None:
    root = data_set(tmp_path / "set", {name: FILES[name]}, "images/a.jpg", "images/b.jpg")
    document, summary = converted(root)
    rows = document["annotations"]
    assert [row["bbox"] for row in rows] == BOXES
    assert rows[1]["segmentation"] == [[10, 10, 40, 12, 30, 40]]
    assert rows[2]["area"] == pytest.approx(math.pi * 10.5**2, rel=2e-3)
    assert [row["name"] for row in document["categories"]] == ["cat"]
    assert {row["color"] for row in rows} == {"red"}
    assert document["images"][0]["caption"] == "x"
    assert (summary.images_without_boxes, kinds(summary)) == (1, {"shape-unused": 2})


def test_via_3(tmp_path: Path) -> None:
    document, summary = converted(data_set(tmp_path / "set", {"via.json": FILES["via3.json"]}, "a.jpg"))
    assert [row["bbox"] for row in document["annotations"]] == [*BOXES[:3], [10, 5, 40, 55]]
    assert [row["number"] for row in document["annotations"]] == [0, 1, 2, 4]
    assert ([row["name"] for row in document["categories"]], kinds(summary)) == (["cat"], {"shape-unused": 1})


def test_choices_of_via_3_are_ids_of_their_options(tmp_path: Path) -> None:
    """Of radio buttons, lists and checkboxes: `av` has the ids, `options` the texts."""
    options = {"0": "cat", "1": "dog", "x": "wet"}
    attributes = {
        str(at): {"aname": name, "type": kind, "options": options}
        for at, (name, kind) in enumerate([("class", 4), ("is", 2), ("note", 1)])
    }
    attributes["2"]["options"] = {}
    metadata = {"1_0": {"vid": "1", "z": [], "xy": AS_XY[0], "av": {"0": "1", "1": "0,x", "2": "1"}}}
    content = {**VIA_3, "attribute": attributes, "metadata": metadata}
    document, _ = converted(data_set(tmp_path / "set", {"via.json": json.dumps(content)}, "a.jpg"))
    assert [row["name"] for row in document["categories"]] == ["dog"]
    (row,) = document["annotations"]
    assert (row["is"], row["note"]) == ({"cat": True, "wet": True}, "1")
    metadata["1_0"]["av"]["0"] = "0,1"
    root = data_set(tmp_path / "several", {"via.json": json.dumps(content)}, "a.jpg")
    assert "a region must have one class, got cat, dog" in refused(root)


@pytest.mark.parametrize(
    ("attributes", "names"),
    [
        ({"id": 3, "Label": "dog"}, ["dog"]),
        ({"animal": "dog"}, ["dog"]),
        ({"animal": {"dog": True, "cat": False}}, ["dog"]),
        ({}, ["object"]),
    ],
)
def test_which_attribute_is_the_class(tmp_path: Path, attributes: Any, names: list[str]) -> None:
    root = data_set(tmp_path / "set", {"a.json": json.dumps(image("a.jpg", SHAPES[:1], attributes))}, "a.jpg")
    document, summary = converted(root)
    assert [row["name"] for row in document["categories"]] == names
    assert kinds(summary) == ({"class-none": 1} if names == ["object"] else {})


@pytest.mark.parametrize(
    ("shape", "attributes", "message"),
    [
        ({"name": "rect", "x": 1, "y": 2, "width": 3}, None, "height must be a finite number, got None"),
        (SHAPES[1] | {"all_points_x": [1, 2]}, None, "must be at least 3 each, got 2 and 3"),
        (SHAPES[1] | {"all_points_x": 7}, None, "all_points_x must be a list [...], got 7"),
        (SHAPES[0], {"type": ""}, "its class must be text, got ''"),
        (SHAPES[0], {"type": {"a": True, "b": True}}, "a region must have one class, got a, b"),
        ([2, 1], None, "xy of a rect must be 4 numbers, got 1"),
        (7, None, "shape_attributes must be an object {...}, got 7"),
    ],
)
def test_what_is_refused(tmp_path: Path, shape: Any, attributes: Any, message: str) -> None:
    content = image("a.jpg", [*SHAPES[:1], shape], attributes) | image("b.jpg", SHAPES[:1])
    root = data_set(tmp_path / "set", {"a.json": json.dumps(content)}, "a.jpg", "b.jpg")
    assert message in refused(root)


@pytest.mark.parametrize("depth", [100, 600, 100_000])
def test_nested_values(tmp_path: Path, depth: int) -> None:
    """Some can be parsed but not stored in a temporary file; how many is up to the version of Python."""
    text = json.dumps(image("a.jpg", SHAPES[:1], {"class": "cat", "more": "?"}))
    text = text.replace('"?"', "[" * depth + "]" * depth)
    root = data_set(tmp_path / "set", {"a.json": text}, "a.jpg")
    if depth == 100_000 or (depth == 600 and sys.version_info < (3, 12)):
        assert "a.json: is nested too deeply for a JSON file of annotations" in refused(root, format="via")
    else:
        assert [row["bbox"] for row in converted(root)[0]["annotations"]] == BOXES[:1]


def test_regions_in_a_video_are_not_lost_in_silence(tmp_path: Path) -> None:
    project = json.loads(FILES["via3.json"])
    project["metadata"]["2_0"]["xy"] = [2, 10, 10, 20, 20]
    root = data_set(tmp_path / "set", {"via.json": json.dumps(project)}, "a.jpg")
    assert "v.mp4" in refused(root)
    document, _ = converted(root, on_error="skip")
    assert [row["file_name"] for row in document["images"]] == ["a.jpg"]
