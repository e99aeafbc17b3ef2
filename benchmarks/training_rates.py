"""Does loading slow training down? Train on the loader and on fixed batches, interleaved: images per second.

    python benchmarks/training_rates.py [FILE.json IMAGES] [--models ssd300 detr] [--turns 5] [--compile] [--workers 16]

Each detector trains in bfloat16 from random weights, on batches that stay on the device and on those of the loader. The
waiting is the time in `next`. "detr" is a ResNet-50 with a transformer of 6 + 6 layers and 100 queries; its loss takes
the boxes in their order, since matching them on the CPU would wait for the GPU. Prints medians of the turns, in
brackets their range, and the memory that was in use on the device at most, of all programs. With --compile the backbone
is compiled. With --workers all but "detr" and "maskrcnn" also train on torchvision's transforms (v2) in a DataLoader.
Under torchrun each process trains on a GPU of its own, and the first one prints its numbers. The energy is what NVML
reads, if `nvidia-ml-py` is installed.
"""

from __future__ import annotations

import argparse
import math
import os
import time
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from itertools import cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import torch
from compare_versions import write_data
from mask_costs import add_outlines
from settings import text
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torchvision.models import detection, resnet50

import detaug as da
from detaug.bench.loaders import torchvision
from detaug.bench.measure import BenchJob

Batches = Iterator[tuple[Tensor, list[dict[str, Tensor]]]]


SIDE = 640
"""Of the images of "detr"."""


class Detr(nn.Module):
    """A detector with a transformer, as large as DETR."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.backbone = nn.Sequential(*[*resnet50().children()][:-2], nn.Conv2d(2048, 256, 1))
        self.transformer = nn.Transformer(256, 8, 6, 6, 2048, batch_first=True)
        self.positions, self.queries = nn.Parameter(torch.rand(400, 256)), nn.Parameter(torch.rand(100, 256))
        self.labels, self.boxes = nn.Linear(256, classes), nn.Linear(256, 4)

    def forward(self, images: Tensor, targets: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        found = self.backbone(images).flatten(2).transpose(1, 2)
        queries = self.queries.expand(len(images), -1, -1)
        found = self.transformer(found + self.positions[: found.shape[1]], queries)
        labels, boxes = self.labels(found).transpose(1, 2), self.boxes(found).sigmoid()
        wanted = torch.zeros(len(images), 100, dtype=torch.int64, device=images.device)
        for at, target in enumerate(targets):
            wanted[at, : len(target["labels"])] = target["labels"][:100]
        placed = [
            (boxes[at, : len(each["boxes"])] * 640 - each["boxes"]).abs().sum() for at, each in enumerate(targets)
        ]
        return {"labels": nn.functional.cross_entropy(labels, wanted), "boxes": torch.stack(placed).mean() / 640}


class Setup(NamedTuple):
    """A detector, and what it is trained on."""

    make: Callable[[], nn.Module]
    recipe: Callable[[], list[da.Op]]
    batch_size: int
    masks: bool = False


CLASSES = 21
NO_WEIGHTS: dict[str, Any] = {"weights": None, "weights_backbone": None, "num_classes": CLASSES}


def detr_recipe() -> list[da.Op]:
    before = [da.RandomHorizontalFlip(), da.RandomIoUCrop(), da.Resize((SIDE, SIDE))]
    return [*before, da.RandomPhotometricDistort(), da.Normalize()]


SETUPS = {
    "ssd300": Setup(lambda: detection.ssd300_vgg16(**NO_WEIGHTS), da.presets.ssd300, 32),
    "ssdlite": Setup(lambda: detection.ssdlite320_mobilenet_v3_large(**NO_WEIGHTS), da.presets.ssd300, 64),
    "retinanet": Setup(lambda: detection.retinanet_resnet50_fpn(**NO_WEIGHTS), da.presets.retinanet, 8),
    "fcos": Setup(lambda: detection.fcos_resnet50_fpn(**NO_WEIGHTS), da.presets.retinanet, 8),
    "maskrcnn": Setup(lambda: detection.maskrcnn_resnet50_fpn_v2(**NO_WEIGHTS), da.presets.retinanet, 8, masks=True),
    "detr": Setup(lambda: Detr(CLASSES), detr_recipe, 16),
}


class Trained(NamedTuple):
    """Images per second; fraction of the time that the loop waited; CPU seconds and joules per image."""

    rate: float
    waiting: float
    cpu: float
    energy: float


class Trainer:
    """Trains one detector."""

    def __init__(self, setup: Setup, device: torch.device, compiled: bool) -> None:
        torch.manual_seed(0)
        self._device = device
        model = setup.make().to(device).train()
        if compiled:
            model.backbone = torch.compile(model.backbone)  # type: ignore[assignment, arg-type]
        self._optimizer = torch.optim.SGD(model.parameters(), 1e-4, momentum=0.9)
        self._model = DistributedDataParallel(model) if torch.distributed.is_initialized() else model

    def step(self, images: Tensor, targets: list[dict[str, Tensor]]) -> None:
        with torch.autocast(self._device.type, torch.bfloat16):
            inputs = images if isinstance(getattr(self._model, "module", self._model), Detr) else list(images)
            losses = self._model(inputs, targets)
        self._optimizer.zero_grad(set_to_none=True)
        sum(losses.values()).backward()
        self._optimizer.step()

    def train(self, batches: Batches, steps: int) -> Trained:
        """Train for some steps, after two that do not count."""
        for images, targets in islice(batches, 2):
            self.step(images, targets)
        self._wait()
        start, cpu, used, waited, count = time.perf_counter(), time.process_time(), joules(self._device), 0.0, 0
        for _ in range(steps):
            before = time.perf_counter()
            images, targets = next(batches)
            waited += time.perf_counter() - before
            self.step(images, targets)
            count += len(images)
        self._wait()
        took = time.perf_counter() - start
        used = joules(self._device) - used
        return Trained(count / took, waited / took, (time.process_time() - cpu) / count, used / count)

    def _wait(self) -> None:
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


def joules(device: torch.device) -> float:
    """Return what the GPU used since its driver started; NaN if there is no GPU or no `pynvml`."""
    if device.type == "cpu" or not find_spec("pynvml"):
        return math.nan
    import pynvml

    pynvml.nvmlInit()
    gpu = pynvml.nvmlDeviceGetHandleByUUID(f"GPU-{torch.cuda.get_device_properties(device).uuid}")
    return float(pynvml.nvmlDeviceGetTotalEnergyConsumption(gpu)) / 1000


def loaded(loader: da.Loader, masks: bool) -> Batches:
    """Yield the loader's batches, epoch after epoch."""
    while True:
        for batch in loader:
            yield batch.images, batch.targets(masks=masks)


def of_torchvision(job: BenchJob) -> Batches:
    """Yield batches of torchvision's transforms for the job's preset, in a DataLoader."""
    for batch in torchvision(job):
        assert batch.images is not None
        columns = zip(batch.boxes, batch.labels, strict=True)
        yield batch.images, [{"boxes": boxes, "labels": labels} for boxes, labels in columns]


def compare(name: str, annotations: str, images: str, options: argparse.Namespace) -> None:
    """Train one detector on each kind of batches in turns, and print a line for each."""
    setup, device = SETUPS[name], torch.device(options.device)
    batch_size = options.batch_size or setup.batch_size
    reader = da.CocoReader(images, annotations, masks=setup.masks)
    loader = da.Loader(reader, setup.recipe(), batch_size, device=device)
    trainer, batches = Trainer(setup, device, options.compile), loaded(loader, setup.masks)
    fixed = cycle([(images.clone(), targets) for images, targets in islice(batches, options.fixed)])
    sources = {"fixed batches": fixed, "loader": batches}
    if options.workers and not setup.masks and setup.recipe is not detr_recipe:
        job = BenchJob(annotations, images, setup.recipe.__name__, batch_size, options.device, workers=options.workers)
        sources["torchvision v2"] = of_torchvision(job)
    found: dict[str, list[Trained]] = {each: [] for each in sources}
    for each in sources:
        trainer.train(sources[each], 3)
    for turn in range(options.turns):
        for each in list(sources)[:: 1 if turn % 2 == 0 else -1]:
            found[each].append(trainer.train(sources[each], options.steps))
    if int(os.environ.get("RANK") or 0) == 0:
        print_lines(name, found)
    loader.close()


def print_lines(name: str, found: dict[str, list[Trained]]) -> None:
    for each, turns in found.items():
        rates = [turn.rate for turn in turns]
        ratios = [turn.rate / other.rate for turn, other in zip(turns, found["fixed batches"], strict=True)]
        print(f"{name}, {each}: {text(rates, '.1f')} images/s, {text(ratios, '.3f')} of fixed batches", end="")
        print(f", waits {text([turn.waiting for turn in turns], '.1%')}", end="")
        print(f", {text([turn.cpu * 1000 for turn in turns], '.2f')} CPU s for 1,000", end="")
        print(f", {text([turn.energy for turn in turns], '.3f')} J of the GPU for each", flush=True)
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        print(f"{name}: {(total - free) / 1e9:.1f} GB in use on the device")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", nargs="*", metavar="FILE.json IMAGES")
    parser.add_argument("--models", nargs="+", default=list(SETUPS), choices=list(SETUPS))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--batch-size", type=int, help="of all detectors, in the place of their own")
    parser.add_argument("--steps", type=int, default=40, help="of each turn")
    parser.add_argument("--fixed", type=int, default=24, help="fixed batches")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--workers", type=int, default=0, help="of torchvision's loader; 0: it is left out")
    options = parser.parse_args()
    if "RANK" in os.environ:
        options.device = f"cuda:{os.environ['LOCAL_RANK']}"
        torch.cuda.set_device(options.device)
        torch.distributed.init_process_group("nccl")
    with TemporaryDirectory() as folder:
        if not options.data:
            write_data(Path(folder), 2000)
            add_outlines(Path(folder, "train.json"), 7)
        annotations, images = options.data or (f"{folder}/train.json", folder)
        for name in options.models:
            compare(name, annotations, images, options)


if __name__ == "__main__":
    main()
