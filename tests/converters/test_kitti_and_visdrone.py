"""KITTI's and VisDrone's label files: boxes against a second reading, regions in which nothing counts, bad rows."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from format_files import converted, data_set, kinds, refused

KITTI = """Car 0.00 0 -1.58 10.00 10.50 40.00 30.00 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59
Pedestrian 0.50 2 0.21 60.12 20.34 70.56 60.78 1.89 0.48 1.20 1.84 1.47 8.41 0.01
DontCare -1 -1 -10 80.00 10.00 95.00 30.00 -1 -1 -1 -1000 -1000 -1000 -10
"""
VISDRONE = "10,10,30,20,1,4,0,1\n60,20,10,40,1,1,1,2,\n80,10,15,20,0,0,0,0\n1,2,3,4,0,11,0,0\n"


def test_kitti(tmp_path: Path) -> None:
    files = {
        "training/label_2/000001.txt": KITTI,
        "training/label_2/000002.txt": "",
        "training/calib/000001.txt": "P0: 7 0\n",
    }
    images = [f"training/image_2/00000{n}.png" for n in (1, 2)]
    document, summary = converted(data_set(tmp_path / "set", files, *images))
    rows, names = document["annotations"], {row["id"]: row["name"] for row in document["categories"]}
    for row, line in zip(rows[:2], KITTI.splitlines()[:2], strict=True):  # a second reading
        words = line.split()
        numbers = np.array(words[4:8], float)
        assert names[row["category_id"]] == words[0]
        assert row["bbox"] == pytest.approx([*numbers[:2], *(numbers[2:] - numbers[:2])])
        assert [row["truncated"], row["occluded"], row["alpha"]] == [float(word) for word in words[1:4]]
        assert [*row["dimensions"], *row["location"], row["rotation_y"]] == [float(word) for word in words[8:]]
    assert (summary.boxes, summary.images_without_boxes) == (2, 1)
    assert kinds(summary) == {"image-extension": 2, "region-ignored": 1, "file-unused": 1}


def test_regions_are_crowds_of_each_class(tmp_path: Path) -> None:
    for format, files in (("KITTI", {"label_2/a.txt": KITTI}), ("VisDrone", {"annotations/a.txt": VISDRONE})):
        root = data_set(tmp_path / format, files, "images/a.jpg")
        document, summary = converted(root)
        crowds = [row for row in document["annotations"] if row["bbox"] == [80, 10, 15, 20]]
        assert {row["iscrowd"] for row in crowds} == {1}
        assert [row["category_id"] for row in crowds] == [row["id"] for row in document["categories"]]
        assert summary.kind_counts["region-ignored"] == 1


def test_visdrone(tmp_path: Path) -> None:
    document, summary = converted(data_set(tmp_path / "set", {"annotations/a.txt": VISDRONE}, "images/a.jpg"))
    rows, names = document["annotations"], [row["name"] for row in document["categories"]]
    found = [(names[row["category_id"] - 1], row["bbox"], row["iscrowd"], row["occlusion"]) for row in rows[:3]]
    assert found == [
        ("car", [10, 10, 30, 20], 0, 1),
        ("pedestrian", [60, 20, 10, 40], 0, 2),
        ("others", [1, 2, 3, 4], 1, 0),
    ]
    assert (names[0], names[3], names[9:], len(rows)) == ("pedestrian", "car", ["motor", "others"], 3 + 11)
    assert kinds(summary) == {"region-ignored": 1, "class-unused": 8}


@pytest.mark.parametrize(
    ("format", "text", "message"),
    [
        ("kitti", KITTI.replace(" -1.59", ""), "a.txt:1: object 0: must be 15 values, or 16 with a score, got 14"),
        ("kitti", KITTI.replace("40.00", "wide"), "values after the class must be a finite number, got 'wide'"),
        ("visdrone", "1,2,3,4,1,12,0,0\n", "a.txt:1: object 0: class must be a whole number from 0 to 11, got 12"),
        ("visdrone", "1,2,3,4,1,0.5,0,0\n", "got 0.5"),
        ("visdrone", "1,2,3,4,1\n", "must be 8 numbers, got 5"),
        ("visdrone", b"\xff\xfe1,2", "a.txt: must be UTF-8 text"),
    ],
)
def test_bad_rows_cost_their_image(tmp_path: Path, format: str, text: str | bytes, message: str) -> None:
    good = KITTI if format == "kitti" else VISDRONE
    root = data_set(tmp_path / "set", {"labels/a.txt": text, "labels/b.txt": good}, "images/a.jpg", "images/b.jpg")
    assert message in refused(root, format=format)
    assert len(converted(root, format=format, on_error="skip")[0]["images"]) == 1
