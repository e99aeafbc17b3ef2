"""Train RF-DETR on batches of detaug and evaluate it.

    detaug demo
    detaug convert-voc demo/VOC -o train.json --split train
    detaug convert-voc demo/VOC -o val.json --split val
    python docs/trainers/rf_detr.py train.json val.json demo/VOC/JPEGImages -o run --steps 200

RF-DETR Nano with random weights. `pretrain_weights` of its config, with the path of a checkpoint, trains much faster.
With --masks it is RF-DETR Seg Nano, and the JSON file needs outlines: write them with `detaug convert-voc --masks`.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from pytorch_lightning import Callback
from rfdetr.config import RFDETRNanoConfig, RFDETRSegNanoConfig, SegmentationTrainConfig, TrainConfig
from rfdetr.training import RFDETRDataModule, RFDETRModelModule, build_trainer
from rfdetr.utilities.tensors import NestedTensor

import detaug as da

NORMALIZE = da.Normalize(da.presets.IMAGENET_MEAN, da.presets.IMAGENET_STD)


def training(size: int) -> list[da.Op]:
    return [da.RandomHorizontalFlip(), da.RandomIoUCrop(), *unchanged(size)]


def unchanged(size: int) -> list[da.Op]:
    return [da.Resize((size, size)), NORMALIZE]


def as_nested(batch: da.Batch) -> tuple[NestedTensor, list[dict[str, torch.Tensor]]]:
    images, targets = batch.as_detr(first_label=0)
    return NestedTensor(*images, no_padding=True), targets


def as_nested_with_masks(batch: da.Batch) -> tuple[NestedTensor, list[dict[str, torch.Tensor]]]:
    images, targets = batch.as_detr(first_label=0, masks=True)
    return NestedTensor(*images, no_padding=True), targets


class LoaderData(RFDETRDataModule):
    """RF-DETR's data module, with a loader in place of its dataset."""

    def __init__(self, model_config: Any, train_config: Any, loader: da.Loader) -> None:
        super().__init__(model_config, train_config)
        self.loader = loader

    def setup(self, stage: str) -> None:
        """Read no dataset of RF-DETR's."""

    def train_dataloader(self) -> Any:
        return self.loader

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
        """Keep RF-DETR's Kornia back end from augmenting and normalizing a second time."""
        return batch


class Losses(Callback):
    """Keeps the loss of each step."""

    def __init__(self) -> None:
        self.values: list[float] = []

    def on_train_batch_end(self, trainer: Any, module: Any, outputs: Any, batch: Any, step: int) -> None:
        self.values.append(float(outputs["loss"]))


def make_model(config: Any, output: str, **options: Any) -> RFDETRModelModule:
    """Return a model to train. Its data are not in `dataset_dir`, and batches keep the size of the recipe."""
    options |= {"dataset_dir": ".", "output_dir": output, "multi_scale": False, "tensorboard": False}
    kind = SegmentationTrainConfig if config.segmentation_head else TrainConfig
    return RFDETRModelModule(config, kind(**options))


def train(model: RFDETRModelModule, loader: da.Loader, steps: int, **options: Any) -> list[float]:
    """Train and return the loss of each step. `loader`: with collate=as_nested."""
    losses = Losses()
    trainer = build_trainer(model.train_config, model.model_config, max_steps=steps, limit_val_batches=0, **options)
    trainer.callbacks.append(losses)
    trainer.fit(model, LoaderData(model.model_config, model.train_config, loader))
    return losses.values


@torch.no_grad()
def evaluate(model: RFDETRModelModule, loader: da.Loader) -> da.Metrics:
    """Return COCO's metrics. `loader`: with train=False and without collate."""
    evaluator, classes = da.CocoEvaluator(loader.reader), len(loader.class_names) - 1
    model.to(loader.device).eval()
    for batch in loader:
        found = model.postprocess(model.model(as_nested(batch)[0]), batch.image_size)
        evaluator.update(batch, [of_classes(each, classes) for each in found])
    return evaluator.compute()


def of_classes(found: dict[str, torch.Tensor], classes: int) -> dict[str, torch.Tensor]:
    """Return an image's detections with labels from 1. RF-DETR has one class more than the data: it is left out."""
    kept = found["labels"] < classes
    return {"boxes": found["boxes"][kept], "scores": found["scores"][kept], "labels": found["labels"][kept] + 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("train")
    parser.add_argument("val")
    parser.add_argument("images")
    parser.add_argument("-o", "--output", required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=4)
    parser.add_argument("--masks", action="store_true")
    options = parser.parse_args()
    reader = da.CocoReader(options.images, options.train, masks=options.masks)
    kind, collate = (RFDETRSegNanoConfig, as_nested_with_masks) if options.masks else (RFDETRNanoConfig, as_nested)
    config = kind(num_classes=len(reader.class_names) - 1, pretrain_weights=None)
    model = make_model(config, options.output, batch_size=options.batch_size)
    loader = da.Loader(reader, training(config.resolution), options.batch_size, collate=collate)
    losses = train(model, loader, options.steps)
    print(f"loss {losses[0]:.2f} at first, {losses[-1]:.2f} at last")
    reader = da.CocoReader(options.images, options.val)
    print(evaluate(model, da.Loader(reader, unchanged(config.resolution), options.batch_size, train=False)))


if __name__ == "__main__":
    main()
