"""Images of one name in several folders, against comparing all of them."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from detaug.converters import ConversionError, convert_to_coco, voc_to_coco
from detaug.files import namesakes
from detaug.files.names_by_key import preference
from detaug.files.namesakes import Namesakes

FOLDERS = ["/".join(each) for count in range(4) for each in product(["a", "b", "C"], repeat=count)]
FILES = ["x.jpg", "X.jpg", "x.png", "y.jpg", "a.jpg", "x.1.jpg"]
NAMES = [f"{folder}/{file}".lstrip("/") for folder in FOLDERS for file in FILES]
PATHS = [*NAMES, *(name.rpartition(".")[0] for name in NAMES), "z", "b/z.jpg"]


def without_extension(path: str) -> list[str]:
    return path.lower().removesuffix(".jpg").removesuffix(".png").split("/")


def shared(parts: list[str], others: list[str]) -> int:
    """Count the parts at the beginnings, then those at the ends."""
    count = 0
    for one, other in ((parts, others), (parts[::-1], others[::-1])):
        while count < 100 and one and other and one[0] == other[0]:
            one, other, count = one[1:], other[1:], count + 1
    return count


@settings(deadline=None)
@given(names=st.sets(st.sampled_from(NAMES), max_size=12), path=st.sampled_from(PATHS))
def test_nearest_is_the_best_of_all(names: set[str], path: str) -> None:
    wanted = without_extension(path)
    alike = [name for name in names if without_extension(name)[-1] == wanted[-1]]
    alike = [name for name in alike if name.lower().split("/")[-1] == path.lower().split("/")[-1]] or alike
    most = max((shared(without_extension(name), wanted) for name in alike), default=0)
    best = [name for name in alike if shared(without_extension(name), wanted) == most]
    assert Namesakes(sorted(names)).nearest(path) == sorted(best, key=preference)


@pytest.mark.parametrize("path", ["D:/all/{}/frame.jpg", "D:/{}/img/frame.jpg", "images/{}/left/frame.jpg", "{}/frame"])
def test_namesakes_are_not_compared_one_by_one(path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"images/scene{number}/{side}/frame.jpg" for number in range(300) for side in ("img", ".")]
    names = [name.replace("/./", "/") for name in names]
    counted, compare = [], namesakes.in_common
    monkeypatch.setattr(namesakes, "in_common", lambda *parts: counted.append(parts) or compare(*parts))
    found = Namesakes(sorted(names))
    for number in range(300):
        assert all(f"/scene{number}/" in name for name in found.nearest(path.format(f"scene{number}")))
    assert len(counted) <= 4 * 300


def write_scenes(root: Path, below: str = "") -> None:
    """Write images/scene_NN/frame.jpg of different sizes, `below` a further folder."""
    for number in range(40):
        folder = root / f"images/scene_{number:02}" / below
        folder.mkdir(parents=True)
        Image.new("RGB", (30 + number, 20)).save(folder / "frame.jpg")


def test_scenes_of_another_machine(tmp_path: Path) -> None:
    """A table has absolute paths of Windows: each image is that of its scene."""
    write_scenes(tmp_path)
    rows = [f"D:\\data\\scene_{number:02}\\frame.jpg,{30 + number},20,cat,1,2,9,8\n" for number in range(40)]
    (tmp_path / "labels.csv").write_text("filename,width,height,class,xmin,ymin,xmax,ymax\n" + "".join(rows))
    summary = convert_to_coco(tmp_path, tmp_path / "all.json", format="csv")
    assert (summary.images, summary.boxes, len(summary.findings)) == (40, 40, 0)


@pytest.mark.parametrize("form", ["yolo", "voc"])
def test_labels_in_other_folders_of_scenes(form: str, tmp_path: Path) -> None:
    """Labels are in labels/scene_NN/anno, images in images/scene_NN/rgb."""
    write_scenes(tmp_path, "rgb")
    (tmp_path / "classes.txt").write_text("cat\n")
    for number in range(40):
        folder = tmp_path / f"labels/scene_{number:02}/anno"
        folder.mkdir(parents=True)
        size = f"<size><width>{30 + number}</width><height>20</height><depth>3</depth></size>"
        box = "<bndbox><xmin>2</xmin><ymin>3</ymin><xmax>11</xmax><ymax>12</ymax></bndbox>"
        rows = f"<annotation>{size}<object><name>cat</name>{box}</object></annotation>"
        text = {"yolo": "0 0.5 0.5 0.2 0.2\n", "voc": rows}[form]
        (folder / f"frame{ {'yolo': '.txt', 'voc': '.xml'}[form] }").write_text(text)
    if form == "voc":
        summary = voc_to_coco(
            tmp_path, tmp_path / "all.json", images=tmp_path / "images", annotations=tmp_path / "labels"
        )
    else:
        summary = convert_to_coco(tmp_path, tmp_path / "all.json", format="yolo")
    document = json.loads((tmp_path / "all.json").read_text())
    boxes = {each["image_id"] for each in document["annotations"]}
    assert (summary.images, summary.boxes) == (40, 40)
    assert boxes == {image["id"] for image in document["images"]}
    assert {image["file_name"].split("/")[-3] for image in document["images"]} == {f"scene_{n:02}" for n in range(40)}


@pytest.mark.parametrize("images", [None, "images"])
@pytest.mark.parametrize("path", ["frame.jpg", "../rgb/frame.jpg", "C:\\scans\\frame.jpg"])
def test_a_tree_of_labels_beside_one_of_images(path: str, images: str | None, tmp_path: Path) -> None:
    """LabelMe's files are in labels/scene_NN/anno and images in images/scene_NN/rgb, whichever folder is given."""
    write_scenes(tmp_path, "rgb")
    for number in range(40):
        folder = tmp_path / f"labels/scene_{number:02}/anno"
        folder.mkdir(parents=True)
        shape = {"label": "cat", "points": [[1, 2], [5 + number / 2, 9]], "shape_type": "rectangle"}
        content = {"shapes": [shape], "imagePath": path, "imageWidth": 30 + number, "imageHeight": 20}
        (folder / "frame.json").write_text(json.dumps(content))
    given = None if images is None else tmp_path / images
    summary = convert_to_coco(tmp_path, tmp_path / "all.json", format="labelme", images=given)
    assert (summary.images, summary.boxes, len(summary.findings)) == (40, 40, 0)
    document = json.loads((tmp_path / "all.json").read_text())
    scenes = {image["id"]: int(image["file_name"].split("/")[-3][-2:]) for image in document["images"]}
    assert {scenes[each["image_id"]]: each["bbox"][2] for each in document["annotations"]} == {
        number: 4 + number / 2 for number in range(40)
    }


def test_trees_that_do_not_tell(tmp_path: Path) -> None:
    """Two images fit equally; the folder that the error asks for tells which."""
    for folder in ("images/a/rgb", "images/b/rgb", "labels/c"):
        (tmp_path / folder).mkdir(parents=True)
    for side in "ab":
        Image.new("RGB", (30, 20)).save(tmp_path / f"images/{side}/rgb/frame.jpg")
    shape = {"label": "cat", "points": [[1, 2], [5, 9]], "shape_type": "rectangle"}
    content = {"shapes": [shape], "imagePath": "frame.jpg", "imageWidth": 30, "imageHeight": 20}
    (tmp_path / "labels/c/frame.json").write_text(json.dumps(content))
    with pytest.raises(ConversionError, match=r"several images have the name .*their folder: --images of convert"):
        convert_to_coco(tmp_path, tmp_path / "all.json", format="labelme")
    summary = convert_to_coco(tmp_path, tmp_path / "all.json", format="labelme", images=tmp_path / "images/b")
    assert (summary.images, summary.boxes) == (1, 1)
