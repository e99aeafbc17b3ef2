"""Train a model with detaug's loader and with torchvision v2 transforms in a DataLoader, and compare.

    detaug convert-voc BCCD -o train.json --split train && detaug convert-voc BCCD -o test.json --split test
    python benchmarks/train_compare.py train.json test.json BCCD/JPEGImages -o compare --parallel 3

A cell is a model, a loader and a seed, in a process of its own. Model, recipe, schedule, initial weights and the
evaluation are the same; the last epoch is evaluated, nothing is chosen by the test set. A finished cell is not
run again: repeat the command to continue after --minutes. With --parallel, several cells share the GPU; times are then
those of cells of --timing-epochs epochs that run alone, first. --first-seed 2 --seeds 1 runs the third seed only.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from PIL import Image

import detaug as da
from detaug.bench.loaders import FileDataset, SampleReader, collate
from detaug.training import Detector, TrainOptions, train

MODELS = {"ssd300": "ssd300_vgg16", "retinanet": "retinanet_resnet50_fpn_v2"}
LOADERS = ("detaug", "torchvision")


# ---------------------------------------------------------------- the two loaders


def recipe(size: tuple[int, int], detector: Detector) -> list[da.Op]:
    geometry = [da.RandomZoomOut(), da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize(size)]
    return [*geometry, da.RandomPhotometricDistort(), da.Normalize(detector.mean, detector.std)]


def detaug_loader(options: TrainOptions, device: torch.device, detector: Detector) -> da.Loader:
    reader = da.CocoReader(options.images, options.annotations)
    return da.Loader(
        reader, recipe(options.output_size, detector), options.batch_size, device=device, seed=options.seed
    )


class TorchvisionBatch(NamedTuple):
    images: torch.Tensor
    boxes: list[torch.Tensor]
    labels: list[torch.Tensor]

    def targets(self) -> list[dict[str, torch.Tensor]]:
        return [{"boxes": boxes, "labels": labels} for boxes, labels in zip(self.boxes, self.labels, strict=True)]


class TorchvisionLoader:
    """Stands in for `Loader` in `train`; the transforms run in one worker a core, the mean and std on the device."""

    def __init__(self, options: TrainOptions, device: torch.device, detector: Detector) -> None:
        self.reader = da.CocoReader(options.images, options.annotations)
        self.class_names, self.device = self.reader.class_names, device
        self.mean, self.std = (torch.tensor(each, device=device)[:, None, None] for each in detector[1:3])
        self.loader = torch.utils.data.DataLoader(
            FileDataset(self.reader, torchvision_sample(options.output_size)),
            options.batch_size,
            shuffle=True,
            num_workers=len(os.sched_getaffinity(0)),
            collate_fn=collate,
            pin_memory=device.type == "cuda",
            persistent_workers=True,
            generator=torch.Generator().manual_seed(options.seed),
        )

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[TorchvisionBatch]:
        for images, *columns in self.loader:
            on_device = images.to(self.device, non_blocking=True)
            boxes, labels = ([each.to(self.device, non_blocking=True) for each in column] for column in columns)
            yield TorchvisionBatch((on_device - self.mean) / self.std, boxes, labels)

    def state_dict(self) -> dict[str, Any]:
        return {}


def torchvision_sample(size: tuple[int, int]) -> SampleReader:
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    transforms = v2.Compose(
        [
            v2.ToImage(),
            v2.RandomZoomOut(fill=[123.0, 117.0, 104.0]),
            v2.RandomIoUCrop(),
            v2.SanitizeBoundingBoxes(),
            v2.RandomHorizontalFlip(),
            v2.Resize(size, antialias=True),
            v2.RandomPhotometricDistort(),
            v2.SanitizeBoundingBoxes(),
            v2.ToDtype(torch.float32, scale=True),
        ]
    )

    def sample(path: str, boxes: Any, labels: Any) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        image = Image.open(path).convert("RGB")
        xyxy = tv_tensors.BoundingBoxes(boxes.astype(np.float32), format="XYXY", canvas_size=image.size[::-1])
        pixels, target = transforms(image, {"boxes": xyxy, "labels": torch.from_numpy(labels)})
        return pixels.as_subclass(torch.Tensor), target["boxes"].as_subclass(torch.Tensor), target["labels"]

    return sample


# ---------------------------------------------------------------- a cell


class Cell(NamedTuple):
    model: str
    loader: str
    seed: int
    epochs: int
    timing: bool = False

    @property
    def name(self) -> str:
        return f"{self.model}-{self.loader}-{'timing' if self.timing else self.seed}-{self.epochs}"


def run_cell(cell: Cell, options: argparse.Namespace, output: Path) -> dict[str, Any]:
    """Train and evaluate in this process. CPU seconds are of this process and its workers, evaluation included."""
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    adam = options.optimizer == "adamw"
    settings = TrainOptions(
        annotations=options.annotations,
        images=options.images,
        val=None if cell.timing else options.test,
        output=output,
        model=MODELS[cell.model],
        size=(300, 300) if cell.model == "ssd300" else options.retinanet_size,
        epochs=cell.epochs,
        batch_size=options.batch_size,
        optimizer=options.optimizer,
        lr=getattr(options, f"{cell.model}_lr"),
        weight_decay=0.02 if adam else None,
        warmup_steps=options.warmup_steps,
        seed=cell.seed,
        eval_every=cell.epochs,
        checkpoint_every=0,
        device=options.device,
        amp=not options.no_amp,
    )
    begin, cpu = time.perf_counter(), time.process_time()
    result = train(settings, make_loader=detaug_loader if cell.loader == "detaug" else TorchvisionLoader)
    wall, cpu = time.perf_counter() - begin, time.process_time() - cpu
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    (output / "checkpoint.pt").unlink(missing_ok=True)
    (output / "model.pt").unlink(missing_ok=True)
    cpu += children.ru_utime + children.ru_stime
    return {**cell._asdict(), **result, "wall": wall, "cpu": cpu, "parallel": options.parallel, "machine": machine()}


def machine() -> str:
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    return f"{gpu}, {len(os.sched_getaffinity(0))} cores, torch {torch.__version__}"


def in_own_process(cell: Cell, options: argparse.Namespace) -> subprocess.Popen[bytes]:
    folder = options.output / cell.name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    command = [sys.executable, __file__, *sys.argv[1:], "--cell", json.dumps(cell)]
    with open(folder / "log.txt", "wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT)


def result_of(cell: Cell, options: argparse.Namespace) -> dict[str, Any] | None:
    result = options.output / cell.name / "result.json"
    return json.loads(result.read_text()) if result.exists() else None


# ---------------------------------------------------------------- all cells


def run_cells(cells: list[Cell], options: argparse.Namespace, parallel: int, end: float) -> None:
    """Run the cells without a result, `parallel` at a time; none is started that could end too late."""
    waiting = [cell for cell in cells if result_of(cell, options) is None]
    running: dict[subprocess.Popen[bytes], tuple[Cell, float]] = {}
    longest = 0.0
    while waiting or running:
        while waiting and len(running) < parallel and time.time() + longest < end:
            cell = waiting.pop(0)
            running[in_own_process(cell, options)] = cell, time.time()
        if not running:
            print(f"no time for {[cell.name for cell in waiting]}; repeat the command to continue", flush=True)
            return
        time.sleep(0.2)
        for process in [each for each in running if each.poll() is not None]:
            cell, begun = running.pop(process)
            longest = max(longest, time.time() - begun)
            report(cell, options, time.time() - begun)


def report(cell: Cell, options: argparse.Namespace, seconds: float) -> None:
    result = result_of(cell, options)
    if result is None:
        log = (options.output / cell.name / "log.txt").read_text(errors="replace").splitlines()[-5:]
        print(f"{cell.name} failed after {seconds:.0f} s:", *log, sep="\n  ", flush=True)
    elif cell.timing:
        print(f"{cell.name}: {result['train']:.1f} s, waiting {result['waiting']:.1%}", flush=True)
    else:
        found = result["evaluation"]
        print(f"{cell.name}: AP50 {found['AP50']:.3f}, AP {found['AP']:.3f}, {seconds:.0f} s", flush=True)


def compare(options: argparse.Namespace) -> None:
    end = time.time() + 60 * options.minutes
    seeds = range(options.first_seed, options.first_seed + options.seeds)
    order = product(options.models, seeds, options.loaders)
    cells = [Cell(model, loader, seed, getattr(options, f"{model}_epochs")) for model, seed, loader in order]
    timing = [Cell(*each, 0, options.timing_epochs, True) for each in product(options.models, options.loaders)]
    timing = timing if options.parallel > 1 and options.timing_epochs else []
    run_cells(timing, options, 1, end)
    run_cells(cells, options, options.parallel, end)
    results = [result for cell in [*cells, *timing] if (result := result_of(cell, options))]
    (options.output / "results.json").write_text(json.dumps(results, indent=1))
    print_table(options, results)


def print_table(options: argparse.Namespace, results: list[dict[str, Any]]) -> None:
    print(f"\n{results[0]['machine'] if results else 'no results'}, batch {options.batch_size}, {options.optimizer}")
    print("| model | loader | seeds | epochs | AP50 on test | AP on test | ms an epoch | waiting | CPU ms an image |")
    print("|---|---|---|---|---|---|---|---|---|")
    for model, loader in product(options.models, options.loaders):
        mine = [each for each in results if (each["model"], each["loader"]) == (model, loader)]
        trained = [each for each in mine if not each["timing"]]
        timed = [each for each in mine if each["timing"]] or trained
        if trained and timed:
            print(table_row(model, loader, trained, timed))


def table_row(model: str, loader: str, trained: list[dict[str, Any]], timed: list[dict[str, Any]]) -> str:
    epoch = statistics.median(each["train"] / each["epochs"] for each in timed) * 1000
    waiting = statistics.median(each["waiting"] for each in timed)
    cpu = statistics.median(each["cpu"] / each["images"] for each in timed) * 1000
    scores = [spread([each["evaluation"][name] for each in trained]) for name in ("AP50", "AP")]
    columns = [
        model,
        loader,
        len(trained),
        trained[0]["epochs"],
        *scores,
        f"{epoch:.0f}",
        f"{waiting:.1%}",
        f"{cpu:.1f}",
    ]
    return f"| {' | '.join(map(str, columns))} |"


def spread(values: list[float]) -> str:
    return f"{statistics.mean(values):.3f} ({min(values):.3f}..{max(values):.3f})"


# ---------------------------------------------------------------- the command


def size(text: str) -> tuple[int, int]:
    height, width = text.split("x")
    return int(height), int(width)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations", type=Path)
    parser.add_argument("test", type=Path)
    parser.add_argument("images", type=Path)
    parser.add_argument("-o", "--output", type=Path, required=True)
    parser.add_argument("--models", nargs="*", choices=list(MODELS), default=list(MODELS))
    parser.add_argument("--loaders", nargs="*", choices=LOADERS, default=list(LOADERS))
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--ssd300-epochs", type=int, default=150)
    parser.add_argument("--retinanet-epochs", type=int, default=100)
    parser.add_argument("--batch-size", type=int, default=16, help="images per step")
    parser.add_argument("--optimizer", choices=["sgd", "adamw"], default="adamw")
    parser.add_argument("--ssd300-lr", type=float, default=0.0003)
    parser.add_argument("--retinanet-lr", type=float, default=0.0003)
    parser.add_argument("--warmup-steps", type=int, help="steps")
    parser.add_argument("--retinanet-size", type=size, default=(384, 512), help="HxW pixels")
    parser.add_argument("--parallel", type=int, default=1, help="cells at a time")
    parser.add_argument("--timing-epochs", type=int, default=10, help="0: times of the cells that share the GPU")
    parser.add_argument("--minutes", type=float, default=9.0, help="no cell is begun that would end later")
    parser.add_argument("--device")
    parser.add_argument("--no-amp", action="store_true")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    if not options.cell:
        return compare(options)
    cell = Cell(*json.loads(options.cell))
    folder = options.output / cell.name
    (folder / "result.json").write_text(json.dumps(run_cell(cell, options, folder)))
    return None


if __name__ == "__main__":
    main()
