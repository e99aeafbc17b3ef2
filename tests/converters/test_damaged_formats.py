"""Damaged files of each format: a valid JSON or one sentence. Shards have tests of their own."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pytest
import test_csv_tables as tables
import test_cvat as cvat
import test_kitti_and_visdrone as rows
import test_label_studio as label_studio
import test_labelme as labelme
import test_more_formats as more
import test_small_formats as small
import test_via as via
import test_yolo_without_yaml as yolo
from format_files import assert_damage_ends_in_a_sentence, data_set, modules_of_other_formats
from voc_files import box_xml, voc_xml

from detaug.converters.formats.recognise import recognise

TWO = ("a.jpg", "b.jpg")
FRAMES = tuple(f"frame_00000{number}.jpg" for number in range(3))
TRACKS = cvat.xml(f'<track id="0" label="car">{cvat.box(0, 10)}{cvat.box(2, 30)}</track>')
SKELETONS = cvat.xml(f'<track id="3" label="person">{cvat.SKELETONS}{cvat.TRACKS_OF_POINTS}</track>')
BLOB = label_studio.packed(np.ones((80, 100), bool), 255)
REGIONS = [each for each in label_studio.REGIONS if each["type"] != "brushlabels"]
REGIONS.append(label_studio.region("brushlabels", "blob", format="rle", rle=BLOB))
TASKS = json.dumps(
    [label_studio.task("/data/upload/3/90f1a2b3-a.jpg", REGIONS), label_studio.task("b.jpg", REGIONS[:1])]
)
DOTA = "imagesource:x\ngsd:0.1\n10 10 40.5 20 35 40 5 30 small-vehicle 1\n"

YOLO_LABELS = "0 0.25 0.25 0.3 0.25\n1 0.1 0.1 0.4 0.1 0.3 0.5\n2 0.5 0.5 0.2 0.2\n"
MOT = "1,1,11,11,30,20,1,1,1\n2,1,12,11,30,20,1,1,0.5\n2,2,50,40,20,20,1,1,1\n"
TURNED = "<robndbox><cx>50</cx><cy>40</cy><w>20</w><h>9</h><angle>1</angle></robndbox>"
OBJECTS = box_xml(11, 11, 40, 30), box_xml(21, 5, 60, 70, more="<difficult>1</difficult>")
VOC = voc_xml(*OBJECTS, f"<object><name>ship</name>{TURNED}</object>")

Case = tuple[str, str, str, Mapping[str, str], tuple[str, ...]]
"""Format, the damaged file, its content, other files, images."""

CASES: list[Case] = [
    ("labelme", "a.json", labelme.labelme(*labelme.SHAPES), {"b.json": labelme.labelme(image="b.jpg")}, TWO),
    ("labelme-web", "a.xml", more.web(*more.OBJECTS), {"b.xml": more.web(more.OBJECTS[0])}, TWO),
    ("segment-anything", "a.json", more.segment_anything(), {"b.json": more.segment_anything()}, TWO),
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
    ("supervisely", "meta.json", small.META, {"ann/a.jpg.json": json.dumps(small.SUPERVISELY)}, ("img/a.jpg",)),
    ("yolo", "obj.data", yolo.DARKNET["obj.data"], yolo.DARKNET, yolo.DARKNET_IMAGES),
    ("yolo", "train.txt", yolo.DARKNET["train.txt"], yolo.DARKNET, yolo.DARKNET_IMAGES),
    ("yolo", "labels/a.txt", YOLO_LABELS, {"classes.txt": "cat\ndog\nship\n"}, ("images/a.jpg", "images/b.jpg")),
    ("voc", "Annotations/a.xml", VOC, {"Annotations/b.xml": VOC}, ("JPEGImages/a.jpg", "JPEGImages/b.jpg")),
    ("mot", "seq/gt/gt.txt", MOT, {}, ("seq/img1/000001.jpg", "seq/img1/000002.jpg")),
]
LISTED = {"coco", "tfrecord", "webdataset", *(case[0] for case in CASES)}
CASES += [(name, *each[1:]) for name, module in modules_of_other_formats(LISTED) for each in module.EXAMPLES]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_the_format_is_recognised(tmp_path: Path, case: Case) -> None:
    format, file, text, others, images = case
    assert recognise(data_set(tmp_path / "set", {**others, file: text}, *images)).format.name == format


@pytest.mark.parametrize(("count", "seed"), [(60, 0), pytest.param(150, 1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_damaged_files(tmp_path: Path, case: Case, count: int, seed: int) -> None:
    format, file, text, others, images = case
    root = data_set(tmp_path / "set", {**others, file: text}, *images)
    assert_damage_ends_in_a_sentence(root, file, format, count, seed)
