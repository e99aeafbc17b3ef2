"""Render ops of Albumentations and torchvision, and the recipes that they are imported as, and measure both alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count
from typing import Any

import numpy as np
import torch
from imported import seed_apart

import detaug as da

Image = np.ndarray
Measured = dict[str, np.ndarray]
"""Each quantity of n images, (n,)."""

HEIGHT, WIDTH = 96, 128
BOX = [40.0, 30.0, 80.0, 70.0]


def photograph() -> Image:
    """Return waves of many lengths and colors, (96, 128, 3): mean 110, saturation 95, detail as in an image."""
    rng = np.random.default_rng(5)
    y, x = np.mgrid[:HEIGHT, :WIDTH].astype(float)
    image = np.zeros((HEIGHT, WIDTH, 3))
    for _ in range(60):
        wave = rng.normal(0, 0.35, 2) * rng.uniform(0.05, 1)
        height = rng.uniform(0.2, 1) / (0.1 + np.hypot(*wave))
        image += (np.sin(wave[0] * x + wave[1] * y + rng.uniform(0, 6.3)) * height)[..., None] * rng.uniform(0.4, 1, 3)
    image = (image - image.mean((0, 1))) / image.std((0, 1)) @ [[40, 18, 2], [18, 34, 16], [2, 16, 40]]
    return (image / image.std() * 52 + [130, 112, 88]).clip(0, 255).round().astype(np.uint8)


def coordinates() -> Image:
    """Return (96, 128, 3): the position of a pixel in red and green, and blue that tells it from a fill."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    return np.stack([x + 32, y + 64, np.full_like(x, 255)], axis=2).astype(np.uint8)


# ------------------------------------------------------------------------------------------- rendering


def original(pipeline: Any, image: Image, n: int, *, boxes: bool) -> list[Image]:
    """Return n images after a pipeline of one of the libraries. `boxes`: with BOX, which some crops look at."""
    if type(pipeline).__module__.startswith("albumentations"):
        import albumentations as A

        params = A.BboxParams(format="pascal_voc", label_fields=["labels"]) if boxes else None
        given = {"bboxes": [BOX], "labels": [1]} if boxes else {}
        run = A.Compose([pipeline], params)
        seed_apart(run, count(3))
        return [run(image=image, **given)["image"] for _ in range(n)]
    from torchvision import tv_tensors

    torch.manual_seed(3)
    tensor = tv_tensors.Image(torch.from_numpy(image.transpose(2, 0, 1).copy()))
    box = tv_tensors.BoundingBoxes(torch.tensor([BOX]), format="XYXY", canvas_size=(HEIGHT, WIDTH))
    rest = (box, torch.tensor([1])) if boxes else ()
    outputs = [pipeline(tensor, *rest) for _ in range(n)]
    return [(output[0] if boxes else output).numpy().transpose(1, 2, 0) for output in outputs]


def imported(recipe: da.ImportedRecipe, image: Image, n: int) -> list[Image]:
    """Return n images after a recipe. What is drawn once for a batch is drawn for each image."""
    if not any(op.one_draw_a_batch and "RandomShortestSize" in repr(op) for op in recipe.ops):
        return da.batch([image] * n, [[BOX]] * n, seed=1).then(*recipe.ops).images
    return [da.batch([image], [[BOX]], seed=seed).then(*recipe.ops).images[0] for seed in range(n)]


# ------------------------------------------------------------------------------------------- measuring


def measure_pixels(images: Sequence[Image], source: Image) -> Measured:
    """Measure colors, contrast, detail and change, without the outermost pixels, which filters treat in many ways."""
    inner = [image[3:-3, 3:-3].astype(float) for image in images]
    before = source[3:-3, 3:-3].astype(float)
    chroma = _chroma(before).conj()
    turned = [np.angle((_chroma(image) * chroma).sum()) for image in inner]
    return {
        **{
            name: np.array([image[..., at].mean() for image in inner])
            for at, name in enumerate(("red", "green", "blue"))
        },
        "contrast": np.array([image.std() for image in inner]),
        "change": np.array([np.sqrt(((image - before) ** 2).mean()) for image in inner]),
        "detail along x": np.array([np.abs(np.diff(image, axis=1)).mean() for image in inner]),
        "detail along y": np.array([np.abs(np.diff(image, axis=0)).mean() for image in inner]),
        "saturation": np.array([(_largest(image) + _largest(-image)).mean() for image in inner]),
        "hue, sine": np.sin(turned) * 100,
        "hue, cosine": np.cos(turned) * 100,
    }


def _largest(image: Image) -> Image:
    """Return the largest of the channels of each pixel; `image.max(axis=2)` takes much longer."""
    return np.maximum(np.maximum(image[..., 0], image[..., 1]), image[..., 2])


def _chroma(image: Image) -> Any:
    return image @ [1, -0.5, -0.5] + 1j * image @ [0, np.sqrt(0.75), -np.sqrt(0.75)]


def measure_geometry(images: Sequence[Image]) -> Measured:
    """Measure sizes and the map from output to source pixels, about the centers, of images of `coordinates`."""
    maps = [_map(image.astype(float)) for image in images]
    return {name: np.array([each[name] for each in maps]) for name in maps[0]}


def _map(image: Image) -> Mapping[str, float]:
    shown = image[..., 2] > 250
    y, x = np.nonzero(shown)
    height, width = shown.shape
    output = np.stack([x + 0.5 - width / 2, y + 0.5 - height / 2, np.ones(len(x))], axis=1)
    source = image[shown][:, :2] - [32, 64] + 0.5 - [WIDTH / 2, HEIGHT / 2]
    fit = np.linalg.lstsq(output.T @ output, output.T @ source, rcond=None)[0]  # the normal equations
    names = ("x of x", "y of x", "x of y", "y of y", "shift of x", "shift of y")
    return {
        "height": height,
        "width": width,
        "shown": shown.mean() * 100,
        **dict(zip(names, (fit * [[100], [100], [1]]).ravel(), strict=True)),
        "area": np.linalg.det(fit[:2]) * 100,
        "bend": np.sqrt(((output @ fit - source) ** 2).mean()),
    }


ROUNDING = {"height": 1.0, "width": 1.0, "shift of x": 1.0, "shift of y": 1.0, "bend": 0.1, "change": 0.15}
ROUNDING |= {"detail along x": 0.1, "detail along y": 0.1}
"""How far a quantity may be off for reasons of rounding and interpolation; 1.5 for the others, in 255 or percent."""


def differences(theirs: Measured, ours: Measured, unchanged: Measured, bound: float) -> list[str]:
    """Return the quantities of which mean or spread differ by more than `bound` of their effect.

    The effect is the root mean square of the change of the quantity, in the images in which it is smaller. Chance is
    allowed for with 3 standard errors, and `ROUNDING`.
    """
    wrong = []
    for name, pair in {name: (theirs[name], ours[name]) for name in theirs}.items():
        effect = min(np.sqrt(((values - unchanged[name]) ** 2).mean()) for values in pair)
        for kind, number, error in (("mean", np.mean, _error_of_mean), ("spread", np.std, _error_of_spread)):
            one, other = map(number, pair)
            if abs(one - other) > bound * effect + ROUNDING.get(name, 1.5) + 3 * np.hypot(*map(error, pair)):
                wrong.append(f"{kind} of {name}: {one:.2f}, imported {other:.2f}")
    return wrong


def _error_of_mean(values: np.ndarray) -> float:
    return float(values.std() / np.sqrt(len(values)))


def _error_of_spread(values: np.ndarray) -> float:
    """Return the standard error of a standard deviation, from the fourth moment, m4: sqrt((m4 / s^2 - s^2) / 4 n)."""
    centred = values - values.mean()
    variance = max((centred**2).mean(), 1e-9)
    return float(np.sqrt(max((centred**4).mean() / variance - variance, 0) / (4 * len(values))))
