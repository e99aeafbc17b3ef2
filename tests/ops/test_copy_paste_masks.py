"""`CopyPaste(masks=True)` against painted pixels, and against its rules written a second time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image
from pycocotools import mask as coco_masks
from seeds import seeds

import detaug as da

Array = NDArray[Any]
SIZE = 90, 120
RESIZE = da.Resize(SIZE)
COLORS = np.random.default_rng(7).integers(1, 256, (64, 3)).astype(np.uint8)
"""Of the objects: those of one number."""


def scene(seed: int, images: int = 6) -> tuple[list[Array], list[Array], list[Array], list[list[Any]]]:
    """Paint discs with holes and bars, each in a color of its own, the later ones over the earlier ones.

    Return images, boxes, labels, and RLE of what is seen of each.
    """
    rng, (height, width) = np.random.default_rng(seed), SIZE
    y, x = np.mgrid[:height, :width]
    pictures, boxes, labels, runs, number = [], [], [], [], 0
    for _ in range(images):
        plane = np.full(SIZE, -1)
        first = number
        for _ in range(rng.integers(1, 5)):
            center, radius = rng.uniform((10, 10), (height - 10, width - 10)), rng.uniform(8, 30)
            away = np.hypot(y - center[0], x - center[1])
            plane[(away < radius) & ((away > radius / 3) | (rng.random() < 0.5))] = number
            number += 1
        seen = [at for at in range(first, number) if (plane == at).sum() > 20]
        plane[~np.isin(plane, seen)] = -1
        masks = [plane == at for at in seen]
        edges = [(np.flatnonzero(mask.any(0)), np.flatnonzero(mask.any(1))) for mask in masks]
        pictures.append(np.where(plane[..., None] >= 0, COLORS[plane % len(COLORS)], 0).astype(np.uint8))
        boxes.append(np.array([[c[0], r[0], c[-1] + 1, r[-1] + 1] for c, r in edges], float).reshape(-1, 4))
        labels.append(np.array(seen, int) + 1)
        runs.append([coco_masks.encode(np.asfortranarray(mask)) for mask in masks])
    return pictures, boxes, labels, runs


def write_scene(folder: Path, seed: int, images: int) -> Path:
    """Write PNG files and their JSON file; return the JSON file."""
    pictures, _, labels, runs = scene(seed, images)
    annotations = [
        {
            "id": label,
            "image_id": at,
            "category_id": label,
            "bbox": coco_masks.toBbox(each).tolist(),
            "segmentation": {**each, "counts": each["counts"].decode()},
            "area": int(coco_masks.area(each)),
            "iscrowd": 0,
        }
        for at in range(images)
        for label, each in zip(labels[at].tolist(), runs[at], strict=True)
    ]
    for at, picture in enumerate(pictures):
        Image.fromarray(picture).save(folder / f"{at}.png")
    rows = [{"id": at, "file_name": f"{at}.png", "height": SIZE[0], "width": SIZE[1]} for at in range(images)]
    categories = [{"id": label, "name": str(label)} for label in range(1, 100)]
    document = {"images": rows, "annotations": annotations, "categories": categories}
    (folder / "scene.json").write_text(json.dumps(document))
    return folder / "scene.json"


def samples(seed: int, **arguments: Any) -> da.Samples:
    pictures, boxes, labels, runs = scene(seed)
    shapes = da.Shapes.of_segmentations([{**each, "counts": each["counts"].decode()} for own in runs for each in own])
    return da.batch(pictures, boxes, labels, shapes=shapes, seed=seed, **arguments)


def is_color_of(label: int, image: Array) -> Array:
    return np.asarray((image == COLORS[(label - 1) % len(COLORS)]).all(2))


@pytest.mark.parametrize("seed", seeds(3, 40))
def test_masks_are_the_pixels_of_objects(seed: int, device: str) -> None:
    paste = da.CopyPaste(p=1, masks=True, max_hidden=1)
    for ops in (
        [RESIZE],
        [da.RandomHorizontalFlip(), RESIZE, da.CutMix(p=0.5)],
        [RESIZE, da.Mosaic()],
        [RESIZE, paste],
    ):
        after = samples(seed, device=device).then(*ops, paste)
        for image, labels, masks in zip(after.images, after.labels, after.masks, strict=True):
            for label, mask in zip(labels.tolist(), masks, strict=True):
                assert not (mask & ~is_color_of(label, image)).any()
            if len(ops) == 1:
                assert (np.logical_or.reduce(masks) == image.any(2)).all()
                assert masks.sum() == image.any(2).sum()


def expected(before: da.Samples, op: da.CopyPaste, at: int, pasted: list[int]) -> dict[int, list[float]]:
    """Return by label the boxes of an image's own objects under the masks of `pasted` labels of another image."""
    masks = {
        label: mask for own in zip(before.labels, before.masks, strict=True) for label, mask in zip(*own, strict=True)
    }
    over = np.logical_or.reduce([masks[label] for label in pasted]) if pasted else np.zeros(SIZE, bool)
    left = {}
    for label, box in zip(before.labels[at].tolist(), before.boxes[at].tolist(), strict=True):
        mask, rest = masks[label], masks[label] & ~over
        columns, rows = np.flatnonzero(rest.any(0)), np.flatnonzero(rest.any(1))
        if len(rows) == 0 or 1 - rest.sum() / mask.sum() > op.max_hidden + 1e-9:
            continue
        new = [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
        moved = max(abs(a - b) for a, b in zip(new, box, strict=True))
        if (mask & over).any() and rest.sum() < op.min_mask_area and moved > op.max_box_shift:
            continue
        left[label] = new
    return left


RULES = {
    "the paper": da.CopyPaste(p=1, masks=True, max_hidden=1),
    "MMDetection": da.CopyPaste(p=1, masks=True, max_hidden=1, min_mask_area=301, max_box_shift=10),
    "half": da.CopyPaste(p=0.7, max_boxes=2, masks=True, max_hidden=0.5),
}


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("seed", seeds(3, 14))
def test_what_is_hidden_counts_by_mask(seed: int, rule: str) -> None:
    op, most = RULES[rule], 0
    for each in range(100 * seed, 100 * seed + 4):
        before = samples(each).then(RESIZE)
        after = before.then(op)
        for at, (boxes, labels) in enumerate(zip(after.boxes, after.labels, strict=True)):
            found = dict(zip(labels.tolist(), boxes.tolist(), strict=True))
            own = set(before.labels[at].tolist())
            pasted = [label for label in found if label not in own]
            most = max(most, len(pasted))
            left = expected(before, op, at, pasted)
            assert {label: box for label, box in found.items() if label in own} == left
            source = next((s for s in range(6) if pasted and pasted[0] in before.labels[s]), 0)
            whole = dict(zip(before.labels[source].tolist(), before.boxes[source].tolist(), strict=True))
            assert all(found[label] == whole[label] for label in pasted)
    assert most == op.max_boxes


def test_where_the_thresholds_lie() -> None:
    """60 of 100 pixels are covered, and the right side of the box moves by 6."""
    rings = [[[10, 10, 20, 10, 20, 20, 10, 20]], [[14, 5, 40, 5, 40, 40, 14, 40]]]
    pictures, boxes = [np.zeros((*SIZE, 3), np.uint8)] * 2, [[[10, 10, 20, 20]], [[14, 5, 40, 40]]]
    before = da.batch(pictures, boxes, [[1], [2]], shapes=da.Shapes.of_segmentations(rings)).then(RESIZE)
    for stays, arguments in [
        (True, {"max_hidden": 0.6}),
        (False, {"max_hidden": 0.59}),
        (True, {"max_hidden": 1, "min_mask_area": 40}),
        (False, {"max_hidden": 1, "min_mask_area": 41}),
        (True, {"max_hidden": 1, "min_mask_area": 41, "max_box_shift": 6}),
        (False, {"max_hidden": 1, "min_mask_area": 41, "max_box_shift": 5.9}),
    ]:
        after = before.then(da.CopyPaste(p=1, masks=True, **arguments))
        assert after.labels[0].tolist() == ([1, 2] if stays else [2])
        assert after.boxes[0][0].tolist() == ([10, 10, 14, 20] if stays else [14, 5, 40, 40])


def test_a_key_point_is_hidden_by_the_mask_alone() -> None:
    """A ring is pasted over two points: one is below the ring, and one in its hole."""
    y, x = np.mgrid[: SIZE[0], : SIZE[1]]
    away = np.hypot(y - 45, x - 60)
    ring = coco_masks.encode(np.asfortranarray((away < 30) & (away > 15)))
    shapes = da.Shapes(
        outlines=da.Shapes.of_segmentations(
            [[[30, 15, 90, 15, 90, 75, 30, 75]], {**ring, "counts": ring["counts"].decode()}]
        ).outlines,
        keypoints=da.KeyPoints([[[60, 45, 2], [60.5, 23.5, 2]], [[0, 0, 0], [0, 0, 0]]]),
    )
    pictures, boxes = [np.zeros((*SIZE, 3), np.uint8)] * 2, [[[30, 15, 90, 75]], [[30, 15, 90, 75]]]
    after = da.batch(pictures, boxes, shapes=shapes).then(RESIZE, da.CopyPaste(p=1, masks=True, max_hidden=1))
    first = after.keypoints[0][0]
    assert first[:, 2].tolist() == [2, 1]
    assert first[:, :2].tolist() == [[60, 45], [60.5, 23.5]]


def test_in_a_loader(tmp_path: Path, device: str) -> None:
    reader = da.CocoReader(tmp_path, write_scene(tmp_path, 3, images=16), masks=True)
    seen = 0
    for batch in da.Loader(reader, [RESIZE, da.CopyPaste(p=1, masks=True)], 8, device=device):
        masks = batch.to("cpu").masks().numpy()
        image, place = np.nonzero(batch.valid.cpu().numpy())
        pixels = batch.images.cpu().permute(0, 2, 3, 1).numpy()
        for at, m, mask in zip(image, place, masks, strict=True):
            label = int(batch.labels[at, m])
            if (batch.labels[at] == label).sum() == 1:
                assert np.array_equal(mask, is_color_of(label, pixels[at]))
                seen += int(batch.image_id_of_box[at, m] != batch.image_id[at])
    assert seen > 8


def test_it_needs_masks_and_right_numbers() -> None:
    op = da.CopyPaste(masks=True)
    with pytest.raises(da.InputError, match=r"CopyPaste \(2nd\) needs masks: make the reader with masks=True"):
        da.Loader(da.Source([SIZE] * 4, []), [RESIZE, op], 4)
    with pytest.raises(da.InputError, match=r"needs masks: give da\.batch shapes=da\.Shapes"):
        da.batch([np.zeros((9, 9, 3), np.uint8)] * 2).then(RESIZE, op)
    with pytest.raises(da.InputError, match="min_mask_area must be 0 without masks=True, got 9"):
        da.CopyPaste(min_mask_area=9)
    with pytest.raises(da.InputError, match="max_box_shift must be a number of pixels, at least 0, got -1"):
        da.CopyPaste(masks=True, max_box_shift=-1)
