"""The loader and decoding alone with several settings, in turns in one process, in images a second.

    python benchmarks/settings.py FILE.json IMAGES [--preset ssd300] [--batch-size 32 128] [--settings 2,2,3 3,1,2]

Settings are pipelines, threads of each, and batches that each has in work; the first are the loader's own.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
from collections import deque

import numpy as np
import torch

import detaug as da
from detaug.decoded_images import decoding_lanes
from detaug.settings import Settings
from detaug.tune import rate_with


def decode_rate(loader: da.Loader, how: Settings, seconds: float) -> float:
    """Fed and collected as the loader does it, after a warm-up that is not timed."""
    lanes = itertools.cycle(decoding_lanes(loader.batch_size, loader.device, how))
    rng, in_work = np.random.default_rng(0), how.pipelines * how.depth
    running, step, start = deque(), 0, float("inf")
    while time.perf_counter() < start + seconds:
        if len(running) == in_work:
            running.popleft().finish()
        rows = rng.integers(len(loader.reader), size=loader.batch_size)
        running.append(next(lanes))
        running[-1].start(loader.reader.inputs(rows, loader.device.type))
        step += 1
        start = time.perf_counter() if step == 3 * in_work else start
    return (step - 3 * in_work) * loader.batch_size / (time.perf_counter() - start)


def compare(loader: da.Loader, others: list[Settings], options: argparse.Namespace) -> None:
    """Prints a line for each of the settings."""
    all_settings = [loader.settings, *others]
    rates = {each: ([], []) for each in all_settings}
    for _ in range(options.turns):
        for how in rates:
            rates[how][0].append(decode_rate(loader, how, options.seconds))
            rates[how][1].append(rate_with(loader, how, options.seconds))
    loader.close()
    for how, (decode, load) in rates.items():
        ratio = statistics.median(b / a for a, b in zip(decode, load, strict=True))
        what = f"{how.pipelines} pipelines, {how.threads} threads, {how.depth} batches each"
        print(
            f"batch {loader.batch_size}, {what}: loader {text(load)}, decode {text(decode)}, ratio {ratio:.2f}",
            flush=True,
        )


def text(rates: list[float]) -> str:
    return f"{statistics.median(rates):,.0f} ({', '.join(f'{rate:,.0f}' for rate in rates)})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations")
    parser.add_argument("images")
    parser.add_argument("--preset", default="ssd300")
    parser.add_argument("--batch-size", type=int, nargs="+", default=[32, 64, 128, 256])
    parser.add_argument("--settings", nargs="*", default=[], help="pipelines,threads,depth")
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--device")
    options = parser.parse_args()
    reader, recipe = da.CocoReader(options.images, options.annotations), getattr(da.presets, options.preset)()
    others = [Settings(*map(int, each.split(","))) for each in options.settings]
    print(torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU")
    for batch_size in options.batch_size:
        compare(da.Loader(reader, recipe, batch_size, device=options.device), others, options)


if __name__ == "__main__":
    main()
