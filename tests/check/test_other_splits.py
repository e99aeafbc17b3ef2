"""`detaug check` warns of no image that another split of its dataset names, in every layout of several splits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import pytest
from command import detaug
from voc_files import HEIGHT, WIDTH, box_xml, image_bytes, voc_xml, write_files

from detaug.converters import check_coco

ROW = "0 0.5 0.5 0.5 0.5\n"


def pictures(*names: str) -> dict[str, str | bytes]:
    """Return images with other bytes each."""
    return {name: image_bytes(size=(WIDTH + at, HEIGHT)) for at, name in enumerate(names)}


class Layout(NamedTuple):
    """A dataset of several splits in one folder, of which one is converted."""

    files: dict[str, str | bytes]
    images: str
    """The image folder, to which one stray image is added."""
    command: str = ""
    """What makes train.json, run in the folder of the dataset."""


def labels(*names: str) -> dict[str, str | bytes]:
    return {f"{name}.txt": ROW for name in names}


def coco_json(*names: str) -> str:
    return json.dumps(
        {
            "images": [
                {"id": at, "file_name": name, "width": WIDTH + int(Path(name).stem), "height": HEIGHT}
                for at, name in enumerate(names, 1)
            ],
            "annotations": [
                {"id": at, "image_id": at, "category_id": 1, "bbox": [1, 2, 30, 40], "area": 1200, "iscrowd": 0}
                for at in range(1, len(names) + 1)
            ],
            "categories": [{"id": 1, "name": "cat"}],
        }
    )


SEQUENCE = "1,1,1,2,30,20,1,1,1\n"
LAYOUTS = {
    "VOC's lists": Layout(
        {
            **pictures(*(f"JPEGImages/{n}.jpg" for n in range(4))),
            **{f"Annotations/{n}.xml": voc_xml(box_xml(1, 2, 30, 40), size=None) for n in range(4)},
            "ImageSets/Main/train.txt": "0\n1\n",
            "ImageSets/Main/val.txt": "2.jpg\n",
            "ImageSets/Main/cat_trainval.txt": "0  1\n3 -1\n",
        },
        "JPEGImages",
        "convert-voc . -o train.json --split train",
    ),
    "YOLO's lists": Layout(
        {
            **pictures("images/0.jpg", "images/1.jpg", "images/2.jpg"),
            **labels("labels/0", "labels/1", "labels/2"),
            "data.yaml": "train: train.txt\nval: val.txt\ntest: test.txt\nnames: [cat]\n",
            "train.txt": "images/0.jpg\n",
            "val.txt": "./images/1.jpg\r\n",
            "test.txt": "data/images/2.jpg\n",
        },
        "images",
        "convert-yolo . -o train.json --split train",
    ),
    "YOLO's folders, two of train": Layout(
        {
            **pictures("images/a/0.jpg", "images/b/1.jpg", "images/c/2.jpg"),
            **labels("labels/a/0", "labels/b/1", "labels/c/2"),
            "data.yaml": "train: [images/a, images/b]\nval: images/c\nnames: [cat]\n",
        },
        "images",
        "convert-yolo . -o train.json --split train",
    ),
    "Darknet, images beside labels": Layout(
        {
            **pictures("obj_train_data/0.jpg", "obj_train_data/1.jpg"),
            **labels("obj_train_data/0", "obj_train_data/1"),
            "data.yaml": "train: train.txt\nvalid: valid.txt\nnames: [cat]\n",
            "train.txt": "data/obj_train_data/0.jpg\n",
            "valid.txt": "data/obj_train_data/1.jpg\n",
        },
        "obj_train_data",
        "convert-yolo . -o train.json --split train",
    ),
    "MOT's sequences": Layout(
        {
            **pictures("a/img1/1.jpg", "b/img1/1.jpg", "c/img1/1.jpg"),
            **{f"{name}/seqinfo.ini": "[Sequence]\nimDir=img1\nframeRate=30\n" for name in "abc"},
            **{f"{name}/gt/gt.txt": SEQUENCE for name in "ab"},
        },
        ".",
        "convert-mot . -o train.json --sequences a",
    ),
    "detaug split": Layout(
        {
            **pictures(*(f"images/{n}.jpg" for n in range(6))),
            "old/all.json": coco_json(*(f"{n}.jpg" for n in range(6))),
        },
        "images",
        "split old/all.json -o train.json -o val.json --ratios 50,50",
    ),
    "JSON files of one folder": Layout(
        {
            **pictures("images/0.jpg", "images/1.jpg", "images/2.jpg"),
            "train.json": coco_json("0.jpg"),
            "val.json": coco_json("1.jpg"),
            "test.json": coco_json("./2.jpg"),
            "notes.json": "[1",
            "list.json": '{"images": [1, {}], "annotations": [], "categories": []}',
        },
        "images",
    ),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_only_an_image_of_no_split_is_unreferenced(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    layout = LAYOUTS[name]
    folder = write_files(tmp_path / "set", layout.files)
    monkeypatch.chdir(folder)
    assert not layout.command or detaug(*layout.command.split()).code == 0
    assert "image-unreferenced" not in check_coco("train.json", layout.images).kind_counts
    stray = write_files(folder / layout.images, {"stray.jpg": image_bytes(size=(50, 60))}) / "stray.jpg"
    checked = check_coco("train.json", layout.images)
    assert checked.kind_counts["image-unreferenced"] == 1
    assert f"  '{stray.name}'" in str(checked).splitlines()


def test_a_json_of_another_folder_names_no_image_of_this_one(tmp_path: Path) -> None:
    """Splits in folders of their own often count their images alike."""
    files = pictures("train/0.jpg", "train/1.jpg", "val/1.jpg", "val/2.jpg", "val/3.jpg")
    jsons = {"train.json": coco_json("0.jpg"), "val.json": coco_json("1.jpg", "2.jpg", "3.jpg")}
    folder = write_files(tmp_path / "set", {**files, **jsons})
    assert check_coco(folder / "train.json", folder / "train").kind_counts["image-unreferenced"] == 1


@pytest.mark.parametrize("entry", ["..", "/", "images/../../other", "../other.txt"])
def test_a_split_that_leads_out_of_the_data_set_is_not_read(entry: str, tmp_path: Path) -> None:
    files = {**pictures("images/0.jpg", "images/1.jpg"), "train.json": coco_json("0.jpg")}
    folder = write_files(tmp_path / "set", {**files, "data.yaml": f"train: {entry}\nnames: [cat]\n"})
    write_files(tmp_path, {"other.txt": "set/images/1.jpg\n", "other/2.jpg": b""})
    assert check_coco(folder / "train.json", folder / "images").kind_counts["image-unreferenced"] == 1
