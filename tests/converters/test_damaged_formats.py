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
from voc_files import box_xml, voc_xml

TWO = ("a.jpg", "b.jpg")
FRAMES = tuple(f"frame_00000{number}.jpg" for number in range(3))
TRACKS = cvat.xml(f'<track id="0" label="car">{cvat.box(0, 10)}{cvat.box(2, 30)}</track>')
SKELETONS = cvat.xml(f'<track id="3" label="person">{cvat.SKELETONS}{cvat.TRACKS_OF_POINTS}</track>')
REGIONS = [each for each in label_studio.REGIONS if each["type"] != "brushlabels"]
TASKS = json.dumps(
    [label_studio.task("/data/upload/3/90f1a2b3-a.jpg", REGIONS), label_studio.task("b.jpg", REGIONS[:1])]
)
DOTA = "imagesource:x\ngsd:0.1\n10 10 40.5 20 35 40 5 30 small-vehicle 1\n"

YOLO_LABELS = "0 0.25 0.25 0.3 0.25\n1 0.1 0.1 0.4 0.1 0.3 0.5\n2 0.5 0.5 0.2 0.2\n"
MOT = "1,1,11,11,30,20,1,1,1\n2,1,12,11,30,20,1,1,0.5\n2,2,50,40,20,20,1,1,1\n"
TURNED = "<robndbox><cx>50</cx><cy>40</cy><w>20</w><h>9</h><angle>1</angle></robndbox>"
OBJECTS = box_xml(11, 11, 40, 30), box_xml(21, 5, 60, 70, more="<difficult>1</difficult>")
VOC = voc_xml(*OBJECTS, f"<object><name>ship</name>{TURNED}</object>")

# format, the damaged file, its content, other files, images
CASES: list[tuple[str, str, str, Mapping[str, str], tuple[str, ...]]] = [
    ("labelme", "a.json", labelme.labelme(*labelme.SHAPES), {"b.json": labelme.labelme(image="b.jpg")}, TWO),
    ("cvat", "a.xml", cvat.xml(cvat.IMAGES), {}, ("sub/a.jpg", "b.jpg")),
    ("cvat", "a.xml", TRACKS, {}, FRAMES),
    ("cvat", "a.xml", SKELETONS, {}, ("frame_000010.jpg", "frame_000013.jpg", "frame_000016.jpg")),
    ("csv", "a.csv", tables.TENSORFLOW, {}, TWO),
    ("csv", "a.csv", tables.RETINANET, {}, (*TWO, "c.jpg")),
    ("csv", "a.csv", tables.OPEN_IMAGES, {"class-descriptions.csv": "/m/01yrx,Cat\n"}, TWO),
    ("via", "a.json", via.FILES["project.json"], {}, TWO),
    ("via", "a.json", via.FILES["via1.json"], {}, TWO),
    ("via", "a.json", via.FILES["via3.json"], {}, TWO),
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
    ("yolo", "labels/a.txt", YOLO_LABELS, {"classes.txt": "cat\ndog\nship\n"}, ("images/a.jpg", "images/b.jpg")),
    ("voc", "Annotations/a.xml", VOC, {"Annotations/b.xml": VOC}, ("JPEGImages/a.jpg", "JPEGImages/b.jpg")),
    ("mot", "seq/gt/gt.txt", MOT, {}, ("seq/img1/000001.jpg", "seq/img1/000002.jpg")),
]


@pytest.mark.slow
@pytest.mark.parametrize(("format", "file", "text", "others", "images"), CASES, ids=[case[0] for case in CASES])
def test_damaged_files(
    tmp_path: Path, format: str, file: str, text: str, others: Mapping[str, str], images: tuple[str, ...]
) -> None:
    root = data_set(tmp_path / "set", {**others, file: text}, *images)
    assert_damage_ends_in_a_sentence(root, file, format, count=150, seed=1)
