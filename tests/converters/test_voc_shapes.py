"""VOC's masks and roLabelImg's rotated boxes to COCO JSON."""

from __future__ import annotations

import io
import json
import math
import shlex
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import detaug
from lxml import etree
from numpy.typing import NDArray
from PIL import Image, ImageDraw
from pycocotools import mask as coco_mask
from voc_files import box_xml, convert, devkit, voc_xml

from detaug.converters import ConversionError, coco_to_voc
from detaug.converters.voc.masks import read_masks

SIZE = (100, 80)


def png(*shapes: tuple[int, tuple[int, int, int, int]], size: tuple[int, int] = SIZE, mode: str = "P") -> bytes:
    """Return a PNG with rectangles (number, (left, top, right, bottom)), the last pixel included."""
    image = Image.new(mode, size)
    if mode == "P":
        image.putpalette([value for n in range(256) for value in (n, 255 - n, n * 7 % 256)])
    for number, corners in shapes:
        ImageDraw.Draw(image).rectangle(corners, fill=number if mode != "RGB" else (number, 0, 0))
    content = io.BytesIO()
    image.save(content, "PNG")
    return content.getvalue()


def data_set(folder: Path, objects: str, masks: bytes | None) -> Path:
    root = devkit(folder / "voc", {"a": voc_xml(objects)})
    (root / "SegmentationObject").mkdir()
    if masks is not None:
        (root / "SegmentationObject/a.png").write_bytes(masks)
    return root


def decoded(row: dict[str, Any]) -> NDArray[np.bool_]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # pycocotools is older than NumPy 2
        return np.asarray(coco_mask.decode(row["segmentation"]), bool)


OBJECTS = box_xml(11, 11, 40, 40) + box_xml(51, 21, 80, 60, name="dog")  # pixels count from 1
FIRST, SECOND = (10, 10, 39, 39), (50, 20, 79, 59)


@pytest.mark.parametrize("mode", ["P", "L"])
def test_masks_are_those_that_pycocotools_decodes(tmp_path: Path, mode: str) -> None:
    content = png((255, (8, 8, 41, 41)), (1, FIRST), (2, SECOND), (0, (20, 20, 25, 25)), mode=mode)
    document, summary = convert(data_set(tmp_path, OBJECTS, content), masks=True)
    numbers = np.asarray(Image.open(io.BytesIO(content)))
    for number, row in enumerate(document["annotations"], 1):
        assert (decoded(row) == (numbers == number)).all()
        assert row["area"] == (numbers == number).sum()
    assert [row["bbox"] for row in document["annotations"]] == [[10, 10, 30, 30], [50, 20, 30, 40]]
    assert summary.kind_counts == {}
    assert all("segmentation" not in row for row in convert(tmp_path / "voc")[0]["annotations"])


def voc_color(number: int) -> tuple[int, ...]:
    """Return a color of VOC's map, as VOClabelcolormap.m computes it."""
    color = [0, 0, 0]
    for shift in range(7, -1, -1):
        for channel in range(3):
            color[channel] |= (number >> channel & 1) << shift
        number >>= 3
    return tuple(color)


def test_masks_may_be_larger_than_the_limit_of_pillow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.png").write_bytes(png((1, FIRST)))
    expected = read_masks(str(tmp_path / "a.png"), (80, 100))
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)
    assert np.array_equal(read_masks(str(tmp_path / "a.png"), (80, 100)), expected)


def test_masks_in_colours_are_those_of_their_numbers(tmp_path: Path) -> None:
    assert [voc_color(number) for number in (1, 2, 21, 255)] == [
        (128, 0, 0),
        (0, 128, 0),
        (128, 64, 128),
        (224, 224, 192),
    ]
    numbers = np.arange(8000).reshape(80, 100) % 256
    colors = np.array([voc_color(number) for number in range(256)], np.uint8)[numbers]
    content = io.BytesIO()
    Image.fromarray(colors).save(content, "PNG")
    (tmp_path / "a.png").write_bytes(content.getvalue())
    found = read_masks(str(tmp_path / "a.png"), (80, 100))
    assert isinstance(found, np.ndarray)
    assert (found == numbers).all()


def test_numbers_count_all_objects_of_the_xml(tmp_path: Path) -> None:
    document, summary = convert(data_set(tmp_path, OBJECTS, png((1, FIRST), (2, SECOND))), masks=True, classes=["dog"])
    (row,) = document["annotations"]
    assert coco_mask.toBbox(row["segmentation"]).tolist() == row["bbox"] == [50, 20, 30, 40]
    assert summary.kind_counts == {"class-not-listed": 1}


def test_a_small_mask_inside_of_its_void_border(tmp_path: Path) -> None:
    """8 x 8 of the 12 x 12 pixels of the box; it would go to another box that fits better."""
    small, inside = box_xml(11, 11, 22, 22), (12, 12, 19, 19)
    objects = small + box_xml(51, 21, 80, 60, name="dog")
    document, summary = convert(data_set(tmp_path / "a", objects, png((1, inside), (2, SECOND))), masks=True)
    assert [coco_mask.area(row["segmentation"]) for row in document["annotations"]] == [64, 1200]
    assert summary.kind_counts == {}
    objects = small + box_xml(13, 13, 20, 20, name="dog")
    document, _ = convert(data_set(tmp_path / "b", objects, png((1, inside))), masks=True)
    assert ["segmentation" in row for row in document["annotations"]] == [False, True]


def test_masks_in_another_order_go_to_the_boxes_that_they_fit(tmp_path: Path) -> None:
    shapes = png((2, FIRST), (1, SECOND), (7, (90, 70, 99, 79)))
    document, summary = convert(data_set(tmp_path, OBJECTS, shapes), masks=True)
    for row in document["annotations"]:
        assert coco_mask.toBbox(row["segmentation"]).tolist() == row["bbox"]
    assert summary.kind_counts == {"mask-unmatched": 1}
    assert summary.findings[0].before == 7


@pytest.mark.parametrize(
    ("masks", "kinds", "note"),
    [
        (None, {"mask-missing": 1}, ""),
        (png((1, FIRST)), {"mask-missing": 1}, ""),
        (
            png((1, FIRST), (2, SECOND), size=(50, 80)),
            {"mask-unusable": 1},
            "has 50 x 80 pixels, and its image 100 x 80",
        ),
        (png((1, FIRST), mode="RGB"), {"mask-unusable": 1}, "has colors that are not in VOC's color map"),
        (png((1, FIRST))[:60], {"mask-unusable": 1}, "cannot be read"),
        (b"GIF89a", {"mask-unusable": 1}, "cannot be read"),
    ],
)
def test_masks_that_are_missing_or_cannot_be_used(
    tmp_path: Path, masks: bytes | None, kinds: dict[str, int], note: str
) -> None:
    document, summary = convert(data_set(tmp_path, OBJECTS, masks), masks=True)
    assert (len(document["annotations"]), summary.kind_counts) == (2, kinds)
    assert note in summary.findings[0].note


def test_a_data_set_without_masks(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", {"a": voc_xml(OBJECTS)})
    with pytest.raises(ConversionError, match="SegmentationObject is not a folder; leave masks out"):
        convert(root, masks=True)
    convert(root)


def test_several_processes_give_the_same(tmp_path: Path) -> None:
    root = devkit(tmp_path / "voc", {f"{n}": voc_xml(OBJECTS) for n in range(70)})
    (root / "SegmentationObject").mkdir()
    for n in range(70):
        (root / f"SegmentationObject/{n}.png").write_bytes(png((1, FIRST), (2, SECOND)))
    assert convert(root, masks=True, jobs=2)[0] == convert(root, masks=True)[0]


def rotated_xml(x: float, y: float, width: float, height: float, angle: float, more: str = "") -> str:
    numbers = {"cx": x, "cy": y, "w": width, "h": height, "angle": angle}
    values = "".join(f"<{name}>{value}</{name}>" for name, value in numbers.items())
    return f"<object><type>robndbox</type><name>ship</name><robndbox>{values}</robndbox>{more}</object>"


@pytest.mark.parametrize("origin", ["one", "zero"])
def test_rotated_boxes_of_rolabelimg(tmp_path: Path, origin: str) -> None:
    """A clockwise turn on the screen takes the right end of a box down."""
    angle = math.radians(30)
    xml = voc_xml(rotated_xml(50, 40, 40, 10, angle), box_xml(11, 11, 20, 20))
    document, summary = convert(devkit(tmp_path / "voc", {"a": xml}), origin=origin)
    row = next(row for row in document["annotations"] if "corners" in row)
    corners = np.array(row["corners"])
    np.testing.assert_allclose(corners.mean(0), (50, 40), atol=1e-3)
    right = corners[[1, 2]].mean(0)
    np.testing.assert_allclose(right, (50 + 20 * math.cos(angle), 40 + 20 * math.sin(angle)), atol=1e-3)
    np.testing.assert_allclose(np.hypot(*(corners[1] - corners[0])), 40, atol=2e-3)
    low, high = corners.min(0), corners.max(0)
    np.testing.assert_allclose(row["bbox"], [*low, *(high - low)], atol=1e-3)
    assert (row["segmentation"], summary.kind_counts) == ([corners.ravel().tolist()], {})


def test_a_rotated_box_past_the_edge_keeps_its_corners(tmp_path: Path) -> None:
    document, _ = convert(devkit(tmp_path / "voc", {"a": voc_xml(rotated_xml(95, 40, 20, 10, 0))}))
    (row,) = document["annotations"]
    assert (row["corners"], row["bbox"]) == ([[85, 35], [105, 35], [105, 45], [85, 45]], [85, 35, 15, 10])


def test_shapes_have_no_place_in_voc_and_are_counted(tmp_path: Path) -> None:
    root = data_set(tmp_path, OBJECTS + rotated_xml(50, 40, 40, 10, 1), png((1, FIRST), (2, SECOND)))
    convert(root, masks=True)
    summary = coco_to_voc(tmp_path / "out.json", tmp_path / "again")
    dropped = {tuple(found.before) for found in summary.findings if found.kind == "key-dropped"}  # type: ignore[arg-type]
    assert {("annotations.segmentation", 3), ("annotations.corners", 1)} <= dropped


def turned(x: float, y: float, width: float, height: float, angle: float) -> NDArray[np.float64]:
    """Return (4, 2) corners, clockwise on the screen from the upper left one of the box before its turn."""
    half = np.array([-1 - 1j, 1 - 1j, 1 + 1j, -1 + 1j])
    places = x + 1j * y + (half.real * width + 1j * half.imag * height) / 2 * np.exp(1j * angle)
    return np.stack([places.real, places.imag], axis=1)


def coco_of(folder: Path, shapes: list[dict[str, Any]]) -> Path:
    """Write a.png, of 100 x 80, and a JSON file with an object for each shape, with the box around it."""
    Image.new("RGB", SIZE).save(folder / "a.png")
    rows = []
    for number, shape in enumerate(shapes, 1):
        points = np.array(shape.get("corners") or shape["segmentation"][0]).reshape(-1, 2)
        low, high = points.min(0).clip(0, SIZE), points.max(0).clip(0, SIZE)
        box = shape.get("bbox") or [*low.tolist(), *(high - low).tolist()]
        rows.append({"id": number, "image_id": 1, "category_id": 1, "bbox": box, "area": 1, "iscrowd": 0, **shape})
    images = [{"id": 1, "file_name": "a.png", "width": SIZE[0], "height": SIZE[1]}]
    path = folder / "train.json"
    path.write_text(json.dumps({"images": images, "annotations": rows, "categories": [{"id": 1, "name": "ship"}]}))
    return path


def robndboxes(path: Path) -> list[NDArray[np.float64]]:
    """Return the corners of each <robndbox>, by roLabelImg's rule."""
    boxes = etree.parse(str(path)).getroot().iterfind("object[type='robndbox']/robndbox")
    return [turned(*(float(box.findtext(name)) for name in ("cx", "cy", "w", "h", "angle"))) for box in boxes]


@pytest.mark.parametrize("origin", ["one", "zero"])
def test_rotated_boxes_go_to_rolabelimg_and_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, origin: str) -> None:
    rng = np.random.default_rng(0)
    sizes = rng.uniform((20, 20, 2, 2), (80, 60, 50, 30), (60, 4))
    angles = [0, math.pi / 2, math.pi, 3 * math.pi / 2, -1e-12, *rng.uniform(-4, 4, 55)]
    shapes = [turned(*size, angle).round(3) for size, angle in zip(sizes.tolist(), angles, strict=True)]
    keys = [{"corners": each.tolist(), "segmentation": [each.ravel().tolist()]} for each in shapes]
    keys[1::3] = [{"segmentation": each["segmentation"]} for each in keys[1::3]]  # as DOTA's COCO has them
    coco_of(tmp_path, [*keys, {"segmentation": [[5, 5, 30, 5, 30, 20]], "iscrowd": 0}])
    monkeypatch.chdir(tmp_path)
    summary = coco_to_voc("train.json", "voc", images=tmp_path, rotated=True, origin=origin)  # type: ignore[arg-type]
    np.testing.assert_allclose(robndboxes(tmp_path / "voc/Annotations/a.xml")[:-1], shapes, rtol=0, atol=1e-3)
    assert summary.kind_counts == {"outline-rectangle": 1}
    assert detaug(*shlex.split(summary.next_step.removeprefix("and back: detaug "))).code == 0
    back = json.loads((tmp_path / "train-again.json").read_text())["annotations"]
    np.testing.assert_allclose([row["corners"] for row in back[:-1]], shapes, rtol=0, atol=1.001e-3)
    assert sorted(back[-1]["corners"]) == [[5, 5], [5, 20], [30, 5], [30, 20]]


def test_what_is_no_rectangle_becomes_the_smallest_around_it(tmp_path: Path) -> None:
    quad, line = [[10, 10], [50, 12], [48, 40], [9, 44]], [[5.0, 5.0], [20.0, 5.0], [20.0, 5.0], [5.0, 5.0]]
    reversed_square = [[60, 20], [60, 40], [80, 40], [80, 20]]
    shapes: list[dict[str, Any]] = [{"corners": each} for each in (quad, reversed_square)]
    path = coco_of(tmp_path, [*shapes, {"corners": line, "bbox": [5, 5, 15, 2]}])
    summary = coco_to_voc(path, tmp_path / "voc", rotated=True)
    assert summary.kind_counts == {"outline-rectangle": 1, "box-outline": 1}
    around, square = robndboxes(tmp_path / "voc/Annotations/a.xml")
    image, inside = (Image.new("1", SIZE) for _ in range(2))
    ImageDraw.Draw(image).polygon([tuple(point) for point in quad], fill=1)
    ImageDraw.Draw(inside).polygon([tuple(point) for point in around.tolist()], fill=1)
    missed = np.asarray(image) & ~np.asarray(inside)
    assert missed.sum() <= 3  # pixels of the edge
    assert np.asarray(inside).sum() <= 1.2 * np.asarray(image).sum()
    assert {tuple(point) for point in square.round(6).tolist()} == {tuple(map(float, p)) for p in reversed_square}
    root = etree.parse(str(tmp_path / "voc/Annotations/a.xml")).getroot()
    assert [each.text for each in root.iter("type")] == ["robndbox", "robndbox", "bndbox"]


def polygon_xml(*points: tuple[float, float]) -> str:
    """Return a polygon as supervision, Roboflow and RectLabel write it."""
    numbers = "".join(f"<x{at}>{x}</x{at}><y{at}>{y}</y{at}>" for at, (x, y) in enumerate(points, 1))
    return f"<polygon>{numbers}</polygon>"


TRIANGLE = ((11, 21), (60, 21), (60, 70))


@pytest.mark.parametrize(("origin", "first"), [("one", 1), ("zero", 0)])
def test_polygons_beside_boxes(tmp_path: Path, origin: str, first: int) -> None:
    more = polygon_xml(*TRIANGLE) + polygon_xml((1, 2), (3, 2), (3, 5))
    objects = (box_xml(11, 21, 60, 70, more=more), box_xml(5, 5, 9, 9, more="<polygon/>"))
    document, summary = convert(devkit(tmp_path / "voc", {"a": voc_xml(*objects)}), origin=origin)
    row, plain = document["annotations"]
    rings = [[11, 21, 60, 21, 60, 70], [1, 2, 3, 2, 3, 5]]
    assert row["segmentation"] == [[number - first for number in ring] for ring in rings]
    assert (row["bbox"], row["area"]) == ([11 - first, 21 - first, 49 + first, 49 + first], 49 * 49 / 2 + 3)
    assert "segmentation" not in plain
    assert (summary.kind_counts, summary.next_step[-13:]) == ({}, ", masks=True)")


@pytest.mark.parametrize(("origin", "first"), [("one", 1), ("zero", 0)])
def test_a_polygon_without_a_box_has_the_box_around_it(tmp_path: Path, origin: str, first: int) -> None:
    text = f"<object><name>cat</name>{polygon_xml(*TRIANGLE)}</object>"
    document, _ = convert(devkit(tmp_path / "voc", {"a": voc_xml(text)}), origin=origin)
    (row,) = document["annotations"]
    assert row["bbox"] == [11 - first, 21 - first, 49, 49]


def test_a_polygon_is_cut_at_the_image(tmp_path: Path) -> None:
    more = polygon_xml((91, 21), (121, 21), (121, 61), (91, 61))
    document, summary = convert(devkit(tmp_path / "voc", {"a": voc_xml(box_xml(91, 21, 100, 60, more=more))}))
    (row,) = document["annotations"]
    assert sorted(zip(row["segmentation"][0][::2], row["segmentation"][0][1::2], strict=True)) == [
        (90, 20),
        (90, 60),
        (100, 20),
        (100, 60),
    ]
    assert (row["area"], summary.kind_counts) == (400, {"outline-cut": 1})


@pytest.mark.parametrize(
    ("polygon", "message"),
    [
        (polygon_xml((1, 1), (9, 1)), "<polygon> must have at least three points <x1>, <y1>, <x2>, ..., without gaps"),
        (polygon_xml(*TRIANGLE).replace("y2", "y9"), "<polygon> must have at least three points"),
        (polygon_xml(*TRIANGLE).replace("60", "wide", 1), "must be a finite number, got 'wide'"),
    ],
)
def test_polygons_that_are_invalid(tmp_path: Path, polygon: str, message: str) -> None:
    root = devkit(tmp_path / "voc", {"a": voc_xml(box_xml(11, 21, 60, 70, more=polygon))})
    with pytest.raises(ConversionError, match=message):
        convert(root)


def test_a_rotated_box_keeps_its_polygon(tmp_path: Path) -> None:
    box = "<robndbox><cx>40</cx><cy>30</cy><w>20</w><h>10</h><angle>0</angle></robndbox>"
    text = f"<object><name>ship</name>{box}{polygon_xml((31, 26), (51, 31), (31, 36))}</object>"
    document, summary = convert(devkit(tmp_path / "voc", {"a": voc_xml(text)}))
    (row,) = document["annotations"]
    assert (row["corners"][0], row["segmentation"], row["bbox"]) == (
        [30, 25],
        [[30, 25, 50, 30, 30, 35]],
        [30, 25, 20, 10],
    )
    assert summary.next_step.endswith('out.json", rotated=True)')
