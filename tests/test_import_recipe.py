"""Pipelines of other libraries as recipes: what Albumentations and torchvision do, and errors that name the remedy."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import detaug, usage_error
from imported import PIPELINES, import_file, import_ops, import_text
from pipelines.record_albumentations import BOXES, CASES, probe, smooth_image
from reference import v2functional

import detaug as da

COUNTS = {
    "albumentations/aerial_rotation": (6, 1, 0),
    "albumentations/aerial_tiles": (4, 1, 0),
    "albumentations/docs_box_safe": (1, 1, 0),
    "albumentations/docs_boxes": (2, 1, 0),
    "albumentations/docs_boxes_filter": (1, 1, 0),
    "albumentations/docs_detection_2x": (4, 5, 0),
    "albumentations/docs_letterbox": (5, 0, 1),
    "albumentations/docs_light": (0, 2, 1),
    "albumentations/docs_resized_crop_2x": (6, 1, 0),
    "albumentations/docs_strong": (3, 7, 7),
    "albumentations/documents_scan": (6, 1, 1),
    "albumentations/evaluation": (3, 0, 0),
    "albumentations/kaggle_chest": (5, 3, 0),
    "albumentations/kaggle_mask": (2, 0, 0),
    "albumentations/kaggle_nfl": (2, 2, 1),
    "albumentations/kaggle_reef": (6, 3, 2),
    "albumentations/kaggle_sartorius": (5, 2, 0),
    "albumentations/medical_flips_only": (6, 0, 0),
    "albumentations/mmdetection": (2, 5, 2),
    "albumentations/mmdetection_list": (4, 0, 0),
    "albumentations/retail_shelves": (7, 1, 0),
    "albumentations/saved_0x": (2, 1, 0),
    "albumentations/saved_1x": (5, 1, 1),
    "albumentations/saved_2x": (7, 0, 0),
    "albumentations/sequential": (8, 0, 0),
    "albumentations/traffic_weather": (4, 2, 4),
    "albumentations/tutorial_detr": (2, 6, 2),
    "albumentations/tutorial_fasterrcnn": (2, 3, 3),
    "albumentations/tutorial_huggingface_cppe5": (2, 1, 0),
    "albumentations/tutorial_icevision": (1, 5, 3),
    "albumentations/tutorial_lightning": (4, 2, 0),
    "albumentations/tutorial_pytorch_ssd": (4, 2, 0),
    "albumentations/tutorial_rtdetr": (3, 3, 0),
    "albumentations/tutorial_torchvision_faster_rcnn": (8, 0, 0),
    "albumentations/tutorial_yolov3": (9, 6, 0),
    "albumentations/ultralytics_v8": (4, 2, 1),
    "albumentations/wheat_efficientdet": (6, 3, 0),
    "albumentations/wheat_fasterrcnn": (1, 1, 0),
    "albumentations/wheat_yolo": (4, 2, 0),
    "albumentations/yolov5": (5, 2, 1),
    "torchvision/classification": (4, 0, 0),
    "torchvision/containers": (14, 1, 0),
    "torchvision/gallery_detection": (6, 1, 0),
    "torchvision/letterbox_by_hand": (5, 1, 1),
    "torchvision/references_hflip": (6, 0, 0),
    "torchvision/references_multiscale": (6, 1, 0),
    "torchvision/references_presets": (6, 1, 0),
    "torchvision/references_ssd": (8, 1, 0),
    "torchvision/references_ssdlite": (7, 0, 0),
    "torchvision/tutorial_pennfudan": (3, 0, 0),
}
"""How many ops of each pipeline mean the same, differ, and are left out."""

FILES = {f"{path.parent.name}/{path.stem}": path for path in sorted(PIPELINES.glob("*/*.*")) if path.suffix != ".pyc"}


def test_there_are_40_and_10_pipelines() -> None:
    assert set(FILES) == set(COUNTS)
    assert [sum(name.startswith(library) for name in FILES) for library in ("albu", "torch")] == [40, 10]


@pytest.mark.parametrize("name", FILES)
def test_a_pipeline_translates_and_its_recipe_loads(name: str, tmp_path: Path) -> None:
    imported = import_file(FILES[name])
    assert (imported.count("same"), imported.differing, imported.left_out) == COUNTS[name]
    assert all(entry.reasons for entry in imported.entries if entry.status != "same")
    imported.save(tmp_path / "recipe.yaml")
    assert tuple(da.load_recipe(tmp_path / "recipe.yaml")) == imported.ops


def test_the_document_has_the_share_that_translates() -> None:
    counts = [count for name, count in COUNTS.items() if name.startswith("albu")]
    same, lost = sum(count[1:] == (0, 0) for count in counts), sum(count[2] > 0 for count in counts)
    ops = [sum(column) for column in zip(*counts, strict=True)]
    page = " ".join((PIPELINES.parents[1] / "docs/migrating.md").read_text().split())
    assert f"{same} mean the same, {40 - same - lost} differ in some op, and {lost} leave some op out" in page
    assert f"Of their {sum(ops)} ops {ops[0]} mean the same, {ops[1]} differ, and {ops[2]} are left out" in page


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_translated_pipeline_runs(name: str) -> None:
    image, target = run(import_file(FILES[name]).ops, smooth_image())
    assert min(image.shape) >= 3
    assert target["boxes"].shape[1] == 4


def run(ops: Any, image: Any) -> tuple[Any, dict[str, Any]]:
    """Run a recipe on an image with BOXES; return it as (H, W, 3) and its target."""
    target = {"boxes": torch.tensor(BOXES, dtype=torch.float32), "labels": torch.tensor([1, 2, 3])}
    changed, target = da.Compose(ops, seed=0)(image, target)
    pixels = np.asarray(changed)
    return pixels.transpose(1, 2, 0) if isinstance(changed, torch.Tensor) else pixels, target


# ------------------------------------------------------------------------- against the libraries themselves

RECORDED = json.loads((PIPELINES / "albumentations.json").read_text())["found"]
ROUNDED = {"letterbox", "letterbox at the top left", "larger canvas", "scale and rotate"}
"""Sizes and offsets are rounded to whole pixels in another way; of a turned box the border leaves a smaller hull."""


@pytest.mark.slow
@pytest.mark.parametrize("name", CASES)
def test_what_means_the_same_does_what_albumentations_did(name: str, tmp_path: Path) -> None:
    imported = import_ops(CASES[name], tmp_path)
    assert {entry.status for entry in imported.entries} == {"same"}
    image, target = run(imported.ops, smooth_image())
    recorded = RECORDED[name]
    assert list(image.shape[:2]) == recorded["size"]
    assert target["boxes"].numpy() == pytest.approx(np.array(recorded["boxes"]), abs=1.1 if name in ROUNDED else 0.3)
    tolerance = 8 if name in ROUNDED else 3  # of 255: a pixel of the image differs from the next by up to 4
    tolerance = tolerance if image.max() > 9 else 0.02
    assert np.array(probe(image)) == pytest.approx(np.array(recorded["colors"]), abs=tolerance)


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
def test_what_means_the_same_does_what_torchvision_does(ops: str, tmp_path: Path) -> None:
    v2functional()
    from torchvision import tv_tensors
    from torchvision.transforms import v2

    imported = import_ops(ops, tmp_path, "torchvision")
    ours, target = run(imported.ops, smooth_image())
    image = tv_tensors.Image(torch.from_numpy(smooth_image().transpose(2, 0, 1).copy()))
    boxes = tv_tensors.BoundingBoxes(torch.tensor(BOXES).float(), format="XYXY", canvas_size=(128, 192))
    theirs, boxes = v2.Compose(eval(ops, {"v2": v2, "torch": torch}))(image, boxes)
    theirs = theirs.numpy().transpose(1, 2, 0)
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs.astype(float)).mean() < (1.0 if theirs.max() > 9 else 0.01)
    left = boxes[(boxes[:, 2:] > boxes[:, :2]).all(1)]
    assert target["boxes"].numpy() == pytest.approx(left.numpy(), abs=0.6)


# -------------------------------------------------------------------------------------- groups of ops


def test_one_of_keeps_the_probability_of_each_op(tmp_path: Path) -> None:
    """Also where others of the group are left out: 0.2 * 0.1 / 0.4 is that of the blur."""
    ops = "[A.OneOf([A.MotionBlur(p=0.2), A.MedianBlur(p=0.1), A.ToGray(p=0.1)], p=0.2)]"
    (alone,) = import_ops(ops, tmp_path).ops
    assert alone == da.RandomApply((da.RandomGrayscale(1.0),), 0.05)
    ops = "[A.OneOf([A.HorizontalFlip(p=0.9), A.VerticalFlip(p=0.3), A.NoOp(p=0.3)], p=0.5)]"
    (chosen,) = import_ops(ops, tmp_path).ops
    flips = da.RandomHorizontalFlip(1.0), da.RandomVerticalFlip(1.0)
    assert chosen == da.RandomApply((da.RandomChoice(flips, (0.9, 0.3)),), 0.4)


@pytest.mark.parametrize(
    ("ops", "expected"),
    [
        ("A.HorizontalFlip(p=0.3)", {(0, 0): 0.7, (1, 0): 0.3}),
        ("A.OneOf([A.HorizontalFlip(p=0.6), A.VerticalFlip(p=0.2)], p=0.8)", {(0, 0): 0.2, (1, 0): 0.6, (0, 1): 0.2}),
        ("A.Flip(p=0.6)", {(0, 0): 0.4, (1, 0): 0.2, (0, 1): 0.2, (1, 1): 0.2}),
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
        ("A.OneOrOther(A.HorizontalFlip(), A.VerticalFlip(), p=0.7)", {(1, 0): 0.7, (0, 1): 0.3}),
    ],
)
def test_groups_draw_as_albumentations_does(ops: str, expected: dict[tuple[int, int], float], tmp_path: Path) -> None:
    """Count flips of 2,000 images, along x and y: shares are right to 4 standard deviations."""
    recipe = import_ops(f"[{ops}]", tmp_path).ops
    images, boxes = [np.zeros((10, 10, 3), np.uint8)] * 2000, [[[1.0, 2.0, 4.0, 5.0]]] * 2000
    after = np.stack(da.batch(images, boxes, seed=3).then(*recipe).boxes)[:, 0]
    flips = list(zip(after[:, 0].round() != 1, after[:, 1].round() != 2, strict=True))
    for flip in ((0, 0), (1, 0), (0, 1), (1, 1)):
        share = expected.get(flip, 0.0)
        assert abs(flips.count(flip) / 2000 - share) <= 4 * np.sqrt(share * (1 - share) / 2000), flip


def test_ops_are_arranged_and_the_order_is_told(tmp_path: Path) -> None:
    ops = "[A.GaussianBlur(), A.ToGray(), A.Resize(64, 64), A.Normalize(), A.HorizontalFlip(), A.Rotate(limit=9)]"
    imported = import_ops(ops, tmp_path)
    names = [type(op).__name__ for op in imported.ops]
    assert names == ["RandomRotation", "Resize", "RandomHorizontalFlip", "GaussianBlur", "RandomGrayscale", "Normalize"]
    told = {entry.call.name: entry.reasons for entry in imported.entries}
    assert told["GaussianBlur"] == ["it runs after Resize, on output pixels"]
    assert told["ToGray"] == []  # the fill is black
    assert told["Rotate"] == ["it runs before Resize, in the image's own aspect ratio"]


COLOUR_NOTES = {
    "A.ToGray(p=1), A.Affine(rotate=30, fill=9)": None,
    "A.ToGray(p=1), A.Affine(rotate=30, fill=(9, 80, 200))": "it runs after Resize and changes the fill too",
    "A.ToGray(p=1), A.LongestMaxSize(64), A.PadIfNeeded(64, 64, fill=(9, 80, 200))": None,
    "A.LongestMaxSize(64), A.PadIfNeeded(64, 64), A.ToGray(p=1)": None,
    "A.LongestMaxSize(64), A.PadIfNeeded(64, 64, fill=(9, 80, 200)), A.ToGray(p=1)": "it leaves the fill as it is",
    "A.Affine(rotate=30, fill=(9, 80, 200)), A.ToGray(p=1)": None,
    "A.ColorJitter(0.2, 0.2, 0.2, 0), A.RandomSizedBBoxSafeCrop(64, 64)": (
        "contrast is about the mean grey of the part that is shown, not of the whole image"
    ),
    "A.ColorJitter(0.2, 0, 0.2, 0), A.RandomSizedBBoxSafeCrop(64, 64)": None,
    "A.RandomSizedBBoxSafeCrop(64, 64), A.ColorJitter(0.2, 0.2, 0.2, 0)": None,
    "A.HorizontalFlip(), A.ColorJitter(0.2, 0.2, 0.2, 0.1)": "hue is not rounded to OpenCV's steps of 2 degrees",
}


@pytest.mark.parametrize("ops", COLOUR_NOTES)
def test_what_differs_of_colours_is_told(ops: str, tmp_path: Path) -> None:
    imported = import_ops(f"[{ops}]", tmp_path)
    (told,) = (entry for entry in imported.entries if entry.call.name in ("ToGray", "ColorJitter"))
    assert (COLOUR_NOTES[ops] in told.reasons) if COLOUR_NOTES[ops] else told.status == "same"


def test_an_op_that_never_runs_is_not_in_the_recipe(tmp_path: Path) -> None:
    imported = import_ops("[A.RandomGamma(p=0), A.RandomResizedCrop((8, 8), p=0.0), A.HorizontalFlip(p=0.1)]", tmp_path)
    assert imported.ops == (da.RandomHorizontalFlip(0.1),)
    assert imported.left_out == imported.differing == 0


@pytest.mark.parametrize(
    ("ops", "fill"),
    [
        ("v2.RandomErasing(1.0), v2.Resize((8, 8))", (0, 0, 0)),
        ("v2.Resize((8, 8)), v2.Normalize((0.2, 0.4, 0.6), (1, 1, 1)), v2.RandomErasing(1.0)", (51, 102, 153)),
        ("v2.RandomErasing(1.0), v2.Resize((8, 8)), v2.Normalize((0.2, 0.4, 0.6), (1, 1, 1))", (0, 0, 0)),
    ],
)
def test_erasing_leaves_the_colour_that_0_has_there(ops: str, fill: tuple[int, int, int], tmp_path: Path) -> None:
    imported = import_ops(f"[{ops}]", tmp_path, "torchvision")
    (erasing,) = (op for op in imported.ops if isinstance(op, da.RandomErasing))
    assert erasing.value == fill


@pytest.mark.parametrize("op", ["A.Normalize(p=0.5)", "A.ToFloat(p=0.5)"])
def test_what_runs_on_each_image_here_is_told(op: str, tmp_path: Path) -> None:
    (entry,) = import_ops(f"[{op}]", tmp_path).entries
    assert entry.reasons == ["it runs on each image: sizes and Normalize are no matter of chance"]
    assert import_ops(f"[{op.replace('0.5', '1.0')}]", tmp_path).differing == 0


def test_a_recipe_has_one_fill(tmp_path: Path) -> None:
    ops = "[v2.RandomZoomOut(fill=9), v2.RandomRotation(5, fill=(1, 2, 3)), v2.Resize((8, 8))]"
    imported = import_ops(ops, tmp_path, "torchvision")
    assert {fill for op in imported.ops for fill in op.fills} == {(9, 9, 9)}
    assert imported.entries[1].reasons == ["its fill is (9.0, 9.0, 9.0): a recipe has one fill"]


def test_an_argument_without_a_rule_is_told(tmp_path: Path) -> None:
    (entry,) = import_ops("[A.HorizontalFlip(p=0.5, sideways=3)]", tmp_path).entries
    assert entry.reasons == ["sideways=3 is not translated"]
    (entry,) = import_ops("[A.Flip(0.5)]", tmp_path).entries  # its first argument is always_apply, not p
    assert entry.reasons == ["1 of its arguments have no name, and are not translated: write name=value"]


def test_arguments_of_1_x_bring_its_defaults(tmp_path: Path) -> None:
    new = import_ops("[A.Rotate(limit=5, p=1)]", tmp_path)
    old = import_ops("[A.Rotate(limit=5, p=1, value=0)]", tmp_path)
    assert (new.differing, old.differing) == (0, 1)  # the border was mirrored by default
    assert "1.x" in str(old)


# ------------------------------------------------------------------------------------- what is read


def test_a_file_is_read_and_never_executed(tmp_path: Path) -> None:
    traps = f"import os\nopen({str(tmp_path / 'trap')!r}, 'w')\nraise SystemExit(9)\nfor each in range(10**12): pass\n"
    text = f"{traps}import albumentations as A\nt = A.Compose([A.HorizontalFlip(p=1 / 4)])\n"
    assert import_text(text, tmp_path).ops == (da.RandomHorizontalFlip(0.25),)
    assert not (tmp_path / "trap").exists()


@pytest.mark.parametrize(
    "text",
    [
        "SIZE = 64\nt = A.Compose([A.Resize(SIZE, SIZE // 2)])",
        "class CFG:\n    size = 64\n    half = size // 2\nt = A.Compose([A.Resize(CFG.size, CFG.half)])",
        "cfg = {'size': [64, 32]}\nt = A.Compose([A.Resize(cfg['size'][0], width=cfg['size'][1])])",
        "def make(size=64):\n    return A.Compose([A.Resize(size, int(size * 0.5))])",
        "class Data:\n    def __init__(self, *, height=64):\n        self.t = A.Compose([A.Resize(height, 32)])",
        "size = dict(height=64, width=32)\nt = A.Compose([A.Resize(**size)])",
        "ops = []\nops.append(A.Resize(64, 32))\nt = A.Compose(ops)",
        "ops = [A.Resize(64, 32)]\nops += []\nt = A.Compose([] + ops)",
        "data = Data('images', transform=A.Compose([A.Resize(64, 32)]))",
        "BIG = False\nt = A.Compose([A.Resize(640 if BIG else 64, 32)])",
        "if __debug__ and True:\n    pass\nt = A.Compose(transforms=[A.Resize(height=64, width=32)])",
        "def make(train):\n    if train == 'no':\n        return None\n    return A.Compose([A.Resize(64, 32)])",
    ],
)
def test_constants_of_the_file_are_resolved(text: str, tmp_path: Path) -> None:
    assert import_text(f"import albumentations as A\n{text}\n", tmp_path).ops == (da.Resize((64, 32)),)


def test_settings_give_what_the_file_does_not(tmp_path: Path) -> None:
    body = "    ops = [A.Resize(cfg.size, cfg.size)]\n    if train:\n        ops.append(A.HorizontalFlip())\n"
    text = f"import albumentations as A\ndef make(cfg, train):\n{body}    return A.Compose(ops)\n"
    train = import_text(text, tmp_path, settings={"cfg.size": 8, "train": True})
    assert train.ops == (da.Resize((8, 8)), da.RandomHorizontalFlip())
    assert import_text(text, tmp_path, settings={"cfg.size": 8, "train": False}).ops == (da.Resize((8, 8)),)
    with pytest.raises(da.InputError, match=r"line 4: an op of Compose is 'train', .* give it with --set train=VALUE"):
        import_text(text, tmp_path, settings={"cfg.size": 8})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "t = A.Compose([A.Resize(f'{x}', 3)])",
            r"line 2: height of Resize is .*, which is no constant: write what it",
        ),
        ("t = A.Compose([A.Resize(SIZE, 3)])", r"line 2: height of Resize is 'SIZE', .* give it with --set SIZE=VALUE"),
        ("t = A.Compose([A.Resize(cfg.size, 3)])", r"give it with --set cfg\.size=VALUE"),
        ("t = A.Compose([A.Resize('a', 3)])", r"Resize \(line 2\): height must be a number, got 'a'"),
        ("t = A.Compose([A.Resize(0, 3)])", r"Resize \(line 2\): size must be"),
        ("t = A.Compose([A.HorizontalFlip(p=3)])", r"HorizontalFlip \(line 2\): p must be a probability"),
        ("t = A.Compose([A.RandomSizedCrop()])", r"RandomSizedCrop \(line 2\): min_max_height must be"),
        ("t = A.Compose(ops)", r"line 2: transforms of Compose is 'ops', .* --set ops=VALUE"),
        ("t = A.Compose([1])", r"Compose \(line 2\): transforms must be ops, got 1"),
        ("t = A.Compose(A.Blur())", r"Compose \(line 2\): transforms must be a list of ops, got Call"),
        ("t = A.Compose([A.Blur()]", r"line 2: not Python"),
        ("t = 3", "no pipeline: none of its names is a Compose of albumentations"),
        (
            "a = A.Compose([])\nb = A.Compose([])",
            r"has 2 pipelines: a \(line 2\), b \(line 3\); choose one with --name",
        ),
        ("t = " + "-" * 100_000 + "1", "not Python"),
        ("t = A.Compose([0]" + " * 8" * 20 + ")", "line 2: transforms of Compose is .* which is no constant"),
    ],
)
def test_what_cannot_be_read_is_named_with_the_remedy(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(da.InputError, match=message) as raised:
        import_text(f"import albumentations as A\n{text}\n", tmp_path)
    assert str(raised.value).startswith(f"{tmp_path / 'pipeline.py'}: ")
    assert "\n" not in str(raised.value)


REPEATS = [f", a{at}: &a{at} [{', '.join([f'*a{at - 1}'] * 9)}]" for at in range(1, 12)]
BOMB = f"transform: {{__class_fullname__: Compose, transforms: [], a0: &a0 [1, 2]{''.join(REPEATS)}}}"
"""YAML whose aliases stand for 2 * 9 ** 11 numbers."""


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("a.json", "{", "neither JSON nor YAML"),
        ("a.yaml", "- [", "neither JSON nor YAML"),
        ("a.json", "[]", "must be what A.save writes"),
        ("a.json", '{"transform": {"p": 1}}', "must be what A.save writes"),
        ("a.json", '{"transform": {"__class_fullname__": "Compose"}}', "Compose: transforms must be a list of ops"),
        ("a.yaml", BOMB, "has more than 100,000 values"),
        (
            "a.json",
            '{"transform": {"__class_fullname__": "Compose", "p": ' + "[" * 600 + "]" * 600 + "}}",
            "Compose|deep",
        ),
        ("a.ipynb", "{}", r"must end in \.py, \.json or \.yaml; from a notebook"),
    ],
)
def test_a_malformed_file_is_named(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(da.InputError, match=message):
        da.import_recipe(tmp_path / name)


def test_one_of_several_pipelines_is_chosen_by_its_name(tmp_path: Path) -> None:
    both = "{'train': A.Compose([A.HorizontalFlip()]), 'val': A.Compose([A.Resize(8, 8)])}"
    text = f"import albumentations as A\nt = {both}\n"
    assert import_text(text, tmp_path, name="val").ops == (da.Resize((8, 8)),)
    with pytest.raises(
        da.InputError, match=r"no pipeline is called 'test'; there are train \(line 2\), val \(line 2\)"
    ):
        import_text(text, tmp_path, name="test")


# ---------------------------------------------------------------------------------------- the command


def test_the_command_tells_what_became_of_each_op(tmp_path: Path) -> None:
    source, output = tmp_path / "augment.py", tmp_path / "recipe.yaml"
    ops = "A.HorizontalFlip(), A.Blur(), A.ElasticTransform(), A.Resize(64, 64)"
    source.write_text(f"import albumentations as A\nt = A.Compose([{ops}])\n")
    result = detaug("import-recipe", source, "-o", output)
    assert (result.code, result.err) == (1, "")
    assert "same      HorizontalFlip (line 2) -> RandomHorizontalFlip\n" in result.out
    assert "left out  ElasticTransform (line 2): detaug has no such op; nearest: RandomPerspective\n" in result.out
    end = f'2 mean the same, 1 differ, 1 left out\nwritten: {output}\nload it: da.load_recipe("{output}")\n'
    assert result.out.endswith(end)
    comments = [line for line in output.read_text().splitlines() if line.startswith("#")]
    assert [line[2:10].strip() for line in comments[1:-1]] == ["differs", "left out"]
    assert [type(op).__name__ for op in da.load_recipe(output)] == ["RandomHorizontalFlip", "Resize", "GaussianBlur"]


@pytest.mark.parametrize(("ops", "code"), [("A.HorizontalFlip()", 0), ("A.Blur()", 3), ("A.Blur(), A.RandomRain()", 1)])
def test_the_exit_code_says_whether_all_means_the_same(ops: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text(f"import albumentations as A\nt = A.Compose([{ops}])\n")
    result = detaug("import-recipe", tmp_path / "a.py", "-o", tmp_path / "a.json", "--size", "64x32", "-q")
    assert (result.code, result.out) == (code, "")
    assert da.Resize((64, 32)) in da.load_recipe(tmp_path / "a.json")


def test_the_output_is_another_file_and_a_recipe(tmp_path: Path) -> None:
    source = tmp_path / "a.json"
    text = '{"transform": {"__class_fullname__": "Compose", "transforms": []}}'
    source.write_text(text)
    (tmp_path / "link.json").symlink_to(source)
    for output in (source, tmp_path / "link.json"):
        assert "output must be another file than" in usage_error("import-recipe", source, "-o", output)
    assert "must end in .yaml, .yml, .json" in usage_error("import-recipe", source, "-o", tmp_path / "a.py")
    assert source.read_text() == text


def test_a_pipeline_without_a_size_says_how_to_give_one(tmp_path: Path) -> None:
    source = tmp_path / "a.py"
    source.write_text("import albumentations as A\nt = A.Compose([A.HorizontalFlip()])\n")
    assert "give it with --size" in detaug("import-recipe", source, "-o", tmp_path / "a.yaml").out
    source.write_text("import albumentations as A\nt = A.Compose([A.Resize(8, 8)])\n")
    assert "leave it out" in usage_error("import-recipe", source, "-o", tmp_path / "b.yaml", "--size", "64")
    assert "NAME=VALUE" in usage_error("import-recipe", source, "-o", tmp_path / "b.yaml", "--set", "train")
    assert not (tmp_path / "b.yaml").exists()


@pytest.mark.slow
def test_the_command_needs_neither_library(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import albumentations as A\nt = A.Compose([A.HorizontalFlip()])\n")
    code = "import sys; from detaug.importing.import_recipe import import_recipe; import_recipe('a.py')\n"
    code += "print([each for each in ('albumentations', 'torchvision', 'cv2') if each in sys.modules])"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=True)
    assert result.stdout == "[]\n"


def test_ops_that_a_loop_adds_are_not_forgotten(tmp_path: Path) -> None:
    text = """
import albumentations as A
ops = [A.Resize(64, 64)]
for limit in (3, 5):
    ops.append(A.Blur(limit))
t = A.Compose(ops)
"""
    with pytest.raises(da.InputError, match=r"line 4: an op of Compose is 'for limit in \(3, 5\)', which is no"):
        import_text(text, tmp_path)


def test_a_setting_of_a_name_that_the_file_does_not_have_is_refused(tmp_path: Path) -> None:
    text = "import albumentations as A\nt = A.Compose([A.Resize(size, 64)])\n"
    assert import_text(text, tmp_path, settings={"size": 8}).ops == (da.Resize((8, 64)),)
    with pytest.raises(da.InputError, match=r"it has no name 'sice', to which the settings give a value"):
        import_text(text, tmp_path, settings={"sice": 8})
