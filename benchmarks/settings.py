"""Measure the loader and decoding alone with several settings, interleaved in one process: images per second.

    python benchmarks/settings.py FILE.json IMAGES [--preset ssd300] [--batch-size 32 128] [--settings 2,2,3 3,1,2,4]
        [--cores 4]

Settings are pipelines, threads of each, depth (groups of batches in flight in each), batches per group (default 1), and
the fraction of the JPEG engine (default 1); the first are the loader's own. Ratios are medians of the turns' ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from detaug.bench.loaders import decode, loader, make_loader
from detaug.bench.measure import BenchJob, Result, measure
from detaug.loading.settings import Settings, write_settings


def compare(job: BenchJob, others: list[Settings], cores: list[int], turns: int, folder: Path) -> None:
    """Print a line for each of the settings, on each number of cores."""
    with make_loader(job) as own:
        ways = list(product(cores, [own.settings, *others]))
    found: dict[tuple[int, Settings], list[tuple[Result, Result]]] = {way: [] for way in ways}
    for _, (some, how) in product(range(turns), ways):
        write_settings(folder / "settings.json", how)
        with_these = replace(job, settings=str(folder / "settings.json"))
        with on_cores(some):
            found[some, how].append((measure(decode, with_these), measure(loader, with_these)))
    first = rates_of(found[ways[0]])[1]
    for (some, how), results in found.items():
        decoding, loading = rates_of(results)
        cpu = statistics.median(result["cpu_s_per_1000"] for _, result in results)
        groups = f"{how.depth} times {how.batches_per_group}, engine {how.hw_decoder_load}"
        print(f"batch {job.batch_size}, {some} cores, {how.pipelines} pipelines, {how.threads} threads, {groups}:")
        print(f"  loader {text(loading)}, {cpu:.2f} CPU s/1000, {ratio(loading, first)} of the first")
        print(f"  decode {text(decoding)}, loader / decode {ratio(loading, decoding)}", flush=True)


def rates_of(results: list[tuple[Result, Result]]) -> tuple[list[float], list[float]]:
    """Return the images per second of decoding, and of the loader, in each turn."""
    decoding, loading = zip(*results, strict=True)
    return [each["images_per_s"] for each in decoding], [each["images_per_s"] for each in loading]


@contextmanager
def on_cores(number: int) -> Iterator[None]:
    """Bind this process, and the threads that it starts meanwhile, to the first of its cores."""
    all_cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, sorted(all_cores)[:number])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_cores)


def ratio(rates: list[float], others: list[float]) -> str:
    ratios = [a / b for a, b in zip(rates, others, strict=True)]
    return text(ratios, ".2f")


def text(values: list[float], form: str = ",.0f") -> str:
    """Return the median of some turns, and in brackets their range."""
    return f"{statistics.median(values):{form}} ({min(values):{form}} to {max(values):{form}})"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations")
    parser.add_argument("images")
    parser.add_argument("--preset", default="ssd300")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument(
        "--settings", nargs="*", default=[], help="pipelines,threads,depth[,batches_per_group[,engine]]"
    )
    parser.add_argument("--cores", type=int, nargs="*", default=[], help="fewer than there are, beside all")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    others = [Settings(*map(json.loads, each.split(","))) for each in options.settings]
    cores = [len(os.sched_getaffinity(0)), *options.cores]
    with TemporaryDirectory() as folder:
        for size in options.batch_size:
            job = BenchJob(options.annotations, options.images, options.preset, size, options.device, options.seconds)
            compare(job, others, cores, options.turns, Path(folder))


if __name__ == "__main__":
    main()
