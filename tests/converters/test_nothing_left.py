"""A conversion that loses every object writes nothing, and says what these were; an empty dataset may be empty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from coco_files import document, write, write_images
from command import detaug, usage_error
from format_files import data_set
from shard_files import detection, write_tfrecord
from voc_files import box_xml, voc_xml

from detaug.converters import (
    ConversionError,
    coco_to_csv,
    coco_to_cvat,
    coco_to_dota,
    coco_to_label_studio,
    coco_to_labelme,
    coco_to_voc,
    coco_to_yolo,
    convert_to_coco,
    pack_coco,
)

POINTS = '<points label="tip" points="1,1"/><points label="tip" points="2,2"/><polyline label="l" points="1,1;2,2"/>'
CVAT = f'<annotations><meta/><image id="0" name="a.jpg" width="100" height="80">{POINTS}</image></annotations>'
FLAT = json.dumps({"version": "5", "shapes": [], "imagePath": "a.jpg"})
LINE = {"label": "cat", "shape_type": "linestrip", "points": [[1, 1], [9, 9], [30, 2]]}


@pytest.mark.parametrize(
    ("files", "lost"),
    [
        ({"annotations.xml": CVAT}, "2 keypoints without a box, 1 line"),
        ({"a.json": FLAT.replace("[]", json.dumps([LINE, LINE]))}, "2 lines"),
        ({"a.xml": voc_xml(box_xml(300, 10, 320, 20))}, "1 box-outside"),
        (
            {"data.yaml": "train: .\nnames: [x]\n", "a.txt": "0 1.005 0.5 0.005 0.5\n0 1 1 0 0\n"},
            "1 box-outside, 1 box-empty",
        ),
        ({"t.csv": "filename,class,xmin,ymin,xmax,ymax\na.jpg,cat,200,10,220,20\n"}, "1 box-outside"),
        ({"a.txt": "200 200 240 200 240 220 200 220 ship 0\n"}, "1 box-outside"),
    ],
)
def test_every_object_is_lost(tmp_path: Path, files: dict[str, str], lost: str) -> None:
    root, output = data_set(tmp_path / "in", files, "a.jpg"), tmp_path / "out.json"
    with pytest.raises(ConversionError, match="no object is left to write, of ") as raised:
        convert_to_coco(root, output)
    assert lost in str(raised.value)
    report = tmp_path / "report.json"
    assert lost in usage_error("convert", root, "-o", output, "--report", report)
    assert sum(json.loads(report.read_bytes())["counts"].values()) >= 1
    assert not output.exists()


def test_shards(tmp_path: Path) -> None:
    shard = write_tfrecord(tmp_path / "a.tfrecord", [detection("a.jpg", [(10, 10, 10, 40)], [1])])
    assert "of 1 box-empty" in usage_error("convert-tfrecord", shard, "-o", tmp_path / "out.json")


@pytest.mark.parametrize(
    "files",
    [
        {"annotations.xml": CVAT.replace(POINTS, "")},
        {"a.json": FLAT},
        {"a.xml": voc_xml()},
        {"data.yaml": "train: .\nnames: [x]\n", "a.txt": ""},
    ],
)
def test_an_empty_data_set_stays_allowed(tmp_path: Path, files: dict[str, str]) -> None:
    root = data_set(tmp_path / "in", files, "a.jpg")
    result = detaug("convert", root, "-o", tmp_path / "out.json")
    assert (result.code, json.loads((tmp_path / "out.json").read_bytes())["annotations"]) == (0, [])


def test_some_are_left_and_the_others_are_counted_by_their_kind(tmp_path: Path) -> None:
    box = '<box label="car" xtl="1" ytl="1" xbr="9" ybr="9"/>'
    root = data_set(tmp_path / "in", {"annotations.xml": CVAT.replace("</image>", f"{box}</image>")}, "a.jpg")
    printed = detaug("convert", root, "-o", tmp_path / "out.json").out
    assert "has no place in the JSON file: 2 keypoints without a box, 1 line\n" in printed


@pytest.mark.parametrize("convert", [coco_to_yolo, coco_to_voc, coco_to_dota, coco_to_labelme, coco_to_cvat])
def test_the_way_back(tmp_path: Path, convert: Any) -> None:
    content = document()
    for row in content["annotations"]:
        row["bbox"] = [200, 200, 10, 10]
    source = write(tmp_path / "a.json", content)
    with pytest.raises(ConversionError, match="no object is left to write, of 5 entry-invalid"):
        convert(source, tmp_path / "out", on_error="skip")


def test_crowds_alone(tmp_path: Path) -> None:
    """YOLO, DOTA and the table have none: a JSON file of nothing but crowds leaves nothing."""
    content = document()
    for row in content["annotations"]:
        row["iscrowd"] = 1
    source = write(tmp_path / "a.json", content)
    for convert, output in ((coco_to_yolo, "yolo"), (coco_to_dota, "dota"), (coco_to_csv, "csv")):
        with pytest.raises(ConversionError, match="no object is left to write, of 5 crowd-dropped"):
            convert(source, tmp_path / output, **({"style": "retinanet"} if output == "csv" else {}))
    coco_to_label_studio(source, tmp_path / "tasks")
    assert pack_coco(source, write_images(tmp_path / "i"), tmp_path / "packed").boxes == 5


def test_tiles_that_show_too_little_of_every_object(tmp_path: Path) -> None:
    """Boxes over the whole image, of which a tile shows a quarter at most."""
    content = document()
    for row in content["annotations"]:
        row["bbox"] = [0, 0, 100, 80]
    for row, name in zip(content["images"], ("a.jpg", "b.jpg", "sub/c.png"), strict=True):
        row["file_name"] = name
    source, images = write(tmp_path / "a.json", content), write_images(tmp_path / "i")
    options = ["--size", "40", "--overlap", "0", "--min-visibility", "0.5"]
    error = usage_error("tile", source, images, "-o", tmp_path / "tiles", *options)
    assert "no object is left to write, of 5 objects; nothing was written; each tile shows less of them" in error
    assert not (tmp_path / "tiles").exists()
    content["annotations"] = []
    write(tmp_path / "a.json", content)
    assert detaug("tile", source, images, "-o", tmp_path / "tiles", *options).code == 0
