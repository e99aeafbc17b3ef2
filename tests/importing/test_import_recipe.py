"""Pipelines of other libraries as recipes: what Albumentations and torchvision do, and errors that name the remedy."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import albumentations as A
import numpy as np
import pytest
import torch
from command import detaug, usage_error
from imported import OLD_ARGUMENTS, import_ops, live, seed_apart
from places import REPOSITORY
from reference import torchvision_part, v2functional

import detaug as da
from detaug.arguments import FILL
from detaug.importing.translate import RULES

PIPELINES = Path(__file__).parent / "pipelines"

COUNTS = {
    "albumentations/aerial_rotation": (6, 1, 0),
    "albumentations/aerial_tiles": (4, 1, 0),
    "albumentations/docs_box_safe": (1, 1, 0),
    "albumentations/docs_boxes": (2, 1, 0),
    "albumentations/docs_boxes_filter": (1, 1, 0),
    "albumentations/docs_detection_2x": (4, 5, 0),
    "albumentations/docs_letterbox": (6, 0, 0),
    "albumentations/docs_light": (1, 2, 0),
    "albumentations/docs_resized_crop_2x": (6, 1, 0),
    "albumentations/documents_scan": (6, 2, 0),
    "albumentations/evaluation": (3, 0, 0),
    "albumentations/kaggle_chest": (5, 3, 0),
    "albumentations/kaggle_mask": (2, 0, 0),
    "albumentations/kaggle_nfl": (2, 3, 0),
    "albumentations/kaggle_reef": (7, 4, 0),
    "albumentations/kaggle_sartorius": (5, 2, 0),
    "albumentations/medical_flips_only": (6, 0, 0),
    "albumentations/mmdetection": (3, 5, 1),
    "albumentations/mmdetection_list": (4, 0, 0),
    "albumentations/saved_0x": (2, 1, 0),
    "albumentations/saved_1x": (6, 1, 0),
    "albumentations/saved_2x": (6, 1, 0),
    "albumentations/sequential": (8, 0, 0),
    "albumentations/traffic_weather": (5, 4, 1),
    "albumentations/tutorial_detr": (1, 9, 0),
    "albumentations/tutorial_fasterrcnn": (4, 4, 0),
    "albumentations/tutorial_huggingface_cppe5": (2, 1, 0),
    "albumentations/tutorial_icevision": (1, 5, 3),
    "albumentations/tutorial_lightning": (4, 2, 0),
    "albumentations/tutorial_pytorch_ssd": (4, 2, 0),
    "albumentations/tutorial_rtdetr": (2, 4, 0),
    "albumentations/tutorial_torchvision_faster_rcnn": (7, 1, 0),
    "albumentations/tutorial_yolov3": (9, 6, 0),
    "albumentations/ultralytics_v8": (5, 2, 0),
    "torchvision/classification": (4, 0, 0),
    "torchvision/containers": (13, 2, 0),
    "torchvision/gallery_detection": (6, 1, 0),
    "torchvision/letterbox_by_hand": (5, 2, 0),
    "torchvision/references_hflip": (6, 0, 0),
    "torchvision/references_multiscale": (6, 1, 0),
    "torchvision/references_presets": (6, 1, 0),
    "torchvision/references_ssd": (8, 1, 0),
    "torchvision/references_ssdlite": (7, 0, 0),
    "torchvision/tutorial_pennfudan": (3, 0, 0),
}
"""How many ops of each pipeline mean the same, differ, and are left out."""

NAMES = {
    "docs_detection_2x": "train_transform",
    "docs_light": "light",
    "gallery_detection": "transforms",
    "kaggle_chest": "augment",
    "kaggle_nfl": "transforms",
    "kaggle_reef": "train",
    "kaggle_sartorius": "data_transforms.train",
    "mmdetection": "train_pipeline.2",
    "mmdetection_list": "albu_transforms",
    "references_hflip": "transforms",
    "references_multiscale": "transforms",
    "references_presets": "DetectionPresetTrain.transforms --set data_augmentation=ssd",
    "references_ssd": "transforms",
    "references_ssdlite": "transforms",
    "tutorial_detr": "train_augment_and_transform",
    "tutorial_fasterrcnn": "get_train_aug",
    "tutorial_icevision": "aug_tfms",
    "tutorial_lightning": "make_transform",
    "tutorial_pennfudan": "get_transform --set train=True",
    "tutorial_pytorch_ssd": "train_transforms",
    "tutorial_yolov3": "train_transforms",
}
"""The names of the pipelines that are not called "transform"."""

FILES = {f"{path.parent.name}/{path.stem}": path for path in sorted(PIPELINES.glob("*/*.*")) if path.suffix != ".pyc"}


def import_file(name: str, folder: Path) -> tuple[tuple[int, ...], list[da.Op]]:
    """Import a pipeline of the folder with the command; return its counts and its recipe."""
    path = FILES[name]
    named = f"{path}:{NAMES.get(path.stem, 'transform')}" if path.suffix == ".py" else str(path)
    result = detaug("import-recipe", *named.split(), "-o", folder / "recipe.yaml")
    found = re.search(r"(\d+) mean the same, (\d+) differ, (\d+) left out", result.out)
    assert found, result.err
    lines = [line for line in result.out.splitlines() if line.startswith(("differs ", "left out "))]
    assert all(": " in line for line in lines)  # the reason
    return tuple(map(int, found.groups())), list(da.load_recipe(folder / "recipe.yaml"))


def parameters(library: str) -> list[Any]:
    """Return the names of the pipelines of a library; those of torchvision are slow, since to import it is."""
    return [name for name in FILES if name.startswith(library)]


def test_there_are_34_and_10_pipelines() -> None:
    assert set(FILES) == set(COUNTS)
    assert [len(parameters(library)) for library in ("albumentations", "torchvision")] == [34, 10]


@pytest.mark.filterwarnings(*OLD_ARGUMENTS)
@pytest.mark.parametrize(
    "name",
    [*parameters("albumentations"), *(pytest.param(each, marks=pytest.mark.slow) for each in parameters("torch"))],
)
def test_a_pipeline_translates_and_its_recipe_loads(name: str, tmp_path: Path) -> None:
    assert import_file(name, tmp_path)[0] == COUNTS[name]


def test_the_document_has_the_share_that_translates() -> None:
    counts = [count for name, count in COUNTS.items() if name.startswith("albu")]
    same, lost = sum(count[1:] == (0, 0) for count in counts), sum(count[2] > 0 for count in counts)
    ops = [sum(column) for column in zip(*counts, strict=True)]
    page = " ".join((REPOSITORY / "docs/migrating.md").read_text().split())
    assert f"{same} mean the same, {34 - same - lost} differ in some op, and {lost} leave some op out" in page
    assert f"Of their {sum(ops)} ops {ops[0]} mean the same, {ops[1]} differ, and {ops[2]} are left out" in page


@pytest.mark.slow
@pytest.mark.filterwarnings(*OLD_ARGUMENTS)
@pytest.mark.parametrize("name", FILES)
def test_a_translated_pipeline_runs(name: str, tmp_path: Path) -> None:
    image, target = run(import_file(name, tmp_path)[1], smooth_image())
    assert min(image.shape) >= 3
    assert target["boxes"].shape[1] == 4


BOXES = [[20, 10, 90, 60], [100, 40, 180, 120], [30, 70, 50, 110]]


def smooth_image() -> Any:
    """Return (128, 192, 3) uint8, in which each pixel differs little from the next."""
    y, x = np.mgrid[:128, :192]
    waves = [128 + 90 * np.sin(x / 31) * np.cos(y / 23), 40 + x, 200 - y]
    return np.stack(waves, axis=2).round().astype(np.uint8)


def run(ops: Any, image: Any) -> tuple[Any, dict[str, Any]]:
    """Run a recipe on an image with BOXES; return it as (H, W, 3) and its target."""
    target = {"boxes": torch.tensor(BOXES, dtype=torch.float32), "labels": torch.tensor([1, 2, 3])}
    changed, target = da.Compose(ops, seed=0)(image, target)
    pixels = np.asarray(changed)
    return pixels.transpose(1, 2, 0) if isinstance(changed, torch.Tensor) else pixels, target


# ------------------------------------------------------------------------- against the libraries themselves

CASES = {
    "horizontal flip": "[A.HorizontalFlip(p=1)]",
    "vertical flip": "[A.VerticalFlip(p=1)]",
    "transpose": "[A.Transpose(p=1)]",
    "resize": "[A.Resize(96, 160)]",
    "shorter side": "[A.SmallestMaxSize(max_size=80)]",
    "letterbox": "[A.LongestMaxSize(max_size=160), A.PadIfNeeded(min_height=160, min_width=160)]",
    "letterbox at the top left": "[A.LongestMaxSize(160), A.PadIfNeeded(160, 160, position='top_left')]",
    "larger canvas": "[A.LongestMaxSize(max_size=160), A.PadIfNeeded(min_height=200, min_width=180)]",
    "center crop": "[A.CenterCrop(height=64, width=100)]",
    "crop after resize": "[A.Resize(128, 192), A.CenterCrop(height=100, width=100)]",
    "color before the crop": "[A.ToGray(p=1), A.Resize(128, 192), A.CenterCrop(height=100, width=100)]",
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

PROBES = [(0.3, 0.3), (0.5, 0.5), (0.6, 0.45)]
"""Where pixels are compared: (y, x), as fractions of the size."""
ROUNDED = {"larger canvas", "scale and rotate"}
"""Sizes and offsets are rounded to whole pixels in another way; of a rotated box the border leaves a smaller hull."""


@pytest.mark.filterwarnings(*OLD_ARGUMENTS)
@pytest.mark.parametrize("name", CASES)
def test_what_means_the_same_does_what_albumentations_does(name: str) -> None:
    imported = import_ops(CASES[name])
    assert {entry.status for entry in imported.entries} == {"same"}
    image, target = run(imported.ops, smooth_image())
    params = A.BboxParams(format="pascal_voc", label_fields=["labels"])
    theirs = A.Compose(live(CASES[name]), params)(image=smooth_image(), bboxes=BOXES, labels=[1, 2, 3])
    assert image.shape == theirs["image"].shape
    boxes = np.array(theirs["bboxes"], float)
    assert target["boxes"].numpy() == pytest.approx(boxes, abs=1.1 if name in ROUNDED else 0.3)
    tolerance = 8 if name in ROUNDED else 3  # of 255: a pixel of the image differs from the next by up to 4
    tolerance = tolerance if image.max() > 9 else 0.02
    assert probe(image) == pytest.approx(probe(theirs["image"]), abs=tolerance)


def probe(image: Any) -> Any:
    """Return the colors of an image (H, W, 3) at PROBES."""
    height, width = image.shape[:2]
    return np.array([image[int(y * height), int(x * width)].astype(float) for y, x in PROBES])


TORCHVISION = [
    "[v2.RandomHorizontalFlip(1.0), v2.RandomVerticalFlip(p=1)]",
    "[v2.Resize((96, 160), antialias=True)]",
    "[v2.Resize(100, max_size=140)]",
    "[v2.Resize(None, max_size=150)]",
    "[v2.Resize([100]), v2.CenterCrop(90)]",
    "[v2.Pad((4, 8, 12, 16), fill=7)]",
    "[v2.CenterCrop((150, 220))]",
    "[v2.RandomRotation((30, 30), v2.InterpolationMode.BILINEAR, fill=50)]",
    "[v2.RandomAffine((20, 20), None, (0.8, 0.8), (8, 8, 0, 0), v2.InterpolationMode.BILINEAR)]",
    "[v2.RandomApply([v2.RandomHorizontalFlip(1), v2.Grayscale(3)], p=1.0)]",
    "[v2.RandomGrayscale(1.0)]",
    "[v2.ColorJitter(brightness=(1.4, 1.4))]",
    "[v2.ColorJitter(contrast=(0.6, 0.6))]",
    "[v2.ColorJitter(saturation=(1.7, 1.7))]",
    "[v2.ColorJitter(hue=(0.1, 0.1))]",
    "[v2.RandomInvert(1.0)]",
    "[v2.RandomPosterize(3, 1.0)]",
    "[v2.RandomSolarize(128, 1.0)]",
    "[v2.RandomAutocontrast(1.0)]",
    "[v2.GaussianBlur(5, sigma=(1.2, 1.2))]",
    "[v2.RandomAdjustSharpness(2.0, p=1.0)]",
    "[v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5, 0.4, 0.3], [0.2, 0.3, 0.4])]",
]
"""Pipelines without chance."""


@pytest.mark.slow
@pytest.mark.parametrize("ops", TORCHVISION)
def test_what_means_the_same_does_what_torchvision_does(ops: str) -> None:
    v2functional()
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    imported = import_ops(ops)
    ours, target = run(imported.ops, smooth_image())
    image = tv_tensors.Image(torch.from_numpy(smooth_image().transpose(2, 0, 1).copy()))
    boxes = tv_tensors.BoundingBoxes(torch.tensor(BOXES).float(), format="XYXY", canvas_size=(128, 192))
    theirs, boxes = v2.Compose(live(ops))(image, boxes)
    theirs = theirs.numpy().transpose(1, 2, 0)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs.astype(float)).mean() < (1.0 if theirs.max() > 9 else 0.01)
    left = boxes[(boxes[:, 2:] > boxes[:, :2]).all(1)]
    assert target["boxes"].numpy() == pytest.approx(left.numpy(), abs=0.6)


# -------------------------------------------------------------------------------------- groups of ops


def test_one_of_keeps_the_probability_of_each_op() -> None:
    """Also where others of the group are left out: 0.2 * 0.1 / 0.4 is that of the gray."""
    ops = "[A.OneOf([A.GlassBlur(p=0.2), A.ZoomBlur(p=0.1), A.ToGray(p=0.1)], p=0.2)]"
    (alone,) = import_ops(ops).ops
    assert alone == da.RandomApply((da.RandomGrayscale(1.0),), 0.05)
    ops = "[A.OneOf([A.HorizontalFlip(p=0.9), A.VerticalFlip(p=0.3), A.NoOp(p=0.3)], p=0.5)]"
    (chosen,) = import_ops(ops).ops
    flips = da.RandomHorizontalFlip(1.0), da.RandomVerticalFlip(1.0)
    assert chosen == da.RandomApply((da.RandomChoice(flips, (0.9, 0.3)),), 0.4)


Shares = dict[tuple[int, int], float]
DRAWS, OURS = 1000, 10_000
"""Images that the other library draws for, one by one, and we, in one batch."""
FLIP = {"__version__": "1.4.15", "transform": {"__class_fullname__": "Flip", "p": 0.6}}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ("A.HorizontalFlip(p=0.3)", {(0, 0): 0.7, (1, 0): 0.3}),
        ("A.OneOf([A.HorizontalFlip(p=0.6), A.VerticalFlip(p=0.2)], p=0.8)", {(0, 0): 0.2, (1, 0): 0.6, (0, 1): 0.2}),
        (
            "A.Sequential([A.HorizontalFlip(p=1), A.VerticalFlip(p=0.5)], p=0.4)",
            {(0, 0): 0.6, (1, 0): 0.2, (1, 1): 0.2},
        ),
        (
            "A.SomeOf([A.HorizontalFlip(p=1), A.VerticalFlip(p=1), A.NoOp(p=1)], n=1)",
            {(0, 0): 1 / 3, (1, 0): 1 / 3, (0, 1): 1 / 3},
        ),
        (
            "A.SomeOf([A.HorizontalFlip(p=0.5), A.VerticalFlip(p=0.5)], n=2, p=1)",
            {(0, 0): 0.25, (1, 0): 0.25, (0, 1): 0.25, (1, 1): 0.25},
        ),
        (
            "A.SomeOf([A.HorizontalFlip(p=1), A.VerticalFlip(p=1), A.HorizontalFlip(p=1)], n=2, p=0.6)",
            {(0, 0): 0.4 + 0.2, (1, 1): 0.4},
        ),
        ("A.OneOrOther(A.HorizontalFlip(), A.VerticalFlip(), p=0.7)", {(1, 0): 0.7, (0, 1): 0.3}),
        (
            "A.RandomOrder([A.HorizontalFlip(p=0.5), A.VerticalFlip(p=1)], n=2, p=0.8)",
            {(0, 0): 0.2, (0, 1): 0.4, (1, 1): 0.4},
        ),
        (
            "A.Compose([A.HorizontalFlip(p=1), A.Compose([A.VerticalFlip(p=1)], p=0.5)], p=0.6)",
            {(0, 0): 0.4, (1, 0): 0.3, (1, 1): 0.3},
        ),
    ],
)
def test_groups_draw_as_albumentations_does(ops: str, expected: Shares) -> None:
    """Count flips of many images, along x and y: shares are right to 4 standard deviations."""
    assert_shares(flips_of(import_ops(ops)), expected)
    pipeline = A.Compose([live(ops)], A.BboxParams(format="pascal_voc", label_fields=["labels"]))
    seed_apart(pipeline, count(5))
    image = np.zeros((10, 10, 3), np.uint8)
    boxes = np.stack([pipeline(image=image, bboxes=[[1, 2, 4, 5]], labels=[1])["bboxes"][0] for _ in range(DRAWS)])
    assert_shares(flips(boxes), expected)


@pytest.mark.slow
@pytest.mark.parametrize(
    "op",
    [
        "A.RandomRotate90(p=0.8)",
        "A.Transpose(p=0.3)",
        "A.D4(p=0.5)",
        "A.SquareSymmetry(p=1)",
        "A.HorizontalFlip(p=0.2)",
    ],
)
def test_symmetries_come_as_often(op: str) -> None:
    """Count where a box lies after each of the eight symmetries of a square; shares are right to 4 standard errors."""
    pipeline = A.Compose([live(op)], A.BboxParams(format="pascal_voc", label_fields=["labels"]), seed=5)
    image, box = np.zeros((10, 10, 3), np.uint8), [1.0, 2.0, 4.0, 7.0]
    outputs = [pipeline(image=image, bboxes=[box], labels=[1])["bboxes"] for _ in range(DRAWS)]
    boxes = da.batch([image] * OURS, [[box]] * OURS, seed=3).then(*import_ops(op).ops).boxes
    theirs, ours = (Counter(tuple(np.array(each[0]).round().tolist()) for each in drawn) for drawn in (outputs, boxes))
    for place in {*theirs, *ours}:
        share, apart = (theirs[place] + ours[place]) / (DRAWS + OURS), theirs[place] / DRAWS - ours[place] / OURS
        assert abs(apart) <= 4 * np.sqrt(share * (1 - share) * (1 / DRAWS + 1 / OURS)), place


def test_flip_of_1_x_is_one_flip_or_both() -> None:
    assert_shares(flips_of(da.import_recipe(FLIP)), {(0, 0): 0.4, (1, 0): 0.2, (0, 1): 0.2, (1, 1): 0.2})


def flips_of(imported: da.ImportedRecipe) -> list[tuple[int, int]]:
    images, boxes = [np.zeros((10, 10, 3), np.uint8)] * OURS, [[[1.0, 2.0, 4.0, 5.0]]] * OURS
    return flips(np.stack(da.batch(images, boxes, seed=3).then(*imported.ops).boxes)[:, 0])


def flips(boxes: np.ndarray) -> list[tuple[int, int]]:
    """Return whether each box is flipped along x, and along y."""
    return list(zip(boxes[:, 0].round() != 1, boxes[:, 1].round() != 2, strict=True))


def assert_shares(drawn: list[tuple[int, int]], expected: Shares) -> None:
    for flip in ((0, 0), (1, 0), (0, 1), (1, 1)):
        share = expected.get(flip, 0.0)
        assert abs(drawn.count(flip) / len(drawn) - share) <= 4 * np.sqrt(share * (1 - share) / len(drawn)), flip


def test_ops_are_arranged_and_the_order_is_told() -> None:
    ops = "[A.GaussianBlur(), A.ToGray(), A.Resize(64, 64), A.HorizontalFlip(), A.Rotate(limit=9), A.Normalize()]"
    imported = import_ops(ops)
    names = [type(op).__name__ for op in imported.ops]
    assert names == ["RandomRotation", "Resize", "RandomHorizontalFlip", "GaussianBlur", "RandomGrayscale", "Normalize"]
    told = {entry.name: entry.reasons for entry in imported.entries}
    assert told["GaussianBlur"] == ["it runs after Resize, on output pixels"]
    assert told["ToGray"] == []  # the fill is black
    assert told["Rotate"] == ["it runs before Resize, in the image's own aspect ratio"]


def reasons(*ops: str, boxes: str = "") -> dict[str, list[str]]:
    imported = da.import_recipe(eval(f"A.Compose([{', '.join(ops)}]{boxes})", {"A": A}))
    return {entry.name: entry.reasons for entry in imported.entries}


def test_sizes_of_boxes_are_those_of_the_output() -> None:
    """Albumentations drops boxes after each op, in the pixels that the images have there."""
    params = ", bbox_params=A.BboxParams('pascal_voc', min_area=16)"
    late, first = ("A.HorizontalFlip()", "A.Resize(64, 64)"), ("A.Resize(64, 64)", "A.HorizontalFlip()")
    assert reasons(*late, boxes=params)["BboxParams"] == ["it counts output pixels alone, not those before Resize, too"]
    assert reasons(*first, boxes=params)["BboxParams"] == []
    assert reasons(*late, boxes=params.replace("16", "1"))["BboxParams"] == []


def test_a_turn_after_a_flip_and_a_crop_goes_the_same_way() -> None:
    ops = "[A.SmallestMaxSize(120), A.CenterCrop(100, 100), A.HorizontalFlip(p=1), A.Rotate((20, 20), p=1)]"
    imported = import_ops(ops)
    names = [type(op).__name__ for op in imported.ops]
    assert names == ["RandomHorizontalFlip", "RandomRotation", "Resize", "CenterCrop"]
    told = {entry.name: entry.reasons for entry in imported.entries}
    assert told["Rotate"] == ["it runs before Resize and the crop"]


@pytest.mark.parametrize(("n", "version"), [(1, "1.3.1"), (1, "2.0.8"), (2, "1.3.1")])
def test_some_of_draws_by_weight_up_to_albumentations_1(n: int, version: str) -> None:
    """`transforms probabilities works as weights`, in its docstring of 1.3.1; ops are then always applied."""
    children = [{"__class_fullname__": name, "p": p} for name, p in (("HorizontalFlip", 0.9), ("VerticalFlip", 0.1))]
    more = [{"__class_fullname__": "Transpose", "p": 0.1}] if n == 2 else []
    imported = da.import_recipe(
        saved({"__class_fullname__": "SomeOf", "transforms": children + more, "n": n, "p": 1.0}, version)
    )
    if n == 2:
        assert imported.differing == 3
        return
    (op,) = imported.ops
    assert isinstance(op, da.RandomChoice)
    assert op.probabilities == ((0.9, 0.1) if version < "2" else None)


COLOUR_NOTES = {
    "A.ToGray(p=1), A.Affine(rotate=30, fill=9)": None,
    "A.ToGray(p=1), A.Affine(rotate=30, fill=(9, 80, 200))": "it runs after Resize and changes the fill too",
    "A.ToGray(p=1), A.LongestMaxSize(64), A.PadIfNeeded(64, 64, fill=(9, 80, 200))": None,
    "A.LongestMaxSize(64), A.PadIfNeeded(64, 64), A.ToGray(p=1)": None,
    "A.LongestMaxSize(64), A.PadIfNeeded(64, 64, fill=(9, 80, 200)), A.ToGray(p=1)": "it leaves the fill as it is",
    "A.Affine(rotate=30, fill=(9, 80, 200)), A.ToGray(p=1)": None,
    "A.ColorJitter(0.2, 0.2, 0.2, 0), A.RandomSizedBBoxSafeCrop(64, 64)": (
        "contrast is about the mean gray of the part that is shown, not of the whole image"
    ),
    "A.ColorJitter(0.2, 0, 0.2, 0), A.RandomSizedBBoxSafeCrop(64, 64)": None,
    "A.RandomSizedBBoxSafeCrop(64, 64), A.ColorJitter(0.2, 0.2, 0.2, 0)": None,
    "A.HorizontalFlip(), A.ColorJitter(0.2, 0.2, 0.2, 0.1)": "hue is not rounded to OpenCV's steps of 2 degrees",
}


@pytest.mark.parametrize("ops", COLOUR_NOTES)
def test_what_differs_of_colours_is_told(ops: str) -> None:
    imported = import_ops(f"[{ops}]")
    (told,) = (entry for entry in imported.entries if entry.name in ("ToGray", "ColorJitter"))
    assert (COLOUR_NOTES[ops] in told.reasons) if COLOUR_NOTES[ops] else told.status == "same"


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ("A.Downscale((0.25, 0.5), p=0.2)", da.Downscale((0.25, 0.5), 0.2)),
        ("A.Downscale((0.5, 0.5), {'downscale': 3, 'upscale': 1}, p=1)", da.Downscale((0.5, 0.5), 1)),
        ("A.RandomGamma((50, 150), p=0.2)", da.RandomGamma((0.5, 1.5), 0.2)),
        ("A.ChannelDropout((1, 2), 9, p=0.2)", da.ChannelDropout((1, 2), 9, 0.2)),
        ("A.MotionBlur((5, 7), p=0.2)", da.MotionBlur((5, 7), 0.2)),
        ("A.MedianBlur(3, p=0.2)", da.MedianBlur(3, 0.2)),
        ("A.Defocus((2, 4), p=0.2)", da.Defocus((2, 4), 0.2)),
        (
            "A.RandomShadow((0, 0.2, 1, 0.8), (2, 4), 6, (0.2, 0.7), p=0.2)",
            da.RandomShadow((0, 0.2, 1, 0.8), (2, 4), 6, (0.2, 0.7), 0.2),
        ),
        (
            "A.RandomRain((-5, 8), 20, 2, (1, 2, 3), 5, 0.5, 'heavy', p=0.2)",
            da.RandomRain((-5, 8), 20, 2, (1, 2, 3), 5, 0.5, 1.0, 0.2),
        ),
        (
            "A.ElasticTransform(30, 6, noise_distribution='uniform', p=0.2)",
            da.ElasticTransform(60, 6, (0, 0, 0), 0.2),
        ),
        ("v2.ElasticTransform([30.0, 30.0], 6.0, fill=3)", da.ElasticTransform(30, 6, (3, 3, 3), 1)),
        ("A.OpticalDistortion((-0.1, 0.3), p=0.2)", da.OpticalDistortion((-0.1, 0.3), (0, 0, 0), 0.2)),
        ("A.RandomFog(0.1, (0.2, 0.7), p=0.2)", da.RandomFog((0.2, 0.7), 0.1, 0.2)),
    ],
)
def test_ops_of_cameras_and_weather_keep_their_numbers(ops: str, expected: da.Op) -> None:
    (found,) = import_ops(f"[{ops}]").ops
    assert found == (
        da.RandomApply((replace(expected, p=1.0),), 0.2) if isinstance(expected, da.MedianBlur) else expected
    )


def test_an_op_that_never_runs_is_not_in_the_recipe() -> None:
    imported = import_ops("[A.RandomSnow(p=0), A.RandomResizedCrop((8, 8), p=0.0), A.HorizontalFlip(p=0.1)]")
    assert imported.ops == (da.RandomHorizontalFlip(0.1),)
    assert imported.left_out == imported.differing == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ops", "fill"),
    [
        ("v2.RandomErasing(1.0), v2.Resize((8, 8))", (0, 0, 0)),
        ("v2.Resize((8, 8)), v2.Normalize((0.2, 0.4, 0.6), (1, 1, 1)), v2.RandomErasing(1.0)", (51, 102, 153)),
        ("v2.RandomErasing(1.0), v2.Resize((8, 8)), v2.Normalize((0.2, 0.4, 0.6), (1, 1, 1))", (0, 0, 0)),
    ],
)
def test_erasing_leaves_the_colour_that_0_has_there(ops: str, fill: tuple[int, int, int]) -> None:
    (erasing,) = (op for op in import_ops(f"[{ops}]").ops if isinstance(op, da.RandomErasing))
    assert erasing.value == fill


@pytest.mark.parametrize("op", ["A.Normalize(p=0.5)", "A.ToFloat(p=0.5)", "A.Resize(8, 8, p=0.5)"])
def test_what_runs_on_each_image_here_is_told(op: str) -> None:
    (entry,) = import_ops(op).entries
    assert entry.reasons == ["it runs on each image: sizes and Normalize are not random"]
    assert import_ops(op.replace("0.5", "1.0")).differing == 0


@pytest.mark.slow
def test_a_recipe_has_one_fill() -> None:
    ops = "[v2.RandomZoomOut(fill=9), v2.RandomRotation(5, fill=(1, 2, 3)), v2.Resize((8, 8))]"
    imported = import_ops(ops)
    assert {fill for op in imported.ops for fill in op.fills} == {(9, 9, 9)}
    assert imported.entries[1].reasons == ["its fill is (9.0, 9.0, 9.0): a recipe has one fill"]


@pytest.mark.parametrize(
    ("ops", "fill"),
    [
        ("v2.RandomRotation((90, 90), fill=9)", (9, 9, 9)),
        ("A.Rotate((90, 90), fill=9)", (9, 9, 9)),
        ("v2.RandomCrop(64, pad_if_needed=True)", (0, 0, 0)),
        ("v2.RandomCrop(64)", FILL),  # never seen
        ("[v2.RandomCrop(64), v2.RandomRotation(5, fill=9)]", (9, 9, 9)),
        ("[v2.ScaleJitter((64, 64)), v2.RandomCrop(64, pad_if_needed=True, fill=9)]", (9, 9, 9)),
        ("A.CenterCrop(64, 64, pad_if_needed=True)", (0, 0, 0)),
        ("A.RandomCrop(64, 64, pad_if_needed=True, fill=9)", (9, 9, 9)),
        ("A.RandomCrop(64, 64)", FILL),
    ],
)
def test_the_fill_is_that_of_the_pipeline(ops: str, fill: tuple[int, int, int]) -> None:
    moving = [op for op in import_ops(ops).ops if op.stage == "view"]
    assert {op.fill for op in moving if op.fills} == {fill}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("ops", "left_out"),
    [
        ("[v2.Resize(40), v2.CenterCrop(30), v2.Resize(40)]", 1),
        ("[A.Resize(40, 40), A.Sequential([A.HorizontalFlip(), A.CenterCrop(30, 20)], p=1), A.Resize(40, 40)]", 1),
        ("[v2.RandomResizedCrop(40), v2.RandomResizedCrop(40)]", 1),
        ("[v2.Resize(40), v2.CenterCrop(30), v2.Resize(30)]", 0),  # the crop has this size
        ("[v2.Resize((40, 50)), v2.RandomCrop((40, 50)), v2.Resize((40, 50))]", 0),
        ("[v2.Resize(40), v2.RandomHorizontalFlip(), v2.Resize(40)]", 0),
    ],
)
def test_a_second_resize_is_left_out_if_it_changes_the_size(ops: str, left_out: int) -> None:
    assert import_ops(ops).left_out == left_out


@pytest.mark.parametrize(
    ("turn", "first"),
    [
        ("A.Transpose(p=1)", True),
        ("v2.RandomRotation((90, 90), expand=True)", True),
        ("v2.RandomAffine(0, shear=(5, 15))", True),
        ("v2.RandomAffine(10, shear=5)", False),  # as often to the left as to the right
    ],
)
def test_flips_stay_in_front_of_turns_that_move_before_resize(turn: str, first: bool) -> None:
    flip = "A.VerticalFlip(p=1)" if turn.startswith("A") else "v2.RandomVerticalFlip(1)"
    size = "A.SmallestMaxSize(44)" if turn.startswith("A") else "v2.Resize(44)"
    ops = import_ops(f"[{size}, {flip}, {turn}]").ops
    assert (ops.index(da.RandomVerticalFlip(1)) == 0) == first


def test_the_position_in_padded_crops_is_told() -> None:
    (entry,) = import_ops('A.CenterCrop(64, 64, pad_if_needed=True, pad_position="top_left")').entries
    assert entry.reasons == ["the image lies in the middle, not at top_left"]


@pytest.mark.slow
def test_the_fill_of_pictures_is_taken_of_fills_by_type() -> None:
    torchvision = torchvision_part("torchvision.tv_tensors")
    fill = {torchvision.Mask: 0, torchvision.Image: (1, 2, 3), "others": 7}
    from torchvision.transforms import v2

    assert da.import_recipe(v2.RandomZoomOut(fill=fill)).ops[0].fill == (1, 2, 3)
    del fill[torchvision.Image]
    assert da.import_recipe(v2.RandomZoomOut(fill=fill)).ops[0].fill == (7, 7, 7)


# ------------------------------------------------------------------------------------- what is taken


class Sky(A.ImageOnlyTransform):
    """An op that a user wrote."""

    def apply(self, img: Any, **params: Any) -> Any:
        return img


def same(image: Any, **_: Any) -> Any:
    return image


def test_code_of_the_users_own_is_left_out_with_the_reason() -> None:
    pipeline = A.Compose([A.Resize(8, 8), A.Lambda(image=same), Sky(p=0.5), A.OneOf([Sky(p=3 / 4), A.ToGray(p=1 / 4)])])
    imported = da.import_recipe(pipeline)
    assert imported.ops == (da.Resize((8, 8)), da.RandomApply((da.RandomGrayscale(1.0),), 0.125))
    left_out = {entry.name: entry for entry in imported.entries if entry.left_out}
    assert set(left_out) == {"Lambda", "Sky"}
    assert {str(each).partition(": ")[2] for each in left_out.values()} == {
        "it runs code of its own; nearest: an op of your own (docs/custom-op.md)"
    }


def test_all_that_albumentations_gives_is_taken(tmp_path: Path) -> None:
    """The object, a list or a tuple of its ops, its dict, the dict's pipeline, and files: the same recipe."""
    pipeline = live("A.Compose([A.Resize(8, 9), A.OneOf([A.ToGray(p=1), A.InvertImg(p=1)], p=0.5)])")
    A.save(pipeline, tmp_path / "a.json")
    A.save(pipeline, tmp_path / "a.yaml", data_format="yaml")
    (tmp_path / "a.yml").write_text((tmp_path / "a.yaml").read_text())
    saved = [tmp_path / "a.json", str(tmp_path / "a.yaml"), tmp_path / "a.yml", A.to_dict(pipeline)]
    for each in [pipeline, pipeline.transforms, tuple(pipeline.transforms), pipeline.to_dict()["transform"], *saved]:
        imported = da.import_recipe(each)
        group = da.RandomChoice((da.RandomGrayscale(1.0), da.RandomInvert(1.0)))
        assert imported.ops == (da.Resize((8, 9)), da.RandomApply((group,), 0.5))
        assert imported.differing == imported.left_out == 0
    assert da.import_recipe(pipeline).title == "albumentations.Compose"
    assert da.import_recipe(pipeline, name="mine").title == "mine"
    assert da.import_recipe(tmp_path / "a.json").title == str(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (3, "got an object of int"),
        (None, "got an object of NoneType"),
        ([], "got an object of list"),
        ([same], "got an object of list"),
        (A.Compose, "got the class Compose: call it first"),
        (A.BboxParams(format="coco"), "got an object of BboxParams"),
        ({"train": A.Compose([A.NoOp()]), "size": 3}, "got an object of dict, which has pipelines: train; choose one"),
        ({"transform": A.Compose([])}, "got an object of dict, which has pipelines: transform; choose one"),
        ((A.Compose([]), A.Compose([])), r"2 pipelines: choose one, in Python with \[0\]"),
        (torch.nn.Sequential(torch.nn.Linear(2, 2)), "got an object of Sequential"),
        (Sky(), "got an object of Sky"),
    ],
)
def test_anything_else_is_an_error_that_says_what_is_taken(value: Any, message: str) -> None:
    with pytest.raises(da.InputError, match=message) as raised:
        da.import_recipe(value)
    assert "the pipeline must be of Albumentations or torchvision" in str(raised.value) or "2 pipelines" in message


RULED = {name for name in RULES["albumentations"] if hasattr(A, name)} - {"BboxParams"}
SIDES = {"height": 8, "width": 8}
NEEDED: dict[str, dict[str, Any]] = {
    **dict.fromkeys(("Resize", "RandomCrop", "CenterCrop"), SIDES),
    **dict.fromkeys(("AtLeastOneBBoxRandomCrop", "RandomSizedBBoxSafeCrop"), SIDES),
    **{name: {"max_size": 8} for name in ("LongestMaxSize", "SmallestMaxSize")},
    "RandomResizedCrop": {"size": (8, 8)},
    "RandomSizedCrop": {"min_max_height": (4, 8), "size": (8, 8)},
    "Rotate": {"limit": 5},
    "ShiftScaleRotate": {"rotate_limit": 5, "scale_limit": 0.3},
    "Blur": {"blur_limit": 9},
    "GaussianBlur": {"sigma_limit": 2, "blur_limit": 5},
    "CLAHE": {"clip_limit": 3},
    "HueSaturationValue": {"hue_shift_limit": 9},
    "Perspective": {"scale": 0.2},
    "GridDropout": {"unit_size_range": (4, 8)},
    "Posterize": {"num_bits": 3},
    "Affine": {"scale": 1.2, "rotate": 5, "translate_percent": 0.1, "shear": 3},
}
"""Arguments without a default, and single numbers, which Albumentations makes a range of."""


@pytest.mark.filterwarnings(*OLD_ARGUMENTS)
@pytest.mark.parametrize("name", sorted(RULED))
def test_rules_have_the_defaults_of_albumentations(name: str) -> None:
    """A dict, as MMDetection writes ops, has only some arguments; the object has all."""
    arguments = NEEDED.get(name, {})
    written, made = [{"type": name, **arguments}], getattr(A, name)(**arguments)
    for each in (written, da.import_recipe(made)):
        imported = each if isinstance(each, da.ImportedRecipe) else da.import_recipe(each)
        assert imported.ops == da.import_recipe(made).ops
        assert not [reason for entry in imported.entries for reason in entry.reasons if "is not translated" in reason]


def test_an_argument_without_a_rule_is_told() -> None:
    document = {"transform": {"__class_fullname__": "HorizontalFlip", "p": 0.5, "sideways": 3}}
    (entry,) = da.import_recipe(document).entries
    assert entry.reasons == ["sideways=3 is not translated"]


@pytest.mark.slow
def test_torchvision_gives_back_every_argument() -> None:
    """Each default is overridden; an argument that is read as another value than it was given would show."""
    (crop,) = import_ops("v2.RandomIoUCrop(0.4, 0.9, 0.6, 1.8, [0.2, 0.8], 7)").ops
    assert crop == da.RandomIoUCrop((0.2, 0.8), (0.4, 0.9), (0.6, 1.8), 7, allow_no_crop=False)
    from torchvision import transforms as v1
    from torchvision.transforms import v2

    for each in (v2, v1):
        jitter = each.ColorJitter(0.1, (0.2, 0.3), 0.4, 0.05)
        ops = [each.RandomResizedCrop(8, (0.5, 1.0), (1, 2)), jitter, each.RandomApply([each.RandomSolarize(9, 0.2)])]
        assert da.import_recipe(each.Compose(ops)).ops == (
            da.RandomResizedCrop((8, 8), (0.5, 1.0), (1, 2)),
            da.ColorJitter((0.9, 1.1), (0.2, 0.3), (0.6, 1.4), (-0.05, 0.05)),
            da.RandomApply((da.RandomSolarize(9, 0.2),), 0.5),
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ("v2.ToDtype(torch.float16, scale=True)", (da.Normalize(dtype="float16"), 0)),
        ("v2.ToDtype(torch.float32)", (da.Normalize(), 1)),
        ("v2.ToDtype(torch.float64, scale=True)", (da.Normalize(), 1)),
        ("v2.ToDtype(torch.uint8, scale=True)", (None, 0)),
        ("v2.ConvertImageDtype(torch.float32)", (da.Normalize(), 0)),
        ("v2.SanitizeBoundingBoxes(3, 20)", (da.SanitizeBoundingBoxes(3, 20), 0)),
        ("v2.ClampBoundingBoxes()", (None, 0)),
        ("v2.RGB()", (None, 0)),
        ("torch.nn.Sequential(v2.RandomInvert(0.2))", (da.RandomInvert(0.2), 0)),
        ("v2.RandomChoice([v2.RandomInvert(1), v2.RandomGrayscale(1)], [3, 1])", (da.RandomApply, 0)),
    ],
)
def test_what_has_no_strength_is_translated(ops: str, expected: tuple[Any, int]) -> None:
    imported = import_ops(ops)
    choice = da.RandomChoice((da.RandomInvert(1), da.RandomGrayscale(1)), (0.75, 0.25))
    op = choice if expected[0] is da.RandomApply else expected[0]
    assert (imported.ops, imported.differing, imported.left_out) == ((op,) if op else (), expected[1], 0)


# -------------------------------------------------------------------------------- saved files and errors


def saved(op: dict[str, Any], version: str = "2.0.8") -> dict[str, Any]:
    """Return what `A.to_dict` gives for a Compose of an op."""
    pipeline = {"__class_fullname__": "Compose", "p": 1.0, "transforms": [op]}
    return {"__version__": version, "transform": pipeline}


@pytest.mark.parametrize(
    ("op", "message"),
    [
        ({"__class_fullname__": "Resize", "height": "a", "width": 3}, "Resize: height must be a number, got 'a'"),
        ({"__class_fullname__": "RandomSizedCrop"}, "RandomSizedCrop: min_max_height must be a number or"),
        ({"__class_fullname__": "CLAHE", "tile_grid_size": [8]}, "CLAHE: an argument is missing or of a wrong kind"),
        (1, "Compose: transforms must be a list of ops, got 1"),
    ],
)
def test_a_malformed_argument_is_named(op: Any, message: str, tmp_path: Path) -> None:
    with pytest.raises(da.InputError, match=message):
        da.import_recipe(saved(op))
    (tmp_path / "a.json").write_text(json.dumps(saved(op)))
    with pytest.raises(da.InputError, match=f"^{tmp_path / 'a.json'}: {message}"):
        da.import_recipe(tmp_path / "a.json")


@pytest.mark.parametrize(
    ("op", "reason"),
    [
        ({"__class_fullname__": "HorizontalFlip", "p": 3}, "p must be a probability in 0..1, got 3"),
        ({"__class_fullname__": "Resize", "height": 0, "width": 3}, "size must be"),
        ({"__class_fullname__": "train.Sky", "p": 1}, "it runs code of its own"),
        ({"__class_fullname__": "Lambda", "__name__": "mine"}, "it runs code of its own"),
        ({"__class_fullname__": "LongestMaxSize", "max_size_hw": [100, None]}, "max_size_hw=[100, None] limits"),
        ({"__class_fullname__": "SmallestMaxSize", "max_size_hw": [100, 50]}, "max_size_hw=[100, 50] limits"),
        ({"__class_fullname__": "RandomSnow"}, "detaug has no such op"),
        ({"__class_fullname__": "RandomGama"}, "unknown op of albumentations"),
    ],
)
def test_what_no_op_of_ours_does_is_left_out(op: Any, reason: str) -> None:
    (entry,) = da.import_recipe(saved(op)).entries
    assert entry.left_out
    assert entry.reasons[0].startswith(reason)


REPEATS = [f", a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 12)]
BOMB = f"transform: {{__class_fullname__: Compose, transforms: [], a0: &a0 [1, 2]{''.join(REPEATS)}}}"
"""YAML whose aliases stand for 2 * 9 ** 11 numbers."""


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "neither JSON nor YAML"),
        ("a.yaml", "- [", "neither JSON nor YAML"),
        ("a.yaml", "!!python/object/apply:os.system ['true']", "neither JSON nor YAML"),
        ("a.json", "[]", "must be what A.save writes"),
        ("a.json", '{"transform": {"p": 1}}', "must be what A.save writes"),
        ("a.json", '{"transform": {"__class_fullname__": "Compose"}}', "Compose: transforms must be a list of ops"),
        ("a.yaml", BOMB, "has more than 100,000 values"),
        (
            "a.json",
            '{"transform": {"__class_fullname__": "Compose", "p": ' + "[" * 600 + "]" * 600 + "}}",
            "Compose|deep",
        ),
        ("a.ipynb", "{}", r"must end in \.json or \.yaml, or be FILE\.py:NAME; from a notebook"),
    ],
)
def test_a_malformed_file_is_named(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(da.InputError, match=message):
        da.import_recipe(tmp_path / name)


# ---------------------------------------------------------------------------------------- the command


@pytest.fixture
def save(tmp_path: Path) -> Any:
    """Return a function that saves a pipeline in a.json, and returns the path."""

    def write(ops: str) -> Path:
        A.save(A.Compose(live(ops)), tmp_path / "a.json")
        return tmp_path / "a.json"

    return write


def test_the_command_tells_what_became_of_each_op(save: Any, tmp_path: Path) -> None:
    output = tmp_path / "recipe.yaml"
    result = detaug(
        "import-recipe", save("[A.HorizontalFlip(), A.Blur(), A.GridDistortion(), A.Resize(64, 64)]"), "-o", output
    )
    assert (result.code, result.err) == (1, "")
    assert "same      HorizontalFlip -> RandomHorizontalFlip\n" in result.out
    assert "left out  GridDistortion: detaug has no such op; nearest: OpticalDistortion\n" in result.out
    end = f'2 mean the same, 1 differ, 1 left out\nwritten: {output}\nload it: da.load_recipe("{output}")\n'
    assert result.out.endswith(end)
    comments = [line for line in output.read_text().splitlines() if line.startswith("#")]
    assert [line[2:10].strip() for line in comments[1:-1]] == ["differs", "left out"]
    assert [type(op).__name__ for op in da.load_recipe(output)] == ["RandomHorizontalFlip", "Resize", "GaussianBlur"]


@pytest.mark.parametrize(("ops", "code"), [("A.HorizontalFlip()", 0), ("A.Blur()", 3), ("A.Blur(), A.RandomSnow()", 1)])
def test_the_exit_code_says_whether_all_means_the_same(ops: str, code: int, save: Any, tmp_path: Path) -> None:
    result = detaug("import-recipe", save(f"[{ops}]"), "-o", tmp_path / "b.json", "--size", "64x32", "-q")
    assert (result.code, result.out, result.err) == (code, "", "")
    assert da.Resize((64, 32)) in da.load_recipe(tmp_path / "b.json")


def test_the_output_is_another_file_and_a_recipe(save: Any, tmp_path: Path) -> None:
    source = save("[A.NoOp()]")
    text = source.read_text()
    (tmp_path / "link.json").symlink_to(source)
    for output in (source, tmp_path / "link.json"):
        assert "output must be another file than" in usage_error("import-recipe", source, "-o", output)
    assert "must end in .yaml, .yml, .json" in usage_error("import-recipe", source, "-o", tmp_path / "a.py")
    assert source.read_text() == text


def test_a_pipeline_without_a_size_says_how_to_give_one(save: Any, tmp_path: Path) -> None:
    source = save("[A.HorizontalFlip()]")
    assert "give one, such as --size 640x640" in detaug("import-recipe", source, "-o", tmp_path / "a.yaml").out
    assert "give one, such as size=(640, 640)" in str(da.import_recipe(source))
    source = save("[A.Resize(8, 8)]")
    assert "leave it out" in usage_error("import-recipe", source, "-o", tmp_path / "b.yaml", "--size", "64")
    assert "NAME=VALUE" in usage_error("import-recipe", source, "-o", tmp_path / "b.yaml", "--set", "train")
    assert not (tmp_path / "b.yaml").exists()


def test_a_saved_pipeline_needs_no_library(save: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save("[A.HorizontalFlip()]")
    for library in ("albumentations", "torchvision", "cv2"):
        monkeypatch.setitem(sys.modules, library, None)
    assert da.import_recipe(tmp_path / "a.json").ops == (da.RandomHorizontalFlip(p=0.5),)


@pytest.mark.slow
def test_no_library_is_imported_for_a_saved_pipeline(save: Any, tmp_path: Path) -> None:
    save("[A.HorizontalFlip()]")
    code = "import sys; from detaug.importing.import_recipe import import_recipe; import_recipe('a.json')\n"
    code += "print([each for each in ('albumentations', 'torchvision', 'cv2') if each in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert result.stdout == "[]\n"


def test_pairs_of_torchvision_keep_their_order() -> None:
    """ScaleJitter's target is (width, height)."""
    jitter, resize = import_ops("v2.ScaleJitter((300, 200), (0.5, 1.5))").ops
    assert (jitter, resize) == (da.ScaleJitter((200, 300), (0.5, 1.5)), da.Resize((200, 300)))
    *_, blur = import_ops("v2.Resize((9, 9)), v2.GaussianBlur((3, 7), 1.0)").ops
    assert blur == da.GaussianBlur(5, (1.0, 1.0), 1.0)
    (crop,) = import_ops("v2.RandomIoUCrop(sampler_options=[0.2, 1.0])").ops
    assert crop == da.RandomIoUCrop((0.2,), allow_no_crop=True)


@pytest.mark.parametrize("saved", [False, True])
def test_other_targets_and_keypoints_are_named(tmp_path: Path, saved: bool) -> None:
    ops, keypoints = [A.HorizontalFlip(p=0.5), A.Resize(8, 8)], A.KeypointParams(format="xy")
    pipeline: Any = A.Compose(ops, keypoint_params=keypoints, additional_targets={"right": "image", "depth": "mask"})
    if saved:
        A.save(pipeline, tmp_path / "pipeline.json")
        pipeline = tmp_path / "pipeline.json"
    imported = da.import_recipe(pipeline)
    assert imported.ops == (da.RandomHorizontalFlip(0.5), da.Resize((8, 8)))
    assert "left out  additional_targets: a recipe augments one image with its objects, not also right, depth" in str(
        imported
    )
    assert "differs   KeypointParams -> CocoReader(keypoints=True): flips swap left and right" in str(imported)
    assert str(imported).endswith("2 mean the same, 1 differ, 1 left out")


def test_one_number_normalizes_all_channels() -> None:
    """As both libraries broadcast it; torchvision's after a type that scales to 0..1."""
    v2 = pytest.importorskip("torchvision.transforms.v2")
    three = da.Resize((8, 8)), da.Normalize((0.5,) * 3, (0.25,) * 3)
    scaled = v2.Compose([v2.Resize((8, 8)), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5], [0.25])])
    assert da.import_recipe(scaled).ops == three
    for mean, std in (((0.5,), (0.25,)), (0.5, 0.25)):
        assert da.import_recipe(A.Compose([A.Resize(8, 8), A.Normalize(mean, std)])).ops == three
    image = np.full((8, 8, 3), 200, np.uint8)
    wanted = v2.functional.normalize(torch.from_numpy(image / 255).permute(2, 0, 1), [0.5], [0.25])
    assert np.allclose(da.batch([image]).then(*three).images[0], wanted, atol=1e-6)


@pytest.mark.parametrize("name", ["v1", "v2"])
def test_noise_of_erasing_is_a_difference(name: str) -> None:
    transforms = pytest.importorskip("torchvision.transforms")
    module = transforms.v2 if name == "v2" else transforms
    imported = da.import_recipe(module.Compose([module.Resize((8, 8)), module.RandomErasing(value="random")]))
    (entry,) = (entry for entry in imported.entries if entry.name == "RandomErasing")
    assert "value='random' is not a color; the fill here is black" in entry.reasons
