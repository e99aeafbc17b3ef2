"""Resize images to 640 x 640 float32 batches: detaug with 8 threads, OpenCV in a DataLoader of 8 processes.

    python benchmarks/resize_640.py train.json JPEGImages [--images 21453] [--batch-size 32] [--turns 3]

An early DALI toolkit for this task claimed 6.2 s for the 21,453 images of VOC 2007 and 2012 on a V100, and 16 times
OpenCV's rate. Both begin with warm workers and count that many images, over several epochs if needed.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch

import detaug as da
from detaug.bench.jobs import Job
from detaug.bench.torchvision_loader import data_loader

THREADS = 8


def with_detaug(job: Job) -> Iterator[int]:
    reader = da.CocoReader(job.images, job.annotations)
    recipe = [da.Resize((640, 640)), da.Normalize()]
    loader = da.Loader(reader, recipe, job.batch_size, device=job.device, pipelines=THREADS // 2, threads=2)
    while True:
        for batch in loader:
            yield len(batch)


def with_opencv(job: Job) -> Iterator[int]:
    import cv2

    cv2.setNumThreads(0)

    def sample(path: str, boxes: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        image = cv2.cvtColor(cv2.imread(path), cv2.COLOR_BGR2RGB)
        (height, width), image = image.shape[:2], cv2.resize(image, (640, 640))
        pixels = torch.from_numpy(image).permute(2, 0, 1).float() / 255
        scale = torch.tensor([640 / width, 640 / height] * 2)
        return pixels, torch.from_numpy(boxes) * scale, torch.from_numpy(labels)

    for made in data_loader(job, sample):
        yield made.new


def seconds(batches: Iterator[int], images: int) -> float:
    start, done = time.perf_counter(), 0
    while done < images:
        done += next(batches)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations")
    parser.add_argument("folder")
    parser.add_argument("--images", type=int, default=21_453)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        da.keep_freed_memory()
    job = Job(options.annotations, options.folder, batch_size=options.batch_size, device=device, workers=THREADS)
    ours, theirs = with_detaug(job), with_opencv(job)
    for batches in (ours, theirs):
        seconds(batches, min(options.images, 2_000))
    turns = [[seconds(batches, options.images) for batches in (ours, theirs)] for _ in range(options.turns)]
    for name, times in zip(("detaug", "OpenCV"), zip(*turns, strict=True), strict=True):
        print(
            f"{name}: {options.images} images in {statistics.median(times):.2f} s ({min(times):.2f}..{max(times):.2f})"
        )
    print(f"OpenCV / detaug: {statistics.median(theirs / ours for ours, theirs in turns):.1f}")


if __name__ == "__main__":
    main()
