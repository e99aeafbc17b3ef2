"""DOTA's label files to COCO JSON and back: corners stay as they are, and lie on painted rectangles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coco_files import Document, document, write, write_images
from command import detaug
from PIL import Image, ImageDraw
from pycocotools.coco import COCO
from voc_files import image_bytes, write_files

import detaug as da
from detaug.converters import ConversionError, Summary, coco_to_dota, dota_to_coco

ROW = "10 10 40.5 20 35 40 5 30 small-vehicle 1\n"


def data_set(folder: Path, labels: dict[str, str]) -> Path:
    write_files(folder, {f"images/{name}.png": image_bytes(kind="PNG") for name in labels})
    return write_files(folder, {f"labelTxt/{name}.txt": text for name, text in labels.items()})


def converted(root: Path, **options: Any) -> tuple[Document, Summary]:
    summary = dota_to_coco(root / "labelTxt", root / "images", root.parent / "out.json", **options)
    COCO(str(summary.output))
    return json.loads(summary.output.read_bytes()), summary


def test_rows(tmp_path: Path) -> None:
    text = f"imagesource:GoogleEarth\ngsd:0.146\n{ROW}\n-5 70 20 60 30 90 4 95 ship 0\r\n1 1 9 1 9 9 1 9 plane\n"
    text += "1 1 9 1 9 9 1 9 ship 2\n"
    content, summary = converted(data_set(tmp_path / "dota", {"P1": text, "P2": ""}))
    first, second, third, fourth = content["annotations"]
    assert first["corners"] == [[10, 10], [40.5, 20], [35, 40], [5, 30]]
    assert first["segmentation"] == [[10, 10, 40.5, 20, 35, 40, 5, 30]]
    assert (first["bbox"], first["difficult"], first["area"]) == ([5, 10, 35.5, 30], 1, 657.5)
    assert second["corners"][0] == [-5, 70]  # outside, and stays
    assert (second["bbox"], second["difficult"], third["difficult"]) == ([0, 60, 30, 20], 0, 0)
    assert fourth["difficult"] == 1
    assert [row["name"] for row in content["categories"]] == ["plane", "ship", "small-vehicle"]
    assert (summary.images, summary.images_without_boxes, summary.kind_counts) == (2, 1, {})
    assert summary.next_step.endswith('out.json", rotated=True)')


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("1 2 3 4 5 6 7 8\n", "must be x1 y1 x2 y2 x3 y3 x4 y4 class difficult, got 8 words"),
        ("1 2 3 4 5 6 7 x ship 0\n", "with eight finite numbers, got '1 2 3 4 5 6 7 x'"),
        ("1 2 3 4 5 6 7 1e999 ship 0\n", "with eight finite numbers"),
        ("1 2 3 4 5 6 7 8 ship no\n", "difficult must be a whole number, got 'no'"),
    ],
)
def test_bad_rows_stop_or_cost_their_image(tmp_path: Path, row: str, message: str) -> None:
    root = data_set(tmp_path / "dota", {"a": ROW + row, "b": ROW})
    with pytest.raises(ConversionError) as raised:
        converted(root)
    assert str(raised.value).startswith("a.txt:2: ")
    assert message in str(raised.value)
    content, summary = converted(root, on_error="skip")
    assert ([row["file_name"] for row in content["images"]], summary.kind_counts) == (["b.png"], {"row-invalid": 1})


def test_what_is_left_out_is_counted(tmp_path: Path) -> None:
    outside = "200 200 210 200 210 210 200 210 ship 0\n5 5 5 5 5 5 5 5 ship 0\n"
    root = data_set(tmp_path / "dota", {"a": f"{ROW}1 1 9 1 9 9 1 9 plane 0\n{outside}"})
    write_files(root, {"labelTxt/x.txt": ROW, "images/y.png": image_bytes(kind="PNG")})
    content, summary = converted(root, classes=["small-vehicle", "ship"])
    assert [row["category_id"] for row in content["annotations"]] == [1]
    assert summary.kind_counts == {
        **dict.fromkeys(("class-not-listed", "label-unused", "box-outside", "box-empty", "label-missing"), 1),
        "class-unused": 1,
    }


@pytest.mark.parametrize(
    ("which", "message"), [("labelTxt", "has no label files"), ("images", "has the image of none")]
)
def test_folders_in_the_wrong_place(tmp_path: Path, which: str, message: str) -> None:
    root = data_set(tmp_path / "dota", {"a": ROW})
    (tmp_path / "empty").mkdir()
    folders = {"labelTxt": root / "labelTxt", "images": root / "images"} | {which: tmp_path / "empty"}
    with pytest.raises(ConversionError, match=message):
        dota_to_coco(folders["labelTxt"], folders["images"], tmp_path / "out.json")
    with pytest.raises(ConversionError, match="is not a folder; give DOTA's labelTxt"):
        dota_to_coco(tmp_path / "no", root / "images", tmp_path / "out.json")


def test_painted_rectangles_come_back_through_both_commands(tmp_path: Path) -> None:
    corners = np.array([[30.0, 20], [80, 40], [70, 65], [20, 45]])
    image = Image.new("L", (800, 640))
    ImageDraw.Draw(image).polygon([tuple(point) for point in (corners * 8 - 0.5).tolist()], fill=255)
    root = data_set(tmp_path / "dota", {"a": f"{' '.join(map(str, corners.ravel()))} ship 0\n"})
    Image.merge("RGB", [image.reduce(8)] * 3).save(root / "images/a.png")
    out, again = tmp_path / "out.json", tmp_path / "again.json"
    assert detaug("convert-dota", root / "labelTxt", root / "images", "-o", out).code == 0
    back = detaug("convert-coco-to-dota", out, tmp_path / "back", "--images", root / "images", "--with-images", "copy")
    command = back.out.splitlines()[-1].removeprefix("and back: detaug ").split()
    assert command[:2] == ["convert-dota", str(tmp_path / "back/labelTxt")]
    assert detaug(*command[:-1], again).code == 0
    assert json.loads(out.read_text())["annotations"] == json.loads(again.read_text())["annotations"]
    assert (tmp_path / "back/labelTxt/a.txt").read_text() == "30 20 80 40 70 65 20 45 ship 0\n"
    reader = da.CocoReader(tmp_path / "back/images", again, rotated=True)
    (batch,) = da.Loader(reader, [da.RandomHorizontalFlip(p=1), da.Resize((160, 200))], 1, device="cpu")
    found = Image.new("1", (200, 160))
    ImageDraw.Draw(found).polygon([tuple(point) for point in (batch.corners[0, 0] - 0.5).tolist()], fill=1)
    seen = batch.images[0, 0].numpy() > 127
    assert (seen & np.asarray(found)).sum() / (seen | np.asarray(found)).sum() > 0.97


def test_from_coco(tmp_path: Path) -> None:
    content = document()
    content["annotations"] = content["annotations"][:2]
    content["annotations"][0] |= {"segmentation": [[50, 10, 55, 15, 70, 30, 60, 40, 45, 25, 40, 20]], "difficult": 1}
    images = write_images(tmp_path / "images")
    summary = coco_to_dota(write(tmp_path / "a.json", content), tmp_path / "dota", images=images)
    assert summary.kind_counts == {"outline-missing": 1, "key-dropped": 2}
    first, second = (tmp_path / "dota/labelTxt/a.txt").read_text().splitlines()
    assert second == "40 10 60 10 60 40 40 40 cat 0"
    numbers = np.array(first.split()[:8], float).reshape(4, 2).tolist()
    assert (sorted(numbers), first.split()[8:]) == ([[40, 20], [50, 10], [60, 40], [70, 30]], ["dog", "1"])
    content["categories"][0]["name"] = "big cat"
    with pytest.raises(ConversionError, match="class names in DOTA have no spaces, got 'big cat'"):
        coco_to_dota(write(tmp_path / "a.json", content), tmp_path / "other")
