"""Compare the loader of two checkouts in one run, interleaved.

    git worktree add ../before COMMIT
    python benchmarks/compare_versions.py ../before . --cases ssd300:32 ssd300:128 retinanet:16 yolo640:32

Each turn is a process of its own, in the order A B B A and so on, on the same generated JPEGs of 500 x 375. It prints
for each case the medians and ranges of images/s and the ratio of the medians. It uses public names only, so it runs
with any version.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
from PIL import Image

SIZE = (375, 500)
QUALITY = 92
"""About 75 kB a file."""


def write_image(path: Path, seed: int) -> None:
    """Write one JPEG: a smooth image with noise."""
    rng = np.random.default_rng(seed)
    height, width = SIZE
    coarse = Image.fromarray(rng.integers(0, 256, (12, 16, 3), np.uint8)).resize((width, height))
    noisy = np.asarray(coarse, np.float32) + rng.normal(0, 9, (height, width, 3)).astype(np.float32)
    Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(path, quality=QUALITY)


def write_data(folder: Path, images: int) -> None:
    """Write the JPEGs, and a JSON file with two or three boxes for each."""
    rng = np.random.default_rng(0)
    with ProcessPoolExecutor() as pool:
        list(pool.map(write_image, [folder / f"{at}.jpg" for at in range(images)], range(images), chunksize=64))
    rows = [{"id": at, "file_name": f"{at}.jpg", "width": SIZE[1], "height": SIZE[0]} for at in range(images)]
    boxes = [
        {"image_id": at, "category_id": int(rng.integers(1, 21)), "bbox": [*rng.uniform(0, 200, 2), 120.0, 110.0]}
        for at in range(images)
        for _ in range(2 + at % 2)
    ]
    annotations = [{"id": at, "iscrowd": 0, **box} for at, box in enumerate(boxes, 1)]
    categories = [{"id": label, "name": f"class {label}"} for label in range(1, 21)]
    content = {"images": rows, "annotations": annotations, "categories": categories}
    (folder / "train.json").write_text(json.dumps(content), encoding="utf-8")


def measure(folder: str, preset: str, batch_size: int, device: str, seconds: float) -> float:
    """Return the loader's images/s, after a warm-up that is not timed."""
    import torch

    import detaug as da

    if device == "cpu" and hasattr(da, "keep_freed_memory"):
        da.keep_freed_memory()
    reader = da.CocoReader(folder, Path(folder, "train.json"))
    loader = da.Loader(reader, getattr(da.presets, preset)(), batch_size, device=device)
    batches = (batch for _ in iter(int, 1) for batch in loader)
    end = time.perf_counter() + seconds / 3
    while time.perf_counter() < end:
        next(batches)
    images, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds:
        images += len(next(batches))
    if device != "cpu":
        torch.cuda.synchronize()
    return images / (time.perf_counter() - start)


def turn(checkout: Path, folder: str, case: str, options: argparse.Namespace) -> float:
    """Run `measure` with the package of a checkout, in a process of its own."""
    preset, batch_size = case.split(":")
    path = os.pathsep.join([str(checkout.resolve()), os.environ.get("PYTHONPATH", "")])
    command = [sys.executable, str(Path(__file__).resolve()), "--measure", folder, preset, batch_size]
    command += [options.device, str(options.seconds)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": path}, check=True)
    return float(done.stdout.split()[-1])


def main() -> None:
    if sys.argv[1:2] == ["--measure"]:
        folder, preset, batch_size, device, seconds = sys.argv[2:]
        print(measure(folder, preset, int(batch_size), device, float(seconds)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    parser.add_argument("--cases", nargs="+", default=["ssd300:32"], metavar="PRESET:BATCH_SIZE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--images", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder), options.images)
        for case in options.cases:
            rates: dict[Path, list[float]] = {options.before: [], options.after: []}
            for at in range(options.turns):
                for checkout in list(rates)[:: 1 if at % 2 == 0 else -1]:
                    rates[checkout].append(turn(checkout, folder, case, options))
            before, after = (statistics.median(each) for each in rates.values())
            ranges = (f"{min(each):,.0f} to {max(each):,.0f}" for each in rates.values())
            print(f"{case}: before {before:,.0f}, after {after:,.0f}, ratio {after / before:.3f}", *ranges, sep="; ")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
