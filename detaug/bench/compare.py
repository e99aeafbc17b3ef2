"""`detaug bench`: compare the loader with decoding alone and with other loaders of the same recipe, on one machine.

Each measurement has a process of its own, and the loaders take turns, so that a slow minute of the machine affects
all of them. Their batches are compared before anything is timed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from subprocess import PIPE

import numpy as np
import torch

from detaug.arguments import check, is_number, is_whole, is_wholes
from detaug.bench.measure import BenchJob, Result
from detaug.errors import InputError
from detaug.findings.finding import rate_text
from detaug.loading.devices import resolve_device
from detaug.machine.child_process import child_process
from detaug.machine.cores import available_cores
from detaug.packages import is_installed
from detaug.pipelines.jpeg_engine import has_jpeg_engine

LOADERS = {
    "loader": "detaug.bench.loaders:loader",
    "decode": "detaug.bench.loaders:decode",
    "cached": "detaug.bench.loaders:cached",
    "by hand": "detaug.bench.loaders:by_hand",
    "torchvision": "detaug.bench.loaders:torchvision",
}
"""Module and function of each loader, by its name in the table. "cached" is measured only on request."""

PRESETS_OF_ALL = ("ssd300", "retinanet")
"""Presets that "by hand" and "torchvision" have too."""


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
    """Measure the loader, decoding alone, DALI by hand and torchvision's transforms, taking turns.

    `seconds`: timed in each of `turns` turns. `workers`: numbers of DataLoader workers, one row for each; () is
    the number of cores, at most 16. `others`: more loaders, by name "module:function". `only`: names of the loaders to
    measure; "cached", the loader with images decoded once, is measured only if named. `after_turn`: is called with the
    results so far after each turn. Raises InputError where two loaders do not make the same kind of batches.
    """
    check("seconds", seconds, is_number(seconds) and seconds > 0, "a finite number above 0")
    check("turns", turns, is_whole(turns, 1), "an integer of at least 1")
    check("workers", workers, not workers or is_wholes(workers, None, 1), "integers of at least 1")
    device = str(resolve_device(device))
    job = BenchJob(str(Path(annotations).absolute()), str(Path(images).absolute()), preset, batch_size, device, seconds)
    jobs = _jobs(job, workers or (min(16, available_cores()),), others or {}, only)
    used = not workers or any(name.endswith(" workers") for name in jobs)
    check("workers", workers, used, "left out for rows without any, as torchvision's have")
    say("comparing batches")
    short = {name: in_own_process(where, replace(own_job, seconds=0.0)) for name, (where, own_job) in jobs.items()}
    check_alike({name: result["batch"] for name, result in short.items()}, preset)
    rows: dict[str, list[Result]] = {name: [] for name in jobs}
    result = {"job": asdict(job), "machine": machine(device), "turns": 0, "rows": rows}
    for turn in range(turns):
        for name, (where, own_job) in jobs.items():
            rows[name].append(in_own_process(where, own_job))
            say(f"turn {turn + 1} of {turns}: {name} {rate_text(rows[name][-1]['images_per_s'])} images/s")
        result["turns"] = turn + 1
        after_turn(result)
    return result


def _jobs(
    job: BenchJob, workers: tuple[int, ...], others: Mapping[str, str], only: tuple[str, ...]
) -> dict[str, tuple[str, BenchJob]]:
    """Return "module:function" and job of each row of the table."""
    for name in only:
        if name not in {**LOADERS, **others}:
            raise InputError(f"only must be among {', '.join({**LOADERS, **others})}, got {name!r}")
    names = {name: where for name, where in LOADERS.items() if name != "torchvision" or is_installed("torchvision")}
    jobs: dict[str, tuple[str, BenchJob]] = {}
    for name, where in {**names, **others}.items():
        if name in ("torchvision", *others):
            jobs |= {f"{name}, {count} workers": (where, replace(job, workers=count)) for count in workers}
        else:
            jobs[name] = where, job
    if job.preset not in PRESETS_OF_ALL and (missing := {"by hand", "torchvision"} & {*only}):
        presets, rows = " and ".join(PRESETS_OF_ALL), " and ".join(sorted(missing))
        raise InputError(f"only names {rows}, which {presets} have, and the preset is {job.preset}")
    left_out = {"cached"} if job.preset in PRESETS_OF_ALL else {"cached", "by hand", "torchvision"}
    wanted = only or {"torchvision", *names, *others} - left_out
    chosen = {name: own_job for name, own_job in jobs.items() if name.partition(",")[0] in wanted}
    if not chosen:
        raise InputError(f"only has torchvision alone, which is not installed; name others of {', '.join(names)}")
    return chosen


def in_own_process(where: str, job: BenchJob) -> Result:
    """Measure one loader in a new process.

    Raises InputError for wrong input; RuntimeError with all that the process wrote to stderr for a bug.
    """
    code = "from detaug.bench.worker import main; main()"
    worker = child_process(code, where, json.dumps(asdict(job)), stdout=PIPE, stderr=PIPE, text=True)
    with worker as process:
        out, errors = process.communicate()
    if process.returncode:
        raise RuntimeError(f"{where} failed with exit code {process.returncode}:\n{errors}")
    result: Result = json.loads(out.splitlines()[-1])
    if "error" in result:
        raise InputError(f"{where}: {result['error']}")
    return result


def check_alike(batches: Mapping[str, Result], preset: str) -> None:
    """Raise InputError unless batches have images of one size, type and range, and boxes inside of these."""
    made = {name: batch for name, batch in batches.items() if batch}
    sizes = {name: tuple(batch["shape"][1:]) for name, batch in made.items()}
    brightest = max((batch["high"] for batch in made.values()), default=1.0)
    for name, batch in made.items():
        least = min(0.2, brightest / 2)  # all images may be dark
        if batch["dtype"] != "torch.float32" or batch["low"] < -0.01 or not least <= batch["high"] <= 1.01:
            values = f"{batch['low']:.2f} to {batch['high']:.2f} as {batch['dtype']}"
            fault = f"its images have values from {values}, not from 0 to 1 as torch.float32"
        elif preset != "retinanet" and len({*sizes.values()}) > 1:  # its batches have the sizes of their images
            fault = f"its images have the size {sizes[name]}, those of {' and '.join(sizes)} are {[*sizes.values()]}"
        elif batch["wrong_boxes"]:
            fault = f"{batch['wrong_boxes']} of its {batch['boxes']} boxes are not in their images"
        elif not batch["boxes"] and max(other["boxes"] for other in made.values()) > 2 * len(made):
            fault = "it has no boxes, and others have"
        else:
            continue
        raise InputError(f"{name} makes other batches than the rest, so its speed means nothing: {fault}")


def machine(device: str) -> Result:
    """Return the processor, the GPU and the versions of the libraries."""
    from nvidia import dali

    model = [line.partition(": ")[2] for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    gpu = torch.cuda.get_device_name(device) if torch.device(device).type == "cuda" else None
    versions = {"dali": dali.__version__, "torch": torch.__version__, "numpy": np.__version__}
    names = {"cpu": next(iter(model), "unknown"), "cores": available_cores(), "gpu": gpu}
    names["jpeg_engine"] = has_jpeg_engine(torch.device(device)) if gpu else None
    return {**names, **versions, "python": sys.version.split()[0], "date": time.strftime("%Y-%m-%d")}


def _lines(path: str) -> list[str]:
    try:
        return Path(path).read_text().splitlines()
    except OSError:
        return []
