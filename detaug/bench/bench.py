"""`detaug bench`: the loader against decoding alone and against the recipe made in other ways, on one machine.

Each measurement is in a process of its own, and they take turns, so that a slow minute of the machine hits them
alike. What they make is compared before anything is timed.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch

from detaug.bench.contestants import Job, Made
from detaug.loading.pipeline import resolve_device

Result = dict[str, Any]

WARM_UP = 0.3
"""Seconds before the timed ones, as a part of those."""

NAMES = {
    "loader": "detaug.bench.contestants:loader",
    "decode": "detaug.bench.contestants:decode",
    "cached": "detaug.bench.contestants:cached",
    "by hand": "detaug.bench.contestants:by_hand",
    "torchvision": "detaug.bench.contestants:torchvision",
}
"""By the name in the table: module and function of a contestant. "cached" is measured where it is asked for."""

OTHERS_HAVE = ("ssd300", "retinanet")
"""Presets that are written by hand and in torchvision's transforms too."""


# ------------------------------------------------------------------------------- one, in its own process


def measure(make: Callable[[Job], Iterator[Made]], job: Job) -> Result:
    """Time one contestant: images a second and what they cost."""
    memory = _gpu_memory(job)
    start = time.perf_counter()
    batches = make(job)
    first = next(batches)
    _wait(job)
    found: Result = {"first_batch_s": time.perf_counter() - start, "looks": looks(first)}
    _run(batches, job.seconds * WARM_UP, at_least=8)
    _wait(job)
    begin, cpu = time.perf_counter(), cpu_seconds()
    images, times = _run(batches, job.seconds, at_least=8)
    _wait(job)
    seconds, cpu = time.perf_counter() - begin, cpu_seconds() - cpu
    p50, p99 = np.percentile(times, [50, 99]) * 1000
    found |= {"images_per_s": images / seconds, "cpu_s_per_1000": cpu / images * 1000, "images": images}
    return found | {"p50_ms": p50, "p99_ms": p99, "gpu_mb": (_gpu_memory(job) - memory) / 1e6}


def _run(batches: Iterator[Made], seconds: float, at_least: int) -> tuple[int, list[float]]:
    """Take batches for so long: how many real images, and the seconds from each batch to the next."""
    images, start = 0, time.perf_counter()
    before, times = start, list[float]()
    while before - start < seconds or len(times) < at_least:
        images += next(batches).real
        now = time.perf_counter()
        times.append(now - before)
        before = now
    return images, times


def _wait(job: Job) -> None:
    if torch.device(job.device).type == "cuda":
        torch.cuda.synchronize(job.device)


def _gpu_memory(job: Job) -> int:
    """Bytes in use on the device, by all processes; this process's context is there from the first call on."""
    if torch.device(job.device).type != "cuda":
        return 0
    torch.zeros(1, device=job.device)
    free, total = torch.cuda.mem_get_info(job.device)
    return total - free


def cpu_seconds() -> float:
    """Of this process and all that it started."""
    parents, used = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            pid, rest = int(path.parent.name), path.read_text().rpartition(") ")[2].split()
        except OSError:  # it ended
            continue
        parents[pid], used[pid] = int(rest[1]), int(rest[11]) + int(rest[12])
    family, more = {os.getpid()}, {os.getpid()}
    while more:
        more = {pid for pid, parent in parents.items() if parent in more}
        family |= more
    own = os.times()
    alive = sum(used[pid] for pid in family - {os.getpid()}) / os.sysconf("SC_CLK_TCK")
    return own.user + own.system + own.children_user + own.children_system + alive


def looks(made: Made) -> Result:
    """What a batch looks like, so that batches made in other ways can be compared."""
    if made.images is None:
        return {}
    images, pairs = made.images, list(zip(made.boxes, made.labels, strict=True))
    real = [boxes[labels.reshape(-1) >= 1].float().cpu() for boxes, labels in pairs]
    boxes = torch.cat([each.reshape(-1, 4) for each in real])
    limit = torch.tensor([images.shape[3], images.shape[2]] * 2) + 0.01
    return {
        "shape": [*images.shape],
        "dtype": str(images.dtype),
        "low": float(images.min()),
        "high": float(images.max()),
        "boxes": len(boxes),
        "wrong_boxes": int(
            ((boxes < -0.01) | (boxes > limit)).any(1).sum() + (boxes[:, :2] > boxes[:, 2:]).any(1).sum()
        ),
    }


# --------------------------------------------------------------------------------------- all, in turns


def bench(
    annotations: str | Path,
    images: str | Path,
    *,
    batch_size: int = 32,
    device: str | None = None,
    preset: str = "ssd300",
    seconds: float = 5.0,
    turns: int = 3,
    workers: tuple[int, ...] = (),
    others: Mapping[str, str] | None = None,
    only: tuple[str, ...] = (),
    say: Callable[[str], None] = lambda line: None,
    after_turn: Callable[[Result], None] = lambda result: None,
) -> Result:
    """Measure the loader, decoding alone, DALI by hand and torchvision's transforms, in turns.

    `seconds` timed in each of `turns` turns. `workers`: of the DataLoader, one row for each number; none is as
    many as there are cores, at most 16. `others`: more contestants, by name "module:function". `only`: names;
    "cached", the loader with all images decoded before, needs to be among them. `after_turn`: is given what there is
    after each turn. Raises ValueError where two do not make the same kind of batches.
    """
    device = str(resolve_device(device))
    job = Job(str(Path(annotations).absolute()), str(Path(images).absolute()), preset, batch_size, device, seconds)
    jobs = _jobs(job, workers or (min(16, len(os.sched_getaffinity(0))),), others or {}, only)
    say("comparing what they make")
    short = {name: in_own_process(where, replace(each, seconds=0.0)) for name, (where, each) in jobs.items()}
    check_alike({name: result["looks"] for name, result in short.items()}, preset)
    rows: dict[str, list[Result]] = {name: [] for name in jobs}
    result = {"job": job.as_dict(), "machine": machine(device), "turns": 0, "rows": rows}
    for turn in range(turns):
        for name, (where, each) in jobs.items():
            rows[name].append(in_own_process(where, each))
            say(f"turn {turn + 1} of {turns}: {name} {rows[name][-1]['images_per_s']:,.0f} images/s")
        result["turns"] = turn + 1
        after_turn(result)
    return result


def _jobs(
    job: Job, workers: tuple[int, ...], others: Mapping[str, str], only: tuple[str, ...]
) -> dict[str, tuple[str, Job]]:
    names = {name: where for name, where in NAMES.items() if name != "torchvision" or find_spec("torchvision")}
    jobs: dict[str, tuple[str, Job]] = {}
    for name, where in {**names, **others}.items():
        if name in ("torchvision", *others):
            jobs |= {f"{name}, {each} workers": (where, replace(job, workers=each)) for each in workers}
        else:
            jobs[name] = where, job
    left_out = {"cached"} if job.preset in OTHERS_HAVE else {"cached", "by hand", "torchvision"}
    wanted = only or {"torchvision", *names, *others} - left_out
    return {name: each for name, each in jobs.items() if name.partition(",")[0] in wanted}


def in_own_process(where: str, job: Job) -> Result:
    """Measure one contestant in a new process. Raises ValueError with its last line if it fails."""
    command = [sys.executable, "-m", "detaug.bench.bench", where, json.dumps(job.as_dict())]
    paths = os.pathsep.join(path for path in sys.path if path)
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": paths}, check=False)
    if done.returncode:
        raise ValueError(f"{where} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
    result: Result = json.loads(done.stdout.splitlines()[-1])
    return result


def check_alike(batches: Mapping[str, Result], preset: str) -> None:
    """Are batches of one shape, type and range, with boxes inside their images? Raises ValueError."""
    made = {name: each for name, each in batches.items() if each}
    shapes = {tuple(each["shape"]) for each in made.values()}
    one_size = len(shapes) <= 1 or preset == "retinanet"  # its batches have the sizes of their images
    for name, each in made.items():
        right = each["dtype"] == "torch.float32" and each["low"] >= -0.01 and 0.2 < each["high"] <= 1.01
        if not (one_size and right and each["boxes"] and not each["wrong_boxes"]):
            raise ValueError(f"{name} makes other batches than the rest, so times mean nothing: {each}; all: {made}")


def machine(device: str) -> Result:
    """Where and with what."""
    from nvidia import dali

    model = [line.partition(": ")[2] for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    gpu = torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else None
    versions = {"dali": dali.__version__, "torch": torch.__version__, "numpy": np.__version__}
    names = {"cpu": next(iter(model), "unknown"), "cores": len(os.sched_getaffinity(0)), "gpu": gpu}
    return {**names, **versions, "python": sys.version.split()[0], "date": time.strftime("%Y-%m-%d")}


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []


# -------------------------------------------------------------------------------------------- the table


def table(result: Result) -> str:
    """Medians over the turns, the range of the rates, and how many times as fast the first row was, turn by turn."""
    rows, job = result["rows"], result["job"]
    first = next(iter(rows))
    where = result["machine"]["gpu"] or result["machine"]["cpu"]
    lines = [f"{job['preset']}, batch {job['batch_size']}, {result['turns']} turns of {job['seconds']:g} s, {where}"]
    columns = ("images/s", "range", f"{first}/this", "CPU s/1000", "p50 ms", "p99 ms", "first s", "GPU MB")
    lines.append(f"{'':24}" + "".join(f"{name:>{_width(name)}}" for name in columns))
    for name, turns in rows.items():
        rates = [turn["images_per_s"] for turn in turns]
        ratio = statistics.median(a["images_per_s"] / b for a, b in zip(rows[first], rates, strict=True))
        values = [f"{median(turns, 'images_per_s'):,.0f}", f"{min(rates):,.0f}..{max(rates):,.0f}", f"{ratio:.2f}"]
        values += [f"{median(turns, 'cpu_s_per_1000'):.2f}", f"{median(turns, 'p50_ms'):.1f}"]
        values += [f"{median(turns, 'p99_ms'):.1f}", f"{median(turns, 'first_batch_s'):.2f}"]
        values += [f"{median(turns, 'gpu_mb'):,.0f}" if result["machine"]["gpu"] else "-"]
        cells = "".join(f"{value:>{_width(column)}}" for value, column in zip(values, columns, strict=True))
        lines.append(f"{name:24}{cells}")
    return "\n".join(lines)


def median(turns: list[Result], what: str) -> float:
    return float(statistics.median(turn[what] for turn in turns))


def _width(column: str) -> int:
    return 18 if column == "range" else max(9, len(column) + 2)


def main() -> None:
    """`python -m detaug.bench.bench MODULE:FUNCTION JOB`: measure one, print the result as json."""
    where, job = sys.argv[1:]
    module, _, function = where.partition(":")
    result = measure(getattr(import_module(module), function), Job(**json.loads(job)))
    print(json.dumps(result), flush=True)
    os._exit(0)  # DataLoader's workers and DALI's threads end with it


if __name__ == "__main__":
    main()
