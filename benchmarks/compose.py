"""One decoded image through da.Compose, torchvision v2 and, if it is installed, Albumentations; on one thread.

    python benchmarks/compose.py [--size 375 500] [--images 40] [--rounds 5]

From (H, W, 3) uint8 and boxes to a float32 tensor and boxes. The rows of a recipe are measured in turns, image by
image. Albumentations has no zoom-out and no IoU crop of SSD's kind; CropAndPad and RandomSizedBBoxSafeCrop are the
nearest it has. AlbumentationsX is AGPL: install it into a virtual environment that is for this comparison only.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import torch

import detaug as da

Transform = Callable[[np.ndarray, np.ndarray, np.ndarray], Any]
"""Takes an image (H, W, 3) uint8, boxes (M, 4) XYXY pixels and labels (M,)."""

FILL = (123, 117, 104)


def detaug(ops: list[da.Op]) -> Transform:
    transform = da.Compose(ops)
    return lambda image, boxes, labels: transform(image, {"boxes": boxes, "labels": labels})


def torchvision(ops: Callable[[Any, Any], list[Any]]) -> Transform:
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    end = [v2.ToDtype(torch.float32, scale=True), v2.SanitizeBoundingBoxes()]
    transform = v2.Compose([*ops(v2, tv_tensors), *end])

    def run(image: np.ndarray, boxes: np.ndarray, labels: np.ndarray) -> Any:
        tensor = tv_tensors.Image(torch.from_numpy(image).permute(2, 0, 1))
        given = tv_tensors.BoundingBoxes(torch.from_numpy(boxes), format="XYXY", canvas_size=image.shape[:2])
        return transform(tensor, {"boxes": given, "labels": torch.from_numpy(labels)})

    return run


def albumentations(ops: Callable[[Any], list[Any]]) -> Transform:
    import albumentations as A
    import cv2

    cv2.setNumThreads(0)
    end = [A.Normalize(mean=(0, 0, 0), std=(1, 1, 1)), A.ToTensorV2()]
    transform = A.Compose([*ops(A), *end], bbox_params=A.BboxParams("pascal_voc", label_fields=["labels"]))
    return lambda image, boxes, labels: transform(image=image, bboxes=boxes, labels=labels)


RECIPES: dict[str, dict[str, Callable[[], Transform]]] = {
    "flip, resize to 640 x 640": {
        "detaug": lambda: detaug([da.RandomHorizontalFlip(), da.Resize((640, 640)), da.Normalize()]),
        "torchvision v2": lambda: torchvision(lambda v2, _: [v2.RandomHorizontalFlip(), v2.Resize((640, 640))]),
        "Albumentations": lambda: albumentations(lambda A: [A.HorizontalFlip(), A.Resize(640, 640)]),
    },
    "SSD, 300 x 300": {
        "detaug": lambda: detaug(da.presets.ssd300()),
        "torchvision v2": lambda: torchvision(
            lambda v2, tv_tensors: [
                v2.RandomPhotometricDistort(),
                v2.RandomZoomOut(fill={tv_tensors.Image: FILL, "others": 0}),
                v2.RandomIoUCrop(),
                v2.RandomHorizontalFlip(),
                v2.Resize((300, 300)),
            ]
        ),
        "Albumentations": lambda: albumentations(
            lambda A: [
                A.CropAndPad(percent=(0.0, 1.5), keep_size=False, fill=FILL, p=0.5),
                A.RandomSizedBBoxSafeCrop(300, 300, erosion_rate=0.2, p=0.86),
                A.HorizontalFlip(p=0.5),
                A.Resize(300, 300),
                A.ColorJitter((0.875, 1.125), (0.5, 1.5), (0.5, 1.5), (-0.05, 0.05), p=0.5),
            ]
        ),
    },
    "rotate, resize to 640 x 640, blur": {
        "detaug": lambda: detaug(
            [da.RandomRotation(10), da.Resize((640, 640)), da.GaussianBlur(kernel_size=5, p=1), da.Normalize()]
        ),
        "torchvision v2": lambda: torchvision(
            lambda v2, _: [
                v2.RandomRotation(10, interpolation=v2.InterpolationMode.BILINEAR),
                v2.Resize((640, 640)),
                v2.GaussianBlur(5, (0.1, 2.0)),
            ]
        ),
        "Albumentations": lambda: albumentations(
            lambda A: [A.Rotate(10, p=1), A.Resize(640, 640), A.GaussianBlur((5, 5), (0.1, 2.0), p=1)]
        ),
    },
}


def examples(size: tuple[int, int], count: int) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Return images with structure at several scales, each with 1 to 8 boxes."""
    rng = np.random.default_rng(0)
    made = []
    for _ in range(count):
        coarse = rng.integers(0, 256, (-(-size[0] // 25), -(-size[1] // 25), 3), dtype=np.uint8)
        image = np.repeat(np.repeat(coarse, 25, 0), 25, 1)[: size[0], : size[1]]
        number = int(rng.integers(1, 9))
        sides = rng.uniform(20, min(size) / 2, (number, 2))
        start = rng.uniform(0, 1, (number, 2)) * (np.array(size[::-1]) - sides)
        boxes = np.concatenate([start, start + sides], 1).astype(np.float32)
        made.append((np.ascontiguousarray(image), boxes, np.arange(1, number + 1)))
    return made


def installed(rows: dict[str, Callable[[], Transform]]) -> dict[str, Transform]:
    """Return the transforms whose library can be imported."""
    made = {}
    for name, make in rows.items():
        try:
            made[name] = make()
        except ImportError:
            print(f"{name} is not installed")
    return made


def measure(rows: dict[str, Transform], images: list[Any], rounds: int) -> dict[str, list[float]]:
    """Return milliseconds of each image; a first round, which builds pipelines, does not count."""
    times: dict[str, list[float]] = {name: [] for name in rows}
    for turn in range(rounds + 1):
        for image in images:
            for name, transform in rows.items():
                start = perf_counter()
                transform(*image)
                if turn:
                    times[name].append((perf_counter() - start) * 1e3)
    return times


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, nargs=2, default=(375, 500), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--images", type=int, default=40)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    images = examples(tuple(options.size), options.images)
    for recipe, rows in RECIPES.items():
        times = measure(installed(rows), images, options.rounds)
        first = statistics.median(times["detaug"])
        for name, each in times.items():
            median = statistics.median(each)
            print(f"{recipe:36}{name:18}{median:7.2f} ms an image   {median / first:5.2f} of detaug's")


if __name__ == "__main__":
    main()
