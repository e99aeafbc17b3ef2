"""Kill a process of `detaug train` in the middle of an epoch, go on with one process less, and score on all ranks.

    python benchmarks/ranks_training.py --processes 4

On drawn images with people: a training of `--processes` processes, each with a GPU of its own, that nothing disturbs;
the same, of which the last process is killed in the middle of an epoch; the command again with --resume and one
process less, whose batches are so much larger that a step has as many images. Then the model is scored by one process
and by all, an image at a time. Prints the step of the checkpoint, the losses of both trainings at the same steps after
it, and whether the scores are equal. The exit code is 1 if they are not, or if a training does not go on where it must.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import distributed as dist

import detaug as da
from detaug.demo.people import make_people
from detaug.training import load_model
from detaug.training.detectors import images_for

MODEL = "ssdlite320_mobilenet_v3_large"
EPOCHS, STEPS_AN_EPOCH = 9, 4
KILLED_AFTER = 18  # steps: in the middle of an epoch, and of two checkpoints


def torchrun(processes: int, *arguments: object) -> list[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", "--local-addr", "127.0.0.1"]
    return [sys.executable, *launcher, "--nproc-per-node", str(processes), *map(str, arguments)]


def training(processes: int, images: int, folder: Path, output: Path, device: str) -> list[str]:
    """Return the command of a training with `images` a step on all processes together."""
    data = [folder / "people.json", folder / "people", "--val", folder / "people.json", "--model", MODEL]
    steps = ["--epochs", EPOCHS, "--batch-size", images // processes, "--eval-every", EPOCHS, "--checkpoint-every", 4]
    how = ["--log-every", 1, "--no-amp", "--device", device, "--resume"]
    return torchrun(processes, "-m", "detaug", "train", *data, *steps, *how, "-o", output)


def losses(output: Path) -> dict[int, float]:
    """Return the loss of each step that metrics.jsonl has."""
    path = output / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True) if path.exists() else []
    rows = [json.loads(line) for line in lines if line.endswith("\n")]
    return {row["step"]: row["loss"] for row in rows if "loss" in row}


def kill_last_rank(launcher: subprocess.Popen[bytes]) -> None:
    """Kill the child of torchrun that has the highest rank."""
    children = Path(f"/proc/{launcher.pid}/task/{launcher.pid}/children").read_text().split()
    ranks = {}
    for child in children:
        variables = dict(
            each.split("=", 1) for each in Path(f"/proc/{child}/environ").read_text().split("\0") if "=" in each
        )
        ranks[int(variables.get("RANK", -1))] = int(child)
    os.kill(ranks[max(ranks)], signal.SIGKILL)


def run(command: list[str], log: Path) -> int:
    with open(log, "ab") as file:
        return subprocess.run(command, stdout=file, stderr=file, check=False).returncode


def run_killed(command: list[str], output: Path, log: Path, step: int) -> int:
    """Run a training, and kill a process when a step is done; return torchrun's exit code."""
    with open(log, "ab") as file, subprocess.Popen(command, stdout=file, stderr=file) as launcher:
        while launcher.poll() is None and max(losses(output), default=0) < step:
            time.sleep(0.05)
        if launcher.poll() is None:
            kill_last_rank(launcher)
    return launcher.returncode


def score(model: Path, folder: Path, device: str, out: Path) -> None:
    """Score the model on this rank's images, one at a time, and write the numbers of all ranks."""
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    chosen = torch.device(device, int(os.environ["LOCAL_RANK"]) if device == "cuda" else None)
    if device == "cuda":
        torch.cuda.set_device(chosen)
    torch.backends.cudnn.deterministic = True
    dist.init_process_group("nccl" if device == "cuda" else "gloo")
    trained, reader = load_model(model, chosen), da.CocoReader(folder / "people", folder / "people.json")
    evaluator = da.CocoEvaluator(reader)
    loader = da.Loader(reader, list(trained.ops), 1, train=False, device=chosen, shard=(rank, world))
    with torch.no_grad():
        for batch in loader:
            evaluator.update(batch, trained.model(images_for(trained.model, batch)))
    evaluator.gather()
    if rank == 0:
        out.write_text(json.dumps(asdict(evaluator.compute())))
    dist.destroy_process_group()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=torch.cuda.device_count() or 2)
    parser.add_argument("--images", type=int, help="a step, on all processes; default: 4 for each of both numbers")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--score", nargs=3, type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.score:
        score(*options.score[:2], options.device, options.score[2])
        return 0
    many, fewer = options.processes, options.processes - 1
    images = options.images or (many * fewer * (4 if many < 4 else 2 if many < 8 else 1))
    with TemporaryDirectory() as name:
        folder = Path(name)
        make_people(folder, images=STEPS_AN_EPOCH * images)
        whole, killed = folder / "whole", folder / "killed"
        log = folder / "log.txt"
        start = time.monotonic()
        codes = [run(training(many, images, folder, whole, options.device), log)]
        codes.append(run_killed(training(many, images, folder, killed, options.device), killed, log, KILLED_AFTER))
        done = max(losses(killed), default=0)
        codes.append(run(training(fewer, images, folder, killed, options.device), log))
        if codes[0] or codes[2] or not codes[1]:
            print(f"exit codes {codes}", log.read_text(errors="replace")[-5000:], sep="\n")
            return 1
        before, after = losses(whole), losses(killed)
        apart = [abs(after[step] / before[step] - 1) for step in before if step > done and step in after]
        print(f"{many} processes, one killed after step {done} of {max(before)}, went on with {fewer}: ", end="")
        print(f"{len(after)} losses for {len(before)} steps; those after it differ by {statistics.mean(apart):.1%}")
        for processes in (1, many):
            command = [__file__, "--device", options.device, "--score", whole / "model.pt", folder]
            codes.append(run(torchrun(processes, *command, folder / f"{processes}.json"), log))
        if any(codes[3:]):
            print(f"exit codes {codes}", log.read_text(errors="replace")[-5000:], sep="\n")
            return 1
        one, other = (json.loads((folder / f"{each}.json").read_text()) for each in (1, many))
        equal = one == other
        print(f"scores of 1 process and of {many}: {'equal' if equal else 'NOT EQUAL'}, AP50 {one['AP50']:.3f}")
        print(f"{time.monotonic() - start:.0f} s")
        return int(not equal or set(before) != set(after))


if __name__ == "__main__":
    sys.exit(main())
