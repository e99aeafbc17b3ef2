"""Measure what a batch takes of the training's thread: `next(batches)` and `targets()`.

    python benchmarks/training_thread.py [FILE.json IMAGES] [--device cuda] [--cases ssd300:32 yolo640:32 retinanet:16]

Prints milliseconds of the thread's CPU time, and of the clock, which includes waiting. The first batch of a group takes
the time of all, so the means count; the medians are in brackets. Without FILE.json, the images are generated: JPEGs of
500 x 375.
"""

from __future__ import annotations

import argparse
import statistics
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from compare_versions import write_data
from point_costs import endless

import detaug as da

WARM_UP = 100


def measure(loader: da.Loader, seconds: float) -> dict[str, list[tuple[float, float]]]:
    """Return for each step the milliseconds of the thread and of the clock, of each batch."""
    found: dict[str, list[tuple[float, float]]] = {"next": [], "targets()": []}
    batches = endless(loader)
    for _ in range(WARM_UP):
        next(batches).targets()
    start = time.perf_counter()
    while time.perf_counter() - start < seconds:
        marks = [(time.thread_time(), time.perf_counter())]
        batch = next(batches)
        marks.append((time.thread_time(), time.perf_counter()))
        batch.targets()
        marks.append((time.thread_time(), time.perf_counter()))
        for name, before, after in zip(found, marks, marks[1:], strict=False):
            found[name].append((1000 * (after[0] - before[0]), 1000 * (after[1] - before[1])))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", metavar="FILE.json IMAGES")
    parser.add_argument("--cases", nargs="*", default=["ssd300:32", "yolo640:32", "retinanet:16"])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--images", type=int, default=2000)
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        if not options.data:
            write_data(Path(name), options.images)
        annotations, images = options.data or (Path(name, "train.json"), name)
        for case in options.cases:
            preset, size = case.split(":")
            recipe = getattr(da.presets, preset)()
            with da.Loader(da.CocoReader(images, annotations), recipe, int(size), device=options.device) as loader:
                for step, times in measure(loader, options.seconds).items():
                    thread, clock = (
                        f"{statistics.mean(each):.3f} ({statistics.median(each):.3f})"
                        for each in zip(*times, strict=True)
                    )
                    print(f"{case} {step}: {thread} ms of the thread, {clock} by the clock", flush=True)


if __name__ == "__main__":
    main()
