"""Train a detector of torchvision as its references do, on batches of detaug.

    detaug demo
    detaug convert-voc demo/VOC -o train.json --split train
    python docs/trainers/torchvision_references.py train.json demo/VOC/JPEGImages --steps 200

The model has random weights.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from itertools import islice
from typing import Any

import torch
from torchvision.models import get_model

import detaug as da

WARMUP = 1000  # steps


def as_pairs(batch: da.Batch) -> tuple[list[torch.Tensor], list[dict[str, torch.Tensor]]]:
    """Return the images without padding, and their targets, as the references' DataLoader does."""
    sizes = batch.image_size.tolist()
    return [image[:, :h, :w] for image, (h, w) in zip(batch.images, sizes, strict=True)], batch.targets()


def train(model: Any, loader: Iterable[Any], steps: int, lr: float = 0.0025) -> list[float]:
    """Train for some steps and return the loss of each. `loader`: with collate=as_pairs."""
    optimizer = torch.optim.SGD(model.parameters(), lr, momentum=0.9, weight_decay=1e-4)
    warmup = torch.optim.lr_scheduler.LinearLR(optimizer, 1e-3, total_iters=min(WARMUP, steps // 10))
    losses: list[float] = []
    model.train()
    while len(losses) < steps:
        for images, targets in islice(loader, steps - len(losses)):
            loss = sum(model(images, targets).values())
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            warmup.step()
            losses.append(loss.item())
    return losses


@torch.inference_mode()
def evaluate(model: Any, loader: da.Loader) -> da.Metrics:
    """Return COCO's metrics. `loader`: with train=False and without collate."""
    evaluator = da.CocoEvaluator(loader.reader)
    model.eval()
    for batch in loader:
        evaluator.update(batch, model(as_pairs(batch)[0]))
    return evaluator.compute()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations")
    parser.add_argument("images")
    parser.add_argument("--model", default="retinanet_resnet50_fpn")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=2)
    options = parser.parse_args()
    reader = da.CocoReader(options.images, options.annotations)
    loader = da.Loader(reader, da.presets.retinanet(), options.batch_size, collate=as_pairs)
    num_classes = len(loader.class_names)
    model = get_model(options.model, weights=None, weights_backbone=None, num_classes=num_classes).to(loader.device)
    losses = train(model, loader, options.steps)
    print(f"loss {losses[0]:.2f} at first, {losses[-1]:.2f} at last")
    unchanged = da.Loader(reader, da.presets.evaluation(800, max_size=1333), options.batch_size, train=False)
    print(evaluate(model, unchanged))


if __name__ == "__main__":
    main()
