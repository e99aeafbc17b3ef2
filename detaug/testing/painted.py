"""Painted images, what ops are run on to test them, and how they are run."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageDraw

from detaug.arrays import Array
from detaug.boxes.keypoints import KeyPoints
from detaug.boxes.shapes import Shapes
from detaug.loading.loader import Loader
from detaug.ops.op import Op
from detaug.samples.samples import Samples, batch
from detaug.sources.coco_reader import CocoReader

SIDES = ("left_hand", "right_hand")
RADIUS = 7.0
"""Of painted discs, in pixels."""

SUBPIXELS = 8
"""Along each side of a pixel, of the images that painted stars are shrunk from."""


class Painted(NamedTuple):
    """Black images with one white rectangle, or disc, in each color channel. Label k is channel k - 1."""

    images: list[Array]
    """N (H, W, 3) uint8."""
    boxes: list[Array]
    """N (3, 4) XYXY whole pixels."""
    points: list[Array] | None = None
    """N (3, 2, 2) x, y of the left and the right point of each object, of which one has a disc."""
    outlines: list[Array] | None = None
    """N (3, V, 2) x, y of the polygon of each object, which is white inside."""

    @property
    def shapes(self) -> Shapes:
        """Return the keypoints or polygons."""
        if self.outlines is not None:
            return Shapes.of_segmentations([[ring.ravel().tolist()] for ring in np.concatenate(self.outlines)])
        if self.points is not None:
            return Shapes(keypoints=KeyPoints(_visible(np.concatenate(self.points)), [SIDES]))
        return Shapes()


class Result(NamedTuple):
    """The images and boxes after the ops."""

    images: list[Array]
    """N (H, W, 3)."""
    boxes: list[Array]
    """N (M, 4) XYXY pixels."""
    labels: list[Array]
    """N (M,)."""
    to_output: Array
    """(N, 2 or 3, 3): source pixels -> pixels of `images`."""
    keypoints: list[Array] | None = None
    """N (M, 2, 3) x, y, visibility."""
    masks: list[Array] | None = None
    """N (M, H, W) bool."""


def paint(size: tuple[int, int], n: int, smallest: int, seed: int) -> Painted:
    """Paint three rectangles in each of n images, with sides of `smallest` pixels to half of the image.

    >>> painted = da.testing.paint((192, 256), n=2, smallest=24, seed=0)
    >>> print(painted.images[0].shape, painted.boxes[0].tolist())
    (192, 256, 3) [[15, 44, 126, 87], [85, 10, 152, 93], [161, 91, 220, 158]]
    """
    rng, (height, width) = np.random.default_rng([2, seed]), size
    images, boxes = np.zeros((n, *size, 3), np.uint8), np.zeros((n, 3, 4), np.int64)
    for index in np.ndindex(n, 3):
        sides = rng.integers(smallest, (max(width // 2, smallest) + 1, max(height // 2, smallest) + 1))
        start = rng.integers(0, (width, height) - sides + 1)
        boxes[index] = x0, y0, x1, y1 = (*start, *(start + sides))
        images[index[0], y0:y1, x0:x1, index[1]] = 255
    return Painted(list(images), list(boxes))


def paint_discs(size: tuple[int, int], n: int, side: int, seed: int) -> Painted:
    """Paint three objects in each of n images: a disc at the left point of each, or for `side` 1 at the right one.

    >>> painted = da.testing.paint_discs((192, 256), n=2, side=0, seed=0)
    >>> print(painted.images[0].shape, painted.points[0][0].round().tolist())
    (192, 256, 3) [[29.0, 50.0], [200.0, 110.0]]
    """
    rng, (height, width) = np.random.default_rng([3, seed]), size
    low, high = np.full(2, RADIUS + 2), np.array((width, height)) - RADIUS - 2
    images, points = np.zeros((n, *size, 3), np.uint8), rng.uniform(low, high, (n, 3, 2, 2))
    y, x = np.mgrid[:height, :width] + 0.5
    for index in np.ndindex(n, 3):
        while np.hypot(*(points[index][0] - points[index][1])) < min(size) / 4:
            points[index] = rng.uniform(low, high, (2, 2))
        from_center = np.hypot(x - points[index][side, 0], y - points[index][side, 1])
        images[index[0], ..., index[1]] = np.round(255 * (RADIUS + 0.5 - from_center).clip(0, 1))
    boxes = np.concatenate([np.floor(points.min(2) - RADIUS - 1), np.ceil(points.max(2) + RADIUS + 1)], axis=2)
    return Painted(list(images), list(boxes.astype(np.int64)), list(points))


def paint_stars(size: tuple[int, int], n: int, seed: int) -> Painted:
    """Paint three stars of eight points in each of n images.

    >>> painted = da.testing.paint_stars((192, 256), n=2, seed=0)
    >>> print(painted.images[0].shape, painted.outlines[0].shape)
    (192, 256, 3) (3, 16, 2)
    """
    rng, (height, width) = np.random.default_rng([4, seed]), size
    images, outlines = np.zeros((n, *size, 3), np.uint8), np.zeros((n, 3, 16, 2))
    angle = np.arange(16) * np.pi / 8
    around = np.stack([np.cos(angle), np.sin(angle)], axis=1) * np.tile([1.0, 0.5], 8)[:, None]
    for index in np.ndindex(n, 3):
        radius = rng.uniform(min(size) / 8, min(size) / 3)
        center = rng.uniform((radius, radius), (width - radius, height - radius))
        outlines[index] = center + radius * around
        large = Image.new("L", (SUBPIXELS * width, SUBPIXELS * height))
        ImageDraw.Draw(large).polygon((outlines[index] * SUBPIXELS - 0.5).ravel().tolist(), fill=255)
        images[index[0], ..., index[1]] = np.asarray(large.resize((width, height), Image.Resampling.BOX))
    boxes = np.concatenate([np.floor(outlines.min(2)), np.ceil(outlines.max(2))], axis=2).astype(np.int64)
    return Painted(list(images), list(boxes), outlines=list(outlines))


def run(ops: Iterable[Op], painted: Painted, *, seed: int, device: str, pipeline: bool) -> Result:
    """Run `ops` on painted images, directly or in a loader.

    >>> painted = da.testing.paint((192, 256), n=2, smallest=24, seed=0)
    >>> result = da.testing.run([da.RandomHorizontalFlip(p=1)], painted, seed=0, device="cpu", pipeline=False)
    >>> print(result.images[0].shape, result.boxes[0].round().tolist())
    (192, 256, 3) [[130.0, 44.0, 241.0, 87.0], [104.0, 10.0, 171.0, 93.0], [36.0, 91.0, 95.0, 158.0]]
    """
    recipe = list(ops)
    if pipeline:
        with tempfile.TemporaryDirectory() as folder:
            return _loaded_result(recipe, painted, Path(folder), seed, device)
    labels = [np.arange(1, 4)] * len(painted.images)
    samples = batch(painted.images, painted.boxes, labels, shapes=painted.shapes, seed=seed, device=device)
    return _eager_result(samples.then(*recipe))


def _visible(points: Array) -> Array:
    """Return (..., 3): points (..., 2) with visibility 2."""
    return np.concatenate([points, np.full((*points.shape[:-1], 1), 2.0)], axis=-1)


def _eager_result(samples: Samples) -> Result:
    images = [image if image.shape[2] == 3 else image.transpose(1, 2, 0) for image in samples.images]
    keypoints = None if samples.shapes.keypoints is None else samples.keypoints
    masks = samples.masks if samples.shapes.has_masks else None
    return Result(images, samples.boxes, samples.labels, samples.matrix, keypoints, masks)


def _loaded_result(ops: list[Op], painted: Painted, folder: Path, seed: int, device: str) -> Result:
    """Run the ops in a loader; results are in the order of `painted`, since a training loader shuffles."""
    loader = Loader(_written(painted, folder), ops, len(painted.images), device=device, seed=seed)
    batch = next(iter(loader)).to("cpu")
    order = np.argsort(batch.image_id.numpy())
    images = batch.images.permute(0, 2, 3, 1).float().numpy()
    targets = batch.targets(masks=painted.outlines is not None)
    boxes, labels = ([targets[index][name].numpy() for index in order] for name in ("boxes", "labels"))
    keypoints = [targets[index]["keypoints"].numpy() for index in order] if batch.has_keypoints else None
    masks = None if painted.outlines is None else [targets[index]["masks"].numpy() > 0 for index in order]
    return Result([images[index] for index in order], boxes, labels, batch.matrix.numpy()[order], keypoints, masks)


def _written(painted: Painted, folder: Path) -> CocoReader:
    """Write PNG files and their JSON file."""
    height, width = painted.images[0].shape[:2]
    names = [f"{index:04}.png" for index in range(len(painted.images))]
    for name, image in zip(names, painted.images, strict=True):
        Image.fromarray(image).save(folder / name)
    images = [{"id": index, "file_name": name, "width": width, "height": height} for index, name in enumerate(names)]
    boxes = [
        (index, k, box.tolist()) for index, own_boxes in enumerate(painted.boxes) for k, box in enumerate(own_boxes, 1)
    ]
    annotations: list[dict[str, Any]] = [
        {"id": n, "image_id": index, "category_id": k, "bbox": [x0, y0, x1 - x0, y1 - y0], "area": 1, "iscrowd": 0}
        for n, (index, k, (x0, y0, x1, y1)) in enumerate(boxes, 1)
    ]
    categories: list[dict[str, Any]] = [{"id": k, "name": str(k)} for k in (1, 2, 3)]
    if painted.points is not None:
        for annotation, points in zip(annotations, np.concatenate(painted.points), strict=True):
            annotation["keypoints"] = _visible(points - 0.5).ravel().tolist()  # COCO counts pixels
        categories = [category | {"keypoints": SIDES} for category in categories]
    if painted.outlines is not None:
        for annotation, outline in zip(annotations, np.concatenate(painted.outlines), strict=True):
            annotation["segmentation"] = [outline.ravel().tolist()]
    (folder / "painted.json").write_text(
        json.dumps({"images": images, "annotations": annotations, "categories": categories})
    )
    keypoints, masks = painted.points is not None, painted.outlines is not None
    return CocoReader(folder, folder / "painted.json", keypoints=keypoints, masks=masks)
