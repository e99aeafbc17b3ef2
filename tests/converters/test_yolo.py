"""YOLO labels to COCO JSON and back: rows, layouts of data.yaml, what is refused, what is never overwritten."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path
from typing import Any

import pytest
from coco_files import Document, document, write, write_images
from command import detaug, usage_error
from hypothesis import given
from hypothesis import strategies as st
from properties import check_examples, few_or_many
from pycocotools.coco import COCO
from voc_files import HEIGHT, WIDTH, assert_valid, image_bytes, rotated_jpeg, with_segment, write_files

from detaug.coco.rows import read_coco_rows
from detaug.converters import ConversionError, InputError, Summary, coco_to_yolo, yolo_to_coco
from detaug.converters.yolo.files import label_file
from detaug.converters.yolo.label_rows import label_rows, label_text
from detaug.converters.yolo.labels import LabelLog, RowForm, box_in_image, read_boxes

YAML = "train: images/train\nval: images/val\nnames: [cat, dog]\n"


def jpeg(text: str) -> bytes:
    """Return a JPEG of 100 x 80 pixels, with other bytes for another text."""
    return with_segment(image_bytes(), text.encode(), 0xFE)


def data_set(folder: Path, labels: dict[str, str | bytes], yaml: str = YAML) -> Path:
    """Write images a, b, ... of a train split, and label files."""
    write_files(folder, {f"images/train/{name}.jpg": jpeg(name) for name in labels} | {"data.yaml": yaml})
    write_files(folder, {f"labels/train/{name}.txt": text for name, text in labels.items()})
    return folder


def converted(root: Path, **options: Any) -> tuple[Document, Summary]:
    output = options.pop("output", root.parent / "out.json")
    summary = yolo_to_coco(root, output, **options)
    content = json.loads(output.read_bytes())
    assert_valid(content, summary)
    COCO(str(output))
    return content, summary


def one(folder: Path, rows: str | bytes, **options: Any) -> tuple[list[Any], Summary]:
    content, summary = converted(data_set(folder / "yolo", {"a": rows}), **options)
    return [row["bbox"] for row in content["annotations"]], summary


def counts(summary: Summary) -> dict[str, int]:
    return {kind: count for kind, count in summary.kind_counts.items() if kind not in ("class-unused", "key-dropped")}


# ----------------------------------------------------------------------------------------------------------
# Rows


@pytest.mark.parametrize("place", ["folder", "fifo", "nowhere"])
def test_a_label_file_that_is_no_file_does_not_make_its_image_a_negative(tmp_path: Path, place: str) -> None:
    root = data_set(tmp_path / "yolo", {"a": "0 0.5 0.5 0.5 0.5", "b": ""})
    label = root / "labels/train/b.txt"
    label.unlink()
    {"folder": label.mkdir, "fifo": lambda: os.mkfifo(label), "nowhere": lambda: label.symlink_to("c.txt")}[place]()
    content, summary = converted(root, on_error="skip")
    assert ([row["file_name"] for row in content["images"]], counts(summary)) == (["a.jpg"], {"label-unreadable": 1})


@pytest.mark.parametrize(
    ("row", "box", "kinds"),
    [
        ("0 0.5 0.5 1 1", [0, 0, 100, 80], {}),
        ("1.0 0.15 0.25 0.1 0.25", [10, 10, 10, 20], {}),
        ("0 .15 2.5e-1 1e-1 0.25\r", [10, 10, 10, 20], {}),
        ("0 0.333333 0.5 0.333333 0.5", [16.667, 20, 33.333, 40], {}),
        ("0 0.9950005 0.5 0.01 0.5", [99, 20, 1, 40], {}),  # past the edge by rounding
        ("0 0.95 0.5 0.2 0.5", [85, 20, 15, 40], {"box-clipped": 1}),
        ("0 0.0 0.5 0.2 0.5", [0, 20, 10, 40], {"box-clipped": 1}),
        ("0 1.005 0.5 0.005 0.5", None, {"box-outside": 1}),
        ("0 0.5 0.5 0 0.5", None, {"box-empty": 1}),
        ("0 0.50005 0.5 0.0001 0.5", [50, 20, 0.01, 40], {}),
        ("0 0.5 0.5 0.5 -0.0", None, {"box-empty": 1}),
        ("0 0.1 0.25 0.3 0.5 0.2 0.75", [10, 20, 20, 40], {}),
        ("1 0.1 0.25 0.3 0.5 0.2 0.75 0.05 0.3", [5, 20, 25, 40], {}),
        ("0 0.15 0.25 0.1 0.25\n\n0 0.15 0.25 0.1 0.25", [10, 10, 10, 20], {"box-repeated": 1}),
    ],
)
def test_rows(tmp_path: Path, row: str, box: list[float] | None, kinds: dict[str, int]) -> None:
    boxes, summary = one(tmp_path, f"{row}\n1 0.3 0.3 0.1 0.1")  # a lost box alone would leave nothing to write
    assert boxes[:-1][:1] == ([] if box is None else [box])
    assert counts(summary) == kinds


@pytest.mark.parametrize(
    ("row", "kind", "message"),
    [
        ("0 0.5 0.5 0.1", "row-invalid", "a class and 4 numbers, or a class and 3 points or more, got 4 numbers"),
        ("0 0.5 0.5 0.1 0.1 0.9", "row-invalid", "got 6 numbers"),
        ("0 0.5 0.5 0.1 0.1 0.9 0.9 0.9", "row-invalid", "got 8 numbers"),
        ("0 0.5 0.5 0.1 wide", "row-invalid", "must be numbers, got '0 0.5 0.5 0.1 wide'"),
        ("0 0.5 0.5 0.1 nan", "row-invalid", "must be finite numbers"),
        ("0 0.5 0.5 0.1 1e999", "row-invalid", "must be finite numbers"),
        ("0 0.5 0.5 0.1 0_1", "row-invalid", "must be finite numbers"),
        ("0,0.5,0.5,0.1,0.1", "row-invalid", "must be numbers"),
        ("2 0.5 0.5 0.1 0.1", "class-unknown", "class must be a whole number from 0 to 1, got 2"),
        ("-1 0.5 0.5 0.1 0.1", "class-unknown", "got -1"),
        ("0.5 0.5 0.5 0.1 0.1", "class-unknown", "got 0.5"),
        ("0 50 40 10 10", "row-not-relative", "from 0 to 1, got 50; divide pixels by its size"),
        ("0 0.5 0.5 1.02 0.1", "row-not-relative", "got 1.02"),
        ("0 0.5 0.5 -1.1 0.1", "row-not-relative", "from 0 to 1, got -1.1 ["),
        (b"0 0.5 0.5 0.1 0.1 \xff", "label-unreadable", "must be UTF-8 text, got byte 0xff at 18"),
        (b"\n" * (9 << 20), "label-unreadable", "is larger than 8 MiB"),
    ],
)
def test_bad_rows_stop_or_cost_their_image(tmp_path: Path, row: str | bytes, kind: str, message: str) -> None:
    head = b"\n" if isinstance(row, bytes) else "\n"
    root = data_set(tmp_path / "yolo", {"a": head + row if kind != "label-unreadable" else row, "b": ""})  # type: ignore[operator]
    with pytest.raises(ConversionError) as raised:
        converted(root, report=tmp_path / "report.json")
    place = "labels/train/a.txt: " if kind == "label-unreadable" else "labels/train/a.txt:2: "
    assert str(raised.value).startswith(place)
    assert message in str(raised.value).splitlines()[0]
    assert not (tmp_path / "out.json").exists()
    assert json.loads((tmp_path / "report.json").read_bytes())["counts"][kind] == 1
    content, summary = converted(root, on_error="skip")
    assert [image["file_name"] for image in content["images"]] == ["b.jpg"]
    assert counts(summary) == {kind: 1}


@pytest.mark.parametrize("end", ["\r", "\n", "\r\n", "\x0b", "\u2028", "\u0085"])
def test_rows_end_as_python_and_ultralytics_see_it(tmp_path: Path, end: str) -> None:
    boxes, summary = one(tmp_path, end.join(["0 0.1 0.125 0.2 0.25", "1\t0.5 0.5 0.2 0.25", "0 0.8 0.5 0.2 0.25", ""]))
    assert boxes == [[0, 0, 20, 20], [40, 30, 20, 20], [70, 30, 20, 20]]
    assert (summary.class_counts, counts(summary)) == ({"cat": 2, "dog": 1}, {})


@pytest.mark.parametrize("first", ["0", "0.0"])
def test_rows_that_share_a_line_are_no_polygon(tmp_path: Path, first: str) -> None:
    rows = [f"{first} 0.1 0.1 0.2 0.2", f"{first} 0.5 0.5 0.2 0.2", f"{first} 0.8 0.8 0.2 0.2"]
    with pytest.raises(ConversionError, match=r"a\.txt:1: has 15 numbers that look like 3 rows of a class") as raised:
        one(tmp_path, " ".join(rows))
    assert "put each on its own line, or in a polygon write the class as 0 and coordinates as 0.0" in str(raised.value)
    assert len(one(tmp_path, "\n".join(rows))[0]) == 3
    polygon = " ".join(rows).replace("0.0 ", "0 ").replace(" 0 ", " 0.0 ")
    assert counts(one(tmp_path, polygon)[1]) == {}


def test_a_polygon_of_seven_points_at_an_edge_stays_a_polygon(tmp_path: Path) -> None:
    boxes, summary = one(tmp_path, "0 0.5 0.25 0.25 0.5 0 0.6 0.3 0.9 0.5 1 0.7 0.9 0.6 0.5")
    assert (boxes, counts(summary)) == ([[0, 20, 70, 60]], {})


@pytest.mark.parametrize("shape", ["17", "[17]", "[0, 3]", "[17, 4]", "[a, 2]"])
def test_kpt_shape_that_cannot_be_used(tmp_path: Path, shape: str) -> None:
    with pytest.raises(ConversionError, match=r"kpt_shape must be \[number of keypoints, 2 or 3\], got"):
        converted(data_set(tmp_path / "yolo", {"a": ""}, f"{YAML}kpt_shape: {shape}\n"))


def test_every_bad_row_is_listed(tmp_path: Path) -> None:
    with pytest.raises(ConversionError, match="3 problems, nothing written") as raised:
        converted(data_set(tmp_path / "yolo", {"a": "0\n1\n", "b": "7 0 0 1 1"}))
    assert [line.split()[0] for line in str(raised.value).splitlines()[:3]] == [
        "labels/train/a.txt:1:",
        "labels/train/a.txt:2:",
        "labels/train/b.txt:1:",
    ]


def test_byte_order_mark(tmp_path: Path) -> None:
    boxes, _ = one(tmp_path, "\ufeff0 0.5 0.5 1 1")
    assert boxes == [[0, 0, 100, 80]]


def test_boxes_are_of_the_image_as_displayed(tmp_path: Path) -> None:
    root = data_set(tmp_path / "yolo", {"a": "0 0.5 0.5 1 0.5"})
    (root / "images/train/a.jpg").write_bytes(rotated_jpeg(6))
    content, _ = converted(root)
    assert (content["images"][0]["width"], content["images"][0]["height"]) == (HEIGHT, WIDTH)
    assert content["annotations"][0]["bbox"] == [0, 25, 80, 50]


def test_images_without_labels_have_no_boxes(tmp_path: Path) -> None:
    root = data_set(tmp_path / "yolo", {"a": "1 0.5 0.5 1 1", "b": "", "c": ""})
    (root / "labels/train/c.txt").unlink()
    write_files(root / "labels/train", {"old.txt": "0 0 0 1 1", "classes.txt": "cat\ndog\n"})
    content, summary = converted(root)
    assert [image["file_name"] for image in content["images"]] == ["a.jpg", "b.jpg", "c.jpg"]
    assert [row["category_id"] for row in content["annotations"]] == [2]
    assert content["categories"] == [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    assert summary.kind_counts == {"label-unused": 1, "label-missing": 1, "class-unused": 1}
    assert {finding.file for finding in summary.findings} == {"labels/train/c.txt", "labels/train/old.txt", ""}
    assert (summary.images, summary.images_without_boxes, summary.class_counts) == (3, 2, {"cat": 0, "dog": 1})


def test_no_label_file_at_all_is_another_layout(tmp_path: Path) -> None:
    root = data_set(tmp_path / "yolo", {"a": ""})
    (root / "labels/train/a.txt").unlink()
    with pytest.raises(
        ConversionError, match=r"none of the 1 images has a label file; the first would be .*train/a\.txt"
    ):
        converted(root)


def test_a_line_break_in_a_name_is_printed_escaped(tmp_path: Path) -> None:
    root = write_files(tmp_path / "yolo", {"images/train/a\nb.jpg": jpeg("a"), "data.yaml": YAML})
    assert r"/labels/train/a\nb.txt" in usage_error("convert-yolo", root, "-o", tmp_path / "out.json")


def test_a_broken_image_stops_or_is_skipped(tmp_path: Path) -> None:
    root = data_set(tmp_path / "yolo", {"a": "", "b": "0 0.5 0.5 1 1"})
    (root / "images/train/a.jpg").write_bytes(b"no image")
    with pytest.raises(ConversionError, match=r"a\.jpg: is not an image"):
        converted(root)
    _, summary = converted(root, on_error="skip")
    assert (summary.images, counts(summary)) == (1, {"image-unreadable": 1})
    (root / "images/train/b.jpg").write_bytes(b"no image")
    with pytest.raises(ConversionError, match="no image is left to write"):
        converted(root, on_error="skip")


def test_a_file_name_that_is_not_utf8(tmp_path: Path) -> None:
    root = data_set(tmp_path / "yolo", {"a": "0 0.5 0.5 1 1"})
    write_files(root, {"images/train/\udcff.jpg": jpeg("x")})
    with pytest.raises(ConversionError, match="file-name-not-utf8"):
        converted(root)
    assert counts(converted(root, on_error="skip")[1]) == {"file-name-not-utf8": 1}


# ----------------------------------------------------------------------------------------------------------
# Layouts


@pytest.mark.parametrize(
    ("yaml", "names"),
    [
        ("train: images/train\nnames: [cat, dog]", ["cat", "dog"]),
        ("path: .\ntrain: images/train\nnames:\n  0: cat\n  1: dog", ["cat", "dog"]),
        ("path: ../datasets/voc\ntrain: images/train\nnames: {1: dog, 0: cat}\nnc: 2", ["cat", "dog"]),
        ("train: ../images/train\nnc: 2", ["class_0", "class_1"]),
        ("train: [images/train]\nnames: [1, 2.5]", ["1", "2.5"]),
        ("train: images\nnames: ['no', ' big   dog ']", ["no", "big dog"]),
        ("train: train.txt\nnames: [cat, dog]", ["cat", "dog"]),
        ("path: {root}\ntrain: '{root}/images/train'\nnames: [cat, dog]", ["cat", "dog"]),
    ],
)
def test_data_yaml(tmp_path: Path, yaml: str, names: list[str]) -> None:
    root = data_set(
        tmp_path / "yolo", {"a": "1 0.5 0.5 1 1", "b": "0 0.5 0.5 1 1"}, yaml.replace("{root}", str(tmp_path / "yolo"))
    )
    write_files(root, {"train.txt": f"./images/train/a.jpg\n\n{root}/images/train/b.jpg\nimages/train/a.jpg\n"})
    content, summary = converted(root)
    assert [category["name"] for category in content["categories"]] == names
    assert [Path(image["file_name"]).name for image in content["images"]] == ["a.jpg", "b.jpg"]
    assert all((summary.image_folder / image["file_name"]).is_file() for image in content["images"])
    assert [row["category_id"] for row in content["annotations"]] == [2, 1]
    assert summary.kind_counts == ({"split-entry-repeated": 1} if "train.txt" in yaml else {})


def test_a_split_of_two_folders(tmp_path: Path) -> None:
    root = tmp_path / "yolo"
    write_files(root, {"b/images/x.jpg": jpeg("x"), "a/images/x.jpg": jpeg("y"), "a/labels/x.txt": "0 0.5 0.5 1 1"})
    write_files(root, {"data.yaml": "train: [b/images, a/images]\nnames: [cat]"})
    content, summary = converted(root)
    assert summary.image_folder == root
    assert [image["file_name"] for image in content["images"]] == ["b/images/x.jpg", "a/images/x.jpg"]
    assert [row["image_id"] for row in content["annotations"]] == [2]


def test_splits_by_name(tmp_path: Path) -> None:
    root = tmp_path / "yolo"
    write_files(root, {"valid/images/x.jpg": jpeg("x"), "valid/labels/x.txt": "0 0.5 0.5 1 1"})
    write_files(root, {"data.yaml": "train: ../train/images\nvalidation: ../valid/images\nnames: [cat]"})
    for name in ("val", "valid", "validation"):
        assert converted(root, split=name)[1].boxes == 1
    with pytest.raises(ConversionError, match="has no split 'test'; there are train, validation"):
        converted(root, split="test")
    with pytest.raises(ConversionError, match=r"\.\./train/images is not in"):
        converted(root)


def test_entries_of_a_list_that_are_not_there(tmp_path: Path) -> None:
    root = data_set(tmp_path / "yolo", {"a": "0 0.5 0.5 1 1"}, "train: train.txt\nnames: [cat]")
    write_files(root, {"train.txt": "images/train/no.jpg\nimages/train/a.jpg\n"})
    with pytest.raises(ConversionError, match=r"train\.txt:1: images/train/no\.jpg is not a file below"):
        converted(root)
    assert counts(converted(root, on_error="skip")[1]) == {"split-entry-missing": 1}


@pytest.mark.parametrize(
    ("yaml", "message"),
    [
        ("", "must be a mapping with train: and names:, got NoneType"),
        ("- a", "got list"),
        ("a: [", "does not parse as yaml"),
        ("a: !!python/object/apply:os.system ['true']", "does not parse as yaml"),
        ("[" * 800, "does not parse as yaml"),
        ("train: images/train", "names must be a list of class names"),
        ("train: images/train\nnames: []", "names must be a list of class names"),
        ("train: images/train\nnames: cat", "names must be a list of class names"),
        ("train: images/train\nnames: {1: cat, 2: dog}", r"names must be numbered from 0 without gaps, got \[1, 2\]"),
        ("train: images/train\nnames: {'1': cat}", "numbered from 0"),
        ("train: images/train\nnames: [cat]\nnc: 2", "nc is 2, but there are 1 names"),
        ("train: images/train\nnames: [cat, no]", 'names must be text, got False; put it into quotes: "False"'),
        ("train: images/train\nnames: [cat, ' cat']", "names must differ, got 'cat' 2 times"),
        ("train: images/train\nnames: [cat, '']", "names must not be empty"),
        ('train: images/train\nnames: ["c\\u0007t"]', "control characters, got 'c\\\\x07t'"),
        ("train: 7\nnames: [cat]", "train must be a folder, a .txt file or a list of these, got 7"),
        ("train: data.yaml\nnames: [cat]", r"data\.yaml:1: train: data\.yaml is not a file"),
        ("train: labels\nnames: [cat]", "has no images"),
    ],
)
def test_data_yaml_that_cannot_be_used(tmp_path: Path, yaml: str, message: str) -> None:
    root = data_set(tmp_path / "yolo", {"a": "0 0.5 0.5 1 1"}, yaml)
    with pytest.raises(ConversionError, match=message):
        converted(root)


def test_which_data_yaml(tmp_path: Path) -> None:
    root = data_set(tmp_path / "yolo", {"a": "0 0.5 0.5 1 1"})
    write_files(root, {"other.yaml": "train: no\nnames: [cat]"})
    assert converted(root)[1].boxes == converted(root / "data.yaml")[1].boxes == 1
    (root / "data.yaml").rename(root / "coco8.yaml")
    with pytest.raises(ConversionError, match=r"there are several: coco8\.yaml, other\.yaml; give the file"):
        converted(root)
    (root / "other.yaml").unlink()
    assert converted(root)[1].boxes == 1
    (root / "coco8.yaml").unlink()
    with pytest.raises(ConversionError, match=r"there is none; write .*yolo/classes.txt, the names of the classes"):
        converted(root)
    with pytest.raises(ConversionError, match="nowhere does not exist"):
        converted(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("image", "label"),
    [
        ("/d/images/train/a.b.jpg", "/d/labels/train/a.b.txt"),
        ("/d/images/x/images/a.jpg", "/d/images/x/labels/a.txt"),
        ("/d/myimages/a.jpg", "/d/myimages/a.txt"),
        ("/d/photos/a.jpg", "/d/photos/a.txt"),
    ],
)
def test_where_labels_are(image: str, label: str) -> None:
    assert label_file(image) == label


# ----------------------------------------------------------------------------------------------------------
# Names of labels

ROW = "0 0.5 0.5 1 1"


@pytest.mark.parametrize(
    ("image", "label", "kinds"),
    [
        ("images/train/a.jpg", "labels/train/a.TXT", {}),
        ("images/train/a.JPG", "labels/train/a.txt", {}),
        ("images/train/IMG_1.jpg", "labels/train/img_1.txt", {"label-name": 1}),
        ("images/train/caf\u00e9.jpg", "labels/train/cafe\u0301.txt", {"label-name": 1}),
        ("images/train/cafe\u0301.jpg", "labels/train/caf\u00e9.txt", {"label-name": 1}),
        ("images/train/a.jpg", "labels/train/a.jpg.txt", {"label-name": 1}),
        ("images/train/a.JPG", "labels/train/A.jpg.TXT", {"label-name": 1}),
        ("images/train/x/a.jpg", "labels/train/a.txt", {"label-elsewhere": 1}),
        ("images/train/x/a.jpg", "labels/train/y/A.txt", {"label-elsewhere": 1}),
        ("images/train/a.jpg", "images/train/a.txt", {"label-elsewhere": 1}),
        ("images/train/x/a.jpg", "images/train/x/A.TXT", {"label-elsewhere": 1}),
        ("images/train/a.jpg", "Labels/Train/a.txt", {}),
        ("images/train/x/a.jpg", "labels/Train/X/a.txt", {}),
    ],
)
def test_a_label_is_found_by_the_rules_of_names(tmp_path: Path, image: str, label: str, kinds: dict[str, int]) -> None:
    root = write_files(tmp_path / "yolo", {"data.yaml": YAML, image: jpeg("a"), label: ROW})
    content, summary = converted(root)
    assert (len(content["images"]), len(content["annotations"]), counts(summary)) == (1, 1, kinds)


def test_folders_in_another_case(tmp_path: Path) -> None:
    files = {
        "Train/Images/a.jpg": jpeg("a"),
        "Train/Labels/a.txt": ROW,
        "data.yaml": "train: Train/Images\nnames: [cat]",
    }
    _, summary = converted(write_files(tmp_path / "yolo", files))
    assert (summary.boxes, counts(summary)) == (1, {})


def test_labels_below_a_hidden_folder_and_of_a_hidden_image(tmp_path: Path) -> None:
    files = {"images/.a.jpg": jpeg("a"), "labels/.a.txt": ROW, "images/b.jpg": jpeg("b"), "labels/b.txt": ROW}
    files |= {"data.yaml": "train: train.txt\nnames: [cat]", "train.txt": "images/.a.jpg\nimages/b.jpg\n"}
    _, summary = converted(write_files(tmp_path / ".cache/yolo", files), output=tmp_path / "out.json")
    assert (summary.boxes, counts(summary)) == (2, {})


def test_hidden_labels_of_macos_and_jupyter_are_no_labels(tmp_path: Path) -> None:
    root = data_set(tmp_path / "yolo", {"a": ROW})
    write_files(root, {"labels/train/._a.txt": "x", "labels/train/.ipynb_checkpoints/a-checkpoint.txt": ROW})
    assert counts(converted(root)[1]) == {}


def test_two_images_do_not_share_a_label_file(tmp_path: Path) -> None:
    root = data_set(tmp_path / "yolo", {"a": ROW, "b": ROW})
    (root / "images/train/a.png").write_bytes(jpeg("c"))
    shared = "shares its label file labels/train/a.txt with images/train/a"
    with pytest.raises(ConversionError, match="2 problems") as raised:
        converted(root)
    assert f"images/train/a.jpg: {shared}.png" in str(raised.value)
    assert f"images/train/a.png: {shared}.jpg" in str(raised.value)
    content, summary = converted(root, on_error="skip")
    assert [row["file_name"] for row in content["images"]] == ["b.jpg"]
    assert counts(summary)["label-shared"] == 2
    for name in ("a.jpg", "a.png"):
        write_files(root, {f"labels/train/{name}.txt": ROW})
    (root / "labels/train/a.txt").unlink()
    assert converted(root)[1].boxes == 3


def test_two_label_files_of_one_image(tmp_path: Path) -> None:
    root = data_set(tmp_path / "yolo", {"a": ROW})
    write_files(root, {"labels/train/a.jpg.txt": ROW, "labels/train/old/a.txt": ROW, "images/train/a.txt": ROW})
    message = "labels/train/a.jpg.txt: its image images/train/a.jpg has the label file labels/train/a.txt .image-shared"
    with pytest.raises(ConversionError, match=message):
        converted(root)
    _, summary = converted(root, on_error="skip")
    assert (summary.boxes, counts(summary)) == (1, {"image-shared": 1, "label-unused": 1})


def test_labels_of_another_split_are_not_unused(tmp_path: Path) -> None:
    root = data_set(tmp_path / "yolo", {"a": ROW, "A": ROW, "b": ROW}, "train: train.txt\nnames: [cat]")
    write_files(root, {"train.txt": "images/train/a.jpg\rimages\\train\\b.jpg\r"})
    assert counts(converted(root)[1]) == {}


@pytest.mark.parametrize("label", ["IMG-1", "img_001", "IMG 1"])
def test_nearly_the_same_name_is_one_finding(tmp_path: Path, label: str) -> None:
    root = data_set(tmp_path / "yolo", {"IMG_1": "", "b": ROW})
    (root / "labels/train/IMG_1.txt").rename(root / f"labels/train/{label}.txt")
    message = f"labels/train/{label}.txt: has no image, and images/train/IMG_1.jpg has no labels; rename one"
    with pytest.raises(ConversionError, match=message):
        converted(root)
    content, summary = converted(root, on_error="skip")
    assert [row["file_name"] for row in content["images"]] == ["b.jpg"]
    assert counts(summary) == {"label-similar": 1}
    (root / f"labels/train/{label}.txt").rename(root / "labels/train/IMG_1.txt")
    assert counts(converted(root)[1]) == {}


def test_numbers_that_differ_are_other_names(tmp_path: Path) -> None:
    root = data_set(tmp_path / "yolo", {"1_1": "", "b": ROW})
    (root / "labels/train/1_1.txt").rename(root / "labels/train/11.txt")
    assert counts(converted(root)[1]) == {"label-missing": 1, "label-unused": 1}


@pytest.mark.parametrize(
    ("yaml", "listed"),
    [
        ("train: images\\train", ""),
        ("train: [images/train/a.jpg, images/train/b.jpg]", ""),
        ("train: train.txt", "images\\train\\a.jpg\r\nimages\\train\\b.jpg\r\n"),
        ("train: train.txt", "data/images/train/a.jpg\ndata/images/train/b.jpg\n"),
    ],
)
def test_paths_as_windows_cvat_and_datumaro_write_them(tmp_path: Path, yaml: str, listed: str) -> None:
    root = data_set(tmp_path / "yolo", {"a": ROW, "b": ROW}, f"{yaml}\nnames: [cat]")
    write_files(root, {"train.txt": listed})
    _, summary = converted(root)
    assert (summary.images, summary.boxes, counts(summary)) == (2, 2, {})


def test_outputs_that_are_refused(tmp_path: Path) -> None:
    root = data_set(tmp_path / "yolo", {"a": "0 0.5 0.5 1 1"})
    with pytest.raises(ConversionError, match=r"must be another file than .*data\.yaml, which is an input"):
        yolo_to_coco(root, root / "data.yaml")
    with pytest.raises(ConversionError, match="report must be another file than output"):
        yolo_to_coco(root, tmp_path / "out.json", report=tmp_path / "out.json")
    with pytest.raises(ValueError, match="on_error must be one of stop, skip, got 'go'"):
        yolo_to_coco(root, tmp_path / "out.json", on_error="go")  # type: ignore[arg-type]


# ----------------------------------------------------------------------------------------------------------
# COCO to YOLO


def exported(content: Document, folder: Path, **options: Any) -> tuple[Path, Summary]:
    output = folder / "yolo"
    return output, coco_to_yolo(write(folder / "train.json", content), output, **options)


def text_files(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if path.suffix in (".txt", ".yaml"))
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in paths}


def test_the_files_written(tmp_path: Path) -> None:
    output, summary = exported(document(), tmp_path)
    assert text_files(output) == {
        "data.yaml": '# written by detaug convert-coco-to-yolo\ntrain: images/train\nnames:\n  0: "cat"\n  1: "dog"\n',
        "labels/train/a.txt": "1 0.2 0.3125 0.2 0.375\n0 0.5 0.3125 0.2 0.375\n",
        "labels/train/b.txt": "1 0.5 0.5 1 1\n0 0.255 0.378125 0.3 0.25\n1 0.8 0.8125 0.4 0.375\n",
        "labels/train/sub/c.txt": "",
    }
    assert (summary.images, summary.images_without_boxes, summary.class_counts) == (3, 1, {"cat": 2, "dog": 3})
    assert summary.next_step.startswith(f"train with it: yolo detect train data={output}/data.yaml, after putting")


@pytest.mark.parametrize("with_images", ["copy", "link"])
def test_coco_to_yolo_to_coco(tmp_path: Path, with_images: Any) -> None:
    images = write_images(tmp_path / "images")
    output, summary = exported(document(), tmp_path, images=images, with_images=with_images)
    assert (output / "images/train/sub/c.png").is_symlink() == (with_images == "link")
    assert summary.next_step.endswith("data.yaml")
    content, back = converted(output)
    assert back.image_folder == summary.image_folder
    before = document()
    assert [row["bbox"] for row in content["annotations"]] == [row["bbox"] for row in before["annotations"]]
    assert [row["category_id"] for row in content["annotations"]] == [2, 1, 2, 1, 2]
    assert [image["file_name"] for image in content["images"]] == ["a.jpg", "b.jpg", "sub/c.png"]


sides = st.integers(1, 8000)


@few_or_many(100)
def test_whole_pixels_come_back_from_every_size(examples: int) -> None:
    def check(data: st.DataObject, width: int, height: int) -> None:
        x, y = data.draw(st.integers(0, width - 1)), data.draw(st.integers(0, height - 1))
        box = [x, y, data.draw(st.integers(1, width - x)), data.draw(st.integers(1, height - y))]
        content = document()
        content["images"][0] |= {"width": width, "height": height}
        content["annotations"] = [content["annotations"][0] | {"bbox": box}]
        with tempfile.TemporaryDirectory() as folder:
            rows, _ = read_coco_rows(write(Path(folder) / "a.json", content))
        log = LabelLog("a.txt", [])
        ((number, back, *_),) = read_boxes(
            label_text(label_rows(rows, "detect"), [0]), RowForm(2), (height, width), log
        )
        assert (number, list(back), log.findings) == (1, box, [])

    check_examples(examples, check, st.data(), sides, sides)


@given(st.integers(1, 9000), st.data())
def test_a_box_at_the_edge_does_not_end_past_it(width: int, data: st.DataObject) -> None:
    relative = 1 - data.draw(st.integers(0, 1000 * width - 100)) / (1000 * width)
    log = LabelLog("a.txt", [])
    box = box_in_image([1 - relative / 2, 0.5, relative, 1.0], (80, width), 1, log)
    assert box is not None
    assert box[0] + box[2] <= width
    assert abs(box[2] - relative * width) < 0.001
    assert log.findings == []


def test_category_ids_with_gaps_and_hard_names(tmp_path: Path) -> None:
    content = document()
    content["categories"] = [{"id": 90, "name": 'a: "b" # 猫'}, {"id": 7, "name": "no"}]
    for row in content["annotations"]:
        row["category_id"] = {1: 90, 2: 7}[row["category_id"]]
    output, _ = exported(content, tmp_path, images=write_images(tmp_path / "images"), with_images="link")
    back, _ = converted(output)
    assert [category["name"] for category in back["categories"]] == ["no", 'a: "b" # 猫']
    assert [row["category_id"] for row in back["annotations"]] == [1, 2, 1, 2, 1]


def test_a_second_split_is_added(tmp_path: Path) -> None:
    source = write(tmp_path / "a.json", document())
    for split in ("val", "train", "val"):
        coco_to_yolo(source, tmp_path / "yolo", split=split)
    lines = (tmp_path / "yolo/data.yaml").read_text().splitlines()
    assert lines[1:4] == ["train: images/train", "val: images/val", "names:"]
    content = document()
    content["categories"][0]["name"] = "bird"
    with pytest.raises(ConversionError, match="exists with another task or other names, or was changed"):
        coco_to_yolo(write(tmp_path / "b.json", content), tmp_path / "yolo", split="test")
    assert not (tmp_path / "yolo/labels/test").exists()


@pytest.mark.parametrize("name", ["data.yaml", "labels/train/b.txt", "images/train/a.jpg"])
def test_somebody_elses_file_is_never_replaced(tmp_path: Path, name: str) -> None:
    write_files(tmp_path / "yolo", {name: "names: [precious]"})
    images = write_images(tmp_path / "images")
    with pytest.raises(ConversionError, match=r"exists .*give another folder, or move"):
        exported(document(), tmp_path, images=images, with_images="copy")
    assert [path.read_text() for path in (tmp_path / "yolo").rglob("*") if path.is_file()] == ["names: [precious]"]


def test_a_data_yaml_that_was_changed_is_not_replaced(tmp_path: Path) -> None:
    output, _ = exported(document(), tmp_path)
    text = (output / "data.yaml").read_text() + "# mine\n"
    (output / "data.yaml").write_text(text)
    with pytest.raises(ConversionError, match="or was changed"):
        exported(document(), tmp_path, split="val")
    assert (output / "data.yaml").read_text() == text


def test_a_folder_named_images_inside_the_file_name(tmp_path: Path) -> None:
    content = document()
    content["images"][0]["file_name"] = "images/a.jpg"
    write_images(tmp_path / "photos")
    write_files(tmp_path / "photos", {"images/a.jpg": jpeg("x")})
    output, _ = exported(content, tmp_path, images=tmp_path / "photos", with_images="link")
    back, summary = converted(output)
    assert len(back["annotations"]) == 5
    assert counts(summary) == {}


def test_crowds_and_keys_are_left_out_and_counted(tmp_path: Path) -> None:
    content = document()
    content["annotations"][0] |= {"iscrowd": 1}
    content["annotations"][1] |= {"difficult": 1, "pose": "Unspecified", "truncated": 0}
    output, summary = exported(content, tmp_path)
    assert (output / "labels/train/a.txt").read_text() == "0 0.5 0.3125 0.2 0.375\n"
    assert summary.kind_counts == {"crowd-dropped": 1, "key-dropped": 3}
    assert summary.findings[1].before == ["annotations.difficult", 1]


def test_another_order_of_images_is_reported(tmp_path: Path) -> None:
    content = document()
    assert "order-changed" not in exported(content, tmp_path)[1].kind_counts
    content["images"].reverse()
    root, summary = exported(content, tmp_path, images=write_images(tmp_path / "images"), with_images="copy")
    assert summary.kind_counts["order-changed"] == 1
    assert "order of the images; converted back" in str(summary)
    after, _ = converted(root)
    assert [row["file_name"] for row in after["images"]] == ["a.jpg", "b.jpg", "sub/c.png"]


def test_names_are_printed_on_one_line(tmp_path: Path) -> None:
    content = document()
    content["images"][0]["file_name"] = "new\nline\udce9\x1b.jpg"
    error = detaug("convert-coco-to-yolo", write(tmp_path / "train.json", content), tmp_path / "yolo").err
    assert error.splitlines()[0].startswith(
        r"detaug: new\nline\udce9\x1b.jpg: the image's file name is not valid UTF-8"
    )
    assert error.count("\n") == 2


def test_bad_entries_stop_or_are_skipped(tmp_path: Path) -> None:
    content = document()
    content["annotations"][0]["bbox"] = [1, 2, 0, 4]
    content["images"][1]["file_name"] = "a.png"
    with pytest.raises(ConversionError) as raised:
        exported(content, tmp_path)
    assert "sides of at least 0.01 pixel" in str(raised.value)
    assert "stem-repeated" in str(raised.value)
    assert not (tmp_path / "yolo").exists()
    output, summary = exported(content, tmp_path, on_error="skip")
    assert counts(summary) == {"entry-invalid": 1, "stem-repeated": 1, "boxes-without-image": 3}
    assert (output / "labels/train/a.txt").read_text() == "0 0.5 0.3125 0.2 0.375\n"
    content["categories"][1]["name"] = "cat"
    with pytest.raises(ConversionError, match=r"class names must differ, also without spaces, .* got 'cat'"):
        exported(content, tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "all"}, "split must be one of train, val, test, got 'all'"),
        ({"on_error": "go"}, "on_error must be one of stop, skip, got 'go'"),
        ({"with_images": "link"}, "with_images link needs images"),
    ],
)
def test_arguments(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        exported(document(), tmp_path, **options)


def test_folders_that_cannot_be_made(tmp_path: Path) -> None:
    source = write(tmp_path / "a.json", document())
    for output, message in (
        (source, "is a file in the place of the folder"),
        (tmp_path / "no/yolo", "does not exist; make it first"),
    ):
        with pytest.raises(InputError, match=message):
            coco_to_yolo(source, output)
    content = document()
    content["categories"][1]["id"] = 1
    with pytest.raises(ConversionError, match=r"id 1 is taken by categories\[0\] already \(category-id-repeated\)"):
        exported(content, tmp_path, on_error="skip")


def test_missing_images(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    (images / "b.jpg").unlink()
    with pytest.raises(ConversionError, match=r"b\.jpg: is not in .*images"):
        exported(document(), tmp_path, images=images)
    _, summary = exported(document(), tmp_path, images=images, on_error="skip")
    assert counts(summary) == {"image-missing": 1, "boxes-without-image": 3}


def test_progress_is_told_in_steps_of_64_images(tmp_path: Path) -> None:
    calls: list[tuple[int, int]] = []
    root = data_set(tmp_path / "yolo", dict.fromkeys(map(str, range(65)), "0 0.5 0.5 1 1"))
    converted(root, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(64, 65), (65, 65)]


def test_the_commands(tmp_path: Path) -> None:
    source, folder = write(tmp_path / "a.json", document()), write_images(tmp_path / "images")
    output, back = tmp_path / "yolo", tmp_path / "back.json"
    options = ["--split", "val", "--images", folder, "--with-images", "link", "--report", tmp_path / "r.json"]
    code, out, _ = detaug("convert-coco-to-yolo", source, output, *options)
    assert code == 0
    assert "3 images (1 without boxes), 5 boxes in 2 classes" in out
    code, out, err = detaug("convert-yolo", output, "-o", back, "--split", "val")
    assert (code, err) == (0, "")
    assert out.splitlines()[-1] == f'load it: da.CocoReader("{output}/images/val", "{back}")'
    error = usage_error("convert-yolo", output, "-o", back, "-q")
    assert error == f"detaug: {output}/data.yaml has no split 'train'; there are val\n"
    assert (tmp_path / "r.json").is_file()


@pytest.mark.parametrize(
    "more",
    [
        "names: {{0: {}}}\ntrain: images\n",
        "names: {}\ntrain: images\n",
        "names: [a]\ntrain: {}\n",
        "names: [a]\ntrain: images\nkpt_shape: {}\n",
        "names: [a]\ntrain: images\nkpt_shape: [2, 3]\nflip_idx: {}\n",
        "names: [a]\ntrain: images\nkpt_shape: [2, 3]\nkpt_names: {}\n",
    ],
)
def test_aliases_in_each_other_make_a_short_message(tmp_path: Path, more: str) -> None:
    """Twenty lists of nine of the one before: written out, they are 9^21 letters."""
    lists = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lists += [f"a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 21)]
    root = data_set(tmp_path / "yolo", {"a": ""}, yaml="\n".join([*lists, more.format("*a20")]))
    assert 50 < len(usage_error("convert-yolo", root, "-o", tmp_path / "out.json")) < 1000


@pytest.mark.parametrize(
    ("row", "form"),
    [
        ("0 0.5 0.5 0.2 0.2 0.87", ""),
        ("0 0.1 0.1 0.5 0.1 0.5 0.5 0.87", ""),
        ("0 0.1 0.1 0.5 0.1 0.5 0.5 0.1 0.5 0.87", "task: obb\n"),
        ("0 0.5 0.5 0.2 0.2 0.4 0.4 2 0.87", "kpt_shape: [1, 3]\n"),
    ],
)
def test_rows_with_a_confidence_say_so(row: str, form: str, tmp_path: Path) -> None:
    """Ultralytics' predictions with save_conf=True; without the last number they are labels."""
    for words, is_label in ((row, False), (row.rpartition(" ")[0], True)):
        texts = {"data.yaml": f"names: [cat]\ntrain: images\n{form}", "labels/a.txt": words + "\n"}
        write_files(tmp_path, {**texts, "images/a.jpg": image_bytes()})
        if is_label:
            assert yolo_to_coco(tmp_path, tmp_path / "a.json").boxes == 1
        else:
            with pytest.raises(ConversionError, match=r"numbers; the last may be the confidence of a detection"):
                yolo_to_coco(tmp_path, tmp_path / "a.json")
