"""Compare `da.fn.augment` in a user's pipeline with the same recipe by hand and with `Loader`, interleaved: images/s.

    python benchmarks/dali_pipelines.py [FILE.json IMAGES] [--device cuda] [--batch-size 128] [--seconds 4] [--turns 2]

The recipe is SSD's: `da.presets.ssd300()`, or as DALI's examples write it, in `detaug/bench/loaders.py`. The same
number of pipelines has equal settings: threads, batch size, prefetch queue, one shard of the data for each pipeline.
The loader has its own. Each row has a process, which waits while the others have their turns. Without FILE.json, the
images are generated: JPEGs of 500 x 375. Ratios are medians of the turns' ratios, in brackets their range.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from compare_versions import write_data
from nvidia.dali import fn, pipeline_def
from nvidia.dali.plugin.pytorch import DALIGenericIterator

import detaug as da
from detaug.bench.loaders import RECIPES
from detaug.machine.cores import available_cores


class Task(NamedTuple):
    """Data and settings of a row. `threads`: of each pipeline."""

    annotations: str
    images: str
    device: str
    batch_size: int
    pipelines: int
    threads: int


def loader(task: Task) -> Iterator[int]:
    """Yield the number of images of each batch of `da.Loader`."""
    reader = da.CocoReader(task.images, task.annotations)
    batches = da.Loader(reader, da.presets.ssd300(), task.batch_size, device=task.device)
    for _ in count():
        for batch in batches:
            yield len(batch)


def augment(task: Task, with_shapes: bool = True) -> Iterator[int]:
    """Yield the number of images of each batch of `da.DaliIterator`, from pipelines with `da.fn.augment`."""

    def graph(number: int) -> tuple[Any, ...]:
        shard = (number, task.pipelines)
        encoded, boxes, labels, image_ids = da.fn.coco(task.images, task.annotations, shard=shard, name="coco")
        decoded = fn.decoders.image(encoded, device="cpu" if task.device == "cpu" else "mixed")
        shapes = fn.peek_image_shape(encoded) if with_shapes else None
        return *da.fn.augment(decoded, boxes, labels, da.presets.ssd300(), seed=number, shapes=shapes), image_ids

    iterator = da.DaliIterator(_pipelines(task, graph), reader_name="coco")
    for _ in count():
        for batch in iterator:
            yield len(batch)


def augment_without_shapes(task: Task) -> Iterator[int]:
    """Yield the same, from pipelines that read the sizes from the decoded images."""
    return augment(task, with_shapes=False)


def by_hand(task: Task) -> Iterator[int]:
    """Yield the number of images of each batch of DALI's own iterator, from pipelines of DALI's operators."""

    def graph(number: int) -> tuple[Any, ...]:
        encoded, boxes, labels = fn.readers.coco(  # type: ignore[misc]
            file_root=task.images, annotations_file=task.annotations, ltrb=True, ratio=True,
            shuffle_after_epoch=True, pad_last_batch=True, avoid_class_remapping=True, name="coco",
            shard_id=number, num_shards=task.pipelines,
        )  # fmt: skip
        decoded = fn.decoders.image(encoded, device="cpu" if task.device == "cpu" else "mixed")
        images, *targets = RECIPES["ssd300"](decoded, boxes, labels)
        return images, *(each if task.device == "cpu" else each.gpu() for each in targets)

    pipelines, names = _pipelines(task, graph), ["images", "boxes", "labels"]
    iterator = DALIGenericIterator(pipelines, names, reader_name="coco", auto_reset=True)
    for _ in count():
        for outputs in iterator:
            yield from (len(each["images"]) for each in outputs)


def _pipelines(task: Task, graph: Callable[[int], tuple[Any, ...]]) -> list[Any]:
    device_id = None if task.device == "cpu" else torch.device(task.device).index or 0
    make = pipeline_def(graph, batch_size=task.batch_size, num_threads=task.threads, device_id=device_id)
    return [make(number, seed=number) for number in range(task.pipelines)]


ROWS: dict[str, tuple[Callable[[Task], Iterator[int]], int]] = {
    "loader": (loader, 1),
    "augment, 1 pipeline": (augment, 1),
    "by hand, 1 pipeline": (by_hand, 1),
    "augment without shapes, 1 pipeline": (augment_without_shapes, 1),
    "augment, 3 pipelines": (augment, 3),
    "augment without shapes, 3 pipelines": (augment_without_shapes, 3),
    "by hand, 3 pipelines": (by_hand, 3),
}
"""The function of each row and the number of its pipelines."""

WARM_UP = {"cpu": 400, "cuda": 2000}
"""Images at least that come before each turn, since a row that waits has batches ready: the loader has most."""


def serve(name: str, task: Task) -> None:
    """Measure for as many seconds as each line of stdin says; print images/s and CPU seconds for 1,000 images."""
    if task.device == "cpu":
        da.keep_freed_memory()
    make, _ = ROWS[name]
    batches = make(task)
    next(batches)
    print("ready", flush=True)
    for line in sys.stdin:
        _take(batches, float(line) / 4, WARM_UP["cpu" if task.device == "cpu" else "cuda"])
        start, cpu = time.perf_counter(), time.process_time()
        images = _take(batches, float(line))
        if task.device != "cpu":
            torch.cuda.synchronize()
        seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
        print(images / seconds, cpu / images * 1000, flush=True)


def _take(batches: Iterator[int], seconds: float, least: int = 1) -> int:
    """Take batches for some seconds, of at least some images; return the number of images."""
    end, images = time.perf_counter() + seconds, 0
    while time.perf_counter() < end or images < least:
        images += next(batches)
    return images


class Server:
    """A process that measures one row whenever it is asked."""

    def __init__(self, name: str, task: Task) -> None:
        self.name, command = name, [sys.executable, os.path.abspath(__file__), "--serve", name, *map(str, task)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def wait(self) -> None:
        """Wait until its first batch is made."""
        self._line()

    def measure(self, seconds: float) -> tuple[float, float]:
        """Return images/s and CPU seconds for 1,000 images."""
        assert self._process.stdin
        print(seconds, file=self._process.stdin, flush=True)
        rate, cpu = map(float, self._line().split())
        return rate, cpu

    def close(self) -> None:
        self._process.kill()
        self._process.wait()

    def _line(self) -> str:
        assert self._process.stdout
        if not (line := self._process.stdout.readline()):
            raise RuntimeError(f"{self.name} ended")
        return line


def compare(servers: list[Server], seconds: float, turns: int) -> None:
    """Measure all rows in turns, every second time in reverse order, and print the table."""
    found: dict[str, list[tuple[float, float]]] = {server.name: [] for server in servers}
    for turn in range(turns):
        for server in servers if turn % 2 == 0 else servers[::-1]:
            found[server.name].append(server.measure(seconds))
    rates = {name: [rate for rate, _ in each] for name, each in found.items()}
    for name, each in found.items():
        others = [
            other
            for other in ("loader", name.replace("augment", "by hand").replace(" without shapes", ""))
            if other in rates and other != name
        ]
        ratios = [f"{_ratio(rates[name], rates[other])} of {other}" for other in others if "by hand" not in name]
        cpu = f"{median(cpu for _, cpu in each):.2f} CPU s/1000"
        rate = f"{median(rates[name]):,.0f} images/s ({min(rates[name]):,.0f} to {max(rates[name]):,.0f})"
        print(name, rate, cpu, *ratios, sep="; ")


def _ratio(rates: list[float], others: list[float]) -> str:
    ratios = [a / b for a, b in zip(rates, others, strict=True)]
    return f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    if sys.argv[1:2] == ["--serve"]:
        name, annotations, images, device, *numbers = sys.argv[2:]
        serve(name, Task(annotations, images, device, *map(int, numbers)))
        return
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", metavar="FILE.json IMAGES")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--threads", type=int, default=min(available_cores(), 8), help="of all pipelines of a row")
    parser.add_argument("--seconds", type=float, default=4)
    parser.add_argument("--turns", type=int, default=2)
    parser.add_argument("--only", action="append", choices=ROWS, help="measure this row; may be repeated")
    options = parser.parse_args()
    with TemporaryDirectory() as folder:
        if not options.data:
            write_data(Path(folder), 2000)
        annotations, images = options.data or (f"{folder}/train.json", folder)
        servers = []
        for name in options.only or ROWS:
            pipelines = ROWS[name][1]
            settings = options.device, options.batch_size, pipelines, max(1, options.threads // pipelines)
            servers.append(Server(name, Task(annotations, images, *settings)))
        try:
            for server in servers:
                server.wait()
            compare(servers, options.seconds, options.turns)
        finally:
            for server in servers:
                server.close()


if __name__ == "__main__":
    main()
