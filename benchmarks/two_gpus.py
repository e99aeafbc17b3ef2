"""The same training on one GPU and on two: the same losses, nearly twice the images a second?

    detaug convert-voc BCCD -o train.json --split train && detaug convert-voc BCCD -o test.json --split test
    python benchmarks/two_gpus.py train.json test.json BCCD/JPEGImages -o two --minutes 7

ssd300_vgg16, no batch norm. Curves: with one GPU and batches of --batch-size, and with two under torchrun and half of
that on each, so that a step takes the same images at the same learning rate; two seeds of each. Two seeds on one GPU
differ in weights, order and draws, and say what noise is. Speed: --batch-size images on each GPU, the training after
--warm-up steps, and the loader alone at --loader-batch-size.

Each part is a process, or two, of its own; after each one results.json and curves.png are written again, and what
would take longer than --minutes is stopped. The images are listed --copies times, so that epochs are not too short.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import timedelta
from itertools import chain, islice, repeat
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image, ImageDraw, ImageFont
from torch import distributed as dist
from train_compare import detaug_loader, machine

import detaug as da
from detaug.train import Detector, TrainOptions, train


class Part(NamedTuple):
    """kind: "loader" and "speed" are timed, and alone; "curve" is compared by its losses."""

    kind: str
    gpus: int
    seed: int
    """Of timed parts, which turn it is."""

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.gpus}-{self.seed}"


ORDER = [
    *([Part(kind, gpus, 0)] for kind in ("loader", "speed") for gpus in (1, 2)),
    [Part("curve", 1, 0), Part("curve", 1, 1)],
    [Part("curve", 2, 0)],
    [Part("curve", 2, 1)],
    *([Part(kind, gpus, turn)] for turn in (1, 2) for kind in ("loader", "speed") for gpus in (1, 2)),
]
"""Those of one list run at the same time, on a GPU each."""


# ---------------------------------------------------------------- a part, in processes of its own


class Steps:
    """A loader for a number of steps, over as many epochs as that takes; it takes the time from `warm_up` on."""

    def __init__(self, loader: da.Loader, steps: int, warm_up: int) -> None:
        self.loader, self.steps, self.warm_up = loader, steps, warm_up
        self.class_names, self.seconds = loader.class_names, 0.0

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[da.Batch]:
        begin = now()
        for step, batch in enumerate(islice(chain.from_iterable(repeat(self.loader)), self.steps)):
            if step == self.warm_up:
                begin = now()
            yield batch
        self.seconds = now() - begin

    def state_dict(self) -> dict[str, Any]:
        return self.loader.state_dict()


def now() -> float:
    """When all processes have done all of their work."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    if dist.is_initialized():
        dist.barrier()
    return time.perf_counter()


def run_part(part: Part, options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    device = options.part_device
    if part.kind == "loader":
        rate = loader_rate(options, device, part.gpus)
        return {"images_per_second": rate}
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
    timed = (steps - warm_up) * batch_size * part.gpus
    return {**result, "images_per_second": timed / watched[0].seconds, "batch_size_on_each": batch_size}


def loader_rate(options: argparse.Namespace, device: str | None, gpus: int) -> float:
    if gpus > 1:
        on_gpu = device != "cpu" and torch.cuda.is_available()
        if on_gpu:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        dist.init_process_group("nccl" if on_gpu else "gloo", timeout=timedelta(minutes=2))
    reader = da.CocoReader(options.images, options.annotations)
    loader = da.Loader(reader, da.presets.ssd300(), options.loader_batch_size, device=device)
    steps = Steps(loader, options.loader_steps, options.loader_steps // 10)
    for _ in steps:
        pass
    if gpus > 1:
        dist.destroy_process_group()
    return (steps.steps - steps.warm_up) * options.loader_batch_size * gpus / steps.seconds


# ---------------------------------------------------------------- all parts


def run_all(options: argparse.Namespace) -> None:
    end, results = time.monotonic() + 60 * options.minutes, dict[str, Any]()
    work = Path(tempfile.mkdtemp())
    try:
        extra = copies(options, work)
        for parts in ORDER:
            if parts[0].kind != "curve" and parts[0].seed >= options.turns:
                continue
            if time.monotonic() < end:
                run_together(parts, options, extra, work, end)
                results |= {part.name: found for part in parts if (found := result_of(part, work))}
                write_results(options, results)
    finally:
        shutil.rmtree(work)
    print(f"\n{machine()}; {options.model}", *summary(results), sep="\n", flush=True)


def copies(options: argparse.Namespace, work: Path) -> list[str]:
    """The arguments for a json that lists every image `--copies` times, as links."""
    data, images, boxes = json.loads(options.annotations.read_text()), [], []
    step = 1 + max(image["id"] for image in data["images"])
    for copy in range(options.copies):
        for image in data["images"]:
            link = work / "images" / f"{copy}" / image["file_name"]
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to((options.images / image["file_name"]).resolve())
            images.append({**image, "id": image["id"] + copy * step, "file_name": f"{copy}/{image['file_name']}"})
        for box in data["annotations"]:
            boxes.append({**box, "id": len(boxes) + 1, "image_id": box["image_id"] + copy * step})
    (work / "train.json").write_text(json.dumps({**data, "images": images, "annotations": boxes}))
    return ["--copied", str(work)]


def run_together(parts: list[Part], options: argparse.Namespace, extra: list[str], work: Path, end: float) -> None:
    """At the end of the time they are stopped, with the processes that they started."""
    begin = time.monotonic()
    running = [start(part, at, options, extra, work) for at, part in enumerate(parts)]
    for part, process in zip(parts, running, strict=True):
        try:
            code = process.wait(max(0.0, end - time.monotonic()))
            how = "" if code == 0 else f"failed with exit code {code}"
        except subprocess.TimeoutExpired:
            stop(process)
            how = "stopped, the time is up"
        print(f"{part.name}: {how or 'done'} after {time.monotonic() - begin:.0f} s", flush=True)
        if how.startswith("failed"):
            print(*(work / part.name / "log.txt").read_text(errors="replace").splitlines()[-25:], sep="\n  ")


def stop(process: subprocess.Popen[bytes]) -> None:
    """torchrun ends its processes, if it is given the time."""
    for end, seconds in ((signal.SIGTERM, 10.0), (signal.SIGKILL, None)):
        with contextlib.suppress(subprocess.TimeoutExpired, ProcessLookupError):
            os.killpg(process.pid, end)
            process.wait(seconds)


def start(part: Part, at: int, options: argparse.Namespace, extra: list[str], work: Path) -> subprocess.Popen[bytes]:
    folder = work / part.name
    folder.mkdir()
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"] if part.gpus == 2 else []
    command = [sys.executable, *launcher, __file__, *sys.argv[1:], *extra, "--part", json.dumps(part)]
    device = "cpu" if options.device == "cpu" else None if part.gpus == 2 else f"cuda:{at}"
    command += ["--part-device", device] if device else []
    with open(folder / "log.txt", "wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)


def result_of(part: Part, work: Path) -> dict[str, Any] | None:
    """Also of a curve that was stopped: its losses so far."""
    result, metrics = work / part.name / "result.json", work / part.name / "metrics.jsonl"
    found: dict[str, Any] = json.loads(result.read_text()) if result.exists() else {}
    if part.kind == "curve" and metrics.exists():
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        found["losses"] = [line["loss"] for line in lines if "loss" in line]
    for name in ("checkpoint.pt", "model.pt"):
        (work / part.name / name).unlink(missing_ok=True)
    return found or None


def write_results(options: argparse.Namespace, results: dict[str, Any]) -> None:
    settings = {name: str(value) for name, value in vars(options).items()}
    content = {"machine": machine(), "settings": settings, "summary": summary(results), "parts": results}
    (options.output / "results.json").write_text(json.dumps(content, indent=1))
    drawn = {name: smooth(losses) for name, losses in curves(results).items()}
    if drawn := {name: curve for name, curve in drawn.items() if len(curve) > 1}:
        draw_curves(drawn, options.model, options.output / "curves.png")


# ---------------------------------------------------------------- what they say


WINDOW = 20
"""Steps of which a point of a curve is the mean."""
CURVES = {"curve-1-0": "one GPU", "curve-1-1": "one GPU, seed 1", "curve-2-0": "two GPUs", "curve-2-1": "two, seed 1"}


def curves(results: dict[str, Any]) -> dict[str, list[float]]:
    return {name: found for part, name in CURVES.items() if (found := results.get(part, {}).get("losses"))}


def smooth(losses: list[float]) -> np.ndarray:
    """A point for each step from `WINDOW` on: the mean of it and of those before it, `WINDOW` in all."""
    return np.convolve(losses, np.ones(WINDOW) / WINDOW, "valid") if len(losses) >= WINDOW else np.empty(0)


def summary(results: dict[str, Any]) -> list[str]:
    smoothed = {name: smooth(losses) for name, losses in curves(results).items()}
    lines = ["", f"loss, mean of {WINDOW} steps", "step  " + "  ".join(smoothed)]
    steps = min((len(curve) for curve in smoothed.values()), default=0)
    for at in sorted({round(each) for each in np.linspace(0, steps - 1, 11)}) if steps else []:
        values = (f"{curve[at]:{len(name)}.3f}" for name, curve in smoothed.items())
        lines.append(f"{at + WINDOW:4}  {'  '.join(values)}")
    lines += [difference(smoothed, *pair, what) for *pair, what in COMPARED if all(name in smoothed for name in pair)]
    for part, name in CURVES.items():
        if found := results.get(part, {}).get("evaluation"):
            lines.append(f"{name}: AP50 on test {found['AP50']:.3f}, AP {found['AP']:.3f}")
    lines += [line for kind in ("speed", "loader") if (line := scaling(kind, results))]
    return lines


COMPARED = [
    ("two GPUs", "one GPU", "two GPUs and one, seed 0"),
    ("two, seed 1", "one GPU, seed 1", "two GPUs and one, seed 1"),
    ("one GPU, seed 1", "one GPU", "one GPU, two seeds: the noise"),
]


def difference(smoothed: dict[str, np.ndarray], name: str, other: str, what: str) -> str:
    """Relative, of the smoothed curves."""
    steps = min(len(smoothed[name]), len(smoothed[other]))
    apart = np.abs(smoothed[name][:steps] / smoothed[other][:steps] - 1)
    if not steps:
        return f"{what}: too few steps"
    return f"{what}: at most {apart.max():.1%}, on average {apart.mean():.1%}, over {steps + WINDOW - 1} steps"


def scaling(kind: str, results: dict[str, Any]) -> str:
    rates = {gpus: rates_of(f"{kind}-{gpus}-", results) for gpus in (1, 2)}
    if not all(rates.values()):
        return ""
    one, two = (statistics.median(rates[gpus]) for gpus in (1, 2))
    what = {"speed": "training", "loader": "loader alone"}[kind]
    turns = {gpus: ", ".join(f"{rate:,.0f}" for rate in rates[gpus]) for gpus in rates}
    says = f"{one:,.0f} on one GPU ({turns[1]}), {two:,.0f} on two ({turns[2]})"
    return f"{what}, images a second: {says}: {two / one:.2f} times"


def rates_of(prefix: str, results: dict[str, Any]) -> list[float]:
    return [each["images_per_second"] for name, each in results.items() if name.startswith(prefix)]


COLOURS = [(0, 114, 178), (120, 180, 220), (213, 94, 0), (240, 170, 110)]
PICTURE = (960, 560)
EDGE = 60


def draw_curves(drawn: dict[str, np.ndarray], model: str, path: Path) -> None:
    """Loss over steps, both axes linear; the loss begins at 0."""
    image = Image.new("RGB", PICTURE, "white")
    draw, font = ImageDraw.Draw(image), ImageFont.load_default(16)
    width, height = PICTURE[0] - 2 * EDGE, PICTURE[1] - 2 * EDGE
    top, last = max(curve.max() for curve in drawn.values()), max(map(len, drawn.values())) + WINDOW - 1
    draw.text((EDGE, 20), f"{model}: loss, mean of {WINDOW} steps", "black", ImageFont.load_default(20))
    for tick in range(5):
        y = PICTURE[1] - EDGE - height * tick / 4
        draw.line((EDGE, y, PICTURE[0] - EDGE, y), (225, 225, 225))
        draw.text((EDGE - 8, y), f"{top * tick / 4:.1f}", "black", font, anchor="rm")
        x = EDGE + width * tick / 4
        draw.text((x, PICTURE[1] - EDGE + 8), f"{last * tick / 4:.0f}", "black", font, anchor="ma")
    for at, (name, curve) in enumerate(drawn.items()):
        colour = COLOURS[list(CURVES.values()).index(name)]
        xs = EDGE + width * (np.arange(len(curve)) + WINDOW) / last
        ys = PICTURE[1] - EDGE - height * curve / top
        draw.line(list(zip(xs.tolist(), ys.tolist(), strict=True)), colour, 2)
        draw.text((PICTURE[0] - EDGE, EDGE + 22 * at), name, colour, font, anchor="ra")
    image.save(path)


# ---------------------------------------------------------------- the command


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder for results.json and curves.png")
    parser.add_argument("--minutes", type=float, default=7.0, help="for everything")
    parser.add_argument("--copies", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--model", default="ssd300_vgg16", help="one without batch norm, for curves that can be equal")
    parser.add_argument("--lr", type=float, default=0.0003)
    parser.add_argument("--steps", type=int, default=400, help="of a curve")
    parser.add_argument("--speed-steps", type=int, default=150)
    parser.add_argument("--warm-up", type=int, default=30, help="steps of the training that are not timed")
    parser.add_argument("--loader-batch-size", type=int, default=128)
    parser.add_argument("--loader-steps", type=int, default=1000)
    parser.add_argument("--turns", type=int, default=2, choices=[1, 2, 3], help="of what is timed")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
    for hidden in ("--part", "--part-device", "--copied"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.test_images = options.images
    if not options.part:
        options.output.mkdir(parents=True, exist_ok=True)
        return run_all(options)
    work, part = Path(options.copied), Part(*json.loads(options.part))
    options.annotations, options.images = work / "train.json", work / "images"
    result = run_part(part, options, work / part.name)
    if int(os.environ.get("RANK", 0)) == 0:
        (work / part.name / "result.json").write_text(json.dumps(result))
    return None


if __name__ == "__main__":
    main()
