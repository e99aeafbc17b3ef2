"""Measure whether the loader gets slower, or larger, from epoch to epoch.

    python benchmarks/epochs.py train.json JPEGImages [--epochs 20] [--batch-size 32]

Prints each epoch's seconds and the memory after it: of the process, and of the GPU where there is one.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time

import torch

import detaug as da


def memory() -> tuple[float, float]:
    """Return megabytes: the resident memory of this process, and the memory in use on the GPU."""
    with open("/proc/self/statm", encoding="ascii") as line:
        resident = int(line.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    free, total = torch.cuda.mem_get_info() if torch.cuda.is_available() else (0, 0)
    return resident / 1e6, (total - free) / 1e6


def epoch(loader: da.Loader) -> float:
    start = time.perf_counter()
    for _ in loader:
        pass
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations")
    parser.add_argument("images")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        da.keep_freed_memory()
    reader = da.CocoReader(options.images, options.annotations)
    times = []
    with da.Loader(reader, da.presets.ssd300(), options.batch_size) as loader:
        for at in range(1, options.epochs + 1):
            times.append(epoch(loader))
            resident, on_gpu = memory()
            print(f"epoch {at:2}: {times[-1]:.2f} s, {resident:,.0f} MB, GPU {on_gpu:,.0f} MB", flush=True)
    rest = statistics.median(times[1:])
    print(f"second / first: {times[1] / times[0]:.2f}; median of the later ones {rest:.2f} s")


if __name__ == "__main__":
    main()
