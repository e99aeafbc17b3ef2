"""Keypoints on borders: of the image, of a crop, of a tile, of what covers them. Told from the pixels they touch."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

import detaug as da

HEIGHT, WIDTH = 37, 61
BORDER = [(x, y) for x in (0, 30.5, 61) for y in (0, 18.5, 37) if (x, y) != (30.5, 18.5)]
NOISE = np.random.default_rng(0).integers(0, 256, (HEIGHT, WIDTH, 3)).astype(np.uint8)


def samples_of(images: list[NDArray[np.uint8]], points: Any, seed: int = 1) -> da.Samples:
    """Return images with one object each, which fills it, and has visible points (K, 2)."""
    visible = np.tile(np.column_stack([points, np.full(len(points), 2.0)]), (len(images), 1, 1))
    shapes = da.Shapes(keypoints=da.KeyPoints(visible, swapped=np.arange(len(points))[None]))
    boxes = [[[0, 0, image.shape[1], image.shape[0]]] for image in images]
    return da.batch(images, boxes, [[at + 1] for at in range(len(images))], shapes=shapes, seed=seed)


@pytest.mark.parametrize(
    "ops",
    [
        [],
        [da.RandomHorizontalFlip(p=1)],
        [da.RandomVerticalFlip(p=1), da.Resize((113, 97))],
        [da.RandomRotate90(), da.RandomHorizontalFlip(), da.Resize((41, 333))],
        [da.RandomZoomOut(p=1, max_ratio=1.7), da.RandomVerticalFlip(), da.Resize((53, 67))],
        [da.RandomRotate90(), da.RandomRotation(180, expand=True), da.Resize((101, 89), letterbox="center")],
    ],
    ids=repr,
)
def test_points_on_the_border_of_the_image_stay(ops: list[da.Op]) -> None:
    for points in samples_of([NOISE] * 8, BORDER).then(*ops).keypoints:
        assert (points[0, :, 2] == 2).all()


def test_beside_images_that_a_lens_bends() -> None:
    samples = samples_of([NOISE] * 8, BORDER).then(da.Resize((HEIGHT, WIDTH)))
    bent = samples.then(da.OpticalDistortion((0.1, 0.2), p=0.5))
    straight = [np.array_equal(*images) for images in zip(samples.images, bent.images, strict=True)]
    assert 1 < sum(straight) < 7
    for is_straight, points in zip(straight, bent.keypoints, strict=True):
        assert not is_straight or (points[0, :, 2] == 2).all()


@pytest.mark.parametrize("flips", [[], [da.RandomHorizontalFlip(p=1), da.RandomVerticalFlip(p=1)]], ids=repr)
def test_the_border_of_a_crop_is_in_it_on_all_sides(flips: list[da.Op]) -> None:
    sides = np.array([[10, 20], [50, 20], [30, 10], [30, 30]], float)
    outwards = np.array([[-1, 0], [1, 0], [0, -1], [0, 1]]) * 1e-3
    points = np.concatenate([sides, sides + outwards])
    moved = samples_of([np.zeros((40, 60, 3), np.uint8)], points).then(*flips, da.CenterCrop((20, 40)))
    assert moved.keypoints[0][0, :, 2].tolist() == [2] * 4 + [0] * 4


COVERING: list[da.Op] = [
    da.RandomErasing(p=1, scale=(0.2, 0.5), value=(0, 0, 0), max_hidden=1),
    da.GridMask(p=1, size=(8, 16), value=(0, 0, 0), max_hidden=1),
    da.CutMix(alpha=1, min_visibility=0, max_hidden=1),
    da.Mosaic(min_visibility=0),
]


@pytest.mark.parametrize("op", COVERING, ids=repr)
def test_a_point_is_seen_where_one_of_the_pixels_that_it_touches_is(op: da.Op) -> None:
    """All corners of pixels are points; each image has its own gray."""
    grays = [60, 120, 180, 240]
    y, x = np.mgrid[:25, :25]
    points = np.stack([x.ravel(), y.ravel()], axis=1)
    samples = samples_of([np.full((24, 24, 3), gray, np.uint8) for gray in grays], points)
    moved, hidden, on_border = samples.then(da.Resize((24, 24)), op), 0, 0
    for at, (image, labels, objects) in enumerate(zip(moved.images, moved.labels, moved.keypoints, strict=True)):
        padded = np.pad(image[..., 0].astype(int), 1)
        touched = np.stack([padded[:-1, :-1], padded[1:, :-1], padded[:-1, 1:], padded[1:, 1:]])
        for label, found in zip(labels.tolist(), objects, strict=True):
            shown = (touched == grays[label - 1]).any(0)
            seen = np.zeros((25, 25), bool)
            column, row = found[found[:, 2] == 2, :2].round().astype(int).T
            seen[row, column] = True
            assert np.array_equal(seen, shown), (at, label)
            hidden += (found[:, 2] == 1).sum()
            on_border += seen[[0, -1]].sum() + seen[:, [0, -1]].sum()
    assert hidden > 0 or isinstance(op, da.Mosaic)
    assert on_border > 100


def test_loader_tiles_and_compose(tmp_path: Path) -> None:
    keypoints = [number for x, y in BORDER for number in (x - 0.5, y - 0.5, 2)]
    category = {"id": 1, "name": "a", "keypoints": [f"point {letter}" for letter in "abcdefgh"]}
    entry = {"id": 1, "image_id": 1, "category_id": 1, "bbox": [0, 0, WIDTH, HEIGHT], "area": 1, "iscrowd": 0}
    image = {"id": 1, "file_name": "a.png", "height": HEIGHT, "width": WIDTH}
    content = {"images": [image], "annotations": [{**entry, "keypoints": keypoints}], "categories": [category]}
    (tmp_path / "a.json").write_text(json.dumps(content))
    Image.fromarray(NOISE).save(tmp_path / "a.png")
    reader = da.CocoReader(tmp_path, tmp_path / "a.json", keypoints=True, flip_pairs=[])
    (batch,) = da.Loader(reader, [da.RandomHorizontalFlip(p=1), da.Resize((99, 31))], 1, train=False, device="cpu")
    assert (batch.keypoints[0, 0, :, 2] == 2).all()
    tiles = da.TileReader(reader, (HEIGHT, 31), overlap=0)
    (batch,) = da.Loader(tiles, [da.Resize((37, 31))], 2, train=False, device="cpu")
    left, right = batch.keypoints[:, 0, :, 2].bool().tolist()
    assert left == [True] * 5 + [False] * 3
    assert right == [False] * 3 + [True] * 5
    target = {"boxes": np.array([[0.0, 0, WIDTH, HEIGHT]]), "labels": np.array([1])}
    target["keypoints"] = np.array([[(x, y, 2.0) for x, y in BORDER]])
    _, moved = da.Compose([da.RandomVerticalFlip(p=1), da.Resize((20, 30))], flip_pairs=[])(NOISE, target)
    assert (moved["keypoints"][0, :, 2] == 2).all()
