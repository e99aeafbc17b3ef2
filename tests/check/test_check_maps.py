"""`detaug check --map`: files that cannot be maps, with a remedy that works, and the fraction of pixels per class."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import detaug, usage_error
from numpy.typing import NDArray
from PIL import Image
from test_html_report import Page

import detaug as da
from detaug.check.check import check_coco
from detaug.check.summary import CheckSummary
from detaug.drawing.colors import class_color
from detaug.errors import DataError, InputError
from detaug.findings.kinds import CHECK_KINDS
from detaug.maps.named import read_map

SIZE = (30, 40)


def scene() -> NDArray[np.uint8]:
    values = np.zeros(SIZE, np.uint8)
    values[10:25, 10:30] = 1
    values[0, :] = 255
    return values


def depths() -> NDArray[np.uint16]:
    return np.full(SIZE, 2000, np.uint16)


class Folder:
    """Three images with a box each and maps; the tests change the map of the second image."""

    def __init__(self, path: Path, make: Callable[[], NDArray[Any]]) -> None:
        self.path = path
        for name in ("images", "maps"):
            (path / name).mkdir()
        content: dict[str, Any] = {"images": [], "annotations": [], "categories": [{"id": 1, "name": "thing"}]}
        for number in (1, 2, 3):
            pixels = np.random.default_rng(number).integers(0, 256, (*SIZE, 3), np.uint8)
            Image.fromarray(pixels).save(path / f"images/{number}.png")
            Image.fromarray(make()).save(path / f"maps/{number}.png")
            content["images"].append({"id": number, "file_name": f"{number}.png", "width": SIZE[1], "height": SIZE[0]})
            box = {"bbox": [10 + number, 10, 20 - number, 15], "area": 300, "iscrowd": 0}
            content["annotations"].append({"id": number, "image_id": number, "category_id": 1} | box)
        self.json = path / "a.json"
        self.write(content)

    def write(self, content: dict[str, Any]) -> None:
        self.json.write_text(json.dumps(content))

    def check(self, text: str, **more: Any) -> CheckSummary:
        return check_coco(self.json, self.path / "images", maps=dict([read_map(text)]), **more)

    def load(self, text: str) -> da.Batch:
        """Return what the loader makes of the maps; its error is that of the check."""
        reader = da.CocoReader(self.path / "images", self.json, maps=dict([read_map(text)]))
        loader = da.Loader(reader, [da.Resize(SIZE)], batch_size=3, train=False, device="cpu")
        batch: da.Batch = next(iter(loader))
        assert batch.maps[text.partition("=")[0]].shape == (3, *SIZE)
        return batch


def save(path: Path, values: NDArray[Any]) -> None:
    Image.fromarray(values).save(path)


def as_jpeg(path: Path) -> None:
    path.unlink()
    save(path.with_suffix(".jpg"), scene())


def as_tiff_of_jpeg(path: Path) -> None:
    path.unlink()
    Image.fromarray(scene()).save(path.with_suffix(".tif"), compression="jpeg")


def as_colors(path: Path) -> None:
    palette = np.array([[0, 0, 0], [128, 0, 0]], np.uint8)
    save(path, palette[scene() % 255])


def values_of_rooms(path: Path) -> None:
    Image.fromarray(scene().astype(np.uint16) + 300).save(path)


def one_bit(path: Path) -> None:
    Image.fromarray(scene() == 1).save(path)


def as_wide(path: Path) -> None:
    save(path, np.zeros((30, 30), np.uint8))


# kind of finding, what stands in the place of the second map, what the message says, the remedy: a change of the files,
# or the settings with which there is no such finding; None where the settings would change what others find
CASES: list[tuple[str, Callable[[Path], Any], str, str]] = [
    ("map-missing", lambda path: path.unlink(), "it would be 2.png", "semantic=maps,missing=ignore"),
    ("map-lossy", as_jpeg, "2.jpg is JPEG or WebP, which changes numbers; save PNG", ""),
    ("map-lossy", as_tiff_of_jpeg, "save the map as PNG", ""),
    ("map-broken", lambda path: path.write_bytes(b"no image"), "does not decode", ""),
    ("map-broken", lambda path: path.write_bytes(path.read_bytes()[:60]), "does not decode", ""),
    ("map-size", as_wide, "has 30 x 30 pixels, where the image has 40 x 30", ""),
    ("map-size", lambda path: save(path, scene().T), "EXIF orientation were not applied; turn it too", ""),
    ("map-colors", as_colors, "colors where numbers of classes are expected", ""),
    ("map-value", values_of_rooms, "has the value 300, where a class is in 0..255", ""),
    ("map-value", lambda path: save(path, scene() + 3), "where its ClassMap has 2 classes, 0..1", ""),
    ("map-scaled", lambda path: save(path, scene()[::2, ::2]), "has 20 x 15 pixels, the image 40 x 30", ""),
    ("map-bits", one_bit, "one bit per pixel, read as 0 and 1", ""),
    ("map-empty", lambda path: save(path, scene() | 255), "only the value 255, which is ignored", ""),
]


@pytest.mark.parametrize(("kind", "change", "message", "settings"), CASES, ids=[each[0] for each in CASES])
def test_each_kind_is_found_and_its_remedy_works(
    tmp_path: Path, kind: str, change: Callable[[Path], Any], message: str, settings: str
) -> None:
    folder, usual = Folder(tmp_path, scene), "semantic=maps,classes=road,car"
    path = tmp_path / "maps/2.png"
    change(path)
    summary = folder.check(usual, clean=tmp_path / "clean.json")
    assert summary.kind_counts == {kind: 1}
    (finding,) = summary.findings
    assert finding.file_name == "2.png"
    assert message in finding.message
    is_error = CHECK_KINDS[kind].effect == "error"
    assert (summary.errors, summary.warnings) == (int(is_error), int(not is_error))
    if is_error:
        with pytest.raises((DataError, InputError)):
            folder.load(usual)
    else:
        folder.load(usual)
    images = json.loads((tmp_path / "clean.json").read_text())["images"]
    assert [image["id"] for image in images] == ([1, 3] if is_error else [1, 2, 3])
    if settings:
        assert folder.check(settings).kind_counts == {}
        folder.load(settings)
    for other in path.parent.glob("2.*"):
        other.unlink()
    save(path, scene())
    assert folder.check(usual).kind_counts == {}


def test_a_table_of_colors_on_the_command_line_is_the_remedy_of_colors(tmp_path: Path) -> None:
    folder = Folder(tmp_path, scene)
    for number in (1, 2, 3):
        as_colors(tmp_path / f"maps/{number}.png")
    assert folder.check("semantic=maps").kind_counts == {"map-colors": 3}
    (tmp_path / "colors.json").write_text('{"0,0,0": 0, "128,0,0": 1}')
    text = f"semantic=maps,table={tmp_path / 'colors.json'}"
    assert folder.check(text).kind_counts == {}
    assert folder.load(text).maps["semantic"].unique().tolist() == [0, 1]
    (tmp_path / "colors.json").write_text('{"0,0,0": 0, "100,0,0": 1}')
    assert "has the value (128, 0, 0), which is not in the table" in str(folder.check(text))
    (tmp_path / "colors.json").write_text("[1]")
    with pytest.raises(InputError, match="table of a map must be cityscapes, ade20k or a JSON file"):
        read_map(text)


def test_masks_of_0_and_255_are_found_as_one_and_the_table_is_the_remedy(tmp_path: Path) -> None:
    """A map of VOC may have only 0 and 255, so all maps together tell."""
    folder = Folder(tmp_path, lambda: (scene() == 1).astype(np.uint8) * 255)
    summary = folder.check("semantic=maps")
    assert summary.kind_counts == {"map-bits": 3}
    assert "ClassMap(table={0: 0, 255: 1})" in str(summary)
    (tmp_path / "table.json").write_text('{"0": 0, "255": 1}')
    text = f"semantic=maps,table={tmp_path / 'table.json'}"
    assert folder.check(text).kind_counts == {}
    assert folder.load(text).maps["semantic"].unique().tolist() == [0, 1]
    save(tmp_path / "maps/2.png", scene())
    assert folder.check("semantic=maps").kind_counts == {}


@pytest.mark.parametrize(
    ("values", "message", "settings"),
    [
        (np.zeros(SIZE, np.uint16), "no depth in it is known", ""),
        (np.full(SIZE, 2, np.uint8), "its middle depth is 0.002 m; give DepthMap(scale=)", "depth=maps,scale=1"),
        (np.full(SIZE, 2000, np.float32), "its middle depth is 2e+03 m", "depth=maps,scale=1/1000"),
        (np.linspace(-1, 9, 1200, dtype=np.float32).reshape(SIZE), "10 % of its values are negative", ""),
        (np.where(scene() == 255, np.inf, np.float32(3)), "3.3 % of its values are not finite", ""),
    ],
    ids=["none", "meters as whole numbers", "millimeters as floats", "negative", "infinite"],
)
def test_depths_that_are_none(tmp_path: Path, values: NDArray[Any], message: str, settings: str) -> None:
    folder = Folder(tmp_path, depths)
    for number in (1, 2, 3):
        (tmp_path / f"maps/{number}.png").unlink()
        np.save(tmp_path / f"maps/{number}.npy", values)
    summary = folder.check("depth=maps")
    assert summary.kind_counts == {"depth-invalid": 3}
    assert message in str(summary)
    folder.load("depth=maps")
    if settings:
        assert folder.check(settings).kind_counts == {}


def test_fractions_of_pixels(tmp_path: Path) -> None:
    folder = Folder(tmp_path, scene)
    text = "semantic=maps,classes=road,car,fish"
    summary = folder.check(text, report=tmp_path / "report.json")
    (maps,) = summary.maps
    total = SIZE[0] * SIZE[1]
    wanted = {"road": (total - 300 - 40) / total, "car": 300 / total, "fish": 0, "ignored": 40 / total}
    assert maps.fractions == pytest.approx(wanted)
    assert "map semantic: 3 files in " in str(summary)
    assert "  road       71.7 %\n  car        25.0 %\n  fish        0.0 %\n  ignored     3.3 %\n" in str(summary)
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["maps"]["semantic"]["fractions"] == pytest.approx(wanted)
    for number in (1, 2, 3):
        save(tmp_path / f"maps/{number}.png", np.where(scene() == 255, 0, 2000).astype(np.uint16))
    assert ", 96.7 % of the pixels known, 2 to 2 m" in str(folder.check("depth=maps"))


def test_maps_without_boxes_are_ready_for_training(tmp_path: Path) -> None:
    folder = Folder(tmp_path, scene)
    folder.write(json.loads(folder.json.read_text()) | {"annotations": []})
    assert "no object to train on" in str(check_coco(folder.json, tmp_path / "images"))
    summary = folder.check("semantic=maps", clean=tmp_path / "clean.json")
    assert "0 errors, 0 warnings: ready for training" in str(summary)
    assert (tmp_path / "clean.json").is_file()


def test_the_page_has_the_map_and_the_fractions(tmp_path: Path) -> None:
    folder = Folder(tmp_path, scene)
    save(tmp_path / "maps/2.png", scene()[::2, ::2])
    Image.new("RGB", SIZE[::-1], (255, 255, 255)).save(tmp_path / "images/2.png")
    page = tmp_path / "page.html"
    settings = f"semantic={tmp_path / 'maps'},classes=road,car"
    result = detaug("check", str(folder.json), str(tmp_path / "images"), "--map", settings, "--html", str(page))
    assert result.code == 0
    content = Page(page.read_text())
    assert "25.2 %" in content.text
    (picture,) = content.pictures("jpeg")
    middle = np.array(picture.convert("RGB").getpixel((120, 100)), float)
    assert np.abs(middle - (np.array(class_color("car")) + 255) / 2).max() < 6


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("maps", "map must be NAME=FOLDER, such as semantic=SegmentationClass"),
        ("semantic=nowhere", "the map 'semantic': no such folder: nowhere"),
        ("semantic=maps,suffix=_mask", "none of 3 images has a map 'semantic' there; it would be 1_mask.png"),
        ("semantic=maps,scale=2", "must have keys of classes, ignore, missing, suffix, table and kind, got 'scale'"),
        ("semantic=maps,kind=flow", "kind of the map 'semantic' must be classes or depth, got 'flow'"),
        ("panoptic=maps", "must be classes or depth, got 'panoptic'; da.CocoReader(maps=) checks panoptic maps, and"),
        ("a=maps,kind=panoptic", "kind of the map 'a' must be classes or depth, got 'panoptic'"),
        ("semantic=maps,ignore=0,suffix=,ignore=0", "the map 'semantic' must have each key once, got ignore=0,suffix="),
        ("semantic=maps,ignore=x", "ignore of a map must be a number, got 'x'"),
        ("depth=maps,scale=1/0", "scale of a map must be a number, got '1/0'"),
    ],
)
def test_usage_errors(tmp_path: Path, text: str, message: str) -> None:
    folder = Folder(tmp_path, scene)
    assert message in usage_error("check", str(folder.json), str(tmp_path / "images"), "--map", text)


def test_a_map_is_named_once(tmp_path: Path) -> None:
    folder = Folder(tmp_path, scene)
    twice = ("--map", "semantic=maps", "--map", "semantic=maps")
    assert "each map once" in usage_error("check", str(folder.json), str(tmp_path / "images"), *twice)
