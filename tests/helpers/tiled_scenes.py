"""Images of painted objects, each in a color of its own, so that a detector can read all of them off the pixels."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import nn

import detaug as da

CLASSES = ("disc", "ring", "arch")
POINTS = 2
"""Keypoints of each object: dots in the color of the object with 100, 200 in blue."""


def mask_of(kind: int, side: int) -> NDArray[np.bool_]:
    """Return the mask of an object: a disc, a ring with a hole, an arch, which is concave."""
    y, x = np.indices((side, side)) + 0.5 - side / 2
    radius = np.hypot(x, y) * 2 / side
    if kind == 0:
        return radius <= 1
    if kind == 1:
        return (radius <= 1) & (radius >= 0.6)
    return np.abs(x) * 2 / side > 0.5 if side < 12 else ~((np.abs(x) < side / 4) & (y > -side / 4))


def paint_scene(
    height: int, width: int, objects: int, largest: int, seed: int
) -> tuple[NDArray[np.uint8], list[dict[str, Any]]]:
    """Return an image and its annotations, without image ids. Objects do not touch each other."""
    rng = np.random.default_rng(seed)
    image, entries = np.zeros((height, width, 3), np.uint8), list[dict[str, Any]]()
    for _ in range(50 * objects):
        side = int(rng.integers(10, largest + 1))
        x, y = (int(rng.integers(0, room - side + 1)) for room in (width, height))
        if len(entries) == objects or image[max(0, y - 1) : y + side + 1, max(0, x - 1) : x + side + 1].any():
            continue
        number, kind = len(entries) + 1, int(rng.integers(len(CLASSES)))
        mask = mask_of(kind, side)
        place = image[y : y + side, x : x + side]
        place[mask] = (number // 100 + 1, number % 100 + 1, 10 + kind)
        rows, columns = np.nonzero(mask)
        dots = [(columns[at], rows[at]) for at in rng.choice(len(rows), POINTS, replace=False)]
        for level, (column, row) in enumerate(dots, 1):
            place[row, column, 2] += 100 * level
        left, top, right, bottom = columns.min() + x, rows.min() + y, columns.max() + 1 + x, rows.max() + 1 + y
        box = [left, top, right - left, bottom - top]
        entries.append(
            {
                "category_id": 10 * (kind + 1),
                "bbox": [int(each) for each in box],
                "area": int(mask.sum()),
                "iscrowd": 0,
                "segmentation": run_lengths(columns + x, rows + y, height, width),
                "keypoints": [int(each) for column, row in dots for each in (column + x, row + y, 2)],
                "num_keypoints": POINTS,
                "corners": [[int(c), int(r)] for c, r in ((left, top), (right, top), (right, bottom), (left, bottom))],
                "note": f"object {number}",
            }
        )
    assert len(entries) == objects, f"{len(entries)} of {objects} objects have room"
    return image, entries


def run_lengths(columns: NDArray[np.int64], rows: NDArray[np.int64], height: int, width: int) -> dict[str, Any]:
    """Return COCO's RLE of pixels, as a list of counts."""
    flat = np.sort(columns * height + rows)
    last = np.flatnonzero(np.append(np.diff(flat) > 1, True))
    starts, ends = flat[np.append(0, last[:-1] + 1)], flat[last] + 1
    changes = [0, *np.stack([starts, ends], axis=1).ravel().tolist(), height * width]
    return {"size": [height, width], "counts": [int(each) for each in np.diff(changes)]}


def write_scenes(
    folder: Path, sizes: list[tuple[int, int]], objects: int, largest: int, *, keys: tuple[str, ...] = ()
) -> tuple[Path, Path]:
    """Write images as PNG and their JSON file. `keys`: of annotations to leave out."""
    images, annotations = folder / "pictures", list[dict[str, Any]]()
    (images / "flight").mkdir(parents=True)
    rows = []
    for at, (height, width) in enumerate(sizes):
        picture, entries = paint_scene(height, width, objects, largest, seed=at)
        name, image_id = f"flight/{at:03}.png", 50 + at
        Image.fromarray(picture).save(images / name, compress_level=1)
        rows.append({"id": image_id, "file_name": name, "height": height, "width": width, "place": "harbour"})
        for entry in entries:
            left = {key: value for key, value in entry.items() if key not in keys}
            annotations.append({"id": 1000 + len(annotations), "image_id": image_id, **left})
    points = {"keypoints": ["left_dot", "right_dot"]} if "keypoints" not in keys else {}
    categories = [{"id": 10 * at, "name": name, **points} for at, name in enumerate(CLASSES, 1)]
    path = folder / "scenes.json"
    document = {"info": {"year": 2026}, "images": rows, "annotations": annotations, "categories": categories}
    path.write_text(json.dumps(document))
    return images, path


def read_objects(pixels: NDArray[np.uint8]) -> Iterator[tuple[int, NDArray[np.bool_], NDArray[np.float64]]]:
    """Yield the label, the mask and the keypoints (x, y; NaN where not seen) of each object in painted pixels."""
    numbers = pixels[..., 0].astype(int) * 256 + pixels[..., 1]
    for number in np.unique(numbers[numbers > 0]).tolist():
        mask = numbers == number
        levels = pixels[..., 2]
        label = int(levels[mask].min() % 100) - 9
        points = np.full((POINTS, 2), np.nan)
        for level in range(1, POINTS + 1):
            found = np.argwhere(mask & (levels // 100 == level))
            if len(found):
                points[level - 1] = found[0][::-1] + 0.5
        yield label, mask, points


def detect(batch: da.Batch) -> list[dict[str, torch.Tensor]]:
    """Return what a perfect detector finds in the batch: it sees pixels alone. Scores differ from tile to tile."""
    return [detect_in(image, seed) for image, seed in zip(batch.images, batch.image_id.tolist(), strict=True)]


def detect_in(image: torch.Tensor, seed: int) -> dict[str, torch.Tensor]:
    """Return what a perfect detector finds in an image (3, H, W) uint8."""
    objects = [*read_objects(image.permute(1, 2, 0).numpy())]
    masks = np.array([mask for _, mask, _ in objects]).reshape(-1, *image.shape[1:])
    boxes = np.array([_box(mask) for mask in masks], np.float32).reshape(-1, 4)
    points = np.array([each for _, _, each in objects], np.float32).reshape(-1, POINTS, 2)
    centres = np.stack([boxes[:, [0, 2]].mean(1), boxes[:, [1, 3]].mean(1)], axis=1)[:, None]
    scores = 0.6 + 0.4 * np.random.default_rng(seed).random(len(objects))
    return {
        "boxes": torch.from_numpy(boxes),
        "labels": torch.tensor([label for label, _, _ in objects], dtype=torch.int64),
        "scores": torch.from_numpy(scores.astype(np.float32)),
        "masks": torch.from_numpy(masks),
        "keypoints": torch.from_numpy(np.where(np.isnan(points), centres, points)),
        "corners": torch.from_numpy(boxes[:, [0, 1, 2, 1, 2, 3, 0, 3]].reshape(-1, 4, 2)),
    }


class Detector(nn.Module):
    """The same as a model of images in 0..1."""

    def forward(self, images: torch.Tensor) -> list[dict[str, torch.Tensor]]:
        return [detect_in((image * 255).round().byte(), seed=int(image.sum())) for image in images]


def _box(mask: NDArray[np.bool_]) -> list[int]:
    rows, columns = np.flatnonzero(mask.any(1)), np.flatnonzero(mask.any(0))
    return [columns[0], rows[0], columns[-1] + 1, rows[-1] + 1]
