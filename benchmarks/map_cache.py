"""Maps that are kept on the disk against decoding them: bytes a map, seconds to open, microseconds a read.

    python benchmarks/map_cache.py [--maps 2000] [--size 480 640] [--runs 18] [--turns 5] [--reads 500]

The maps are drawn: 8-bit PNG of 12 classes, with edges that change from row to row, and as many runs in a row as the
panoptic maps of COCO have. 100 of them are drawn, and the others are links to these, so decoding finds its files in
memory, as reading does. The maps are decoded once, which fills the cache; then some at random are read from it and
decoded, in turns, and at last others are read that are on the disk alone. Prints medians of the turns, in brackets
their range. "of 118,287" is computed: bytes a map, or seconds a map, times that number.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

import numpy as np
from PIL import Image

from detaug.maps.kept import KeptRuns
from detaug.maps.kinds import ClassMap, pixels_of
from detaug.maps.run_file import MapKey
from detaug.maps.values import Runs

COCO = 118_287
"""Images of train2017."""
DRAWN = 100
SEGMENTS = 12


def draw(folder: Path, count: int, size: tuple[int, int], runs: int) -> list[Path]:
    """Write maps of classes, each row of which has about `runs` runs."""
    rng = np.random.default_rng(0)
    paths = [folder / f"{number:06}.png" for number in range(count)]
    for number, path in enumerate(paths):
        if number >= DRAWN:
            os.link(paths[number % DRAWN], path)
            continue
        edges = np.sort(rng.uniform(0, size[1], runs - 1))[:, None]
        edges = edges + np.cumsum(rng.normal(0, 1.5, (runs - 1, size[0])), 1)
        values = (np.sort(edges, 0)[:, :, None] < np.arange(size[1])).sum(0) % SEGMENTS
        Image.fromarray(values.astype(np.uint8)).save(path)
    return paths


def key(path: Path) -> MapKey:
    """Return the key of a map, as a source has it."""
    status = os.stat(path)
    return MapKey.of(os.fsencode(path), np.array([status.st_size, status.st_mtime_ns]).tobytes())


def microseconds(read: Callable[[int, Path], object], paths: Sequence[Path], indices: Sequence[int]) -> float:
    """Return those of one read."""
    start = time.perf_counter()
    for index in indices:
        read(index, paths[index])
    return (time.perf_counter() - start) / len(indices) * 1e6


def seconds_to_open(file: Path, path: Path) -> float:
    """Return how long the first read of a file takes."""
    start = time.perf_counter()
    assert KeptRuns(np.uint8, file).load(0, key(path)) is not None
    return time.perf_counter() - start


def leave_memory(file: Path) -> None:
    """Let the system forget the content of a file."""
    descriptor = os.open(file, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def text(numbers: Sequence[float]) -> str:
    """Return the median, and the range in brackets."""
    return f"{median(numbers):,.0f} ({min(numbers):,.0f} to {max(numbers):,.0f})"


def main() -> None:
    """Draw maps, fill the cache, and print what is measured."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--maps", type=int, default=2000)
    parser.add_argument("--size", type=int, nargs=2, default=(480, 640), metavar=("HEIGHT", "WIDTH"))
    parser.add_argument("--runs", type=int, default=18, help="runs in a row")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--reads", type=int, default=500, help="maps of a turn")
    options = parser.parse_args()
    kind = ClassMap("maps")
    with TemporaryDirectory() as folder:
        paths = draw(Path(folder), options.maps, tuple(options.size), options.runs)
        file = Path(folder, "cache", "maps")

        def decode(_: int, path: Path) -> Runs:
            return Runs.of(kind.values_of(pixels_of(path), path))

        start, appending = time.perf_counter(), 0.0
        kept = KeptRuns(np.uint8, file)
        for index, path in enumerate(paths):
            runs = decode(index, path)
            before = time.perf_counter()
            kept.add(index, key(path), runs)
            appending += time.perf_counter() - before
        filled = time.perf_counter() - start
        del kept
        of_map = file.stat().st_size / len(paths)
        warm = seconds_to_open(file, paths[0])
        kept, rng = KeptRuns(np.uint8, file), np.random.default_rng(1)
        kept.load(0, key(paths[0]))

        def read(index: int, path: Path) -> Runs:
            runs = kept.load(index, key(path))
            assert runs is not None
            return runs

        for index in range(min(DRAWN, len(paths))):
            one, other = read(index, paths[index]), decode(index, paths[index])
            assert (one.pixels() == other.pixels()).all()
        times: dict[str, list[float]] = {"read": [], "decode": []}
        for _ in range(options.turns):
            indices = rng.integers(0, len(paths), options.reads).tolist()
            times["read"].append(microseconds(read, paths, indices))
            times["decode"].append(microseconds(decode, paths, indices[: max(1, options.reads // 5)]))
        leave_memory(file)
        cold = seconds_to_open(file, paths[0])
        times["read from the disk"] = [microseconds(read, paths, rng.permutation(len(paths))[: options.reads].tolist())]
    print(f"{len(paths):,} maps of {options.size[1]} x {options.size[0]}, {options.runs} runs in a row")
    print(f"on the disk: {of_map / 1e3:.1f} KB a map; of {COCO:,}: {of_map * COCO / 1e9:.2f} GB")
    print(f"filled in {filled:.1f} s, of which appending {1e6 * appending / len(paths):,.0f} us a map")
    for name, seconds in (("in memory", warm), ("on the disk alone", cold)):
        print(f"opened with the file {name}: {seconds:.3f} s; of {COCO:,}: {seconds / len(paths) * COCO:.2f} s")
    for name, numbers in times.items():
        print(f"{name}: {text(numbers)} us a map")


if __name__ == "__main__":
    main()
