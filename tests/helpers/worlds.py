"""Recipes, samplers and images whose digests are compared on several numbers of processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from painted_files import Folder, write_coco
from PIL import Image

import detaug as da
from detaug.loading.settings import Settings, write_settings

GLOBAL_BATCH = 24
IMAGES = 61

FLIP, RESIZE, NORMALIZE = da.RandomHorizontalFlip(), da.Resize((64, 80)), da.Normalize()
RECIPES: dict[str, list[da.Op]] = {
    "ssd": [
        da.RandomZoomOut(fill=(9, 9, 9)),
        da.RandomIoUCrop(),
        FLIP,
        RESIZE,
        da.RandomPhotometricDistort(),
        NORMALIZE,
    ],
    "several sizes": [FLIP, da.RandomShortestSize((48, 60, 72), 96), da.RandomHSV(), NORMALIZE],
    "affine": [da.RandomAffine(10, translate=(0.1, 0.1), scale=(0.8, 1.2)), da.RandomIoUCrop(p=0.5), RESIZE],
    "resized crop": [da.RandAugment(), da.RandomResizedCrop((48, 64)), da.RandomErasing()],
    "containers": [
        da.RandomChoice([da.RandomRotation(10), da.RandomIoUCrop()]),
        da.Resize([(48, 48), (64, 48)]),
        da.RandomApply([da.ColorJitter(0.2, 0.2, 0.2, 0.1), da.GaussianBlur(5)]),
        da.RandomOrder([da.GridMask(), da.RandomPosterize(4)]),
    ],
    "perspective": [da.RandomPerspective(), RESIZE, da.SanitizeBoundingBoxes(), da.GaussianNoise(), da.JPEG(p=1)],
    "mosaic": [da.Resize((64, 64), letterbox="center"), da.Mosaic(until_epoch=1), da.MixUp(p=0.5), da.RandomHSV()],
    "mixing": [FLIP, RESIZE, da.CutMix(p=0.7), da.CopyPaste(p=1), NORMALIZE],
}
SAMPLERS: dict[str, dict[str, Any]] = {
    "once": {},
    "repeated": {"sampler": da.RepeatFactorSampler(0.5), "last_batch": "drop"},
    "grouped": {"sampler": da.ClassBalancedSampler(), "aspect_ratio_grouping": True},
}


def write_images(path: Path) -> Folder:
    """Write JPEG and PNG files of noise and of three sizes, with none to five boxes each, and their JSON file.

    Each object's polygon is a diamond, whose corners are the middles of the box's sides.
    """
    rng, rows = np.random.default_rng(0), []
    for at in range(IMAGES):
        height, width = [(60, 80), (80, 60), (72, 72)][at % 3]
        small = rng.integers(0, 256, (height // 4, width // 4, 3), dtype=np.uint8)
        name = f"{at}.{'png' if at % 5 else 'jpg'}"
        Image.fromarray(small).resize((width, height)).save(path / name)
        start = rng.integers(0, 30, (at % 6, 2))
        rows.append((name, (height, width), np.concatenate([start, start + rng.integers(4, 30, start.shape)], axis=1)))
    folder = write_coco(path, rows, classes=5)
    content = json.loads(folder[1].read_text())
    for annotation in content["annotations"]:
        x, y, width, height = annotation["bbox"]
        middle = x + width / 2, y + height / 2
        annotation["segmentation"] = [[middle[0], y, x + width, middle[1], middle[0], y + height, x, middle[1]]]
    folder[1].write_text(json.dumps(content))
    return folder


def settings(path: Path, rank: int) -> Path:
    """Write settings that differ from rank to rank; they change only the speed."""
    how = {"pipelines": 1 + rank % 2, "threads": 1 + rank % 3, "depth": 1 + rank % 2}
    chosen = Settings(**how, batches_per_group=1 + rank % 3, parts_per_batch=1 + rank % 2)
    write_settings(path / "settings.json", chosen)
    return path / "settings.json"
