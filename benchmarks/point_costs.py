"""Measure what keypoints, rotated boxes and tight boxes cost the loader, interleaved in one process.

    python benchmarks/point_costs.py --device cuda --cases ssd300:32 ssd300:128

Seven objects per image with 17 keypoints each, on generated JPEGs of 500 x 375. "keypoints" and "rotated boxes" read
them of every batch; "tight" only plans with polygons, for a recipe that turns each image. It prints the medians and
ranges of images/s, and each one's ratio to plain boxes; then the CPU milliseconds in which one core plans 2,048 images,
the least of the turns, since a machine that others use only adds to it.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from compare_versions import SIZE, write_data

import detaug as da
from detaug.boxes.tight import fit_to_shapes
from detaug.loading.planner import BLOCK_IMAGES
from detaug.recipes.recipe import draws_from, make_recipe

NAMES = [f"{side}_{part}" for part in "abcdefgh" for side in ("left", "right")] + ["nose"]
OBJECTS = 7


def add_shapes(path: Path) -> None:
    """Give each image of the JSON file seven objects with keypoints, corners and a polygon."""
    rng = np.random.default_rng(0)
    content = json.loads(path.read_text())
    content["annotations"] = []
    angles = np.arange(36) * 2 * np.pi / 36
    for image in content["images"]:
        for _ in range(OBJECTS):
            center, radius = rng.uniform((80, 80), (SIZE[1] - 80, SIZE[0] - 80)), rng.uniform(20, 75)
            ring = center + radius * np.stack([np.cos(angles), 0.6 * np.sin(angles)], axis=1)
            low, high = ring.min(0), ring.max(0)
            points = np.concatenate([rng.uniform(low, high, (17, 2)), rng.integers(0, 3, (17, 1))], axis=1)
            annotation: dict[str, Any] = {"id": len(content["annotations"]) + 1, "image_id": image["id"]}
            annotation |= {"category_id": int(rng.integers(1, 21)), "bbox": [*low.tolist(), *(high - low).tolist()]}
            annotation |= {"keypoints": points.ravel().tolist(), "segmentation": [ring.ravel().tolist()]}
            annotation["corners"] = [low.tolist(), [high[0], low[1]], high.tolist(), [low[0], high[1]]]
            content["annotations"].append(annotation)
    for category in content["categories"]:
        category["keypoints"] = NAMES
    path.write_text(json.dumps(content))


def endless(loader: da.Loader) -> Iterator[da.Batch]:
    while True:
        yield from loader


def rate(batches: Iterator[da.Batch], use: Callable[[da.Batch], object], seconds: float, device: str) -> float:
    """Return images/s."""
    for warm in (True, False):
        images, start = 0, time.perf_counter()
        while time.perf_counter() - start < (seconds / 3 if warm else seconds):
            batch = next(batches)
            use(batch)
            images += len(batch)
    if device != "cpu":
        torch.cuda.synchronize()
    return images / (time.perf_counter() - start)


class Way(NamedTuple):
    """A loader to measure: its recipe, the arguments of its reader, and what is asked of each batch."""

    recipe: Sequence[da.Op]
    read: dict[str, Any]
    use: Callable[[da.Batch], object]


def compare(
    case: str, ways: dict[str, Way], base_of: Callable[[str], str], folder: Path, options: argparse.Namespace
) -> None:
    """Measure loaders on `folder`/train.json, interleaved; print images/s and the ratio to the one `base_of` names."""
    rates: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(options.turns):
        for name in list(ways)[:: 1 if turn % 2 == 0 else -1]:
            reader = da.CocoReader(folder, folder / "train.json", **ways[name].read)
            batch_size = int(case.split(":")[1])
            with da.Loader(reader, ways[name].recipe, batch_size, device=options.device) as loader:
                rates[name].append(rate(endless(loader), ways[name].use, options.seconds, options.device))
    medians = {name: statistics.median(each) for name, each in rates.items()}
    for name, each in rates.items():
        ratio, low, high = medians[name] / medians[base_of(name)], min(each), max(each)
        print(f"{case} {name}: {medians[name]:,.0f} ({low:,.0f} to {high:,.0f}), {ratio:.3f}", flush=True)


def compare_planning(case: str, ways: dict[str, Way], folder: Path, turns: int) -> None:
    """Print the CPU time in which a block of images is planned."""
    times: dict[str, list[float]] = {name: [] for name in ways}
    images = np.arange(BLOCK_IMAGES)
    for name in list(ways) * (turns + 1):
        reader = da.CocoReader(folder, folder / "train.json", **ways[name].read)
        views, recipe = reader.clip_views(images % len(reader)), make_recipe(ways[name].recipe)
        start = time.process_time()
        fit_to_shapes(recipe.plan(views, draws_from(np.random.default_rng(0))).views)
        times[name].append(time.process_time() - start)
    for name, each in times.items():
        print(f"{case} {name}: planned in {1000 * min(each):.1f} ms", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="+", default=["ssd300:32"], metavar="PRESET:BATCH_SIZE")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--images", type=int, default=2000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder, options.images)
        add_shapes(folder / "train.json")
        for case in options.cases:
            recipe = getattr(da.presets, case.split(":")[0])()
            turned = [da.RandomRotation(20, expand=True), *recipe]
            ways = {
                "boxes": Way(recipe, {}, lambda batch: batch.boxes),
                "keypoints": Way(recipe, {"keypoints": True}, lambda batch: batch.keypoints),
                "rotated boxes": Way(recipe, {"rotated": True}, lambda batch: batch.rotated_boxes()),
                "tight": Way(recipe, {"tight": True}, lambda batch: batch.boxes),
                "turned": Way(turned, {}, lambda batch: batch.boxes),
                "turned, tight": Way(turned, {"tight": True}, lambda batch: batch.boxes),
            }
            compare(case, ways, lambda way: "turned" if way.startswith("turned") else "boxes", folder, options)
            compare_planning(case, ways, folder, 4 * options.turns)


if __name__ == "__main__":
    main()
