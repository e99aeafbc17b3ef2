"""Measure what pictures of many bands cost on the CPU beside 8-bit RGB: CPU time of an image through a loader.

python benchmarks/many_bands.py --turns 5
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import process_time
from typing import Any

import numpy as np
import tifffile

import detaug as da

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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--images", type=int, default=128)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    recipe = [da.RandomHorizontalFlip(), da.RandomIoUCrop(), da.Resize((300, 300)), da.Normalize()]
    with TemporaryDirectory() as folder:
        loaders = {}
        for at, name in enumerate(CASES):
            reader = write(Path(folder) / str(at), name, options.images, options.size)
            loaders[name] = da.Loader(reader, recipe, 16, device="cpu")
            milliseconds(loaders[name])
        found = [{name: milliseconds(loader) for name, loader in loaders.items()} for _ in range(options.turns)]
    first = next(iter(CASES))
    for name in CASES:
        times, ratios = [turn[name] for turn in found], [turn[name] / turn[first] for turn in found]
        print(f"{name}: {median(times):.1f} CPU-ms an image, {median(ratios):.1f} times the first")


if __name__ == "__main__":
    main()
