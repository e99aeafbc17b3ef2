"""A tiny detector, and the trainings that test_train.py runs in processes of their own.

python train_run.py IMAGES JSON OUT KILL      trains with it; KILL: the step at which the process is killed, 0: never,
                                              endless: never, with far too many epochs; wait-7, wait-evaluation: waits
                                              for a signal there
                                              statistics, statistics-ema: writes those of batch norm to 0.txt, 1.txt
                                              plain-KILL: the model without batch norm and dropout, 8 images per step
                                              plain-resume: the same, which resumes
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from detaug.loading.devices import rank_and_world
from detaug.training import Detector, TrainOptions, train


class Tiny(nn.Module):
    """Finds one box an image. With batch norm and dropout it has state besides its weights and draws random numbers."""

    def __init__(self, num_classes: int, kill: int = 0) -> None:
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, 4), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.3))
        self.head = nn.Linear(8, num_classes + 4)
        self.calls, self.kill = 0, kill

    def forward(self, images: Tensor, targets: list[dict[str, Tensor]] | None = None) -> Any:
        found = self.head(self.features(images).mean((2, 3)))
        logits, boxes = found[:, 4:], found[:, :4].sigmoid() * images.shape[-1]
        if targets is None:
            best = logits.softmax(1)[:, 1:].max(1)
            corners = torch.cat([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1)
            rows = zip(corners[:, None], best.values[:, None], best.indices[:, None] + 1, strict=True)
            return [{"boxes": box, "scores": score, "labels": label} for box, score, label in rows]
        self.calls += 1
        if self.calls == self.kill:
            os.kill(os.getpid(), signal.SIGKILL)
        return {"classification": classification(logits, targets), "bbox_regression": boxes.square().mean() / 1e4}


def classification(logits: Tensor, targets: list[dict[str, Tensor]]) -> Tensor:
    """Return the loss of predicting the classes in an image."""
    present = torch.stack([torch.bincount(each["labels"], minlength=logits.shape[1]) > 0 for each in targets])
    return nn.functional.binary_cross_entropy_with_logits(logits, present.to(logits.dtype))


class Waiting(Tiny):
    """Prints a line and waits for a signal, at a step or at the first batch of an evaluation."""

    def __init__(self, num_classes: int, where: str) -> None:
        super().__init__(num_classes)
        self.where = where

    def forward(self, images: Tensor, targets: list[dict[str, Tensor]] | None = None) -> Any:
        here = "evaluation" if targets is None else str(self.calls + 1)
        if here == self.where:
            self.where = ""
            print("waiting", flush=True)
            signal.pause()
        return super().forward(images, targets)


class Statistics(Tiny):
    """Writes the statistics of its batch norm that each batch is evaluated with into a file."""

    def __init__(self, num_classes: int, record: Path) -> None:
        super().__init__(num_classes)
        self.record = record

    def forward(self, images: Tensor, targets: list[dict[str, Tensor]] | None = None) -> Any:
        if targets is None:
            norm = self.features[1]
            with self.record.open("a") as file:
                print(self.calls, norm.running_mean.tolist(), norm.running_var.tolist(), file=file)
        return super().forward(images, targets)


class Plain(Tiny):
    """Has no batch norm and no dropout: its loss is the mean of the losses of single images."""

    def __init__(self, num_classes: int, kill: int = 0) -> None:
        super().__init__(num_classes, kill)
        self.features = nn.Sequential(nn.Conv2d(3, 8, 3, 4), nn.ReLU())


def train_plain(images: str | Path, annotations: str | Path, output: Path, kill: int = 0, **others: Any) -> None:
    settings = options(images, annotations, output, **others)
    train(settings, make_model=lambda _, classes: Detector(Plain(classes, kill)))


def tiny(kill: int = 0) -> Any:
    return lambda _name, num_classes: Detector(Tiny(num_classes, kill))


def options(images: str | Path, annotations: str | Path, output: Path, **others: Any) -> TrainOptions:
    settings: dict[str, Any] = {
        "val": Path(annotations),
        "model": "retinanet_resnet50_fpn_v2",
        "size": (32, 32),
        "epochs": 3,
        "batch_size": 4,
        "lr": 0.05,
        "eval_every": 3,
        "checkpoint_every": 2,
        "log_every": 3,
        "device": "cpu",
    }
    return TrainOptions(Path(annotations), Path(images), output, **{**settings, **others})


if __name__ == "__main__":
    images, annotations, output, kill = sys.argv[1:]
    if kill.startswith("plain-"):
        step = kill.removeprefix("plain-")
        how: dict[str, Any] = {"resume": True} if step == "resume" else {"kill": int(step)}
        sys.exit(train_plain(images, annotations, Path(output), batch_size=8 // rank_and_world()[1], **how))
    if kill.startswith("statistics"):
        record = Path(output).with_name(f"{rank_and_world()[0]}.txt")
        settings = options(images, annotations, Path(output), eval_every=1, ema=0.9 if kill.endswith("ema") else None)
        sys.exit(train(settings, make_model=lambda _, classes: Detector(Statistics(classes, record))) and 0)
    if kill == "endless":
        train(options(images, annotations, Path(output), epochs=10**6), make_model=tiny())
    if kill.startswith("wait-"):
        where = kill.removeprefix("wait-")
        train(
            options(images, annotations, Path(output)), make_model=lambda _, classes: Detector(Waiting(classes, where))
        )
        sys.exit("no signal came")
    train(options(images, annotations, Path(output)), make_model=tiny(int(kill)), bar=lambda *now: print(now))
