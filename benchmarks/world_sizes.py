"""Compare the images of one process with those of several, in processes of their own, on one GPU and on all.

    python benchmarks/world_sizes.py [--device cuda] [--recipes ssd mosaic] [--samplers once] [--seed 0]

Each process is one shard. On a machine with several GPUs: one process, then 2, 4, ... and all, with a GPU each; with
two GPUs also two processes on one, and four with two on each; with one GPU, or on the CPU, two and four processes on
that. Then the run on the most processes is resumed, from the middle of an epoch, on one less, on two and on one. The
processes of each round run at the same time, each with another number of pipelines, threads and batches in flight.

Each takes two epochs of 61 small images with every recipe and every sampler of tests/helpers/worlds.py, 24 images per
step on all processes together, or 32 for recipes that mix images, so that each of four processes has 8; on eight GPUs
56 and 64.
Pixels, boxes, masks, labels and matrices of every image are compared by their digests with the image at the same
position of the only process. A case whose step does not divide among the processes of a layout is left out there.
Prints a line for each layout, and the first images that differ. The exit code is 1 if an image differs or a process
fails.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Iterator
from itertools import chain, product, repeat
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch

import detaug as da

sys.path.insert(0, str(Path(__file__).parents[1] / "tests/helpers"))
from painted_files import Folder, digests
from worlds import GLOBAL_BATCH, RECIPES, SAMPLERS, settings, write_images

EPOCHS = 2
SAVED_AT = 1  # step of the first epoch
GROUP = 8  # images of a process that mix with each other
SHOWN = 5  # images that differ
STATES = "states.json"  # of the layout of the most processes, by case
Case = tuple[str, str]
"""A recipe and a sampler."""
Digests = dict[str, list[list[str]]]
"""By "recipe, sampler": the digests of the images of each step, in the order of their slots."""


class Layout(NamedTuple):
    """Processes and the devices that they use."""

    name: str
    devices: tuple[str, ...]
    """One for each process."""
    goes_on: bool = False
    """Whether it begins with the state that the layout of the most processes saved."""


def layouts(device: str, gpus: int) -> list[Layout]:
    """Return one process, with which the others are compared, and the others."""
    if device == "cuda" and gpus > 1:
        all_gpus = tuple(f"cuda:{at}" for at in range(gpus))
        counts = sorted({gpus, *(count for count in (2, 4) if count < gpus)})
        others = [Layout(f"{count} processes, a GPU each", all_gpus[:count]) for count in counts]
        if gpus == 2:
            others += [
                Layout("2 processes on one GPU", all_gpus[:1] * 2),
                Layout("4 processes on two GPUs", all_gpus * 2),
            ]
    else:
        where, what = ("cuda:0", "one GPU") if device == "cuda" else (device, "the CPU")
        all_gpus, others = (where,) * 4, [Layout(f"{count} processes on {what}", (where,) * count) for count in (2, 4)]
    most = max(len(each.devices) for each in others)
    goes_on = [
        Layout(f"{count} of {most} processes go on", (all_gpus * 2)[:count], goes_on=True)
        for count in sorted({most - 1, 2, 1} - {most}, reverse=True)
    ]
    return [Layout("1 process", all_gpus[:1]), *others, *goes_on]


def images_of_a_step(recipe: str, most: int) -> int:
    """Return the images of a step of all processes together, of a layout with `most` at most."""
    if any(op.mixes for op in RECIPES[recipe]):
        return GROUP * max(most, 4)
    return GLOBAL_BATCH if most <= 4 else 7 * 8


def divides(recipe: str, layout: Layout, most: int) -> bool:
    """Return whether a step of the recipe can be divided among the processes of a layout."""
    mixes = any(op.mixes for op in RECIPES[recipe])
    return images_of_a_step(recipe, most) % (len(layout.devices) * (GROUP if mixes else 1)) == 0


def run_process(folder: Folder, layout: Layout, rank: int, cases: list[Case], most: int, seed: int, out: Path) -> None:
    """Write the digests of the images of one shard, for each recipe and sampler, as JSON. Runs in its own process."""
    warnings.filterwarnings("error", message=".*other pixels")  # a batch whose size does not fit the ops that mix
    out.mkdir()
    state = json.loads((folder[0] / STATES).read_text()) if layout.goes_on else {}
    found, saved = Digests(), dict[str, Any]()
    for recipe, sampler in cases:
        if divides(recipe, layout, most):
            name, shard = f"{recipe}, {sampler}", (rank, len(layout.devices))
            size = images_of_a_step(recipe, most) // shard[1]
            options = {"device": layout.devices[rank], "shard": shard, "seed": seed, "settings": settings(out, rank)}
            reader = da.CocoReader(*folder, masks=True)
            with da.Loader(reader, RECIPES[recipe], size, **options, **SAMPLERS[sampler]) as loader:
                if layout.goes_on:
                    loader.load_state_dict(state[name])
                found[name] = [[]] * SAVED_AT if layout.goes_on else []
                for batch in chain.from_iterable(repeat(loader, EPOCHS)):
                    found[name].append(digests_with_masks(batch))
                    if len(found[name]) == SAVED_AT:
                        saved[name] = loader.state_dict()
    (out / "digests.json").write_text(json.dumps(found))
    if rank == 0 and len(layout.devices) == most and not layout.goes_on:
        (folder[0] / STATES).write_text(json.dumps(saved))


def digests_with_masks(batch: da.Batch) -> list[str]:
    """Return a hash of each image, and of its masks."""
    counts = batch.valid.sum(1).tolist()
    height, width = batch.images.shape[-2:]
    masks = [each.cpu().numpy() for each in batch.masks().split(counts)]
    sizes = batch.image_size.tolist()
    hashes = [
        hashlib.sha256(mask[:, : min(h, height), : min(w, width)].tobytes()).hexdigest()[:16]
        for mask, (h, w) in zip(masks, sizes, strict=True)
    ]
    return [" ".join(pair) for pair in zip(digests(batch), hashes, strict=True)]


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
    """Return how many images were compared, and the positions of those that differ or that only one of both has.

    Cases that `other` lacks, and steps of which it has no images since it went on from a state, are not compared.
    """
    begin = {case: next((at for at, images in enumerate(steps) if images), 0) for case, steps in other.items()}
    cut = {case: [[]] * begin[case] + one[case][begin[case] :] for case in other}
    a, b = dict(positions(cut)), dict(positions(other))
    return len(a), [position for position in {**a, **b} if a.get(position) != b.get(position)]


def run_all(folder: Path, chosen: list[Layout], cases: list[Case], seed: int) -> list[Digests]:
    """Run the processes of all layouts; return the digests of each. Raises RuntimeError if a process fails."""
    images, most = write_images(folder), max(len(each.devices) for each in chosen)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__"])  # it imports torch and DALI, once for all processes
    for goes_on in (False, True):
        processes = [
            context.Process(
                target=run_process,
                args=(images, layout, rank, cases, most, seed, folder / f"{at}-{rank}"),
                name=f"{layout.name}, rank {rank}",
            )
            for at, layout in enumerate(chosen)
            if layout.goes_on == goes_on
            for rank in range(len(layout.devices))
        ]
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
