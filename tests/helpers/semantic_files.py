"""Images whose colors say their classes, with maps of them; and a model that can learn no more than that."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from detaug.training import Detector
from detaug.training.semantic_models import SemanticModel

NAMES = ("ground", "red", "blue")
COLORS = np.array([(90, 110, 90), (220, 40, 30), (30, 50, 210)], np.uint8)
IGNORED = 255


def painted(number: int, size: tuple[int, int] = (48, 64)) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    """Return an image (H, W, 3) with a red and a blue rectangle, and its map, whose left columns are ignored."""
    rng = np.random.default_rng(number)
    classes = np.zeros(size, np.uint8)
    for value in (1, 2):
        y, x = rng.integers(0, size[0] // 2), rng.integers(4, size[1] // 2)
        classes[y : y + rng.integers(10, 24), x : x + rng.integers(10, 30)] = value
    image = COLORS[classes] + rng.integers(-8, 9, (*size, 3))
    classes[:, :3] = IGNORED
    return image.clip(0, 255).astype(np.uint8), classes


def paint_folder(root: Path, count: int = 8, images: str = "images", maps: str = "masks", first: int = 0) -> Path:
    """Write PNG images and their maps into two folders below a root, half of them upright, and return the root."""
    for number in range(first, first + count):
        size = (48, 64) if number % 2 else (64, 48)
        for folder, pixels in zip((images, maps), painted(number, size), strict=True):
            (root / folder).mkdir(parents=True, exist_ok=True)
            Image.fromarray(pixels).save(root / folder / f"{number}.png")
    return root


def list_images(root: Path, images: str = "images", name: str = "all.json") -> Path:
    """Write a COCO JSON file of the images of a folder, without annotations, and return it."""
    rows = []
    for number, path in enumerate(sorted((root / images).glob("*.png")), 1):
        with Image.open(path) as image:
            rows.append({"id": number, "file_name": path.name, "width": image.width, "height": image.height})
    categories = [{"id": 1, "name": "thing"}]
    (root / name).write_text(json.dumps({"images": rows, "annotations": [], "categories": categories}))
    return root / name


class OfColors(nn.Module):
    """Scores of each pixel from its color alone, as torchvision's models return them."""

    def __init__(self, num_classes: int) -> None:
        super().__init__()
        self.classifier = nn.Conv2d(3, num_classes, 1)

    def forward(self, images: Tensor) -> dict[str, Tensor]:
        return {"out": self.classifier(images)}


def tiny_semantic(_: str, num_classes: int, **of_data: Any) -> Detector:
    return Detector(SemanticModel(OfColors(num_classes)))
