"""Compare boxes with pixels after zoom-out, crop, flip and resize: detaug, and the recipe by hand in DALI, on the CPU.

    python benchmarks/box_accuracy.py

Each image has a painted rectangle. The program prints the mean and the largest distance of a box from the edges of its
rectangle, in output pixels.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import fn, pipeline_def
from nvidia.dali import math as dali_math

import detaug as da

N, SIZE = 400, (240, 320)
OUT = (300, 300)
Array = NDArray[Any]


def painted_images() -> tuple[Array, Array]:
    """Return images (N, H, W, 3) with a white rectangle each, and their boxes (N, 4) XYXY, whole pixels."""
    rng = np.random.default_rng(0)
    sides = rng.integers(60, 120, (N, 2))
    start = rng.integers(0, np.array(SIZE[::-1]) - sides + 1)
    boxes = np.concatenate([start, start + sides], axis=1)
    images = np.zeros((N, *SIZE, 3), np.uint8)
    for image, (x0, y0, x1, y1) in zip(images, boxes, strict=True):
        image[y0:y1, x0:x1] = 255
    return images, boxes


def edges(profile: Array) -> tuple[float, float]:
    """Return where a bright stretch on black begins and ends: half its brightness, to a fraction of a pixel."""
    bright = profile / profile.max() - 0.5
    inside = np.flatnonzero(bright >= 0)

    def crossing(values: Array, at: int) -> float:
        return 0.0 if at == 0 else float(at - 0.5 + values[at - 1] / (values[at - 1] - values[at]))

    last = len(bright) - 1 - inside[-1]
    return crossing(bright, inside[0]), len(bright) - crossing(bright[::-1], last)


def errors(images: Iterable[Any], boxes: Iterable[Any]) -> Array:
    """Return (n, 4): distances of boxes from the rectangle's edges, in output pixels; n images have a box."""
    rows = []
    for image, own in zip(images, boxes, strict=True):
        if len(own):
            gray = np.asarray(image)[:, :, 0].astype(float)
            (x0, x1), (y0, y1) = edges(gray.max(axis=0)), edges(gray.max(axis=1))
            rows.append(np.abs(own[0] - (x0, y0, x1, y1)))
    return np.array(rows)


@pipeline_def(batch_size=N, num_threads=2, device_id=None, seed=0)
def by_hand() -> tuple[Any, Any]:
    """Run the ops as DALI's detection examples write them; boxes are relative."""
    image = fn.external_source(name="image", layout="HWC")
    box, label = fn.external_source(name="box"), np.ones(1, np.int32)
    ratio = 1 + fn.random.coin_flip() * fn.random.uniform(range=[0.0, 1.0])
    x, y = fn.random.uniform(range=[0.0, 1.0]), fn.random.uniform(range=[0.0, 1.0])
    image = fn.paste(image, ratio=ratio, paste_x=x, paste_y=y, fill_value=[0, 0, 0])
    box = dali_math.clamp(fn.bbox_paste(box, ltrb=True, ratio=ratio, paste_x=x, paste_y=y), 0.0, 1.0)
    anchor, shape, box, label = fn.random_bbox_crop(
        box, label, bbox_layout="xyXY", thresholds=[0.0, 0.1, 0.3, 0.5, 0.7, 0.9], scaling=[0.3, 1.0],
        aspect_ratio=[0.5, 2.0], num_attempts=40, total_num_attempts=320, quiet=True,
    )  # fmt: skip
    flip = fn.random.coin_flip()
    image, box = fn.flip(fn.slice(image, anchor, shape), horizontal=flip), fn.bb_flip(box, ltrb=True, horizontal=flip)
    return fn.resize(image, size=OUT), box


def main() -> None:
    images, boxes = painted_images()
    pipeline = by_hand()
    pipeline.feed_input("image", list(images))
    pipeline.feed_input("box", [np.array([box / np.tile(SIZE[::-1], 2)], np.float32) for box in boxes])
    painted, relative = pipeline.run()
    moved = [np.array(relative.at(at)) * np.tile(OUT[::-1], 2) for at in range(N)]
    ops = [da.RandomZoomOut(2.0, fill=(0, 0, 0)), da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize(OUT)]
    samples = da.batch(list(images), [[box] for box in boxes]).then(*ops)
    theirs = errors([painted.at(at) for at in range(N)], moved)
    for name, found in (("by hand", theirs), ("detaug", errors(samples.images, samples.boxes))):
        print(f"{name:8} mean {found.mean():.2f}  max {found.max():.2f} output pixels, {len(found)} images with a box")


if __name__ == "__main__":
    main()
