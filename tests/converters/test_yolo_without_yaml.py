"""YOLO datasets without a data.yaml, as Darknet, CVAT, labelImg and Label Studio lay them out."""

from __future__ import annotations

from pathlib import Path

import pytest
from format_files import converted, data_set, kinds, refused
from voc_files import write_files

ROW, NAMES = "1 0.2 0.25 0.2 0.25\n", "alfa\nbeta: 2\n\n"
DARKNET = {
    "obj.data": "classes = 2\ntrain = data/train.txt\nvalid  = data/valid.txt\nnames = data/obj.names\nbackup = b/\n",
    "obj.names": NAMES,
    "train.txt": "data/obj_train_data/a.jpg\ndata/obj_train_data/sub/b.jpg\n",
    "valid.txt": "data/obj_valid_data/c.jpg\n",
    "obj_train_data/a.txt": ROW,
    "obj_train_data/sub/b.txt": "",
    "obj_valid_data/c.txt": ROW,
}
DARKNET_IMAGES = ("obj_train_data/a.jpg", "obj_train_data/sub/b.jpg", "obj_valid_data/c.jpg")
LABEL_STUDIO = {
    "classes.txt": NAMES,
    "notes.json": '{"categories": [{"id": 0, "name": "alfa"}], "info": {"year": 2024}}',
    "labels/90f1a-a.txt": ROW,
}

# files, images, options; the images with and without a box
LAYOUTS = {
    "labelImg": ({"classes.txt": NAMES, "a.txt": ROW}, ["a.jpg", "b.jpg"], {}, (1, 1)),
    "labelImg, labels in a folder": ({"labels/classes.txt": NAMES, "labels/a.txt": ROW}, ["images/a.jpg"], {}, (1, 0)),
    "Label Studio": (LABEL_STUDIO, ["images/90f1a-a.jpg"], {}, (1, 0)),
    "Darknet": (DARKNET, DARKNET_IMAGES, {}, (1, 1)),
    "Darknet, another split": (DARKNET, DARKNET_IMAGES, {"split": "val"}, (1, 0)),
    "folders of splits": (
        {"classes.txt": NAMES, "labels/train/a.txt": ROW, "labels/val/c.txt": ROW},
        ["images/train/a.jpg", "images/val/c.jpg"],
        {"split": "val"},
        (1, 0),
    ),
    "folders of splits, each with images": (
        {"classes.txt": NAMES, "train/labels/a.txt": ROW, "valid/labels/c.txt": ROW},
        ["train/images/a.jpg", "train/images/b.jpg", "valid/images/c.jpg"],
        {"split": "train"},
        (1, 1),
    ),
    "supervision, with nothing but names": (
        {"data.yaml": "nc: 2\nnames: [alfa, 'beta: 2']\n", "labels/a.txt": ROW, "labels/b.txt": ""},
        ["images/a.jpg", "images/b.jpg"],
        {},
        (1, 1),
    ),
    "a list beside classes": (
        {"coco.names": NAMES, "train.txt": "./images/a.jpg\n", "labels/a.txt": ROW},
        ["images/a.jpg", "images/other.jpg"],
        {},
        (1, 0),
    ),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(tmp_path: Path, layout: str) -> None:
    files, images, options, (with_box, without) = LAYOUTS[layout]
    root = data_set(tmp_path / "set", files, *images)
    document, summary = converted(root, **options)
    assert [row["name"] for row in document["categories"]] == ["alfa", "beta: 2"]
    assert [row["bbox"] for row in document["annotations"]] == [[10, 10, 20, 20]] * with_box
    assert {row["category_id"] for row in document["annotations"]} == {2}
    assert (summary.images, summary.images_without_boxes) == (with_box + without, without)
    assert set(kinds(summary)) <= {"class-unused", "label-missing"}


def test_other_splits_are_named(tmp_path: Path) -> None:
    files, images, *_ = LAYOUTS["folders of splits"]
    _, summary = converted(data_set(tmp_path / "set", files, *images), split="train")
    assert summary.other_splits == ("val",)
    assert 'not converted: val; for one of these: split="val"' in str(summary).splitlines()


def test_the_file_of_darknet_or_of_classes(tmp_path: Path) -> None:
    root = data_set(tmp_path / "set", DARKNET, *DARKNET_IMAGES)
    assert converted(root / "obj.data")[1].boxes == 1
    assert converted(root / "obj.data", format="yolo")[1].images == 2
    write_files(root, {"yolo.data": "names = coco.names\n"})
    assert "must hold one file of Darknet, there are several: obj.data, yolo.data" in refused(root)
    more = data_set(tmp_path / "more", LAYOUTS["labelImg"][0], "a.jpg")
    assert converted(more / "classes.txt", format="yolo")[1].boxes == 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"obj.data": "classes = 2\n"}, "obj.data must have a line names = FILE"),
        ({"obj.data": "names = a\0b\n"}, r"a\x00b, the names of the classes, cannot be read: "),
        ({"obj.data": f"names = {'a' * 999}\n"}, "the names of the classes, cannot be read: File name too long"),
        ({"obj.names": "cat\n\ndog\n"}, "names must not be empty"),
        ({"obj.names": "cat\ncat\n"}, "names must differ, got 'cat' 2 times"),
        ({"obj.names": "\n"}, "names must be those of the classes, got none"),
        ({"obj.names": b"caf\xe9\n"}, "obj.names must be UTF-8 text"),
        ({"obj.names": "one\n"}, "class must be a whole number from 0 to 0, got 1"),
        ({"train.txt": "data/obj_train_data/x.jpg\n"}, "data/obj_train_data/x.jpg is not a file below"),
        ({"obj.data": "train = no.txt\nnames = obj.names\n"}, "no.txt is not in"),
    ],
)
def test_what_is_refused(tmp_path: Path, change: dict[str, str | bytes], message: str) -> None:
    root = data_set(tmp_path / "set", DARKNET | change, *DARKNET_IMAGES)  # type: ignore[arg-type]
    assert message in refused(root, format="yolo")


@pytest.mark.parametrize("path", ["{outside}/secret.names", "../secret.names", "sub/../../secret.names"])
def test_no_file_outside_is_read(tmp_path: Path, path: str) -> None:
    outside = write_files(tmp_path, {"secret.names": "secret\nwords\n"})
    text = f"names = {path.format(outside=outside)}\ntrain = train.txt\n"
    root = data_set(tmp_path / "set", DARKNET | {"obj.data": text}, *DARKNET_IMAGES)
    message = refused(root)
    assert f"{root}/secret.names, the names of the classes, cannot be read: No such file" in message
    write_files(root, {"secret.names": NAMES})
    assert [*converted(root)[1].class_counts] == ["alfa", "beta: 2"]


def test_folders_with_other_classes(tmp_path: Path) -> None:
    """labelImg writes classes.txt anew in each folder, and their order may differ (HumanSignal/labelImg#721)."""
    files = {f"{name}/{file}": text for name in "ab" for file, text in LAYOUTS["labelImg"][0].items()}
    root = data_set(tmp_path / "set", files, "a/a.jpg", "b/a.jpg")
    assert converted(root)[1].boxes == 2
    write_files(root, {"b/classes.txt": "beta: 2\nalfa\n"})
    assert "has a/classes.txt and b/classes.txt with other classes; convert the folder of each" in refused(root)
    labels = data_set(tmp_path / "labels", {"a.txt": ROW}, "a.jpg")
    remedy = f"write {labels}/classes.txt, the names of the classes one a line, in the order of their numbers"
    assert remedy in refused(labels)
    write_files(labels, {"classes.txt": NAMES})
    assert converted(labels)[1].boxes == 1
