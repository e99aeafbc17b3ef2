"""`detaug check` names the annotation file and the ids of the labeling tool, where `detaug convert` has kept them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from command import detaug
from format_files import converted, data_set


def task(number: int, image: str, *regions: dict[str, Any]) -> dict[str, Any]:
    return {"id": number, "data": {"image": f"/data/{image}"}, "annotations": [{"result": [*regions]}]}


def region(name: str, left: float) -> dict[str, Any]:
    """Return a rectangle of Label Studio in an image of 100 x 80 pixels."""
    value = {"x": left, "y": 12.5, "width": 30, "height": 25, "rectanglelabels": ["cat"]}
    size = {"original_width": 100, "original_height": 80}
    return {"id": name, "type": "rectanglelabels", "from_name": "label", "to_name": "image", "value": value, **size}


def test_label_studio(tmp_path: Path) -> None:
    files = {
        "one.json": json.dumps([task(7, "a.jpg", region("x1", 10), region("x2", 10))]),
        "two.json": json.dumps([task(8, "b.jpg", region("y1", 50))]),
    }
    document, summary = converted(data_set(tmp_path / "set", files, "a.jpg", "b.jpg"))
    assert [(row["annotation_file"], row["tool_id"]) for row in document["images"]] == [
        ("one.json", 7),
        ("two.json", 8),
    ]
    assert [row["tool_id"] for row in document["annotations"]] == ["x1", "x2", "y1"]
    page, report = tmp_path / "page.html", tmp_path / "report.json"
    found = detaug("check", summary.output, summary.image_folder, "--html", page, "--report", report)
    assert "  annotations[1] (id 2, a.jpg; one.json, image 7, object x2): " in found.out
    assert "a.jpg, annotations[1], one.json, image 7, object x2" in page.read_text()
    findings = json.loads(report.read_bytes())["findings"]
    assert {each["entry"]: each["origin"] for each in findings}["annotations[1]"] == "one.json, image 7, object x2"


def test_one_file_and_names_that_tell_are_not_repeated(tmp_path: Path) -> None:
    box = '<box label="cat" xtl="1" ytl="1" xbr="9" ybr="9"/>'
    image = f'<image id="41" name="a.jpg" width="100" height="80">{box}</image>'
    document, _ = converted(
        data_set(tmp_path / "cvat", {"annotations.xml": f"<annotations>{image}</annotations>"}, "a.jpg")
    )
    assert (document["images"][0].get("annotation_file"), document["images"][0]["tool_id"]) == (None, 41)
    assert "tool_id" not in document["annotations"][0]
    shape = {"label": "cat", "points": [[1, 1], [9, 9]], "shape_type": "rectangle"}
    files = {f"json/{name}.json": json.dumps({"version": "5", "shapes": [shape], "imagePath": ""}) for name in "ab"}
    document, _ = converted(data_set(tmp_path / "labelme", files, "images/a.jpg", "images/b.jpg"))
    assert not [row for row in document["images"] if {"annotation_file", "tool_id"} & row.keys()]
