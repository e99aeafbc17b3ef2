"""The SSD recipe with torchvision's colors, with a linear map of colors, and without colors.

    python benchmarks/color_costs.py [--images 512] [--batch-size 32] [--turns 5] [--seconds 3] [--device cuda]

Makes JPEGs of 500 x 375 with three boxes, and reads them with four loaders in turns. Prints images per second and CPU
milliseconds of an image, medians of the turns and in brackets their range. The ratios, turn by turn, are images per
second to those of the recipe without colors, and CPU time of that recipe to this one.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import torch
from frame_folders import images_of, rate

import detaug as da
from detaug.demo.shapes import paint
from detaug.machine.cores import available_cores
from detaug.ops.op import Op

COLORS: dict[str, list[Op]] = {
    "without": [],
    "linear map": [da.RandomPhotometricDistort(exact=False)],
    "torchvision's": [da.RandomPhotometricDistort()],
    "ColorJitter": [da.ColorJitter(0.4, 0.4, 0.4, 0.1)],
}


def write_image(folder: Path, at: int) -> None:
    """Write an image."""
    paint(at)[0].convert("RGB").resize((500, 375)).save(folder / f"{at}.jpg", quality=92)


def write_data(folder: Path, images: int) -> da.CocoReader:
    """Write images and their JSON file."""
    with ProcessPoolExecutor(available_cores()) as pool:
        list(pool.map(partial(write_image, folder), range(images)))
    rows = [{"id": at, "file_name": f"{at}.jpg", "width": 500, "height": 375} for at in range(images)]
    boxes = [
        {"id": 3 * at + k, "image_id": at, "category_id": 1, "bbox": [100 * k + 9, 90, 80, 90]}
        for at in range(images)
        for k in range(3)
    ]
    document = {"images": rows, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}]}
    (folder / "train.json").write_text(json.dumps(document))
    return da.CocoReader(folder, folder / "train.json")


def measure(reader: da.CocoReader, options: argparse.Namespace) -> None:
    """Print the rates of all loaders."""
    first, last = (
        [da.RandomZoomOut(), da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize((300, 300))],
        da.Normalize(),
    )
    if options.device == "cpu":
        da.keep_freed_memory()
    make = partial(da.Loader, reader, batch_size=options.batch_size, device=options.device)
    loaders = {name: make([*first, *ops, last]) for name, ops in COLORS.items()}
    counts = {name: images_of(loader) for name, loader in loaders.items()}
    rates: dict[str, list[float]] = {name: [] for name in COLORS}
    times: dict[str, list[float]] = {name: [] for name in COLORS}
    for _ in range(options.turns):
        for name, each in counts.items():
            counted, start = _Counted(each), time.process_time()
            rates[name].append(rate(counted, options.seconds, options.device))
            times[name].append(1000 * (time.process_time() - start) / counted.images)
        print(", ".join(f"{name} {found[-1]:,.0f}" for name, found in rates.items()), flush=True)
    for name in COLORS:
        ratio = spread([one / other for one, other in zip(rates[name], rates["without"], strict=True)], ".2f")
        saved = spread([other / one for one, other in zip(times[name], times["without"], strict=True)], ".2f")
        print(f"{name:<14} {spread(rates[name], ',.0f')} images/s, {ratio} of without;", end=" ")
        print(f"{spread(times[name], '.2f')} CPU ms, {saved}", flush=True)
    for loader in loaders.values():
        loader.close()


class _Counted:
    """Counts the images that it yields."""

    def __init__(self, counts: Iterator[int]) -> None:
        self.counts, self.images = counts, 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        new = next(self.counts)
        self.images += new
        return new


def spread(values: list[float], form: str) -> str:
    """Return the median, and in brackets the range."""
    return f"{median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    with TemporaryDirectory() as name:
        measure(write_data(Path(name), options.images), options)


if __name__ == "__main__":
    main()
