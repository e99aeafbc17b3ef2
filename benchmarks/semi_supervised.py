"""Train a small detector with 10 % of the labels, with and without a teacher for the other images, and with all labels.

    python benchmarks/semi_supervised.py [--images 225] [--steps 900] [--warm-up 300] [--seeds 3] [--device cpu]

The images are those of `detaug demo`; four fifths are for training, of which a tenth keep their labels. The detector is
the demo's, at 128 x 128. All runs of a seed begin with the same weights, take the same number of steps, use the strong
recipe for labeled images, and are scored with the moving average of their weights. `teacher`: after the warm-up, the
average is the teacher (mean teacher: Tarvainen and Valpola 2017; unbiased teacher: Liu et al. 2021). Its confident
detections in the weak view of unlabeled images are moved into the strong view, and are the student's labels there.
`unlabeled`: what the teacher's boxes in the weak view are worth at the end: precision and recall at IoU 0.5.
Prints AP and AP50 of the validation images for each run, and at last the medians and the ranges of the seeds.
"""

from __future__ import annotations

import argparse
import copy
import json
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torchvision.ops import box_iou, clip_boxes_to_image

import detaug as da
from detaug.converters import voc_to_coco
from detaug.demo.detector import SIZE, CenterDetector
from detaug.demo.shapes import make_voc

WEAK = [da.RandomHorizontalFlip(), da.Resize((SIZE, SIZE)), da.Normalize()]
STRONG = [
    da.RandomAffine(degrees=10, translate=(0.1, 0.1), scale=(0.8, 1.25)),
    da.RandomHorizontalFlip(),
    da.Resize((SIZE, SIZE)),
    da.RandomPhotometricDistort(),
    da.RandomErasing(),
    da.Normalize(),
]
BATCH = 16
AVERAGE = 0.99
"""The part of the moving average that a step keeps, of Tarvainen and Valpola's first steps."""


def draw(folder: Path, images: int) -> dict[str, da.CocoReader]:
    """Draw the dataset, and return readers of all, of a tenth with labels, of the rest without, and of `val`."""
    make_voc(folder, images)
    readers = {}
    for split in ("train", "val"):
        voc_to_coco(folder, folder / f"{split}.json", split=split)
        readers[split] = da.CocoReader(folder / "JPEGImages", folder / f"{split}.json")
    content = json.loads((folder / "train.json").read_text(encoding="utf-8"))
    labeled = {image["id"] for image in content["images"][::10]}
    for name, kept in (("labeled", labeled), ("unlabeled", {image["id"] for image in content["images"]} - labeled)):
        part = content | {"images": [image for image in content["images"] if image["id"] in kept]}
        boxes = [entry for entry in content["annotations"] if entry["image_id"] in kept and name == "labeled"]
        (folder / f"{name}.json").write_text(json.dumps(part | {"annotations": boxes}), encoding="utf-8")
        readers[name] = da.CocoReader(folder / "JPEGImages", folder / f"{name}.json")
    return readers


def steps_of(loader: da.Loader[Any]) -> Iterator[Any]:
    """Yield the batches of all epochs."""
    while True:
        yield from loader


def pseudo_labels(weak: da.Batch, strong: da.Batch, teacher: CenterDetector, min_score: float) -> SimpleNamespace:
    """Return the strong view with the teacher's confident detections, as a batch has its labels."""
    detections = [
        {name: values[own["scores"] > min_score] for name, values in own.items()}
        for own in teacher.predict(weak.images)
    ]
    moved = weak.map_boxes([own["boxes"] for own in detections], strong)
    boxes, labels = [], []
    for own, of_image in zip(moved, detections, strict=True):
        clipped = clip_boxes_to_image(own, (SIZE, SIZE))
        seen = area(clipped) > 0.3 * area(own)
        boxes.append(clipped[seen])
        labels.append(of_image["labels"][seen])
    padded = torch.nn.utils.rnn.pad_sequence(boxes, batch_first=True)
    numbers = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=-1)
    return SimpleNamespace(images=strong.images, boxes=padded, labels=numbers, valid=numbers >= 0)


def area(boxes: Tensor) -> Tensor:
    """Return (K,): the areas of boxes."""
    return (boxes[:, 2:] - boxes[:, :2]).clamp(min=0).prod(1)


def train(readers: dict[str, da.CocoReader], how: str, seed: int, options: argparse.Namespace) -> CenterDetector:
    """Return the moving average of a detector after all steps. `how`: "labels", "teacher" or "all labels"."""
    torch.manual_seed(seed)
    classes, device = len(readers["train"].class_names) - 1, options.device
    model = CenterDetector(classes).to(device)
    average = copy.deepcopy(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.002)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.002, total_steps=options.steps, pct_start=0.1)
    with_labels = readers["train" if how == "all labels" else "labeled"]
    labeled = da.Loader(with_labels, STRONG, BATCH, device=device, seed=seed)
    unlabeled: da.Loader[Any] = da.Loader(
        readers["unlabeled"], {"weak": WEAK, "strong": STRONG}, BATCH, device=device, seed=seed
    )
    batches, views = steps_of(labeled), steps_of(unlabeled)
    for step in range(options.steps):
        loss = model.loss(next(batches))
        if how == "teacher" and step >= options.warm_up:
            both = next(views)
            loss = loss + model.loss(pseudo_labels(both["weak"], both["strong"], average, options.min_score))  # type: ignore[arg-type]
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 5)
        optimizer.step()
        schedule.step()
        keep = min(AVERAGE, (step + 1) / (step + 10))
        with torch.no_grad():
            for own, new in zip(average.parameters(), model.parameters(), strict=True):
                own.lerp_(new, 1 - keep)
    for loader in (labeled, unlabeled):
        loader.close()
    return average


def scores(model: CenterDetector, reader: da.CocoReader, device: str) -> tuple[float, float]:
    """Return AP and AP50 of a reader's images."""
    evaluator = da.CocoEvaluator(reader)
    with da.Loader(reader, da.presets.evaluation((SIZE, SIZE)), BATCH, train=False, device=device) as loader:
        for batch in loader:
            evaluator.update(batch, model.predict(batch.images))
    metrics = evaluator.compute()
    return metrics.AP, metrics.AP50


def worth(model: CenterDetector, readers: dict[str, da.CocoReader], options: argparse.Namespace) -> tuple[float, float]:
    """Return precision and recall of the confident boxes in the images without labels, by the labels they had."""
    right = predicted = wanted = 0
    unlabeled = {*readers["unlabeled"].image_ids.tolist()}
    recipe = da.presets.evaluation((SIZE, SIZE))
    with da.Loader(readers["train"], recipe, BATCH, train=False, device=options.device) as loader:
        for batch in loader:
            pairs = zip(batch.image_id.tolist(), model.predict(batch.images), batch.targets(), strict=True)
            for image, own, target in pairs:
                if image not in unlabeled:
                    continue
                sure = own["scores"] > options.min_score
                overlap = box_iou(target["boxes"], own["boxes"][sure])
                overlap = overlap * (target["labels"][:, None] == own["labels"][sure])
                right += int((overlap.amax(1) > 0.5).sum()) if overlap.numel() else 0
                predicted, wanted = predicted + int(sure.sum()), wanted + len(target["boxes"])
    return right / max(1, predicted), right / max(1, wanted)


def main(options: argparse.Namespace) -> None:
    """Print a line for each run, and one for each way of training."""
    results: dict[str, list[tuple[float, float]]] = {"labels": [], "teacher": [], "all labels": []}
    with TemporaryDirectory() as folder:
        readers = draw(Path(folder), options.images)
        counts = {name: len(reader) for name, reader in readers.items()}
        print(f"images: {counts}", flush=True)
        for seed in range(options.seeds):
            for how, of_seeds in results.items():
                model = train(readers, how, seed, options)
                of_seeds.append(scores(model, readers["val"], options.device))
                precision, recall = worth(model, readers, options)
                print(
                    f"seed {seed} {how:10} AP {of_seeds[-1][0]:.3f} AP50 {of_seeds[-1][1]:.3f}; "
                    f"unlabeled: precision {precision:.2f} recall {recall:.2f}",
                    flush=True,
                )
    for how, of_seeds in results.items():
        texts = []
        for name, values in zip(("AP", "AP50"), zip(*of_seeds, strict=True), strict=True):
            texts.append(f"{name} {median(values):.3f} ({min(values):.3f}..{max(values):.3f})")
        print(f"{how:10} {', '.join(texts)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=225)
    parser.add_argument("--steps", type=int, default=900)
    parser.add_argument("--warm-up", type=int, default=300)
    parser.add_argument("--min-score", type=float, default=0.4)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--device", default="cpu")
    main(parser.parse_args())
