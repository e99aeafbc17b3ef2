"""COCO JSON file to Pascal VOC and back; what is refused, and what is never overwritten."""

from __future__ import annotations

import json
import shlex
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import Document, document, write, write_images
from command import detaug, usage_error
from hypothesis import strategies as st
from lxml import etree
from properties import check_examples, few_or_many
from voc_files import HEIGHT, WIDTH, box_xml, convert, devkit, image_bytes, voc_xml, with_segment

from detaug.converters import ConversionError, InputError, Summary, coco_to_voc, voc_to_coco
from detaug.converters.voc.xml import read_voc_xml

FLAGS = "<pose>Left</pose><truncated>1</truncated><difficult>1</difficult><occluded>1</occluded>"
CORNERS = ("xmin", "ymin", "xmax", "ymax")


def converted(content: Document, folder: Path, **options: Any) -> tuple[Path, Summary]:
    output = folder / "VOC"
    return output, coco_to_voc(write(folder / "train.json", content), output, **options)


def corners_of(path: Path) -> list[list[str]]:
    root = etree.parse(str(path)).getroot()
    return [[box.findtext(corner) for corner in CORNERS] for box in root.iter("bndbox")]


def kinds(summary: Summary) -> dict[str, int]:
    """Count the findings of each kind, except those about the images' licences."""
    return {kind: count for kind, count in summary.kind_counts.items() if kind != "key-dropped"}


def files_below(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def test_the_files_written(tmp_path: Path) -> None:
    output, summary = converted(document(), tmp_path)
    assert list(files_below(output)) == [
        "Annotations/a.xml",
        "Annotations/b.xml",
        "Annotations/sub/c.xml",
        "ImageSets/Main/train.txt",
        "classes.txt",
    ]
    assert (output / "ImageSets/Main/train.txt").read_text() == "a\nb\nsub/c\n"
    assert (output / "classes.txt").read_text() == "cat\ndog\n"
    assert corners_of(output / "Annotations/a.xml") == [["11", "11", "30", "40"], ["41", "11", "60", "40"]]
    assert corners_of(output / "Annotations/b.xml")[:2] == [["1", "1", "100", "80"], ["11.5", "21.25", "40.5", "40.25"]]
    annotation = read_voc_xml(str(output / "Annotations/sub/c.xml"))
    assert (annotation.filename, annotation.size, annotation.objects) == ("c.png", (WIDTH, HEIGHT), [])
    assert (summary.images, summary.images_without_boxes) == (3, 1)
    assert summary.class_counts == {"cat": 2, "dog": 3}


def test_origin_zero(tmp_path: Path) -> None:
    output, _ = converted(document(), tmp_path, origin="zero")
    assert corners_of(output / "Annotations/a.xml")[0] == ["10", "10", "30", "40"]


@pytest.mark.parametrize("origin", ["one", "zero"])
def test_voc_to_coco_to_voc_gives_every_value_back(tmp_path: Path, origin: str) -> None:
    objects = [
        box_xml(1, 1, 100, 80, name="dog", more=FLAGS),
        box_xml(11.3, 20.7, 30.123456, 79.9, name="a &lt; b"),
        box_xml(5, 6, 7, 8, name="猫", more="<difficult>1</difficult>"),
    ]
    root = devkit(tmp_path / "voc", {"a": voc_xml(*objects), "b": voc_xml()}, splits={"val": "b\na\n"})
    before, _ = convert(root, split="val", origin=origin, classes=["dog", "猫", "unused", "a < b"])
    output = tmp_path / "back"
    coco_to_voc(tmp_path / "out.json", output, origin=origin, split="val")  # type: ignore[arg-type]
    read = [read_voc_xml(str(folder / "Annotations/a.xml")).objects for folder in (root, output)]
    assert [item.edges for item in read[0]] == [item.edges for item in read[1]]
    assert [(item.class_name, *item.columns.values()) for item in read[1]] == [
        ("dog", "1", "1", "1", "Left"),
        ("a < b", "0", "0", "0", "Unspecified"),
        ("猫", "1", "0", "0", "Unspecified"),
    ]
    classes = (output / "classes.txt").read_text(encoding="utf-8").splitlines()
    after, summary = convert(output, split="val", origin=origin, classes=classes, images=root / "JPEGImages")
    assert after == before
    assert set(summary.kind_counts) == {"class-unused"}


@few_or_many(60)
def test_any_box_comes_back_from_voc(examples: int) -> None:
    """Boxes narrower than a pixel end before they start, where corners are counted from 1."""

    def check(boxes: list[tuple[float, float, float, float]]) -> None:
        if all(max(x + width, y + height) <= 1 for x, y, width, height in boxes):
            return  # refused: they look relative
        with tempfile.TemporaryDirectory() as name:
            content = document()
            content["annotations"] = [
                {"id": at, "image_id": 1, "category_id": 1, "bbox": list(box), "area": 1, "iscrowd": 0}
                for at, box in enumerate(boxes, 1)
            ]
            images = write_images(Path(name) / "images")
            coco_to_voc(write(Path(name) / "train.json", content), Path(name) / "voc", images=images)
            back, summary = convert(Path(name) / "voc", split="train", images=images)
        assert np.allclose([row["bbox"] for row in back["annotations"]], boxes, rtol=0, atol=1e-5)
        assert "box-reversed" not in summary.kind_counts

    side, start = st.floats(0.01, 20), st.floats(0, 59)
    check_examples(examples, check, st.lists(st.tuples(start, start, side, side), min_size=1, max_size=4))


def test_the_way_back_keeps_the_json_it_came_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_images(tmp_path / "images")
    before = write(tmp_path / "train.json", document()).read_bytes()
    summary = coco_to_voc("train.json", "a folder", images="images")
    assert detaug(*shlex.split(summary.next_step.removeprefix("and back: detaug "))).code == 0
    assert (tmp_path / "train.json").read_bytes() == before
    assert (tmp_path / "train-again.json").exists()


coordinate = st.one_of(
    st.integers(1, 79), st.decimals(1, 79, places=6).map(str), st.sampled_from(["1.000001", "33.3", "79.999999"])
)


@few_or_many(60)
def test_random_corners_come_back(examples: int) -> None:
    def check(corners: list[tuple[object, ...]]) -> None:
        ordered = [(*sorted(box[::2], key=float), *sorted(box[1::2], key=float)) for box in corners]
        boxes = [(left, top, right, bottom) for left, right, top, bottom in ordered]
        if max(float(str(value)) for box in boxes for value in box) < 2:
            return  # boxes in the first pixel alone look relative to the image, and are refused
        with tempfile.TemporaryDirectory() as name:
            root = devkit(Path(name) / "voc", {"a": voc_xml(*[box_xml(*box) for box in boxes])})
            voc_to_coco(root, Path(name) / "out.json")
            coco_to_voc(Path(name) / "out.json", Path(name) / "back")
            written = corners_of(Path(name) / "back/Annotations/a.xml")
        assert [[float(value) for value in box] for box in written] == [[float(str(v)) for v in box] for box in boxes]

    check_examples(
        examples, check, st.lists(st.tuples(coordinate, coordinate, coordinate, coordinate), min_size=1, max_size=4)
    )


def test_a_second_conversion_gives_the_same_bytes_and_writes_nothing(tmp_path: Path) -> None:
    output, _ = converted(document(), tmp_path)
    before = files_below(output), (output / "classes.txt").stat().st_mtime_ns
    converted(document(), tmp_path)
    assert (files_below(output), (output / "classes.txt").stat().st_mtime_ns) == before
    other = tmp_path / "other"
    coco_to_voc(tmp_path / "train.json", other)
    assert files_below(other) == before[0]


def test_a_second_split_is_added(tmp_path: Path) -> None:
    first, second = document(), document()
    second["images"] = [dict(image, file_name=f"v{image['file_name']}") for image in second["images"]]
    converted(first, tmp_path)
    coco_to_voc(write(tmp_path / "val.json", second), tmp_path / "VOC")
    assert sorted(path.name for path in (tmp_path / "VOC/ImageSets/Main").iterdir()) == ["train.txt", "val.txt"]


@pytest.mark.parametrize("name", ["Annotations/b.xml", "classes.txt", "ImageSets/Main/train.txt", "JPEGImages/a.jpg"])
def test_a_file_with_other_content_is_never_replaced(tmp_path: Path, name: str) -> None:
    path = tmp_path / "VOC" / name
    path.parent.mkdir(parents=True)
    path.write_text("precious")
    write_images(tmp_path / "images")
    with pytest.raises(ConversionError, match="1 file exists with other content and would be replaced") as raised:
        converted(document(), tmp_path, images=tmp_path / "images", with_images="copy")
    assert name in str(raised.value)
    assert files_below(tmp_path / "VOC") == {name: b"precious"}


def test_an_image_of_the_same_length_is_not_replaced(tmp_path: Path) -> None:
    images = write_images(tmp_path / "images")
    other = tmp_path / "VOC/JPEGImages/a.jpg"
    other.parent.mkdir(parents=True)
    other.write_bytes((images / "a.jpg").read_bytes()[:-1] + b"x")
    with pytest.raises(ConversionError, match="1 file exists with other content"):
        converted(document(), tmp_path, images=images, with_images="copy")


def test_a_broken_link_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "VOC").mkdir()
    (tmp_path / "VOC/classes.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(ConversionError, match="would be replaced"):
        converted(document(), tmp_path)
    assert not (tmp_path / "nowhere").exists()


@pytest.mark.parametrize("with_images", ["none", "copy", "link"])
def test_images_stay_or_are_brought(tmp_path: Path, with_images: Any) -> None:
    folder = write_images(tmp_path / "images")
    output, summary = converted(document(), tmp_path, images=folder, with_images=with_images)
    made = output / "JPEGImages"
    assert summary.image_folder == (folder if with_images == "none" else made)
    assert made.exists() == (with_images != "none")
    for name in ("a.jpg", "sub/c.png") if with_images != "none" else ():
        assert (made / name).read_bytes() == (folder / name).read_bytes()
        assert (made / name).is_symlink() == (with_images == "link")
    converted(document(), tmp_path, images=folder, with_images=with_images)
    arguments = shlex.split(summary.next_step.removeprefix("and back: detaug "))
    arguments[arguments.index("-o") + 1] = str(tmp_path / "back.json")
    assert detaug(*arguments).code == 0
    back = json.loads((tmp_path / "back.json").read_bytes())
    expected = sorted((row["image_id"], row["bbox"]) for row in document()["annotations"])
    assert sorted((row["image_id"], row["bbox"]) for row in back["annotations"]) == expected
    assert [image["file_name"] for image in back["images"]] == ["a.jpg", "b.jpg", "sub/c.png"]


def change(where: str, at: int = 0, **values: object) -> Document:
    content = document()
    content[where][at].update(values)
    return content


@pytest.mark.parametrize(
    ("content", "kind", "message"),
    [
        (change("annotations", bbox=[1, 2]), "entry-invalid", "four finite numbers, got [1, 2] (box-invalid)"),
        (change("annotations", category_id=9), "entry-invalid", "category_id 9 is not among"),
        (change("images", file_name="../a.jpg"), "entry-invalid", "must not lead outside the image folder"),
        (change("images", file_name="b.png"), "stem-repeated", "b.jpg: two images differ only in their extension"),
        (change("images", file_name="a\n.jpg"), "file-name-unusable", r"a\n.jpg: its name has control characters"),
        (
            change("images", file_name="a\udce9.jpg"),
            "file-name-not-utf8",
            r"a\udce9.jpg: the image's file name is not",
        ),
    ],
)
def test_bad_entries_stop_or_are_skipped(tmp_path: Path, content: Document, kind: str, message: str) -> None:
    with pytest.raises(ConversionError) as raised:
        converted(content, tmp_path, report=tmp_path / "report.json")
    assert message in str(raised.value)
    assert "1 problem, nothing written" in str(raised.value)
    assert not (tmp_path / "VOC").exists()
    assert json.loads((tmp_path / "report.json").read_bytes())["counts"][kind] == 1
    output, summary = converted(content, tmp_path, on_error="skip")
    assert summary.kind_counts[kind] == 1
    names = (output / "ImageSets/Main/train.txt").read_text().splitlines()
    assert len(names) == summary.images == len(list((output / "Annotations").rglob("*.xml")))
    boxes = sum(len(corners_of(path)) for path in (output / "Annotations").rglob("*.xml"))
    assert boxes == summary.boxes < 5


def test_both_images_with_one_id_are_left_out(tmp_path: Path) -> None:
    content = change("images", 1, id=1)
    content["annotations"].append({"id": 6, "image_id": 3, "category_id": 1, "bbox": [1, 2, 3, 4]})
    with pytest.raises(ConversionError, match=r"id 1 is taken by images\[0\] already \(image-id-repeated\)"):
        converted(content, tmp_path)
    output, summary = converted(content, tmp_path, on_error="skip")
    assert (output / "ImageSets/Main/train.txt").read_text() == "sub/c\n"
    assert kinds(summary) == {"entry-invalid": 4, "boxes-without-image": 2}


def test_boxes_of_a_skipped_image_are_counted(tmp_path: Path) -> None:
    _, summary = converted(change("images", file_name=7), tmp_path, on_error="skip")
    assert kinds(summary) == {"entry-invalid": 1, "boxes-without-image": 2}
    assert summary.findings[1].before == 2


def test_annotation_ids_are_not_needed(tmp_path: Path) -> None:
    _, summary = converted(change("annotations", id=3), tmp_path)
    assert (summary.boxes, kinds(summary)) == (5, {})


def test_keys_that_voc_does_not_have_are_counted(tmp_path: Path) -> None:
    content = document()
    content["annotations"][0] |= {"segmentation": [[1, 2, 3, 4, 5, 6]], "score": 0.5, "area": 3, "pose": "Left"}
    content["annotations"][1] |= {"segmentation": [[1, 2, 3, 4, 5, 6]]}
    _, summary = converted(content, tmp_path)
    assert {finding.kind for finding in summary.findings} == {"key-dropped"}
    assert [finding.before for finding in summary.findings] == [
        ["annotations.area", 1],
        ["annotations.score", 1],
        ["annotations.segmentation", 2],
        ["categories.supercategory", 1],
        ["images.license", 3],
    ]
    assert "annotations.area, in 1 of its rows, is not its box's and becomes it" in str(summary.findings[0])


@pytest.mark.parametrize(
    ("area", "lost"), [(600, 0), (600.4, 0), (0, 0), (None, 0), (590, 1), (1e999, 1), (10**400, 1)]
)
def test_an_area_that_is_not_the_boxs_is_reported(tmp_path: Path, area: object, lost: int) -> None:
    content = change("annotations", bbox=[10, 10, 20, 30], area=area)
    content["images"] = [{key: value for key, value in row.items() if key != "license"} for row in content["images"]]
    content["categories"] = [{key: row[key] for key in ("id", "name")} for row in content["categories"]]
    assert converted(content, tmp_path)[1].kind_counts.get("key-dropped", 0) == lost


def test_crowds_flags_poses_and_names_are_adapted(tmp_path: Path) -> None:
    content = document()
    content["categories"][1]["name"] = " big  dog"
    content["annotations"][0] |= {"iscrowd": 1, "truncated": "much", "pose": "\x01"}
    output, summary = converted(content, tmp_path)
    assert kinds(summary) == {"crowd-difficult": 1, "flag-invalid": 1, "name-spaces": 3}
    first = read_voc_xml(str(output / "Annotations/a.xml")).objects[0]
    assert (first.class_name, *first.columns.values()) == ("big dog", "1", "0", "0", "Unspecified")
    assert (output / "classes.txt").read_text() == "cat\nbig dog\n"


def test_a_box_just_past_the_edge_is_cut(tmp_path: Path) -> None:
    output, summary = converted(change("annotations", bbox=[90, 10, 10.5, 10]), tmp_path)
    assert corners_of(output / "Annotations/a.xml")[0] == ["91", "11", "100", "20"]
    assert summary.kind_counts["box-clipped"] == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.1 + 0.2, "1.3"), (10.0, "11"), (10.00000000001, "11"), (0.00001, "1.00001"), (1 / 3, "1.333333333")],
)
def test_numbers_are_plain_decimals(tmp_path: Path, value: float, text: str) -> None:
    output, _ = converted(change("annotations", bbox=[value, 10, 20, 10]), tmp_path)
    assert corners_of(output / "Annotations/a.xml")[0][0] == text


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split": "a/b"}, "split must be a name without slashes, got 'a/b'"),
        ({"split": ""}, "split must be a name without slashes, got ''"),
        ({"origin": "two"}, "origin must be one of one, zero, got 'two'"),
        ({"on_error": "go"}, "on_error must be one of stop, skip, got 'go'"),
        ({"with_images": "copy"}, "with_images copy needs images"),
        ({"with_images": "move"}, "with_images must be one of none, copy, link, got 'move'"),
        ({"images": "nowhere"}, "images nowhere is not a folder"),
        ({"report": "nowhere/r.json"}, "report folder nowhere does not exist"),
    ],
)
def test_arguments(tmp_path: Path, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        converted(document(), tmp_path, **options)
    assert not (tmp_path / "VOC").exists()


def test_folders_and_files_that_cannot_be_used(tmp_path: Path) -> None:
    source = write(tmp_path / "train.json", document())
    for output, message in (
        (source, "is a file in the place of the folder"),
        (tmp_path / "no/VOC", "does not exist; make it first"),
    ):
        with pytest.raises(InputError, match=message):
            coco_to_voc(source, output)
    with pytest.raises(ConversionError, match="report must be another file than"):
        coco_to_voc(source, tmp_path / "VOC", report=source)
    with pytest.raises(ConversionError, match="no such file"):
        coco_to_voc(tmp_path / "no.json", tmp_path / "VOC")
    (tmp_path / "images").mkdir()
    (tmp_path / "images/a.jpg").write_bytes(with_segment(image_bytes(), b"a", 0xFE))
    with pytest.raises(ConversionError, match=r"sub/c\.png: is not in .*images \[image-missing\]"):
        coco_to_voc(source, tmp_path / "VOC", images=tmp_path / "images")
    (tmp_path / "images/a.jpg").unlink()
    with pytest.raises(ConversionError, match="no image is left to write"):
        coco_to_voc(source, tmp_path / "VOC", images=tmp_path / "images", on_error="skip")
    for name in ("a\nb", "a\u2028b", "a\x85b", " dog"):
        with pytest.raises(ConversionError, match="class names must differ, also without spaces, and have no control"):
            converted(change("categories", name=name), tmp_path)
    with pytest.raises(ConversionError, match="id 1 is taken by categories"):
        converted(change("categories", 1, id=1), tmp_path)


def test_an_interrupted_run_leaves_no_file(tmp_path: Path) -> None:
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        converted(document(), tmp_path, progress=interrupt)
    assert not (tmp_path / "VOC").exists()
    assert not list(tmp_path.rglob("*partial"))


def test_progress_is_reported_every_64_files(tmp_path: Path) -> None:
    content = document()
    content["images"] = [dict(content["images"][0], id=n, file_name=f"{n}.jpg") for n in range(1, 129)]
    calls: list[tuple[int, int]] = []
    converted(content, tmp_path, progress=lambda done, total: calls.append((done, total)))
    assert calls == [(64, 130), (128, 130), (130, 130)]


def test_the_command(tmp_path: Path) -> None:
    source, folder = write(tmp_path / "train.json", document()), write_images(tmp_path / "images")
    options = ["--images", folder, "--with-images", "link", "--split", "val", "--origin", "zero"]
    code, out, err = detaug("convert-coco-to-voc", source, tmp_path / "VOC", *options)
    assert (code, err) == (0, "")
    assert "3 images (1 without boxes), 5 boxes in 2 classes" in out
    assert corners_of(tmp_path / "VOC/Annotations/a.xml")[0][0] == "10"
    error = usage_error("convert-coco-to-voc", source, tmp_path / "VOC", "--split", "val")
    assert error.startswith("detaug: 2 files exist with other content and would be replaced: ")
