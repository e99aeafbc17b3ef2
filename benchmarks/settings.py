"""The loader and decoding alone with several settings, in turns in one process: images a second.

    python benchmarks/settings.py FILE.json IMAGES [--preset ssd300] [--batch-size 32 128] [--settings 2,2,3 3,1,2,4]

Settings are pipelines, threads of each, how often each has batches in work, and how many it takes together, else one;
the first are the loader's own.
"""

from __future__ import annotations

import argparse
import statistics
from dataclasses import replace
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from detaug.bench import measure
from detaug.contestants import Job, decode, loader, make_loader
from detaug.settings import Settings, write_settings


def compare(job: Job, others: list[Settings], turns: int, folder: Path) -> None:
    """Prints a line for each of the settings."""
    with make_loader(job) as own:
        all_settings = [own.settings, *others]
    rates = {each: ([], []) for each in all_settings}
    for _, how in product(range(turns), rates):
        write_settings(folder / "settings.json", how)
        with_these = replace(job, settings=str(folder / "settings.json"))
        for contestant, found in zip((decode, loader), rates[how], strict=True):
            found.append(measure(contestant, with_these)["images_per_s"])
    for how, (decoding, loading) in rates.items():
        ratio = statistics.median(b / a for a, b in zip(decoding, loading, strict=True))
        what = f"{how.pipelines} pipelines, {how.threads} threads, {how.depth} times {how.together}"
        print(f"batch {job.batch_size}, {what}: ratio {ratio:.2f}, loader {text(loading)}, decode {text(decoding)}")


def text(rates: list[float]) -> str:
    return f"{statistics.median(rates):,.0f} ({', '.join(f'{rate:,.0f}' for rate in rates)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations")
    parser.add_argument("images")
    parser.add_argument("--preset", default="ssd300")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--settings", nargs="*", default=[], help="pipelines,threads,depth[,together]")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args()
    others = [Settings(*map(int, each.split(","))) for each in options.settings]
    with TemporaryDirectory() as folder:
        for size in options.batch_size:
            job = Job(options.annotations, options.images, options.preset, size, options.device, options.seconds)
            compare(job, others, options.turns, Path(folder))


if __name__ == "__main__":
    main()
