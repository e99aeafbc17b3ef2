"""Memory and time of the loader on the CPU, with photographs of several sizes; of several checkouts, interleaved.

    python benchmarks/photographs.py [--megapixels 3 12 48] [--batch-size 16] [--scaled] [--before ../before]

Makes JPEGs of about 1.7 bits a pixel and runs the recipe `ssd300` on them, each turn in a process of its own. Prints
the largest memory of the process (VmHWM) and its CPU time for each image, medians of the turns and in brackets their
range, and the ratio of the CPU times to those of the first row: of the checkout `--before` if there is one. `--scaled`:
also with `Resize(decode="scaled")`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

FILES = 8
"""Different files of each size; the json names each of them several times, by links."""
IMAGES = 96


def write_photographs(folder: Path, megapixels: int) -> None:
    """Write the files, links to them, and a json with three boxes for each: a smooth picture with noise."""
    height = round((megapixels * 1e6 * 3 / 4) ** 0.5 / 120) * 120
    width = height * 4 // 3
    folder.mkdir()
    for at in range(FILES):
        rng = np.random.default_rng(at)
        coarse = Image.fromarray(rng.integers(0, 256, (height // 60, width // 60, 3), np.uint8))
        noise = rng.normal(0, 4, (height // 2, width // 2)).astype(np.int16).repeat(2, 0).repeat(2, 1)[:, :, None]
        pixels = np.asarray(coarse.resize((width, height)), np.int16) + noise
        Image.fromarray(pixels.clip(0, 255).astype(np.uint8)).save(folder / f"{at}.jpg", quality=90)
    for at in range(FILES, IMAGES):
        os.link(folder / f"{at % FILES}.jpg", folder / f"{at}.jpg")
    rows = [{"id": at, "file_name": f"{at}.jpg", "width": width, "height": height} for at in range(IMAGES)]
    boxes = [
        {"id": 3 * at + k, "image_id": at, "category_id": 1, "bbox": [width * (1 + 2 * k) / 8, 90, width / 5, 900]}
        for at in range(IMAGES)
        for k in range(3)
    ]
    document = {"images": rows, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}]}
    (folder / "train.json").write_text(json.dumps(document))


def measure(folder: str, batch_size: int, images: int, *, scaled: bool) -> None:
    """Print the most memory that this process took, in GB, and the CPU milliseconds of an image."""
    import detaug as da

    da.keep_freed_memory()
    ops = da.presets.ssd300()
    if scaled:
        ops = [replace(op, decode="scaled") if isinstance(op, da.Resize) else op for op in ops]
    loader = da.Loader(da.CocoReader(folder, Path(folder, "train.json")), ops, batch_size, device="cpu")
    batches = (len(batch) for _ in iter(int, 1) for batch in loader)
    next(batches)  # what is loaded or compiled once
    start, taken = time.process_time(), 0
    while taken < images:
        taken += next(batches)
    spent = time.process_time() - start
    most = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(int(most.split()[1]) / 1e6, spent / taken * 1e3)


def turn(checkout: Path, decode: str, folder: Path, options: argparse.Namespace) -> tuple[float, float]:
    """Run `measure` with the package of a checkout, in a process of its own."""
    path = os.pathsep.join([str(checkout.resolve()), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", str(folder)]
    command += [str(options.batch_size), str(options.images), decode]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}, check=True)
    memory, spent = map(float, done.stdout.split()[-2:])
    return memory, spent


def _range(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        folder, batch_size, images, decode = sys.argv[2:]
        measure(folder, int(batch_size), int(images), scaled=decode == "scaled")
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megapixels", type=int, nargs="+", default=[3, 12, 48])
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--scaled", action="store_true")
    parser.add_argument("--before", type=Path)
    options = parser.parse_args()
    here = Path(__file__).parent.parent
    rows = [(here, "whole")] if options.before is None else [(options.before, "whole"), (here, "whole")]
    rows += [(here, "scaled")] * options.scaled
    for megapixels in options.megapixels:
        with TemporaryDirectory() as name:
            folder = Path(name, "photographs")
            write_photographs(folder, megapixels)
            turns = [[turn(*row, folder, options) for row in rows] for _ in range(options.turns)]
        for (checkout, decode), column in zip(rows, zip(*turns, strict=True), strict=True):
            ratios = [each[1] / row[0][1] for each, row in zip(column, turns, strict=True)]
            memory, spent = zip(*column, strict=True)
            name = f"{megapixels} megapixels, {checkout.resolve().name}, {decode}"
            print(f"{name}: {_range(memory)} GB, {_range(spent)} CPU ms an image, {_range(ratios)} of the first row")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
