"""Masks in a DALI pipeline, `da.fn.augment(polygons=...)`, against painted pixels and the loader's masks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nvidia.dali import fn, pipeline_def, types
from test_copy_paste_masks import RESIZE, SIZE, is_color_of, write_scene

import detaug as da

RECIPES: dict[str, list[da.Op]] = {
    "resized": [RESIZE],
    "flipped and cut": [da.RandomHorizontalFlip(p=1), da.RandomCrop((60, 90)), da.Resize((60, 90))],
    "pasted": [da.RandomVerticalFlip(), RESIZE, da.CopyPaste(p=1, masks=True)],
    "mosaic": [RESIZE, da.Mosaic(p=1)],
}


def run(reader: Any, ops: list[da.Op], batch_size: int = 8, **arguments: Any) -> list[Any]:
    """Return the outputs of `da.fn.augment` for one batch."""

    @pipeline_def(batch_size=batch_size, num_threads=2, device_id=None)
    def pipeline() -> Any:
        encoded, boxes, labels, *_, rings, vertices = reader()
        given = {"polygons": (rings, vertices), **arguments}
        return da.fn.augment(fn.decoders.image(encoded), boxes, labels, ops, **given)

    return [[np.asarray(each.at(at)) for at in range(batch_size)] for each in pipeline().run()]


def of_detaug(folder: Path) -> Any:
    return lambda: da.fn.coco(folder, folder / "scene.json", shuffle=False, polygons=True)


@pytest.mark.parametrize("recipe", RECIPES)
def test_masks_are_what_is_painted(recipe: str, tmp_path: Path) -> None:
    write_scene(tmp_path, 3, images=8)
    images, boxes, labels, masks = run(of_detaug(tmp_path), RECIPES[recipe])
    compared = 0
    for image, own, of_image in zip(images, labels, masks, strict=True):
        assert of_image.shape == (len(own), *image.shape[:2])
        for label, mask in zip(own.tolist(), of_image, strict=True):
            assert mask.dtype == np.uint8
            if (own == label).sum() == 1 and recipe != "mosaic":
                assert np.array_equal(mask > 0, is_color_of(label, image))
            assert not ((mask > 0) & ~is_color_of(label, image)).any()
            compared += 1
    assert compared > 12
    assert [len(each) for each in boxes] == [len(each) for each in masks]


def test_dalis_own_reader_and_further_outputs(tmp_path: Path) -> None:
    """Polygons of two rings; one object has none, and gets the mask of its box."""
    path = write_scene(tmp_path, 4, images=4)
    document = json.loads(path.read_text())
    first = {}
    for each in document["annotations"]:
        x, y, width, height = each["bbox"]
        left, right = [x, y, x + width / 4, y, x, y + height], [x + width, y, x + width, y + height, x + width / 2, y]
        each["segmentation"] = [left, right]
        first.setdefault(each["image_id"], each["id"])
    path.write_text(json.dumps(document))

    def dalis() -> Any:
        arguments = {"file_root": str(tmp_path), "annotations_file": str(path), "ltrb": True, "image_ids": True}
        encoded, boxes, labels, rings, vertices, image_ids = fn.readers.coco(**arguments, polygon_masks=True)
        return encoded, boxes, labels, image_ids, rings, vertices

    ops = [da.RandomHorizontalFlip(p=1), da.Resize((135, 180))]
    found = run(dalis, ops, 4, units="pixels", return_matrix=True)
    own = run(of_detaug(tmp_path), ops, 4, return_matrix=True)
    assert len(found) == len(own) == 5
    for one, two in zip(found[4], own[4], strict=True):
        assert np.array_equal(one, two)
        assert one.any((1, 2)).all()
    reader = da.CocoReader(tmp_path, path, masks=True)
    (batch,) = da.Loader(reader, ops, 4, train=False)
    assert np.array_equal(np.concatenate(own[4]) > 0, batch.masks().numpy())


def test_a_box_without_a_ring_and_wrong_rings(tmp_path: Path) -> None:
    image, boxes = np.zeros((40, 50, 3), np.uint8), np.array([[5, 5, 20, 30], [22, 6, 44, 20]], np.float32)
    ring, vertices = np.array([[1, 0, 3]], np.int32), np.array([[22, 6], [44, 6], [22, 20]], np.float32)

    def masks_of(rings: Any, points: Any) -> Any:
        @pipeline_def(batch_size=1, num_threads=1, device_id=None)
        def pipeline() -> Any:
            nodes = [types.Constant(each, device="cpu") for each in (image, boxes, rings, points)]
            return da.fn.augment(nodes[0], nodes[1], None, [RESIZE], units="pixels", polygons=(nodes[2], nodes[3]))

        return np.asarray(pipeline().run()[3].at(0))

    masks = masks_of(ring, vertices)
    assert masks.shape == (2, *SIZE)
    assert masks[0].sum() == pytest.approx(15 * 25 * 90 * 120 / 2000, rel=0.05)
    assert masks[1].sum() == pytest.approx(22 * 14 / 2 * 90 * 120 / 2000, rel=0.05)
    with pytest.raises(RuntimeError, match=r"sample 0: rings must be of its 2 boxes and 3 vertices, got \[2, 0, 3\]"):
        masks_of(ring + np.array([1, 0, 0], np.int32), vertices)
    with pytest.raises(RuntimeError, match=r"rings must be of its 2 boxes and 3 vertices, got \[1, 0, 4\]"):
        masks_of(ring + np.array([0, 0, 1], np.int32), vertices)
    with pytest.raises(RuntimeError, match=r"polygons must be rings \(P, 3\) and vertices \(V, 2\), got"):
        masks_of(ring, vertices[:, :1])
    with pytest.raises(RuntimeError, match="the vertices of polygons must be finite"):
        masks_of(ring, vertices * np.float32(np.nan))


def test_arguments(tmp_path: Path) -> None:
    write_scene(tmp_path, 3, images=2)
    with pytest.raises(da.InputError, match=r"needs masks: give da\.fn\.augment polygons="):
        run(of_detaug(tmp_path), [RESIZE, da.CopyPaste(masks=True)], polygons=None)
    with pytest.raises(da.InputError, match="polygons must be two nodes"):
        run(of_detaug(tmp_path), [RESIZE], polygons=(1, 2, 3))
