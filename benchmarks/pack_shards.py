"""Pack a data set into shards, against `cp -r` of its images, interleaved on one machine.

    python benchmarks/copy_images.py train.json JPEGImages -o many --copies 250
    cp -rL many/images images
    python benchmarks/pack_shards.py many/train.json images

Prints the median seconds of each, and of the processor: `cp -r`, which leaves the copies in the page cache, and
pack_coco, which waits until its files are on the disk, without the start of Python. The images are read once before, so
that they are in the page cache for all of them.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from detaug.converters import pack_coco


def copy(images: Path, output: Path) -> None:
    subprocess.run(["cp", "-r", images, output], check=True)


def seconds(function: Callable[[Path], object], output: Path) -> tuple[float, float]:
    """Return the seconds that passed, and those of the processors, children included."""
    shutil.rmtree(output, ignore_errors=True)
    start, before = time.perf_counter(), sum(os.times()[:4])
    function(output)
    return time.perf_counter() - start, sum(os.times()[:4]) - before


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    files = [path for path in options.images.rglob("*") if path.is_file()]
    megabytes = sum(len(path.read_bytes()) for path in files) / 1e6
    print(f"{len(files):,} images, {megabytes:,.0f} MB, {len(os.sched_getaffinity(0))} cores")
    programs: dict[str, Callable[[Path], object]] = {"cp -r": partial(copy, options.images)}
    for name in ("webdataset", "tfrecord"):
        programs[f"pack, {name}"] = partial(pack_coco, options.annotations, options.images, format=name)
    times: dict[str, list[tuple[float, float]]] = {name: [] for name in programs}
    with tempfile.TemporaryDirectory(dir=".") as folder:
        for _ in range(options.rounds):
            for name, function in programs.items():
                times[name].append(seconds(function, Path(folder) / "output"))
    for name, rounds in times.items():
        passed, computed = (sorted(column) for column in zip(*rounds, strict=True))
        median = statistics.median(passed)
        print(
            f"{name:<16} {median:6.2f} s ({passed[0]:.2f} to {passed[-1]:.2f}), {megabytes / median:6,.0f} MB/s, "
            f"{statistics.median(computed):.2f} s of the processor"
        )


if __name__ == "__main__":
    main()
