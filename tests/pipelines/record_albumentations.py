"""Record what Albumentations makes of an image and its boxes, for tests/test_import_recipe.py.

Run in an environment of its own, with `pip install albumentations==2.0.8`; writes albumentations.json beside it.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

CASES = {
    "horizontal flip": "[A.HorizontalFlip(p=1)]",
    "vertical flip": "[A.VerticalFlip(p=1)]",
    "transpose": "[A.Transpose(p=1)]",
    "resize": "[A.Resize(96, 160)]",
    "shorter side": "[A.SmallestMaxSize(max_size=80)]",
    "letterbox": "[A.LongestMaxSize(max_size=160), A.PadIfNeeded(min_height=160, min_width=160)]",
    "letterbox at the top left": "[A.LongestMaxSize(160), A.PadIfNeeded(160, 160, position='top_left')]",
    "larger canvas": "[A.LongestMaxSize(max_size=160), A.PadIfNeeded(min_height=200, min_width=180)]",
    "centre crop": "[A.CenterCrop(height=64, width=100)]",
    "crop after resize": "[A.Resize(128, 192), A.CenterCrop(height=100, width=100)]",
    "colour before the crop": "[A.ToGray(p=1), A.Resize(128, 192), A.CenterCrop(height=100, width=100)]",
    "rotation": "[A.Rotate(limit=(30, 30), p=1)]",
    "rotation of ellipses": "[A.Rotate(limit=(30, 30), rotate_method='ellipse', p=1)]",
    "scale and rotate": "[A.Affine(scale=1.2, rotate=15, translate_percent={'x': 0.0, 'y': 0.0}, p=1)]",
    "affine": "[A.Affine(rotate=(20, 20), scale=(0.9, 0.9), keep_ratio=True, p=1)]",
    "shear along x": "[A.Affine(shear={'x': (10, 10), 'y': (0, 0)}, p=1)]",
    "shear along y": "[A.Affine(shear={'x': (0, 0), 'y': (10, 10)}, p=1)]",
    "grey": "[A.ToGray(p=1)]",
    "invert": "[A.InvertImg(p=1)]",
    "posterize": "[A.Posterize(num_bits=3, p=1)]",
    "solarize": "[A.Solarize(threshold_range=(0.5, 0.5), p=1)]",
    "equalize": "[A.Equalize(p=1)]",
    "blur": "[A.GaussianBlur(blur_limit=(5, 5), sigma_limit=(1.2, 1.2), p=1)]",
    "contrast": "[A.RandomBrightnessContrast(brightness_limit=(0, 0), contrast_limit=(0.3, 0.3), p=1)]",
    "sharpen": "[A.Sharpen(alpha=(0.3, 0.3), lightness=(1.0, 1.0), p=1)]",
    "group": "[A.Sequential([A.HorizontalFlip(p=1), A.Sequential([A.InvertImg(p=1)], p=1)], p=1)]",
    "one of one": "[A.OneOf([A.VerticalFlip(p=0.3)], p=1)]",
    "normalize": "[A.Normalize()]",
    "normalize floats": "[A.ToFloat(max_value=255), A.Normalize((0.5,) * 3, (0.25,) * 3, max_pixel_value=1.0)]",
}
"""Pipelines without chance."""

BOXES = [[20, 10, 90, 60], [100, 40, 180, 120], [30, 70, 50, 110]]
PROBES = [(0.3, 0.3), (0.5, 0.5), (0.6, 0.45)]
"""Where pixels are compared: (y, x), as shares of the size."""


def smooth_image() -> Any:
    """Return (128, 192, 3) uint8, in which each pixel differs little from the next."""
    y, x = np.mgrid[:128, :192]
    waves = [128 + 90 * np.sin(x / 31) * np.cos(y / 23), 40 + x, 200 - y]
    return np.stack(waves, axis=2).round().astype(np.uint8)


def probe(image: Any) -> list[list[float]]:
    """Return the colours of an image (H, W, 3) at PROBES."""
    height, width = image.shape[:2]
    return [image[int(y * height), int(x * width)].astype(float).round(4).tolist() for y, x in PROBES]


def record() -> dict[str, Any]:
    """Run each pipeline."""
    import albumentations as A

    found = {}
    for name, ops in CASES.items():
        boxes = A.BboxParams(format="pascal_voc", label_fields=["labels"])
        result = A.Compose(eval(ops), bbox_params=boxes)(image=smooth_image(), bboxes=BOXES, labels=[1, 2, 3])
        image = result["image"]
        sides = np.array(result["bboxes"], float).round(3).tolist()
        found[name] = {"size": image.shape[:2], "boxes": sides, "colors": probe(image)}
    return {"version": A.__version__, "found": found}


if __name__ == "__main__":
    Path(__file__).with_name("albumentations.json").write_text(json.dumps(record(), indent=1) + "\n")
