"""Datasets of painted images on disk, and comparisons of batches."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from painted import paint, random_boxes
from PIL import Image

import detaug as da
from detaug.loading.settings import Settings, write_settings

Folder = tuple[Path, Path]


def write_coco(folder: Path, images: list[tuple[str, tuple[int, int], list]], classes: int = 3) -> Folder:
    """A JSON for (file name, (height, width), XYXY boxes with labels 1, 2, ...)."""
    rows = [
        {"id": 10 + at, "file_name": name, "height": height, "width": width}
        for at, (name, (height, width), _) in enumerate(images)
    ]
    boxes = [
        {"image_id": 10 + at, "category_id": label * 7, "bbox": [x0, y0, x1 - x0, y1 - y0], "iscrowd": 0}
        for at, (_, _, each) in enumerate(images)
        for label, (x0, y0, x1, y1) in enumerate(np.asarray(each).tolist(), 1)
    ]
    annotations = [{"id": at, **box} for at, box in enumerate(boxes, 1)]
    categories = [{"id": label * 7, "name": f"class {label}"} for label in range(1, classes + 1)]
    path = folder / "annotations.json"
    path.write_text(json.dumps({"images": rows, "annotations": annotations, "categories": categories}))
    return folder, path


def paint_files(folder: Path, count: int = 21) -> Folder:
    """Painted PNG files of three sizes; the last one has no boxes."""
    rng = np.random.default_rng(0)
    images = []
    for at in range(count):
        size = [(96, 128), (128, 96), (150, 150)][at % 3]
        boxes = random_boxes(rng, size, 24) if at < count - 1 else np.zeros((0, 4), np.int64)
        Image.fromarray(paint(size, boxes)).save(folder / f"{at:02}.png")
        images.append((f"{at:02}.png", size, boxes))
    return write_coco(folder, images)


def settings_file(painted: Folder, **changes: int) -> Path:
    """For the loader: two pipelines, but for these changes."""
    write_settings(painted[0].parent / "settings.json", Settings(**{"pipelines": 2, "threads": 2, **changes}))
    return painted[0].parent / "settings.json"


def same(a: da.Batch, b: da.Batch) -> bool:
    names = ("images", "boxes", "labels", "valid", "image_id", "source_size", "image_size", "matrix")
    return all(torch.equal(getattr(a, name), getattr(b, name)) for name in names)


def digests(batch: da.Batch) -> Iterator[str]:
    """Yield a hash of each image: of its own pixels without padding, its boxes and what belongs to it."""
    for at, (height, width) in enumerate(batch.image_size.tolist()):
        fields = [
            batch.images[at, :, :height, :width],
            batch.boxes[at][batch.valid[at]],
            batch.labels[at][batch.valid[at]],
        ]
        fields += [batch.image_id[at], batch.source_size[at], batch.image_size[at], batch.matrix[at]]
        total = hashlib.sha256()
        for each in fields:
            total.update(each.cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
        yield f"{int(batch.image_id[at])} {total.hexdigest()[:16]}"
