"""RandomResizedCrop, and flips and crops after Resize: boxes on their pixels, one resample, one size."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from painted import BLACK
from painted_files import Folder, same
from PIL import Image
from seeds import SLOW_ON_GPU, slow

import detaug as da
from detaug.recipes.recipe import make_recipe
from detaug.testing import assert_boxes_follow_pixels

CROP = da.RandomResizedCrop((150, 190), scale=(0.3, 1.0))
AFTER_RESIZE = [
    [CROP],
    [CROP, da.RandomHorizontalFlip()],
    [da.RandomZoomOut(2.0, fill=BLACK), CROP, da.RandomVerticalFlip()],
    [da.RandomRotation(20, fill=BLACK), CROP, da.RandomHorizontalFlip()],
    [da.Resize(200), da.CenterCrop(180, fill=BLACK)],
    [da.Resize(200), da.CenterCrop((260, 180), fill=BLACK)],
    [da.Resize((200, 260)), da.RandomCrop((170, 170), fill=BLACK), da.RandomHorizontalFlip()],
    [da.RandomRotation(20, fill=BLACK), da.Resize(220), da.CenterCrop(200, fill=BLACK)],
    [da.Resize((200, 200), letterbox="center", fill=BLACK), da.CenterCrop(190, fill=BLACK)],
    [da.Resize([(200, 200), (256, 160)]), da.RandomHorizontalFlip(), da.RandomVerticalFlip()],
]


@pytest.mark.parametrize("ops", AFTER_RESIZE, ids=str)
@pytest.mark.parametrize("pipeline", [False, *slow(True)], ids=["eager", "pipeline"])
@SLOW_ON_GPU
def test_boxes_stay_on_their_pixels(ops: list[da.Op], pipeline: bool, device: str) -> None:
    assert assert_boxes_follow_pixels(ops, images=16, pipeline=pipeline, device=device) >= 12


def detail(height: int = 375, width: int = 500) -> np.ndarray:
    noise = np.random.default_rng(0).integers(0, 256, (height // 5, width // 5, 3), np.uint8)
    return np.asarray(Image.fromarray(noise).resize((width, height), Image.Resampling.BICUBIC))


@pytest.mark.parametrize(("size", "resize"), [(224, 256), ((64, 100), (128, 160)), (97, 98)])
@pytest.mark.parametrize("shape", [(375, 500), (640, 480), (256, 256), (101, 99)])
def test_a_crop_of_the_resized_image_is_cut_out_of_it(size: Any, resize: Any, shape: tuple[int, int]) -> None:
    """One resample, and the pixels of two steps: but for its rim, where a filter meets the window's end."""
    samples = da.batch([detail(*shape)], [np.array([[0.25, 0.5, 0.95, 0.7]]) * np.tile(shape[::-1], 2)])
    (whole,), cropped = da.Resize(resize)(samples).images, samples.then(da.Resize(resize), da.CenterCrop(size))
    height, width = (size, size) if isinstance(size, int) else size
    top, left = (round((side - part) / 2) for side, part in zip(whole.shape, (height, width), strict=False))
    expected = whole[top : top + height, left : left + width].astype(float)
    off = np.abs(cropped.images[0] - expected)
    assert off.shape == (height, width, 3)
    assert off.mean() < 0.5
    assert off[4:-4, 4:-4].max() <= 1
    boxes = (da.Resize(resize)(samples).boxes[0] - [left, top, left, top]).clip(0, [width, height, width, height])
    assert np.abs(cropped.boxes[0] - boxes).max() < 1e-4


def test_a_flip_after_the_resized_crop_is_that_flip() -> None:
    samples = da.batch([detail()] * 6, [[[10, 20, 400, 300]]] * 6)
    crop = da.RandomResizedCrop((60, 80), scale=(0.5, 1.0))
    plain, flipped = crop(samples), samples.then(crop, da.RandomHorizontalFlip(p=1))
    for one, other, boxes, mirrored in zip(plain.images, flipped.images, plain.boxes, flipped.boxes, strict=True):
        assert np.abs(one[:, ::-1].astype(int) - other).max() <= 1
        assert np.abs(boxes[:, [2, 1, 0, 3]] * [-1, 1, -1, 1] + [80, 0, 80, 0] - mirrored).max() < 1e-9


@pytest.mark.parametrize(
    ("scale", "size", "window"),
    [
        ((1.2, 1.25), (60, 80), (0, 0, 80, 60)),  # an area above 1 never fits: the whole image has a ratio of 4/3
        ((1.2, 1.25), (60, 200), (60, 0, 140, 60)),  # too wide: the middle, with a ratio of 4/3
        ((1.2, 1.25), (200, 61), (0, 59, 61, 140)),  # too high: with 3/4, 81.33 rows
        ((1.0, 1.0), (90, 200), (40, 0, 160, 90)),  # no window of the whole area fits
    ],
)
def test_where_no_window_fits(scale: tuple[float, float], size: tuple[int, int], window: tuple[int, ...]) -> None:
    samples = da.RandomResizedCrop(50, scale)(da.batch([np.zeros((*size, 3), np.uint8)] * 3))
    seen = samples.params[0]["window"] * np.tile(size[::-1], 2)
    assert np.abs(seen - window).max() < 1e-9


def test_windows_are_whole_pixels_within_the_image() -> None:
    size = (75, 100)
    samples = da.RandomResizedCrop(50, (0.01, 1.25), (0.2, 5.0))(da.batch([np.zeros((*size, 3), np.uint8)] * 2000))
    windows = samples.params[0]["window"] * np.tile(size[::-1], 2)
    assert np.abs(windows - windows.round()).max() < 1e-9
    assert windows.min() >= 0
    assert (windows <= np.tile(size[::-1], 2) + 1e-9).all()
    assert (windows[:, 2:] - windows[:, :2] >= 1 - 1e-9).all()


@pytest.mark.parametrize(
    ("ops", "uniform", "one_size"),
    [
        ([da.Resize(256), da.CenterCrop(224)], True, True),
        ([da.Resize([(9, 9), (8, 8)]), da.RandomCrop(5)], True, True),
        ([da.Resize([(9, 9), (8, 8)]), da.RandomHorizontalFlip()], True, False),
        ([da.Resize(256), da.RandomHorizontalFlip()], False, False),
        ([da.CenterCrop(224), da.Resize(256)], False, False),
        ([da.RandomResizedCrop(9), da.RandomVerticalFlip()], True, True),
    ],
    ids=str,
)
def test_whether_all_images_have_one_size(ops: list[da.Op], uniform: bool, one_size: bool) -> None:
    recipe = make_recipe(ops)
    assert (recipe.uniform, recipe.one_size) == (uniform, one_size)


def test_images_may_be_mixed_after_a_crop_to_one_size() -> None:
    make_recipe([da.Resize(256), da.CenterCrop(224), da.MixUp()])
    with pytest.raises(da.InputError, match=r"MixUp .* needs images of one size"):
        make_recipe([da.Resize(256), da.RandomHorizontalFlip(), da.MixUp()])


def test_a_letterbox_and_a_crop_have_one_fill() -> None:
    with pytest.raises(da.InputError, match="all fills of a recipe must be the same"):
        make_recipe([da.Resize((9, 9), letterbox="center", fill=(1, 2, 3)), da.CenterCrop(8)])


@pytest.mark.parametrize("ops", [da.presets.imagenet(64), da.presets.imagenet_evaluation(64, 73)], ids=str)
def test_presets_in_a_loader(ops: list[da.Op], painted: Folder, device: str) -> None:
    loaders = [da.Loader(da.CocoReader(*painted), ops, 4, device=device, seed=3) for _ in range(2)]
    for one, other in zip(*loaders, strict=True):
        assert one.images.shape[1:] == (3, 64, 64)
        assert one.images.dtype == torch.float32
        assert same(one, other)


def test_the_auto_augments_pixels_come_after_the_crop(device: str) -> None:
    """Its geometry moves the view before Resize; its color must see the cropped image."""
    samples = da.batch([detail()] * 8, device=device)
    ops = [da.RandAugment(), da.Resize(80), da.CenterCrop(64)]
    assert {image.shape for image in samples.then(*ops, da.Normalize()).images} == {(3, 64, 64)}


def test_a_recipe_with_a_crop_after_resize_is_saved(tmp_path: Path) -> None:
    da.save_recipe(da.presets.imagenet_evaluation(), tmp_path / "recipe.yaml")
    assert da.load_recipe(tmp_path / "recipe.yaml") == da.presets.imagenet_evaluation()
    da.save_recipe(da.presets.imagenet(), tmp_path / "recipe.yaml")
    assert da.load_recipe(tmp_path / "recipe.yaml") == da.presets.imagenet()
