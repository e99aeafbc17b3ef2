"""Use loaders as trainings do, with random faults, samplers, world sizes and restarts, and compare what they hold.

    python benchmarks/soak.py --minutes 60 --device cpu

A round is one of two. In the first, an epoch of training and one of evaluation meet broken files, and skip them. In the
second, a training on random shards of a step ends in the middle of an epoch, half of them by an error or Ctrl-C at a
random call that reads, allocates or starts a thread or a pipeline; it is resumed with another number of shards, which
must yield the images that an undisturbed loader yields. The images are files, or parts of shards. Then all is closed,
and memory, file descriptors, threads and GPU memory are read. Prints them every `--report` minutes, and at the
end. SIGTERM, as `timeout` sends it, ends it after the round, as if the time was over. Exits with 1 if an image differs,
or if they grew after the warm-up.

It starts itself again with MALLOC_ARENA_MAX=2, unless the environment sets it: with an arena for each thread of each
pipeline, glibc's memory wanders by more than 100 MB, whether something leaks or not.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import signal
import sys
import tempfile
import time
import warnings
from collections import Counter
from contextlib import contextmanager
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

import detaug as da
from detaug.converters import pack_coco
from detaug.loading.devices import give_memory_back

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))
from faults import EXPECTED, Faults

IMAGES, GLOBAL_BATCH = 96, 24
CALLS = 400
"""A fault comes at one of the first this many calls; two epochs make 370 to 1,300."""
ALLOWED_MB = {"memory MB": 60, "GPU memory MB": 100}
"""Growth after the warm-up; none of file descriptors and threads. On the CPU memory goes up and down by 50 MB,
with the recipe of the last loader. In 40 rounds 60 MB find what grows by 6 MB a round; a batch has 7 MB on average."""


class Round(NamedTuple):
    """How the loaders of a round are made."""

    reader: da.CocoReader
    seed: int
    recipe: list[da.Op]
    others: dict[str, Any]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rounds", type=int, default=8, help="at least this many (default: 8)")
    parser.add_argument("--report", type=float, default=3, help="minutes from a table to the next (default: 3)")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    if "MALLOC_ARENA_MAX" not in os.environ:
        os.execve(sys.executable, [sys.executable, *sys.argv], {**os.environ, "MALLOC_ARENA_MAX": "2"})
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # each skipped file is one; they are counted
        rng = np.random.default_rng(options.seed)
        clock = Clock(60 * options.minutes, 60 * options.report)
        rows, done = soak(Path(folder), clock, options.rounds, options.device, rng)
    return print_table(rows, done)


class Clock:
    """When a run ends, and when it prints a table. SIGTERM ends it."""

    def __init__(self, seconds: float, report: float) -> None:
        self._end, self._report, self._next = time.monotonic() + seconds, report, time.monotonic() + report
        self.is_stopped = False
        signal.signal(signal.SIGTERM, self._stop)

    def is_over(self) -> bool:
        return self.is_stopped or time.monotonic() >= self._end

    def must_report(self) -> bool:
        """Return whether a table is due, once."""
        due = time.monotonic() >= self._next
        self._next += self._report * due
        return due

    def _stop(self, *_: Any) -> None:
        self.is_stopped = True


def soak(
    folder: Path, clock: Clock, rounds: int, device: str, rng: np.random.Generator
) -> tuple[list[dict[str, float]], Counter[str]]:
    """Run rounds until the time is over, and at least this many; return what was held after each, and what was done."""
    make_data(folder)
    rows, done = [], Counter[str]()
    while not clock.is_over() or (len(rows) < rounds and not clock.is_stopped):
        run_round(folder, device, rng, done)
        rows.append(held(device))
        if clock.must_report():
            print_table(rows, done)
    return rows, done


def make_data(folder: Path) -> None:
    """Write images of three sizes, as JPEG and PNG, with a box in each; the same in shards."""
    rng, rows, images = np.random.default_rng(0), [], folder / "images"
    images.mkdir()
    for at in range(IMAGES):
        height, width = [(96, 128), (128, 96), (120, 120)][at % 3]
        pixels = rng.integers(0, 256, (height // 8, width // 8, 3), np.uint8)
        name = f"{at}.{'png' if at % 4 == 0 else 'jpg'}"
        Image.fromarray(pixels).resize((width, height)).save(images / name)
        rows.append({"id": at + 1, "file_name": name, "height": height, "width": width})
    box = {"bbox": [10, 10, 50, 40], "iscrowd": 0, "area": 2000}
    boxes = [{"id": row["id"], "image_id": row["id"], "category_id": 1 + row["id"] % 2, **box} for row in rows]
    categories = [{"id": 1, "name": "odd"}, {"id": 2, "name": "even"}]
    content = {"images": rows, "annotations": boxes, "categories": categories}
    (images / "train.json").write_text(json.dumps(content))
    pack_coco(images / "train.json", images, folder / "shards", shard_size=400_000)


def run_round(folder: Path, device: str, rng: np.random.Generator, done: Counter[str]) -> None:
    """Meet broken files, or restart on another number of shards, and compare."""
    if rng.random() < 0.3:
        meet_broken_files(folder, choose(folder / "images", rng), device, rng, done)
    else:
        restart(choose(folder / ["images", "shards"][rng.integers(2)], rng), device, rng, done)
    done["rounds"] += 1


def choose(images: Path, rng: np.random.Generator) -> Round:
    recipes = [
        [da.RandomHorizontalFlip(), da.Resize((64, 64)), da.Normalize()],
        [da.RandomRotation(20), da.Resize((64, 80))],
        [da.Resize((64, 64)), da.Mosaic(), da.Normalize()],
        da.presets.ssd300(),
    ]
    others: dict[str, Any] = {"aspect_ratio_grouping": bool(rng.random() < 0.3)}
    if rng.random() < 0.5:
        others["sampler"] = [da.RepeatFactorSampler(0.01), da.ClassBalancedSampler()][rng.integers(2)]
    reader = da.CocoReader(images, next(images.glob("*.json")))
    return Round(reader, int(rng.integers(1000)), recipes[rng.integers(len(recipes))], others)


def make_loader(chosen: Round, rank: int, world: int, device: str, **others: Any) -> da.Loader:
    options = {"device": device, "seed": chosen.seed, "shard": (rank, world), **others}
    return da.Loader(chosen.reader, chosen.recipe, GLOBAL_BATCH // world, **options)


def restart(chosen: Round, device: str, rng: np.random.Generator, done: Counter[str]) -> None:
    """Break off an epoch, resume on another number of shards, and compare the next step with an undisturbed loader."""
    mixes = any(op.mixes for op in chosen.recipe)
    first, second = rng.choice([1, 3] if mixes else [1, 2, 3, 4, 6], 2).tolist()  # mixed in whole groups of 8
    with make_loader(chosen, int(rng.integers(first)), first, device, **chosen.others) as loader:
        break_off(loader, rng, done)
        state, steps = json.loads(json.dumps(loader.state_dict())), len(loader)
    position = state["epoch"] * steps + state["step"]
    with make_loader(chosen, 0, 1, device, pipelines=1, **chosen.others) as loader:
        expected = next(islice(batches_of(loader), position, None)).images.cpu()
    for rank in range(second):
        with make_loader(chosen, rank, second, device, **chosen.others) as loader:
            loader.load_state_dict(state)
            images = next(batches_of(loader)).images.cpu()
            part = slice(rank * len(images), (rank + 1) * len(images))
            assert torch.equal(images, expected[part]), (chosen, first, second, position, rank)
    done["restarts"] += 1


def batches_of(loader: da.Loader) -> Any:
    """Yield the batches of all epochs."""
    return chain.from_iterable(repeat(loader))


def break_off(loader: da.Loader, rng: np.random.Generator, done: Counter[str]) -> None:
    """Take up to four batches, or until a fault comes at a random call."""
    if rng.random() < 0.5:
        for _ in islice(batches_of(loader), int(rng.integers(1, 5))):
            pass
        return
    with Faults(int(rng.integers(CALLS))).active():
        try:
            for _ in islice(batches_of(loader), 2 * len(loader)):
                pass
        except EXPECTED as error:
            done[type(error).__name__] += 1


def meet_broken_files(folder: Path, chosen: Round, device: str, rng: np.random.Generator, done: Counter[str]) -> None:
    """Take epochs during which files are cut, overwritten or removed, and skipped; then break one off."""
    skipping = {"on_error": "skip", "max_skipped": 1.0}
    for options in ({**chosen.others, **skipping}, {"train": False, **skipping}):
        with make_loader(chosen, 0, 1, device, **options) as loader:
            with broken_files(folder / "images", rng):
                for batch in loader:
                    assert batch.images.shape[0]
            done["skipped files"] += len(loader.skipped)
            next(iter(loader))  # and broken off
    done["rounds with broken files"] += 1


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
    give_memory_back(torch.device(device))
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    row = {
        "memory MB": pages * os.sysconf("SC_PAGESIZE") / 1e6,
        "file descriptors": len(os.listdir("/proc/self/fd")),
        "threads": len(os.listdir("/proc/self/task")),
    }
    if torch.device(device).type == "cuda":
        torch.cuda.empty_cache()
        free, total = torch.cuda.mem_get_info(device)
        row["GPU memory MB"] = (total - free) / 1e6
    return row


def print_table(rows: list[dict[str, float]], done: Counter[str]) -> int:
    """Print what was done, the most in the quarter of the rounds after the warm-up, and the least in the last quarter.

    What leaks grows with each round; what a round keeps by chance, such as memory of threads, differs between rounds.
    Returns the exit code.
    """
    print("\n" + ", ".join(f"{count} {name}" for name, count in done.items()), flush=True)
    quarter, failed = len(rows) // 4, False
    if not quarter:
        print("too few rounds for a table", flush=True)
        return 0
    print(f"\n| | most in rounds {quarter + 1} to {2 * quarter} | least in the last {quarter} |\n|---|---|---|")
    for name in rows[0]:
        first = max(row[name] for row in rows[quarter : 2 * quarter])
        last = min(row[name] for row in rows[-quarter:])
        grew = last > first + ALLOWED_MB.get(name, 0)
        failed |= grew
        print(f"| {name} | {first:.0f} | {last:.0f}{' GREW' if grew else ''} |", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
