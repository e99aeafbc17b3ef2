"""Train detectors of rotated boxes on drawings for equal steps, and score them on seen and on unseen ones.

    python benchmarks/rotated_detector.py -o OUT --model small --images 32 --steps 300 --size 224 --batch 4     # a CPU
    python benchmarks/rotated_detector.py -o OUT --model resnet50 oriented-det                                  # a GPU
    python benchmarks/rotated_detector.py -o OUT --model small --images 160 --steps 450 --size 128 --batch 8 --ratio 1
    python benchmarks/rotated_detector.py -o OUT --data train.json train/ val.json val/ --model resnet50 oriented-det

`small`: RotatedFCOS of detaug on a narrow backbone of 0.8 M parameters. `resnet50`: the fcos_rotated_resnet50_fpn of
`detaug train`. `oriented-det`: RotatedFCOS of https://pypi.org/project/oriented-det (Apache-2.0, 0.4.1) with its
ResNet-50, which has to be installed, and gets the same batches. All start from random weights, with AdamW, a linear
warm-up and a cosine. The drawings are the ships of `detaug demo`, or with --ratio rectangles with such sides, on noise.
Seen ones are of the training, at most as many images as there are unseen ones: 12 %, at least 12. With --data, `seen`
is the whole training set, and images are turned by any angle in training, so that upright boxes become rotated ones.
A line for each evaluation has the model, seed, step, AP50 and AP75 of both; the same numbers go to OUT/rotated.jsonl.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageDraw
from torch import Tensor, nn

import detaug as da
from detaug.demo.ships import make_ships
from detaug.training.rotated_fcos import RotatedFCOS, corners_of
from detaug.training.torchvision_models import without_transform

WIDTHS = (16, 32, 64, 96, 128)


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)

    def forward(self, x: Tensor) -> Tensor:
        return (x + self.norm(self.conv(x))).relu()


class SmallBody(nn.Sequential):
    """A narrow residual network: feature maps of strides 2 to 32, `layer0` to `layer4`."""

    def __init__(self) -> None:
        super().__init__()
        for at, (inputs, outputs) in enumerate(zip((3, *WIDTHS), WIDTHS, strict=False)):
            layers = [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
            self.add_module(f"layer{at}", nn.Sequential(*layers, *[Residual(outputs)] * (at > 1)))


def small_rotated(num_classes: int, **options: Any) -> nn.Module:
    """Return a detector that learns on a CPU; its images are normalized, as those of `detaug train`."""
    from torchvision.models.detection.backbone_utils import BackboneWithFPN
    from torchvision.ops.feature_pyramid_network import LastLevelP6P7

    levels = {"layer2": "0", "layer3": "1", "layer4": "2"}
    backbone = BackboneWithFPN(SmallBody(), levels, list(WIDTHS[2:]), 64, LastLevelP6P7(64, 64))
    return without_transform(RotatedFCOS(backbone, num_classes, convs=2, **options))


class Ours(nn.Module):
    """A detector of detaug: `losses` of a batch, else the detections that `CocoEvaluator` takes."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def losses(self, batch: da.Batch) -> Mapping[str, Tensor]:
        losses: Mapping[str, Tensor] = self.model(batch.images, batch.targets(rotated=True))
        return losses

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        found: list[dict[str, Tensor]] = self.model(images)
        return found


class OrientedDet(Ours):
    """A detector of oriented-det: "le90", labels from 1, and a list of boxes that are objects."""

    def losses(self, batch: da.Batch) -> Mapping[str, Tensor]:
        boxes = batch.rotated_boxes("cxcywhr", "le90")
        rows = zip(boxes, batch.labels, batch.counts, strict=True)
        losses: Mapping[str, Tensor] = self.model(
            list(batch.images), [{"rboxes": each[:n], "labels": labels[:n]} for each, labels, n in rows]
        )
        return losses

    def forward(self, images: Tensor) -> list[dict[str, Tensor]]:
        found = []
        for each in self.model(list(images)):
            rows = [(box.cx, box.cy, box.width, box.height, box.angle) for box in each["rboxes"]]
            corners = corners_of(torch.tensor(rows, device=images.device).reshape(-1, 5))
            found.append({"corners": corners, "scores": each["scores"], "labels": each["labels"]})
        return found


def resnet50(classes: int) -> nn.Module:
    from detaug.training.detectors import make_detector

    return Ours(make_detector("fcos_rotated_resnet50_fpn", classes).model)


def oriented_det(classes: int) -> nn.Module:
    from oriented_det import RotatedFCOS as Other

    return OrientedDet(Other(classes - 1, backbone_name="resnet50", pretrained_backbone=False))


MODELS: dict[str, Callable[[int], nn.Module]] = {
    "small": lambda classes: Ours(small_rotated(classes)),
    "resnet50": resnet50,
    "oriented-det": oriented_det,
}
"""Each takes the number of classes, the background among them."""


def draw_rectangles(root: Path, images: int, ratio: float, seed: int) -> Path:
    """Draw rectangles at any angle on noise into root/ships, one of each class per image; return root/ships.json.

    `ratio`: of the longer side to the shorter one, within 3 %; 1 gives squares.
    """
    rng, (width, height) = np.random.default_rng(seed), (160, 128)
    (root / "ships").mkdir(parents=True)
    content: dict[str, Any] = {"images": [], "annotations": []}
    content["categories"] = [{"id": 1, "name": "gold"}, {"id": 2, "name": "blue"}]
    for number in range(1, images + 1):
        image = Image.fromarray(rng.integers(60, 120, (height, width, 3), np.uint8))
        content["images"].append({"id": number, "file_name": f"{number}.png", "width": width, "height": height})
        for kind, color in enumerate(((220, 180, 60), (90, 150, 240))):
            short = rng.uniform(16, 20)
            center = width * (0.27 + 0.46 * kind) + rng.uniform(-5, 5), height / 2 + rng.uniform(-20, 20)
            sides = short * ratio * rng.uniform(0.97, 1.03), short
            box = torch.tensor([[*center, *sides, rng.uniform(-math.pi / 2, math.pi / 2)]], dtype=torch.float64)
            corners = corners_of(box)[0].numpy()
            ImageDraw.Draw(image).polygon([(x, y) for x, y in corners - 0.5], fill=color)
            low, high = corners.min(0), corners.max(0)
            entry = {"id": len(content["annotations"]) + 1, "image_id": number, "category_id": kind + 1, "iscrowd": 0}
            content["annotations"].append(entry | {"bbox": [*low, *(high - low)], "corners": corners.tolist()})
        image.save(root / "ships" / f"{number}.png")
    path = root / "ships.json"
    path.write_text(json.dumps(content))
    return path


def drawings(options: argparse.Namespace, images: int, seed: int) -> da.CocoReader:
    kind = "ships" if options.ratio is None else f"rectangles-{options.ratio:g}"
    root = options.output / f"{kind}-{seed}-{images}"
    if not (root / "ships.json").exists():
        if options.ratio is None:
            make_ships(root, images, seed)
        else:
            draw_rectangles(root, images, options.ratio, seed)
    return da.CocoReader(root / "ships", root / "ships.json", rotated=True)


@torch.no_grad()
def score(model: Any, reader: da.CocoReader, ops: Sequence[da.Op], options: argparse.Namespace) -> dict[str, float]:
    evaluator = da.CocoEvaluator(reader, kind="rotated")
    model.eval()
    for batch in da.Loader(reader, ops, options.batch, device=options.device, train=False):
        evaluator.update(batch, model(batch.images))
    model.train()
    metrics = evaluator.compute()
    return {"AP50": metrics.AP50, "AP75": metrics.AP75}


def run(name: str, seed: int, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Train a model and return its evaluations."""
    torch.manual_seed(seed)
    flips: list[da.Op] = [da.RandomHorizontalFlip(), da.RandomVerticalFlip()]
    if options.data:
        train, unseen = (da.CocoReader(each[1], each[0], rotated=True) for each in (options.data[:2], options.data[2:]))
        seen = train
        flips.append(da.RandomRotation(180))
    else:
        unseen_images = max(12, options.images * 12 // 100)
        train, unseen = drawings(options, options.images, 0), drawings(options, unseen_images, 77)
        seen = drawings(options, min(options.images, unseen_images), 0)  # image n does not depend on how many there are
    classes = len(train.class_names) + 1
    ops = [da.Resize((options.size, options.size), letterbox="center"), da.Normalize()]
    loader = da.Loader(train, [*flips, *ops], options.batch, device=options.device, seed=seed)
    model: Any = MODELS[name](classes).to(options.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), options.lr, weight_decay=1e-4)
    steps, warmup, done, rows, seconds = options.steps, max(1, options.steps // 15), 0, list[dict[str, Any]](), 0.0
    while done < steps:
        for batch in loader:
            start = time.perf_counter()
            rate = options.lr * min(1, (done + 1) / warmup) * (0.5 + 0.5 * math.cos(math.pi * done / steps))
            for group in optimizer.param_groups:
                group["lr"] = rate
            loss = torch.stack([*model.losses(batch).values()]).sum()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10)
            optimizer.step()
            value = loss.item()  # waits for the device
            seconds, done = seconds + time.perf_counter() - start, done + 1
            if done % options.every == 0 or done == steps:
                each = {"model": name, "seed": seed, "step": done, "loss": value, "seconds_per_step": seconds / done}
                each |= {
                    part: score(model, reader, ops, options) for part, reader in (("seen", seen), ("unseen", unseen))
                }
                rows.append(each)
                print(line_of(each), flush=True)
            if done == steps:
                break
    return rows


def line_of(row: Mapping[str, Any]) -> str:
    scores = (f"{part} {row[part]['AP50']:.3f} {row[part]['AP75']:.3f}" for part in ("seen", "unseen"))
    return f"{row['model']}  seed {row['seed']}  step {row['step']}  AP50 AP75  {'  '.join(scores)}"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, help="the folder for images and rotated.jsonl")
    parser.add_argument("--model", nargs="+", choices=[*MODELS], default=["resnet50"])
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--every", type=int, default=500, help="steps between evaluations")
    parser.add_argument("--size", type=int, default=512)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, help="default: 0.003 for small, 0.0003 for a ResNet-50")
    parser.add_argument("--ratio", type=float, help="rectangles with sides of this ratio instead of ships; 1: squares")
    files = ("TRAIN_JSON", "TRAIN_IMAGES", "VAL_JSON", "VAL_IMAGES")
    parser.add_argument("--data", nargs=4, metavar=files, help="train and score on these instead of drawings")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    options = parser.parse_args(arguments)
    options.output.mkdir(parents=True, exist_ok=True)
    for name in options.model:
        for seed in options.seeds:
            lr = options.lr or (0.003 if name == "small" else 0.0003)
            rows = run(name, seed, argparse.Namespace(**{**vars(options), "lr": lr}))
            with (options.output / "rotated.jsonl").open("a") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)


if __name__ == "__main__":
    main()
