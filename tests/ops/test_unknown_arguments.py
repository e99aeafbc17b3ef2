"""Arguments that there are not, and values in the wrong place: one line that lists what there is, and works."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import detaug as da

IMAGE = np.zeros((9, 9, 3), np.uint8)
presets: Any = da.presets


UNKNOWN: list[tuple[Any, tuple[Any, ...], dict[str, Any], str]] = [
    (da.RandomHorizontalFlip, (), {"prob": 1}, "RandomHorizontalFlip has no argument 'prob'; it has p"),
    (da.Resize, ((9, 9),), {"keep": 1}, "Resize has no argument 'keep'; it has size, max_size, letterbox, fill"),
    (da.batch, ([IMAGE],), {"bbox": []}, "batch has no argument 'bbox'; it has images, boxes, labels, columns"),
    (da.Loader, (None, [], 1), {"gpu": 0}, "Loader has no argument 'gpu'; it has reader, ops, batch_size, device"),
    (da.Loader, (None, [], 1), {"shuffle": True}, "Loader has no argument shuffle: train=True shuffles"),
    (da.Compose, ([],), {"size": 1}, "Compose has no argument 'size'; it has ops, seed, columns, flip_pairs"),
    (da.CocoReader, ("a", "b"), {"mask": 1}, "CocoReader has no argument 'mask'; it has images, annotations, columns"),
    (presets.ssd300, (), {"size": 300}, "ssd300 has no argument 'size'; it has mean, std"),
    (presets.evaluation, (9,), {"sz": 1}, "evaluation has no argument 'sz'; it has size, mean, std, max_size"),
    (
        da.fn.augment,
        (1, 2, 3, []),
        {"box": 1},
        "augment has no argument 'box'; it has images, boxes, labels, ops, seed",
    ),
    (da.ClipReader, ("a", "b"), {"clip": 4}, "ClipReader has no argument 'clip'; it has images, annotations, frames"),
    (da.VideoReader, ("a", "b"), {"fps": 4}, "VideoReader has no argument 'fps'; it has videos, frames, stride"),
    (da.ImageFolder, ("a",), {"split": 1}, "ImageFolder has no argument 'split'; it has root, list_file"),
    (da.TileReader, (None, 9), {"stride": 1}, "TileReader has no argument 'stride'; it has reader, size, overlap"),
    (da.ConcatReader, ([],), {"weights": 1}, "ConcatReader has no argument 'weights'; it has sources"),
    (da.StackReader, ([],), {"bands": 1}, "StackReader has no argument 'bands'; it has sources"),
    (da.DaliIterator, (None,), {"size": 1}, "DaliIterator has no argument 'size'; it has pipelines, output_map"),
    (da.Stages, ([],), {"epoch": 1}, "Stages has no argument 'epoch'; it has stages"),
    (da.CocoEvaluator, ("a",), {"iou": "segm"}, "CocoEvaluator has no argument 'iou'; it has annotations, kind"),
    (da.load_model, ("a",), {"map_location": "cpu"}, "load_model has no argument 'map_location'; it has path, device"),
    (da.load_recipe, ("a",), {"op": 1}, "load_recipe has no argument 'op'; it has path, ops"),
    (da.save_recipe, ([], "a"), {"text": 1}, "save_recipe has no argument 'text'; it has ops, path, comment"),
    (da.import_recipe, ([],), {"sizes": 1}, "import_recipe has no argument 'sizes'; it has pipeline, name, size"),
    (da.merge_tiles, ([], [], ()), {"iou": 1}, "merge_tiles has no argument 'iou'; it has predictions, windows"),
    (da.tile_coco, ("a", "b", "c"), {"stride": 1}, "tile_coco has no argument 'stride'; it has annotations, images"),
    (da.RepeatFactorSampler, (), {"t": 1}, "RepeatFactorSampler has no argument 't'; it has threshold"),
    (da.ClassBalancedSampler, (), {"t": 1}, "ClassBalancedSampler has no argument 't'; it has none"),
    *(
        (function, (1, 2, 3), {"box": 1}, f"{function.__name__} has no argument 'box'; it has images, boxes, labels")
        for function in (da.fn.paste, da.fn.random_bbox_crop, da.fn.flip, da.fn.resize)
    ),
    (da.fn.coco, ("a", "b"), {"ratio": 1}, "coco has no argument 'ratio'; it has images, annotations"),
]


def test_every_public_function_and_class_lists_its_arguments() -> None:
    """Those that are called by users; what detaug makes itself, errors and bases of own classes are not."""
    made = {"Batch", "ClipBatch", "DetectionErrors", "ImportedRecipe", "KeyPoints", "KeypointMetrics", "MaskMetrics"}
    made |= {"Metrics", "RotatedMetrics", "Samples", "Shapes", "Source", "TileSummary", "TrainedModel", "Views"}
    made |= {"SemanticMetrics", "DepthMetrics", "PanopticMetrics", "PixelFormat", "GeometricOp", "Op", "PixelOp"}
    made |= {"keep_freed_memory"}
    for name in sorted({*dir(da)} - made):
        value = getattr(da, name)
        if name.startswith("_") or not callable(value) or (isinstance(value, type) and issubclass(value, Exception)):
            continue
        with pytest.raises(TypeError, match=rf"{name} has no argument 'no_such'; it has "):
            value(no_such=1)


@pytest.mark.parametrize(("function", "given", "named", "text"), UNKNOWN)
def test_unknown_arguments_are_listed(function: Any, given: Any, named: Any, text: str) -> None:
    with pytest.raises(TypeError) as raised:
        function(*given, **named)
    assert str(raised.value).startswith(text)


def test_unknown_presets_are_listed() -> None:
    names = "ssd300, retinanet, yolo640, rf_detr, d_fine, deim, for_problem, imagenet, imagenet_evaluation, evaluation"
    with pytest.raises(AttributeError, match=f"detaug.presets has no recipe 'yolo'; it has {names}$"):
        _ = presets.yolo
    assert all(callable(getattr(presets, name)) for name in names.split(", "))


@pytest.mark.parametrize("size", [320, (288, 320)], ids=repr)
@pytest.mark.parametrize("name", ["ssd300", "retinanet", "yolo640"])
def test_a_size_where_a_mean_belongs_and_the_remedy_works(name: str, size: Any) -> None:
    with pytest.raises(da.InputError, match=r"mean must be three numbers in 0\.\.1") as raised:
        getattr(presets, name)(size)
    (code,) = re.findall(r"another one by (\[.*\])$", str(raised.value))
    (resize,) = (op for op in eval(code) if isinstance(op, da.Resize))
    assert resize.size == ((320, 320) if size == 320 else size)


@pytest.mark.parametrize("name", ["brightness", "contrast", "saturation", "hue"])
@pytest.mark.parametrize("value", [-1, (0.5, 0.1), "much", (0.1, 0.2, 0.3)], ids=repr)
def test_a_strength_is_named_as_it_was_given(name: str, value: Any) -> None:
    with pytest.raises(da.InputError, match=rf"{name} must be a number within 0\.\..*, got {re.escape(repr(value))}$"):
        da.ColorJitter(**{name: value})


def test_the_largest_strengths_are_taken() -> None:
    assert da.ColorJitter(brightness=3, hue=0.5).brightness == 3
    assert da.ColorJitter(hue=(-0.5, 0.5)).hue == (-0.5, 0.5)
    with pytest.raises(da.InputError, match=r"hue must be a number within 0\.\.0\.5, or \(smallest, largest\)"):
        da.ColorJitter(hue=0.51)
