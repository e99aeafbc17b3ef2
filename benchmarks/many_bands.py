"""Measure what images of many bands cost beside 8-bit RGB: CPU time of an image through a loader on the CPU.

python benchmarks/many_bands.py --turns 5

With a device, images/s of a loader, beside those of its pipelines when they decode, and copy to the device, only:

python benchmarks/many_bands.py --device cuda --size 640 --output 640 --images 512 --batch-size 32
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter, process_time
from typing import Any

import numpy as np
import tifffile
import torch

import detaug as da
from detaug.bench.loaders import decoded_batches
from detaug.loading.settings import grouping_of

CASES: dict[str, tuple[int, str, dict[str, Any]]] = {
    "3 bands of uint8": (3, "uint8", {"photometric": "rgb"}),
    "6 bands of uint16": (6, "uint16", {"photometric": "minisblack", "planarconfig": "contig"}),
    "6 bands of uint16, deflate": (
        6, "uint16", {"photometric": "minisblack", "planarconfig": "contig", "compression": "deflate"}
    ),
    "6 bands of uint16, planes": (6, "uint16", {"photometric": "minisblack", "planarconfig": "separate"}),
    "6 bands of float32": (6, "float32", {"photometric": "minisblack", "planarconfig": "contig"}),
}  # fmt: skip


def write(folder: Path, name: str, images: int, size: int) -> da.CocoReader:
    """Write TIFFs of smooth noise, and return a reader of them."""
    bands, dtype, options = CASES[name]
    folder.mkdir()
    rng = np.random.default_rng(0)
    for at in range(images):
        small = rng.uniform(0, 250, (size // 8, size // 8, bands))
        array = small.repeat(8, 0).repeat(8, 1).astype(dtype)
        planes = options.get("planarconfig") == "separate"
        tifffile.imwrite(folder / f"{at}.tif", np.moveaxis(array, 2, 0) if planes else array, **options)
    entries = [{"id": at, "file_name": f"{at}.tif", "width": size, "height": size} for at in range(images)]
    boxes = [
        {"id": at + 1, "image_id": at, "category_id": 1, "bbox": [9, 9, 99, 99], "area": 9801, "iscrowd": 0}
        for at in range(images)
    ]
    document = {"images": entries, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}]}
    (folder / "all.json").write_text(json.dumps(document))
    return da.CocoReader(folder, folder / "all.json", channels=bands, dtype=dtype)  # type: ignore[arg-type]


def milliseconds(loader: da.Loader) -> float:
    """Return the CPU time of an image of one epoch."""
    start, images = process_time(), 0
    for batch in loader:
        images += len(batch.images)
    return (process_time() - start) / images * 1e3


def images_per_second(batches: Iterator[int], images: int, seconds: float) -> float:
    """Return the rate of batches, each the number of its images, after `images` that fill the pipelines."""
    done = 0
    while done < images:
        done += next(batches)
    start, done = perf_counter(), 0
    while perf_counter() - start < seconds:
        done += next(batches)
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return done / (perf_counter() - start)


def rates(loader: da.Loader, seconds: float) -> tuple[float, float]:
    """Return images/s of a loader, and of its pipelines without its recipe."""
    settings, images = loader.settings, len(loader.reader)
    made = (len(batch.images) for _ in count() for batch in loader)
    grouping = grouping_of(settings, [loader.recipe])
    decoded = decoded_batches(loader.reader, settings, grouping, loader.batch_size, loader.device)
    return images_per_second(made, images, seconds), images_per_second(decoded, images, seconds)


def report_rates(options: argparse.Namespace) -> None:
    recipe = [da.RandomHorizontalFlip(), da.RandomIoUCrop(), da.Resize((options.output,) * 2), da.Normalize()]
    for name in CASES:
        with TemporaryDirectory() as folder:
            reader = write(Path(folder) / "files", name, options.images, options.size)
            turns = []
            for _ in range(options.turns):
                with da.Loader(reader, recipe, options.batch_size, device=options.device) as loader:
                    turns.append(rates(loader, options.seconds))
        made, decoded = (median(column) for column in zip(*turns, strict=True))
        shares = [a / b for a, b in turns]
        share = f"{median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})"
        print(f"{name}: {made:.0f} images/s, decoding and copying alone {decoded:.0f}; {share} of it")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--device", choices=["cpu", "cuda"])
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--output", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=16)
    options = parser.parse_args()
    if options.device:
        report_rates(options)
        return
    recipe = [da.RandomHorizontalFlip(), da.RandomIoUCrop(), da.Resize((options.output,) * 2), da.Normalize()]
    with TemporaryDirectory() as folder:
        loaders = {}
        for at, name in enumerate(CASES):
            reader = write(Path(folder) / str(at), name, options.images, options.size)
            loaders[name] = da.Loader(reader, recipe, options.batch_size, device="cpu")
            milliseconds(loaders[name])
        found = [{name: milliseconds(loader) for name, loader in loaders.items()} for _ in range(options.turns)]
    first = next(iter(CASES))
    for name in CASES:
        times, ratios = [turn[name] for turn in found], [turn[name] / turn[first] for turn in found]
        print(f"{name}: {median(times):.1f} CPU-ms an image, {median(ratios):.1f} times the first")


if __name__ == "__main__":
    main()
