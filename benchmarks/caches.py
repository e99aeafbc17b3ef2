"""Compare the loader's caches with reading files, interleaved in one process: images per second.

    python benchmarks/caches.py [FILE.json IMAGES] [--device cuda] [--preset ssd300] [--batch-size 128] [--turns 5]

"half" keeps half of the images on the device and decodes the others; "device and host" keeps the other half in main
memory. What a mix should reach is computed from the rates of its two parts in the same turn: the time of an image is
the mean of theirs. Prints medians of the turns, in brackets their range. Without FILE.json, the images are generated:
JPEGs of 500 x 375.
"""

from __future__ import annotations

import argparse
import time
from collections import deque
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from compare_versions import write_data
from settings import text

import detaug as da

MIXES = {"half": ("device", "files"), "device and host": ("device", "host")}
"""The two parts of each mix."""


def caches(reader: da.CocoReader) -> dict[str, Any]:
    """Return the argument `cache` of each loader, by name. "host" and the mixes get room for what they need."""
    half = int(3 * reader.pixels.sum()) // 2
    return {
        "files": None,
        "device": {"device": 2.2 * half},
        "host": {"host": 2.2 * half},
        "half": {"device": half},
        "device and host": {"device": half, "host": 1.2 * half},
    }


def forever(loader: da.Loader, epochs: int = 3) -> Iterator[int]:
    """Yield the number of images of each batch, after the epochs in which the cache is filled."""
    for _ in range(epochs):
        deque(loader, maxlen=0)
    for each in cycle([loader]):
        for batch in each:
            yield len(batch)


def rate(batches: Iterator[int], seconds: float, device: str) -> float:
    """Return images per second, after a quarter of the time that does not count."""
    _take(batches, seconds / 4, device)
    start = time.perf_counter()
    images = _take(batches, seconds, device)
    return images / (time.perf_counter() - start)


def _take(batches: Iterator[int], seconds: float, device: str) -> int:
    end, images = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        images += next(batches)
    if device != "cpu":
        torch.cuda.synchronize()
    return images


def compare(reader: da.CocoReader, options: argparse.Namespace) -> None:
    """Measure all loaders in turns, every second time in reverse order, and print the table."""
    recipe, how = getattr(da.presets, options.preset)(), {"device": options.device}
    loaders = {
        name: da.Loader(reader, recipe, options.batch_size, cache=cache, **how)
        for name, cache in caches(reader).items()
    }
    batches = {name: forever(loader) for name, loader in loaders.items()}
    turns: list[dict[str, float]] = []
    for turn in range(options.turns):
        names = list(batches)[:: 1 if turn % 2 == 0 else -1]
        turns.append({name: rate(batches[name], options.seconds, options.device) for name in names})
    print(f"{options.preset}, batch {options.batch_size}, {len(reader)} images")
    for name, loader in loaders.items():
        print(f"{name}: {text([turn[name] for turn in turns], ',.0f')} images/s, {loader.cached_images} kept", end="")
        print(f", {text([turn[name] / turn['files'] for turn in turns], '.2f')} of files", end="")
        if name in MIXES:
            one, other = MIXES[name]
            ratios = [turn[name] / mixed(turn[one], turn[other]) for turn in turns]
            print(f", {text(ratios, '.2f')} of what the rates of {one} and {other} predict", end="")
        print(flush=True)


def mixed(one: float, other: float) -> float:
    """Return the rate of which half of the images come at each of two rates."""
    return 2 / (1 / one + 1 / other)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", metavar="FILE.json IMAGES")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--preset", default="ssd300")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--images", type=int, default=4000, help="how many to generate")
    parser.add_argument("--seconds", type=float, default=1.5)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        if not options.data:
            write_data(Path(folder), options.images)
        annotations, images = options.data or (f"{folder}/train.json", folder)
        compare(da.CocoReader(images, annotations), options)


if __name__ == "__main__":
    main()
