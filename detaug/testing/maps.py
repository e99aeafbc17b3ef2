"""Test any op on maps: paint regions of one color each, run the op, and compare the map with the colors."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from detaug.arguments import check, is_whole
from detaug.arrays import Array
from detaug.loading.loader import Loader
from detaug.maps.kinds import ClassMap
from detaug.ops.op import Op
from detaug.sources.coco_reader import CocoReader

COLORS = np.array([(220, 40, 40), (40, 220, 40), (40, 40, 220), (220, 220, 40), (220, 40, 220), (40, 220, 220)])
"""Of the regions with the values 0, 1, ...; fill is black."""

NEAR = 12
"""How much a pixel of a region may differ from its color: what lies between two regions differs more."""

IGNORE = 255


def assert_maps_follow_pixels(
    ops: Op | Iterable[Op],
    *,
    size: tuple[int, int] = (192, 256),
    images: int = 8,
    min_pixels: int = 1000,
    seed: int = 0,
    device: str = "cpu",
    picture: str | Path | None = None,
) -> int:
    """Paint regions of one color each, run `ops`, one or a recipe, and compare the map of classes with the colors.

    `size`: (H, W) of the painted images, `images` their number. `min_pixels`: how many pixels must be left to compare.
    A pixel is compared if it and its eight neighbors have the color of one region, or are black, which is fill and
    must be `ignore` in the map. So the ops should leave colors, fill with black, and average no images.

    Returns the number of compared pixels. Raises AssertionError if they are fewer than `min_pixels`, or for pixels with
    another value than their color's; it names a PNG, `picture` or a temporary file, with these in white.

    >>> da.testing.assert_maps_follow_pixels([da.RandomIoUCrop(), da.Resize((96, 96)), da.RandomHorizontalFlip()])
    60000
    """
    check("images", images, is_whole(images, 1), "a whole number of at least 1")
    recipe = [ops] if isinstance(ops, Op) else [*ops]
    with tempfile.TemporaryDirectory() as folder:
        loader = Loader(_painted(Path(folder), size, images, seed), recipe, images, device=device, seed=seed)
        batch = next(iter(loader)).to("cpu")
        values_of_map, pixels = batch.maps["regions"].numpy(), batch.images.permute(0, 2, 3, 1).float().numpy()
    seen = np.stack([_regions_of(image) for image in pixels])
    compared = seen >= 0
    wrong = compared & (values_of_map != seen)
    if wrong.any():
        path = _drawn(pixels, wrong, picture)
        image, y, x = np.argwhere(wrong)[0].tolist()
        values = f"{values_of_map[image, y, x]} in the map, {seen[image, y, x]} by its color"
        raise AssertionError(
            f"{wrong.sum()} of {compared.sum()} pixels of the map do not have the value of their color, after "
            f"{recipe}: the first is ({x}, {y}) of image {image}, {values}; see {path}"
        )
    count = int(compared.sum())
    assert count >= min_pixels, f"only {count} pixels are left to check after {recipe}, but min_pixels is {min_pixels}"
    return count


def _painted(folder: Path, size: tuple[int, int], images: int, seed: int) -> CocoReader:
    """Write images of rectangles, discs and stripes of one color each, their maps, and boxes around some of them."""
    (height, width), rng = size, np.random.default_rng([5, seed])
    rows: list[dict[str, Any]] = []
    annotations: list[dict[str, Any]] = []
    for name in ("images", "maps"):
        (folder / name).mkdir()
    y, x = np.mgrid[:height, :width] + 0.5
    for index in range(images):
        values = np.zeros(size, np.uint8)
        for value in rng.permutation(np.arange(1, len(COLORS))).tolist():
            center, radius = rng.uniform((0, 0), (width, height)), rng.uniform(min(size) / 8, min(size) / 3)
            across, down = x - center[0], y - center[1]
            box = np.maximum(abs(across), abs(down)) < radius
            values[[box, np.hypot(across, down) < radius, abs(across + down) < radius / 2][value % 3]] = value
            low, high = (center - radius).clip(0), (center + radius).clip(None, (width, height))
            if (high - low >= 8).all():
                annotations.append(
                    {"id": len(annotations) + 1, "image_id": index + 1, "category_id": 1, "iscrowd": 0, "area": 64,
                     "bbox": [*low.tolist(), *(high - low).tolist()]}
                )  # fmt: skip
        Image.fromarray(COLORS[values].astype(np.uint8)).save(folder / f"images/{index:04}.png")
        Image.fromarray(values).save(folder / f"maps/{index:04}.png")
        rows.append({"id": index + 1, "file_name": f"{index:04}.png", "height": height, "width": width})
    content = {"images": rows, "annotations": annotations, "categories": [{"id": 1, "name": "region"}]}
    (folder / "regions.json").write_text(json.dumps(content))
    return CocoReader(folder / "images", folder / "regions.json", maps={"regions": ClassMap(folder / "maps")})


def _regions_of(image: Array) -> NDArray[np.int64]:
    """Return (H, W) the value of the region that each pixel (H, W, 3) shows, `IGNORE` for fill; -1 at edges."""
    colors = np.concatenate([COLORS, [(0, 0, 0)]])
    distances = abs(image[:, :, None] - colors).max(3)
    nearest = distances.argmin(2)
    nearest[distances.min(2) > NEAR] = -1
    padded = np.pad(nearest, 1, mode="edge")
    neighbors = [padded[i : i + image.shape[0], j : j + image.shape[1]] for i in range(3) for j in range(3)]
    alike = (np.stack(neighbors) == nearest).all(0)
    return np.where(alike & (nearest >= 0), np.append(np.arange(len(COLORS)), IGNORE)[nearest], -1)


def _drawn(pixels: Array, wrong: NDArray[np.bool_], picture: str | Path | None) -> Path:
    """Write a PNG of the first image with wrong pixels, these in white."""
    index = int(wrong.any((1, 2)).argmax())
    image = np.clip(pixels[index] // 2, 0, 255).astype(np.uint8)
    image[wrong[index]] = 255
    path = Path(picture or tempfile.mkstemp(prefix="misplaced_", suffix=".png")[1])
    Image.fromarray(image).save(path)
    return path
