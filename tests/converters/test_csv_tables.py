"""Tables of boxes of TensorFlow's tutorial, Roboflow, keras-retinanet, Open Images and makesense.ai; damaged files."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from format_files import converted, data_set, kinds, refused

TENSORFLOW = """filename,width,height,class,xmin,ymin,xmax,ymax
b.jpg,100,80,cat,10,10,40,30
a.jpg,100,80,"dog, big",5.5,6,50,70
b.jpg,100,80,dog,60,50,40,20
"""
RETINANET = (
    "images/a.jpg,10,10,40,30,cat\nimages/b.jpg,,,,,\n/data/images/c.jpg,1,2,3,4,dog\nimages/a.jpg,5,6,50,70,dog\n"
)
OPEN_IMAGES = """ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction
a,xclick,/m/01yrx,1,0.1,0.4,0.125,0.375,0,1,0,0
a,xclick,/m/0bt9lr,1,0.5,0.9,0.25,0.5,-1,0,1,0
"""
MAKESENSE = """label_name,bbox_x,bbox_y,bbox_width,bbox_height,image_name,image_width,image_height
cat,10,10,30,20,a.jpg,100,80
"""


def test_tensorflow(tmp_path: Path) -> None:
    root = data_set(tmp_path / "set", {"train_labels.csv": TENSORFLOW}, "images/a.jpg", "images/b.jpg", "images/c.jpg")
    document, summary = converted(root)
    found = {}
    names = {row["id"]: row["file_name"] for row in document["images"]}
    classes = {row["id"]: row["name"] for row in document["categories"]}
    for row in document["annotations"]:
        found.setdefault(names[row["image_id"]], []).append((classes[row["category_id"]], row["bbox"]))
    expected: dict[str, list[object]] = {}  # a second reading
    for row in csv.DictReader(io.StringIO(TENSORFLOW)):
        x, y = sorted((float(row["xmin"]), float(row["xmax"]))), sorted((float(row["ymin"]), float(row["ymax"])))
        expected.setdefault(row["filename"], []).append((row["class"], [x[0], y[0], x[1] - x[0], y[1] - y[0]]))
    assert found == expected
    assert kinds(summary) == {"box-reversed": 1, "image-unlisted": 1}
    assert converted(root / "train_labels.csv", images=root / "images")[0]["annotations"] == document["annotations"]


def test_retinanet(tmp_path: Path) -> None:
    files = {"train/_annotations.csv": RETINANET, "train/_classes.csv": "dog,0\ncat,1\n"}
    root = data_set(tmp_path / "set", files, *(f"train/images/{name}.jpg" for name in "abc"))
    document, summary = converted(root)
    assert [row["name"] for row in document["categories"]] == ["dog", "cat"]
    assert [row["bbox"] for row in document["annotations"]] == [[10, 10, 30, 20], [5, 6, 45, 64], [1, 2, 2, 2]]
    assert (summary.images, summary.images_without_boxes, kinds(summary)) == (3, 1, {})
    first_is_empty = data_set(tmp_path / "more", {"a.csv": "b.jpg,,,,,\na.jpg,10,10,40,30,cat\n"}, "a.jpg", "b.jpg")
    assert converted(first_is_empty)[1].images_without_boxes == 1


def test_classes_of_retinanet_may_be_numbers_or_have_commas(tmp_path: Path) -> None:
    rows = 'a.jpg,10,10,40,30,"cat, tabby"\nb.jpg,10,10,40,30,7\n'
    document, _ = converted(data_set(tmp_path / "set", {"a.csv": rows}, "a.jpg", "b.jpg"))
    assert sorted(row["name"] for row in document["categories"]) == ["7", "cat, tabby"]


def test_open_images(tmp_path: Path) -> None:
    files = {"boxes.csv": OPEN_IMAGES, "class-descriptions-boxable.csv": "/m/01yrx,Cat\n/m/0bt9lr,Dog\n"}
    root = data_set(tmp_path / "set", files, "train/a.jpg")
    document, summary = converted(root)
    one, two = document["annotations"]
    assert [row["name"] for row in document["categories"]] == ["Cat", "Dog"]
    assert (one["bbox"], two["bbox"]) == ([10, 10, 30, 20], [50, 20, 40, 20])
    assert (one["iscrowd"], two["iscrowd"], one["IsTruncated"], two["IsOccluded"]) == (0, 1, 1, -1)
    assert (one["Source"], kinds(summary)) == ("xclick", {})


@pytest.mark.parametrize("name", ["3class_train.csv", "classes_all.csv"])
def test_a_table_may_have_class_in_its_name(tmp_path: Path, name: str) -> None:
    files = {name: TENSORFLOW, "classes.csv": "cat,0\ndog,1\n"}
    root = data_set(tmp_path / "set", files, "a.jpg", "b.jpg", "c.jpg")
    alone = data_set(tmp_path / "alone", {"boxes.csv": TENSORFLOW}, "a.jpg", "b.jpg", "c.jpg")
    assert converted(root)[0]["annotations"] == converted(alone)[0]["annotations"] != []


def test_images_are_beside_their_table(tmp_path: Path) -> None:
    """As Roboflow writes them: a table in the folder of each split, and the same names in both."""
    head = "filename,width,height,class,xmin,ymin,xmax,ymax\n"
    files = {f"{split}/_annotations.csv": f"{head}1.jpg,100,80,{split},10,10,50,40\n" for split in ("train", "valid")}
    document, _ = converted(data_set(tmp_path / "set", files, "train/1.jpg", "valid/1.jpg"))
    names = {row["id"]: row["name"] for row in document["categories"]}
    images = {row["id"]: row["file_name"] for row in document["images"]}
    pairs = [(images[row["image_id"]], names[row["category_id"]]) for row in document["annotations"]]
    assert pairs == [("train/1.jpg", "train"), ("valid/1.jpg", "valid")]


def test_lists_beside_a_table_are_left_out(tmp_path: Path) -> None:
    rotations = "ImageID,Subset,OriginalURL,Rotation\na,train,https://x.org/a.jpg,0.0\n"
    files = {"boxes.csv": OPEN_IMAGES, "train-images-with-rotation.csv": rotations}
    document, summary = converted(data_set(tmp_path / "set", files, "train/a.jpg"))
    assert (len(document["annotations"]), kinds(summary)) == (2, {"file-unused": 1})


def test_rows_of_an_image_far_apart(tmp_path: Path) -> None:
    head, *rows = TENSORFLOW.splitlines()
    others = [f"c{number}.jpg,100,80,cat,1,2,3,4" for number in range(50)]
    text = "\n".join([head, rows[0], *others, *rows[1:], ""])
    root = data_set(tmp_path / "set", {"a.csv": text}, "a.jpg", "b.jpg", *(f"c{n}.jpg" for n in range(50)))
    document, summary = converted(root)
    images = {row["id"]: row["file_name"] for row in document["images"]}
    assert [images[row["image_id"]] for row in document["annotations"]].count("b.jpg") == 2
    assert (summary.images, summary.boxes) == (52, 53)


def test_sides_and_other_separators(tmp_path: Path) -> None:
    document, _ = converted(data_set(tmp_path / "set", {"a.csv": MAKESENSE}, "a.jpg"))
    assert [row["bbox"] for row in document["annotations"]] == [[10, 10, 30, 20]]
    other = {"a.csv": "\ufeffImage;Label;XMin;YMin;XMax;YMax;score\r\na.jpg;cat;10;10;40;30;0.5\r\n"}
    document, _ = converted(data_set(tmp_path / "more", other, "a.jpg"))
    assert [(row["bbox"], row["score"]) for row in document["annotations"]] == [([10, 10, 30, 20], 0.5)]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("filename,xmin,ymin,xmax,ymax\na.jpg,1,2,3,4\n", "a.csv: must have the columns filename, class, xmin, ymin"),
        (TENSORFLOW.replace("5.5", "left"), "a.csv:3: a coordinate must be a finite number, got 'left'"),
        (TENSORFLOW.replace("dog\n", "\n").replace(",dog,", ",,"), "a.csv:4: class must be text, got ''"),
        (TENSORFLOW.replace("a.jpg", ""), "a.csv:3: a row must name its image"),
        (TENSORFLOW.replace("a.jpg", "z.jpg"), "has the name 'z.jpg' [image-missing]"),
        (TENSORFLOW.replace("10", "\x00"), "a.csv"),
        (TENSORFLOW.encode("utf-16"), "a.csv: must be UTF-8 text: invalid start byte at 0"),
        ('filename,class,xmin,ymin,xmax,ymax\na.jpg,"' + "x" * 200_000, "a.csv: is not a table: field larger than"),
        ("", "a.csv: must have the columns"),
    ],
)  # fmt: skip
def test_what_is_refused(tmp_path: Path, text: str | bytes, message: str) -> None:
    root = data_set(tmp_path / "set", {"a.csv": text}, "a.jpg", "b.jpg")
    assert message in refused(root, format="csv")


@pytest.mark.parametrize("words", [1, 3])
def test_a_row_that_is_cut_off_is_no_image_without_objects(tmp_path: Path, words: int) -> None:
    """One with all its commas is."""
    head, row = "filename,width,height,class,xmin,ymin,xmax,ymax\n", ["b.jpg", "100", "80", "cat", *map(str, range(4))]
    whole = head + "a.jpg,100,80,cat,10,10,40,30\n"
    cut = data_set(tmp_path / "cut", {"a.csv": whole + ",".join(row[:words])}, "a.jpg", "b.jpg")
    assert f"a.csv:3: a row must have 8 words, got {words}; of an image without objects they are empty" in refused(cut)
    empty = data_set(tmp_path / "empty", {"a.csv": whole + "b.jpg" + 7 * ","}, "a.jpg", "b.jpg")
    document, _ = converted(empty)
    assert (len(document["images"]), len(document["annotations"])) == (2, 1)
