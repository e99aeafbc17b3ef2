"""Shapes that have an area are read, whatever the tool calls them; what has none is counted by its kind."""

from __future__ import annotations

import base64
import io
import json
import math
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from format_files import converted, data_set, kinds, refused
from PIL import Image

SQUARE = [[10, 10], [50, 10], [50, 40], [10, 40]]
OPEN = [[10, 10], [50, 10], [50, 40]]
NEAR = [*SQUARE, [10, 14]]
"""Its ends are 4 apart, of a length of 136."""
FAR = [*SQUARE, [10, 20]]
"""Its ends are 10 apart, of a length of 130."""
BACK = [[10, 10], [50, 10], [50, 40], [50, 10], [10, 10]]
"""A line there and back, which meets and surrounds nothing."""


def labelme(kind: str, points: Any, **more: Any) -> dict[str, str]:
    shapes = [
        {"label": "cat", "points": points, "shape_type": kind, "group_id": None, "flags": {}} | more,
        {"label": "dog", "points": [[1, 1], [9, 9]], "shape_type": "rectangle"},
    ]
    return {"a.json": json.dumps({"version": "5.5.0", "shapes": shapes, "imagePath": "a.jpg"})}


def via(kind: str, points: Any) -> dict[str, str]:
    xs, ys = zip(*points, strict=True)
    shapes = [
        {"name": kind, "all_points_x": xs, "all_points_y": ys},
        {"name": "rect", "x": 1, "y": 1, "width": 8, "height": 8},
    ]
    names = ("cat", "dog")
    regions = [
        {"shape_attributes": shape, "region_attributes": {"name": name}}
        for shape, name in zip(shapes, names, strict=True)
    ]
    return {"via.json": json.dumps({"a.jpg9": {"filename": "a.jpg", "size": 9, "regions": regions}})}


def cvat(kind: str, points: Any, more: str = "") -> dict[str, str]:
    text = ";".join(f"{x},{y}" for x, y in points)
    shapes = f'<{kind} label="cat" points="{text}" {more}/><box label="dog" xtl="1" ytl="1" xbr="9" ybr="9"/>'
    image = f'<image id="0" name="a.jpg" width="100" height="80">{shapes}</image>'
    return {"annotations.xml": f"<annotations><meta/>{image}</annotations>"}


def supervisely(kind: str, outline: Any, **more: Any) -> dict[str, str]:
    box = {"geometryType": "rectangle", "classTitle": "dog", "points": {"exterior": [[1, 1], [9, 9]], "interior": []}}
    first = {"geometryType": kind, "classTitle": "cat", "points": {"exterior": outline, "interior": []}} | more
    document = {"description": "", "tags": [], "size": {"height": 80, "width": 100}, "objects": [first, box]}
    return {"ann/a.jpg.json": json.dumps(document)}


LINES = [
    pytest.param(labelme, "linestrip", id="labelme"),
    pytest.param(via, "polyline", id="via"),
    pytest.param(cvat, "polyline", id="cvat"),
    pytest.param(supervisely, "line", id="supervisely"),
]


def first_of(tmp_path: Path, files: dict[str, str]) -> tuple[dict[str, Any] | None, dict[str, int], str]:
    """Return the annotation of the class cat, if there is one, the kinds of findings, and what is printed."""
    image = "img/a.jpg" if "ann/a.jpg.json" in files else "a.jpg"
    document, summary = converted(data_set(tmp_path / "set", files, image))
    names = {row["id"]: row["name"] for row in document["categories"]}
    found = [row for row in document["annotations"] if names[row["category_id"]] == "cat"]
    return found[0] if found else None, kinds(summary), str(summary)


@pytest.mark.parametrize(("files", "kind"), LINES)
def test_a_line_whose_ends_meet_is_an_outline(tmp_path: Path, files: Any, kind: str) -> None:
    row, found, _ = first_of(tmp_path, files(kind, [*SQUARE, SQUARE[0]]))
    assert row
    assert (row["segmentation"], row["area"], found) == ([[10, 10, 50, 10, 50, 40, 10, 40]], 1200, {})


@pytest.mark.parametrize(("files", "kind"), LINES)
def test_a_line_whose_ends_nearly_meet_is_one_with_a_finding(tmp_path: Path, files: Any, kind: str) -> None:
    row, found, _ = first_of(tmp_path, files(kind, NEAR))
    assert row
    assert (row["bbox"], found) == ([10, 10, 40, 30], {"line-closed": 1})


@pytest.mark.parametrize("points", [OPEN, FAR, BACK, SQUARE[:1]], ids=["open", "far", "back", "point"])
@pytest.mark.parametrize(("files", "kind"), LINES)
def test_a_line_without_an_area_is_counted_as_one(tmp_path: Path, files: Any, kind: str, points: Any) -> None:
    row, found, printed = first_of(tmp_path, files(kind, points))
    assert (row, found) == (None, {"shape-unused": 1})
    assert "has no place in the JSON file: 1 line\n" in printed


def test_quadrilaterals_and_cuboids_of_x_anylabeling(tmp_path: Path) -> None:
    points = [[10, 10], [60, 12], [58, 50], [12, 48]]
    row, found, _ = first_of(tmp_path / "quadrilateral", labelme("quadrilateral", points))
    assert row
    assert (row["segmentation"], row["bbox"], found) == ([[10, 10, 60, 12, 58, 50, 12, 48]], [10, 10, 50, 40], {})
    row, found, _ = first_of(tmp_path / "cuboid", labelme("cuboid", [*SQUARE, *([x + 5, y + 5] for x, y in SQUARE)]))
    assert row
    # The hull of two squares, one 5 to the right and below: two corners of 5 x 5 / 2 are missing of 45 x 35.
    assert (row["bbox"], row["area"], found) == ([10, 10, 45, 35], 45 * 35 - 25, {})


def test_keys_that_are_not_read_are_counted(tmp_path: Path) -> None:
    row, found, printed = first_of(tmp_path, labelme("polygon", SQUARE, score=0.5, kie_linking=[[1, 2]], other=None))
    assert row
    assert (row["score"], found) == (0.5, {"element-unused": 1})
    assert "have no place in the JSON file: kie_linking\n" in printed


def test_cuboids_and_unknown_elements_of_cvat(tmp_path: Path) -> None:
    corners = {"tl": (10, 10), "bl": (10, 40), "tr": (50, 10), "br": (50, 40)}
    values = " ".join(
        f'{axis}{place}{side}="{number + 5 * (side - 1)}"'
        for side in (1, 2)
        for place, point in corners.items()
        for axis, number in zip("xy", point, strict=True)
    )
    row, found, _ = first_of(tmp_path / "1", cvat("cuboid", [], values))
    assert row
    assert (row["bbox"], row["area"], found) == ([10, 10, 45, 35], 45 * 35 - 25, {})
    row, found, printed = first_of(tmp_path / "2", cvat("sphere", []))
    assert (row, found) == (None, {"element-unused": 1})
    assert "have no place in the JSON file: <sphere>\n" in printed


def test_circles_through_points_of_via_3(tmp_path: Path) -> None:
    on_it = [50 + 20, 40, 50, 40 + 20, 50 - 20 * math.cos(0.3), 40 - 20 * math.sin(0.3)]
    document = {
        "project": {}, "config": {}, "attribute": {"1": {"aname": "class"}},
        "file": {"1": {"fname": "a.jpg", "type": 2}}, "view": {"1": {"fid_list": ["1"]}},
        "metadata": {"a": {"vid": "1", "z": [], "xy": [9, *on_it], "av": {"1": "cat"}}},
    }  # fmt: skip
    row, _, _ = first_of(tmp_path, {"via.json": json.dumps(document)})
    assert row
    assert row["bbox"] == pytest.approx([30, 20, 40, 40], abs=1e-3)
    document["metadata"]["a"]["xy"] = [9, 1, 1, 2, 2, 3, 3]
    root = data_set(tmp_path / "line", {"via.json": json.dumps(document)}, "a.jpg")
    assert "the points of a circle must not lie on one line" in refused(root)


def png(mask: Any, mode: str = "L") -> bytes:
    file = io.BytesIO()
    pixels = Image.fromarray(mask.astype(np.uint8) * 255)
    if mode == "RGBA":  # opaque: white on black
        pixels = pixels.convert("RGBA")
    if mode == "alpha":  # black, and transparent outside
        black = Image.new("L", pixels.size)
        pixels = Image.merge("RGBA", [black, black, black, pixels])
    pixels.save(file, "PNG")
    return file.getvalue()


BLOB = np.zeros((9, 7), bool)
BLOB[1:4, 2:6] = True


def test_masks_with_alpha_and_rotated_boxes_of_supervisely(tmp_path: Path) -> None:
    for name, data in (("packed", zlib.compress(png(BLOB))), ("plain", png(BLOB))):
        bitmap = {"origin": [30, 20], "data": base64.b64encode(data).decode()}
        row, found, _ = first_of(tmp_path / name, supervisely("alpha_mask", [], bitmap=bitmap))
        assert row
        assert (row["bbox"], row["area"], found) == ([32, 21, 4, 3], 12, {})
    turned = supervisely("oriented_bbox", [], points=[[20, 30], [60, 50]], angle=math.pi / 2)
    row, found, _ = first_of(tmp_path / "turned", turned)
    assert row
    assert (row["corners"], found) == ([[50, 20], [50, 60], [30, 60], [30, 20]], {})
    cuboid = supervisely("cuboid", [], points=[*SQUARE, *([x + 5, y + 5] for x, y in SQUARE)], faces=[])
    row, found, _ = first_of(tmp_path / "cuboid", cuboid)
    assert row
    assert (row["bbox"], found) == ([10, 10, 45, 35], {})


def test_tags_of_supervisely_that_come_several_times(tmp_path: Path) -> None:
    tags = [{"name": "color", "value": "red"}, {"name": "color", "value": "blue"}, {"name": "wet", "value": None}]
    row, _, _ = first_of(tmp_path, supervisely("polygon", SQUARE, tags=tags, description="far"))
    assert row
    assert (row["color"], row["wet"], row["description"]) == (["red", "blue"], 1, "far")


def label_studio(*values: dict[str, Any]) -> dict[str, str]:
    size = {"original_width": 100, "original_height": 80, "to_name": "image", "from_name": "label"}
    results = [size | {"id": f"r{at}", "type": "x", "value": value} for at, value in enumerate(values)]
    return {"tasks.json": json.dumps([{"id": 1, "data": {"image": "a.jpg"}, "annotations": [{"result": results}]}])}


DOG = {"x": 1, "y": 1, "width": 9, "height": 9, "rectanglelabels": ["dog"]}


@pytest.mark.parametrize("mode", ["L", "RGBA", "alpha"])
def test_bitmasks_of_label_studio(tmp_path: Path, mode: str) -> None:
    mask = np.zeros((80, 100), bool)
    mask[10:40, 20:60] = True
    url = f"data:image/png;base64,{base64.b64encode(png(mask, mode)).decode()}"
    row, found, _ = first_of(tmp_path, label_studio({"imageDataURL": url, "bitmasklabels": ["cat"]}, DOG))
    assert row
    assert (row["bbox"], row["area"], found) == ([20, 10, 40, 30], 1200, {})
    url = f"data:image/png;base64,{base64.b64encode(png(BLOB)).decode()}"
    root = data_set(tmp_path / "small", label_studio({"imageDataURL": url, "bitmasklabels": ["cat"]}), "a.jpg")
    assert "imageDataURL must be as large as its image, (100, 80), got (7, 9)" in refused(root)


def test_vectors_of_label_studio(tmp_path: Path) -> None:
    vertices = [{"id": str(at), "x": x, "y": y * 100 / 80} for at, (x, y) in enumerate(SQUARE)]
    vector = {"vertices": vertices, "closed": True, "vectorlabels": ["cat"]}
    row, found, _ = first_of(tmp_path / "closed", label_studio(vector, DOG))
    assert row
    assert (row["segmentation"], found) == ([[10, 10, 50, 10, 50, 40, 10, 40]], {})
    row, found, _ = first_of(tmp_path / "open", label_studio(vector | {"closed": False}, DOG))
    assert (row, found) == (None, {"shape-unused": 1})
    vertices[1]["isBezier"] = True
    assert "no curves; draw it as a polygon" in refused(data_set(tmp_path / "bent", label_studio(vector), "a.jpg"))


REGION = {"original_width": 100, "original_height": 80, "from_name": "label", "to_name": "pdf"}


def page(number: int | None, x: float, id: str, name: str = "cat") -> dict[str, Any]:
    value = {"x": x, "y": 25, "width": 10, "height": 25, "rectanglelabels": [name]}
    more = {} if number is None else {"item_index": number}
    return REGION | {"id": id, "type": "rectanglelabels", "value": value} | more


def pages(results: list[Any], **data: Any) -> dict[str, str]:
    return {"tasks.json": json.dumps([{"id": 1, "data": data, "annotations": [{"result": results}]}])}


def test_regions_of_a_list_of_images_are_on_their_own_page(tmp_path: Path) -> None:
    wet = REGION | {"id": "b", "type": "choices", "from_name": "state", "value": {"choices": ["wet"]}}
    scene = REGION | {"id": "x", "type": "choices", "from_name": "scene", "value": {"choices": ["day"]}}
    results = [page(1, 30, "b"), page(0, 10, "a"), page(1, 50, "c"), wet, scene]
    files = pages(results, pages=["/data/upload/1/p0.jpg", "/data/upload/1/p1.jpg", "p2.jpg"], cover="p0.jpg")
    document, summary = converted(data_set(tmp_path / "set", files, "p0.jpg", "p1.jpg", "p2.jpg"))
    names = {row["id"]: row["file_name"] for row in document["images"]}
    found = [(names[row["image_id"]], row["bbox"][0], row.get("state")) for row in document["annotations"]]
    assert found == [("p0.jpg", 10, None), ("p1.jpg", 30, "wet"), ("p1.jpg", 50, None)]
    assert [row["scene"] for row in document["images"]] == ["day"] * 3
    assert (kinds(summary), summary.images_without_boxes) == ({}, 1)


@pytest.mark.parametrize(
    ("results", "data", "message"),
    [
        ([page(2, 1, "a")], {"image": ["p0.jpg", "p1.jpg"]}, "item_index must be from 0 to 1, got '2'"),
        ([page(-1, 1, "a")], {"image": ["p0.jpg", "p1.jpg"]}, "item_index must be from 0 to 1, got '-1'"),
        ([page(None, 1, "a")], {"image": ["p0.jpg", "p1.jpg"]}, "a region must have item_index, since its task has 2"),
        ([page(1, 1, "a")], {"cover": "p0.jpg"}, "its data have no list of images; make a task of each image"),
        ([page(0, 1, "a")], {"x": ["p0.jpg"], "y": ["p1.jpg"]}, "have several lists of images, x and y; call the"),
    ],
)
def test_pages_that_are_not_known(tmp_path: Path, results: Any, data: Any, message: str) -> None:
    assert message in refused(data_set(tmp_path / "set", pages(results, **data), "p0.jpg", "p1.jpg"))


def test_one_image_may_have_item_index_0(tmp_path: Path) -> None:
    document, _ = converted(data_set(tmp_path / "set", pages([page(0, 10, "a")], image="p0.jpg"), "p0.jpg"))
    assert [row["bbox"][0] for row in document["annotations"]] == [10]


def test_of_two_annotators_in_json_min_the_first_counts(tmp_path: Path) -> None:
    label = {"y": 25, "width": 10, "height": 25, "rectanglelabels": ["cat"]} | REGION
    entries = [
        {"image": "p0.jpg", "id": 1, "label": [label | {"x": 10}], "annotator": 1, "annotation_id": 1},
        {"image": "p1.jpg", "id": 2, "label": [label | {"x": 30}], "annotator": 1, "annotation_id": 2},
        {"image": "p0.jpg", "id": 1, "label": [label | {"x": 50}], "annotator": 2, "annotation_id": 3},
    ]
    document, summary = converted(data_set(tmp_path / "set", {"min.json": json.dumps(entries)}, "p0.jpg", "p1.jpg"))
    assert [row["bbox"][0] for row in document["annotations"]] == [10, 30]
    assert kinds(summary) == {"annotation-unused": 1}


def test_what_the_data_of_a_task_say_of_its_image(tmp_path: Path) -> None:
    data = {
        "image": "p0.jpg",
        "weather": "rain",
        "hour": 7,
        "mask": "p0.png",
        "film": "a.mp4",
        "page": "https://x.org/a",
    }
    document, _ = converted(data_set(tmp_path / "set", pages([page(0, 10, "a")], **data), "p0.jpg"))
    keys = {"id", "file_name", "width", "height", "tool_id"}
    assert {key: value for key, value in document["images"][0].items() if key not in keys} == {
        "weather": "rain",
        "hour": 7,
    }
