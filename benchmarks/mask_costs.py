"""Measure what instance masks cost: the call alone, and the loader with and without them, interleaved in one process.

    python benchmarks/mask_costs.py --device cuda --cases ssd300:32 ssd300:128 retinanet:16 yolo640:32

On generated JPEGs of 500 x 375, with polygons of 36 points. "call" times `masks`, `instance_map` and `roi_masks` on one
batch of 32 images, in milliseconds, for 7 and 20 objects per image. The other rows are images/s, with their ratio to
the loader without masks, medians and ranges of the turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from compare_versions import SIZE, write_data
from point_costs import Way, compare

import detaug as da
from detaug.boxes.polygons import area


def add_outlines(path: Path, objects: int) -> None:
    """Give each image of the JSON objects with a polygon."""
    rng = np.random.default_rng(0)
    content = json.loads(path.read_text())
    content["annotations"] = []
    angles = np.arange(36) * 2 * np.pi / 36
    for image in content["images"]:
        for _ in range(objects):
            radius = SIZE[0] * float(np.clip(rng.lognormal(-2.4, 0.7), 0.01, 0.45))
            center = rng.uniform(radius, np.array(SIZE[::-1]) - radius)
            radii = radius * rng.uniform(0.6, 1, 36)
            ring = center + radii[:, None] * np.stack([np.cos(angles), np.sin(angles)], axis=1)
            low, high = ring.min(0), ring.max(0)
            number = len(content["annotations"]) + 1
            box = [*low.tolist(), *(high - low).tolist()]
            entry = {"id": number, "image_id": image["id"], "category_id": int(rng.integers(1, 21)), "bbox": box}
            entry |= {"area": float(area(ring)), "iscrowd": 0, "segmentation": [ring.ravel().tolist()]}
            content["annotations"].append(entry)
    path.write_text(json.dumps(content))


def time_of(call: Callable[[], object], device: str, calls: int = 50) -> float:
    """Return the median milliseconds of a call, of the device's work too."""
    times = []
    for _ in range(calls):
        start = time.perf_counter()
        call()
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - start)
    return statistics.median(times) * 1000


def time_calls(folder: Path, device: str, objects: int) -> None:
    reader = da.CocoReader(folder, folder / "train.json", masks=True)
    for side in (640, 300):
        with da.Loader(reader, [da.Resize((side, side))], 32, device=device) as loader:
            batch = next(iter(loader))
            boxes = batch.boxes.flatten(0, 1)[torch.from_numpy(np.flatnonzero(batch.rows >= 0)).to(device)]
            calls: dict[str, Callable[[], object]] = {
                "masks": batch.masks,
                "masks, stride 4": lambda batch=batch: batch.masks(4),
                "instance_map": batch.instance_map,
                "instance_map, stride 4": lambda batch=batch: batch.instance_map(4),
                "roi_masks 28": lambda batch=batch, boxes=boxes: batch.roi_masks(boxes, torch.arange(len(boxes))),
            }
            for name, call in calls.items():
                time_of(call, device, 5)
                print(f"call {objects} objects {side}: {name} {time_of(call, device):.3f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=["ssd300:32"], metavar="PRESET:BATCH_SIZE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--objects", type=int, nargs="+", default=[7, 20], help="for the calls; the loader has 7")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder, options.images)
        for objects in options.objects:
            add_outlines(folder / "train.json", objects)
            time_calls(folder, options.device, objects)
        add_outlines(folder / "train.json", 7)
        for case in options.cases:
            recipe, masks = getattr(da.presets, case.split(":")[0])(), {"masks": True}
            ways = {
                "without": Way(recipe, {}, lambda batch: batch.boxes),
                "stride 4": Way(recipe, masks, lambda batch: batch.masks(4)),
                "whole": Way(recipe, masks, lambda batch: batch.masks()),
                "instance_map, stride 4": Way(recipe, masks, lambda batch: batch.instance_map(4)),
            }
            compare(case, ways, lambda _: "without", folder, options)


if __name__ == "__main__":
    main()
