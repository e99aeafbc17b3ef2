"""Maps on contact sheets: in their colors, and where the pixels are that they belong to."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from command import detaug, usage_error
from PIL import Image

import detaug as da
from detaug.drawing import MapMarks, draw_map
from detaug.drawing.colors import class_color
from detaug.drawing.maps import depth_limits
from detaug.errors import InputError
from detaug.sheets import batch_sheet
from detaug.sheets.maps import SheetMaps
from detaug.sheets.photos import read_photos
from detaug.sheets.recipe_sheets import augment

WHITE = Image.new("RGB", (80, 60), (255, 255, 255))
COLORS = {"car": (200, 0, 0), "road": (0, 100, 0)}
KINDS = {
    "semantic": da.ClassMap("maps", classes=["background", "car", "road"]),
    "depth": da.DepthMap("depth"),
}


def test_classes_have_their_colors() -> None:
    values = np.repeat(np.array([[0, 1, 2, 255]], np.uint8), 20, axis=1)
    marks = MapMarks(values, 255, {0: "background", 1: "car", 2: "road"})
    drawn = np.asarray(draw_map(WHITE, marks, COLORS)).astype(int)
    assert (drawn[:, 2:17] == 255).all()
    assert (drawn[:, 22:37] == [228, 128, 128]).all()
    assert (drawn[:, 42:57] == [128, 178, 128]).all()
    assert {*np.unique(drawn[:, 62:].ravel()).tolist()} == {128, 255}  # stripes
    assert marks.class_names() == ["car", "road"]


def test_depths_are_lighter_where_they_are_nearer() -> None:
    values = np.tile(np.linspace(1, 9, 80, dtype=np.float32), (60, 1))
    values[:10] = 0
    drawn = np.asarray(draw_map(WHITE, MapMarks(values, 0, limits=depth_limits([values])), {})).astype(int)
    assert (np.diff(drawn[30].sum(1)) <= 2).all()
    assert drawn[30, 0].tolist() != drawn[30, -1].tolist()
    assert {*np.unique(drawn[:10]).tolist()} == {128, 255}


def test_a_map_of_no_shape_is_refused() -> None:
    with pytest.raises(InputError, match=r"values of a map must be \(H, W\), got shape \(3, 4, 5\)"):
        draw_map(WHITE, MapMarks(np.zeros((3, 4, 5)), 0), {})


@pytest.fixture
def reader(tmp_path: Path) -> da.CocoReader:
    """Three images whose red is 60 times their class, each with other stripes."""
    for name in ("images", "maps", "depth"):
        (tmp_path / name).mkdir()
    content = {"images": [], "annotations": [], "categories": [{"id": 1, "name": "thing"}]}
    for number in (1, 2, 3):
        classes = np.zeros((60, 80), np.uint8)
        classes[:, 20 * number - 20 : 20 * number] = 1
        classes[40 - 10 * number :, 60:] = 2
        pixels = np.stack([classes * 60 + 60, classes * 0 + 200, classes * 0 + 200], axis=2)
        Image.fromarray(pixels).save(tmp_path / f"images/{number}.png")
        Image.fromarray(classes).save(tmp_path / f"maps/{number}.png")
        Image.fromarray((classes + 1).astype(np.uint16) * 1000).save(tmp_path / f"depth/{number}.png")
        content["images"].append({"id": number, "file_name": f"{number}.png", "width": 80, "height": 60})
        box = {"image_id": number, "category_id": 1, "bbox": [60, 30, 15, 20], "area": 300, "iscrowd": 0}
        content["annotations"].append({"id": number} | box)
    (tmp_path / "a.json").write_text(json.dumps(content))
    return da.CocoReader(tmp_path / "images", tmp_path / "a.json", maps=KINDS)


@pytest.mark.parametrize(
    "ops",
    [
        [da.RandomHorizontalFlip(p=1), da.RandomAffine(degrees=20, fill=(0, 0, 0))],
        [da.Resize((64, 64)), da.Mosaic(p=1)],
        [da.Resize((120, 160)), da.OpticalDistortion(distort=(0.5, 0.6), p=1, fill=(0, 0, 0))],
    ],
    ids=["turned", "mosaic", "bent"],
)
def test_maps_of_samples_follow_their_pixels(reader: da.CocoReader, ops: list[da.Op]) -> None:
    rows = [2, 0, 1]
    samples = augment(read_photos(reader, rows), ops, seed=5).samples
    marks = SheetMaps(reader, rows).of_samples(samples, "semantic", range(3))
    for image, own in zip(samples.images, marks, strict=True):
        assert own is not None
        assert own.values.shape == image.shape[:2]
        red = np.asarray(image)[..., 0].astype(int)
        for value in (0, 1, 2):
            clear = abs(red - 60 * value - 60) <= 1
            wrong = clear & (own.values != value)
            assert wrong.sum() <= 0.02 * clear.sum()
        assert np.isin(own.values, (0, 1, 2)).mean() > 0.3


def test_a_preview_has_a_row_for_each_map(reader: da.CocoReader, tmp_path: Path) -> None:
    sheet, maps = tmp_path / "sheet.png", ["--map", f"semantic={tmp_path / 'maps'},classes=background,car,road"]
    command = ["preview", tmp_path / "a.json", tmp_path / "images", "-o", sheet, "--rows", "2", "--columns", "2"]
    (tmp_path / "recipe.json").write_text(json.dumps([{"Resize": {"size": [60, 80]}}]))
    command += ["--recipe", tmp_path / "recipe.json", "--size", "160"]
    assert detaug(*command, *maps).code == 0
    one = Image.open(sheet).convert("RGB")
    assert detaug(*command, *maps, "--map", f"depth={tmp_path / 'depth'}").code == 0
    two = Image.open(sheet).convert("RGB")
    assert two.height > one.height + 200
    # the source and its draws have the same map, of each row its own
    pixels = np.asarray(one).astype(int)
    wanted = (np.array([120, 200, 200]) + class_color("car")) // 2
    rows, columns = np.nonzero(abs(pixels - wanted).max(2) <= 2)
    strips = [{*columns[rows // (one.height // 2) == half].tolist()} for half in (0, 1)]
    assert all(len(strip) > 60 for strip in strips)
    assert "--map is for images" in usage_error(*command[:4], sheet, "--frames", "2", *maps)


def test_a_batch_is_drawn_with_one_map(reader: da.CocoReader) -> None:
    batch = next(iter(da.Loader(reader, [da.Resize((60, 80))], batch_size=3, train=False, device="cpu")))
    first, named = batch_sheet(batch, reader.class_names), batch_sheet(batch, reader.class_names, map="semantic")
    assert first.tobytes() == named.tobytes()
    assert batch_sheet(batch, reader.class_names, map="depth").tobytes() != named.tobytes()
    with pytest.raises(
        InputError, match="map must be one of the batch's maps of classes or depths, semantic, depth; got 'x'"
    ):
        batch_sheet(batch, map="x")
