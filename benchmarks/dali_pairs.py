"""Measure how far boxes are from their pixels after DALI's pairs of operators, and after `da.fn`'s single ops.

    python benchmarks/dali_pairs.py [--images 256] [--device cuda]

Each image has three painted rectangles of at least 24 pixels per side, one in each color channel. After the operators,
each box is compared with its rectangle, whose edges are read off the pixels to a fraction of a pixel. The error of a
box is the largest of its four coordinates' errors, in pixels of the output image. Reading has an error of its own of
about 0.05 pixels where images are resized, none elsewhere.

DALI's pairs are called as in its detection examples, with the layout named: bb_flip and bbox_paste take XYWH otherwise.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from nvidia.dali import Pipeline, fn

import detaug as da
from detaug.testing import paint, read_box

Array = NDArray[Any]
Nodes = tuple[Any, Any, Any]
"""Nodes of images, relative boxes, labels."""

SIZE = (300, 300)
BATCH = 32
BLACK = (0.0, 0.0, 0.0)


class Errors(NamedTuple):
    """How far boxes are from their pixels, in pixels."""

    boxes: int
    mean: float
    worst: float


# ------------------------------------------------------------------------------------------- DALI's pairs


def dali_flip(images: Any, boxes: Any, labels: Any) -> Nodes:
    flip = fn.random.coin_flip()
    return fn.flip(images, horizontal=flip), fn.bb_flip(boxes, ltrb=True, horizontal=flip), labels


def dali_paste(images: Any, boxes: Any, labels: Any) -> Nodes:
    where = {
        "ratio": 1 + fn.random.coin_flip() * fn.random.uniform(range=[0.0, 3.0]),
        "paste_x": fn.random.uniform(range=[0.0, 1.0]),
        "paste_y": fn.random.uniform(range=[0.0, 1.0]),
    }
    return fn.paste(images, fill_value=[0, 0, 0], **where), fn.bbox_paste(boxes, ltrb=True, **where), labels


def dali_crop(images: Any, boxes: Any, labels: Any) -> Nodes:
    anchor, shape, boxes, labels = fn.random_bbox_crop(  # type: ignore[misc]
        boxes,
        labels,
        bbox_layout="xyXY",
        thresholds=[0.0, 0.1, 0.3, 0.5, 0.7, 0.9],
        scaling=[0.3, 1.0],
        aspect_ratio=[0.5, 2.0],
        num_attempts=40,
        total_num_attempts=320,
        quiet=True,
        all_boxes_above_threshold=False,
    )
    return fn.slice(images, anchor, shape), boxes, labels


def dali_resize(images: Any, boxes: Any, labels: Any) -> Nodes:
    return fn.resize(images, size=SIZE), boxes, labels


def dali_ssd(images: Any, boxes: Any, labels: Any) -> Nodes:
    return dali_resize(*dali_flip(*dali_crop(*dali_paste(images, boxes, labels))))


# ---------------------------------------------------------------------------------------------- ours


def our_flip(images: Any, boxes: Any, labels: Any) -> Nodes:
    return da.fn.flip(images, boxes, labels)


def our_paste(images: Any, boxes: Any, labels: Any) -> Nodes:
    return da.fn.paste(images, boxes, labels, fill=BLACK)


def our_crop(images: Any, boxes: Any, labels: Any) -> Nodes:
    return da.fn.random_bbox_crop(images, boxes, labels)


def our_resize(images: Any, boxes: Any, labels: Any) -> Nodes:
    return da.fn.resize(images, boxes, labels, SIZE)


def our_ssd(images: Any, boxes: Any, labels: Any) -> Nodes:
    return our_resize(*our_flip(*our_crop(*our_paste(images, boxes, labels))))


def our_recipe(images: Any, boxes: Any, labels: Any) -> Nodes:
    """Return relative boxes, as the others do."""
    ops = [da.RandomZoomOut(fill=BLACK), da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize(SIZE)]
    images, boxes, labels = da.fn.augment(images, boxes, labels, ops)
    return images, boxes / SIZE[0], labels


ROWS: dict[str, dict[str, Callable[[Any, Any, Any], Nodes]]] = {
    "flip": {"fn.flip + fn.bb_flip": dali_flip, "da.fn.flip": our_flip},
    "paste": {"fn.paste + fn.bbox_paste": dali_paste, "da.fn.paste": our_paste},
    "crop": {"fn.random_bbox_crop + fn.slice": dali_crop, "da.fn.random_bbox_crop": our_crop},
    "resize": {"fn.resize": dali_resize, "da.fn.resize": our_resize},
    "SSD recipe": {
        "DALI's four pairs": dali_ssd,
        "da.fn's four single ops": our_ssd,
        "da.fn.augment, one resampling": our_recipe,
    },
}


# ------------------------------------------------------------------------------------------- measuring


def measure(nodes: Callable[[Any, Any, Any], Nodes], images: int, device: str = "cpu") -> Errors:
    """Return the errors of all boxes of `images` painted images of random sizes."""
    rng = np.random.default_rng(0)
    sizes = rng.integers((200, 250), (400, 500), (images, 2)).tolist()
    painted = [paint((height, width), 1, 24, seed) for seed, (height, width) in enumerate(sizes)]
    given = [each.images[0] for each in painted]
    boxes = [
        (each.boxes[0] / np.tile(size[::-1], 2)).astype(np.float32) for each, size in zip(painted, sizes, strict=True)
    ]
    errors = run(nodes, given, boxes, device)
    return Errors(len(errors), float(np.mean(errors)), float(np.max(errors)))


def run(nodes: Callable[[Any, Any, Any], Nodes], images: list[Array], boxes: list[Array], device: str) -> list[float]:
    """Return the error of each box that the operators left."""
    batch = min(BATCH, len(images))
    pipe = Pipeline(batch_size=batch, num_threads=2, device_id=0 if device == "cuda" else None, seed=1)
    labels = [np.arange(1, 4, dtype=np.int32)] * len(images)
    with pipe:
        sources = [fn.external_source(split(each, batch), cycle="raise") for each in (images, boxes, labels)]
        image = sources[0].gpu() if device == "cuda" else sources[0]
        pipe.set_outputs(*nodes(image, sources[1], sources[2]))
    errors = []
    for _ in range(len(images) // batch):
        outputs = [output.as_cpu() for output in pipe.run()]
        for image, *rows in zip(*outputs, strict=True):
            errors += box_errors(np.array(image), *map(np.array, rows))
    return errors


def split(samples: list[Array], size: int) -> list[list[Array]]:
    return [samples[start : start + size] for start in range(0, len(samples), size)]


def box_errors(image: Array, boxes: Array, labels: Array) -> list[float]:
    room = np.tile(image.shape[1::-1], 2)
    seen = [read_box(image[..., int(label) - 1].astype(np.float64)) for label in labels]
    return [float(np.abs(box * room - edges).max()) for box, edges in zip(boxes, seen, strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    arguments = parser.parse_args()
    print("| operation | operators | boxes | mean error, px | worst error, px |\n|---|---|---:|---:|---:|")
    for operation, variants in ROWS.items():
        for name, nodes in variants.items():
            errors = measure(nodes, arguments.images, arguments.device)
            print(f"| {operation} | {name} | {errors.boxes} | {errors.mean:.2f} | {errors.worst:.2f} |", flush=True)


if __name__ == "__main__":
    main()
