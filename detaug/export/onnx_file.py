"""Write a detector as ONNX: one file with pre-processing's numbers, non-maximum suppression and any batch size."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn

from detaug import __version__
from detaug.arguments import check, is_whole, is_wholes
from detaug.errors import InputError
from detaug.export.graph import OUTPUTS, SHAPES, DetectorGraph, DetrGraph, OneStageGraph, refuse_other_models
from detaug.export.two_stage_graph import TwoStageGraph
from detaug.files.atomic import replacing
from detaug.files.paths import PathLike
from detaug.named_options import option
from detaug.ops.normalize import Normalize
from detaug.ops.resize import Resize
from detaug.outputs.guards import MARK, output_files
from detaug.packages import require
from detaug.training.detr_models import DetrDetector
from detaug.training.options import check_size
from detaug.training.predict import TrainedModel, load_model
from detaug.training.torch_files import read_torch_file

OPSET = 17
"""The newest set of operators that torch's exporter by tracing writes for all of the models."""

INPUTS = ("images", "source_size")

TASKS = {"bbox": "detect", "segm": "segment", "keypoints": "pose"}
"""Ultralytics' names, by what a model finds."""


def export_onnx(
    model: PathLike,
    output: PathLike,
    *,
    size: tuple[int, int] | None = None,
    batch: int | Literal["dynamic"] = "dynamic",
    max_detections: int = 300,
) -> TrainedModel:
    """Write the model.pt of `detaug train` as an ONNX file; return the model with the `Resize` of the file.

    Inputs: `images` (N, 3, H, W) float32 RGB in 0..1, resized to the input size as the metadata say, not normalized;
    `source_size` (N, 2) int64, height and width of each image before. Outputs: `num_dets` (N,) int64, `boxes`
    (N, K, 4) float32 XYXY in pixels of the source images, `scores` (N, K), best first, and `labels` (N, K) int64 from
    1; beyond `num_dets` all is 0. A model of masks also has `masks` (N, K, h, w), the probability of each part of the
    rectangle `mask_boxes` (N, K, 4) XYXY in pixels of the source images: a mask is resized to its rectangle, which may
    exceed the image, and the object is where it is 0.5 or more. Those of Mask R-CNN are 28 x 28 of a box, those of
    RF-DETR a quarter of the input, of all of it. A model of keypoints also has `keypoints` (N, K, P, 3), x, y in pixels
    of the source images and 1, and `keypoints_scores` (N, K, P), as torchvision. Metadata: names, imgsz, task, resize,
    letterbox, fill, mean, std, and more.

    Args:
        model: The file.
        output: The file to write, which ends in .onnx. One of someone else is never replaced.
        size: The input size (H, W); that of the evaluation by default. A model whose size is one number, the shorter
            side, needs it: images then keep their aspect ratio, with the model's mean color at the right and below.
        batch: The number of images N, or "dynamic" for any.
        max_detections: The largest number of detections per image, K.

    Raises:
        InputError: for another file, a model of rotated boxes, which is not exported, arguments, and
            without onnx; `pip install 'detaug[export]'` brings it.
    """
    onnx = require_onnx()
    check("batch", batch, batch == "dynamic" or is_whole(batch, 1), "'dynamic' or a whole number of at least 1")
    check("max_detections", max_detections, is_whole(max_detections, 1), "a whole number of at least 1")
    check("size", size, size is None or (is_wholes(size, 2, 1) and len(size) == 2), "(H, W), whole numbers from 1")
    target = Path(output)
    output_files({"output": target}, model, extensions=(".onnx",))
    _refuse_other_file(target)
    trained = load_model(model, "cpu")
    name = str(read_torch_file(Path(model))["name"])
    refuse_other_models(name)
    resize, normalize = _resize(trained, name, size), _normalize(trained)
    graph = make_graph(trained.model, resize, normalize, max_detections)
    outputs = (*OUTPUTS, *SHAPES[trained.finds])
    count = 2 if batch == "dynamic" else batch
    assert isinstance(resize.size, tuple)
    example = torch.rand(count, 3, *resize.size), torch.tensor([resize.size] * count)
    axes = {name: {0: "batch"} for name in (*INPUTS, *outputs)} if batch == "dynamic" else None
    with replacing(target) as temporary:
        with warnings.catch_warnings(), torch.inference_mode():
            # Of tracing: shapes that are constants here. And dynamo=False is deprecated, but torch's newer exporter
            # cannot write these models: the number of kept boxes depends on the data.
            warnings.simplefilter("ignore")
            torch.onnx.export(
                graph, example, temporary, dynamo=False, opset_version=OPSET, input_names=INPUTS, output_names=outputs,
                dynamic_axes=axes,
            )  # fmt: skip
        content = onnx.load(temporary)
        for key, value in _metadata(name, trained, resize, normalize, batch).items():
            content.metadata_props.add(key=key, value=value if isinstance(value, str) else json.dumps(value))
        onnx.checker.check_model(content, full_check=True)
        onnx.save(content, temporary)
    return replace(trained, ops=(resize, normalize))


def make_graph(model: nn.Module, resize: Resize, normalize: Normalize, most: int) -> DetectorGraph:
    """Return the graph of a detector that `refuse_other_models` lets pass."""
    torchvision_kind = TwoStageGraph if hasattr(model, "roi_heads") else OneStageGraph
    kind = DetrGraph if isinstance(model, DetrDetector) else torchvision_kind
    return kind(model, resize, normalize, most).eval()


def _refuse_other_file(path: Path) -> None:
    """Raise InputError for an ONNX file that detaug did not write. Metadata are at its end."""
    if not path.exists():
        return
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - (1 << 20)))
        if MARK.encode() not in file.read():
            raise InputError(f"output {path} exists and was not written by detaug; give a new name, or move it away")


def _resize(trained: TrainedModel, name: str, size: tuple[int, int] | None) -> Resize:
    """Return the `Resize` of the exported file, to a fixed size."""
    resize = next(op for op in trained.ops if isinstance(op, Resize))
    if isinstance(resize.size, tuple):
        if size is not None:
            check_size(name, size)
        return resize if size is None else replace(resize, size=size)
    if size is None:
        raise InputError(
            f"{option('size')} must be given for {name}, whose shorter side is {resize.size} and whose longer side is "
            f"any; such as {option('size', '800x1344', python='(800, 1344)')}: larger images are shrunk to fit, with "
            "their aspect ratio"
        )
    divisible: int = getattr(trained.model.transform, "divisible", 1)  # of PassThrough
    if size[0] % divisible or size[1] % divisible:
        height, width = (-(-side // divisible) * divisible for side in size)
        wanted = option("size", f"{height}x{width}", python=f"({height}, {width})")
        raise InputError(f"size of {name} must be multiples of {divisible}, got {size}; such as {wanted}")
    # torchvision's zeros after the normalization: its mean color.
    fill = tuple(round(255 * value, 3) for value in _normalize(trained).mean)
    return Resize(size, letterbox="top-left", fill=fill)


def _normalize(trained: TrainedModel) -> Normalize:
    return next(op for op in trained.ops if isinstance(op, Normalize))


def _metadata(
    name: str, trained: TrainedModel, resize: Resize, normalize: Normalize, batch: int | str
) -> Mapping[str, Any]:
    """Return what a program needs to know to use the file. Names and forms are Ultralytics' where it has them."""
    return {
        "author": "detaug",
        "version": __version__,
        "description": f"{name}, {MARK}",
        "task": TASKS[trained.finds],
        "model": name,
        "names": dict(enumerate(trained.class_names)),
        "imgsz": list(resize.size) if isinstance(resize.size, tuple) else resize.size,
        "batch": batch,
        "color": "RGB",
        "range": "0..1",
        "resize": "linear, antialiased when shrinking",
        "letterbox": resize.letterbox or "none: stretched",
        "fill": list(resize.fill),
        "mean": list(normalize.mean),
        "std": list(normalize.std),
        "normalize": "inside",
        "boxes": "XYXY in pixels of source_size",
        "labels": "from 1; 0 after the last detection",
        **_OF_SHAPES.get(trained.finds, {}),
    }


_OF_SHAPES = {
    "segm": {"masks": "probabilities in the rectangles mask_boxes, XYXY in pixels of source_size; an object from 0.5"},
    "keypoints": {"keypoints": "x, y in pixels of source_size, and 1", "keypoints_scores": "heights of the heatmaps"},
}
"""Further metadata, by what a model finds."""


def require_onnx(name: str = "onnx") -> Any:
    """Return onnx or onnxruntime. Raises InputError with what to install."""
    require("exporting" if name == "onnx" else "comparing an ONNX file", name)
    return import_module(name)


def size_text(path: PathLike) -> str:
    """Return a file's size for people."""
    return f"{os.path.getsize(path) / 1e6:.1f} MB"
