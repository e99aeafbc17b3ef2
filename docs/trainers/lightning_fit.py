"""Train SSDLite of torchvision with Lightning's Trainer, or a loop with Fabric, on batches of detaug.

    detaug demo
    detaug convert-voc demo/VOC -o train.json --split train
    python docs/trainers/lightning_fit.py train.json demo/VOC/JPEGImages --steps 200
    python docs/trainers/lightning_fit.py train.json demo/VOC/JPEGImages --steps 200 --fabric

The model has random weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from itertools import islice
from typing import Any

import lightning
import torch
from torchvision.models.detection import ssdlite320_mobilenet_v3_large

import detaug as da

SIZE = (320, 320)
TRAINING = [da.RandomZoomOut(), da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize(SIZE), da.Normalize()]


class Detector(lightning.LightningModule):
    """A detector of torchvision and the function that makes its loader."""

    def __init__(self, model: Any, make_loader: Callable[[], da.Loader], lr: float = 0.001) -> None:
        super().__init__()
        self.model, self.make_loader, self.lr = model, make_loader, lr
        self.losses: list[float] = []

    def train_dataloader(self) -> da.Loader:
        return self.make_loader()

    def training_step(self, batch: da.Batch, _: int) -> Any:
        loss = sum(self.model(list(batch.images), batch.targets()).values())
        self.losses.append(loss.item())
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), self.lr)


def train(detector: Detector, steps: int, **options: Any) -> list[float]:
    """Train with Lightning's Trainer and return the loss of each step."""
    trainer = lightning.Trainer(max_steps=steps, gradient_clip_val=10.0, logger=False, **options)
    trainer.fit(detector)
    return detector.losses


def train_with_fabric(fabric: lightning.Fabric, model: Any, loader: da.Loader, steps: int) -> list[float]:
    """Train in a loop and return the loss of each step."""
    model, optimizer = fabric.setup(model, torch.optim.AdamW(model.parameters(), 0.001))
    losses: list[float] = []
    while len(losses) < steps:
        for batch in islice(loader, steps - len(losses)):
            loss = sum(model(list(batch.images), batch.targets()).values())
            optimizer.zero_grad()
            fabric.backward(loss)
            fabric.clip_gradients(model, optimizer, max_norm=10.0)
            optimizer.step()
            losses.append(loss.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations")
    parser.add_argument("images")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--fabric", action="store_true")
    options = parser.parse_args()
    reader = da.CocoReader(options.images, options.annotations)
    classes = len(reader.class_names)
    model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=classes)
    if options.fabric:
        fabric = lightning.Fabric(devices=1)
        losses = train_with_fabric(fabric, model, da.Loader(reader, TRAINING, options.batch_size), options.steps)
    else:
        detector = Detector(model, lambda: da.Loader(reader, TRAINING, options.batch_size))
        losses = train(detector, options.steps, devices=1, enable_checkpointing=False)
    print(f"loss {losses[0]:.2f} at first, {losses[-1]:.2f} at last")


if __name__ == "__main__":
    main()
