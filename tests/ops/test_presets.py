"""Recipes for problems: where they put boxes, masks and points, and what they must never do."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import detaug as da
from detaug.boxes.shapes import corners_of_boxes
from detaug.recipes.kernel_chain import chain_of
from detaug.recipes.recipe import Recipe
from detaug.testing import (
    assert_boxes_follow_pixels,
    assert_masks_follow_pixels,
    assert_points_follow_pixels,
    paint,
)

PROBLEMS = ("aerial", "small objects", "text", "night", "industrial")
SIZE = (96, 128)


def recipe_for(problem: Any, *, mixed: bool = False) -> list[da.Op]:
    """Return the recipe with black fills, beside which painted shapes are seen, and without mosaics."""
    ops = [op for op in da.presets.for_problem(problem, SIZE) if mixed or not op.mixes]
    return [replace(op, fill=(0, 0, 0)) if hasattr(op, "fill") else op for op in ops]


def geometry_of(problem: str) -> list[da.Op]:
    plain = ("pixels", da.Normalize.stage)
    return [op for op in recipe_for(problem) if op.stage not in plain or isinstance(op, da.SanitizeBoundingBoxes)]


@pytest.mark.parametrize("problem", PROBLEMS)
def test_boxes_masks_and_points_follow_the_pixels(problem: str) -> None:
    assert assert_boxes_follow_pixels(recipe_for(problem), size=SIZE, images=2, min_boxes=3)
    assert assert_masks_follow_pixels(geometry_of(problem), size=SIZE, images=2, min_masks=3)
    assert assert_points_follow_pixels(geometry_of(problem), size=SIZE, images=2, min_points=3)


@pytest.mark.parametrize("problem", PROBLEMS)
def test_rotated_boxes_are_white_inside_and_black_outside(problem: str) -> None:
    painted, labels = paint(SIZE, 4, 24, 1), [[1, 2, 3]] * 4
    shapes = da.Shapes(corners=corners_of_boxes(np.concatenate(painted.boxes).astype(float)))
    after = da.batch(painted.images, painted.boxes, labels, shapes=shapes, seed=3).then(*geometry_of(problem))
    white = [np.full_like(image, 255) for image in painted.images]
    shown = da.batch(white, painted.boxes, labels, seed=3).then(*geometry_of(problem)).images
    seen = 0
    for at, rows in enumerate(after.corners):
        for label, own in zip(after.labels[at], rows, strict=True):
            middle = own.mean(0)
            for scale, value in ((0.8, 255), (1.25, 0)):
                for x, y in np.floor(middle + scale * (own - middle)).astype(int):
                    if 0 <= x < SIZE[1] and 0 <= y < SIZE[0] and shown[at][y, x].min() == 255:
                        assert abs(int(after.images[at][y, x, label - 1]) - value) < 128
                        seen += 1
    assert seen > 20


def test_small_objects_are_mixed_and_lie_in_their_boxes() -> None:
    painted = paint(SIZE, 8, 24, 2)
    recipe = recipe_for("small objects", mixed=True)
    after = da.batch(painted.images, painted.boxes, [[1, 2, 3]] * 8, seed=1).then(*recipe[:-2])
    assert [type(op) for op in recipe[-2:]] == [da.RandomHSV, da.Normalize]
    for image, boxes, labels in zip(after.images, after.boxes, after.labels, strict=True):
        for (x0, y0, x1, y1), label in zip(boxes, labels, strict=True):
            inside = image[int(np.ceil(y0)) : int(y1), int(np.ceil(x0)) : int(x1), label - 1]
            assert inside.mean() > 225
    assert max(map(len, after.labels)) > 3  # of several images


@pytest.mark.parametrize("problem", PROBLEMS)
def test_tritons_kernels_render_them(problem: Any) -> None:
    pytest.importorskip("triton")
    assert chain_of(Recipe(tuple(da.presets.for_problem(problem))), torch.device("cpu"))


# ------------------------------------------------------------------------------- what they never do


def linear_maps(problem: str, n: int = 64) -> Any:
    """Return (n, 2, 2): source pixels -> output pixels of as large an image, near the middle of the image."""
    samples = da.batch([np.zeros((*SIZE, 3), np.uint8)] * n, boxes=[[[60, 44, 68, 52]]] * n)
    matrix = samples.then(*geometry_of(problem)).matrix
    matrix = np.concatenate([matrix, np.tile([[[0.0, 0.0, 1.0]]], (n, 1, 1))], axis=1)[:, :3]
    middle = np.array([64.0, 48.0, 1.0])
    at = matrix @ middle
    slope = matrix[:, :2, :2] - (at[:, :2] / at[:, 2:])[..., None] * matrix[:, 2:, :2]
    return slope / at[:, 2, None, None]


def test_text_and_parts_are_never_mirrored_and_stay_upright() -> None:
    for problem, most in (("text", 25), ("industrial", 2.01)):
        maps = linear_maps(problem)
        angles = np.degrees(np.arctan2(maps[:, 1, 0], maps[:, 0, 0]))
        assert (np.linalg.det(maps) > 0).all()
        assert most / 3 < np.abs(angles).max() <= most


def test_what_flies_sees_everything_at_any_angle() -> None:
    maps = linear_maps("aerial", 128)
    scale = np.sqrt(np.abs(np.linalg.det(maps)))
    assert 0.5 - 1e-6 <= scale.min() < 0.7
    assert 1.3 < scale.max() <= 1.5 + 1e-6
    angles = np.degrees(np.arctan2(maps[:, 1, 0], maps[:, 0, 0])) % 360
    assert np.histogram(angles, 8, (0, 360))[0].min() > 2
    assert 0.3 < (np.linalg.det(maps) < 0).mean() < 0.7


def test_small_objects_never_become_smaller() -> None:
    scale = np.sqrt(np.abs(np.linalg.det(linear_maps("small objects"))))
    assert scale.min() > 0.99
    assert 1.5 < scale.max() < 4


def test_no_text_is_cut_by_a_crop() -> None:
    ops = geometry_of("text")
    assert isinstance(ops[2], da.RandomBoxSafeCrop)
    samples = da.batch([np.zeros((*SIZE, 3), np.uint8)] * 32, boxes=[[[50, 40, 60, 44], [70, 50, 76, 60]]] * 32)
    after = samples.then(*ops)
    assert [len(each) for each in after.boxes] == [2] * 32
    whole = np.concatenate(after.boxes)
    assert ((whole >= -1e-6) & (whole <= np.tile(SIZE[::-1], 2) + 1e-6)).all()
    assert after.plan.views.visible[after.plan.views.labels >= 0].min() > 1 - 1e-6


def test_night_is_darker_and_parts_keep_their_light() -> None:
    gray = [np.full((24, 32, 3), (150, 120, 90), np.uint8)] * 48
    for problem, low, high in (("night", 0.4, 0.85), ("industrial", 0.9, 1.1)):
        pixels = [op for op in recipe_for(problem) if op.stage == "pixels"][:-1]
        after = da.batch(gray).then(da.Resize((24, 32)), *pixels).images
        assert low < np.mean(after) / 120 < high


# ----------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_recipe_depends_on_its_arguments_alone(problem: Any, tmp_path: Path) -> None:
    recipe = da.presets.for_problem(problem, (320, 480), da.presets.IMAGENET_MEAN, da.presets.IMAGENET_STD)
    assert recipe[-1] == da.Normalize(da.presets.IMAGENET_MEAN, da.presets.IMAGENET_STD)
    assert recipe == da.presets.for_problem(problem, (320, 480), da.presets.IMAGENET_MEAN, da.presets.IMAGENET_STD)
    da.save_recipe(recipe, tmp_path / "recipe.yaml")
    assert da.load_recipe(tmp_path / "recipe.yaml") == recipe


def test_all_problems_have_a_recipe_of_their_own() -> None:
    recipes = [da.presets.for_problem(problem) for problem in PROBLEMS]  # type: ignore[arg-type]
    assert all(one != other for one, other in product(recipes, recipes) if one is not other)


@pytest.mark.parametrize("problem", ["arial", "", None, ["text"]])
def test_an_unknown_problem_is_an_error_that_lists_the_names(problem: Any) -> None:
    with pytest.raises(
        da.InputError, match=r"^problem must be one of 'aerial', 'small objects', 'text', 'night', 'industrial', got "
    ):
        da.presets.for_problem(problem)


@pytest.mark.parametrize("size", [640, (640,), (0, 640), (640.5, 640), "640x640"])
def test_another_size_is_an_error(size: Any) -> None:
    with pytest.raises(da.InputError, match=r"^size must be \(height, width\) in whole pixels, got "):
        da.presets.for_problem("text", size)


# ------------------------------------------------------------------------------------- DETRs


def geometry(ops: Any) -> list[da.Op]:
    return [op for op in ops if not isinstance(op, da.Normalize | da.RandomPhotometricDistort | da.MixUp)]


def test_boxes_follow_the_pixels_in_recipes_of_detrs() -> None:
    stages = [geometry(stage.ops) for stage in da.presets.deim(128).stages]
    single = [da.presets.rf_detr(SIZE), da.presets.d_fine([SIZE, (64, 96)]), *(stages[at] for at in (0, 2, 3))]
    for recipe in single:
        assert assert_boxes_follow_pixels(geometry(recipe), size=SIZE, images=8, min_boxes=12)


def test_half_of_the_images_of_deim_are_mosaics_whose_boxes_lie_on_their_shapes() -> None:
    painted = paint((128, 128), 64, 24, 2)
    samples = da.batch(painted.images, painted.boxes, [[1, 2, 3]] * 64, seed=1)
    plain, dense, _, last = (samples.then(*geometry(stage.ops)) for stage in da.presets.deim(128).stages)
    assert [len(boxes) for boxes in plain.boxes] == [3] * 64 == [len(boxes) for boxes in last.boxes]
    counts = np.array([len(boxes) for boxes in dense.boxes])
    assert 16 <= (counts > 3).sum() <= 40
    assert counts[counts > 3].mean() > 5.5
    inside = [
        image[int(np.ceil(y0)) : int(y1), int(np.ceil(x0)) : int(x1), label - 1].mean()
        for image, boxes, labels in zip(dense.images, dense.boxes, dense.labels, strict=True)
        for (x0, y0, x1, y1), label in zip(boxes, labels, strict=True)
        if min(x1 - x0, y1 - y0) > 4
    ]
    assert np.mean(inside) > 170  # a rotated shape does not fill its box
    assert np.mean(inside) < 255


def test_epochs_of_deim() -> None:
    recipe = da.presets.deim((96, 128), (4, 78, 148))
    assert [stage.start for stage in recipe.stages] == [0, 4, 78, 148]
    assert list(recipe.at(100)) == da.presets.d_fine((96, 128))
    assert recipe.at(3) == recipe.at(148)
    (mixup,) = (op for op in recipe.at(4) if isinstance(op, da.MixUp))
    share = mixup.draw(np.random.default_rng(0), 20000)["share"]
    assert abs(share[share < 1].std() - 0.1 / np.sqrt(12)) < 0.001
    assert abs((share < 1).mean() - 0.5) < 0.02
    for wrong in ((4, 4, 9), (9, 4, 20), (4, 9), 4):
        with pytest.raises(da.InputError, match="epochs must be three rising epochs, got"):
            da.presets.deim(64, wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [da.presets.rf_detr, da.presets.d_fine, da.presets.deim])
def test_sizes_of_detrs(make: Any) -> None:
    for wrong in (0, (3,), "640", 1.5):
        with pytest.raises(da.InputError, match=r"size must be \(height, width\) or one number for a square"):
            make(wrong)


@pytest.mark.slow
def test_the_numbers_of_rf_detr_are_those_of_its_transforms() -> None:
    coco = pytest.importorskip("rfdetr.datasets.coco", reason="needs rfdetr")
    crop, flip, resize, normalize = da.presets.rf_detr(544)
    options = {"square": True, "gpu_postprocess": False, "keypoint_flip_pairs": None, "aug_config": None}
    with pytest.warns(UserWarning, match="default training augmentation"):
        select, own_flip, *_, own_normalize = coco._build_torchvision_pipeline(
            "train", 384, [544], **options
        ).transforms
    chain = select.transform2.transforms
    (sized,) = chain[1].transforms
    assert (1 - select.p, chain[0].sizes) == (crop.p, list(crop.shortest_size))
    assert (sized.min_max_height, sized.size, crop.square) == ((crop.min_size, crop.max_size), resize.size, True)
    assert own_flip.p == flip.p
    pixel = own_normalize(torch.full((3, 1, 1), 0.25), {})[0].flatten()
    assert torch.allclose(pixel, (0.25 - torch.tensor(normalize.mean)) / torch.tensor(normalize.std))
