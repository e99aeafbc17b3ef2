"""Compare the images of one process with those of two and four, in processes of their own, on one GPU and on two.

    python benchmarks/world_sizes.py [--device cuda] [--recipes ssd mosaic] [--samplers once] [--seed 0]

Each process is one shard. On a machine with two GPUs or more: two processes with a GPU each, two on one GPU, and four
with two on each GPU; with one GPU, or on the CPU, two and four processes on that. All processes run at the same time,
each with another number of pipelines, threads and batches in flight. Each takes two epochs of 61 small images with
every recipe and every sampler of tests/worlds.py, 24 images a step on all processes together; 32 for recipes that mix
images, so that each of four processes has 8. Pixels, boxes, labels and matrices of every image are compared by their
digests with the image at the same position of the only process. Prints a line for each layout, and the first images
that differ. The exit code is 1 if an image differs or a process fails.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Iterator
from itertools import chain, product, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple

import torch

import detaug as da

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
from painted_files import Folder, digests
from worlds import GLOBAL_BATCH, RECIPES, SAMPLERS, settings, write_images

EPOCHS = 2
GLOBAL_BATCH_OF_MIXING = 32
SHOWN = 5  # images that differ
Digests = dict[str, list[list[str]]]
"""By "recipe, sampler": the digests of the images of each step, in the order of their slots."""


class Layout(NamedTuple):
    """Processes and the devices that they use."""

    name: str
    devices: tuple[str, ...]
    """One for each process."""


def layouts(device: str, gpus: int) -> list[Layout]:
    """Return one process, with which the others are compared, and the others."""
    if device == "cuda" and gpus > 1:
        first, both = "cuda:0", ("cuda:0", "cuda:1")
        others = [Layout("2 processes, a GPU each", both), Layout("2 processes on one GPU", (first, first))]
        return [Layout("1 process", (first,)), *others, Layout("4 processes on two GPUs", both * 2)]
    where = "cuda:0" if device == "cuda" else device
    what = "the CPU" if device == "cpu" else "one GPU"
    return [
        Layout("1 process", (where,)),
        *(Layout(f"{count} processes on {what}", (where,) * count) for count in (2, 4)),
    ]


def run_process(
    folder: Folder, device: str, shard: tuple[int, int], cases: list[tuple[str, str]], seed: int, out: Path
) -> None:
    """Write the digests of the images of one shard, for each recipe and sampler, as json. Runs in its own process."""
    warnings.filterwarnings("error", message=".*other pixels")  # a batch whose size does not fit the ops that mix
    out.mkdir()
    found = {
        f"{recipe}, {sampler}": steps_of(folder, device, shard, recipe, sampler, seed, out) for recipe, sampler in cases
    }
    (out / "digests.json").write_text(json.dumps(found))


def steps_of(
    folder: Folder, device: str, shard: tuple[int, int], recipe: str, sampler: str, seed: int, out: Path
) -> list[list[str]]:
    """Return the digests of the images of each step of a shard."""
    ops = RECIPES[recipe]
    images = GLOBAL_BATCH_OF_MIXING if any(op.mixes for op in ops) else GLOBAL_BATCH
    options = {"device": device, "shard": shard, "seed": seed, "settings": settings(out, shard[0])}
    with da.Loader(da.CocoReader(*folder), ops, images // shard[1], **options, **SAMPLERS[sampler]) as loader:
        return [list(digests(batch)) for batch in chain.from_iterable(repeat(loader, EPOCHS))]


def joined(shards: list[Digests]) -> Digests:
    """Return the steps of all shards together."""
    return {
        case: [[*chain.from_iterable(parts)] for parts in zip(*(each[case] for each in shards), strict=True)]
        for case in shards[0]
    }


def positions(found: Digests) -> Iterator[tuple[str, str]]:
    """Yield where each image is, and its digest."""
    for case, steps in found.items():
        for at, images in enumerate(steps):
            yield from ((f"{case}, step {at}, slot {slot}", digest) for slot, digest in enumerate(images))


def compare(one: Digests, other: Digests) -> tuple[int, list[str]]:
    """Return the number of images, and the positions of those that differ or that only one of both has."""
    a, b = dict(positions(one)), dict(positions(other))
    return len(a), [position for position in {**a, **b} if a.get(position) != b.get(position)]


def run_all(folder: Path, chosen: list[Layout], cases: list[tuple[str, str]], seed: int) -> list[Digests]:
    """Run the processes of all layouts; return the digests of each. Raises RuntimeError if a process fails."""
    context, images, processes = multiprocessing.get_context("spawn"), write_images(folder), []
    for at, layout in enumerate(chosen):
        for rank, device in enumerate(layout.devices):
            arguments = (images, device, (rank, len(layout.devices)), cases, seed, folder / f"{at}-{rank}")
            processes.append(context.Process(target=run_process, args=arguments, name=f"{layout.name}, rank {rank}"))
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    if failed := [f"{each.name}: exit code {each.exitcode}" for each in processes if each.exitcode]:
        raise RuntimeError("; ".join(failed))
    return [
        joined([json.loads((folder / f"{at}-{rank}/digests.json").read_text()) for rank in range(len(layout.devices))])
        for at, layout in enumerate(chosen)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=[*RECIPES])
    parser.add_argument("--samplers", nargs="+", choices=SAMPLERS, default=[*SAMPLERS])
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    chosen = layouts(options.device, torch.cuda.device_count())
    cases, start = [*product(options.recipes, options.samplers)], time.monotonic()
    with TemporaryDirectory() as folder:
        one, *others = run_all(Path(folder), chosen, cases, options.seed)
    failed = False
    images = [digest for _, digest in positions(one)]
    print(f"{chosen[0].name}: {len(images)} images with {len({*images})} different digests")
    for layout, other in zip(chosen[1:], others, strict=True):
        count, differing = compare(one, other)
        print(f"{layout.name}: {count} images compared, {len(differing)} differ")
        print("".join(f"    {position}\n" for position in differing[:SHOWN]), end="")
        failed |= bool(differing)
    print(f"{len(options.recipes)} recipes, {len(options.samplers)} samplers, {time.monotonic() - start:.0f} s")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
