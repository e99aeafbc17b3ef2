"""`detaug convert`: what a file or folder is, images that are hard to find, options, and the list of formats."""

from __future__ import annotations

import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from benchmark_scripts import load_script
from coco_files import document, write
from command import detaug, usage_error
from format_files import converted, data_set, kinds, refused
from full_disk import disk_for_files_of
from seeds import slow
from shard_files import detection, write_tfrecord
from test_labelme import SHAPES, labelme, shape
from voc_files import box_xml, image_bytes, rotated_jpeg, voc_xml, write_files

import detaug as da
from detaug.cli.main import cli
from detaug.coco import boxes, writer
from detaug.converters import ConversionError, InputError, convert_to_coco
from detaug.converters.records import json_list, reading
from detaug.converters.records.record import Mask, Object, Record
from detaug.files import known_files, spool
from detaug.files.formats import FORMATS, FORMS

BOX = shape("rectangle", [[10, 10], [40, 30]])
VOC = voc_xml(box_xml(11, 11, 40, 30))
YOLO = {"data.yaml": "train: images\nnames: [cat]\n", "labels/a.txt": "0 0.25 0.25 0.3 0.25\n"}
DOTA = {"labels/a.txt": "10 10 40 10 40 30 10 30 cat 0\n"}
MOT = {"seq/gt/gt.txt": "1,1,11,11,30,20,1,1,1\n"}


def test_every_form_that_is_read_is_a_format() -> None:
    names = [each.name for each in FORMATS]
    assert names == sorted({*names})
    assert len({form.name for form in FORMS}) == len(FORMS)
    of_folders = {each.name for each in FORMATS if each.folders}
    assert {form.format for form in FORMS if form.format} | of_folders == set(names)
    listed = detaug("formats").out.splitlines()
    assert [line.split()[0] for line in listed] == names


def test_commands_of_the_formats() -> None:
    commands = [command.split()[0] for each in FORMATS for command in (each.command, each.writer) if command]
    assert {*commands} - {"check"} == {name for name in cli.commands if name.startswith("convert-")} | {"pack"}


@pytest.mark.parametrize("name", [*load_script("convert_speed").WRITERS])
def test_the_script_that_measures_writes_every_format(tmp_path: Path, name: str) -> None:
    script = load_script("convert_speed")
    script.write_set(tmp_path / "set", name, 3)
    summary = convert_to_coco(tmp_path / "set", tmp_path / "out.json", format=name.split("/")[0])
    assert (summary.images, summary.boxes) == (3, 3 * script.OBJECTS)


@pytest.mark.parametrize(
    "name", ["yolo", *slow("voc", "via", "via/3", "via/csv", "csv/scattered", "createml", "cvat/video")]
)
def test_objects_are_not_kept_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    buffers = ((spool, "_IN_MEMORY"), (json_list, "_CHARACTERS"), (known_files, "_LARGEST_JSON"))
    for module, constant in buffers:  # all as for a dataset of a hundred thousand images
        monkeypatch.setattr(module, constant, 1 << 12)
    monkeypatch.setattr(spool, "_MOST_WAITING", 50)
    monkeypatch.setattr(writer, "_ROWS_OF_LINE", 50)
    monkeypatch.setattr(boxes, "_BOXES_AT_ONCE", 50)
    monkeypatch.setattr(reading, "_RECORDS_AT_ONCE", 5)
    script, peaks = load_script("convert_speed"), []
    for count in (5, 60, 260):  # the first one imports
        script.write_set(tmp_path / str(count), name, count)
        tracemalloc.start()
        convert_to_coco(tmp_path / str(count), tmp_path / f"{count}.json", format=name.split("/")[0])
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    # Bytes per image: its ten objects take 2,700 to 10,700; VOC has a finding for each, as the files are equal.
    assert (peaks[2] - peaks[1]) / 200 < 1500


def test_records_with_large_masks_are_read_few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_PIXELS_AT_ONCE", 100)
    large = [Record("a", objects=[Object("cat", masks=[Mask(np.ones((8, 8), bool))])]) for _ in range(5)]
    assert [len(chunk) for chunk in reading.chunks_of(large)] == [2, 2, 1]
    assert [len(chunk) for chunk in reading.chunks_of([Record("a")] * 40)] == [16, 16, 8]


@pytest.mark.parametrize("name", ["csv/scattered", "via/csv", "via/3", "cvat/video"])
def test_objects_that_wait_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Rows of an image that are far apart: the same JSON with a file and without one, and every box at its image."""
    script, written = load_script("convert_speed"), []
    script.write_set(tmp_path / "set", name, 40)
    for most in (spool._MOST_WAITING, 7):
        monkeypatch.setattr(spool, "_MOST_WAITING", most)
        convert_to_coco(tmp_path / "set", tmp_path / "out.json", format=name.split("/")[0])
        written.append((tmp_path / "out.json").read_bytes())
    assert written[0] == written[1]
    content = json.loads(written[1])
    found: dict[str, list[list[float]]] = {row["file_name"]: [] for row in content["images"]}
    names = {row["id"]: row["file_name"] for row in content["images"]}
    for row in content["annotations"]:
        found[names[row["image_id"]]].append(row["bbox"])
    expected = {f"{at:06}.jpg": sorted([*box[1:]] for box in script.boxes_of(at)) for at in range(40)}
    assert {name: sorted(boxes) for name, boxes in found.items()} == expected


def test_a_full_disk_is_not_the_fault_of_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    load_script("convert_speed").write_set(tmp_path / "set", "csv/scattered", 40)
    monkeypatch.setattr(spool, "_MOST_WAITING", 7)
    monkeypatch.setattr(spool, "_IN_MEMORY", 64)
    with disk_for_files_of(4096):
        error = usage_error("convert", tmp_path / "set", "-o", tmp_path / "out.json", "--on-error", "skip")
    assert error == f"detaug: {tmp_path}: File too large\n"
    assert not (tmp_path / "out.json").exists()


@pytest.mark.parametrize(
    ("files", "image", "says"),
    [
        ({"a.json": labelme(BOX)}, "a.jpg", "LabelMe: 1 file in "),
        ({"Annotations/a.xml": VOC}, "JPEGImages/a.jpg", "Pascal VOC: 1 file in "),
        (YOLO, "images/a.jpg", "YOLO: 2 files in "),
        (DOTA, "images/a.jpg", "DOTA: 1 file in "),
        (MOT, "seq/img1/000001.jpg", "MOTChallenge: 1 file in "),
    ],
)
def test_a_folder_is_recognised(tmp_path: Path, files: dict[str, str], image: str, says: str) -> None:
    root = data_set(tmp_path / "set", files | {"README.txt": "made by hand\n", "notes/more.xml": "<a/>"}, image)
    result = detaug("convert", root, "-o", tmp_path / "out.json")
    assert (result.code, result.err) == (0, "")
    assert result.out.startswith(f"{says}{root}\n1 image (0 without boxes), 1 box in 1 class\n")
    (row,) = json.loads((tmp_path / "out.json").read_text())["annotations"]
    assert row["bbox"] == [10, 10, 30, 20]
    assert detaug("convert", root, "-o", tmp_path / "out.json", "-q").out == ""


def test_a_file_is_recognised(tmp_path: Path) -> None:
    root = data_set(tmp_path / "set", YOLO | MOT, "images/a.jpg", "seq/img1/000001.jpg")
    for file, says in (("data.yaml", "YOLO"), ("seq/gt/gt.txt", "MOTChallenge")):
        result = detaug("convert", root / file, "-o", tmp_path / "out.json")
        assert result.out.startswith(f"{says}: {root / file}\n1 image")


def test_several_formats_in_one_folder(tmp_path: Path) -> None:
    root = data_set(tmp_path / "set", {"a.json": labelme(BOX), "a.xml": VOC}, "a.jpg")
    error = usage_error("convert", root, "-o", tmp_path / "out.json")
    choices = "choose one, --from labelme or --from voc, or give the file or folder of one"
    assert error == f"detaug: {root} has LabelMe (a.json) and Pascal VOC (a.xml); {choices}\n"
    for name in ("voc", "labelme"):
        document, _ = converted(root, format=name)
        assert document["annotations"][0]["bbox"] == [10, 10, 30, 20]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({"a.txt": "hello"}, "has no annotations in a format that is known; detaug formats lists them"),
        ({"a.zip": b"PK\x03\x04"}, "has a.zip, which is a zip archive; unpack it first: unzip"),
        ({"coco.json": json.dumps(document())}, "coco.json is a COCO JSON file; it needs no conversion: detaug check "),
    ],
)
def test_what_is_not_converted(tmp_path: Path, files: dict[str, str | bytes], message: str) -> None:
    assert message in refused(write_files(tmp_path / "set", files))


def test_a_file_in_no_format_is_named(tmp_path: Path) -> None:
    files = {"json/a.json": labelme(BOX), "json/settings.json": "{}", "more/settings.json": "{}"}
    root = data_set(tmp_path / "set", files, "a.jpg")
    assert refused(root).startswith("json/settings.json: is not LabelMe's JSON")
    assert kinds(converted(root, on_error="skip")[1]) == {"label-unreadable": 1, "file-unused": 1}


def test_arguments(tmp_path: Path) -> None:
    root = data_set(tmp_path / "set", {"a.json": labelme(BOX), "x.csv": "hello"}, "a.jpg")
    assert "x.csv is in no format that is known" in refused(root / "x.csv")
    assert "does not exist; give a file or a folder" in refused(root / "no")
    assert "has no file that may be MOTChallenge; leave format out" in refused(root, format="mot")
    assert "images no is not a folder" in refused(root, images="no")
    for options, message in (
        ({"format": "word"}, "format must be one of cityscapes, coco, coco-panoptic, createml,"),
        ({"split": "train"}, "LabelMe is converted without split; leave it out"),
        ({"classes": "cat"}, "classes must be a list of names"),
        ({"on_error": "no"}, "on_error must be one of"),
    ):
        with pytest.raises(InputError, match=message):
            convert_to_coco(root, tmp_path / "out.json", **options)  # type: ignore[arg-type]
    write_tfrecord(tmp_path / "a.tfrecord", [{**detection("a.jpg", [(1, 1, 9, 9)], [0])}])
    with pytest.raises(InputError, match=r"TFRecord is converted without split; .* detaug convert-tfrecord has the op"):
        convert_to_coco(tmp_path / "a.tfrecord", tmp_path / "out.json", split="train")
    with pytest.raises(InputError, match="TFRecord is converted without part; give some of the shards"):
        convert_to_coco(tmp_path / "a.tfrecord", tmp_path / "out.json", part=(1, 2))


@pytest.mark.parametrize(
    ("files", "given"),
    [
        ({"Annotations/a.xml": voc_xml(box_xml(0, 11, 40, 30)), "JPEGImages/a.jpg": ""}, ["--origin"]),
        (MOT | {"seq/gt/gt.txt": "1,1,0,0,30,20,1,1,1\n", "seq/img1/000001.jpg": ""}, ["--origin"]),
        ({"a.tfrecord": [{**detection("a.jpg", [(1, 1, 9, 9)], [0])}]}, ["--first-label"]),
        ({"a.tfrecord": [{"image/encoded": [image_bytes()]}]}, ["--feature"]),
        ({"a.tfrecord": [{"y": [1]}]}, ["--feature"]),
        (DOTA | {"other/images/b.jpg": ""}, ["--images"]),
    ],
)
def test_advice_names_the_command_that_has_the_option(tmp_path: Path, files: dict[str, Any], given: list[str]) -> None:
    for name, content in files.items():
        if name.endswith(".tfrecord"):
            write_tfrecord(tmp_path / name, content)
        else:
            write_files(tmp_path, {name: content or image_bytes()})
    command = "convert-dota" if "labels/a.txt" in files else "convert"
    folders = [tmp_path / "labels", tmp_path / "other"] if command == "convert-dota" else [tmp_path]
    result = detaug(command, *folders, "-o", tmp_path / "out.json")
    advice = re.findall(r"(?:(convert-\w+) (?:take )?)?(--[a-z-]+)(?: of (convert))?", result.out + result.err)
    wrong = [option for one, option, other in advice if option not in detaug(one or other or command, "--help").out]
    assert not wrong, result
    assert {option for _, option, _ in advice} >= {*given}


def test_no_input_is_overwritten(tmp_path: Path) -> None:
    root = data_set(tmp_path / "set", {"a.json": labelme(BOX), "sub/b.json": labelme(BOX)}, "a.jpg", "sub/b.jpg")
    before = {path: path.read_bytes() for path in root.rglob("*.json")}
    for path in (root, root / "a.json"):
        for file in before:
            for options in (["-o", file], ["-o", tmp_path / "out.json", "--report", file]):
                error = usage_error("convert", path, *options)
                assert str(file) in error
    assert {path: path.read_bytes() for path in root.rglob("*.json")} == before
    assert [path.name for path in tmp_path.iterdir()] == ["set"]


def test_no_image_is_taken_for_another(tmp_path: Path) -> None:
    files = {f"json/{name}.json": labelme(BOX, image=f"{name}.jpg") for name in ("a", "b", "c")}
    root = data_set(tmp_path / "set", files, "one/a.jpg", "two/a.jpg", "one/b.jpg")
    (root / "one/c.png").write_bytes(image_bytes(kind="PNG"))
    (root / "one/c.jpg").write_bytes(image_bytes(kind="JPEG"))
    message = refused(root)
    assert "json/a.json: several images have the name 'json/a': one/a.jpg, two/a.jpg; give" in message
    document, summary = converted(root, on_error="skip")
    named = {row["id"]: row["file_name"] for row in document["images"]}
    assert {named[row["image_id"]] for row in document["annotations"]} == {"one/b.jpg", "one/c.jpg"}
    assert kinds(summary) == {"image-unclear": 1, "label-missing": 3, "image-ambiguous": 1}
    assert "has the image of none of the 3 entries of LabelMe" in refused(root, images=root / "json")


def test_an_image_beside_the_one_of_its_stem_is_not_without_objects(tmp_path: Path) -> None:
    """The label file may be of either: the other one would be trained on as an image of nothing."""
    root = data_set(tmp_path / "set", {"a.json": labelme(BOX, image="a.png")}, "b.jpg")
    for name, kind in (("a.jpg", "JPEG"), ("a.png", "PNG")):
        (root / name).write_bytes(image_bytes(kind=kind))
    document, summary = converted(root)
    assert [row["file_name"] for row in document["images"]] == ["a.png", "b.jpg"]
    assert kinds(summary) == {"image-ambiguous": 1, "label-missing": 1}
    assert [found.after for found in summary.findings if found.kind == "image-ambiguous"] == ["a.png"]
    names = set()
    for number in (1, 2, 3):
        convert_to_coco(root, tmp_path / "part.json", part=(number, 3))
        names |= {row["file_name"] for row in json.loads((tmp_path / "part.json").read_text())["images"]}
    assert names == {"a.png", "b.jpg"}


def test_an_image_of_nearly_the_name_of_a_label_file_is_named(tmp_path: Path) -> None:
    files = {"IMG-1.json": labelme(BOX, image="IMG-1.jpg"), "b.json": labelme(BOX, image="b.jpg")}
    root = data_set(tmp_path / "set", files, "IMG_001.jpg", "b.jpg")
    assert "; IMG_001.jpg has nearly its name and no annotations: rename one of them" in refused(root)


def test_images_of_another_split_are_not_taken(tmp_path: Path) -> None:
    """Each split of KITTI counts from 000000, and one of them may have been fetched in part."""
    kitti = "Car 0.00 0 -1.58 10.00 10.50 40.00 30.00 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59\n"
    files = {f"training/label_2/00000{n}.txt": kitti for n in (0, 1)}
    images = ["training/image_2/000000.png", "testing/image_2/000000.png", "testing/image_2/000001.png"]
    root = data_set(tmp_path / "kitti", files, *images)
    assert "may be testing/image_2/000001.png, which is an image of another split" in refused(root)
    document, summary = converted(root, on_error="skip")
    named = {row["id"]: row["file_name"] for row in document["images"]}
    assert [named[row["image_id"]] for row in document["annotations"]] == ["training/image_2/000000.png"]
    assert kinds(summary)["image-missing"] == 1
    table = "filename,class,xmin,ymin,xmax,ymax\n/home/me/test/cats/1.jpg,cat,1,1,9,9\n"  # of another machine
    assert converted(data_set(tmp_path / "csv", {"boxes.csv": table}, "train/1.jpg"))[1].boxes == 1
    row = '{"file_name": "2.jpg", "objects": {"bbox": [[1, 1, 9, 9]], "categories": [0]}}\n'
    root = data_set(tmp_path / "hf", {"train/metadata.jsonl": row}, "test/2.jpg")
    assert "has the image of none" in refused(root)


def test_files_that_stand_for_others_are_errors(tmp_path: Path) -> None:
    """Else their images would have no objects. Files of another format are left out, and counted."""
    kitti = "Car 0.00 0 -1.58 10.00 10.50 40.00 30.00 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59\n"
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:1\nsize 9\n"
    images = ("images/a.jpg", "images/b.jpg")
    root = data_set(tmp_path / "lfs", {"labels/a.txt": kitti, "labels/b.txt": pointer}, *images)
    assert "labels/b.txt: is a pointer of Git LFS" in refused(root)
    page = data_set(
        tmp_path / "page", {"a.json": labelme(BOX), "b.json": "<!DOCTYPE html>\n<html></html>"}, "a.jpg", "b.jpg"
    )
    assert "b.json: " in refused(page)
    other = data_set(tmp_path / "other", {"labels/a.txt": kitti, "labels/b.txt": "0 0.5 0.5 0.1 0.1\n"}, *images)
    document, summary = converted(other, format="kitti")
    assert (len(document["annotations"]), kinds(summary)["file-unused"]) == (1, 1)


def test_an_xml_of_voc_is_no_data_set(tmp_path: Path) -> None:
    root = data_set(tmp_path / "set", {"a.xml": "<annotation></annotation>"}, "a.jpg")
    with pytest.raises(ConversionError, match=r"a\.xml is the Pascal VOC XML of one image; give its folder, .*set"):
        convert_to_coco(root / "a.xml", tmp_path / "out.json")
    assert convert_to_coco(root, tmp_path / "out.json").images == 1


def test_a_name_with_its_extension_counts_first(tmp_path: Path) -> None:
    table = "filename,class,xmin,ymin,xmax,ymax\na.png,cat,10,10,40,30\nb.bmp,cat,10,10,40,30\n"
    root = data_set(tmp_path / "set", {"t.csv": table}, "one/a.jpg", "one/b.jpg")
    write_files(root, {"two/a.png": image_bytes(kind="PNG")})
    document, _ = converted(root)
    assert [row["file_name"] for row in document["images"]] == ["one/b.jpg", "two/a.png"]


def test_a_large_json_is_recognised_by_its_beginning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_files, "_LARGEST_JSON", 1 << 17)
    many = {"licenses": [], "images": document()["images"] * 2000, "annotations": [], "categories": []}
    coco = write(tmp_path / "coco.json", many)
    assert "coco.json is a COCO JSON file; it needs no conversion" in refused(coco)
    via = {f"{n}": {"filename": f"{n}.jpg", "size": 1, "regions": [], "file_attributes": {}} for n in range(4000)}
    path = write(tmp_path / "via.json", via)
    assert path.stat().st_size > 1 << 17
    assert "has the image of none of the 4,000 entries of VGG Image Annotator" in refused(path)
    load_script("convert_speed").WRITERS["via/3"](tmp_path, ((f"{n}", []) for n in range(4000)))
    assert path.stat().st_size > 1 << 17
    assert "has the image of none of the 4,000 entries of VGG Image Annotator" in refused(path)
    (tmp_path / "cut.json").write_bytes(coco.read_bytes()[: 1 << 18])
    assert "not readable as JSON" in usage_error("check", tmp_path / "cut.json", tmp_path)


def test_two_files_of_one_image(tmp_path: Path) -> None:
    files = {"a.json": labelme(BOX), "old/a.json": labelme(BOX)}
    root = data_set(tmp_path / "set", files, "a.jpg")
    assert "old/a.json: its image a.jpg belongs to an earlier entry, or to one with a better name" in refused(root)
    assert len(converted(root, on_error="skip")[0]["annotations"]) == 1


def test_the_image_file_decides_the_size(tmp_path: Path) -> None:
    files = {name: labelme(BOX, image="x.jpg", imageWidth=80, imageHeight=100) for name in ("a.json", "b.json")}
    root = data_set(tmp_path / "set", files | {"a.jpg": rotated_jpeg(6)}, "b.jpg")
    document, summary = converted(root)
    assert [(row["width"], row["height"]) for row in document["images"]] == [(80, 100), (100, 80)]
    assert kinds(summary) == {"size-conflict": 1, "filename-differs": 2}


def test_classes_and_columns(tmp_path: Path) -> None:
    more = shape("rectangle", [[1, 1], [9, 9]], " big  dog ", attributes={"area": "north", "color": "red"})
    root = data_set(tmp_path / "set", {"a.json": labelme(BOX, BOX, more)}, "a.jpg")
    document, summary = converted(root, classes=["big dog", "bird"], report=tmp_path / "report.json")
    (row,) = document["annotations"]
    assert (row["category_id"], row["area"], row["attribute_area"], row["color"]) == (1, 64, "north", "red")
    assert summary.class_counts == {"big dog": 1, "bird": 0}
    repairs = {"class-not-listed": 2, "name-spaces": 1, "box-repeated": 1, "class-unused": 1}
    assert kinds(summary) == repairs == json.loads((tmp_path / "report.json").read_text())["counts"]


def test_columns_that_json_does_not_have(tmp_path: Path) -> None:
    nested = "[" * 400 + "]" * 400
    text = labelme(BOX).replace('"description": ""', f'"attributes": {{"score": NaN, "deep": {nested}}}')
    document, _ = converted(data_set(tmp_path / "set", {"a.json": text}, "a.jpg"))
    (row,) = document["annotations"]
    assert row["score"] is None
    assert json.dumps(row["deep"]).startswith("[[[[")


def test_a_coco_json_elsewhere_does_not_stop_a_file(tmp_path: Path) -> None:
    root = data_set(tmp_path / "set", {"a.json": labelme(BOX)}, "a.jpg")
    write(root / "coco.json", document())
    assert "LabelMe" in refused(root)
    assert len(converted(root / "a.json")[0]["annotations"]) == 1


@pytest.mark.slow
def test_the_line_that_a_conversion_prints_loads_a_batch(tmp_path: Path) -> None:
    files = {"a.json": labelme(*SHAPES), "b.json": labelme(*SHAPES, image="b.jpg")}
    root = data_set(tmp_path / "set", files, "a.jpg", "b.jpg")
    summary = convert_to_coco(root, tmp_path / "out.json")
    reader = eval(summary.next_step.removeprefix("load it: "), {"da": da})
    (batch,) = da.Loader(reader, [da.Resize((80, 100))], 2, device="cpu")
    assert batch.boxes.shape[:2] == (2, 9)
    assert batch.masks().shape == (18, 80, 100)
    assert batch.keypoints[0, 8, 0].tolist() == pytest.approx([70, 20.5, 2])
    assert batch.corners[0, 5, 0].tolist() == pytest.approx([20, 10])


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        (f'<!DOCTYPE a [<!ENTITY b "c">]>{VOC}', "a.xml: has a DOCTYPE, which VOC files do not need and attacks use"),
        (VOC.replace("<annotation>", '<annotation xmlns="urn:x">'), "is <{urn:x}annotation>, not <annotation>; remove"),
        (VOC.replace("annotation>", "Annotation>"), "a.xml:1: the root element is <Annotation>, not <annotation>"),
    ],
)
def test_an_xml_that_is_nearly_voc_is_not_advised_to_be_converted(tmp_path: Path, xml: str, message: str) -> None:
    error = refused(data_set(tmp_path / "set", {"a.xml": xml}, "a.jpg"))
    assert message in error
    assert "convert-voc" not in error
