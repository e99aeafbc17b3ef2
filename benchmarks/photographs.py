"""Memory and time of the loader with images of several sizes; of several checkouts and limits, interleaved.

    python benchmarks/photographs.py [--megapixels 3 12 48] [--batch-size 16] [--device cpu] [--preset ssd300]
        [--scaled] [--memory 150MB 2GB] [--before ../before]

Makes JPEGs of about 1.7 bits a pixel and runs a recipe on them, each turn in a process of its own. Prints
the largest memory, its CPU time for each image and the images per second, medians of the turns and in brackets their
range, and the ratio of the CPU times and of the rates to those of the first row: of the checkout `--before` if there is
one. The memory is that of the process (VmHWM), on a GPU that of the device, looked at after each batch, beyond the
context of CUDA. `--scaled`: also with `Resize(decode="scaled")`. `--memory`: also with these limits.
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
"""Different files of each size; the JSON file names each of them several times, by links."""
IMAGES = 96


def write_photographs(folder: Path, megapixels: int) -> None:
    """Write the files, links to them, and a JSON file with three boxes for each: a smooth image with noise."""
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


def measure(folder: str, images: int, batch_size: int, device: str, preset: str, limit: str, decode: str) -> None:
    """Print the most memory that was taken, in GB, the CPU milliseconds of an image, and images per second."""
    import torch

    import detaug as da

    if device == "cpu":
        da.keep_freed_memory()
    ops = getattr(da.presets, preset)()
    if decode == "scaled":
        ops = [replace(op, decode="scaled") if isinstance(op, da.Resize) else op for op in ops]
    options = {"memory": limit} if limit else {}
    if device == "cuda":
        torch.zeros(1, device=device)
    start_free = torch.cuda.mem_get_info()[0] if device == "cuda" else 0
    loader = da.Loader(da.CocoReader(folder, Path(folder, "train.json")), ops, batch_size, device=device, **options)
    batches = (len(batch) for _ in iter(int, 1) for batch in loader)
    for _ in range(8 if device == "cuda" else 1):  # what is loaded or compiled once
        next(batches)
    cpu, start, taken, most = time.process_time(), time.perf_counter(), 0, 0
    while taken < images:
        taken += next(batches)
        if device == "cuda":
            most = max(most, start_free - torch.cuda.mem_get_info()[0])
    if device == "cuda":
        torch.cuda.synchronize()
    else:
        lines = Path("/proc/self/status").read_text().splitlines()
        most = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1000
    print(most / 1e9, (time.process_time() - cpu) / taken * 1e3, taken / (time.perf_counter() - start))


def turn(checkout: Path, limit: str, decode: str, folder: Path, options: argparse.Namespace) -> list[float]:
    """Run `measure` with the package of a checkout, in a process of its own."""
    path = os.pathsep.join([str(checkout.resolve()), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", str(folder)]
    command += [str(options.images), str(options.batch_size), options.device, options.preset, limit, decode]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}, check=True)
    return [float(each) for each in done.stdout.split()[-3:]]


def _range(values: Sequence[float]) -> str:
    return f"{median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        folder, images, batch_size, *others = sys.argv[2:]
        measure(folder, int(images), int(batch_size), *others)
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megapixels", type=int, nargs="+", default=[3, 12, 48])
    parser.add_argument("--batch-size", type=int, default=16)
    parser.add_argument("--images", type=int, default=256)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--preset", default="ssd300")
    parser.add_argument("--scaled", action="store_true")
    parser.add_argument("--memory", nargs="+", default=[], metavar="SIZE")
    parser.add_argument("--before", type=Path)
    options = parser.parse_args()
    here = Path(__file__).parent.parent
    rows = [(options.before, "", "whole")] * (options.before is not None)
    rows += [(here, "", "whole"), *((here, limit, "whole") for limit in options.memory)]
    rows += [(here, "", "scaled")] * options.scaled
    for megapixels in options.megapixels:
        with TemporaryDirectory() as name:
            folder = Path(name, "photographs")
            write_photographs(folder, megapixels)
            turns = [[turn(*row, folder, options) for row in rows] for _ in range(options.turns)]
        for row, column in zip(rows, zip(*turns, strict=True), strict=True):
            memory, spent, rate = zip(*column, strict=True)
            slower, faster = ([a[at] / b[0][at] for a, b in zip(column, turns, strict=True)] for at in (1, 2))
            name = f"{megapixels} megapixels, {row[0].resolve().name}, {row[2]}{f', memory={row[1]}' if row[1] else ''}"
            print(f"{name}: {_range(memory)} GB, {_range(spent)} CPU ms an image, {_range(slower)} of the first row,")
            print(f"  {_range(rate)} images/s, {_range(faster)} of the first row")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
