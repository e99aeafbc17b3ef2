"""`import_recipe` of the settings of trainers: RF-DETR's `aug_config`, and Ultralytics' augmentation settings."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import detaug as da
from detaug.testing import assert_boxes_follow_pixels

SIZE = (96, 128)
GRAY = (114.0, 114.0, 114.0)


# -------------------------------------------------------------------------------------------- RF-DETR


def test_an_aug_config_is_the_pipeline_of_albumentations_after_a_resize() -> None:
    A = pytest.importorskip("albumentations")
    config = {
        "HorizontalFlip": {"p": 0.3},
        "Affine": {"scale": (0.8, 1.2), "rotate": (-5, 5), "p": 0.4},
        "OneOf": {"transforms": [{"GaussianBlur": {"blur_limit": 3}}, {"ToGray": {"p": 0.2}}]},
        "Sequential": {"transforms": [{"VerticalFlip": {"p": 1.0}}], "p": 0.7},
    }
    own = A.Compose(
        [
            A.Resize(*SIZE),
            A.HorizontalFlip(p=0.3),
            A.Affine(scale=(0.8, 1.2), rotate=(-5, 5), p=0.4),
            A.OneOf([A.GaussianBlur(blur_limit=3), A.ToGray(p=0.2)], p=1.0),
            A.Sequential([A.VerticalFlip(p=1.0)], p=0.7),
        ]
    )
    imported, expected = da.import_recipe(config, size=SIZE), da.import_recipe(own)
    assert imported.ops == expected.ops
    assert str(imported).splitlines()[1:] == str(expected).splitlines()[1:]
    assert str(imported).startswith("RF-DETR's aug_config\n")
    as_list = [{name: arguments} for name, arguments in config.items()]
    assert da.import_recipe(as_list, size=SIZE).ops == imported.ops
    assert da.import_recipe([*as_list, {"HorizontalFlip": {"p": 0.9}}], size=SIZE).ops != imported.ops


def test_an_aug_config_without_a_size() -> None:
    imported = da.import_recipe({"HorizontalFlip": {"p": 1.0}})
    assert imported.ops == (da.RandomHorizontalFlip(1.0),)
    assert "no op sets the size" in str(imported)
    assert da.import_recipe({"HorizontalFlip": {}}, size=80).ops[1] == da.Resize(80)


def test_a_sized_crop_of_an_aug_config_has_its_height_and_width() -> None:
    arguments = {"min_max_height": [10, 20], "height": 30, "width": 40, "p": 1.0}
    with_size = {"min_max_height": [10, 20], "size": (30, 40), "p": 1.0}
    first, second = (da.import_recipe({"RandomSizedCrop": each}).ops for each in (arguments, with_size))
    assert first == second


@pytest.mark.parametrize("name", ["OneOf", "Sequential", "SomeOf"])
def test_a_container_of_an_aug_config_may_be_its_list(name: str) -> None:
    flips: list[dict[str, Any]] = [{"HorizontalFlip": {"p": 1.0}}, {"VerticalFlip": {"p": 0.5}}]
    expected = da.import_recipe({name: {"transforms": flips}, "Rotate": {}}, size=SIZE)
    for config in ({name: flips, "Rotate": {}}, [{name: flips}, {"Rotate": {}}]):
        imported = da.import_recipe(config, size=SIZE)
        assert (imported.ops, str(imported)) == (expected.ops, str(expected))


@pytest.mark.parametrize(("config", "message"), [
    ({"OneOf": []}, r"OneOf.transforms must be a dict of names and arguments, or a list"),
    ({"HorizontalFlip": [{"p": 1.0}]}, "the pipeline must be of Albumentations"),
    ({"HorizontalFlip": {}, "GlassBlur": {"p": 0.1}}, "aug_config must have ops that detaug has, got GlassBlur: detaug "
     "has no such op; take GaussianBlur, which is near, in a recipe"),
    ({"NoSuchOp": {}}, "aug_config must have ops that detaug has, got NoSuchOp: unknown op of albumentations; leave"),
    ({"OneOf": {"transforms": [{"GlassBlur": {}}]}}, "got GlassBlur"),
    ({"OneOf": {"transforms": {"Rotate": 3}}}, r"OneOf.transforms must be a dict of names and arguments, or a list"),
    ({"OneOf": {}}, r"OneOf.transforms must be a dict .* got None"),
    ({"Rotate": {"limit": "x"}}, "Rotate: limit must be"),
    ({}, "the pipeline must be of Albumentations or torchvision .* RF-DETR's aug_config, Ultralytics'"),
    ({"Rotate": 3}, "the pipeline must be of Albumentations"),
])  # fmt: skip
def test_what_an_aug_config_must_not_have(config: Any, message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        da.import_recipe(config)


@pytest.mark.slow
def test_the_presets_of_rf_detr() -> None:
    presets = pytest.importorskip("rfdetr.datasets.aug_configs", reason="needs rfdetr")
    found = {name: value for name, value in vars(presets).items() if name.startswith("AUG_")}
    assert len(found) >= 5
    for config in found.values():
        imported = da.import_recipe(config, size=SIZE)
        assert imported.left_out == 0
        assert len(imported.ops) == len(config) + 1


# ---------------------------------------------------------------------------------------- Ultralytics


def only(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings, with all others turned off."""
    off = dict.fromkeys(["hsv_h", "hsv_s", "hsv_v", "translate", "scale", "fliplr", "mosaic"], 0)
    return off | settings


@pytest.mark.parametrize(("settings", "op"), [
    ({"hsv_h": 0.1, "hsv_s": 0.2, "hsv_v": 0.3}, da.RandomHSV(0.1, 0.2, 0.3)),
    ({"degrees": 20}, da.RandomAffine(20, (0, 0), (1, 1), (0, 0, 0, 0), fill=GRAY)),
    ({"translate": 0.2}, da.RandomAffine(0, (0.2, 0.2), (1, 1), (0, 0, 0, 0), fill=GRAY)),
    ({"scale": 0.4}, da.RandomAffine(0, (0, 0), (0.6, 1.4), (0, 0, 0, 0), fill=GRAY)),
    ({"shear": 5}, da.RandomAffine(0, (0, 0), (1, 1), (-5, 5, -5, 5), fill=GRAY)),
    ({"flipud": 0.3}, da.RandomVerticalFlip(0.3)),
    ({"fliplr": 0.4}, da.RandomHorizontalFlip(0.4)),
    ({"mosaic": 0.6, "epochs": 100, "close_mosaic": 15}, da.Mosaic(0.6, center=(0, 1), until_epoch=85)),
    ({"mosaic": 0.6, "epochs": 10}, da.Mosaic(0.6, center=(0, 1), until_epoch=0)),
    ({"mosaic": 0.6, "epochs": 5}, da.Mosaic(0.6, center=(0, 1))),
    ({"mosaic": 0.6, "close_mosaic": 0}, da.Mosaic(0.6, center=(0, 1))),
    ({"mixup": 0.2}, da.MixUp(0.2)),
    ({"cutmix": 0.2}, da.CutMix(0.2)),
    ({"copy_paste": 0.2}, da.CopyPaste(0.2, masks=True)),
], ids=str)  # fmt: skip
def test_a_setting_of_ultralytics(settings: dict[str, Any], op: da.Op) -> None:
    frame = {da.Resize, da.SanitizeBoundingBoxes, da.Normalize}
    ops = da.import_recipe(only(settings)).ops
    assert [each for each in ops if type(each) not in frame] == [op]
    assert ops[-1] == da.Normalize()
    (resize,) = (each for each in ops if isinstance(each, da.Resize))
    assert resize == da.Resize((640, 640), letterbox="center", fill=GRAY)


def test_the_defaults_and_the_order_of_ultralytics() -> None:
    imported = da.import_recipe({"epochs": 100, "flipud": 0.1, "mixup": 0.1, "copy_paste": 0.1, "imgsz": 128})
    names = [type(op).__name__ for op in imported.ops]
    assert names == [
        "RandomAffine", "RandomVerticalFlip", "RandomHorizontalFlip", "Resize", "SanitizeBoundingBoxes", "CopyPaste",
        "Mosaic", "MixUp", "RandomHSV", "Normalize",
    ]  # fmt: skip
    affine, _, flip, resize, *_, color, _ = imported.ops
    assert affine == da.RandomAffine(0, (0.1, 0.1), (0.5, 1.5), (0, 0, 0, 0), fill=GRAY)
    assert (flip, color) == (da.RandomHorizontalFlip(0.5), da.RandomHSV(0.015, 0.7, 0.4))
    assert resize.size == (128, 128)  # type: ignore[attr-defined]
    assert da.import_recipe({"imgsz": 128}, size=(64, 96)).ops[2].size == (64, 96)  # type: ignore[attr-defined]
    report = str(imported)
    assert "it does not end with the mosaics at epoch 90, as da.Stages would let it" in report
    assert "the reader needs masks=True" in report
    assert imported.left_out == 0
    assert "without epochs the mosaics do not end" in str(da.import_recipe({"mosaic": 1.0}))
    note = "mosaics do not end, as in Ultralytics where epochs=5 is below close_mosaic=10"
    assert note in str(da.import_recipe({"epochs": 5}))
    assert "mosaics do not end" not in str(da.import_recipe({"epochs": 10}))
    alone = da.import_recipe({"epochs": 100, "mosaic": 0, "mixup": 0.1})  # `close_mosaic` ends it, too
    assert "it does not end at epoch 90, as da.Stages would let it" in str(alone)
    assert "mosaics do not end" not in str(da.import_recipe({"epochs": 5, "mosaic": 0}))
    assert "auto_augment, erasing -> nothing is needed: it augments classification alone" in str(
        da.import_recipe({"auto_augment": "randaugment", "erasing": 0.4, "mosaic": 0})
    )


def test_boxes_follow_the_pixels_of_ultralytics_settings() -> None:
    settings = {"degrees": 10, "shear": 3, "flipud": 0.5, "mosaic": 0, "hsv_h": 0, "hsv_s": 0, "hsv_v": 0}
    ops = da.import_recipe(settings, size=SIZE).ops[:-1]
    black = [type(op)(**{**vars(op), "fill": (0, 0, 0)}) if hasattr(op, "fill") else op for op in ops]
    assert assert_boxes_follow_pixels(black, size=SIZE, images=8, min_boxes=12)


def test_a_loader_takes_ultralytics_recipe(workplace: Path) -> None:
    imported = da.import_recipe({"mixup": 0.5, "epochs": 3, "imgsz": 96})
    with da.Loader(da.CocoReader("demo/VOC/JPEGImages", "train.json"), imported.ops, 8, device="cpu") as loader:
        batch = next(iter(loader))
    assert batch.images.shape == (8, 3, 96, 96)
    assert np.isfinite(batch.images.numpy()).all()


@pytest.mark.parametrize(("settings", "message"), [
    ({"degrees": 3, "lr0": 0.01}, "'lr0' must be an augmentation setting of Ultralytics: one of hsv_h, .*; leave it"),
    ({"mosaic": 0, "perspective": 0.001}, "perspective must be 0, got 0.001, for which there is no op; add da.RandomP"),
    ({"bgr": 0.1}, "bgr must be 0, got 0.1, for which there is no op; add da.RandomChannelPermutation"),
    ({"multi_scale": True, "mosaic": 0}, "multi_scale must be 0, got True, .*; give da.Resize a list of sizes"),
    ({"close_mosaic": 10}, "epochs must be given with close_mosaic=10, got none; add epochs=, or close_mosaic=0"),
    ({"mosaic": 1.5}, r"mosaic must be a number in 0\.\.1, got 1.5"),
    ({"scale": 1.0}, r"scale must be a number at least 0 and below 1, got 1.0"),
    ({"degrees": 181}, r"degrees must be a number in 0\.\.180, got 181"),
    ({"degrees": -1}, r"degrees must be a number in 0\.\.180, got -1"),
    ({"fliplr": "half"}, r"fliplr must be a number in 0\.\.1, got 'half'"),
    ({"copy_paste_mode": "swap"}, "copy_paste_mode must be 'flip' or 'mixup', got 'swap'"),
    ({"epochs": 0, "mosaic": 1}, "epochs must be a whole number of at least 1, got 0"),
    ({"imgsz": 1.5}, "imgsz must be a whole number of at least 1, got 1.5"),
], ids=str)  # fmt: skip
def test_settings_of_ultralytics_that_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(da.InputError, match=message):
        da.import_recipe(settings)


def test_the_remedies_are_taken() -> None:
    ops = da.import_recipe({"mosaic": 0}, size=SIZE).ops
    recipe = [da.RandomPerspective(0.1), *ops[:-1], da.RandomChannelPermutation(0.1), ops[-1]]
    assert re.match("RandomPerspective", repr(recipe[0]))
    da.Stages([(0, recipe), (9, ops)])
