"""The demo's people and ships: keypoints, outlines and corners agree with the painted pixels."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageDraw
from pycocotools import mask as coco_mask

import detaug as da
from detaug.coco.outlines import decode_counts
from detaug.converters import check_coco
from detaug.demo import make_people, make_ships
from detaug.demo.people import NAMES, draw_person
from detaug.demo.ships import Ship, hull, paint_ship
from detaug.errors import InputError

SHIPS = [
    Ship("boat", np.array((90.3, 71.8)), 61.0, 21.0, 0.4),
    Ship("ship", np.array((101.0, 80.6)), 140.0, 31.0, -2.2),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("drawn")
    make_people(root, images=9)
    make_ships(root, images=3)
    return root


def annotations(folder: Path, name: str) -> list[dict[str, Any]]:
    return list(json.loads((folder / f"{name}.json").read_bytes())["annotations"])


@pytest.mark.parametrize("name", ["people", "ships"])
def test_nothing_is_found_wrong(folder: Path, name: str) -> None:
    summary = check_coco(folder / f"{name}.json", folder / name)
    assert (summary.errors, summary.warnings) == (0, 0)


@pytest.mark.parametrize("make", [make_people, make_ships])
def test_the_seed_decides_everything(make: Any, tmp_path: Path) -> None:
    def digest(root: str, seed: int) -> str:
        json_file = make(tmp_path / root, images=1, seed=seed)
        (picture,) = json_file.with_suffix("").iterdir()
        return hashlib.sha256(json_file.read_bytes() + picture.read_bytes()).hexdigest()

    assert digest("a", 3) == digest("b", 3) != digest("c", 4)
    with pytest.raises(InputError, match="images must be at least 1, got 0"):
        make(tmp_path, images=0)


def test_a_point_is_visible_where_its_person_is(folder: Path) -> None:
    found = set()
    for each in annotations(folder, "people"):
        lengths = decode_counts(each["segmentation"]["counts"])
        pixels = np.repeat(np.arange(len(lengths)) % 2, lengths)
        mask = pixels.reshape(each["segmentation"]["size"], order="F")
        assert mask.sum() == each["area"] == coco_mask.area(each["segmentation"])
        x, y, width, height = each["bbox"]
        assert (mask.any(0).nonzero()[0][[0, -1]] == (x, x + width - 1)).all()
        assert (mask.any(1).nonzero()[0][[0, -1]] == (y, y + height - 1)).all()
        points = np.array(each["keypoints"]).reshape(17, 3)
        found |= set(points[:, 2])
        assert each["num_keypoints"] == (points[:, 2] > 0).sum()
        assert not points[points[:, 2] == 0].any()
        near = [np.clip(np.round(points[:, axis]).astype(int), 0, mask.shape[1 - axis] - 1) for axis in (0, 1)]
        assert mask[near[1], near[0]][points[:, 2] == 2].all()
    assert found == {0, 1, 2}


def test_the_left_is_the_right_of_the_picture_for_people_seen_from_the_front() -> None:
    rng, seen = np.random.default_rng(5), []
    for _ in range(30):
        points = dict(zip(NAMES, draw_person(rng, 200).points, strict=True))
        from_the_front = points["nose"][2] == 2
        seen.append(from_the_front)
        for name in ("shoulder", "hip", "eye"):
            left, right = points[f"left_{name}"], points[f"right_{name}"]
            assert (left[0] > right[0]) == from_the_front
    assert 2 <= seen.count(False) <= 12


def test_the_eyes_are_where_their_points_are() -> None:
    rng, eyes = np.random.default_rng(6), 0
    for _ in range(10):
        image, points = draw_person(rng, 500)
        for x, y, visibility in points[1:3]:
            dark = np.argwhere(np.asarray(image.convert("L"))[int(y) - 6 : int(y) + 7, int(x) - 6 : int(x) + 7] < 46)
            if visibility == 2 and len(dark) > 20:
                eyes += 1
                assert np.abs(dark.mean(0) - 6 + 0.5 - (y % 1, x % 1)).max() < 1.5
    assert eyes > 6


def test_eyes_are_darker_than_what_is_around_them_in_pictures(folder: Path) -> None:
    contrasts = []
    for each in annotations(folder, "people"):
        with Image.open(folder / "people" / f"people_{each['image_id']:03d}.jpg") as file:
            gray = np.asarray(file.convert("L"), float)
        for x, y, visibility in np.array(each["keypoints"]).reshape(17, 3)[1:3].round().astype(int):
            if visibility == 2 and 9 < x < gray.shape[1] - 9:
                near, around = gray[y - 1 : y + 2, x - 1 : x + 2], gray[y - 4 : y + 5, x - 4 : x + 5]
                contrasts.append(near.mean() / around.mean())
    assert len(contrasts) > 10
    assert np.median(contrasts) < 0.85


@pytest.mark.parametrize("ship", SHIPS, ids=lambda ship: ship.name)
def test_a_ship_lies_in_its_corners_and_its_outline(ship: Ship) -> None:
    pictures = [Image.new("RGB", (200, 160), color) for color in ("black", "white")]
    for picture in pictures:
        paint_ship(picture, ship, np.random.default_rng(0))
    black, white = (np.asarray(picture, int) for picture in pictures)
    opaque = np.abs(black - white).max(2) < 60  # 115 or more where the ship only casts its shadow
    ring = Image.new("L", (1600, 1280))
    ImageDraw.Draw(ring).polygon([tuple(point) for point in (ship.place(hull(ship)) * 8).tolist()], fill=1)
    share = np.asarray(ring).reshape(160, 8, 200, 8).mean((1, 3))
    assert (opaque != (share > 0.5))[np.abs(share - 0.5) > 0.4].sum() == 0
    corners = ship.place([(-0.5, -0.5), (0.5, -0.5), (0.5, 0.5), (-0.5, 0.5)])
    along = (corners[1] - corners[0]) / ship.length
    x = (np.argwhere(opaque)[:, ::-1] + 0.5 - corners[0]) @ np.stack([along, (-along[1], along[0])], 1)
    assert np.abs(x.min(0)).max() < 1.2
    assert np.abs(x.max(0) - (ship.length, ship.width)).max() < 1.8  # the bow is sharper than a pixel


def test_the_boxes_of_ships_are_around_their_outlines(folder: Path) -> None:
    reader = da.CocoReader(folder / "ships", folder / "ships.json", rotated=True, tight=True)
    assert reader.class_names == ("background", "boat", "ship")
    for each in annotations(folder, "ships"):
        ring = np.array(each["segmentation"]).reshape(-1, 2)
        x, y, width, height = each["bbox"]
        assert np.allclose([*ring.min(0), *ring.max(0)], [x, y, x + width, y + height], atol=0.011)
