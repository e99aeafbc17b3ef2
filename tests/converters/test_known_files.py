"""Files of other kinds are named as what they are, by every command, with a way that does not lead back."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from coco_files import document, write
from command import detaug, usage_error
from format_files import modules_of_other_formats
from shard_files import detection, example, record, write_tfrecord
from voc_files import box_xml, image_bytes, voc_xml, write_files

import detaug as da
from detaug.converters import read_class_names, voc_to_coco
from detaug.files.formats import FORMS
from detaug.files.known_files import what_is

LFS = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a214614ab2935c943f9e0ff69\nsize 9\n"
CVAT = (
    '<?xml version="1.0"?>\n<annotations><version>1.1</version><image id="0" name="a.jpg"><box/></image></annotations>'
)
LABELME = {"version": "5", "shapes": [{"points": [[1, 1], [9, 9]]}], "imagePath": "a.jpg", "imageData": "x" * 99_999}
LABEL_STUDIO = [{"id": 1, "data": {"image": "a.jpg"}, "annotations": [{"result": []}]}]
REGIONS = {"filename": "a.jpg", "size": 9, "regions": [], "file_attributes": {}}
DOTA = "imagesource:x\ngsd:0.1\n10.0 10.0 40.0 10.0 40.0 30.0 10.0 30.0 car 0\n"
VISDRONE = "10,10,30,20,1,4,0,0\n1,1,3,2,1,4,0,0,\n"
KITTI = "Car 0.00 0 -1.58 10.00 10.00 40.00 30.00 1.65 1.67 3.64 -0.65 1.71 46.70 -1.59\n"

# the form's name, a file name, and its content
FILES: list[tuple[str, str, str | bytes]] = [
    ("a pointer of Git LFS, not the file itself", "a.json", LFS),
    ("a zip archive", "a.json", b"PK\x03\x04" + b"\0" * 99),
    ("a 7z archive", "a.json", b"7z\xbc\xaf\x27\x1c\0"),
    ("a RAR archive", "a.json", b"Rar!\x1a\x07\0"),
    ("a web page", "a.json", "<!DOCTYPE html>\n<html><head></head></html>"),
    ("CVAT's own XML", "annotations.xml", CVAT),
    ("CVAT's own XML", "bom.xml", b"\xef\xbb\xbf" + CVAT.replace("image", "track").encode()),
    ("dlib's XML", "a.xml", "<?xml version='1.0'?><!-- x --><dataset><name/><images/></dataset>"),
    ("a Pascal VOC XML", "a.xml", voc_xml(box_xml(1, 2, 30, 40))),
    (
        "the XML of the LabelMe web tool",
        "a.xml",
        "<annotation><filename>a.jpg</filename><object><name>a</name><polygon><pt><x>1</x><y>1</y></pt></polygon>"
        "</object></annotation>",
    ),
    (
        "a JSON file of Segment Anything (SA-1B)",
        "sa_1.json",
        json.dumps({"image": {"file_name": "sa_1.jpg"}, "annotations": [{"id": 1, "segmentation": {}}]}),
    ),
    ("a metadata.csv of Hugging Face", "metadata.csv", 'file_name,objects\na.jpg,"{}"\n'),
    ("a Parquet file", "a.json", b"PAR1\x15\x04"),
    ("a table of boxes (CSV)", "a.csv", "image_name,label_name,x1,y1,w,h\na.jpg,cat,1,2,3,4\n"),
    (
        "a COCO panoptic JSON file",
        "panoptic.json",
        json.dumps({"images": [], "categories": [], "annotations": [{"file_name": "a.png", "segments_info": []}]}),
    ),
    ("a LabelMe JSON file", "a.json", json.dumps(LABELME)),
    ("a VIA project", "a.json", json.dumps({"_via_settings": {}, "_via_img_metadata": {"a.jpg9": REGIONS}})),
    ("a VIA project", "a.json", json.dumps({"a.jpg9": REGIONS})),
    ("an export of Label Studio in its own JSON file", "a.json", json.dumps(LABEL_STUDIO)),
    (
        "a list of tasks for Label Studio, which has no annotations",
        "a.json",
        json.dumps([{"id": 1, "data": {"image": "a.jpg"}, "predictions": [{"result": []}]}]),
    ),
    (
        "a CreateML JSON",
        "a.json",
        json.dumps([{"image": "a.jpg", "annotations": [{"label": "cat", "coordinates": {"x": 1}}]}]),
    ),
    (
        "a list of detections (COCO results), which has no images",
        "a.json",
        json.dumps([{"image_id": 1, "category_id": 1, "bbox": [1, 2, 3, 4], "score": 0.5}]),
    ),
    ("a VoTT JSON", "a.json", json.dumps({"assets": {"x": {"asset": {"name": "a.jpg"}, "regions": []}}, "tags": []})),
    ("a VoTT JSON", "a.json", json.dumps({"asset": {"name": "a.jpg"}, "regions": [], "version": "2.1.0"})),
    ("a Supervisely JSON file", "a.json", json.dumps({"size": {}, "objects": [{"classTitle": "cat"}], "tags": []})),
    ("an annotation list of CrowdHuman (odgt)", "a.odgt", '{"ID":"a","gtboxes":[]}\n{"ID":"b","gtboxes":[]}\n'),
    ("the meta.json of a Supervisely project", "meta.json", '{"classes": [{"title": "cat"}], "tags": []}'),
    ("a metadata.jsonl of Hugging Face", "metadata.jsonl", '{"file_name": "a.jpg", "objects": {"bbox": []}}\n'),
    ("a list of faces of WIDER FACE", "wider_face_val_bbx_gt.txt", "0--Parade/a.jpg\n1\n1 2 3 4 0 0 0 0 0 0\n"),
    ("BDD100K's JSON file", "a.json", json.dumps([{"name": "a.jpg", "labels": [{"category": "car"}]}])),
    ("a JSON file of FiftyOne", "samples.json", json.dumps({"samples": [{"_id": {}, "filepath": "data/a.jpg"}]})),
    ("a JSON file of FiftyOne", "labels.json", json.dumps({"classes": ["cat"], "labels": {"a": [{"label": "cat"}]}})),
    ("a Datumaro JSON file", "a.json", json.dumps({"info": {}, "categories": {}, "items": []})),
    ("an output manifest of SageMaker Ground Truth", "a.jsonl", '{"source-ref":"s3://a.jpg"}\n{"source-ref":"b"}\n'),
    ("an export of Labelbox", "a.ndjson", '{"data_row":{"id":"x"}}\n{"data_row":{"id":"y"}}\n'),
    (
        "a table of Open Images",
        "a.csv",
        "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax\na,x,/m/0,1,0,1\n",
    ),
    ("a table of boxes (CSV)", "a.csv", "filename,width,height,class,xmin,ymin,xmax,ymax\na.jpg,9,9,cat,1,2,3,4\n"),
    ("a table of boxes (CSV)", "a.csv", "filename,region_shape_attributes,class,x,y,w,h\na.jpg,{},cat,1,2,3,4\n"),
    ("a table of keras-retinanet", "a.csv", "images/a.jpg,1,2,3,4,cat\nimages/b.jpg,,,,,\n"),
    ("a table of VIA", "a.csv", "filename,file_size,region_count,region_shape_attributes\n"),
    ("a TFRecord shard", "a.tfrecord-00000-of-00001", record(example(detection("a.jpg")))),
    ("a tar", "a.json", b"a.jpg".ljust(257, b"\0") + b"ustar\x0000" + b"\0" * 249),
    ("a data.yaml of YOLO", "data.yaml", "train: images\nnames: [cat]\n"),
    ("a .data file of Darknet", "obj.data", "classes = 1\ntrain = data/train.txt\nnames = data/obj.names\n"),
    ("a YOLO label file", "a.txt", "0 0.5 0.5 0.2 0.2\n1 0.1 0.1 0.9 0.1 0.9 0.9\n"),
    ("a KITTI label file", "a.txt", KITTI),
    ("a tracking label file of KITTI", "0000.txt", f"0 -1 {KITTI}1 3 {KITTI}"),
    ("a file of VisDrone's videos (VID, MOT)", "uav_1_v.txt", "1,0,10,10,30,20,1,4,0,0\n2,0,10,11,30,20,0,0,1,2,\n"),
    ("a file of masks of MOTS", "0002.txt", "0 1001 1 80 100 WSV:2d;1\n1 10000 10 80 100 kkk\n"),
    ("a list of boxes of keras-yolo3 and YOLOv4", "_annotations.txt", "a.jpg 1,2,30,40,0 5,6,7,8,1\nb.jpg\n"),
    ("a table of four corners (x1, y1, ..., x4, y4)", "a.csv", "file,x1,y1,x2,y2,x3,y3,x4,y4,class\na.jpg,1\n"),
    (
        "Open Images' table of masks, which are files of their own",
        "a.csv",
        "MaskPath,ImageID,LabelName\na.png,a,/m/0\n",
    ),
    (
        "an export of Label Studio as CSV, which does not have whole shapes",
        "a.csv",
        "image,id,annotator,annotation_id\n",
    ),
    ("HRSC2016's XML", "a.xml", "<HRSC_Image><HRSC_Objects/></HRSC_Image>"),
    (
        "a Supervisely JSON file of a video",
        "v.mp4.json",
        json.dumps({"size": {}, "frames": [], "framesCount": 9, "objects": []}),
    ),
    (
        "YouTube-VIS's JSON file, whose annotations are of videos",
        "a.json",
        json.dumps({"videos": [{"id": 1, "file_names": ["a.jpg"]}], "annotations": [], "categories": []}),
    ),
    ("BDD100K's JSON file", "a.json", json.dumps({"name": "a", "frames": [{"objects": []}], "attributes": {}})),
    ("BDD100K's JSON file", "a.json", json.dumps({"frames": [{"name": "a.jpg", "labels": []}], "config": {}})),
    ("Cityscapes' JSON of polygons", "a.json", json.dumps({"imgHeight": 80, "imgWidth": 100, "objects": []})),
    ("a JSON file of V7 Darwin", "a.json", json.dumps({"version": "2.0", "item": {}, "annotations": []})),
    ("a JSON file of V7 Darwin", "a.json", json.dumps({"image": {}, "annotations": [{"name": "cat", "polygon": {}}]})),
    ("a JSON file of SuperAnnotate", "a.json", json.dumps({"metadata": {}, "instances": []})),
    ("a JSON file of SuperAnnotate", "a.json", json.dumps([{"type": "bbox", "classId": 1, "points": {"x1": 1}}])),
    ("a list of tasks of Scale AI", "a.json", json.dumps([{"task_id": "x", "params": {}, "response": {}}])),
    ("an ODVG JSON of Grounding DINO", "a.jsonl", '{"filename": "a.jpg", "detection": {"instances": []}}\n'),
    ("an NDJSON of Ultralytics", "a.ndjson", '{"type": "dataset", "task": "detect", "class_names": {"0": "cat"}}\n'),
    ("an old export of Labelbox", "a.json", json.dumps([{"ID": "x", "External ID": "a.jpg", "Label": {}}])),
    ("a DOTA label file", "a.txt", DOTA),
    ("a VisDrone label file", "a.txt", VISDRONE),
    ("a MOTChallenge file of boxes", "a.txt", "1,1,10,10,30,20,1,1,1\n"),
]
OF_FORMATS = {form.format for form in FORMS if form.name in {"a COCO JSON file", *(case[0] for case in FILES)}}
FILES += [each[:3] for _, module in modules_of_other_formats(OF_FORMATS) for each in module.EXAMPLES]
REMEDIES = {form.name: form.remedy for form in FORMS}


def names_of(cases: list[tuple[str, str, str | bytes]]) -> list[object]:
    return [pytest.param(*case, id=f"{n}-{case[0][:24]}") for n, case in enumerate(cases)]


def test_every_form_is_tried() -> None:
    assert {form.name for form in FORMS} - {case[0] for case in FILES} == {"a COCO JSON file"}


@pytest.mark.parametrize(("form", "name", "content"), names_of(FILES))
def test_in_the_place_of_a_coco_json(tmp_path: Path, form: str, name: str, content: str | bytes) -> None:
    file = write_files(tmp_path / "data", {name: content}) / name
    images = write_files(tmp_path / "images", {"a.jpg": image_bytes()})
    error = usage_error("check", file, images)
    assert error == f"detaug: {file} is {form}; {REMEDIES[form]}\n"
    with pytest.raises(da.AnnotationError, match="is ") as raised:
        da.CocoReader(images, file)
    assert f"detaug: {raised.value}\n" == error


@pytest.mark.parametrize("text", ["<??>" * 16_000, "<!---->" * 9_000, "<!DOCTYPE>" * 6_000, "<?" * 30_000])
def test_files_that_are_slow_to_match(text: str) -> None:
    assert what_is("a.xml", text.encode()) == ""


LABELME_FILE = ("a LabelMe JSON file", "a.json", json.dumps(LABELME))


@pytest.mark.parametrize(
    "command",
    [
        ["check", "{file}", "{images}"],
        ["check", "{file}", "{images}", "--clean", "{out}.json"],
        ["preview", "{file}", "{images}", "-o", "{out}.png"],
        ["split", "{file}", "-o", "{out}1.json", "-o", "{out}2.json", "--ratios", "80,20"],
        ["merge", "{file}", "{coco}", "-o", "{out}.json"],
        ["convert-coco-to-voc", "{file}", "{out}"],
        ["convert-coco-to-yolo", "{file}", "{out}"],
        ["pack", "{file}", "{images}", "-o", "{out}"],
        ["convert-voc", "{folder}", "-o", "{out}.json"],
        ["convert-yolo", "{folder}", "-o", "{out}.json"],
        ["convert-yolo", "{file}", "-o", "{out}.json"],
        ["convert-mot", "{folder}", "-o", "{out}.json"],
        ["convert-tfrecord", "{file}", "-o", "{out}.json"],
        ["convert-webdataset", "{file}", "-o", "{out}.json"],
        ["check", "{folder}", "{images}"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
@pytest.mark.parametrize(("form", "name", "content"), [LABELME_FILE, FILES[5]], ids=["LabelMe", "CVAT"])
def test_every_command_names_what_it_got(
    tmp_path: Path, command: list[str], form: str, name: str, content: str
) -> None:
    folder = write_files(tmp_path / "data", {name: content, "a.jpg": image_bytes()})
    images = write_files(tmp_path / "images", {"a.jpg": image_bytes()})
    coco = write(tmp_path / "coco.json", document())
    places = {"file": folder / name, "folder": folder, "images": images, "coco": coco, "out": tmp_path / "out"}
    result = detaug(*(word.format(**places) for word in command))
    assert (result.code, result.out) == (2, "")
    assert f"is {form}; {REMEDIES[form]}" in result.err
    assert not [*tmp_path.glob("out*")]


@pytest.mark.parametrize(
    ("command", "name"),
    [("convert-tfrecord", "a.tfrecord"), ("convert-webdataset", "a.tar")],
)
def test_a_damaged_shard_is_not_sent_to_its_own_command(tmp_path: Path, command: str, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(b"a.jpg".ljust(257, b"x") + b"ustar\x0000" + b"x" * 900)
    assert command not in detaug(command, path, "-o", tmp_path / "a.json").err


def test_pointers_of_git_lfs(tmp_path: Path) -> None:
    """A clone without git-lfs has pointers for images, labels and lists alike."""
    what = "is a pointer of Git LFS, not the file itself; get the file: git lfs pull"
    folder = write_files(tmp_path / "voc", {"a.jpg": LFS, "a.xml": voc_xml(), "b.jpg": image_bytes(), "b.xml": LFS})
    error = detaug("convert-voc", folder, "-o", tmp_path / "a.json").err
    assert [line.partition(": ")[2].partition(" [")[0] for line in error.removeprefix("detaug: ").splitlines()[:2]] == [
        what,
        what,
    ]
    images = write_files(tmp_path / "images", {"a.jpg": LFS, "b.jpg": image_bytes(), "sub/c.png": image_bytes()})
    assert f"(id 1, a.jpg): {what}" in detaug("check", write(tmp_path / "coco.json", document()), images).out
    yolo = write_files(tmp_path / "yolo", {"data.yaml": LFS})
    assert what in usage_error("convert-yolo", yolo, "-o", tmp_path / "a.json")
    files = {"data.yaml": "train: images\nnames: [cat]", "images/a.jpg": image_bytes(), "labels/a.txt": LFS}
    yolo = write_files(tmp_path / "labels", files)
    assert f"labels/a.txt: {what} [label-unreadable]" in detaug("convert-yolo", yolo, "-o", tmp_path / "a.json").err
    shard = tmp_path / "a.tfrecord"
    shard.write_text(LFS)
    assert f"a.tfrecord: {what} [" in detaug("convert-tfrecord", shard, "-o", tmp_path / "a.json").err
    (tmp_path / "a.tar").write_text(LFS)
    assert f"a.tar: {what} [" in detaug("convert-webdataset", tmp_path / "a.tar", "-o", tmp_path / "a.json").err


@pytest.mark.parametrize(
    ("text", "form"),
    [(KITTI, "a KITTI label file"), (VISDRONE, "a VisDrone label file"), (DOTA, "a DOTA label file")],
)
def test_labels_of_other_formats_in_yolos_layout(tmp_path: Path, text: str, form: str) -> None:
    files = {"data.yaml": "train: images\nnames: [cat]", "images/a.jpg": image_bytes(), "labels/a.txt": text}
    result = detaug("convert-yolo", write_files(tmp_path / "yolo", files), "-o", tmp_path / "a.json")
    assert result.code == 2
    assert result.err.splitlines()[0] == f"detaug: labels/a.txt:1: is {form}; {REMEDIES[form]} [row-invalid]"
    assert len(result.err.splitlines()) == 2


def test_rows_that_are_not_relative_name_the_wrong_number(tmp_path: Path) -> None:
    def error(row: str) -> str:
        files = {"data.yaml": "train: images\nnames: [cat]", "images/a.jpg": image_bytes(), "labels/a.txt": row}
        folder = write_files(tmp_path / f"yolo{abs(hash(row))}", files)
        return detaug("convert-yolo", folder, "-o", tmp_path / "a.json").err.splitlines()[0]

    rule = "coordinates must be relative to the image, from 0 to 1"
    assert error("0 -0.61 0.6555 0.1 0.1").endswith(f"{rule}, got -0.61 [row-not-relative]")
    assert error("0 0.5 1.02 0.1 0.1").endswith(f"{rule}, got 1.02 [row-not-relative]")
    assert error("0 0.5 40 0.1 0.1").endswith(f"{rule}, got 40; divide pixels by its size [row-not-relative]")


def test_a_negative_side_of_yolo_is_turned_round(tmp_path: Path) -> None:
    files = {"data.yaml": "train: images\nnames: [cat]", "images/a.jpg": image_bytes(size=(100, 100))}
    folder = write_files(tmp_path / "yolo", {**files, "labels/a.txt": "0 0.425 0.655 0.53 -0.61\n"})
    result = detaug("convert-yolo", folder, "-o", tmp_path / "a.json")
    assert "repaired       1  box-reversed" in result.out
    (row,) = json.loads((tmp_path / "a.json").read_text())["annotations"]
    assert row["bbox"] == [16, 35, 53, 61]


def test_numbers_of_classes_in_quotes(tmp_path: Path) -> None:
    files = {"images/a.jpg": image_bytes(), "labels/a.txt": "1 0.5 0.5 0.1 0.1\n"}
    yaml = "train: images\nnames:\n  '0': cat\n  '1': dog\n"
    folder = write_files(tmp_path / "yolo", {**files, "data.yaml": yaml})
    assert "  dog          1\n" in detaug("convert-yolo", folder, "-o", tmp_path / "a.json").out


@pytest.mark.parametrize(
    ("path", "what"),
    [("C:\\\\data\\\\images", "C:\\data\\images (a path of Windows)"), ("images/*.jpg", "images/*.jpg (a pattern)")],
)
def test_splits_that_are_no_folders(tmp_path: Path, path: str, what: str) -> None:
    folder = write_files(tmp_path / "yolo", {"data.yaml": f'train: "{path}"\nnames: [cat]\n'})
    error = usage_error("convert-yolo", folder, "-o", tmp_path / "a.json")
    assert f"{what} is not in {folder}; write the folder, or choose another split" in error


# ----------------------------------------------------------------------------------------------------------
# VOC


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        (
            "<annotation><object><name>a</name><robndbox><cx>1</cx></robndbox></object></annotation>",
            "has a <robndbox> without <cy>, <w>, <h>, <angle>",
        ),
        (
            "<annotation><object><name>a</name><polygon/></object></annotation>",
            "has no <bndbox>, but a <polygon>; write the <bndbox> around it",
        ),
        (
            "<annotation><object><name>a</name><polygon><pt><x>1</x><y>1</y></pt><pt><x>9</x><y>1</y></pt>"
            "<pt><x>9</x><y>9</y></pt></polygon></object></annotation>",
            "has no <bndbox>; the LabelMe web tool wrote the <pt> of its <polygon>: convert the folder with detaug",
        ),
        ("", "is empty (0 bytes); delete it for an image without objects, which needs no XML"),
    ],
)
def test_what_an_xml_has_instead_of_boxes(tmp_path: Path, xml: str, message: str) -> None:
    folder = write_files(tmp_path / "voc", {"a.jpg": image_bytes(), "a.xml": xml})
    skipped = usage_error("convert-voc", folder, "-o", tmp_path / "a.json", "--on-error", "skip")
    assert "no image is left to write; nothing was written; a.xml" in skipped
    assert message in skipped
    write_files(folder, {"b.jpg": image_bytes(), "b.xml": voc_xml(box_xml(1, 2, 30, 40))})
    assert message in detaug("convert-voc", folder, "-o", tmp_path / "a.json").err
    (folder / "a.xml").unlink()
    assert detaug("convert-voc", folder, "-o", tmp_path / "a.json").code == 0


def test_a_split_that_contradicts_itself(tmp_path: Path) -> None:
    marks = "a -1\nb 1\nc -1\nd -1\na 1\nd 0\n"
    files = {f"JPEGImages/{name}.jpg": image_bytes() for name in "abcd"}
    files |= {f"Annotations/{name}.xml": voc_xml(box_xml(1, 2, 30, 40)) for name in "abcd"}
    folder = write_files(tmp_path / "voc", {**files, "ImageSets/Main/cat_train.txt": marks})
    summary = voc_to_coco(folder, tmp_path / "a.json", split="cat_train")
    assert summary.images == 3
    assert summary.kind_counts == {"split-contradiction": 2, "split-negative": 1, "image-identical": 2}
    assert [(each.line, each.before) for each in summary.findings if each.kind == "split-contradiction"] == [
        (1, "a"),
        (4, "d"),
    ]


# ----------------------------------------------------------------------------------------------------------
# Shards


LABEL_MAP = """
# a comment
item {
  name: "/m/01"
  id: 2
  display_name: "guide dog"
}
item { id: 1 name: 'cat' }
item {
  id: 4
  name: "it's"
}
"""


def test_class_names_of_a_label_map(tmp_path: Path) -> None:
    path = tmp_path / "label_map.pbtxt"
    path.write_text(LABEL_MAP)
    assert read_class_names(str(path)) == ["cat", "guide dog", "class 3", "it's"]
    path.write_text("item { id: 0 name: 'background' }")
    shard = write_tfrecord(tmp_path / "a.tfrecord", [detection("a.jpg", [(10, 10, 30, 40)], [1])])
    message = "has no item with an id from 1 and a name"
    assert message in usage_error("convert-tfrecord", shard, "-o", tmp_path / "a.json", "--classes", path)


def test_shards_whose_names_are_in_a_label_map(tmp_path: Path) -> None:
    boxes = [(10, 10, 30, 40)]
    shards = [write_tfrecord(tmp_path / f"{n}.tfrecord", [detection(f"{n}.jpg", boxes, [n])]) for n in (1, 2)]
    path = tmp_path / "label_map.pbtxt"
    path.write_text(LABEL_MAP)
    out = detaug("convert-tfrecord", *shards, "-o", tmp_path / "a.json").out
    assert "class-numbered: classes have numbers in the shards, and a label map beside these has names; " in out
    assert f"; give them: --classes {path}\n" in out
    named = detaug("convert-tfrecord", *shards, "-o", tmp_path / "a.json", "--classes", path).out
    assert "class-numbered" not in named
    assert "  guide dog          1\n" in named


def test_an_empty_shard_beside_others_is_named(tmp_path: Path) -> None:
    shard = write_tfrecord(tmp_path / "a.tfrecord", [detection("a.jpg", [(10, 10, 30, 40)], [1])])
    empty = tmp_path / "empty.tfrecord"
    empty.touch()
    report = tmp_path / "report.json"
    result = detaug("convert-tfrecord", shard, empty, "-o", tmp_path / "a.json", "--report", report)
    assert "noted       1  shard-empty: a shard has no records\n" in result.out
    found = json.loads(report.read_text())["findings"]
    assert [(each["file"], each["kind"]) for each in found] == [("empty.tfrecord", "shard-empty")]


def test_every_bad_shard_gives_the_reason(tmp_path: Path) -> None:
    shards = [
        write_tfrecord(tmp_path / f"{n}.tfrecord", [detection(f"{n}.jpg", [(n, 1, 20, 30)], [1])]) for n in (1, 2)
    ]
    for shard in shards:
        shard.write_bytes(shard.read_bytes()[:-3])
    error = usage_error("convert-tfrecord", *shards, "-o", tmp_path / "a.json", "--on-error", "skip")
    assert "no image is left to write; nothing was written; 1.tfrecord: is cut off in record 1" in error
    assert error.endswith(", and 1 more\n")
