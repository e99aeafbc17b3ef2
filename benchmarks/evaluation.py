"""Time COCO's 12 numbers with pycocotools, faster-coco-eval and hotcoco on drawn detections, and compare the numbers.

    python benchmarks/evaluation.py --images 5000 --detections 500000 --rounds 3
    python benchmarks/evaluation.py --images 1000 --detections 100000 --rounds 3

The backends are interleaved; those that are not installed are left out. A time includes reading the JSON files.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import io
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

BACKENDS = {
    "pycocotools": ("pycocotools.coco:COCO", "pycocotools.cocoeval:COCOeval"),
    "faster-coco-eval": ("faster_coco_eval:COCO", "faster_coco_eval:COCOeval_faster"),
    "hotcoco": ("hotcoco:COCO", "hotcoco:COCOeval"),
    "ultrafast-pycocotools": ("ultrafast_pycocotools:COCO", "ultrafast_pycocotools:COCOeval"),
}


def draw(images: int, detections: int, classes: int = 80) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return ground truth with 7 objects for each image, one of 50 a crowd, and detections: half near an object."""
    rng = np.random.default_rng(0)
    count = images * 7
    image, category = rng.integers(1, images + 1, count), rng.integers(1, classes + 1, count)
    boxes = np.concatenate([rng.uniform(0, 400, (count, 2)), rng.uniform(8, 200, (count, 2))], 1).round(2)
    truth = {
        "info": {},
        "images": [{"id": number, "width": 640, "height": 640} for number in range(1, images + 1)],
        "categories": [{"id": number, "name": str(number)} for number in range(1, classes + 1)],
        "annotations": [
            {
                "id": at + 1,
                "image_id": i,
                "category_id": c,
                "bbox": b,
                "area": b[2] * b[3],
                "iscrowd": int(at % 50 == 0),
            }
            for at, (i, c, b) in enumerate(zip(image.tolist(), category.tolist(), boxes.tolist(), strict=True))
        ],
    }
    source = rng.integers(0, count, detections)
    spread = np.where(rng.random(detections) < 0.5, 4.0, 80.0)[:, None]
    moved = np.maximum(boxes[source] + rng.normal(0, 1, (detections, 4)) * spread, 1).round(2)
    rows = zip(image[source].tolist(), category[source].tolist(), moved.tolist(), rng.random(detections), strict=True)
    return truth, [{"image_id": i, "category_id": c, "bbox": b, "score": round(float(s), 5)} for i, c, b, s in rows]


def named(path: str) -> Any:
    module, name = path.split(":")
    return getattr(importlib.import_module(module), name)


def evaluate(backend: str, truth: Path, found: Path) -> tuple[float, list[float]]:
    """Return seconds and the 12 numbers."""
    coco, evaluator = map(named, BACKENDS[backend])
    with contextlib.redirect_stdout(io.StringIO()):
        start = time.perf_counter()
        loaded = coco(str(truth))
        run = evaluator(loaded, loaded.loadRes(str(found)), "bbox")
        run.evaluate()
        run.accumulate()
        run.summarize()
        return time.perf_counter() - start, [float(value) for value in run.stats][:12]


def installed(backend: str) -> bool:
    try:
        named(BACKENDS[backend][0])
    except ImportError:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=5000)
    parser.add_argument("--detections", type=int, default=500_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    backends = [name for name in BACKENDS if installed(name)]
    seconds: dict[str, list[float]] = {name: [] for name in backends}
    numbers: dict[str, list[float]] = {}
    with tempfile.TemporaryDirectory() as folder:
        files = Path(folder, "truth.json"), Path(folder, "found.json")
        for path, content in zip(files, draw(options.images, options.detections), strict=True):
            path.write_text(json.dumps(content))
        for _ in range(options.rounds):
            for name in backends:
                taken, numbers[name] = evaluate(name, *files)
                seconds[name].append(taken)
    for name in backends:
        largest = max(abs(a - b) for a, b in zip(numbers[name], numbers["pycocotools"], strict=True))
        print(f"{name:21} {statistics.median(seconds[name]):7.2f} s   largest difference {largest:.3g}")


if __name__ == "__main__":
    main()
