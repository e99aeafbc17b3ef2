"""Boxes, corners and masks without an area: one rule in readers, ops, checks and converters."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from dali_pipelines import given, make, outputs
from numpy.typing import NDArray
from PIL import Image

import detaug as da
from detaug.converters import voc_to_coco, yolo_to_coco

SIDE = 100
IMAGE = np.zeros((SIDE, SIDE, 3), np.uint8)
LEVEL = [(10, 40), (90, 40), (90, 60), (10, 60)]
FLAT = {
    "line": [(10, 10), (60, 60), (60, 60), (10, 10)],
    "point": [(30, 30)] * 4,
    "strip": [(10, 10), (60, 60), (60, 60.009), (10, 10.009)],
}


@dataclass(frozen=True)
class TopLeft(da.GeometricOp):
    """Crop to the top left corner."""

    def move(self, views: da.Views, drawn: Any) -> da.Views:
        return views.crop_to(np.zeros((len(views), 2)), np.full((len(views), 2), 0.3)).clip()


def rotated(corners: Any, *ops: da.Op, box: Any = (5, 5, 95, 95), seed: int = 0) -> da.Samples:
    shapes = da.Shapes(corners=np.array([corners, LEVEL], float))
    return da.batch([IMAGE], [[box, (10, 40, 90, 60)]], [[1, 2]], shapes=shapes, seed=seed).then(*ops)


@pytest.mark.parametrize("corners", FLAT.values(), ids=FLAT)
@pytest.mark.parametrize("ops", [[], [da.RandomRotation(30), da.Resize((90, 90))]], ids=["whole", "turned"])
def test_rotated_boxes_without_an_area_are_left_out(corners: Any, ops: list[da.Op]) -> None:
    samples = rotated(corners, *ops)
    assert [each.tolist() for each in samples.labels] == [[2]]
    assert (samples.rotated_boxes("le90")[0][:, 2:4] > 10).all()


def test_thin_rotated_boxes_stay() -> None:
    assert rotated([(10, 10), (60, 60), (60, 60.03), (10, 10.03)]).labels[0].tolist() == [1, 2]


def test_a_rotated_box_of_which_nothing_is_in_view_is_left_out() -> None:
    """Its upright box is in view, at a corner that it does not reach."""
    diagonal = [(0, 96), (96, 0), (100, 4), (4, 100)]
    assert rotated(diagonal, box=(0, 0, 100, 100)).labels[0].tolist() == [1, 2]
    assert rotated(diagonal, TopLeft(), box=(0, 0, 100, 100)).labels[0].tolist() == []


def test_corners_beside_their_box_are_left_out_where_they_are_not_in_view() -> None:
    beside = [(60, 10), (80, 10), (80, 20), (60, 20)]
    assert rotated(beside, box=(5, 5, 25, 25)).labels[0].tolist() == [1, 2]
    assert rotated(beside, TopLeft(), box=(5, 5, 25, 25)).labels[0].tolist() == []


COVERING: list[da.Op] = [
    da.RandomErasing(p=1, scale=(0.1, 0.33)),
    da.GridMask(p=1, size=(60, 80)),
    da.RandomErasing(p=1, scale=(0.1, 0.33), max_hidden=1),
]


@pytest.mark.parametrize("op", COVERING, ids=repr)
def test_an_upright_rotated_box_is_its_box_where_something_covers_it(op: da.Op) -> None:
    shrunk = 0
    for seed in range(30):
        samples = rotated(LEVEL, da.Resize((SIDE, SIDE)), op, box=(10, 40, 90, 60), seed=seed)
        for box, (x, y, width, height, angle) in zip(samples.boxes[0], samples.rotated_boxes("oc")[0], strict=True):
            assert min(abs(np.sin(angle)), abs(np.cos(angle))) < 1e-9
            across, down = (width, height) if abs(np.sin(angle)) < 0.5 else (height, width)
            np.testing.assert_allclose([x - across / 2, y - down / 2, x + across / 2, y + down / 2], box)
            shrunk += abs(box - (10, 40, 90, 60)).max() > 0.5
    assert shrunk > 3


def test_a_side_that_nothing_covers_stays_where_a_box_is_smaller_than_its_corners() -> None:
    found = 0
    for seed in range(60):
        op = da.RandomErasing(p=1, scale=(0.1, 0.33))
        samples = rotated(LEVEL, da.Resize((SIDE, SIDE)), op, box=(10, 40, 85, 60), seed=seed)
        for label, box, (x, _, width, *_) in zip(
            samples.labels[0], samples.boxes[0], samples.rotated_boxes("le90")[0], strict=True
        ):
            if label == 1 and box[0] > 11 and abs(box[2] - 85) < 1e-6 and width > 20:
                assert (x - width / 2, x + width / 2) == pytest.approx((box[0], 90))
                found += 1
    assert found > 1


def test_a_turned_rotated_box_under_a_hole_keeps_its_angle_and_what_is_seen() -> None:
    """Against the pixels of its mask that are seen."""
    angle = np.deg2rad(20)
    along, across = np.array([np.cos(angle), np.sin(angle)]), np.array([-np.sin(angle), np.cos(angle)])
    corners = [(50, 50) + x * along + y * across for x, y in ((-35, -12), (35, -12), (35, 12), (-35, 12))]
    ring = np.array(corners).ravel().tolist()
    shapes = da.Shapes.of_segmentations([[ring]], corners=np.array([corners]))
    low, high = np.array(corners).min(0), np.array(corners).max(0)
    cut = 0
    for seed in range(30):
        samples = da.batch([IMAGE], [[(*low, *high)]], shapes=shapes, seed=seed)
        erased = samples.then(da.Resize((SIDE, SIDE)), da.RandomErasing(p=1, scale=(0.2, 0.33), max_hidden=0.9))
        for mask, box in zip(erased.masks[0], erased.rotated_boxes("le90")[0], strict=True):
            y, x = np.nonzero(mask)
            inside = np.stack([x + 0.5, y + 0.5], axis=1) - box[:2]
            direction = np.array([np.cos(box[4]), np.sin(box[4])])
            assert np.isclose(np.sin(2 * (box[4] - angle)), 0, atol=1e-6)
            assert (abs(inside @ direction) < box[2] / 2 + 1e-6).all()
            cut += box[2] < 69
    assert cut


def masked(segmentation: Any, *ops: da.Op, box: Any = (10, 10, 60, 60)) -> tuple[Any, NDArray[np.bool_]]:
    other = [[70, 70, 90, 70, 90, 90, 70, 90]]
    shapes = da.Shapes.of_segmentations([segmentation, other])
    samples = da.batch([IMAGE], [[box, (70, 70, 90, 90)]], [[1, 2]], shapes=shapes).then(*ops)
    return samples.labels[0].tolist(), samples.masks[0]


@pytest.mark.parametrize(
    "segmentation",
    [
        [[120, 10, 170, 10, 170, 60, 120, 60]],
        [[10, -80, 60, -80, 60, -20, 10, -20]],
        {"size": [SIDE, SIDE], "counts": [SIDE * SIDE]},
        [[10, 10, 30, 30, 60, 60]],
    ],
    ids=["right of the image", "above the image", "RLE of nothing", "line"],
)
@pytest.mark.parametrize("limit", [[], [da.SanitizeBoundingBoxes(min_mask_area=1)]], ids=["default", "sanitized"])
def test_a_box_whose_mask_has_no_pixel_is_left_out(segmentation: Any, limit: list[da.Op]) -> None:
    labels, masks = masked(segmentation, da.Resize((SIDE, SIDE)), *limit)
    assert labels == [2]
    assert masks.sum() == 400


def test_a_mask_beside_its_box_counts_where_it_is_seen() -> None:
    beside = [[62, 10, 98, 10, 98, 60, 62, 60]]
    assert masked(beside, da.Resize((SIDE, SIDE)))[0] == [1, 2]
    labels, _ = masked(beside, da.CenterCrop((SIDE, 20)), da.Resize((SIDE, SIDE)), box=(10, 10, 60, 60))
    assert labels == []


def test_masks_in_a_loader(tmp_path: Path) -> None:
    Image.fromarray(IMAGE).save(tmp_path / "a.png")
    entry = {"image_id": 1, "category_id": 1, "iscrowd": 0, "area": 400, "bbox": [10, 10, 20, 20]}
    segmentations = [[[120, 10, 170, 10, 170, 60]], [[10, 10, 30, 10, 30, 30, 10, 30]]]
    content = {
        "images": [{"id": 1, "file_name": "a.png", "height": SIDE, "width": SIDE}],
        "annotations": [{"id": at, **entry, "segmentation": each} for at, each in enumerate(segmentations, 1)],
        "categories": [{"id": 1, "name": "a"}],
    }
    (tmp_path / "a.json").write_text(json.dumps(content))
    reader = da.CocoReader(tmp_path, tmp_path / "a.json", masks=True, columns=["id"])
    (batch,) = da.Loader(reader, [da.Resize((SIDE, SIDE))], 1, train=False, device="cpu")
    assert batch.columns["id"].tolist() == [[2]]
    assert batch.masks().sum((1, 2)).tolist() == [400]


def test_rotated_boxes_in_a_dali_pipeline() -> None:
    corners = np.array([FLAT["line"], LEVEL, [(0, 96), (96, 0), (100, 4), (4, 100)]], np.float32)
    boxes = np.array([(5, 5, 95, 95), (10, 40, 90, 60), (0, 0, 100, 100)], np.float32)

    def nodes(ops: list[da.Op]) -> Any:
        labels = given([np.array([1, 2, 3], np.int32)])
        return da.fn.augment(given([IMAGE]), given([boxes]), labels, ops, units="pixels", corners=given([corners]))

    for ops, expected in (([da.Resize((50, 50))], [2, 3]), ([TopLeft(), da.Resize((50, 50))], [])):
        ((_, _, labels, moved),) = zip(*outputs(make(partial(nodes, ops), 1, "cpu")), strict=True)
        assert labels.ravel().tolist() == expected
        assert len(moved) == len(expected)


def test_converters_count_rotated_boxes_without_an_area(tmp_path: Path) -> None:
    for name in ("images", "labels", "xml"):
        (tmp_path / name).mkdir()
    Image.fromarray(IMAGE).save(tmp_path / "images" / "a.png")
    rows = [[0, *(value / SIDE for point in points for value in point)] for points in (FLAT["line"], LEVEL)]
    (tmp_path / "labels" / "a.txt").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    (tmp_path / "data.yaml").write_text("path: .\ntrain: images\ntask: obb\nnames: [ship]\n")
    found = yolo_to_coco(tmp_path / "data.yaml", tmp_path / "yolo.json", split="train")
    assert found.kind_counts["box-empty"] == 1
    assert len(json.loads((tmp_path / "yolo.json").read_text())["annotations"]) == 1
    turned = "<cx>50</cx><cy>50</cy><w>{}</w><h>{}</h><angle>0.5</angle>"
    boxes = [f"<robndbox>{turned.format(60, height)}</robndbox>" for height in (0.001, 20)]
    objects = "".join(f"<object><name>ship</name>{each}</object>" for each in boxes)
    (tmp_path / "xml" / "a.xml").write_text(f"<annotation><filename>a.png</filename>{objects}</annotation>")
    folders = {"annotations": tmp_path / "xml", "images": tmp_path / "images"}
    found = voc_to_coco(tmp_path, tmp_path / "voc.json", **folders)
    assert found.kind_counts["box-empty"] == 1
    assert len(json.loads((tmp_path / "voc.json").read_text())["annotations"]) == 1
