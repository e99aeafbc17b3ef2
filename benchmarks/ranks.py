"""Measure the loader on all GPUs of a host together, against one process alone with its fraction of the cores.

    torchrun --standalone --nproc-per-node 4 benchmarks/ranks.py --cases ssd300:32 retinanet:16 ssd300:32:masks

Each process has a GPU and its fraction of the cores. A turn is the first process alone, then all together. Prints
images/s, medians and ranges of the turns, the ratio of all to their number times one alone, and CPU s for 1,000 images.
":masks" asks each batch for its masks at stride 4, of seven objects per image. --bucket also packs the images into
shards, serves them by S3's protocol on the loopback, and reads them through one cache that all processes share: it
prints the bytes that were fetched in the first epoch, relative to those of the shards, and the rate of later epochs
against that of local shards. Without FILE.json, the images are generated: JPEGs of 500 x 375.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import time
import urllib.request
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import timedelta
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from compare_versions import write_data
from mask_costs import add_outlines
from object_store import SENT, serving, use_server
from point_costs import endless
from settings import text
from torch import distributed as dist

import detaug as da
from detaug.converters import pack_coco

RANK, WORLD = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))


class Rate(NamedTuple):
    """Images/s, and CPU seconds for 1,000 images, of all processes that took part."""

    images: float
    cpu: float


def of_first(value: Any) -> Any:
    """Return what the first process has, to all."""
    box = [value]
    dist.broadcast_object_list(box)
    return box[0]


def cpu_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def rate(use: Callable[[], int], seconds: float, ranks: int, device: torch.device) -> Rate:
    """Measure the first `ranks` processes; `use` takes a batch and returns its images. The others wait."""
    images, took, cpu = 0, 0.0, 0.0
    dist.barrier()
    if ranks > RANK:
        for length in (seconds / 3, seconds):
            images, before, start = 0, cpu_seconds(), time.perf_counter()
            while time.perf_counter() - start < length:
                images += use()
            if device.type == "cuda":
                torch.cuda.synchronize(device)
            took, cpu = time.perf_counter() - start, cpu_seconds() - before
    found: list[Any] = [None] * WORLD
    dist.all_gather_object(found, (images / took if took else 0.0, cpu / images if images else 0.0))
    rates, costs = zip(*found[:ranks], strict=True)
    return Rate(sum(rates), 1000 * sum(a * b for a, b in zip(rates, costs, strict=True)) / sum(rates))


def taking(batches: Iterator[da.Batch], masks: bool) -> Callable[[], int]:
    """Return what takes a batch, with its masks if they are wanted."""

    def take() -> int:
        batch = next(batches)
        if masks:
            batch.masks(4)
        return len(batch)

    return take


def say(name: str, rates: list[Rate]) -> None:
    if RANK == 0:
        cpu = text([each.cpu for each in rates], ".3f")
        print(f"{name}: {text([each.images for each in rates])} images/s, {cpu} CPU s for 1,000", flush=True)


def compare_case(case: str, reader_of: Callable[[bool], da.CocoReader], options: argparse.Namespace) -> None:
    """Print the rates of one process and of all, and their ratio."""
    preset, size, *more = case.split(":")
    masks, device = more == ["masks"], options.device
    recipe = getattr(da.presets, preset)()
    with da.Loader(reader_of(masks), recipe, int(size), device=device, shard=(RANK, WORLD)) as loader:
        take = taking(endless(loader), masks)
        turns = [
            (rate(take, options.seconds, 1, device), rate(take, options.seconds, WORLD, device))
            for _ in range(options.turns)
        ]
    alone, together = map(list, zip(*turns, strict=True))
    say(f"{case}, one alone", alone)
    say(f"{case}, {WORLD} together", together)
    if RANK == 0:
        ratios = [b.images / a.images / WORLD for a, b in turns]
        print(f"{case}: {text(ratios, '.3f')} of {WORLD} x one alone", flush=True)


def compare_bucket(folder: Path, annotations: Path, images: Path, options: argparse.Namespace) -> None:
    """Print what the first epoch fetched, and the rates of later epochs and of local shards."""
    shards = folder / "shards"
    if RANK == 0:
        pack_coco(annotations, images, shards, format="webdataset")
    with ExitStack() as stack:
        address = of_first(stack.enter_context(serving(shards, 0.03, 10**9)) if RANK == 0 else "")
        use_server(address)
        cached = da.CocoReader("s3://bench", shards / "train.json", cache_folder=folder / "cache", cache_size="100GB")
        local = da.CocoReader(shards, shards / "train.json")
        loaders = [
            stack.enter_context(da.Loader(reader, da.presets.ssd300(), 32, device=options.device, shard=(RANK, WORLD)))
            for reader in (cached, local)
        ]
        start = time.perf_counter()
        deque(loaders[0], maxlen=0)
        dist.barrier()
        first = len(cached) / (time.perf_counter() - start)
        takes = [taking(endless(loader), masks=False) for loader in loaders]
        turns = [[rate(take, options.seconds, WORLD, options.device) for take in takes] for _ in range(options.turns)]
        if RANK == 0:
            with urllib.request.urlopen(address + SENT) as answer:
                sent = int(answer.read())
            total = sum(path.stat().st_size for path in shards.iterdir() if path.suffix != ".json")
            print(f"bucket, first epoch: {first:,.0f} images/s with the start, {sent / total:.4f} of the bytes fetched")
    later, files = map(list, zip(*turns, strict=True))
    say("bucket, later epochs", later)
    say("local shards", files)
    if RANK == 0:
        print(f"bucket / local shards: {text([a.images / b.images for a, b in turns], '.3f')}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", metavar="FILE.json IMAGES")
    parser.add_argument("--cases", nargs="*", default=["ssd300:32"], metavar="PRESET:BATCH_SIZE[:masks]")
    parser.add_argument("--bucket", action="store_true")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--images", type=int, default=8000)
    options = parser.parse_args()
    local = int(os.environ.get("LOCAL_RANK", 0))
    options.device = torch.device(options.device, local if options.device == "cuda" else None)
    if options.device.type == "cuda":
        torch.cuda.set_device(options.device)
    cores = sorted(os.sched_getaffinity(0))
    share = max(1, len(cores) // WORLD)
    dist.init_process_group("gloo", timeout=timedelta(minutes=3))
    with TemporaryDirectory() as name:
        folder = Path(of_first(name))
        if RANK == 0 and not options.data:
            write_data(folder, options.images)
            (folder / "masks").mkdir()
            shutil.copy(folder / "train.json", folder / "masks")
            add_outlines(folder / "masks" / "train.json", 7)
        dist.barrier()
        os.sched_setaffinity(0, set(islice(cores, local * share, (local + 1) * share)) or set(cores))
        annotations, images = map(Path, options.data or (folder / "train.json", folder))
        with_outlines = annotations if options.data else folder / "masks" / "train.json"

        def reader_of(masks: bool) -> da.CocoReader:
            return da.CocoReader(images, with_outlines if masks else annotations, masks=masks)

        for case in options.cases:
            compare_case(case, reader_of, options)
        if options.bucket:
            compare_bucket(folder, annotations, images, options)
        dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
