"""Each number of a tile and its objects, once more by hand: windows of aligned grids, areas, rotated boxes, v, cuts."""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from PIL import Image

import detaug as da
from detaug.tiles.windows import covers, plan_tiles

SIZES = [(150, 230), (190, 110), (70, 90)]


def starts(side: int, tile: int, overlap: float, phase: float, align: int) -> list[int]:
    """Return where windows begin along a side: each rule of `plan_tiles` one after the other."""
    if side <= tile:
        return [0]
    step = tile - int(overlap * tile)
    step = max(step - step % align, align)
    last = side - tile
    last += -last % align  # so that what is right of it is smaller than a tile
    first = -int(phase * step)
    first -= first % align
    found = []
    for start in range(first, last + step, step):
        moved_inwards = min(max(start, 0), last)
        if moved_inwards not in found:
            found.append(moved_inwards)
    return found


@pytest.mark.parametrize(("grids", "align"), [(1, 1), (3, 1), (1, 16), (2, 16), (3, 8), (4, 7)])
@pytest.mark.parametrize(("size", "overlap"), [((64, 80), 0.3), ((50, 50), 0.0), ((100, 60), 0.55)])
def test_windows_of_aligned_grids(size: tuple[int, int], overlap: float, grids: int, align: int) -> None:
    tiles = plan_tiles(np.array(SIZES), size, overlap, 40, grids, align)
    for at, (height, width) in enumerate(SIZES):
        expected: dict[tuple[int, ...], set[int]] = {}
        for grid in range(grids):
            sides = zip((height, width), size, strict=True)
            y, x = (starts(side, tile, overlap, grid / grids, align) for side, tile in sides)
            for top, left in product(y, x):
                window = left, top, min(size[1], width - left), min(size[0], height - top)
                expected.setdefault(window, set()).add(grid)
        several = len(expected) > 1
        if several:
            expected[0, 0, width, height] = {*range(grids)}
        own = tiles.image == at
        found = [*map(tuple, tiles.windows[own].tolist())]
        assert found == [*expected]
        assert [{*np.flatnonzero(each)} for each in tiles.grids[own]] == [*expected.values()]
        scale = min(1, 40 / max(height, width))
        sizes = [[height, width] for *_, width, height in found]
        if several:
            sizes[-1] = [round(height * scale), round(width * scale)]
        assert tiles.sizes[own].tolist() == sizes
        assert all(left % align == top % align == 0 for left, top, *_ in found)
        whole = np.array(found)
        for grid in range(grids):
            assert covers(whole[tiles.grids[own][:, grid]][: -1 if several else None], height, width)


def slanted(rng: np.random.Generator, size: tuple[int, int]) -> np.ndarray[Any, Any]:
    """Return (4, 2): the corners of a rotated box inside of an image."""
    height, width = size
    angle, sides = rng.uniform(0, np.pi), rng.uniform(14, 34, 2)
    axes = np.array([[np.cos(angle), np.sin(angle)], [-np.sin(angle), np.cos(angle)]]) * sides[:, None]
    corners = np.array([[-0.5, -0.5], [0.5, -0.5], [0.5, 0.5], [-0.5, 0.5]]) @ axes
    return (corners + rng.uniform((25, 25), (width - 25, height - 25))).round(2)


def write(folder: Path) -> tuple[Path, Path]:
    """Write black images with rotated boxes, whose areas, ids and orders have nothing in common."""
    rng, images, annotations = np.random.default_rng(7), [], list[dict[str, Any]]()
    (folder / "images").mkdir()
    for number, size in enumerate(SIZES):
        Image.new("RGB", size[::-1]).save(folder / "images" / f"{number}.png")
        images.append({"id": 9 - number, "file_name": f"{number}.png", "height": size[0], "width": size[1]})
    for number in range(36):
        at = number % 3
        corners = slanted(rng, SIZES[at])
        low, high = corners.min(0), corners.max(0)
        entry = {"id": 100 - number, "image_id": 9 - at, "category_id": 1, "iscrowd": 0, "truncated": 0}
        entry |= {"bbox": [*low.tolist(), *(high - low).tolist()], "corners": corners.tolist()}
        annotations.append(entry | {"area": float(round(shapely.Polygon(corners).area, 2))})
    path = folder / "slanted.json"
    content = {"images": images, "annotations": annotations, "categories": [{"id": 1, "name": "ship"}]}
    path.write_text(json.dumps(content))
    return path, folder / "images"


def test_numbers_of_rotated_boxes(tmp_path: Path) -> None:
    """Against Shapely: which tiles per object is in, its box, area and corners in a tile, and whether it is cut."""
    path, images = write(tmp_path)
    da.tile_coco(path, images, tmp_path / "out", size=(64, 80), overlap=0.3, min_visibility=0.25, whole=100)
    before, after = (json.loads(each.read_text()) for each in (path, tmp_path / "out/slanted.json"))
    expected, unsure = {}, set()
    for image in after["images"]:
        x, y, width, height = image["window"]
        scale = np.array([image["width"] / width, image["height"] / height])
        for entry in before["annotations"]:
            if entry["image_id"] != image["tile_of"]["id"]:
                continue
            whole = shapely.Polygon(entry["corners"])
            seen = whole.intersection(shapely.box(x, y, x + width, y + height))
            visible = seen.area / whole.area
            if abs(visible - 0.25) < 1e-3:
                unsure.add((image["id"], entry["id"]))
            elif visible > 0.25:
                expected[image["id"], entry["id"]] = seen.bounds, visible, np.subtract(entry["corners"], (x, y)), scale
    origin, of_entry = {}, {each["id"]: each for each in before["annotations"]}
    tiles = {each["id"]: each["window"] for each in after["images"]}
    cut = 0
    for entry in after["annotations"]:
        key = entry["image_id"], entry["part_of"]
        origin[key] = entry
        if key in unsure:
            continue
        bounds, visible, corners, scale = expected[key]
        x, y = tiles[entry["image_id"]][:2]
        (left, top, width, height), own = entry["bbox"], of_entry[entry["part_of"]]
        assert [left, top, left + width, top + height] == pytest.approx(
            (np.array(bounds) - (x, y, x, y)) * np.tile(scale, 2), abs=1e-3
        )
        np.testing.assert_allclose(entry["corners"], corners * scale, atol=0.006)
        assert entry["area"] == pytest.approx(own["area"] * visible * scale.prod(), abs=0.01)
        assert entry["truncated"] == (visible < 1 - 1e-9)
        cut += entry["truncated"]
    assert {*expected} <= {*origin} <= {*expected, *unsure}
    assert 20 < cut < len(origin) - 20


def test_rotated_boxes_of_tiles(tmp_path: Path) -> None:
    """`corners` and `rotated_boxes` of batches of tiles are the image's, moved; `visible` is a fraction of them."""
    path, images = write(tmp_path)
    tiles = da.TileReader(da.CocoReader(images, path, rotated=True), (64, 80), 0.3, grids=2, align=8)
    source, at = {each["id"]: each for each in json.loads(path.read_text())["annotations"]}, 0
    order = np.argsort([-each["image_id"] for each in source.values()], kind="stable")  # that of the images
    ids = np.array([*source])[order]
    recipe: list[da.Op] = [da.Resize((64, 80), letterbox="top-left"), da.Normalize()]
    for batch in da.Loader(tiles, recipe, 5, train=False, device="cpu"):
        rotated = batch.rotated_boxes(border="whole")
        for image, count in enumerate(batch.counts):
            x, y, width, height = tiles.windows[at].tolist()
            matrix = batch.matrix[image].double().numpy()
            view = shapely.box(x, y, x + width, y + height)
            for place in range(count):
                row = int(batch.rows[image, place])
                corners = np.array(source[ids[tiles.cut.rows[row]].item()]["corners"])
                whole, moved = shapely.Polygon(corners), (corners - (x, y)) @ matrix[:, :2].T + matrix[:, 2]
                assert tiles.cut.visible[row] == pytest.approx(view.intersection(whole).area / whole.area)
                np.testing.assert_allclose(batch.corners[image, place], moved, atol=0.01)
                assert np.allclose(rotated[image, place, :2], moved.mean(0), atol=0.1)
                sides = np.hypot(*(moved[1] - moved[0])), np.hypot(*(moved[2] - moved[1]))
                assert np.allclose(sorted(rotated[image, place, 2:4].tolist()), sorted(sides), atol=0.5)
            at += 1
    assert at == len(tiles)
