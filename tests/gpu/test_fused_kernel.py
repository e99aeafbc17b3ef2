"""Triton's kernels against what torch, Pillow and DALI render. Without a GPU Triton interprets them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from painted_files import Folder, paint_files, same, settings_file, write_coco
from PIL import Image
from places import HELPERS
from seeds import slow

import detaug as da
from detaug.arrays import start_offsets
from detaug.bench.loaders import decoding_workers
from detaug.boxes.views import Views
from detaug.gpu.streams import HostCopier, StreamGuard, to_device
from detaug.loading.image_feeds import ImageFeed
from detaug.loading.settings import Settings, choose_settings, pixels_in_flight
from detaug.pipelines.decoding import inputs
from detaug.pipelines.graph import Node, Nodes
from detaug.recipes.fused_kernel import in_copied
from detaug.recipes.kernel_chain import chain_for, chain_of, triton_works
from detaug.recipes.recipe import Recipe
from detaug.samples.samples import Samples

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")
pytestmark = [pytest.mark.gpu if DEVICE.type == "cuda" else pytest.mark.slow, pytest.mark.usefixtures("few_programs")]
pytest.importorskip("triton")


Array = NDArray[np.uint8]


def photograph(seed: int, height: int, width: int) -> Array:
    """Smooth in places, noisy in others."""
    rng = np.random.default_rng(seed)
    coarse = Image.fromarray(rng.integers(0, 256, (7, 9, 3), np.uint8)).resize(
        (width, height), Image.Resampling.BICUBIC
    )
    noise = rng.normal(0, 20, (height, width, 1)) * (np.arange(width) > width / 2)[:, None]
    return np.asarray((np.asarray(coarse) + noise).clip(0, 255).round(), np.uint8)


IMAGES = [photograph(0, 45, 60), photograph(1, 45, 67), photograph(2, 44, 31)]


def by_kernel(images: Sequence[Array], *ops: da.Op, pad: int = 0, beside: int = 0) -> NDArray[np.float64]:
    """(N, 3, H, W) by the kernel, as `samples_by_kernel`."""
    return samples_by_kernel(da.batch(images).then(*ops), pad, beside)


def samples_by_kernel(samples: Samples, pad: int = 0, beside: int = 0) -> NDArray[np.float64]:
    """(N, 3, H, W) by the kernel, on a canvas `pad` larger than the largest image; `beside` lies around the sources."""
    images, kernels = samples.source_images, chain_of(Recipe(samples.ops), DEVICE)
    assert kernels
    between = np.full(1000, beside, np.uint8)
    memory = np.concatenate([between, *chain.from_iterable((image.ravel(), between) for image in images)])
    begin = start_offsets(np.array([1000 + image.size for image in images])) + 1000
    height, width = samples.plan.views.size.max(0).astype(int) + pad
    sizes = np.array([image.shape[:2] for image in images])
    planned = kernels.parameters(samples.plan.views, sizes, samples.plan.inputs)
    (parameters,) = kernels.to_device([planned], [begin])
    on_device = torch.from_numpy(memory).to(DEVICE)
    made = kernels.render(on_device, on_device[:0], parameters, (int(height), int(width)))
    assert made.dtype == (samples.ops[-1].torch_dtype if isinstance(samples.ops[-1], da.Normalize) else torch.uint8)
    return made.cpu().double().numpy()


SSD = [da.RandomZoomOut(), da.RandomIoUCrop(), da.RandomHorizontalFlip(), da.Resize((30, 40))]
RECIPES = {
    "larger": [da.RandomHorizontalFlip(p=1), da.RandomVerticalFlip(), da.Resize((120, 100))],
    "smaller": [da.Resize((17, 23))],
    "one pixel": [da.CenterCrop((7, 9)), da.Resize((1, 1))],
    "several sizes": [da.RandomHorizontalFlip(), da.Resize(50, max_size=80)],
    "resized crop": [da.RandomResizedCrop((40, 30)), da.RandomHorizontalFlip()],
    "crop of the resized image": da.presets.imagenet_evaluation(24, 32),
    "letterbox": [da.RandomHorizontalFlip(), da.Resize((64, 64), letterbox="center", fill=(10, 20.4, 255))],
    "ssd": SSD,
    "beside the image": [
        da.Pad((500, 0, 0, 0), fill=(9, 8, 7)),
        da.CenterCrop((10, 15), fill=(9, 8, 7)),
        da.Resize((5, 6)),
    ],
    "colour": [*SSD, da.RandomPhotometricDistort()],
    "bytes": [*SSD, da.ColorJitter(0.5), da.Normalize(dtype="uint8")],
    "mosaic": [
        da.RandomHorizontalFlip(),
        da.Resize((64, 52), letterbox="center"),
        da.Mosaic(p=0.7),
        da.ColorJitter(0.3),
    ],
    "mosaic with a rim": [
        da.RandomZoomOut(2.0, p=1, fill=(10, 20.4, 255)),
        da.Resize((30, 64), letterbox="top-left", fill=(10, 20.4, 255)),
        da.Mosaic(p=0.7, center=(0, 1)),
    ],
    "cutmix": [da.Resize((50, 60)), da.CutMix(p=1), da.Normalize(da.presets.IMAGENET_MEAN)],
    "normalised": [*SSD, da.ColorJitter(0.5), da.Normalize(da.presets.IMAGENET_MEAN, da.presets.IMAGENET_STD)],
    "turned": [da.RandomRotation(30), da.Resize((45, 60))],
    "turned and larger": [da.RandomAffine(20, (0.2, 0.2), (1.5, 3), 10), da.Resize((70, 50))],
    "turned and smaller": [da.RandomRotation(30, fill=(9, 8, 7)), da.Resize((17, 23)), da.Normalize()],
    "in perspective": [da.RandomPerspective(0.5, p=1), da.Resize((50, 60))],
    "a quarter": [da.RandomRotate90(p=1), da.Resize((40, 30))],
    "a quarter and larger": [da.RandomRotate90(p=1), da.Resize((90, 120))],
    "a quarter and letterbox": [da.RandomRotate90(p=1), da.Resize((90, 120), letterbox="center")],
    "some turned": [da.RandomApply([da.RandomRotation(90)], p=0.5), da.RandomHorizontalFlip(), da.Resize((20, 30))],
    "turned and cut off": [
        da.RandomRotation(30, fill=(9, 8, 7)),
        da.RandomZoomOut(p=1, fill=(9, 8, 7)),
        da.RandomRotation(30, fill=(9, 8, 7)),
        da.Resize((40, 50), letterbox="center", fill=(9, 8, 7)),
        da.ColorJitter(0.5),
    ],
    "turned several sizes": [da.RandomRotation(40), da.Resize(50, max_size=80), da.RandomPhotometricDistort()],
    "mosaic of rotated images": [da.RandomAffine(10, (0.1, 0.1), (0.5, 1.5)), da.Resize((40, 52)), da.Mosaic(p=0.7)],
    "float16": [da.Resize((60, 80)), da.Normalize(dtype="float16")],
    "channels last": [da.Resize((60, 80)), da.Normalize(da.presets.IMAGENET_MEAN, memory_format="channels_last")],
}


@cache
def made_of(name: str) -> NDArray[np.float64]:
    """Return what the kernel makes of a recipe: once for the tests that compare it."""
    return by_kernel(IMAGES, *RECIPES[name])


@pytest.mark.parametrize("name", RECIPES)
def test_it_paints_what_the_cpu_paints(name: str) -> None:
    """A source pixel may round to the other side, after which color and normalize move it by a few."""
    ops = RECIPES[name]
    expected, made = da.batch(IMAGES).then(*ops).images, made_of(name)
    unit = 1 if expected[0].dtype == np.uint8 else 1 / 255 / 0.224
    for image, ours in zip(expected, made, strict=True):
        image = image.transpose(2, 0, 1) if ops[-1].output_layout == "HWC" else image
        off = np.abs(image - ours[:, : image.shape[1], : image.shape[2]]) / unit
        assert off.max() < 3.5
        assert off.mean() < 0.4


WHOLE = da.Resize((45, 60))
"""Keeps the images as they are."""

DULL = [(photograph(seed, 45, 60) // 2 + 40).astype(np.uint8) for seed in range(4)]

PASSES = {
    "inverted": [WHOLE, da.RandomInvert()],
    "posterized": [WHOLE, da.RandomPosterize(3)],
    "solarized": [WHOLE, da.RandomSolarize(100)],
    "stretched": [WHOLE, da.RandomAutocontrast()],
    "equalized": [WHOLE, da.RandomEqualize()],
    "sharpened": [WHOLE, da.RandomAdjustSharpness(3)],
    "smoothed": [WHOLE, da.RandomAdjustSharpness(0.2)],
    "blurred": [WHOLE, da.GaussianBlur(sigma=(0.1, 4))],
    "blurred in a window": [WHOLE, da.GaussianBlur(5)],
    "brighter": [WHOLE, da.RandomGamma((0.3, 2))],
    "without a channel": [WHOLE, da.RandomInvert(), da.ChannelDropout((1, 2), 9)],
    "moved": [WHOLE, da.MotionBlur((3, 9))],
    "out of focus": [WHOLE, da.Defocus((0.4, 3.2))],
    "medians": [WHOLE, da.MedianBlur(3)],
    "medians of a larger square": [WHOLE, da.MedianBlur(5)],
    "coarse": [WHOLE, da.Downscale((0.1, 0.9))],
    "coarse in several sizes": [da.Resize(50), da.Downscale(p=1), da.MotionBlur(p=1)],
    "in rain": [WHOLE, da.RandomRain((-20, 20), 9, 2, (200.4, 100, 0), 5, 0.8, 1)],
    "in rain in several sizes": [da.Resize(50), da.RandomRain(p=1)],
    "in fog": [WHOLE, da.RandomFog((0.3, 1), 0.2)],
    "in fog in several sizes": [da.Resize(50), da.RandomFog(p=1)],
    "in shadow": [WHOLE, da.RandomShadow((0, 0, 1, 1), (1, 3), 6, (0.2, 0.7))],
    "in shadow in several sizes": [da.Resize(50), da.RandomShadow(p=1)],
    "bent": [WHOLE, da.OpticalDistortion((-0.3, 0.5), (9, 8, 7), p=0.7)],
    "bent in several sizes": [da.Resize(50), da.OpticalDistortion((-0.3, 0.5)), da.RandomInvert()],
    "bent as one of several": [WHOLE, da.RandomChoice([da.OpticalDistortion((0.2, 0.5)), da.RandomInvert(1)])],
    "elastic": [WHOLE, da.ElasticTransform(90, 6, (9, 8, 7), p=0.7)],
    "elastic in several sizes": [da.Resize(50), da.ElasticTransform(30, 4), da.RandomInvert()],
    "elastic or bent": [WHOLE, da.RandomChoice([da.OpticalDistortion((0.2, 0.5)), da.ElasticTransform(30, 4)])],
    "noise": [WHOLE, da.GaussianNoise(0.02, 0.2)],
    "salt": [WHOLE, da.SaltAndPepperNoise((0.1, 0.3))],
    "erased": [WHOLE, da.RandomErasing(value=(9.4, 8, 7))],
    "grid": [WHOLE, da.GridMask(p=0.7, size=(5, 12))],
    "mixed up": [WHOLE, da.MixUp(p=0.7)],
    "mixed up after another pass": [WHOLE, da.RandomInvert(), da.MixUp(p=0.7), da.RandomSolarize(100)],
    "two colors": [WHOLE, da.RandomGrayscale(0.5), da.ColorJitter(0.4, 0.4, 0.4, 0.1)],
    "colors after a pass": [WHOLE, da.RandomPosterize(3), da.ColorJitter(0.4, 0.4, 0.4, 0.1), da.RandomInvert()],
    "colors beside the fill": [
        da.RandomZoomOut(p=1), da.Resize((45, 60)), da.RandomInvert(p=1), da.RandomPhotometricDistort()
    ],
    "several at once": [WHOLE, da.RandomApply([da.RandomInvert(p=1), da.ColorJitter(0.4), da.GaussianBlur(p=1)])],
    "in random order": [WHOLE, da.RandomOrder([da.RandomErasing(p=1), da.RandomInvert(), da.RandomAutocontrast()])],
    "one of": [WHOLE, da.RandomChoice([da.GaussianNoise(p=1), da.RandomApply([da.RandomInvert(p=1)], p=0.5)])],
    "a policy": [da.RandAugment(3, 20), WHOLE],
    "a wide policy": [da.TrivialAugmentWide(), WHOLE],
    "normalised": [WHOLE, da.RandomPosterize(4), da.Normalize(da.presets.IMAGENET_MEAN, memory_format="channels_last")],
    "several sizes": [da.Resize(50), da.RandomAutocontrast(1), da.GaussianBlur(p=1), da.RandomEqualize(1)],
    "equalized in tiles": [WHOLE, da.CLAHE()],
    "equalized in tiles that fit": [WHOLE, da.CLAHE(0.3, (5, 6))],
    "equalized in tiles that fit one way": [WHOLE, da.CLAHE(40, (9, 7))],
    "equalized in one tile": [WHOLE, da.CLAHE(2.5, (1, 1))],
    "equalized after a pass": [WHOLE, da.RandomInvert(), da.RandomApply([da.CLAHE(p=1)]), da.RandomSolarize(100)],
}  # fmt: skip
"""Recipes with ops that the fused kernel does not know."""


def test_masks_are_pasted_as_on_the_cpu() -> None:
    rings = [[[8, 5, 40, 9, 30, 38]], [[3, 3, 50, 3, 50, 40]], [[2, 20, 30, 2, 28, 40]]]
    images, shapes = [photograph(at, 44, 70) for at in range(3)], da.Shapes.of_segmentations(rings)
    samples = da.batch(images, [[[2, 2, 60, 42]]] * 3, shapes=shapes)
    paste = da.CopyPaste(p=1, masks=True, max_hidden=1)
    for ops in ([da.Resize((50, 65)), paste], [da.Resize((30, 32)), da.RandomInvert(), paste, da.ColorJitter(0.5)]):
        after = samples.then(*ops)
        found, expected = samples_by_kernel(after), np.stack(after.images).transpose(0, 3, 1, 2).astype(float)
        assert np.abs(found - expected).mean() < 0.5, ops
        assert np.abs(expected - np.stack(samples.then(*ops[:-1]).images).transpose(0, 3, 1, 2)).mean() > 5


@pytest.mark.parametrize("name", PASSES)
def test_passes_paint_what_the_cpu_paints(name: str) -> None:
    """Where views are turned or resized, a few pixels round to the other side of a threshold."""
    ops = PASSES[name]
    images = DULL if WHOLE in ops else IMAGES
    expected, made = da.batch(images).then(*ops).images, by_kernel(images, *ops)
    if WHOLE in ops and not isinstance(ops[-1], da.Normalize):  # else nothing might have happened to both
        assert (made != np.stack(images).transpose(0, 3, 1, 2)).any((1, 2, 3)).sum() >= 2
    unit = 1 if expected[0].dtype == np.uint8 else 1 / 255
    moved = not isinstance(ops[0], da.Resize) or "several sizes" in name
    most = 3.5 if "colors" in name else 1.01  # a step of colors may cut off to the number below
    for image, ours in zip(expected, made, strict=True):
        image = image.transpose(2, 0, 1) if ops[-1].output_layout == "HWC" else image
        off = np.abs(image - ours[:, : image.shape[1], : image.shape[2]]) / unit
        assert (off.mean() < 2 and np.median(off) <= 1) if moved else off.max() < most


@pytest.mark.parametrize("tiles", [(8, 8), (3, 1), (45, 2)])
def test_clahe_is_dalis_bit_by_bit(tiles: tuple[int, int]) -> None:
    """On images of several sizes, some of which stay as they are; zeros stay beside them."""
    images = [photograph(seed, *size) for seed, size in enumerate([(37, 60), (50, 37), (37, 37), (37, 64)])]
    images.append(np.random.default_rng(0).integers(0, 256, (40, 37, 3), np.uint8))
    samples = da.batch(images).then(da.Resize(37), da.CLAHE(4.1, tiles, p=0.7))
    changed = [(image != before).any() for image, before in zip(samples.images, images, strict=True)]
    assert 1 < sum(changed) < 5
    for image, made in zip(samples.images, samples_by_kernel(samples, pad=3).transpose(0, 2, 3, 1), strict=True):
        height, width = image.shape[:2]
        assert (made[:height, :width] == image).all()
        assert not made[height:].any()
        assert not made[:, width:].any()


@pytest.mark.parametrize("size", [(1, 1), (2, 3), (5, 1)])
def test_clahe_of_images_smaller_than_its_tiles(size: tuple[int, int]) -> None:
    ops = [da.Resize(size), da.CLAHE(p=1)]
    image = photograph(0, *size)
    assert (by_kernel([image], *ops)[0].transpose(1, 2, 0) == da.batch([image]).then(*ops).images[0]).all()


def test_colours_go_to_the_kernel_as_floats(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton compiles a kernel anew for whole numbers that are 1 or multiples of 16."""
    colours: list[Any] = []
    monkeypatch.setattr("detaug.gpu.passes.launch", lambda *_, **more: colours.extend(more.values()))
    by_kernel(IMAGES[:1], WHOLE, da.RandomErasing(value=(1, 16, 7)))
    assert colours == [1, 16, 7]
    assert {type(each) for each in colours} == {float}


@settings(max_examples=15 if DEVICE.type == "cuda" else 5, deadline=None)
@given(st.integers(0, 10**6), st.integers(5, 60), st.integers(5, 60), st.booleans())
def test_any_window(seed: int, height: int, width: int, mirrored: bool) -> None:
    crop = [da.RandomIoUCrop(allow_no_crop=False, scaling=(0.02, 1)), da.RandomHorizontalFlip(p=float(mirrored))]
    image = photograph(seed % 7, 30 + seed % 20, 30 + seed % 31)
    samples = da.batch([image] * 2, [[[5, 5, 25, 25]]] * 2, seed=seed).then(*crop, da.Resize((height, width)))
    made = samples_by_kernel(samples).transpose(0, 2, 3, 1)
    assert np.abs(np.stack(samples.images) - made).max() <= 1


def test_an_image_of_its_own_size_stays_as_it_is() -> None:
    assert (by_kernel(IMAGES[:1], da.Resize((45, 60)))[0] == IMAGES[0].transpose(2, 0, 1)).all()
    mirrored = by_kernel(IMAGES[:1], da.RandomHorizontalFlip(p=1), da.Resize((45, 60)))[0]
    assert (mirrored == IMAGES[0][:, ::-1].transpose(2, 0, 1)).all()


@pytest.mark.parametrize("mean", [(0, 0, 0), da.presets.IMAGENET_MEAN])
def test_zeros_lie_beside_the_images_of_a_batch(mean: tuple[float, float, float]) -> None:
    made = by_kernel(IMAGES, da.Resize(40, max_size=60), da.Normalize(mean), pad=7)
    sizes = da.batch(IMAGES).then(da.Resize(40, max_size=60)).plan.views.size.astype(int)
    for image, (height, width) in zip(made, sizes, strict=True):
        assert not image[:, height:].any()
        assert not image[:, :, width:].any()
        assert image[:, :height, :width].any(0).mean() > 0.9


@pytest.mark.parametrize("name", ["ssd", "larger", "smaller", "beside the image", "turned", "turned and cut off"])
def test_nothing_that_lies_beside_an_image_is_read(name: str) -> None:
    assert (made_of(name) == by_kernel(IMAGES, *RECIPES[name], beside=255)).all()


@pytest.mark.parametrize("half", [0, 0.5])
def test_what_is_cut_off_does_not_show(half: float) -> None:
    """As if it were cropped first: at its border a smaller image would take something of what lies beside."""
    image = np.zeros((60, 60, 3), np.uint8)
    image[20:40, 20:40] = 200

    @dataclass(frozen=True)
    class Middle(da.GeometricOp):
        def move(self, views: Views, drawn: dict[str, Any]) -> Views:
            start, end = np.full((len(views), 2), 20 + half) / 60, np.full((len(views), 2), 40 - half) / 60
            return views.crop_to(start, end).clip()

    assert (by_kernel([image], Middle(), da.Resize((5, 5))) == 200).all()
    assert (da.batch([image]).then(Middle(), da.Resize((5, 5))).images[0] == 200).all()


class Black(da.ColorJitter):
    def dali_graph(self, image: Node, planned: Nodes, views: Views) -> Node:
        return image * 0


class Darker(da.RandomInvert):
    def change(self, image: Node, planned: Nodes) -> Node:
        return image * 0.5


@dataclass(frozen=True)
class BlurDown(da.GaussianBlur):
    def amounts(self, rng: np.random.Generator, n: int) -> dict[str, Any]:
        return {"sigma": np.tile([2.0, 0.1], (n, 1))}  # DALI takes one for each axis


@pytest.mark.parametrize(
    "ops",
    [
        [da.Resize((30, 30)), da.JPEG()],
        [da.Resize((30, 30)), da.GaussianBlur(), da.JPEG()],
        [da.Resize((30, 30)), da.ColorJitter(), da.Mosaic()],
        [da.Resize((30, 30)), Black(), da.Normalize()],
        [da.Resize((30, 30)), Darker(), da.Normalize()],
        [da.Resize((30, 30)), BlurDown(), da.Normalize()],
        [da.Resize((30, 30)), da.RandomApply([da.GaussianBlur(), Darker()])],
    ],
    ids=repr,
)
def test_other_recipes_are_dalis(ops: list[da.Op]) -> None:
    assert chain_of(Recipe(tuple(ops)), DEVICE) is None


@pytest.mark.parametrize("preset", ["ssd300", "retinanet", "yolo640", "evaluation"])
def test_presets_are_the_kernels(preset: str) -> None:
    size = [(300, 300)] if preset == "evaluation" else []
    kernels = chain_of(Recipe(tuple(getattr(da.presets, preset)(*size))), DEVICE)
    assert kernels
    assert not kernels.passes  # all in one kernel


def test_an_op_that_paints_nothing_does_not_matter() -> None:
    drops_boxes = da.SanitizeBoundingBoxes(min_size=5)
    ops = [da.Resize((17, 23)), drops_boxes, da.ColorJitter(0.5), drops_boxes, da.Normalize()]
    assert chain_of(Recipe(tuple(ops)), DEVICE)
    assert np.abs(np.stack(da.batch(IMAGES).then(*ops).images) - by_kernel(IMAGES, *ops)).max() < 3.5 / 255


def test_none_is_needed_on_the_cpu() -> None:
    assert chain_for(Recipe(tuple(da.presets.ssd300())), torch.device("cpu")) is None


@pytest.fixture
def untried(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has not tried Triton yet."""
    monkeypatch.setattr("detaug.recipes.kernel_chain._works_on", set())
    monkeypatch.setattr("detaug.recipes.kernel_chain._reported", set())


@pytest.mark.usefixtures("untried")
@pytest.mark.parametrize(
    "ops",
    [
        [da.Resize((30, 30))],
        [da.RandomRotation(20), da.Resize((30, 30))],
        [da.Resize((30, 30)), da.RandomApply([da.GaussianBlur(), da.ColorJitter()])],
    ],
    ids=["straight", "turned", "passes"],
)
def test_a_failure_of_triton_is_said_once_and_tried_again(ops: list[da.Op]) -> None:
    recipe = Recipe(tuple(ops))
    kernels = chain_of(recipe, DEVICE)
    assert kernels

    def fails(*_: object) -> None:
        raise RuntimeError("Failed to find C compiler")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("detaug.recipes.fused_kernel.FusedKernel.render", fails)
        with pytest.warns(UserWarning, match=r"Failed to find C compiler.*gcc and python3-dev.*tries it again"):
            assert not triton_works(kernels, recipe)
        assert not triton_works(kernels, recipe)  # a second warning would be an error
    assert triton_works(kernels, recipe)


@pytest.mark.usefixtures("untried")
def test_kernels_of_another_op_are_tried() -> None:
    """The histograms of equalisation, after a recipe of the same kind of pass has worked without them."""
    inverts, equalizes = (Recipe((da.Resize((30, 30)), op)) for op in (da.RandomInvert(), da.RandomEqualize()))
    kernels = [chain_of(recipe, DEVICE) for recipe in (inverts, equalizes)]
    assert kernels[0]
    assert kernels[1]
    assert triton_works(kernels[0], inverts)

    def fails(*_: object) -> None:
        raise RuntimeError("no space left on the disk")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("detaug.recipes.kernel_chain.KernelChain.render", fails)
        assert triton_works(kernels[0], inverts)
        with pytest.warns(UserWarning, match="no space left"):
            assert not triton_works(kernels[1], equalizes)


CACHE = """
import os, sys, warnings
import torch
import detaug as da
from detaug.recipes.kernel_chain import chain_for
from detaug.recipes.recipe import make_recipe

recipe = make_recipe(da.presets.ssd300())
for folder in ("/dev/null/cache", "/dev/null/cache", sys.argv[1]):
    os.environ["TRITON_CACHE_DIR"] = folder
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        print(chain_for(recipe, torch.device("cuda", 0)) is not None, len(caught))
"""


@pytest.mark.gpu
def test_a_cache_that_could_not_be_written_is_tried_again(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", CACHE, tmp_path], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == ["False 1", "False 0", "True 0"], done.stderr


GROUPS = """
import sys
from pathlib import Path
import numpy as np
import torch
import detaug as da
from detaug.recipes.kernel_chain import chain_of
from detaug.recipes.recipe import draws_from, example_view, make_recipe

noise = [da.GaussianNoise(p=1), da.SaltAndPepperNoise(p=1), da.RandomEqualize(p=1), da.CLAHE(p=1)]
recipe = make_recipe([da.Resize((64, 64)), *noise, da.RandomErasing(p=1), da.Normalize()])
device = torch.device("cuda", 0)
chain = chain_of(recipe, device)
plan = recipe.plan(example_view(), draws_from(np.random.default_rng(0)))
height, width = plan.views.source_bounds[0, 1, ::-1].astype(int)
parameters = chain.parameters(plan.views, np.array([[height, width]]), plan.inputs)
pixels = torch.zeros(3 * height * width, dtype=torch.uint8, device=device)
for on_device in chain.to_device([parameters] * 4, [np.zeros(1, np.int64)] * 4):
    chain.render(pixels, pixels, on_device, (64, 64))
    print(len(list(Path(sys.argv[1]).glob("*/*.cubin"))))
"""


@pytest.mark.gpu
def test_groups_take_the_same_kernels_wherever_their_parameters_are(tmp_path: Path) -> None:
    """Triton would compile them again, in the middle of an epoch, for a row that is not at a multiple of 16 bytes."""
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", GROUPS, tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    compiled = done.stdout.split()
    assert len(compiled) == 4, done.stderr
    assert int(compiled[0]) > 4
    assert len({*compiled}) == 1


# ------------------------------------------------------------------------------------------- in the loader


PAINTED = 21 if DEVICE.type == "cuda" else 12
"""Images on disk: of three sizes, more than fit into one group of batches. The interpreter takes a second for one."""
SOME = {"device": "200kB", "host": f"{15 * PAINTED}kB"}


@pytest.fixture
def painted(tmp_path: Path, few_programs: None, monkeypatch: pytest.MonkeyPatch) -> Folder:
    if DEVICE.type == "cpu":
        monkeypatch.setattr("detaug.gpu.streams.BLOCK", (256, 256))
    return paint_files(tmp_path, PAINTED)


@pytest.fixture
def everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """On the CPU too, a loader has its images painted by the kernel."""
    monkeypatch.setattr("detaug.loading.stages.chain_for", chain_of)


def close(a: da.Batch, b: da.Batch) -> bool:
    """The same but for the images, whose pixels may differ by a rounding, which color and normalize enlarge."""
    off = (a.images.double() - b.images.double()).abs() / (1 if a.images.dtype == torch.uint8 else 1 / 255 / 0.224)
    return same(a, replace(b, images=a.images)) and off.max() < 4 and off.mean() < 0.4


IN_LOADER = {
    "one size": [*SSD[:-1], da.Resize((150, 140)), da.RandomPhotometricDistort()],
    "several sizes": [da.RandomHorizontalFlip(), da.Resize(150, max_size=180), da.Normalize(da.presets.IMAGENET_MEAN)],
    "mosaic": [da.Resize((150, 140), letterbox="center"), da.Mosaic()],
    "channels last": [da.Resize((150, 150)), da.Normalize(memory_format="channels_last")],
    "passes": [da.Resize((150, 140)), da.RandomApply([da.RandomInvert()]), da.MixUp(), da.GaussianBlur()],
}
"""Nearly all of them larger than the source: Triton's interpreter takes its time for each of the pixels of a mean."""


@pytest.fixture
def both(request: pytest.FixtureRequest, painted: Folder, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that makes two loaders: one with the kernel, and the CPU's own."""

    def make(**options: Any) -> tuple[da.Loader, da.Loader]:
        reader, recipe = da.CocoReader(*painted), IN_LOADER[request.param]
        others = da.Loader(reader, recipe, 4, device="cpu", **options)
        monkeypatch.setattr("detaug.loading.stages.chain_for", chain_of)
        return da.Loader(reader, recipe, 4, device=DEVICE, **options), others

    return make


@pytest.mark.parametrize(
    ("both", "options"),
    [*((name, {}) for name in IN_LOADER), *((name, {"cache": SOME}) for name in ("several sizes", "mosaic", "passes"))],
    indirect=["both"],
)
def test_the_loaders_batches(both: Any, options: dict[str, Any]) -> None:
    """In the second epoch, with a cache, some images come from it and the others are decoded."""
    compare_loaders(both, options)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("both", "options"),
    [
        ("several sizes", {"cache": "device"}),
        ("passes", {"cache": "device"}),
        ("one size", {"train": False}),
        ("mosaic", {"train": False}),
        ("several sizes", {"pad_to_multiple": 7}),
        ("channels last", {"pad_to_multiple": 7}),
    ],
    indirect=["both"],
)
def test_the_loaders_batches_with_other_options(both: Any, options: dict[str, Any]) -> None:
    compare_loaders(both, options)


@pytest.mark.usefixtures("everywhere")
@pytest.mark.parametrize("cache", [None, SOME])
def test_views_are_rendered_from_the_same_decoded_images(painted: Folder, cache: Any) -> None:
    """Of one size and of several, with passes, bit for bit what the kernels make of each recipe alone."""
    reader, names = da.CocoReader(*painted), ("several sizes", "passes")
    recipes: Any = {name: IN_LOADER[name] for name in names}
    options: dict[str, Any] = {"device": DEVICE, "cache": cache, "return_params": True}
    views: da.Loader[Any] = da.Loader(reader, recipes, 4, **options)
    plain = {name: da.Loader(reader, IN_LOADER[name], 4, **options) for name in names}
    for _ in range(2 if cache else 1):
        for batches, first in zip(views, plain["several sizes"], strict=True):
            assert same(batches["several sizes"], first)
            assert same(plain["passes"].replay(batches["passes"]), batches["passes"])
    assert views.cached_images == plain["several sizes"].cached_images


def compare_loaders(both: Any, options: dict[str, Any]) -> None:
    ours, others = both(**options)
    for _ in range(2 if "cache" in options else 1):
        for a, b in zip(ours, others, strict=True):
            assert close(a.to("cpu"), b)
            assert a.images.stride() == b.images.stride()
    assert (0 < ours.cached_images < PAINTED) == (options.get("cache") == SOME)


@pytest.mark.parametrize(("side", "gigabytes"), [(500, 1.5), (4000, 8)])
def test_large_files_that_wait_decoded_leave_memory_free(side: int, gigabytes: float, tmp_path: Path) -> None:
    Image.new("RGB", (side, side)).save(tmp_path / "0.png")
    reader = da.CocoReader(*write_coco(tmp_path, [("0.png", (side, side), np.zeros((0, 4)))]))
    recipe = Recipe(tuple(da.presets.ssd300()))
    pixels = pixels_in_flight(reader, recipe, chain_of(recipe, DEVICE))
    how = choose_settings(torch.device("cuda", 0), 32, pixels)
    images = how.pipelines * how.depth * how.batches_per_group * 32
    assert images >= 128
    assert images * side**2 * 3 < gigabytes * 1e9


@pytest.mark.parametrize(("name", "together"), [("several sizes", 3), *slow(("one size", 2), ("mosaic", 3))])
def test_batches_made_together_are_those_made_alone(
    name: str, together: int, painted: Folder, everywhere: None
) -> None:
    reader = da.CocoReader(*painted)
    alone, joined = (
        da.Loader(reader, IN_LOADER[name], 4, device=DEVICE, settings=settings_file(painted, batches_per_group=each))
        for each in (1, together)
    )
    assert joined.settings.batches_per_group == together
    for _ in range(2 if DEVICE.type == "cuda" else 1):
        assert all(same(a, b) for a, b in zip(alone, joined, strict=True))


def test_decoded_images_lie_where_the_kernel_reads_them(painted: Folder) -> None:
    reader, rows = da.CocoReader(*painted), np.arange(7)
    (worker,) = decoding_workers(reader, 7, DEVICE, Settings(1, 1, depth=1))
    worker.start(inputs(reader, rows))
    (images,) = worker.finish()
    assert len({tuple(shape) for shape in images.shape()}) > 1
    feed = ImageFeed(reader, DEVICE, 1.0, None)
    memory, starts = feed.decoded_memory(rows, [images]), feed.find(rows).starts
    assert [image.data_ptr() for image in images] == (memory.data_ptr() + starts).tolist()


def test_the_kernel_finds_images_wherever_they_are() -> None:
    """In decoded memory, in copied memory, and at an address: each shows its own pixels."""
    kernels = chain_of(Recipe((da.Resize((45, 60)), da.Normalize(dtype="uint8"))), DEVICE)
    assert kernels
    images = [photograph(seed, 45, 60) for seed in range(3)]
    before = np.zeros(1000, np.uint8)
    decoded, copied, elsewhere = (torch.from_numpy(np.append(before, image)).to(DEVICE) for image in images)
    starts = np.array([1000, *in_copied(np.array([1000])), elsewhere.data_ptr() + 1000])
    plan = da.batch(images).then(da.Resize((45, 60))).plan
    planned = kernels.parameters(plan.views, np.tile([45, 60], (3, 1)), plan.inputs)
    (parameters,) = kernels.to_device([planned], [starts])
    made = kernels.render(decoded, copied, parameters, (45, 60))
    assert all((a.permute(1, 2, 0).cpu().numpy() == b).all() for a, b in zip(made, images, strict=True))


def test_copies_of_images_are_their_bytes() -> None:
    """Of several lengths, from pinned memory on a GPU, with the largest over many steps of the kernel."""
    lengths = np.array([256, 8 * 1024 * 40, 8, 4096 + 256])
    memory = torch.randint(0, 256, (int(lengths.sum()) + 2048,), dtype=torch.uint8)
    memory = memory.pin_memory() if DEVICE.type == "cuda" else memory
    begin = np.array([512, 1024, 0, 1024 + 8 * 1024 * 40])
    copies = HostCopier(DEVICE).copy(memory.data_ptr() + begin, lengths, StreamGuard(DEVICE))
    copies.guard.wait(copies.memory)
    expected = torch.cat([memory[at : at + length] for at, length in zip(begin, lengths, strict=True)])
    assert copies.memory.cpu().equal(expected)


@pytest.mark.parametrize("name", ["several sizes", "mosaic"])
@pytest.mark.parametrize("cache", [None, *slow("device")])
def test_a_batch_again(
    cache: Literal["device"] | None, name: str, painted: Folder, everywhere: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("detaug.loading.planner.BLOCK_IMAGES", 16)
    options: dict[str, Any] = {"device": DEVICE, "cache": cache, "return_params": True}
    loader = da.Loader(
        da.CocoReader(*painted), IN_LOADER[name], 4, settings=settings_file(painted, batches_per_group=2), **options
    )
    assert all(same(batch, loader.replay(batch)) for batch in loader)


@pytest.mark.parametrize(
    ("both", "train"),
    [*((name, True) for name in IN_LOADER), *slow(("several sizes", False), ("mosaic", False))],
    indirect=["both"],
)
def test_broken_files(both: Any, train: bool, painted: Folder) -> None:
    (painted[0] / "04.png").write_bytes(b"no image")
    Image.new("RGB", (10, 10)).save(painted[0] / "11.png")  # smaller than the JSON file says
    ours, others = both(train=train, on_error="skip", max_skipped=1.0)
    with pytest.warns(UserWarning, match="skipped"):
        assert all(close(a.to("cpu"), b) for a, b in zip(ours, others, strict=True))
    assert len(ours.skipped) == 2


@pytest.mark.gpu
@pytest.mark.parametrize("cache", [None, "device"])
def test_images_last_until_they_are_painted(painted: Folder, cache: Literal["device"] | None) -> None:
    """The current stream is behind: DALI decodes the next ones in the meantime, into memory that is free."""
    reader = da.CocoReader(*painted)
    first, second = (da.Loader(reader, IN_LOADER["one size"], 4, device="cuda", cache=cache) for _ in range(2))
    for _ in range(10):
        expected = list(first)
        torch.cuda.synchronize()
        late = []
        for batch in second:
            late.append(batch)
            torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
        assert all(same(a, b) for a, b in zip(expected, late, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("behind", [(0, 1, 2), *slow(((1, 2),))])
@pytest.mark.parametrize("recipe", ["one size", "turned"])
def test_batches_may_be_taken_on_other_streams(painted: Folder, recipe: str, behind: tuple[int, ...]) -> None:
    """What is taken on one that is behind lasts until it is read there, also where it is let go of at once."""
    ops = IN_LOADER.get(recipe, [da.RandomRotation(20), da.Resize((40, 50))])
    settings = settings_file(painted, batches_per_group=3)
    expected, taken = (da.Loader(da.CocoReader(*painted), ops, 4, device="cuda", settings=settings) for _ in range(2))
    streams, epochs = [torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()], 8
    copies, batches = [], chain.from_iterable(taken for _ in range(epochs))
    for at in range(epochs * len(taken)):
        with torch.cuda.stream(streams[at % 3]):
            batch = next(batches)
            if at % 3 in behind:
                torch.cuda._sleep(20_000_000)  # type: ignore[no-untyped-call]
            copies.append((batch.images + 0, batch.boxes + 0, batch.valid | False))
            del batch
    torch.cuda.synchronize()
    for a, (images, boxes, mask) in zip(chain.from_iterable(expected for _ in range(epochs)), copies, strict=True):
        assert torch.equal(a.images, images)
        assert torch.equal(a.boxes, boxes)
        assert torch.equal(a.valid, mask)


@pytest.mark.gpu
def test_what_goes_to_the_device_takes_one_core() -> None:
    """Not those that decode; torch's own copy takes all of them, for more than 32,768 numbers."""
    array = np.arange(200_000.0)
    assert np.array_equal(to_device(array, DEVICE).cpu().numpy(), array)
    others = time.process_time() - time.thread_time()
    for _ in range(100):
        to_device(array, DEVICE)
        time.sleep(0.001)
    torch.cuda.synchronize()
    assert time.process_time() - time.thread_time() - others < 0.05


def test_the_kernels_compile_for_gpus(tmp_path: Path) -> None:
    """For machines without a GPU: the interpreter takes code that the compiler refuses."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment |= {"TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, str(HELPERS / "compile_kernels.py"), "90", "75"]
    run = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr[-2000:]
    files = Path(da.__file__).with_name("gpu").glob("*.py")
    kernel = re.compile(r"^@(?:batch|mask|map)_kernel\ndef (\w+)", re.MULTILINE)
    found = {file.stem: kernel.findall(file.read_text()) for file in files}
    kernels = {f"detaug.gpu.{module}.{name}" for module, names in found.items() for name in names}
    assert {line.split()[0] for line in run.stdout.splitlines()} == kernels
    generations = [line.split()[-3] for line in run.stdout.splitlines()]
    assert (generations.count("90"), generations.count("75")) == (70, len(kernels))
