"""The demo's dataset: files agree with the painted images."""

from __future__ import annotations

import hashlib
import json
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from detaug.converters import check_coco, voc_to_coco
from detaug.demo import shapes
from detaug.demo.shapes import compose, make_voc
from detaug.demo.textures import photograph
from detaug.demo.things import THINGS, draw_thing

CLASSES = {"ball", "car", "fish", "house", "mug", "tree"}
WATER = [n for n in range(40) if n % 5 == 3 and n % 14 != 4]


def some_slow(values: Sequence[int], quick: int) -> list[Any]:
    """Mark all but the first `quick` values of a parameter as slow: painting an image takes 0.3 s."""
    return [*values[:quick], *(pytest.param(value, marks=pytest.mark.slow) for value in values[quick:])]


@pytest.fixture(scope="module")
def voc(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_voc(tmp_path_factory.mktemp("demo") / "voc", images=15)


def read_xml(root: Path) -> dict[str, ET.Element]:
    return {path.stem: ET.parse(path).getroot() for path in sorted((root / "Annotations").iterdir())}


def corners(element: ET.Element) -> list[float]:
    return [float(element.findtext(f"bndbox/{tag}", "")) for tag in ("xmin", "ymin", "xmax", "ymax")]


def digest(root: Path) -> str:
    files = sorted(path for path in root.rglob("*") if path.is_file())
    parts = [bytes(path.relative_to(root)) + path.read_bytes() for path in files]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def white_pixels(size: tuple[int, int], sprites: list[shapes.Sprite], k: int) -> Any:
    """Return (H, W): the image with sprite k in white and all else in black."""
    picture = Image.new("L", size)
    for j, sprite in enumerate(sprites):
        picture.paste(255 if j == k else 0, sprite.xy, sprite.image.getchannel("A"))
    return np.asarray(picture)


# ---------------------------------------------------------------- the files


def test_the_tree_is_that_of_pascal_voc(voc: Path) -> None:
    names = [f"{n:06d}" for n in range(1, 16)]
    assert sorted(path.name for path in (voc / "JPEGImages").iterdir()) == [f"{name}.jpg" for name in names]
    assert sorted(read_xml(voc)) == names
    splits = {path.stem: path.read_text().split() for path in (voc / "ImageSets/Main").iterdir()}
    assert splits == {"train": names[:12], "val": names[12:], "trainval": names}


def test_the_xml_has_the_size_of_the_file(voc: Path) -> None:
    for name, root in read_xml(voc).items():
        with Image.open(voc / "JPEGImages" / f"{name}.jpg") as image:
            assert [root.findtext(f"size/{tag}") for tag in ("width", "height", "depth")] == [
                str(image.width), str(image.height), "3"]  # fmt: skip
        assert root.findtext("filename") == f"{name}.jpg"


def test_the_pictures_are_like_photographs(voc: Path) -> None:
    sizes = [path.stat().st_size for path in (voc / "JPEGImages").iterdir()]
    assert min(sizes) > 35_000
    assert 45_000 < np.median(sizes) < 90_000
    roots = read_xml(voc).values()
    seen = {(root.findtext("size/width"), root.findtext("size/height")) for root in roots}
    assert {("500", "375"), ("375", "500")} < seen


def test_every_kind_of_object_is_there(voc: Path) -> None:
    objects = [element for root in read_xml(voc).values() for element in root.iter("object")]
    assert {element.findtext("name") for element in objects} == CLASSES == set(THINGS)
    for flag in ("truncated", "occluded", "difficult"):
        assert {element.findtext(flag) for element in objects} == {"0", "1"}
    widths = [x2 - x1 for x1, _, x2, _ in map(corners, objects)]
    assert min(widths) < 20
    assert max(widths) > 200


@pytest.mark.parametrize("seed", some_slow(range(4), 1))
def test_five_pictures_include_an_empty_one_a_difficult_object_and_a_decimal(tmp_path: Path, seed: int) -> None:
    roots = read_xml(make_voc(tmp_path, images=5, seed=seed)).values()
    assert any(root.find("object") is None for root in roots)
    assert any(element.text == "1" for root in roots for element in root.iter("difficult"))
    assert any(value % 1 for root in roots for element in root.iter("object") for value in corners(element))


@pytest.mark.parametrize("seed", some_slow(range(4, 24), 3))
def test_the_small_ball_is_difficult_and_has_decimals_whatever_the_seed(seed: int) -> None:
    ball = shapes.paint(2, seed)[1][-1]
    assert (ball.name, ball.difficult, ball.occluded, ball.truncated) == ("ball", True, False, False)
    assert any(value % 1 for value in ball.box)


def test_boxes_are_counted_from_one_and_end_in_the_picture(voc: Path) -> None:
    boxes, sizes = [], []
    for root in read_xml(voc).values():
        for element in root.iter("object"):
            boxes.append(corners(element))
            sizes.append([float(root.findtext(f"size/{tag}", "")) for tag in ("width", "height")])
    first, last = np.array(boxes)[:, :2], np.array(boxes)[:, 2:]
    assert first.min() == 1
    assert (last <= np.array(sizes)).all()
    assert (last == np.array(sizes)).any()
    assert (first <= last).all()


def test_masks_are_those_of_the_boxes_and_in_the_colours_of_voc(voc: Path, tmp_path: Path) -> None:
    summary = voc_to_coco(voc, tmp_path / "objects.json", masks=True)
    assert set(summary.kind_counts) <= {"coordinate-zero"}
    found = check_coco(tmp_path / "objects.json", voc / "JPEGImages")
    assert not [kind for kind in found.kind_counts if kind.startswith("segmentation")]
    rows = json.loads((tmp_path / "objects.json").read_text())["annotations"]
    assert all(row["segmentation"]["counts"] for row in rows)
    with Image.open(voc / "SegmentationObject/000001.png") as picture:
        colors = {color for _, color in picture.convert("RGB").getcolors() or []}
        assert colors <= {(0, 0, 0), (128, 0, 0), (0, 128, 0), (128, 128, 0), (0, 0, 128), (128, 0, 128)}
        assert len(colors) == len(read_xml(voc)["000001"].findall("object")) + 1


def test_maps_of_classes_are_where_the_objects_are(voc: Path, tmp_path: Path) -> None:
    voc_to_coco(voc, tmp_path / "objects.json")
    rows = json.loads((tmp_path / "objects.json").read_text())
    names = {row["id"]: row["name"] for row in rows["categories"]}
    numbers = {name: number for number, name in enumerate(sorted(set(names.values())), 1)}
    for image in rows["images"][:12]:
        stem = Path(image["file_name"]).stem
        objects, classes = (
            np.asarray(Image.open(voc / f"Segmentation{kind}/{stem}.png")) for kind in ("Object", "Class")
        )
        xml = [each.findtext("name", "") for each in read_xml(voc)[stem].findall("object")]
        wanted = np.array([0, *(numbers[name] for name in xml)])[objects]
        assert (classes == wanted).all()


@pytest.mark.slow
def test_the_same_seed_gives_the_same_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shapes, "paint", shapes.paint.__wrapped__)  # type: ignore[attr-defined]
    first, again = (digest(make_voc(tmp_path / "a", images=2, seed=7)) for _ in range(2))
    assert first == again
    assert digest(make_voc(tmp_path / "b", images=2, seed=8)) != first
    one = make_voc(tmp_path / "c", images=1, seed=7)
    assert (one / "JPEGImages/000001.jpg").read_bytes() == (tmp_path / "a/JPEGImages/000001.jpg").read_bytes()


@pytest.mark.parametrize("images", [0, -3])
def test_no_pictures_is_an_error_before_anything_is_written(tmp_path: Path, images: int) -> None:
    with pytest.raises(ValueError, match=f"images must be at least 1, got {images}"):
        make_voc(tmp_path / "voc", images=images)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- the boxes


@pytest.mark.parametrize("n", some_slow([n for n in range(17) if n % 14 != 4], 2))
def test_a_box_surrounds_the_visible_pixels(n: int) -> None:
    picture, sprites = compose(n)
    kept = [view.sprite for view in shapes.cut_views(sprites, picture.size)]
    things = shapes.paint(n)[1]
    assert [thing.name for thing in things] == [sprite.name for sprite in kept]
    for k, thing in enumerate(things):
        visible = white_pixels(picture.size, kept, k) > 127
        tight = Image.fromarray(visible).getbbox()
        decimals = n % 5 == 1 or n % 15 == 2
        assert thing.box == pytest.approx(tight, abs=1 if thing.occluded else 0.501 if decimals else 0)


@pytest.mark.parametrize("n", some_slow(WATER, 2))
def test_all_boxes_together_are_where_the_picture_differs_from_the_empty_scene(n: int) -> None:
    """Measured on the finished images: under water nothing casts a shadow."""
    picture, things = shapes.paint(n)
    empty = photograph(compose(n)[0], np.random.default_rng([0, n, 1]))
    changed = np.abs(np.asarray(picture, int) - np.asarray(empty, int)).max(2) > 24
    left, top, right, bottom = np.array([thing.box for thing in things]).T
    hull = (left.min(), top.min(), right.max(), bottom.max())
    assert Image.fromarray(changed).getbbox() == pytest.approx(hull, abs=1.5)
    outside = changed.copy()
    for x1, y1, x2, y2 in (thing.box for thing in things):
        outside[max(0, int(y1) - 1) : int(y2) + 1, max(0, int(x1) - 1) : int(x2) + 1] = False
    assert not outside.any()


def test_decimals_are_the_covered_part_of_a_pixel() -> None:
    assert shapes._edges(np.array([0, 0.3, 1, 1, 0.2, 0])) == pytest.approx((1.7, 4.2))
    assert shapes._edges(np.array([0.8, 1, 0.6])) == pytest.approx((0.2, 2.6))
    assert shapes._edges(np.array([1.0, 1, 1])) == (0, 3)


def test_voc_counts_the_first_pixel_as_one_and_keeps_the_last() -> None:
    thing = shapes.Thing("ball", (0, 10, 500, 20.5), False, False, False, np.ones((1, 1), bool))
    element = shapes._annotation("a.jpg", (500, 375), [thing]).getroot()
    assert [corners(found) for found in element.iter("object")] == [[1, 11, 500, 20.5]]


def test_flags_follow_the_visible_pixels() -> None:
    whole = Image.new("RGBA", (40, 40), (9, 9, 9, 255))
    behind, cut = shapes.Sprite("mug", whole, (10, 10)), shapes.Sprite("car", whole, (80, 10))
    front = shapes.Sprite("ball", whole, (10, 34))
    views = shapes.cut_views([behind, cut, front], (100, 100))
    things = [shapes._thing(view, decimals=False) for view in views]
    assert [thing.box for thing in things] == [(10, 10, 50, 34), (80, 10, 100, 50), (10, 34, 50, 74)]
    assert [thing.occluded for thing in things] == [True, False, False]
    assert [thing.truncated for thing in things] == [False, True, False]
    assert [thing.difficult for thing in things] == [False, False, False]


@pytest.mark.parametrize(("seen", "difficult"), [(16, True), (20, False)])
def test_a_mostly_hidden_thing_is_difficult(seen: int, difficult: bool) -> None:
    whole = Image.new("RGBA", (40, 40), (9, 9, 9, 255))
    behind, front = shapes.Sprite("mug", whole, (10, 10)), shapes.Sprite("ball", whole, (10, 10 + seen))
    views = shapes.cut_views([behind, front], (100, 100))
    assert [shapes._thing(view, decimals=False).difficult for view in views] == [difficult, False]


def test_a_nearly_hidden_thing_is_left_out() -> None:
    whole = Image.new("RGBA", (40, 40), (9, 9, 9, 255))
    behind, front = shapes.Sprite("mug", whole, (10, 10)), shapes.Sprite("ball", whole, (10, 20))
    assert [view.sprite.name for view in shapes.cut_views([behind, front], (100, 100))] == ["ball"]
    assert shapes.cut_views([shapes.Sprite("mug", whole, (-300, 10))], (100, 100)) == []


@pytest.mark.parametrize("name", sorted(THINGS))
@pytest.mark.parametrize("side", [8, 15, 60, 220])
def test_a_thing_fills_its_sprite_with_soft_edges(name: str, side: int) -> None:
    sprite = draw_thing(name, np.random.default_rng(3), side)
    alpha = np.asarray(sprite.getchannel("A"))
    assert sprite.mode == "RGBA"
    assert sprite.getbbox() == (0, 0, *sprite.size)
    assert 0.5 * side < max(sprite.size) < 1.5 * side
    assert ((alpha > 0) & (alpha < 255)).any()
    assert np.asarray(sprite.convert("RGB"))[alpha == 255].std() > 10
