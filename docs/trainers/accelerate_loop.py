"""Train RT-DETRv2 of Hugging Face's transformers in a loop with Accelerate, on batches of detaug.

    detaug demo
    detaug convert-voc demo/VOC -o train.json --split train
    accelerate launch docs/trainers/accelerate_loop.py train.json demo/VOC/JPEGImages --steps 200

The model has random weights. `AutoModelForObjectDetection.from_pretrained` in their place trains much faster.
"""

from __future__ import annotations

import argparse
from itertools import islice
from typing import Any

import torch
from accelerate import Accelerator
from transformers import RTDetrV2Config, RTDetrV2ForObjectDetection

import detaug as da

SIZE = (640, 640)
TRAINING = [da.RandomZoomOut(), da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize(SIZE), da.Normalize()]


def train(accelerator: Accelerator, model: Any, loader: da.Loader, steps: int, lr: float = 1e-4) -> list[float]:
    """Train for some steps and return the loss of each. `loader`: with collate=da.Batch.as_hf."""
    optimizer, losses = torch.optim.AdamW(model.parameters(), lr), []
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    model.train()
    while len(losses) < steps:
        for inputs in islice(loader, steps - len(losses)):
            loss = model(**inputs).loss
            optimizer.zero_grad()
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(model.parameters(), 0.1)
            optimizer.step()
            losses.append(loss.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("annotations")
    parser.add_argument("images")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8)
    options = parser.parse_args()
    accelerator = Accelerator()
    reader = da.CocoReader(options.images, options.annotations)
    loader = da.Loader(reader, TRAINING, options.batch_size, collate=da.Batch.as_hf)
    names = dict(enumerate(loader.class_names[1:]))
    model = RTDetrV2ForObjectDetection(
        RTDetrV2Config(id2label=names, label2id={name: at for at, name in names.items()})
    )
    losses = train(accelerator, model, loader, options.steps)
    accelerator.print(f"loss {losses[0]:.2f} at first, {losses[-1]:.2f} at last")
    accelerator.end_training()


if __name__ == "__main__":
    main()
