"""The cost of two views from one decode, beside one view and beside two loaders.

    python benchmarks/views.py [--device cpu] [--images 192] [--turns 7] [--batch-size 16]

The images are drawn: JPEGs of 500 x 375 and 1280 x 960, soft noise of several sizes. The weak view flips and resizes to
300 x 300, the strong one also crops and changes colors. Each turn takes one epoch of every loader, in turns, so that
other work on the machine slows all of them. Prints medians of the turns: seconds of all cores for 1,000 images (the
process's), wall seconds, and the medians of their ratios to the one view of the same turn.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from PIL import Image

import detaug as da

SIZES = ((375, 500), (960, 1280))
WEAK = [da.RandomHorizontalFlip(), da.Resize((300, 300)), da.Normalize()]
STRONG = [da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize((300, 300)), da.RandomPhotometricDistort(),
          da.Normalize()]  # fmt: skip


def draw(folder: Path, count: int, size: tuple[int, int]) -> da.CocoReader:
    """Write images whose detail takes about as many bytes as that of images of a camera, with five boxes each."""
    rng = np.random.default_rng(0)
    height, width = size
    content: dict[str, list[dict[str, Any]]] = {"images": [], "annotations": []}
    content["categories"] = [{"id": 1, "name": "box"}]
    for number in range(count):
        pixels = np.zeros((height, width, 3))
        for step, strength in ((64, 1.0), (16, 0.4), (4, 0.15), (1, 0.05)):
            small = rng.integers(0, 256, (height // step + 1, width // step + 1, 3), np.uint8)
            pixels += strength * np.asarray(Image.fromarray(small).resize((width, height)))
        name = f"{number:03}.jpg"
        Image.fromarray((pixels / 1.6).astype(np.uint8)).save(folder / name, quality=90)
        content["images"].append({"id": number + 1, "file_name": name, "height": height, "width": width})
        for _ in range(5):
            x, y = rng.uniform(0, width / 2), rng.uniform(0, height / 2)
            box = [x, y, *rng.uniform(20, width / 3, 1), *rng.uniform(20, height / 3, 1)]
            row = {"id": len(content["annotations"]) + 1, "image_id": number + 1, "category_id": 1, "bbox": box}
            content["annotations"].append(row | {"iscrowd": 0})
    (folder / "boxes.json").write_text(json.dumps(content), encoding="utf-8")
    return da.CocoReader(folder, folder / "boxes.json")


def measured(batches: Iterator[Any], device: str) -> tuple[float, float]:
    """Return the process's seconds on all cores, and wall seconds, of an epoch."""
    start = time.process_time(), time.perf_counter()
    for _ in batches:
        pass
    if device != "cpu":
        torch.cuda.synchronize()
    return time.process_time() - start[0], time.perf_counter() - start[1]


def main(options: argparse.Namespace) -> None:
    """Print a table for each size."""
    for size in SIZES:
        with TemporaryDirectory() as folder:
            reader = draw(Path(folder), options.images, size)
            kilobytes = sum(path.stat().st_size for path in Path(folder).glob("*.jpg")) / options.images / 1000
            print(f"\nimages of {size[1]} x {size[0]}, {kilobytes:.0f} kB")
            report(reader, options)


def report(reader: da.CocoReader, options: argparse.Namespace) -> None:
    """Measure all loaders in turns, and print a row for each."""

    def loader(ops: Any) -> da.Loader[Any]:
        # in training a loader goes on to the next epoch while others are measured
        return da.Loader(reader, ops, options.batch_size, train=False, device=options.device)

    weak, strong, other = loader(WEAK), loader(STRONG), loader(STRONG)
    views, three = loader({"weak": WEAK, "strong": STRONG}), loader({"a": WEAK, "b": STRONG, "c": STRONG})
    epochs: dict[str, Callable[[], Iterator[Any]]] = {
        "weak alone": lambda: iter(weak),
        "strong alone": lambda: iter(strong),
        "two views": lambda: iter(views),
        "three views": lambda: iter(three),
        "two loaders": lambda: zip(weak, other, strict=True),
    }
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in epochs}
    for turn in range(options.turns + 1):  # the first one is warm-up
        for name, epoch in epochs.items():
            seconds = measured(epoch(), options.device)
            turns[name] += [seconds] * (turn > 0)
    print("loader        CPU s per 1,000   wall s   CPU / weak alone   CPU / strong alone   wall / strong alone")
    for name, own in turns.items():
        cpu, wall = (median(turn[index] for turn in own) * 1000 / options.images for index in (0, 1))
        ratios = [
            median(turn[index] / base[index] for turn, base in zip(own, turns[beside], strict=True))
            for beside, index in (("weak alone", 0), ("strong alone", 0), ("strong alone", 1))
        ]
        print(f"{name:13} {cpu:12.2f} {wall:12.2f} {ratios[0]:14.2f} {ratios[1]:18.2f} {ratios[2]:20.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--images", type=int, default=192)
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--batch-size", type=int, default=16)
    main(parser.parse_args())
