"""`evaluate_maps`: maps that a model predicted, as files, score as the evaluators do."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from panoptic_files import PaintedPanoptic
from PIL import Image

from detaug.errors import InputError
from detaug.scoring.maps import evaluate_maps


def test_panoptic_files(tmp_path: Path) -> None:
    """The truth scores 1, without `categories`; a class that is wrong lowers PQ."""
    data = PaintedPanoptic(tmp_path, 3)
    shutil.copytree(tmp_path / "panoptic", tmp_path / "found")
    truth = tmp_path / "images", tmp_path / "panoptic.json"
    (tmp_path / "found.json").write_text(json.dumps({"annotations": data.entries}))
    perfect = evaluate_maps("panoptic", tmp_path / "found.json", *truth)
    assert perfect.metrics.SQ == 1
    data.entries[0]["segments_info"] = [
        {**each, "category_id": {7: 9, 9: 7}.get(each["category_id"], each["category_id"])}
        for each in json.loads((tmp_path / "found.json").read_text())["annotations"][0]["segments_info"]
    ]
    (tmp_path / "found.json").write_text(json.dumps({"annotations": data.entries}))
    crossed = evaluate_maps("panoptic", tmp_path / "found", *truth, maps=tmp_path / "panoptic")
    assert crossed.metrics.PQ_stuff == pytest.approx(2 / 3)
    assert "all things" in str(crossed)
    crossed.write_report(tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["images"] == 3


def test_files_of_classes_and_depths(tmp_path: Path) -> None:
    for name in ("images", "maps", "found"):
        (tmp_path / name).mkdir()
    values = np.array([[0, 0, 1, 1], [255, 0, 1, 1]], np.uint8)
    found = np.array([[0, 1, 1, 1], [0, 0, 1, 1]], np.uint8)
    for number in range(2):
        Image.fromarray(np.zeros((2, 4, 3), np.uint8)).save(tmp_path / f"images/{number}.png")
        Image.fromarray(values).save(tmp_path / f"maps/{number}.png")
        Image.fromarray(found).save(tmp_path / f"found/{number}.png")
    paths = tmp_path / "found", tmp_path / "images"
    metrics = evaluate_maps("semantic", *paths, maps=tmp_path / "maps", classes=["a", "b"]).metrics
    assert (metrics.iou, metrics.pixels) == ({"a": 2 / 3, "b": 4 / 5}, 14)
    depth = evaluate_maps("depth", tmp_path / "maps", tmp_path / "images", maps=tmp_path / "maps")
    assert depth.metrics.rmse == 0
    with pytest.raises(InputError, match=r"found/0.png has no depth, a number above 0, at 1 pixels"):
        evaluate_maps("depth", *paths, maps=tmp_path / "maps")
    (tmp_path / "found/1.png").unlink()
    with pytest.raises(InputError, match=r"1 of 2 images have no prediction there, the first: 1.png"):
        evaluate_maps("semantic", *paths, maps=tmp_path / "maps")
