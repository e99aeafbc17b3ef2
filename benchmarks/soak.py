"""Use loaders as trainings do, with random faults, samplers, world sizes and restarts, and compare what they hold.

    python benchmarks/soak.py --minutes 60 --device cpu

A round makes the loaders of all shards of one step, breaks files, takes batches, saves a state, and resumes with
another number of shards, which must yield the images that an undisturbed loader yields. Then all is closed, and memory,
file descriptors, threads and GPU memory are read. Exits with 1 if an image differs, or if they grew after the warm-up.

It starts itself again with MALLOC_ARENA_MAX=2, unless the environment sets it: with an arena for each thread of each
pipeline, glibc's memory wanders by more than 100 MB, whether something leaks or not.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

import detaug as da

IMAGES, GLOBAL_BATCH = 96, 24
ALLOWED_MB = {"memory MB": 100, "GPU memory MB": 100}
"""Growth after the warm-up; of file descriptors and threads none is allowed."""


class Round(NamedTuple):
    """How the loaders of a round are made."""

    seed: int
    recipe: list[da.Op]
    others: dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if "MALLOC_ARENA_MAX" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "MALLOC_ARENA_MAX": "2"})
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each skipped file is one; they are counted
        rows, done = soak(Path(folder), 60 * options.minutes, options.device, np.random.default_rng(options.seed))
    print(", ".join(f"{count} {name}" for name, count in done.items()))
    return print_table(rows)


def soak(
    folder: Path, seconds: float, device: str, rng: np.random.Generator
) -> tuple[list[dict[str, float]], Counter[str]]:
    """Run rounds for so many seconds; return what was held after each, and what was done."""
    make_data(folder)
    rows, done, end = [], Counter[str](), time.monotonic() + seconds
    while time.monotonic() < end or len(rows) < 8:
        run_round(folder, device, rng, done)
        rows.append(held(device))
    return rows, done


def make_data(folder: Path) -> None:
    """Write images of three sizes, as JPEG and PNG, with a box in each."""
    rng, rows = np.random.default_rng(0), []
    for at in range(IMAGES):
        height, width = [(96, 128), (128, 96), (120, 120)][at % 3]
        pixels = rng.integers(0, 256, (height // 8, width // 8, 3), np.uint8)
        name = f"{at}.{'png' if at % 4 == 0 else 'jpg'}"
        Image.fromarray(pixels).resize((width, height)).save(folder / name)
        rows.append({"id": at + 1, "file_name": name, "height": height, "width": width})
    boxes = [
        {"id": row["id"], "image_id": row["id"], "category_id": 1, "bbox": [10, 10, 50, 40], "iscrowd": 0, "area": 2000}
        for row in rows
    ]
    content = {"images": rows, "annotations": boxes, "categories": [{"id": 1, "name": "thing"}]}
    (folder / "train.json").write_text(json.dumps(content))


def run_round(folder: Path, device: str, rng: np.random.Generator, done: Counter[str]) -> None:
    """Take batches, restart on another number of shards, and compare; or meet broken files."""
    reader, chosen = da.CocoReader(folder, folder / "train.json"), choose(rng)
    if rng.random() < 0.5:
        meet_broken_files(folder, make_loader(reader, chosen, 0, 1, device), rng, done)
    else:
        restart(reader, chosen, device, rng, done)
    done["rounds"] += 1


def choose(rng: np.random.Generator) -> Round:
    recipes = [
        [da.RandomHorizontalFlip(), da.Resize((64, 64)), da.Normalize()],
        [da.RandomRotation(20), da.Resize((64, 80))],
        [da.Resize((64, 64)), da.Mosaic(), da.Normalize()],
        da.presets.ssd300(),
    ]
    others: dict[str, Any] = {"aspect_ratio_grouping": bool(rng.random() < 0.3)}
    if rng.random() < 0.5:
        others["sampler"] = da.RepeatFactorSampler(0.01)
    return Round(int(rng.integers(1000)), recipes[rng.integers(len(recipes))], others)


def make_loader(reader: Any, chosen: Round, rank: int, world: int, device: str, **others: Any) -> da.Loader:
    return da.Loader(
        reader,
        chosen.recipe,
        GLOBAL_BATCH // world,
        device=device,
        seed=chosen.seed,
        shard=(rank, world),
        on_error="skip",
        max_skipped=1.0,
        **chosen.others | others,
    )


def restart(reader: Any, chosen: Round, device: str, rng: np.random.Generator, done: Counter[str]) -> None:
    """Break off an epoch, resume on another number of shards, and compare the next step with an undisturbed loader."""
    first, second = rng.choice([1, 3], 2).tolist()  # 8 images a shard, or 24: the groups of mixed images stay whole
    stop = int(rng.integers(1, 4))
    with make_loader(reader, chosen, 0, first, device) as loader:
        batches = iter(loader)
        for _ in range(stop):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
    with make_loader(reader, chosen, 0, 1, device, pipelines=1) as loader:
        expected = [batch.images.cpu() for batch, _ in zip(loader, range(stop + 1), strict=False)][stop]
    for rank in range(second):
        with make_loader(reader, chosen, rank, second, device) as loader:
            loader.load_state_dict(state)
            images = next(iter(loader)).images.cpu()
            part = slice(rank * len(images), (rank + 1) * len(images))
            assert torch.equal(images, expected[part]), (chosen, first, second, stop, rank)
    done["restarts"] += 1


def meet_broken_files(folder: Path, loader: da.Loader, rng: np.random.Generator, done: Counter[str]) -> None:
    """Take two epochs during which files are cut, overwritten or removed, and skipped."""
    with loader, broken_files(folder, rng):
        for batch in loader:
            assert batch.images.shape[0]
        done["skipped files"] += len(loader.skipped)
    with loader:
        batches = iter(loader)
        next(batches)  # and broken off
    done["epochs with broken files"] += 1


@contextmanager
def broken_files(folder: Path, rng: np.random.Generator) -> Any:
    """Break up to three files while the block runs."""
    paths = [path for path in sorted(folder.iterdir()) if path.suffix != ".json"]
    chosen = [paths[at] for at in rng.choice(len(paths), int(rng.integers(1, 4)), replace=False)]
    contents = {path: path.read_bytes() for path in chosen}
    for path, content in contents.items():
        path.write_bytes([b"", content[: len(content) // 2], b"no image"][rng.integers(3)])
        if rng.random() < 0.2:
            path.unlink()
    try:
        yield
    finally:
        for path, content in contents.items():
            path.write_bytes(content)


def held(device: str) -> dict[str, float]:
    """Return memory, file descriptors, threads and GPU memory of this process, when nothing else is going on."""
    gc.collect()
    time.sleep(0.2)  # pipelines of dropped loaders end in threads of their own
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    row = {
        "memory MB": pages * os.sysconf("SC_PAGESIZE") / 1e6,
        "file descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }
    if torch.device(device).type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        row["GPU memory MB"] = (total - free) / 1e6
    return row


def print_table(rows: list[dict[str, float]]) -> int:
    """Print the medians after the warm-up, a quarter of the rounds, and of the last quarter; return the exit code."""
    quarter, failed = len(rows) // 4, False
    print(f"\n| | rounds {quarter + 1} to {2 * quarter} | the last {quarter} |\n|---|---|---|")
    for name in rows[0]:
        first = float(np.median([row[name] for row in rows[quarter : 2 * quarter]]))
        last = float(np.median([row[name] for row in rows[-quarter:]]))
        grew = last > first + ALLOWED_MB.get(name, 0)
        failed |= grew
        print(f"| {name} | {first:.0f} | {last:.0f}{' GREW' if grew else ''} |")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
