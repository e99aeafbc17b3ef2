"""Measure how long a JSON file of COCO train2017's size takes to open, with and without masks, and its memory.

    python benchmarks/open_masks.py

It writes a JSON file of 117,000 images with 860,000 objects, each with a polygon of 6 to 40 points, about 400 MB, and
opens it in processes of their own, in turns: first without a cache, then from the cache. Prints seconds of CPU time,
which do not depend on what else runs, their ratio, the resident memory that the reader adds, and the most meanwhile.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

OPEN = """
import gc, resource, sys, time
from pathlib import Path
import detaug as da
from detaug.sources.coco_reader import CocoReader

def resident():
    gc.collect()
    return next(int(line.split()[1]) for line in Path("/proc/self/status").read_text().splitlines() if "VmRSS" in line)

folder, masks, cache = Path(sys.argv[1]), sys.argv[2] == "masks", sys.argv[3] == "cache"
before, start = resident(), time.process_time()
reader = CocoReader(folder, folder / "train.json", masks=masks, cache=cache)
took = time.process_time() - start
most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
if masks:
    reader.shapes.mask_table.areas
print(took, (resident() - before) / 1000, (most - before) / 1000)
"""


def write(folder: Path, images: int, objects: int) -> None:
    """Write the JSON file, and one empty file for each image."""
    rng = np.random.default_rng(0)
    for at in range(images):
        (folder / f"{at}.png").touch()
    rows = [{"id": at, "file_name": f"{at}.png", "width": 640, "height": 480} for at in range(images)]
    categories = [{"id": at, "name": f"class {at}"} for at in range(1, 81)]
    with open(folder / "train.json", "w") as file:
        file.write(f'{{"images":{json.dumps(rows)},"categories":{json.dumps(categories)},"annotations":[')
        for number in range(objects):
            points = int(rng.integers(6, 41))
            angle = np.arange(points) * 2 * np.pi / points
            ring = (240 + 200 * rng.random((points, 1)) * np.stack([np.cos(angle), np.sin(angle)], 1)).round(2)
            low, high = ring.min(0), ring.max(0)
            entry = {
                "id": number + 1,
                "image_id": int(rng.integers(images)),
                "category_id": int(rng.integers(1, 81)),
                "bbox": [*low.tolist(), *(high - low).round(2).tolist()],
                "area": 100.0,
                "iscrowd": 0,
                "segmentation": [ring.ravel().tolist()],
            }
            file.write("," * (number > 0) + json.dumps(entry))
        file.write("]}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=117_000)
    parser.add_argument("--objects", type=int, default=860_000)
    parser.add_argument("--turns", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(folder, options.images, options.objects)
        print(f"{(folder / 'train.json').stat().st_size / 1e6:.0f} MB", flush=True)
        environment = os.environ | {"XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}
        for cache in ("no cache", "cache"):
            found: dict[str, list[tuple[float, ...]]] = {"boxes": [], "masks": []}
            for turn in range(options.turns + (cache == "cache")):
                for what in list(found)[:: 1 if turn % 2 == 0 else -1]:
                    command = [sys.executable, "-c", OPEN, str(folder), what, cache]
                    run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
                    if cache == "no cache" or turn:  # the first turn writes the cache
                        found[what].append(tuple(map(float, run.stdout.split())))
            medians = {what: [*map(statistics.median, zip(*turns, strict=True))] for what, turns in found.items()}
            for what, (seconds, memory, most) in medians.items():
                ratio = seconds / medians["boxes"][0]
                text = f"{seconds:.2f} CPU s, {ratio:.2f}; {memory:.0f} MB, {most:.0f} MB at most"
                print(f"{cache}, {what}: {text}", flush=True)


if __name__ == "__main__":
    main()
