"""The loader and a training on one GPU and on several of a host: how much does each add, and are the losses the same?

    detaug convert-voc BCCD -o train.json --split train && detaug convert-voc BCCD -o test.json --split test
    python benchmarks/many_gpus.py train.json test.json BCCD/JPEGImages -o many --minutes 7

On 1, 2, 4, ... GPUs, as many as there are. Loader: the loader alone, --loader-batch-size images on each GPU, each
process on --cores-per-gpu cores of its own, so that one GPU has only its share of the cores. Decode: the same with
decoding alone, to see whether a lower rate on several GPUs is the loader's fault. Speed: train ssd300_vgg16,
--batch-size images on each GPU. Curves: its losses (it has no batch norm) with --batch-size images a step on all GPUs
of the part together, so that a step is the same on any number of GPUs; two seeds on one GPU differ in weights, order
and draws, and show the noise.

Timed parts run alone; curves run side by side, on GPUs of their own. Each part is a process, or torchrun's; after
each one results.json and curves.png are written again. A part that takes longer than --part-minutes, or beyond
--minutes, is stopped. The images are listed --copies times, so that epochs are not too short.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Iterator
from datetime import timedelta
from itertools import accumulate, chain, islice, product, repeat
from pathlib import Path
from typing import Any, NamedTuple

import torch
from copy_images import copy_images
from many_gpus_summary import TITLES, curves, draw_curves, summary
from torch import distributed as dist
from train_compare import detaug_loader, machine

from detaug.bench.loaders import decode, loader
from detaug.bench.measure import Job
from detaug.training import Detector, TrainOptions, train

KINDS = (*TITLES, "curve")
ALONE = {"loader": loader, "decode": decode}
"""Kinds without a training, and their source of batches."""


class Part(NamedTuple):
    """kind: one of `TITLES`, which is timed, alone; or "curve", whose losses are compared."""

    kind: str
    gpus: int
    seed: int
    """The turn, for timed parts."""

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.gpus}-{self.seed}"


def counts(gpus: int) -> list[int]:
    """Return 1, 2, 4, ..., and `gpus`."""
    return sorted({gpus, *(1 << at for at in range(gpus.bit_length()))} - {1 << gpus.bit_length()})


def order(gpus: int, turns: int, batch_size: int, kinds: Collection[str] = KINDS) -> list[list[Part]]:
    """Return the parts, the most important first. The parts of one list run at the same time, on GPUs of their own."""
    curves = [
        Part("curve", each, seed)
        for each in counts(gpus)
        for seed in ((0, 1) if each <= 2 else (0,))
        if batch_size % each == 0
    ]
    side_by_side = list[list[Part]]()
    for part in curves:
        if not side_by_side or sum(each.gpus for each in (*side_by_side[-1], part)) > gpus:
            side_by_side.append([])
        side_by_side[-1].append(part)
    turns_of_kinds = product(range(turns), TITLES)
    timed = [[[Part(kind, each, turn)] for each in counts(gpus)] for turn, kind in turns_of_kinds]
    first, rest = chain.from_iterable(timed[:2]), chain.from_iterable(timed[2:])
    all_parts = [*first, *side_by_side, *rest]
    return [parts for parts in all_parts if parts[0].kind in kinds]


# ---------------------------------------------------------------- a part, in processes of its own


class Steps:
    """Runs a loader for a number of steps, over several epochs if needed; measures times after `warm_up`."""

    def __init__(self, loader: Any, steps: int, warm_up: int) -> None:
        self.loader, self.steps, self.warm_up = loader, steps, warm_up
        self.seconds, self.cpu = 0.0, 0.0

    @property
    def class_names(self) -> tuple[str, ...]:
        return tuple(self.loader.class_names)

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[Any]:
        begin, cpu = now(), cpu_seconds()
        for step, batch in enumerate(islice(chain.from_iterable(repeat(self.loader)), self.steps)):
            if step == self.warm_up:
                begin, cpu = now(), cpu_seconds()
            yield batch
        cpu = cpu_seconds() - cpu
        self.seconds, self.cpu = now() - begin, of_all_processes(cpu)

    def state_dict(self) -> dict[str, Any]:
        return dict(self.loader.state_dict())

    def measured(self, images: int) -> dict[str, float]:
        """Return the rates. `images`: of a step, on all GPUs together."""
        images *= self.steps - self.warm_up
        return {"images_per_second": images / self.seconds, "cpu_seconds_per_1000_images": 1000 * self.cpu / images}


def now() -> float:
    """Return the time after all processes have finished their work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    if dist.is_initialized():
        dist.barrier()
    return time.perf_counter()


def cpu_seconds() -> float:
    """Return the CPU time of all threads of this process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def of_all_processes(value: float) -> float:
    if not dist.is_initialized():
        return value
    total = torch.tensor(value, device="cuda" if dist.get_backend() == "nccl" else "cpu")
    dist.all_reduce(total)
    return total.item()


def pin(cores: int) -> None:
    """Bind this process, with its existing threads, to its share of the cores; 0: all cores."""
    first = int(os.environ.get("LOCAL_RANK", 0)) * cores
    own = sorted(os.sched_getaffinity(0))[first : first + cores]
    for thread in os.listdir("/proc/self/task") if own else ():
        os.sched_setaffinity(int(thread), own)


def run_part(part: Part, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    device = "cpu" if options.device == "cpu" else None
    if part.kind in ALONE:
        return run_alone(options, device, part)
    steps, warm_up = (options.speed_steps, options.warm_up) if part.kind == "speed" else (options.steps, 0)
    watched = list[Steps]()

    def make_loader(settings: TrainOptions, device: torch.device, detector: Detector) -> Steps:
        watched.append(Steps(detaug_loader(settings, device, detector), steps, warm_up))
        return watched[0]

    batch_size = options.batch_size // (part.gpus if part.kind == "curve" else 1)
    settings = TrainOptions(
        annotations=options.annotations,
        images=options.images,
        val=options.test if part.kind == "curve" else None,
        val_images=options.test_images,
        output=folder,
        model=options.model,
        epochs=1,
        batch_size=batch_size,
        optimizer="adamw",
        lr=options.lr,
        weight_decay=0.02,
        seed=part.seed,
        checkpoint_every=0,
        device=device,
    )
    result = train(settings, make_loader=make_loader)
    return {**result, **watched[0].measured(batch_size * part.gpus), "batch_size_on_each": batch_size}


def run_alone(options: argparse.Namespace, device: str | None, part: Part) -> dict[str, Any]:
    pin(options.cores_per_gpu)
    if part.gpus > 1:
        if not device:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("gloo" if device else "nccl", timeout=timedelta(minutes=2))
    size = options.loader_batch_size
    job = Job(str(options.annotations), str(options.images), "ssd300", size, device or "cuda")
    steps = Steps(ALONE[part.kind](job), options.loader_steps, options.loader_steps // 10)
    for _ in steps:
        pass
    if part.gpus > 1:
        dist.destroy_process_group()
    return {**steps.measured(size * part.gpus), "cores_of_each": len(os.sched_getaffinity(0))}


# ---------------------------------------------------------------- all parts


def run_all(options: argparse.Namespace) -> None:
    end, results = time.monotonic() + 60 * options.minutes, dict[str, Any]()
    work = Path(tempfile.mkdtemp())
    try:
        copy_images(options.annotations, options.images, options.copies, work)
        extra = ["--copied", str(work), "--gpus", str(options.gpus), "--cores-per-gpu", str(options.cores_per_gpu)]
        for parts in order(options.gpus, options.turns, options.batch_size, options.only):
            if time.monotonic() < end:
                run_parts(parts, options, extra, work, min(end, time.monotonic() + 60 * options.part_minutes))
                results |= {part.name: found for part in parts if (found := result_of(part, work))}
                write_results(options, results)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print(f"\n{options.gpus} x {machine()}; {options.model}", *summary(results), sep="\n", flush=True)


def run_parts(parts: list[Part], options: argparse.Namespace, extra: list[str], work: Path, end: float) -> None:
    """Run parts side by side; at `end`, stop them and the processes that they started."""
    begin, first = time.monotonic(), accumulate((part.gpus for part in parts), initial=0)
    running = [start(part, at, options, extra, work) for part, at in zip(parts, first, strict=False)]
    try:
        for part, process in zip(parts, running, strict=True):
            problem = wait_or_stop(process, end)
            print(f"{part.name}: {problem or 'done'} after {time.monotonic() - begin:.0f} s", flush=True)
            if problem:
                log = shutil.copy(work / part.name / "log.txt", options.output / f"{part.name}.log")
                lines = log.read_text(errors="replace").splitlines()[-60:]
                print(*(f"  {line}" for line in lines), sep="\n", flush=True)
    finally:
        for process in running:
            stop(process)


def wait_or_stop(process: subprocess.Popen[bytes], end: float) -> str:
    """Wait for a process, and stop it at `end`; return the problem, "" for none."""
    try:
        code = process.wait(max(0.0, end - time.monotonic()))
        return f"failed with exit code {code}" if code else ""
    except subprocess.TimeoutExpired:
        stop(process)
        return "stopped, the time is up"


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process, gently at first: torchrun then ends its own processes."""
    for end, seconds in ((signal.SIGTERM, 10.0), (signal.SIGKILL, None)):
        if process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
                os.killpg(process.pid, end)
                process.wait(seconds)


def die_with_parent() -> None:
    """Let the system end this process with torchrun: it is in a session of its own and misses torchrun's signals."""
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # 1 is PR_SET_PDEATHSIG


def start(part: Part, at: int, options: argparse.Namespace, extra: list[str], work: Path) -> subprocess.Popen[bytes]:
    """Start a part on the GPUs from `at` on."""
    folder = work / part.name
    folder.mkdir()
    torchrun = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1", "--nproc-per-node"]
    launcher = [*torchrun, str(part.gpus)] if part.gpus > 1 else []
    command = [sys.executable, *launcher, __file__, *sys.argv[1:], *extra, "--part", json.dumps(part)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}  # torchrun's choice, used for a single process too
    if options.device == "cuda":
        environment["CUDA_VISIBLE_DEVICES"] = ",".join(visible()[at : at + part.gpus])
    with open(folder / "log.txt", "wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True, env=environment)


def visible() -> list[str]:
    """Return the numbers or names of the GPUs that this process sees."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    return given.split(",") if given else [str(at) for at in range(torch.cuda.device_count())]


def result_of(part: Part, work: Path) -> dict[str, Any] | None:
    """Return the result of a part; of a stopped curve, its losses so far."""
    result, metrics = work / part.name / "result.json", work / part.name / "metrics.jsonl"
    found: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {}
    if part.kind == "curve" and metrics.exists():
        lines = [json.loads(line) for line in metrics.read_text().splitlines(keepends=True) if line[-1] == "\n"]
        found["losses"] = [line["loss"] for line in lines if "loss" in line]
    for name in ("checkpoint.pt", "model.pt"):
        (work / part.name / name).unlink(missing_ok=True)
    return found or None


def write_results(options: argparse.Namespace, results: dict[str, Any]) -> None:
    settings = {name: str(value) for name, value in vars(options).items()}
    host = f"{options.gpus} x {machine()}"
    content = {"machine": host, "settings": settings, "summary": summary(results), "parts": results}
    (options.output / "results.json").write_text(json.dumps(content, indent=1))
    draw_curves(curves(results), options.model, options.output / "curves.png")


# ---------------------------------------------------------------- the command


def choose(options: argparse.Namespace, parser: argparse.ArgumentParser) -> None:
    """Fill in the numbers of GPUs and cores. Ends the program if there are not so many."""
    there = torch.cuda.device_count() if options.device == "cuda" else 1 << 10
    options.gpus = options.gpus or (there if options.device == "cuda" else 2)
    if not 1 <= options.gpus <= there:
        parser.error(f"found {there} GPUs, --gpus must be 1 to that; --device cpu tries this program out without")
    cores = len(os.sched_getaffinity(0)) // options.gpus
    if options.cores_per_gpu is None:
        options.cores_per_gpu = 16 if cores >= 16 else 0
    if not 0 <= options.cores_per_gpu <= cores:
        parser.error(f"there are {cores} cores for each of {options.gpus} GPUs, --cores-per-gpu must be 0 to that")
    if options.warm_up >= options.speed_steps:
        parser.error(f"--warm-up {options.warm_up} leaves nothing of --speed-steps {options.speed_steps} to time")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder for results.json and curves.png")
    parser.add_argument("--minutes", type=float, default=7.0, help="for everything")
    parser.add_argument("--part-minutes", type=float, default=2.0, help="for each part, should it hang")
    parser.add_argument("--gpus", type=int, help="at most; default: all there are, of processes with --device cpu 2")
    parser.add_argument("--cores-per-gpu", type=int, help="for the loader; 0: all; default: 16 if there are")
    parser.add_argument("--copies", type=int, default=40)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--model", default="ssd300_vgg16", help="one without batch norm, for curves that can be equal")
    parser.add_argument("--lr", type=float, default=0.0003)
    parser.add_argument("--steps", type=int, default=400, help="of a curve")
    parser.add_argument("--speed-steps", type=int, default=150)
    parser.add_argument("--warm-up", type=int, default=30, help="steps of the training that are not timed")
    parser.add_argument("--loader-batch-size", type=int, default=128)
    parser.add_argument("--loader-steps", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=2, choices=[1, 2, 3], help="of what is timed")
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    for hidden in ("--part", "--copied"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.test_images = options.images
    if not options.part:
        signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
        choose(options, parser)
        options.output.mkdir(parents=True, exist_ok=True)
        return run_all(options)
    work, part = Path(options.copied), Part(*json.loads(options.part))
    die_with_parent()
    options.annotations, options.images = work / "train.json", work / "images"
    result = run_part(part, options, work / part.name)
    if int(os.environ.get("RANK", 0)) == 0:
        (work / part.name / "result.json").write_text(json.dumps(result))
    return None


if __name__ == "__main__":
    main()
