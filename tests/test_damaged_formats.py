"""Hundreds of damaged files of each format: a valid json or one sentence. The format's own tests try fewer."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import test_csv_tables as tables
import test_cvat as cvat
import test_kitti_and_visdrone as rows
import test_label_studio as label_studio
import test_labelme as labelme
import test_small_formats as small
import test_via as via
import test_yolo_without_yaml as yolo
from format_files import assert_damage_ends_in_a_sentence, data_set

TWO = ("a.jpg", "b.jpg")
FRAMES = tuple(f"frame_00000{number}.jpg" for number in range(3))
TRACKS = cvat.xml(f'<track id="0" label="car">{cvat.box(0, 10)}{cvat.box(2, 30)}</track>')
REGIONS = [each for each in label_studio.REGIONS if each["type"] != "brushlabels"]
TASKS = json.dumps(
    [label_studio.task("/data/upload/3/90f1a2b3-a.jpg", REGIONS), label_studio.task("b.jpg", REGIONS[:1])]
)
DOTA = "imagesource:x\ngsd:0.1\n10 10 40.5 20 35 40 5 30 small-vehicle 1\n"

# format, the damaged file, its content, other files, images
CASES: list[tuple[str, str, str, Mapping[str, str], tuple[str, ...]]] = [
    ("labelme", "a.json", labelme.labelme(*labelme.SHAPES), {"b.json": labelme.labelme(image="b.jpg")}, TWO),
    ("cvat", "a.xml", cvat.xml(cvat.IMAGES), {}, ("sub/a.jpg", "b.jpg")),
    ("cvat", "a.xml", TRACKS, {}, FRAMES),
    ("csv", "a.csv", tables.TENSORFLOW, {}, TWO),
    ("csv", "a.csv", tables.RETINANET, {}, (*TWO, "c.jpg")),
    ("csv", "a.csv", tables.OPEN_IMAGES, {"class-descriptions.csv": "/m/01yrx,Cat\n"}, TWO),
    ("via", "a.json", via.FILES["project.json"], {}, TWO),
    ("via", "a.json", via.FILES["via1.json"], {}, TWO),
    ("via", "a.csv", via.FILES["a.csv"], {}, TWO),
    ("label-studio", "a.json", TASKS, {}, TWO),
    ("kitti", "a.txt", rows.KITTI, {"b.txt": rows.KITTI}, TWO),
    ("visdrone", "a.txt", rows.VISDRONE, {"b.txt": rows.VISDRONE}, TWO),
    ("dota", "a.txt", DOTA, {"b.txt": DOTA}, TWO),
    ("createml", "a.json", small.CREATEML, {}, TWO),
    ("wider-face", "a.txt", small.WIDER, {}, TWO),
    ("crowdhuman", "a.odgt", small.CROWDHUMAN, {}, TWO),
    ("imagefolder", "metadata.jsonl", small.IMAGEFOLDER, {}, TWO),
    ("supervisely", "ann/a.jpg.json", json.dumps(small.SUPERVISELY), {"meta.json": small.META}, ("img/a.jpg",)),
    ("yolo", "obj.data", yolo.DARKNET["obj.data"], yolo.DARKNET, yolo.DARKNET_IMAGES),
]


@pytest.mark.slow
@pytest.mark.parametrize(("format", "file", "text", "others", "images"), CASES, ids=[case[0] for case in CASES])
def test_damaged_files(
    tmp_path: Path, format: str, file: str, text: str, others: Mapping[str, str], images: tuple[str, ...]
) -> None:
    root = data_set(tmp_path / "set", {**others, file: text}, *images)
    assert_damage_ends_in_a_sentence(root, file, format, count=150, seed=1)
