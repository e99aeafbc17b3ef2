"""The scripts of docs/trainers on batches of detaug, and on the loader that their trainers have, in one run.

    pip install '.[integrations]'
    python benchmarks/trainers.py [--steps 200] [--workers 16] [--only rf_detr ...] [--json OUT]

Each training has random weights, the batch size of its script and JPEGs of 500 x 375 with two or three boxes. RF-DETR's
own loader is that of its trainer. For the others it is a DataLoader with torchvision's dataset and v2 transforms of
the same names. Both pass what the model takes on the device. Prints images/s from step 20 on, and the losses.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from compare_versions import write_data

import detaug as da

sys.path.insert(0, str(Path(__file__).parents[1] / "docs/trainers"))

WARM_UP = 20
"""Steps that are not timed."""


class Clock:
    """Yields the batches of a loader and keeps the time at which each of them was asked for."""

    def __init__(self, loader: Any, change: Callable[[Any], Any] = lambda batch: batch) -> None:
        self.loader, self.change = loader, change
        self.times: list[float] = []

    def __len__(self) -> int:
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            self.times.append(time.perf_counter())
            yield self.change(batch)

    def rate(self, batch_size: int) -> float:
        """Return images/s after the warm-up. A training waits for the loss of each step."""
        return (len(self.times) - 1 - WARM_UP) * batch_size / (self.times[-1] - self.times[WARM_UP])


class Training(NamedTuple):
    """One script: its batch size, and two functions that train on a loader; each returns images/s and losses."""

    batch_size: int
    ours: Callable[[], tuple[float, list[float]]]
    theirs: Callable[[], tuple[float, list[float]]]


class Data(NamedTuple):
    """The generated dataset, and how to train on it."""

    folder: Path
    steps: int
    workers: int

    @property
    def reader(self) -> da.CocoReader:
        return da.CocoReader(self.folder / "train", self.folder / "train.json")

    def loader(self, ops: list[da.Op], batch_size: int, collate: Any = None) -> da.Loader[Any]:
        return da.Loader(self.reader, ops, batch_size, collate=collate)


# ---------------------------------------------------------------- torchvision's loader


def of_torchvision(data: Data, transforms: list[Any], batch_size: int) -> Any:
    """Return a DataLoader of lists of images, float in 0..1, and lists of targets."""
    from torchvision.datasets import CocoDetection, wrap_dataset_for_transforms_v2
    from torchvision.transforms import v2

    last = [v2.SanitizeBoundingBoxes(), v2.ToDtype(torch.float32, scale=True)]
    chain = v2.Compose([v2.ToImage(), *transforms, *last])
    files = CocoDetection(str(data.folder / "train"), str(data.folder / "train.json"), transforms=chain)
    wrapped = wrap_dataset_for_transforms_v2(files, target_keys=["boxes", "labels"])
    how = {"num_workers": data.workers, "persistent_workers": data.workers > 0, "pin_memory": torch.cuda.is_available()}
    return torch.utils.data.DataLoader(wrapped, batch_size, shuffle=True, drop_last=True, collate_fn=as_lists, **how)


def as_lists(samples: list[Any]) -> tuple[list[Any], list[Any]]:
    images, targets = zip(*samples, strict=True)
    return [image.as_subclass(torch.Tensor) for image in images], [
        {name: each.as_subclass(torch.Tensor) for name, each in target.items()} for target in targets
    ]


def ssd_transforms(size: tuple[int, int]) -> list[Any]:
    from torchvision.transforms import v2

    crops = [v2.RandomZoomOut(fill=[123, 117, 104]), v2.RandomIoUCrop(), v2.SanitizeBoundingBoxes()]
    return [*crops, v2.RandomHorizontalFlip(), v2.Resize(size)]


def on_device(batch: tuple[list[Any], list[Any]], device: torch.device) -> tuple[list[Any], list[Any]]:
    images, targets = batch
    move = partial(torch.Tensor.to, device=device, non_blocking=True)
    return [move(image) for image in images], [{name: move(each) for name, each in row.items()} for row in targets]


def as_hf(batch: tuple[list[Any], list[Any]], device: torch.device) -> dict[str, Any]:
    """Return a batch as `Batch.as_hf` does."""
    images, targets = on_device(batch, device)
    pixels = torch.stack(images)
    height, width = pixels.shape[2:]
    side = torch.tensor([width, height] * 2, device=device)
    rows = []
    for target in targets:
        start, end = target["boxes"][:, :2], target["boxes"][:, 2:]
        boxes = torch.cat([(start + end) / 2, end - start], 1) / side
        rows.append({"class_labels": target["labels"] - 1, "boxes": boxes})
    return {"pixel_values": pixels, "pixel_mask": torch.ones_like(pixels[:, 0], dtype=torch.int64), "labels": rows}


class DetaugBatch(NamedTuple):
    """What the script of Lightning takes of a batch."""

    images: list[torch.Tensor]
    rows: list[dict[str, torch.Tensor]]

    def targets(self) -> list[dict[str, torch.Tensor]]:
        return self.rows


# ---------------------------------------------------------------- the scripts


def torchvision_references(data: Data) -> Training:
    import torchvision_references as script
    from torchvision.transforms import v2

    batch_size, device = 8, default_device()

    def train(clock: Clock) -> tuple[float, list[float]]:
        model = script.get_model(
            "retinanet_resnet50_fpn", weights=None, weights_backbone=None, num_classes=len(data.reader.class_names)
        )
        losses = script.train(model.to(device), clock, data.steps)
        return clock.rate(batch_size), losses

    def theirs() -> tuple[float, list[float]]:
        loader = of_torchvision(data, [v2.RandomHorizontalFlip()], batch_size)
        return train(Clock(loader, partial(on_device, device=device)))

    return Training(
        batch_size, lambda: train(Clock(data.loader(da.presets.retinanet(), batch_size, script.as_pairs))), theirs
    )


def huggingface(data: Data) -> Training:
    import huggingface as script

    batch_size = 8

    def train(clock: Clock) -> tuple[float, list[float]]:
        with tempfile.TemporaryDirectory() as output:
            options = {"learning_rate": 1e-4, "max_grad_norm": 0.1, "disable_tqdm": True}
            losses = script.train(rt_detr(data), clock, output, data.steps, **options)
        return clock.rate(batch_size), losses

    return hf_training(data, script, batch_size, train)


def accelerate_loop(data: Data) -> Training:
    import accelerate_loop as script
    from accelerate import Accelerator

    batch_size = 8

    def train(clock: Clock) -> tuple[float, list[float]]:
        losses = script.train(Accelerator(), rt_detr(data), clock, data.steps)
        return clock.rate(batch_size), losses

    return hf_training(data, script, batch_size, train)


def hf_training(data: Data, script: Any, batch_size: int, train: Callable[[Clock], Any]) -> Training:
    def theirs() -> tuple[float, list[float]]:
        loader = of_torchvision(data, ssd_transforms(script.SIZE), batch_size)
        return train(Clock(loader, partial(as_hf, device=default_device())))

    return Training(batch_size, lambda: train(Clock(data.loader(script.TRAINING, batch_size, da.Batch.as_hf))), theirs)


def rt_detr(data: Data) -> Any:
    from transformers import RTDetrV2Config, RTDetrV2ForObjectDetection

    names = dict(enumerate(data.reader.class_names[1:]))
    return RTDetrV2ForObjectDetection(RTDetrV2Config(id2label=names, label2id={name: at for at, name in names.items()}))


def lightning_fit(data: Data, fabric: bool = False) -> Training:
    import lightning_fit as script

    batch_size = 8

    def train(clock: Clock) -> tuple[float, list[float]]:
        classes = len(data.reader.class_names)
        model = script.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=classes)
        if fabric:
            losses = script.train_with_fabric(script.lightning.Fabric(devices=1), model, clock, data.steps)
        else:
            quiet = {"enable_progress_bar": False, "enable_checkpointing": False, "enable_model_summary": False}
            losses = script.train(script.Detector(model, lambda: clock), data.steps, devices=1, **quiet)
        return clock.rate(batch_size), losses

    def theirs() -> tuple[float, list[float]]:
        loader = of_torchvision(data, ssd_transforms(script.SIZE), batch_size)
        return train(Clock(loader, lambda batch: DetaugBatch(*on_device(batch, default_device()))))

    return Training(batch_size, lambda: train(Clock(data.loader(script.TRAINING, batch_size))), theirs)


def rf_detr(data: Data) -> Training:
    import rf_detr as script

    batch_size = 4
    config = script.RFDETRNanoConfig(num_classes=len(data.reader.class_names) - 1, pretrain_weights=None)
    folder = roboflow_folder(data)

    def fit(make: Callable[[Any], Any]) -> tuple[float, list[float]]:
        options = {"batch_size": batch_size, "num_workers": data.workers, "dataset_file": "roboflow"}
        with tempfile.TemporaryDirectory() as output:
            model = script.make_model(config, output, **options)
            model.train_config.dataset_dir = str(folder)
            clock = TrainingClock()
            trainer = script.build_trainer(
                model.train_config, config, max_steps=data.steps, limit_val_batches=0, enable_progress_bar=False
            )
            losses = script.Losses()
            trainer.callbacks += [losses, clock]
            trainer.fit(model, make(model))
        return clock.rate(batch_size), losses.values

    class TrainingClock(Clock, script.Callback):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            Clock.__init__(self, None)

        def on_train_batch_start(self, *_: Any) -> None:
            torch.cuda.synchronize() if torch.cuda.is_available() else None
            self.times.append(time.perf_counter())

    def ours(model: Any) -> Any:
        loader = data.loader(script.training(config.resolution), batch_size, script.as_nested)
        return script.LoaderData(config, model.train_config, loader)

    return Training(
        batch_size, lambda: fit(ours), lambda: fit(lambda model: script.RFDETRDataModule(config, model.train_config))
    )


def roboflow_folder(data: Data) -> Path:
    """Return the folder, with the JSON file where RF-DETR looks for it; its train split also serves as the others."""
    for split in ("train", "valid", "test"):
        (data.folder / split).exists() or (data.folder / split).symlink_to("train")
    (data.folder / "train/_annotations.coco.json").write_text((data.folder / "train.json").read_text())
    return data.folder


SCRIPTS: dict[str, Callable[[Data], Training]] = {
    "torchvision_references": torchvision_references,
    "huggingface": huggingface,
    "accelerate_loop": accelerate_loop,
    "lightning_fit": lightning_fit,
    "lightning_fit --fabric": partial(lightning_fit, fabric=True),
    "rf_detr": rf_detr,
}


def default_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def write(folder: Path, images: int) -> None:
    """Write the JPEGs, and a JSON file with the fields that all trainers need."""
    (folder / "train").mkdir()
    write_data(folder / "train", images)
    document = json.loads((folder / "train/train.json").read_text())
    for row in document["annotations"]:
        row["area"] = row["bbox"][2] * row["bbox"][3]
    (folder / "train.json").write_text(json.dumps(document))
    (folder / "train/train.json").unlink()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--images", type=int, default=2000)
    parser.add_argument("--only", nargs="*", choices=SCRIPTS, default=[*SCRIPTS])
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), options.images)
        data = Data(Path(folder), options.steps, options.workers)
        for name in options.only:
            training = SCRIPTS[name](data)
            for whose, train in (("detaug", training.ours), ("own", training.theirs)):
                torch.manual_seed(0)
                rate, losses = train()
                row = {"script": name, "loader": whose, "batch": training.batch_size, "rate": rate, "losses": losses}
                rows.append(row)
                first, last = (sum(part) / len(part) for part in (losses[:20], losses[-20:]))
                print(f"{name:24} {whose:7} batch {training.batch_size}: {rate:7.1f} images/s, ", end="")
                print(f"loss of the first and last 20 steps {first:.3f}, {last:.3f}", flush=True)
            if options.json:
                options.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
