"""Compare the loader on files with the loader on WebDataset and TFRecord shards of the same images, interleaved.

    python benchmarks/shards.py [FILE.json IMAGES] [--device cuda] [--batch-size 128] [--seconds 4] [--turns 3]

Prints images/s and the CPU time of the main thread for an image, and their ratios to those of files: medians of the
turns, in brackets their range. First in the first epoch of a new reader, which verifies each image in a shard, then in
later ones. All three read the same images in the same order, from the page cache. Without FILE.json, the images are
generated: JPEGs of 500 x 375.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch
from compare_versions import write_data

import detaug as da
from detaug.converters import pack_coco

FORMATS = ("webdataset", "tfrecord")


class Measured(NamedTuple):
    """Images a second, and microseconds of the main thread for an image."""

    rate: float
    main_thread: float


Found = dict[str, list[Measured]]


def first_epoch(source: da.Source, options: argparse.Namespace) -> Measured:
    """Measure the first epoch of a new source: all but the batches that are in flight when the loader is made."""
    with da.Loader(source, da.presets.ssd300(), options.batch_size, device=options.device) as loader:
        batches = iter(loader)
        next(batches)
        start, cpu = time.perf_counter(), time.thread_time()
        images = sum(len(batch) for batch in batches)
        if options.device != "cpu":
            torch.cuda.synchronize()
        return Measured(images / (time.perf_counter() - start), (time.thread_time() - cpu) / images * 1e6)


def forever(loader: da.Loader) -> Iterator[int]:
    """Yield the number of images of each batch, epoch after epoch."""
    for _ in count():
        for batch in loader:
            yield len(batch)


def measure(batches: Iterator[int], seconds: float, device: str) -> Measured:
    """Measure for some seconds, after a quarter of them that do not count."""
    _take(batches, seconds / 4)
    start, cpu = time.perf_counter(), time.thread_time()
    images = _take(batches, seconds)
    if device != "cpu":
        torch.cuda.synchronize()
    return Measured(images / (time.perf_counter() - start), (time.thread_time() - cpu) / images * 1e6)


def _take(batches: Iterator[int], seconds: float) -> int:
    end, images = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        images += next(batches)
    return images


def in_turns(names: list[str], turns: int, measure_one: Callable[[str], Measured]) -> Found:
    """Measure all names in turns, every second time in reverse order."""
    found: Found = {name: [] for name in names}
    for turn in range(turns):
        for name in names[:: 1 if turn % 2 == 0 else -1]:
            found[name].append(measure_one(name))
    return found


def print_table(title: str, found: Found) -> None:
    """Print a line for each name, compared with "files"."""
    print(title)
    for name, each in found.items():
        ratios = [one.rate / files.rate for one, files in zip(each, found["files"], strict=True)]
        more = [one.main_thread - files.main_thread for one, files in zip(each, found["files"], strict=True)]
        rate = f"  {name} {median(one.rate for one in each):,.0f} images/s"
        ratio = f"{median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}) of files"
        main_thread = f"main thread {median(one.main_thread for one in each):.1f} us an image"
        extra = f"{median(more):+.1f} ({min(more):+.1f} to {max(more):+.1f}) more than files"
        print(rate, ratio, main_thread, extra, sep="; ", flush=True)


def compare(make: dict[str, Callable[[], da.Source]], options: argparse.Namespace) -> None:
    """Compare the sources that these functions make."""
    names = list(make)
    print_table("first epoch", in_turns(names, options.turns, lambda name: first_epoch(make[name](), options)))
    given = {"batch_size": options.batch_size, "device": options.device}
    loaders = {name: forever(da.Loader(make[name](), da.presets.ssd300(), **given)) for name in names}
    later = in_turns(names, options.turns, lambda name: measure(loaders[name], options.seconds, options.device))
    print_table("later epochs", later)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", metavar="FILE.json IMAGES")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--images", type=int, default=4000, help="how many to generate")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        folder = Path(name)
        if not options.data:
            write_data(folder, options.images)
        annotations, images = options.data or (str(folder / "train.json"), name)
        make: dict[str, Callable[[], da.Source]] = {"files": partial(da.CocoReader, images, annotations)}
        for form in FORMATS:
            packed = folder / form
            pack_coco(annotations, images, packed, format=form)
            make[form] = partial(da.CocoReader, packed, packed / f"{Path(annotations).stem}.json")
        compare(make, options)


if __name__ == "__main__":
    main()
