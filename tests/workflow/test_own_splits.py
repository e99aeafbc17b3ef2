"""The splits that datasets have of their own: lists, a data.yaml, folders and files named after splits."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from coco_files import document
from voc_files import image_bytes, voc_xml, with_segment, write_files

from detaug.converters.formats.recognise import recognise
from detaug.converters.formats.splits import OwnSplit, own_splits

Files = dict[str, str | bytes]

YAML = "names: [cat]\n"
ROW = "0 0.5 0.5 0.5 0.5\n"
CSV = "filename,class,xmin,ymin,xmax,ymax\na.jpg,cat,1,2,30,40\n"
COCO = json.dumps(document())


def jpeg(name: str) -> bytes:
    return with_segment(image_bytes(), name.encode(), 0xFE)


def yolo(*splits: str, yaml: str = YAML) -> Files:
    files: Files = {f"images/{split}/{split}.jpg": jpeg(split) for split in splits}
    files |= {f"labels/{split}/{split}.txt": ROW for split in splits}
    return files | {"data.yaml": yaml + "".join(f"{split}: images/{split}\n" for split in splits)}


def voc(*lists: str) -> Files:
    files: Files = {f"Annotations/{name}.xml": voc_xml(filename=f"{name}.jpg") for name in "ab"}
    files |= {f"JPEGImages/{name}.jpg": jpeg(name) for name in "ab"}
    return files | {f"ImageSets/Main/{name}.txt": "a\nb\n" for name in lists}


CASES: dict[str, tuple[Files, dict[str, OwnSplit]]] = {
    "data.yaml": (
        yolo("train", "val"),
        {"train": OwnSplit(Path(), "train"), "val": OwnSplit(Path(), "val")},
    ),
    "valid is val": (
        {name.replace("val", "valid"): text for name, text in yolo("train", "val").items()}
        | {"data.yaml": YAML + "train: images/train\nvalid: images/valid\n"},
        {"train": OwnSplit(Path(), "train"), "val": OwnSplit(Path(), "valid")},
    ),
    "a test split that is listed and empty, as exports do": (
        yolo("train", "val", yaml=YAML + "test: images/test\n"),
        {"train": OwnSplit(Path(), "train"), "val": OwnSplit(Path(), "val")},
    ),
    "YOLO with train alone": (yolo("train"), {}),
    "lists of VOC": (
        voc("train", "val", "trainval", "cat_train"),
        {"train": OwnSplit(Path(), "train"), "val": OwnSplit(Path(), "val")},
    ),
    "trainval and test of VOC": (
        voc("trainval", "test"),
        {"train": OwnSplit(Path(), "trainval"), "test": OwnSplit(Path(), "test")},
    ),
    "VOC without lists": (voc(), {}),
    "folders of Roboflow's COCO JSON": (
        {f"{split}/_annotations.coco.json": COCO for split in ("train", "valid")}
        | {f"{split}/a.jpg": jpeg(split) for split in ("train", "valid")},
        {"train": OwnSplit(Path("train")), "val": OwnSplit(Path("valid"))},
    ),
    "folders of VOC": (
        {f"{split}/{split}.xml": voc_xml(filename=f"{split}.jpg") for split in ("train", "test")}
        | {f"{split}/{split}.jpg": jpeg(split) for split in ("train", "test")},
        {"train": OwnSplit(Path("train")), "test": OwnSplit(Path("test"))},
    ),
    "annotations and images apart": (
        {f"ann/{split}/{split}.csv": CSV for split in ("Train", "Val")}
        | {f"img/{split}/a.jpg": jpeg(split) for split in ("Train", "Val")},
        {
            "train": OwnSplit(Path("ann/Train"), images=Path("img/Train")),
            "val": OwnSplit(Path("ann/Val"), images=Path("img/Val")),
        },
    ),
    "COCO 2017": (
        {f"annotations/instances_{split}2017.json": COCO for split in ("train", "val")}
        | {f"{split}2017/a.jpg": jpeg(split) for split in ("train", "val")},
        {split: OwnSplit(Path(f"annotations/instances_{split}2017.json"), images=Path()) for split in ("train", "val")},
    ),
    "tables": (
        {"train_labels.csv": CSV, "test_labels.csv": CSV, "images/a.jpg": jpeg("a")},
        {split: OwnSplit(Path(f"{split}_labels.csv"), images=Path()) for split in ("train", "test")},
    ),
    "a table with a name that has train within a word": ({"trains.csv": CSV, "val.csv": CSV, "a.jpg": jpeg("a")}, {}),
    "val alone": ({"val/a.csv": CSV, "test/a.csv": CSV, "a.jpg": jpeg("a")}, {}),
    "two tables of one split": ({"train_a.csv": CSV, "train_b.csv": CSV, "val.csv": CSV, "a.jpg": jpeg("a")}, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_own_splits(name: str, tmp_path: Path) -> None:
    files, splits = CASES[name]
    write_files(tmp_path, files)
    below = {
        split: OwnSplit(tmp_path / own.path, own.split, None if own.images is None else tmp_path / own.images)
        for split, own in splits.items()
    }
    assert own_splits(recognise(tmp_path)) == below


def test_a_file_has_no_splits(tmp_path: Path) -> None:
    write_files(tmp_path, {"train.csv": CSV, "val.csv": CSV})
    assert own_splits(recognise(tmp_path / "train.csv")) == {}
