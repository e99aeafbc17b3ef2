"""Train RT-DETRv2 of Hugging Face's transformers with their Trainer on batches of detaug, and evaluate it.

    detaug demo
    detaug convert-voc demo/VOC -o train.json --split train
    detaug convert-voc demo/VOC -o val.json --split val
    python docs/trainers/huggingface.py train.json val.json demo/VOC/JPEGImages -o run --steps 200

The model has random weights. `AutoModelForObjectDetection.from_pretrained` in their place trains much faster.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from transformers import RTDetrImageProcessor, RTDetrV2Config, RTDetrV2ForObjectDetection, TrainingArguments

import detaug as da
from detaug.trainers.huggingface import LoaderTrainer

SIZE = (640, 640)
TRAINING = [da.RandomZoomOut(), da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize(SIZE), da.Normalize()]


def train(model: Any, loader: da.Loader, output: str, steps: int, **options: Any) -> list[float]:
    """Train and return the loss of each step."""
    arguments = TrainingArguments(output, max_steps=steps, logging_steps=1, save_strategy="no", report_to=[], **options)
    trainer = LoaderTrainer(model=model, args=arguments, train_dataset=loader)
    trainer.train()
    return [float(row["loss"]) for row in trainer.state.log_history if "loss" in row]


@torch.no_grad()
def evaluate(model: Any, loader: da.Loader) -> da.Metrics:
    """Return COCO's metrics. `loader`: with train=False and without collate."""
    evaluator, processor = da.CocoEvaluator(loader.reader), RTDetrImageProcessor()
    model.eval()
    for batch in loader:
        batch = batch.to(model.device)
        inputs = batch.as_hf()
        sizes = torch.stack([target["size"] for target in inputs["labels"]])
        found = processor.post_process_object_detection(model(**inputs), threshold=0.0, target_sizes=sizes)
        evaluator.update(batch, [{**each, "labels": each["labels"] + 1} for each in found])
    return evaluator.compute()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("val")
    parser.add_argument("images")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=8)
    options = parser.parse_args()
    reader = da.CocoReader(options.images, options.train)
    loader = da.Loader(reader, TRAINING, options.batch_size, collate=da.Batch.as_hf)
    names = dict(enumerate(loader.class_names[1:]))
    config = RTDetrV2Config(id2label=names, label2id={name: at for at, name in names.items()})
    model = RTDetrV2ForObjectDetection(config)
    train(model, loader, options.output, options.steps, learning_rate=1e-4, max_grad_norm=0.1)
    reader = da.CocoReader(options.images, options.val)
    print(evaluate(model, da.Loader(reader, da.presets.evaluation(SIZE), options.batch_size, train=False)))


if __name__ == "__main__":
    main()
