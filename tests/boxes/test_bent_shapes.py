"""Shapes under a field alone, no other op that moves them: each number against the field's own map of a fine grid."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from numpy.typing import NDArray
from PIL import Image

import detaug as da
from detaug.boxes.fields import Field

SIZES = [(150, 240), (220, 130), (180, 180)]
OUTPUT = (190, 250)
OPS: dict[str, da.Op] = {"lens": da.OpticalDistortion((-0.25, 0.3)), "elastic": da.ElasticTransform(700, 18)}
STEP = 0.5
"""Output pixels between the points of the grid."""


def rings_of(size: tuple[int, int]) -> list[NDArray[np.float64]]:
    """Return slanted outlines, of which no bent box is theirs; the last ones are half of the image, and all of it."""
    height, width = size
    inside = [(0.2, 0.3), (0.8, 0.1), (0.7, 0.5), (0.3, 0.4)], [(0.05, 0.6), (0.3, 0.95), (0.2, 0.97), (0.06, 0.9)]
    beside = [(0.78, 1.0), (0.9, 0.8), (1.0, 0.7), (1.0, 1.0)], [(0.0, 0.5), (0.5, 0.0), (1.0, 0.5), (0.5, 1.0)]
    beyond = [(0.0, 0.0), (0.4, 0.0), (0.6, 1.0), (0.0, 1.0)], [(0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)]
    return [np.array(each) * (width, height) for each in (*inside, *beside, *beyond)]


def shown_by(field: Field, image: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return points (P, 2) of an output, and those of its image that they show."""
    height, width = OUTPUT
    y, x = np.mgrid[STEP / 2 : height : STEP, STEP / 2 : width : STEP]
    back = np.stack(field.undistorted(image, x, y), axis=-1) / (width, height) * SIZES[image][::-1]
    return np.stack([x, y], axis=-1).reshape(-1, 2), back.reshape(-1, 2)


@pytest.mark.parametrize("kind", ["outlines", "corners"])
@pytest.mark.parametrize("name", OPS)
def test_tight_boxes_are_around_the_points_that_show_the_outline(name: str, kind: str) -> None:
    """Of the images that a field bends, which are not the first one alone."""
    rings = [rings_of(size) for size in SIZES]
    boxes = [[[*each.min(0), *each.max(0)] for each in own] for own in rings]
    images = [np.zeros((*size, 3), np.uint8) for size in SIZES]
    if kind == "outlines":
        shapes = da.Shapes.of_segmentations([[each.ravel().tolist()] for own in rings for each in own], tight=True)
    else:
        shapes = da.Shapes(corners=np.concatenate(rings), tight=True)
    bent = da.batch(images, boxes, shapes=shapes, seed=2).then(da.Resize(OUTPUT), OPS[name])
    field = bent.plan.views.field
    assert field is not None
    for at, (found, own) in enumerate(zip(bent.boxes, rings, strict=True)):
        points, shown = shown_by(field, at)
        assert len(found) == len(own)
        for box, ring in zip(found, own, strict=True):
            seen = points[shapely.contains_xy(shapely.Polygon(ring), *shown.T)]
            assert np.abs(box - [*seen.min(0), *seen.max(0)]).max() < 1.2  # tips that are thinner than a step


def write(folder: Path) -> da.CocoReader:
    """Write black images with these outlines, and keypoints on three of their vertices: v is 0, 1 and 2."""
    images, annotations = [], list[dict[str, Any]]()
    for number, size in enumerate(SIZES, 1):
        Image.new("RGB", size[::-1]).save(folder / f"{number}.png")
        images.append({"id": number, "file_name": f"{number}.png", "height": size[0], "width": size[1]})
        for ring in rings_of(size):
            low, high = ring.min(0), ring.max(0)
            points = [[x - 0.5, y - 0.5, at] for at, (x, y) in enumerate(ring[:3].tolist())]
            annotation = {"id": len(annotations) + 1, "image_id": number, "category_id": 1, "iscrowd": 0, "area": 1}
            annotation["bbox"] = [*low.tolist(), *(high - low).tolist()]
            annotation |= {
                "segmentation": [ring.ravel().tolist()],
                "keypoints": np.ravel(points).tolist(),
                "num_keypoints": 2,
            }
            annotations.append(annotation)
    categories = [{"id": 1, "name": "thing", "keypoints": ["a", "b", "c"]}]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "things.json").write_text(json.dumps(content))
    return da.CocoReader(folder, folder / "things.json", masks=True, keypoints=True)


@pytest.mark.parametrize("kind", ["outlines", "corners"])
@pytest.mark.parametrize("name", OPS)
def test_an_image_alone_has_the_same_boxes_as_beside_others(name: str, kind: str) -> None:
    """But for rounding: which images are planned together depends on the number of processes, and on clones."""
    rings = [rings_of(size) for size in SIZES]
    boxes = [[[*each.min(0), *each.max(0)] for each in own] for own in rings]
    images = [np.zeros((*size, 3), np.uint8) for size in SIZES]

    def bent(own: slice, params: Any = None) -> da.Samples:
        if kind == "outlines":
            outlines = [[each.ravel().tolist()] for rings_of_image in rings[own] for each in rings_of_image]
            shapes = da.Shapes.of_segmentations(outlines, tight=True)
        else:
            shapes = da.Shapes(corners=np.concatenate(rings[own]), tight=True)
        samples = da.batch(images[own], boxes[own], shapes=shapes, seed=2).then(da.Resize(OUTPUT), OPS[name])
        return samples if params is None else samples.replay(params)

    together = bent(slice(None))
    for at in range(len(SIZES)):
        own = slice(at, at + 1)
        alone = bent(own, [{key: each[own] for key, each in drawn.items()} for drawn in together.params])
        assert np.abs(alone.boxes[0] - together.boxes[at]).max() < 1e-9
        if kind == "corners":
            assert np.abs(alone.rotated_boxes()[0] - together.rotated_boxes()[at])[:, :4].max() < 1e-9


@pytest.mark.parametrize("size", [3, 2])
@pytest.mark.parametrize("name", OPS)
def test_polygons_and_key_points_of_a_batch_are_where_the_field_shows_them(
    name: str, size: int, tmp_path: Path
) -> None:
    """Also of a second batch, whose boxes come after those of the first."""
    at = 0
    for batch in da.Loader(write(tmp_path), [da.Resize(OUTPUT), OPS[name]], size, train=False, device="cpu", seed=4):
        field, polygons = batch.distortion, batch.polygons
        assert field is not None
        first, box = polygons.first_point[polygons.first_ring].tolist(), 0
        for image, count in enumerate(batch.counts):
            scale, rings = np.array(OUTPUT[::-1]) / SIZES[at][::-1], rings_of(SIZES[at])
            assert count == len(rings)
            for place, ring in enumerate(rings):
                points = polygons.points[first[box] : first[box + 1]].double().numpy()
                back = np.stack(field.undistorted(image, *points.T), axis=-1)
                inside = ((points >= 0) & (points <= OUTPUT[::-1])).all(1)  # beyond, a lens may fold
                assert np.abs(back - ring * scale)[inside | (name == "elastic")].max(initial=0) < 1e-3
                found = batch.keypoints[image, place].double().numpy()
                visible = np.where(inside[:3], (0, 1, 2), 0)
                assert found[:, 2].tolist() == visible.tolist()
                assert np.abs(found[:, :2] - np.where(visible[:, None] > 0, points[:3], 0)).max() < 1e-3
                box += 1
            at += 1
    assert at == len(SIZES)
