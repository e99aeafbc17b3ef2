"""The line that says how to load what was written: the reader gives all that the annotations have."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from coco_files import document, write, write_images
from voc_files import image_bytes

import detaug as da
from detaug.converters import (
    convert_to_coco,
    merge_coco,
    pack_coco,
    webdataset_to_coco,
    yolo_to_coco,
)
from detaug.tiles.write import tile_coco

RING = [[10, 10, 40, 12, 30, 40]]
CORNERS = [[40, 10], [60, 10], [60, 40], [40, 40]]
ROWS: dict[str, dict[str, Any]] = {
    "masks": {"segmentation": RING, "bbox": [10, 10, 30, 30]},
    "rotated": {"corners": CORNERS, "segmentation": [[40, 10, 60, 10, 60, 40, 40, 40]]},
    "keypoints": {"keypoints": [20, 20, 2, 30, 30, 1], "num_keypoints": 2},
}
"""The shape of an annotation that needs an argument of the reader; the other annotations are boxes."""


def mixed(folder: Path, shapes: list[str]) -> Path:
    """Write a JSON file whose first annotations have the shapes, one each."""
    content = document()
    for row, shape in zip(content["annotations"], shapes, strict=False):
        row.update(ROWS[shape])
    if "keypoints" in shapes:
        for category in content["categories"]:
            category |= {"keypoints": ["left_eye", "right_eye"]}
    return write(folder / "mixed.json", content)


def merged(path: Path, images: Path) -> Any:
    return merge_coco([path], path.with_name("out.json"), classes=["cat", "dog"], images=[images])


def packed(path: Path, images: Path) -> Any:
    return pack_coco(path, images, path.with_name("shards"))


def unpacked(path: Path, images: Path) -> Any:
    packed(path, images)
    return webdataset_to_coco(sorted(path.with_name("shards").glob("*.tar")), path.with_name("back.json"))


def tiled(path: Path, images: Path) -> Any:
    return tile_coco(path, images, path.with_name("tiles"), size=64)


@pytest.mark.parametrize("shapes", [[], ["masks"], ["rotated"], ["keypoints"], ["rotated", "masks", "keypoints"]])
@pytest.mark.parametrize("command", [merged, packed, unpacked, tiled])
def test_the_line_names_the_shapes(tmp_path: Path, command: Callable[..., Any], shapes: list[str]) -> None:
    images = write_images(tmp_path / "images")
    summary = str(command(mixed(tmp_path, shapes), images))
    assert_loads(summary.splitlines()[-1], shapes)


def test_labels_of_mixed_forms(tmp_path: Path) -> None:
    """YOLO rows of boxes beside polygons, and LabelMe's rectangles beside rotated boxes."""
    (tmp_path / "images").mkdir()
    (tmp_path / "labels").mkdir()
    (tmp_path / "images/a.jpg").write_bytes(image_bytes())
    (tmp_path / "labels/a.txt").write_text("0 0.5 0.5 0.2 0.2\n0 0.1 0.1 0.4 0.1 0.3 0.5\n")
    (tmp_path / "data.yaml").write_text("path: .\ntrain: images\nnames: [cat]\n")
    summary = yolo_to_coco(tmp_path / "data.yaml", tmp_path / "out.json", split="train", on_error="skip")
    assert_loads(str(summary).splitlines()[-1], ["masks"])
    shapes = [
        {"label": "a", "shape_type": "rectangle", "points": [[1, 1], [9, 9]]},
        {"label": "a", "shape_type": "rotation", "points": [[20, 10], [30, 20], [20, 30], [10, 20]]},
    ]
    (tmp_path / "labelme").mkdir()
    (tmp_path / "labelme/a.jpg").write_bytes(image_bytes())
    (tmp_path / "labelme/a.json").write_text(json.dumps({"version": "5", "imagePath": "a.jpg", "shapes": shapes}))
    summary = convert_to_coco(tmp_path / "labelme", tmp_path / "labelme.json")
    assert_loads(summary.next_step, ["rotated"])


def assert_loads(line: str, shapes: list[str]) -> None:
    """Check the arguments of the line, and that what a person pastes gives the shapes."""
    assert {name for name in ROWS if f"{name}=True" in line} == set(shapes)
    found = eval(line.partition("load it: ")[2], {"da": da}).shapes
    has = {
        "masks": found.outlines is not None,
        "rotated": found.corners is not None,
        "keypoints": found.keypoints is not None,
    }
    assert {name for name, is_there in has.items() if is_there} == set(shapes)
