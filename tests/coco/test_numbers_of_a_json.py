"""A JSON whose numbers are none, one after the other: each command and reader says so or does without, and goes on."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from seeds import slow

import detaug as da
from detaug.cli.main import main

RING = [1, 2, 21, 2, 21, 22, 1, 22]
DOCUMENT: dict[str, Any] = {
    "videos": [{"id": 1, "name": "v", "fps": 10}],
    "images": [{"id": 1, "file_name": "a.jpg", "width": 60, "height": 50, "video_id": 1, "frame_id": 0}],
    "annotations": [
        {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 2, 20, 20], "area": 400, "iscrowd": 0, "score": 0.5}
        | {"segmentation": [RING], "corners": [RING[:2], RING[2:4], RING[4:6], RING[6:]]}
        | {"keypoints": [3, 4, 2, 5, 6, 1], "num_keypoints": 2, "track_id": 1},
        {"id": 2, "image_id": 1, "category_id": 1, "bbox": [1, 2, 20, 20], "track_id": 2, "score": 0.5, "area": 9.5}
        | {"segmentation": {"size": [50, 60], "counts": [100, 20, 2880]}},
    ],
    "categories": [{"id": 1, "name": "c", "keypoints": ["left", "right"], "skeleton": [[1, 2]], "flip_idx": [1, 0]}],
}
COMMANDS = [["check", "x.json", "images"], ["merge", "x.json", "-o", "merged.json"]]
COMMANDS += [[f"convert-coco-to-{tool}", "x.json", tool] for tool in ("label-studio", "cvat", "labelme", "csv", "voc")]
COMMANDS += [["convert-coco-to-yolo", "x.json", "yolo", "--task", "pose"], ["convert-coco-to-dota", "x.json", "dota"]]


def places(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where the numbers of a JSON file are."""
    if isinstance(value, dict | list):
        for key, part in value.items() if isinstance(value, dict) else enumerate(value):
            yield from places(part, (*before, key))
    elif not isinstance(value, str):
        yield before


@pytest.mark.parametrize(
    "number", [10**400, *slow(-(10**400), 1e308, True, None, "9" * 400)], ids=lambda each: str(each)[:4]
)
def test_any_number(number: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("images").mkdir()
    Image.new("RGB", (60, 50)).save("images/a.jpg")
    for *keys, last in places(DOCUMENT):
        document = copy.deepcopy(DOCUMENT)
        part = document
        for key in keys:
            part = part[key]
        part[last] = number
        Path("x.json").write_text(json.dumps(document))
        for command in COMMANDS:
            assert main(command) in (0, 1, 2), (keys, last, command)
        for options in ({}, {"masks": True, "keypoints": True, "rotated": True, "columns": ["area", "score"]}):
            with suppress(da.InputError):
                da.CocoReader("images", "x.json", cache=False, **options)
