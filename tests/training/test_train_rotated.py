"""A tiny detector of rotated boxes learns eight drawn images from the loader's batches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageDraw
from test_rotated_boxes import rectangle
from torch import Tensor, nn
from torch.nn import functional

import detaug as da

pytestmark = pytest.mark.slow
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
STRIDE = 4
SIZE = (128, 128)
COLORS = {"red": (220, 60, 50), "blue": (60, 90, 220)}


def draw(folder: Path, images: int) -> Path:
    """Draw red and blue rectangles at any angle on noise, three in each image of 128 x 128; return the JSON file."""
    rng = np.random.default_rng(0)
    content: dict[str, Any] = {"images": [], "annotations": []}
    content["categories"] = [{"id": number, "name": name} for number, name in enumerate(COLORS, 1)]
    for number in range(1, images + 1):
        picture = Image.fromarray(rng.integers(60, 160, (*SIZE, 3), np.uint8))
        content["images"].append({"id": number, "file_name": f"{number}.png", "width": SIZE[1], "height": SIZE[0]})
        for corner in rng.permutation([(32, 32), (96, 32), (32, 96), (96, 96)])[:3]:
            length = rng.uniform(26, 48)
            center = corner + rng.uniform(-6, 6, 2)
            corners = rectangle(center, length, length * rng.uniform(0.3, 0.6), rng.uniform(0, 2 * np.pi))
            kind = int(rng.integers(2))
            ImageDraw.Draw(picture).polygon([tuple(each) for each in corners - 0.5], fill=[*COLORS.values()][kind])
            low, high = corners.min(0), corners.max(0)
            entry = {"id": len(content["annotations"]) + 1, "image_id": number, "category_id": kind + 1}
            entry |= {"bbox": [*low, *(high - low)], "corners": corners.tolist()}
            content["annotations"].append(entry)
        picture.save(folder / f"{number}.png")
    path = folder / "rectangles.json"
    path.write_text(json.dumps(content))
    return path


class RotatedDetector(nn.Sequential):
    """For each cell of a grid: logits of the classes, then x, y, width, height and angle of a box at the cell.

    x and y: of the center from the cell's, in cells. Width and height: logarithms of cells. Angle: cosine and sine of
    twice the angle, since a rectangle rotated by pi is the same.
    """

    def __init__(self, classes: int) -> None:
        layers = [(3, 24, 2, 1), (24, 32, 2, 1), *[(32, 32, 1, dilation) for dilation in (1, 2, 4, 8, 1)]]
        parts: list[nn.Module] = []
        for inputs, outputs, stride, dilation in layers:
            parts += [nn.Conv2d(inputs, outputs, 3, stride, dilation, dilation), nn.GroupNorm(4, outputs), nn.ReLU()]
        super().__init__(*parts, nn.Conv2d(32, classes + 6, 1))
        self.classes = classes
        nn.init.constant_(self[-1].bias[:classes], -2.0)  # few cells have a center

    def split(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """Return logits (N, classes, H, W) and boxes (N, H, W, 6)."""
        output = self(images)
        return output[:, : self.classes], output[:, self.classes :].movedim(1, -1)


def loss_of(model: RotatedDetector, batch: da.Batch) -> Tensor:
    """Return the focal loss of the cells with a center, and the distance of the boxes there and around them."""
    logits, found = model.split(batch.images)
    wanted = torch.zeros_like(logits)
    boxes = batch.rotated_boxes("cxcywhr", "le90")
    image, box = batch.valid.nonzero(as_tuple=True)
    x, y, width, height, angle = boxes[image, box].T
    across, down = (torch.arange(size // STRIDE) + 0.5 for size in reversed(SIZE))
    distance = (across - x[:, None] / STRIDE)[:, None] ** 2 + (down - y[:, None] / STRIDE)[..., None] ** 2
    for at, kind, squared in zip(image.tolist(), (batch.labels[image, box] - 1).tolist(), distance, strict=True):
        wanted[at, kind] = torch.maximum(wanted[at, kind], torch.exp(-squared))
        wanted[at, kind].view(-1)[squared.argmin()] = 1
    share = logits.sigmoid()
    hard = torch.where(wanted == 1, (1 - share) ** 2, share**2 * (1 - wanted) ** 4)
    focal = (hard * functional.binary_cross_entropy_with_logits(logits, (wanted == 1).float(), reduction="none")).sum()
    object_at, row, column = (distance < 2).nonzero(as_tuple=True)
    target = torch.stack(
        [
            x[object_at] / STRIDE - across[column],
            y[object_at] / STRIDE - down[row],
            (width / STRIDE).log()[object_at],
            (height / STRIDE).log()[object_at],
            (2 * angle).cos()[object_at],
            (2 * angle).sin()[object_at],
        ],
        1,
    )
    return focal / len(x) + 2 * functional.l1_loss(found[image[object_at], row, column], target)


@torch.no_grad()
def detections(model: RotatedDetector, images: Tensor) -> list[dict[str, Tensor]]:
    """Return the boxes at the cells that have the highest score around them, as corners."""
    logits, found = model.split(images)
    scores = logits.sigmoid()
    peaks = (scores == functional.max_pool2d(scores, 5, 1, 2)) & (scores > 0.05)
    result = []
    for at in range(len(images)):
        label, row, column = peaks[at].nonzero(as_tuple=True)
        x, y, width, height, cosine, sine = found[at, row, column].T
        center = torch.stack([column + 0.5 + x, row + 0.5 + y], 1)
        angle = torch.atan2(sine, cosine) / 2
        along = torch.stack([angle.cos(), angle.sin()], 1) * width.exp()[:, None] / 2
        across = torch.stack([-angle.sin(), angle.cos()], 1) * height.exp()[:, None] / 2
        corners = [center + a * along + b * across for a, b in ((-1, -1), (1, -1), (1, 1), (-1, 1))]
        corners_in_pixels = torch.stack(corners, 1) * STRIDE
        result.append({"corners": corners_in_pixels, "labels": label + 1, "scores": scores[at, label, row, column]})
    return result


def test_a_tiny_detector_of_rotated_boxes_learns_eight_pictures(tmp_path: Path) -> None:
    reader = da.CocoReader(tmp_path, draw(tmp_path, 8), rotated=True)
    torch.manual_seed(0)
    model = RotatedDetector(len(reader.class_names) - 1)
    steps = 120
    optimizer = torch.optim.AdamW(model.parameters(), 0.004)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.006, steps)
    recipe = [da.RandomHorizontalFlip(), da.Resize(SIZE), da.Normalize(*IMAGENET)]
    loader = da.Loader(reader, recipe, 8, device="cpu", seed=0)
    for _ in range(steps):
        (batch,) = loader
        loss = loss_of(model, batch)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    evaluator = da.CocoEvaluator(reader, kind="rotated")
    for batch in da.Loader(reader, recipe[1:], 4, device="cpu", train=False):
        evaluator.update(batch, detections(model.eval(), batch.images))
    metrics = evaluator.compute()
    print(metrics, loss.item())
    assert metrics.AP50 > 0.9, metrics
