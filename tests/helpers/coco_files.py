"""Small COCO datasets for the tests: three images of 100 x 80 pixels, two classes, five boxes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from voc_files import HEIGHT, WIDTH, image_bytes, with_segment

Document = dict[str, Any]

BOXES = [[10, 10, 20, 30], [40, 10, 20, 30], [0, 0, 100, 80], [10.5, 20.25, 30, 20], [60, 50, 40, 30]]


def document() -> Document:
    """Return a COCO JSON file without errors."""
    names = ("a.jpg", "b.jpg", "sub/c.png")
    return {
        "info": {"year": 2024},
        "licenses": [{"id": 3, "name": "CC"}],
        "images": [
            {"id": number, "file_name": name, "width": WIDTH, "height": HEIGHT, "license": 3}
            for number, name in enumerate(names, 1)
        ],
        "annotations": [
            {"id": n, "image_id": 1 + n // 3, "category_id": 1 + n % 2, "bbox": box, "iscrowd": 0, "segmentation": []}
            for n, box in enumerate(BOXES, 1)
        ],
        "categories": [{"id": 1, "name": "cat", "supercategory": "animal"}, {"id": 2, "name": "dog"}],
    }


def add_outlines(content: Document) -> None:
    """Give each annotation the polygon of its box."""
    for each in content["annotations"]:
        x, y, width, height = each["bbox"]
        each["segmentation"] = [[x, y, x + width, y, x + width, y + height, x, y + height]]


def write_images(folder: Path) -> Path:
    """Write the images of `document`, each with other bytes; return the folder."""
    (folder / "sub").mkdir(parents=True)
    for name in ("a.jpg", "b.jpg"):
        (folder / name).write_bytes(with_segment(image_bytes(), name.encode(), 0xFE))
    (folder / "sub/c.png").write_bytes(image_bytes(kind="PNG"))
    return folder


def write(path: Path, content: Document) -> Path:
    path.write_text(json.dumps(content), encoding="utf-8")
    return path
