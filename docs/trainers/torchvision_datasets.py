"""Train a detector of torchvision on its own dataset class, with the transforms of detaug.

    detaug demo
    detaug convert-voc demo/VOC -o train.json --split train
    python docs/trainers/torchvision_datasets.py train.json demo/VOC/JPEGImages --steps 200

The model has random weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from torch.utils.data import DataLoader
from torchvision.datasets import CocoDetection, wrap_dataset_for_transforms_v2
from torchvision.models.detection import ssdlite320_mobilenet_v3_large

import detaug as da

SIZE = (320, 320)
TRAINING = [da.RandomZoomOut(), da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize(SIZE), da.Normalize()]


def make_loader(images: str, annotations: str, ops: list[da.Op], batch_size: int, workers: int = 0) -> Any:
    """Return a DataLoader of torchvision's dataset, without images that have no objects."""
    data = CocoDetection(images, annotations, transforms=da.Compose(ops))
    data.ids = [each for each in data.ids if data.coco.getAnnIds(each)]
    data = wrap_dataset_for_transforms_v2(data, target_keys=["boxes", "labels", "image_id"])
    return DataLoader(data, batch_size, shuffle=True, num_workers=workers, collate_fn=collate)


def collate(samples: list[Any]) -> tuple[Any, ...]:
    return tuple(zip(*samples, strict=True))


def train(model: Any, loader: Iterable[Any], steps: int, lr: float = 0.001) -> list[float]:
    """Train for some steps and return the loss of each."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr), []
    device = next(model.parameters()).device
    while len(losses) < steps:
        for images, targets in islice(loader, steps - len(losses)):
            names = ("boxes", "labels")
            loss = model(
                [image.to(device) for image in images],
                [{name: target[name].to(device) for name in names} for target in targets],
            )
            optimizer.zero_grad()
            sum(loss.values()).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            losses.append(sum(each.item() for each in loss.values()))
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations")
    parser.add_argument("images")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    loader = make_loader(options.images, options.annotations, TRAINING, options.batch_size, options.workers)
    classes = len(da.CocoReader(options.images, options.annotations).class_names)
    model = ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=classes)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    losses = train(model.to(device), loader, options.steps)
    print(f"loss {losses[0]:.2f} at first, {losses[-1]:.2f} at last")


if __name__ == "__main__":
    main()
