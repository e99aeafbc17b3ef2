"""What check --clean repairs exactly: ids and numbers in a wrong form, sizes, paths, boxes with negative sides."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from coco_files import write
from command import detaug, usage_error
from voc_files import HEIGHT, WIDTH, image_bytes, rotated_jpeg

import detaug as da
from detaug.converters import check_coco

Row = dict[str, Any]


def images(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(image_bytes())
    return folder


def image(number: object, name: object, **more: object) -> Row:
    return {"id": number, "file_name": name, "width": WIDTH, "height": HEIGHT} | more


def box(number: object, image_id: object, category_id: object = 1, **more: object) -> Row:
    return {"id": number, "image_id": image_id, "category_id": category_id, "bbox": [10, 10, 30, 20]} | more


def coco(images: list[Row], boxes: list[Row], category: object = 1) -> dict[str, Any]:
    return {"images": images, "annotations": boxes, "categories": [{"id": category, "name": "cat"}]}


def cleaned(folder: Path, content: dict[str, Any], left_out: int = 0) -> tuple[dict[str, Any], str]:
    """Return what --clean writes, which has no errors left and is read, and what the command prints."""
    source, clean = write(folder.parent / "in.json", content), folder.parent / "clean.json"
    result = detaug("check", source, folder, "--clean", clean)
    assert (result.code, result.err) == (1, "")
    assert detaug("check", clean, folder).code == 0
    assert len(da.CocoReader(folder, clean)) == len(content["images"]) - left_out
    return json.loads(clean.read_text()), result.out


def test_ids_that_are_text(tmp_path: Path) -> None:
    folder = images(tmp_path / "images", "a.jpg", "b.jpg")
    content = coco([image("a", "a.jpg"), image("b", "b.jpg")], [box("1", "b", "1"), box("2", "a", "1")], "1")
    result, out = cleaned(folder, content)
    assert [row["id"] for row in result["images"]] == [1, 2]
    assert [(row["id"], row["image_id"], row["category_id"]) for row in result["annotations"]] == [(1, 2, 1), (2, 1, 1)]
    assert "error id-form (2): an id or a reference to one is text or like 1.0; --clean writes whole numbers" in out
    assert "images[0] (id 1, a.jpg): id 'a' becomes 1" in out
    assert "annotations[0] (id 1, b.jpg): id '1' becomes 1, image_id 'b' becomes 2, category_id '1' becomes 1" in out
    assert "clean.json, 5 entries got whole numbers as ids\n" in out


def test_texts_that_spell_a_number_keep_it_and_others_get_a_free_one(tmp_path: Path) -> None:
    folder = images(tmp_path / "images", *"abcd")
    rows = [image("7", "a"), image(1.0, "b"), image("x", "c"), image("1", "d")]
    boxes = [box(1, 7), box(2, 1), box(3, "x"), box(4, "1"), box(5, 1.0), box(6, "7")]
    result, _ = cleaned(folder, coco(rows, boxes))
    ids = {row["file_name"]: row["id"] for row in result["images"]}
    assert ids == {"a": 7, "b": 1, "c": 2, "d": 3}
    assert [row["image_id"] for row in result["annotations"]] == [7, 1, 2, 3, 1, 7]


def test_numbers_that_are_text(tmp_path: Path) -> None:
    folder = images(tmp_path / "images", "a.jpg")
    boxes = [box(1, 1, bbox=["10", "10.5", " 30", "2e1"], iscrowd="0", area="600")]
    result, out = cleaned(folder, coco([image(1, "a.jpg", width="100", height="80")], boxes))
    assert (result["images"][0]["width"], result["images"][0]["height"]) == (100, 80)
    assert result["annotations"][0]["bbox"] == [10, 10.5, 30, 20]
    assert (result["annotations"][0]["iscrowd"], result["annotations"][0]["area"]) == (0, 600)
    assert "clean.json, 2 entries got numbers for text\n" in out


@pytest.mark.parametrize("text", ["10 px", "", "1_0", "nan", "٣", "1e999"])
def test_texts_that_are_no_numbers_stay_errors(tmp_path: Path, text: str) -> None:
    folder = images(tmp_path / "images", "a.jpg")
    source = write(tmp_path / "in.json", coco([image(1, "a.jpg")], [box(1, 1, bbox=[1, 2, 3, text]), box(2, 1)]))
    assert "error box-invalid (1)" in detaug("check", source, folder).out


def test_boxes_with_negative_sides(tmp_path: Path) -> None:
    folder = images(tmp_path / "images", "a.jpg")
    boxes = [box(1, 1, bbox=[16, 70, 53, -61]), box(2, 1, bbox=[40.5, 30.25, -30, -20])]
    result, out = cleaned(folder, coco([image(1, "a.jpg")], boxes))
    assert [row["bbox"] for row in result["annotations"]] == [[16, 9, 53, 61], [10.5, 10.25, 30, 20]]
    assert "bbox [16, 70, 53, -61] becomes [16, 9, 53, 61]" in out
    assert "clean.json, 2 annotations got the box turned round\n" in out


def test_missing_sizes_are_those_of_the_files(tmp_path: Path) -> None:
    folder = images(tmp_path / "images", "a.jpg", "b.jpg")
    (folder / "c.jpg").write_bytes(rotated_jpeg(6))
    rows = [{"id": 1, "file_name": "a.jpg"}, image(2, "b.jpg", width=0), image(3, "c.jpg", height=None)]
    result, out = cleaned(folder, coco(rows, [box(n, n) for n in (1, 2, 3)]))
    assert [(row["width"], row["height"]) for row in result["images"]] == [(100, 80), (100, 80), (80, 100)]
    assert "images[0] (id 1, a.jpg): width None and height None become 100 and 80" in out
    assert "become 80 and 100, with EXIF orientation 6 applied: check whether its boxes are turned too" in out
    assert "clean.json, 3 images got the size of the file\n" in out


@pytest.mark.parametrize(
    ("given", "file"),
    [
        ("images\\1\\90f1-a.jpg", "images/1/90f1-a.jpg"),
        ("..\\label\\12.jpg", "12.jpg"),
        ("D:/z/data/validation/fe6.jpg", "fe6.jpg"),
        ("D:\\z\\fe6.jpg", "fe6.jpg"),
        ("/content/data/coco/train2017/a.jpg", "train2017/a.jpg"),
        ("data/coco/train2017/a.jpg", "train2017/a.jpg"),
        ("A%20b.JPG", "a b.jpg"),
    ],
)
def test_paths_of_another_folder(tmp_path: Path, given: str, file: str) -> None:
    folder = images(tmp_path / "images", file)
    result, out = cleaned(folder, coco([image(1, given)], [box(1, 1)]))
    assert [row["file_name"] for row in result["images"]] == [file]
    assert f"file_name {given!r} leads to no file and becomes {file!r}" in out
    assert "clean.json, 1 image got the path of the file\n" in out


@pytest.mark.parametrize(
    ("given", "files"),
    [
        (["x/a.jpg"], ["1/a.jpg", "2/a.jpg"]),  # two files may be it
        (["train/a.jpg"], ["val/a.jpg"]),  # another folder is another image
        (["x/a.jpg", "y/a.jpg"], ["a.jpg"]),  # one file for two images
        (["a.jpg", "x/a.jpg"], ["a.jpg"]),  # the file is another image
        (["x/a.png"], ["a.jpg"]),
        (["x/a.jpg"], ["wrong/size/x/a.jpg"]),
    ],
)
def test_paths_that_are_not_certain_stay(tmp_path: Path, given: list[str], files: list[str]) -> None:
    folder = images(tmp_path / "images", "other.jpg", *files)
    if "wrong" in files[0]:
        (folder / files[0]).write_bytes(image_bytes(size=(50, 40)))
    rows = [image(n, name) for n, name in enumerate(["other.jpg", *given])]
    source = write(tmp_path / "in.json", coco(rows, [box(1, 0)]))
    out = detaug("check", source, folder).out
    assert "file-name-elsewhere" not in out
    assert "error image-missing" in out


def test_the_longest_end_of_a_path_counts(tmp_path: Path) -> None:
    folder = images(tmp_path / "images", "train/a.jpg", "a.jpg")
    result, _ = cleaned(folder, coco([image(1, "C:\\x\\train\\a.jpg"), image(2, "C:\\x\\a.jpg")], [box(1, 1)]))
    assert [row["file_name"] for row in result["images"]] == ["train/a.jpg", "a.jpg"]


def test_a_wrong_folder_does_not_hide_the_errors_of_the_json(tmp_path: Path) -> None:
    folder = images(tmp_path / "images", "other.jpg")
    content = coco([image(1, "x/a.jpg")], [box(1, 1, 9)])
    source = write(tmp_path / "in.json", content)
    result = detaug("check", source, folder, "--clean", tmp_path / "clean.json")
    assert (result.code, result.err) == (1, "")
    assert "error category-unknown" in result.out
    assert "error image-missing" in result.out
    assert "not written: " in result.out
    content["annotations"][0]["category_id"] = 1
    assert "none of the 1 images" in usage_error("check", write(source, content), folder)


def test_names_without_their_folders(tmp_path: Path) -> None:
    folder = images(tmp_path / "images", "train/a.jpg", "val/b.jpg")
    result, _ = cleaned(folder, coco([image(1, "a.jpg"), image(2, "b.jpg")], [box(1, 1)]))
    assert [row["file_name"] for row in result["images"]] == ["train/a.jpg", "val/b.jpg"]


def test_the_folder_that_has_the_images_is_named_before_names_are_changed(tmp_path: Path) -> None:
    images(tmp_path / "coco", "train/a.jpg")
    source = write(tmp_path / "in.json", coco([image(1, "train/a.jpg")], [box(1, 1)]))
    assert f"; {tmp_path}/coco has it" in usage_error("check", source, tmp_path / "coco/train")


def test_conversions_read_ids_and_numbers_in_a_wrong_form(tmp_path: Path) -> None:
    folder = images(tmp_path / "images", "a.jpg")
    content = coco([image("a", "a.jpg")], [box("1", "a", 1.0, bbox=["10", 10, 30, -5])], "1")
    source = write(tmp_path / "in.json", content)
    report = tmp_path / "report.json"
    result = detaug("convert-coco-to-voc", source, tmp_path / "voc", "--report", report)
    assert result.code == 0
    assert "1 image (0 without boxes), 1 box in 1 class" in result.out
    kinds = {"id-form": 3, "number-text": 1, "box-reversed": 1}
    assert json.loads(report.read_text())["counts"] == kinds
    other = write(tmp_path / "other.json", coco([image(1, "b.jpg")], [box(1, 1)]))
    merged = detaug("merge", source, other, "-o", tmp_path / "merged.json")
    assert (
        "repaired       3  id-form: ids of the JSON file are text or like 1.0 and were read as whole numbers"
        in merged.out
    )
    rows = json.loads((tmp_path / "merged.json").read_text())["annotations"]
    assert [(row["id"], row["image_id"], row["bbox"]) for row in rows] == [
        (1, 1, [10, 5, 30, 5]),
        (2, 2, [10, 10, 30, 20]),
    ]
    assert folder.is_dir()


@pytest.mark.parametrize(
    ("row", "change"),
    [("images", {"width": None}), ("annotations", {"bbox": None, "segmentation": [[10, 10, 40, 10, 40, 30]]})],
)
def test_conversions_name_the_command_that_repairs(tmp_path: Path, row: str, change: Row) -> None:
    folder = images(tmp_path / "images", "a.jpg")
    content = coco([image(1, "a.jpg")], [box(1, 1)])
    content[row][0] |= change
    source = write(tmp_path / "in.json", content)
    error = detaug("convert-coco-to-yolo", source, tmp_path / "yolo").err
    assert f"; detaug check {source} IMAGES --clean NEW.json repairs it" in error
    cleaned(folder, content)
    assert detaug("convert-coco-to-yolo", tmp_path / "clean.json", tmp_path / "yolo").code == 0


# ----------------------------------------------------------------------------------------------------------
# Classes that nothing uses


def test_a_class_without_objects_can_be_left_out(tmp_path: Path) -> None:
    """Roboflow writes a class 0 above the others, which no box has."""
    folder = images(tmp_path / "images", "a.jpg")
    classes = [{"id": number, "name": name} for number, name in enumerate(("my objects", "cat", "dog"))]
    content = coco([image(1, "a.jpg")], [box(1, 1)]) | {"categories": classes}
    source, clean = write(tmp_path / "in.json", content), tmp_path / "clean.json"
    out = detaug("check", source, folder).out
    assert "if none has, --drop-class 'my objects' with --clean FILE leaves it out" in out
    result = detaug("check", source, folder, "--clean", clean, "--drop-class", "my objects")
    assert (result.code, f"written: {clean}, without 1 category\n" in result.out) == (0, True)
    assert json.loads(clean.read_text())["categories"] == [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}]
    clean.unlink()
    for name, fault in (("cat", "'cat' has objects"), ("bird", "'bird' is not a class of the JSON file")):
        error = usage_error("check", source, folder, "--clean", clean, "--drop-class", name)
        assert f"must be classes without objects, which are 'my objects', 'dog'; {fault}" in error
        assert not clean.exists()
    assert "--drop-class is about the JSON file that is written; give --clean, too" in usage_error(
        "check", source, folder, "--drop-class", "dog"
    )


def test_a_class_that_another_split_has_is_kept(tmp_path: Path) -> None:
    """Its remedy names the other file, and not --drop-class; a class that neither has is empty as before."""
    folder = images(tmp_path / "images", "a.jpg", "b.jpg")
    classes = [{"id": number, "name": name} for number, name in enumerate(("cat", "dog", "bird"))]
    val = coco([image(1, "a.jpg")], [box(1, 1) | {"category_id": 0}]) | {"categories": classes}
    train = coco([image(1, "b.jpg")], [box(1, 1) | {"category_id": 5}]) | {
        "categories": [{"id": 5, "name": "dog"}, {"id": 6, "name": "cat"}, {"id": 7, "name": "bird"}]
    }
    paths = write(tmp_path / "val.json", val), write(tmp_path / "train.json", train)
    for own, other, name in ((*paths, "dog"), (*paths[::-1], "cat")):
        counts = check_coco(own, folder, against=[other]).kind_counts
        assert counts["class-elsewhere"] == counts["class-empty"] == 1
        out = detaug("check", own, folder, "--against", other).out
        assert f"'{name}'; {other} has 1 object of it" in out
        assert f"--drop-class {name}" not in out
        assert "--drop-class bird" in out
        assert "if it is not a class of yours, --drop-class bird with --clean FILE leaves it out" in out
    alone = detaug("check", paths[0], folder).out
    assert "if another split has objects of it, it must stay: --against OTHER.json tells; if none has, --drop-" in alone
    with pytest.raises(da.InputError, match="drop_classes is about the JSON file that is written; give clean, too"):
        check_coco(paths[0], folder, drop_classes=["dog"])
    assert """against=["OTHER.json"] tells; if none has, drop_classes=['dog'] with clean="FILE" leaves""" in str(
        check_coco(paths[0], folder)
    )


def test_a_video_that_is_left_out_takes_its_frames_and_their_boxes_with_it(tmp_path: Path) -> None:
    """Ids are not positions, and the first video is among those left out."""
    folder = images(tmp_path / "images", *(f"{n}.jpg" for n in range(4)))
    frames = [image(n, f"{n}.jpg", video_id=(9, 9, 5, 3)[n], frame_id=n) for n in range(4)]
    content = coco(frames, [box(20 + n, n, track_id=n) for n in range(4)])
    content["videos"] = [{"id": 9, "name": "a"}, {"id": 5}, {"id": 3}, {"id": 9, "name": "b"}]  # which one is 9?
    result, out = cleaned(folder, content, left_out=2)
    assert [row["id"] for row in result["videos"]] == [5, 3]
    assert [row["id"] for row in result["images"]] == [2, 3]
    assert [row["id"] for row in result["annotations"]] == [22, 23]
    assert "without 2 images, 2 annotations and 2 videos (2 of them only for their image)\n" in out
