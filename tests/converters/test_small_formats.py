"""Create ML, WIDER FACE, CrowdHuman, Supervisely and Hugging Face's imagefolder: a second reading, damaged files."""

from __future__ import annotations

import base64
import io
import json
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import Document
from format_files import converted, data_set, kinds, refused
from PIL import Image
from pycocotools import mask as coco_mask

CREATEML = json.dumps([
    {"image": "b.jpg", "annotations": []},
    {"image": "a.jpg", "annotations": [
        {"label": "cat", "coordinates": {"x": 25, "y": 20, "width": 30, "height": 20}, "confidence": 0.5},
        {"label": "dog", "coordinates": {"x": 50.5, "y": 40, "width": 21, "height": 20}},
    ]},
])  # fmt: skip
WIDER = """0--Parade/a.jpg
2
10 10 30 20 1 0 0 0 2 0
60 20 10 40 0 0 0 1 0 1
1--Handshaking/b.jpg
0
0 0 0 0 0 0 0 0 0 0
"""
CROWDHUMAN = "\n".join(json.dumps(each) for each in [
    {"ID": "a", "gtboxes": [
        {"tag": "person", "hbox": [12, 10, 8, 8], "head_attr": {"ignore": 0, "occ": 1}, "fbox": [10, -10, 30, 40],
         "vbox": [10, 0, 30, 30], "extra": {"box_id": 3, "occ": 1}},
        {"tag": "person", "hbox": [1, 1, 2, 2], "head_attr": {}, "fbox": [50, 10, 10, 20], "vbox": [50, 10, 10, 20],
         "extra": {"ignore": 1}},
        {"tag": "mask", "hbox": [80, 10, 1, 1], "head_attr": {}, "fbox": [80, 10, 15, 20], "vbox": [80, 10, 15, 20],
         "extra": {"ignore": 1}},
    ]},
    {"ID": "b", "gtboxes": []},
])  # fmt: skip
IMAGEFOLDER = "\n".join(json.dumps(each) for each in [
    {"file_name": "a.jpg", "image_id": 4, "objects": {
        "bbox": [[10, 10, 30, 20], [60.5, 20, 10, 40]], "categories": [10, 2], "area": [600, 400]}},
    {"file_name": "sub/b.jpg", "objects": {"bbox": [], "categories": []}},
])  # fmt: skip


def names_and_boxes(document: Document) -> list[tuple[str, list[float]]]:
    names = {row["id"]: row["name"] for row in document["categories"]}
    return [(names[row["category_id"]], row["bbox"]) for row in document["annotations"]]


def test_createml(tmp_path: Path) -> None:
    document, summary = converted(
        data_set(tmp_path / "set", {"_annotations.createml.json": CREATEML}, "a.jpg", "b.jpg")
    )
    expected = []  # a second reading
    for each in json.loads(CREATEML)[1]["annotations"]:
        middle, sides = np.array([*each["coordinates"].values()]).reshape(2, 2)
        expected.append((each["label"], [*(middle - sides / 2), *sides]))
    assert names_and_boxes(document) == expected
    assert document["annotations"][0]["confidence"] == 0.5
    assert (summary.images_without_boxes, kinds(summary)) == (1, {})


def test_a_list_of_wider_face_may_begin_with_an_image_without_faces(tmp_path: Path) -> None:
    files = {
        "train.txt": "a/1.jpg\n1\n1 1 9 9 0 0 0 0 0 0\n",
        "val.txt": "a/3.jpg\n0\na/4.jpg\n1\n1 1 9 9 0 0 0 0 0 0\n",
    }
    document, summary = converted(data_set(tmp_path / "set", files, "a/1.jpg", "a/3.jpg", "a/4.jpg"))
    assert (len(document["images"]), summary.boxes) == (3, 2)


def test_lists_beside_that_of_wider_face_have_no_faces(tmp_path: Path) -> None:
    files = {
        "wider_face_split/wider_face_train_bbx_gt.txt": WIDER,
        "wider_face_split/wider_face_test_filelist.txt": "0--Parade/t.jpg\n0--Parade/u.jpg\n",
        "wider_face_split/readme.txt": "x1, y1, w, h, blur\n",
    }
    folders = ("WIDER_train/images/0--Parade/a", "WIDER_train/images/1--Handshaking/b", "WIDER_test/images/0--Parade/t")
    document, summary = converted(data_set(tmp_path / "set", files, *(f"{name}.jpg" for name in folders)))
    assert len(document["images"]) == 2
    assert kinds(summary)["file-unused"] == 2


def test_wider_face(tmp_path: Path) -> None:
    files = {"wider_face_split/wider_face_train_bbx_gt.txt": WIDER}
    images = ["WIDER_train/images/0--Parade/a.jpg", "WIDER_train/images/1--Handshaking/b.jpg"]
    document, summary = converted(data_set(tmp_path / "set", files, *images))
    rows = [line.split() for line in WIDER.splitlines()[2:4]]  # a second reading
    assert names_and_boxes(document) == [("face", [float(word) for word in row[:4]]) for row in rows]
    one, two = document["annotations"]
    assert (one["blur"], one["occlusion"], one["iscrowd"], two["pose"], two["iscrowd"]) == (1, 2, 0, 1, 1)
    assert (summary.images_without_boxes, kinds(summary)) == (1, {})


def test_crowdhuman(tmp_path: Path) -> None:
    document, summary = converted(
        data_set(tmp_path / "set", {"annotation_val.odgt": CROWDHUMAN}, "Images/a.jpg", "Images/b.jpg")
    )
    boxes = [[10, 0, 30, 30], [50, 10, 10, 20], [80, 10, 15, 20]]
    assert names_and_boxes(document) == [("person", box) for box in boxes]
    first = document["annotations"][0]
    assert [row["iscrowd"] for row in document["annotations"]] == [0, 1, 1]
    assert (first["vbox"], first["hbox"], first["head_occ"], first["box_id"]) == ([10, 0, 30, 30], [12, 10, 8, 8], 1, 3)
    assert kinds(summary) == {"box-clipped": 1, "region-ignored": 1}


def test_imagefolder(tmp_path: Path) -> None:
    root = data_set(tmp_path / "set", {"train/metadata.jsonl": IMAGEFOLDER}, "train/a.jpg", "train/sub/b.jpg")
    document, summary = converted(root)
    entry = json.loads(IMAGEFOLDER.splitlines()[0])
    expected = zip(map(str, entry["objects"]["categories"]), entry["objects"]["bbox"], strict=True)
    assert names_and_boxes(document) == list(expected)
    assert [row["name"] for row in document["categories"]] == ["2", "10"]
    assert document["annotations"][0]["attribute_area"] == 600
    assert (summary.images_without_boxes, kinds(summary)) == (1, {})
    as_list = {"file_name": "a.jpg", "objects": [{"bbox": [1, 2, 3, 4], "label": "cat"}]}
    document, _ = converted(data_set(tmp_path / "more", {"metadata.jsonl": json.dumps(as_list)}, "a.jpg"))
    assert names_and_boxes(document) == [("cat", [1, 2, 3, 4])]


BLOB = np.random.default_rng(0).random((9, 7)) > 0.4


def bitmap() -> str:
    """Return a bitmap as Supervisely's SDK writes it: a PNG with a palette and transparency, packed."""
    file = io.BytesIO()
    Image.fromarray(BLOB.astype(np.uint8) * 255).save(file, "PNG", transparency=0, optimize=True)
    return base64.b64encode(zlib.compress(file.getvalue())).decode()


def figure(kind: str, name: str = "cat", **more: Any) -> dict[str, Any]:
    return {"id": 1, "geometryType": kind, "classTitle": name, "tags": [], "labelerLogin": "x"} | more


TAG = {"name": "a", "value": 3}
SUPERVISELY: dict[str, Any] = {
    "description": "", "tags": [{"name": "night", "value": None}], "size": {"height": 80, "width": 100},
    "objects": [
        figure("rectangle", points={"exterior": [[40, 30], [10, 10]], "interior": []}, tags=[TAG]),
        figure("polygon", points={"exterior": [[10, 10], [50, 10], [50, 50], [10, 50]],
                                  "interior": [[[20, 20], [40, 20], [40, 40], [20, 40]]]}),
        figure("bitmap", bitmap={"origin": [30, 20], "data": bitmap()}),
        figure("graph", "person", nodes={"n1": {"loc": [10, 10.5]}, "n2": {"loc": [40, 30], "disabled": True}}),
        figure("line", points={"exterior": [[1, 1], [2, 2]], "interior": []}),
    ],
}  # fmt: skip
NODES = {"nodes": {"n2": {"label": "foot"}, "n1": {"label": "nose"}}, "edges": [{"src": "n1", "dst": "n2"}]}
META = json.dumps({
    "classes": [
        {"title": "person", "shape": "graph", "geometry_config": NODES},
        {"title": "cat", "shape": "any"},
    ],
    "tags": [],
})  # fmt: skip


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # of pycocotools
def test_supervisely(tmp_path: Path) -> None:
    files = {
        "meta.json": META,
        "ds0/ann/a.jpg.json": json.dumps(SUPERVISELY),
        "ds1/ann/a.jpg.json": json.dumps(SUPERVISELY),
    }
    document, summary = converted(data_set(tmp_path / "set", files, "ds0/img/a.jpg", "ds1/img/a.jpg"))
    rows, columns = np.nonzero(BLOB)
    around = [30 + columns.min(), 20 + rows.min(), np.ptp(columns) + 1, np.ptp(rows) + 1]
    expected = [("cat", [10, 10, 30, 20]), ("cat", [10, 10, 40, 40]), ("cat", around), ("person", [10, 10.5, 30, 19.5])]
    assert names_and_boxes(document) == expected * 2
    box, ring, mask, person, *_ = document["annotations"]
    assert (box["a"], ring["area"], person["keypoints"]) == (3, 1600 - 400, [39.5, 29.5, 1, 9.5, 10, 2])
    assert [row["name"] for row in document["categories"]] == ["person", "cat"]
    assert document["categories"][0]["skeleton"] == [[2, 1]]
    assert document["images"][0]["night"] == 1
    decoded = [coco_mask.decode(each | {"counts": each["counts"].encode()}) for each in [mask["segmentation"]]]
    assert (decoded[0][20:29, 30:37] == BLOB).all()
    assert kinds(summary) == {"shape-unused": 2}


@pytest.mark.parametrize(
    ("format", "file", "text", "message"),
    [
        ("createml", "a.json", CREATEML.replace('"x": 25', '"x": null'), "object 0: x must be a finite number"),
        ("createml", "a.json", CREATEML.replace('"cat"', '""'), "label must be text"),
        ("createml", "a.json", '{"x": 1}', "a Create ML JSON must be a list"),
        ("wider-face", "a.txt", WIDER.replace("10 10 30", "10 x 30"), "a.txt:3: a row must be a finite"),
        ("wider-face", "a.txt", WIDER.replace("10 10 30", "10 30"), "a.txt:3: must be x y width height"),
        ("wider-face", "a.txt", WIDER.replace("\n2\n", "\n3\n"), "the number of its rows, got the number 3"),
        ("wider-face", "a.txt", "0--Parade/a.jpg\n", "must be followed by the number of its rows, got no number"),
        ("wider-face", "a.txt", "7\n" + WIDER, "a.txt: must begin with the path of an image"),
        ("wider-face", "a.txt", b"\xff\n", "a.txt: must be UTF-8 text"),
        ("crowdhuman", "a.odgt", CROWDHUMAN.replace("[50, 10, 10, 20]", "[50, 10]", 1), "object 1: fbox must be [x, y"),
        ("crowdhuman", "a.odgt", CROWDHUMAN + "\n{", "a.odgt:3: does not parse"),
        ("imagefolder", "metadata.jsonl", IMAGEFOLDER.replace("10, 2]", "10]"), "the lists of objects must have one"),
        ("imagefolder", "metadata.jsonl", IMAGEFOLDER.replace("[10, 10, 30, 20]", "7"), "bbox must be a list [...]"),
        ("supervisely", "ann/a.jpg.json", json.dumps(SUPERVISELY).replace('"cat"', "[]", 1), "classTitle must be text"),
        ("supervisely", "ann/a.jpg.json", json.dumps(SUPERVISELY).replace(bitmap(), "eJ"), "data of a bitmap must be"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, format: str, file: str, text: str | bytes, message: str) -> None:
    images = ["0--Parade/a.jpg", "1--Handshaking/b.jpg"] if format == "wider-face" else ["img/a.jpg", "img/sub/b.jpg"]
    files = {"ann/a.jpg.json": json.dumps(SUPERVISELY)} if format == "supervisely" else {}
    assert message in refused(data_set(tmp_path / "set", files | {file: text}, *images), format=format)  # type: ignore[arg-type]
