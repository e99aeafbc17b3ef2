"""JPEGs that `detaug tile --quality keep` cuts between their blocks, without decoding them."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import usage_error
from PIL import Image, ImageOps

import detaug as da
from detaug.tiles.jpeg_blocks import can_cut

SIZE = 100
HEIGHT, WIDTH = 207, 261

JPEGS: dict[str, dict[str, Any]] = {
    "4:4:4": {"subsampling": 0},
    "4:2:2": {"subsampling": 1},
    "4:2:0": {"subsampling": 2, "restart_marker_rows": 1},
    "progressive": {"progressive": True},
    "grey": {},
    "rgb": {"keep_rgb": True},
    "turned": {},
}


def write_picture(root: Path, kind: str) -> tuple[Path, Path]:
    """Write a JPEG with a box near its last corner; return JSON file and folder."""
    shapes = np.random.default_rng(1).integers(0, 256, (21, 27, 3), np.uint8).repeat(10, 0).repeat(10, 1)
    image = Image.fromarray(shapes[:HEIGHT, :WIDTH]).convert("L" if kind == "grey" else "RGB")
    exif = Image.Exif()
    exif[0x0112] = 3 if kind == "turned" else 1
    (root / "in").mkdir()
    image.save(root / "in" / "a.jpg", quality=80, exif=exif, **JPEGS[kind])
    path = root / "a.json"
    row = {"id": 1, "file_name": "a.jpg", "height": HEIGHT, "width": WIDTH}
    box = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [230, 180, 20, 20], "iscrowd": 0, "area": 400}
    path.write_text(json.dumps({"images": [row], "annotations": [box], "categories": [{"id": 1, "name": "x"}]}))
    return path, root / "in"


@pytest.mark.parametrize("kind", JPEGS)
def test_jpegs_are_cut_between_their_blocks(kind: str, tmp_path: Path) -> None:
    pytest.importorskip("jpeglib")
    path, folder = write_picture(tmp_path, kind)
    summary = da.tile_coco(path, folder, tmp_path / "out", size=SIZE, format="jpeg", quality="keep")
    whole = np.asarray(ImageOps.exif_transpose(Image.open(folder / "a.jpg")), np.int16)
    shown, document = np.zeros((HEIGHT, WIDTH), bool), json.loads(summary.annotations.read_text())
    for tile in document["images"]:
        x, y, w, h = tile["window"]
        shown[y : y + h, x : x + w] = True
        name, mode = summary.images / tile["file_name"], "L" if kind == "grey" else "RGB"
        pixels = np.asarray(Image.open(name).convert(mode), np.int16)
        assert (x % 16, y % 16, pixels.shape[:2]) == (0, 0, (h, w))
        assert w == SIZE or (x + w == WIDTH and SIZE - 16 < w < SIZE)
        rim = 0 if kind in ("4:4:4", "grey", "rgb", "turned") else 2
        inside = np.s_[rim : h - rim, rim : w - rim]
        assert np.array_equal(pixels[inside], whole[y : y + h, x : x + w][inside])
        assert name.suffix == (".png" if kind in ("rgb", "turned") else ".jpg")
    assert shown.all()
    (last,) = [each for each in document["annotations"] if each["image_id"] == len(document["images"])]
    x, y, *_ = document["images"][-1]["window"]
    assert last["bbox"] == [230 - x, 180 - y, 20, 20]
    assert not [each for each in summary.images.iterdir() if each.name.startswith("tmp")]


def test_what_cannot_be_cut_without_loss_is_said(tmp_path: Path, monkeypatch: Any) -> None:
    given = (*write_picture(tmp_path, "grey"), "-o", tmp_path / "out", "--quality", "keep")
    assert "format must be 'jpeg' with quality='keep'" in usage_error("tile", *given)
    with pytest.raises(da.InputError, match=r"quality must be a whole number in 1\.\.100, or 'keep'"):
        da.tile_coco(given[0], given[1], tmp_path / "out", quality="best")  # type: ignore[arg-type]
    monkeypatch.setitem(sys.modules, "jpeglib", None)
    assert "pip install 'detaug[lossless]'" in usage_error("tile", *given, "--format", "jpeg")
    assert not (tmp_path / "out").exists()


def test_a_broken_jpeg_is_not_cut(tmp_path: Path) -> None:
    """The library would fill it with gray, and say nothing."""
    pytest.importorskip("jpeglib")
    path, folder = write_picture(tmp_path, "4:2:0")
    content = (folder / "a.jpg").read_bytes()
    (folder / "a.jpg").write_bytes(content[: len(content) // 2])
    order = ("tile", path, folder, "-o", tmp_path / "out", "--size", 100, "--format", "jpeg", "--quality", "keep")
    assert "a.jpg does not decode (" in usage_error(*order)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("brightness", "blue", "can"), [(0x22, 0x11, True), (0x11, 0x21, False), (0x41, 0x11, False)])
def test_blocks_of_other_sizes_are_not_cut(brightness: int, blue: int, can: bool, tmp_path: Path) -> None:
    """Brightness must have the smallest blocks, and all must fit 16 pixels."""
    write_picture(tmp_path, "4:4:4")
    content = bytearray((tmp_path / "in" / "a.jpg").read_bytes())
    at = content.index(b"\xff\xc0") + 10
    content[at + 1], content[at + 4] = brightness, blue
    assert can_cut(bytes(content)) is can
