"""Segment Anything, the LabelMe web tool, metadata.csv, tables with other columns; what stands for something else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import detaug, usage_error
from format_files import converted, data_set, kinds, refused
from pycocotools import mask as coco_mask
from shard_files import converted as shards_converted
from shard_files import detection, write_tfrecord
from voc_files import box_xml, voc_xml, write_files

import detaug as da
from detaug.coco.outlines import rings_of
from detaug.converters import tfrecord_to_coco
from detaug.files import known_files

# ---------------------------------------------------------------------------------------------- Segment Anything

MASK = np.zeros((80, 100), np.uint8, order="F")
MASK[10:30, 20:22] = 1
COUNTS = [20 * 80 + 10, 20, 60, 20, 8000 - 1610 - 100]


def segment_anything(**more: Any) -> str:
    image = {"image_id": 7, "width": 100, "height": 80, "file_name": "sa_7.jpg"}
    text = {"size": [80, 100], "counts": coco_mask.encode(MASK)["counts"].decode()}
    annotations = [
        {
            "id": 5,
            "bbox": [0, 0, 9, 9],
            "area": 40,
            "segmentation": text,
            "predicted_iou": 0.9,
            "crop_box": [0, 0, 1, 1],
        },
        {"id": 6, "bbox": [20, 10, 2, 20], "segmentation": {"size": [80, 100], "counts": COUNTS}} | more,
    ]
    return json.dumps({"image": image, "annotations": annotations})


@pytest.mark.filterwarnings("ignore:__array__:DeprecationWarning")  # of pycocotools
def test_masks_of_segment_anything(tmp_path: Path) -> None:
    document, summary = converted(data_set(tmp_path / "set", {"sa_7.json": segment_anything()}, "sa_7.jpg"))
    first, second = document["annotations"]
    for row in (first, second):
        assert (row["bbox"], row["area"]) == ([20, 10, 2, 20], 40)
        found = coco_mask.decode(row["segmentation"] | {"counts": row["segmentation"]["counts"].encode()})
        assert (found == MASK).all()
    assert (first["predicted_iou"], first["crop_box"], first["tool_id"]) == (0.9, [0, 0, 1, 1], 5)
    assert [row["name"] for row in document["categories"]] == ["object"]
    assert (kinds(summary), summary.next_step[-13:]) == ({"box-repeated": 1}, ", masks=True)")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"segmentation": {"size": [100, 80], "counts": COUNTS}}, "object 1: the size of the RLE is [100, 80]"),
        ({"segmentation": {"size": [80, 100], "counts": [5]}}, "add up to 5, the image has 8000 pixels"),
        ({"segmentation": None}, "must be rings or RLE, got None"),
    ],
)
def test_masks_that_are_invalid(tmp_path: Path, more: Any, message: str) -> None:
    assert message in refused(data_set(tmp_path / "set", {"sa_7.json": segment_anything(**more)}, "sa_7.jpg"))


# ---------------------------------------------------------------------------------------------- LabelMe web tool


def web_object(*points: tuple[float, float], name: str = "car", more: str = "<deleted>0</deleted>") -> str:
    pairs = "".join(f"<pt><x>{x}</x><y>{y}</y></pt>" for x, y in points)
    return f"<object><name>{name}</name>{more}<polygon><username>me</username>{pairs}</polygon></object>"


def web(*objects: str) -> str:
    size = "<imagesize><nrows>80</nrows><ncols>100</ncols></imagesize>"
    return f"<annotation><filename>a.jpg</filename><folder>f</folder>{''.join(objects)}{size}</annotation>"


TRIANGLE = ((10, 10), (50, 10), (50, 40))
OBJECTS = (
    web_object(*TRIANGLE, more="<deleted>0</deleted><occluded>yes</occluded><attributes>red</attributes>"),
    web_object((1, 1), (5, 1), (5, 4), name="old", more="<deleted>1</deleted>"),
    web_object((30, 20), (60, 20), (60, 50), (30, 50), name="box", more="<type>bounding_box</type>"),
    web_object((1, 1), (9, 9)),
    web_object((1, 1)),
    "<object><name>tree</name><segm><mask>a.png</mask></segm></object>",
    web_object(*TRIANGLE, name="van", more="<other>1</other>"),
)


def test_the_xml_of_the_labelme_web_tool(tmp_path: Path) -> None:
    document, summary = converted(data_set(tmp_path / "set", {"f/a.xml": web(*OBJECTS)}, "f/a.jpg"))
    car, box, van = document["annotations"]
    assert (car["bbox"], car["segmentation"]) == ([10, 10, 40, 30], [[10, 10, 50, 10, 50, 40]])
    assert (car["occluded"], car["attributes"]) == (1, "red")
    assert (box["bbox"], "segmentation" in box, van["area"]) == ([30, 20, 30, 30], False, 600)
    assert [row["name"] for row in document["categories"]] == ["box", "car", "van"]
    assert kinds(summary) == {"shape-unused": 3, "element-unused": 1}
    assert "1 keypoint without a box, 1 line, 1 segm" in str(summary)
    assert "have no place in the JSON file: <other>\n" in str(summary)


# ---------------------------------------------------------------------------------------------- tables


def boxes(tmp_path: Path, text: str, name: str = "a.csv") -> list[list[float]]:
    document, _ = converted(data_set(tmp_path / "set", {name: text}, "a.jpg"))
    return [row["bbox"] for row in document["annotations"]]


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ("x,y,w,h", "10,20,40,30"),
        ("x,y,width,height", "10,20,40,30"),
        ("x1,y1,w,h", "10,20,40,30"),
        ("xmin,ymin,width,height", "10,20,40,30"),
        ("left,top,width,height", "10,20,40,30"),
        ("bbox_x,bbox_y,bbox_w,bbox_h", "10,20,40,30"),
        ("left,top,right,bottom", "10,20,50,50"),
        ("width,height,xmin,ymin,xmax,ymax", "100,80,10,20,50,50"),
        ("x,y,w,h,image_width,image_height", "10,20,40,30,100,80"),
        ("cx,cy,w,h", "30,35,40,30"),
        ("x_center,y_center,width,height", "0.3,0.4375,0.4,0.375"),
    ],
)
def test_columns_of_a_box(tmp_path: Path, columns: str, row: str) -> None:
    assert boxes(tmp_path, f"image_name,label_name,{columns}\na.jpg,cat,{row}\n") == [[10, 20, 40, 30]]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('a.jpg,cat,"0,05","0,2","0,25","0,6"', [5, 16, 20, 32]),
        ('a.jpg,cat,"10,5","20,25",50,"60,5"', [10.5, 20.25, 39.5, 40.25]),
        ('a.jpg,cat,"1,234",2,"10,5",20', [1.234, 2, 9.266, 18]),  # the other one shows what a comma is
    ],
)
def test_decimal_commas(tmp_path: Path, text: str, expected: list[float]) -> None:
    assert boxes(tmp_path, f"filename,class,xmin,ymin,xmax,ymax\n{text}\n") == [expected]


def test_semicolons_and_decimal_commas(tmp_path: Path) -> None:
    text = "filename;class;xmin;ymin;xmax;ymax;score\na.jpg;cat;10,5;20;50;60;0,75\n"
    document, _ = converted(data_set(tmp_path / "head", {"a.csv": text}, "a.jpg"))
    assert [(row["bbox"], row["score"]) for row in document["annotations"]] == [([10.5, 20, 39.5, 40], 0.75)]
    document, _ = converted(data_set(tmp_path / "retinanet", {"a.csv": "a.jpg;10;20;50;60;cat\n"}, "a.jpg"))
    assert [row["bbox"] for row in document["annotations"]] == [[10, 20, 40, 40]]


@pytest.mark.parametrize("row", ['"1,234",2,3,4', '"10,5",2.5,30,40'])
def test_commas_that_may_be_something_else(tmp_path: Path, row: str) -> None:
    """A thousand, or a decimal point where others are written as points."""
    text = f"filename,class,xmin,ymin,xmax,ymax\na.jpg,cat,{row}\n"
    assert "a coordinate must be a finite number, got '1" in refused(data_set(tmp_path, {"a.csv": text}, "a.jpg"))


def test_a_table_with_unknown_columns_is_named(tmp_path: Path) -> None:
    root = data_set(tmp_path / "set", {"boxes.csv": "photo,kind,a,b,c,d\na.jpg,cat,1,2,3,4\n"}, "a.jpg")
    what = (
        "a table whose columns are not known, photo, kind, a, b, c, d; a table of boxes must have the columns filename"
    )
    assert f"{root} has boxes.csv, which is {what}" in refused(root)
    assert f"{root / 'boxes.csv'} is {what}" in refused(root / "boxes.csv")


def test_metadata_csv_of_hugging_face(tmp_path: Path) -> None:
    head = "file_name,objects,weather\n"
    entry = '"{""bbox"": [[10, 10, 20, 20]], ""categories"": [""cat""]}"'
    document, _ = converted(data_set(tmp_path / "set", {"metadata.csv": f"{head}a.jpg,{entry},rain\n"}, "a.jpg"))
    assert [row["bbox"] for row in document["annotations"]] == [[10, 10, 20, 20]]
    assert document["images"][0]["weather"] == "rain"
    python = "\"{'bbox': [[10, 10, 20, 20]], 'categories': ['cat']}\""  # as pandas writes dicts
    document, _ = converted(data_set(tmp_path / "pandas", {"metadata.csv": f"{head}a.jpg,{python},rain\n"}, "a.jpg"))
    assert [row["bbox"] for row in document["annotations"]] == [[10, 10, 20, 20]]
    root = data_set(tmp_path / "bad", {"metadata.csv": f"{head}a.jpg,none,rain\n"}, "a.jpg")
    assert "metadata.csv:2: " in refused(root)


def test_outlines_of_hugging_face(tmp_path: Path) -> None:
    objects = {"bbox": [[10, 10, 20, 20]] * 3, "categories": ["cat", "dog", "pig"]}
    objects["segmentation"] = [[[10, 10, 30, 10, 30, 30]], [10, 10, 30, 10, 30, 30], "none"]
    text = json.dumps({"file_name": "a.jpg", "objects": objects})
    document, _ = converted(data_set(tmp_path / "set", {"metadata.jsonl": f"{text}\n"}, "a.jpg"))
    rings = [row.get("segmentation") for row in document["annotations"]]
    assert rings == [[[10, 10, 30, 10, 30, 30]], [[10, 10, 30, 10, 30, 30]], None]
    assert document["annotations"][2]["attribute_segmentation"] == "none"


# ---------------------------------------------------------------------------------------------- other things


def test_a_panoptic_json_is_named_by_other_commands(tmp_path: Path) -> None:
    segments = [{"id": 3, "category_id": 1, "bbox": [1, 1, 9, 9], "area": 81, "iscrowd": 0}]
    content = {
        "images": [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 80}],
        "categories": [{"id": 1, "name": "cat", "isthing": 1}],
        "annotations": [{"image_id": 1, "file_name": "a.png", "segments_info": segments}],
    }
    root = data_set(tmp_path / "set", {"panoptic.json": json.dumps(content)}, "a.jpg")
    file = root / "panoptic.json"
    assert "is a COCO panoptic JSON file; convert it: detaug convert FILE" in usage_error("check", file, root)
    with pytest.raises(da.AnnotationError, match="is a COCO panoptic JSON file"):
        da.CocoReader(root, file)


def test_a_panoptic_json_that_is_too_large_to_be_parsed_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_files, "_LARGEST_JSON", 1 << 10)
    images = [{"id": number, "file_name": f"{number}.jpg", "width": 100, "height": 80} for number in range(2000)]
    annotations = [{"image_id": 1, "file_name": "1.png", "segments_info": []}]
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "cat"}]}
    root = data_set(tmp_path / "set", {"panoptic.json": json.dumps(content)}, "1.jpg")
    remedy = "convert it: detaug convert FILE -o OUT.json --from coco-panoptic"
    assert f"is a COCO panoptic JSON file; {remedy}" in refused(root)
    assert "a.png is not there" not in refused(root, format="coco-panoptic")


def test_images_inside_of_labelme_jsons(tmp_path: Path) -> None:
    shape = {"label": "cat", "points": [[1, 1], [9, 9]], "shape_type": "rectangle"}
    files = {
        f"{name}.json": json.dumps({"version": "5", "shapes": [shape], "imagePath": f"{name}.png", "imageData": data})
        for name, data in (("a", "iVBOR"), ("b", None))
    }
    remedy = "the JSON file has it in imageData: labelme_export_json of LabelMe writes it as a file"
    assert remedy in refused(data_set(tmp_path / "all", files))
    one = refused(data_set(tmp_path / "one", files, "c.jpg", "b.png"))
    assert f"no image in {tmp_path / 'one'} has the name 'a.png'; {remedy}" in one
    assert "imageData" not in refused(data_set(tmp_path / "none", {"b.json": files["b.json"]}, "c.jpg"))


@pytest.mark.parametrize(
    "files",
    [
        {
            f"{split}/metadata.jsonl": '{"file_name": "1.jpg", "objects": {"bbox": [[1, 1, 9, 9]], "categories": [0]}}'
            for split in ("train", "test")
        },
        {f"{split}/1.xml": voc_xml(box_xml(1, 1, 9, 9)) for split in ("train", "test")},
        {f"{split}/_annotations.csv": "1.jpg,1,1,9,9,cat\n" for split in ("train", "test")},
    ],
)
def test_splits_that_are_joined_are_named(tmp_path: Path, files: dict[str, str]) -> None:
    root = data_set(tmp_path / "set", files, "train/1.jpg", "test/1.jpg")
    printed = detaug("convert", root, "-o", tmp_path / "out.json").out
    assert "has images of test and train\n" in printed
    assert "splits-joined" in printed
    assert "splits-joined" not in detaug("convert", root / "train", "-o", tmp_path / "out.json").out


DARKNET = {"obj.data": "names = data/obj.names\ntrain = /home/me/data/train.txt\n", "obj.names": "cat\n"}


@pytest.mark.parametrize("entry", ["/home/me/darknet/data/obj/a.jpg", "C:\\me\\obj\\a.jpg", "/elsewhere/a.jpg"])
def test_absolute_lists_of_darknet(tmp_path: Path, entry: str) -> None:
    files = DARKNET | {"train.txt": f"{entry}\n", "obj/a.txt": "0 0.5 0.5 0.2 0.2\n"}
    document, summary = converted(data_set(tmp_path / "set", files, "obj/a.jpg", "obj/b.jpg"))
    assert [row["bbox"] for row in document["annotations"]] == [[40, 32, 20, 16]]
    assert kinds(summary) == {"split-entry-moved": 1}


def test_absolute_lists_that_fit_several_images_or_none(tmp_path: Path) -> None:
    files = DARKNET | {"train.txt": "/home/me/a.jpg\n", "x/a.txt": "", "y/a.txt": ""}
    message = "is not a file, nor the end of one image's path, below"
    assert message in refused(data_set(tmp_path / "two", files, "x/a.jpg", "y/a.jpg"))
    assert message in refused(data_set(tmp_path / "none", files, "x/b.jpg"))
    write_files(tmp_path / "elsewhere", {"a.jpg": b""})
    files["train.txt"] = f"{tmp_path}/elsewhere/b.jpg\n"
    assert message in refused(data_set(tmp_path / "outside", files, "x/a.jpg"))


def test_shards_of_several_splits_are_named(tmp_path: Path) -> None:
    shards = [
        write_tfrecord(
            tmp_path / f"{split}-00000-of-00001.tfrecord", [detection(f"{split}.jpg", [(1, 2, 30, 40)], [1])]
        )
        for split in ("train", "val")
    ]
    _, summary = shards_converted(tfrecord_to_coco, shards)
    assert kinds(summary) == {"splits-joined": 1}
    assert shards_converted(tfrecord_to_coco, shards[:1])[1].findings == ()


def test_further_keys_of_an_image_of_create_ml_are_columns(tmp_path: Path) -> None:
    place = {"x": 20, "y": 20, "width": 10, "height": 10}
    entries = [{"image": "a.jpg", "weather": "rain", "annotations": [{"label": "cat", "coordinates": place}]}]
    document, _ = converted(data_set(tmp_path / "set", {"a.json": json.dumps(entries)}, "a.jpg"))
    assert document["images"][0]["weather"] == "rain"


def test_an_outline_that_is_nested_deeply_is_invalid(tmp_path: Path) -> None:
    nested: Any = [1, 2]
    for _ in range(300):
        nested = [nested]
    assert rings_of(nested) == nested
    row = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [1, 1, 9, 9], "segmentation": nested}
    images = [{"id": 1, "file_name": "a.jpg", "width": 100, "height": 80}]
    content = {"images": images, "annotations": [row], "categories": [{"id": 1, "name": "cat"}]}
    root = data_set(tmp_path / "set", {"a.json": json.dumps(content)}, "a.jpg")
    assert "warning segmentation-invalid (1)" in detaug("check", root / "a.json", root).out
