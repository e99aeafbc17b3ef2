"""A model repository for Triton Inference Server: encoded images in, detections in their pixels out.

Three models, of which clients call the last: `preprocess`, DALI's pipeline, for Triton's backend "dali", which runs
without detaug; `detector`, the ONNX file, for "onnxruntime"; `image_detector`, the ensemble of both. Triton's own
documents say what is in such a folder: docs/user_guide/model_repository.md, model_configuration.md and
ensemble_models.md of https://github.com/triton-inference-server/server, and the README of
https://github.com/triton-inference-server/dali_backend.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from detaug.arguments import check, is_whole
from detaug.errors import InputError
from detaug.export.onnx_file import export_onnx
from detaug.files.atomic import temporary_path
from detaug.files.paths import PathLike
from detaug.ops.resize import Resize
from detaug.outputs.folder import check_folder
from detaug.training.predict import TrainedModel


class _Tensor(NamedTuple):
    name: str
    type: str
    dims: tuple[int, ...]
    more: str = ""


ENCODED = _Tensor("encoded", "UINT8", (-1,))
"""The bytes of an image file, of any length."""


def write_triton(
    model: PathLike,
    folder: PathLike,
    *,
    size: tuple[int, int] | None = None,
    batch: int = 8,
    max_detections: int = 300,
) -> TrainedModel:
    """Write a model repository for Triton Inference Server; return the model with the `Resize` of the repository.

    The ensemble `image_detector` takes `encoded` (N, bytes) uint8, the bytes of image files, and gives `num_dets`,
    `boxes`, `scores`, `labels`, and masks or keypoints, as the ONNX file of `export_onnx` does: all in pixels of
    the images after their EXIF orientation. Images are decoded and resized by DALI on the CPU.

    Args:
        model: The model.pt of `detaug train`.
        folder: The folder to make. An existing one is never changed.
        size: The input size (H, W); see `export_onnx`.
        batch: The most images at once.
        max_detections: The largest number of detections per image, K.

    Raises:
        InputError: as `export_onnx`, and for a folder that exists.
    """
    check("batch", batch, is_whole(batch, 1), "a whole number of at least 1, the most images at once")
    target = Path(folder)
    check_folder(target)
    if target.exists() and any(target.iterdir()):
        raise InputError(f"{target} exists and is not empty; give the name of a new folder")
    partial = temporary_path(target)
    try:
        names = {name: partial / name / "1" for name in ("preprocess", "detector", "image_detector")}
        for path in names.values():
            path.mkdir(parents=True)
        trained = export_onnx(model, names["detector"] / "model.onnx", size=size, max_detections=max_detections)
        resize: Any = trained.ops[0]
        _write_pipeline(resize, batch, names["preprocess"] / "model.dali")
        for name, text in _configs(resize.size, batch, trained.finds).items():
            (partial / name / "config.pbtxt").write_text(text)
        if target.exists():
            target.rmdir()
        os.rename(partial, target)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return trained


def _write_pipeline(resize: Resize, batch: int, path: Path) -> None:
    """Serialize DALI's pipeline from encoded images to the inputs of the detector: images in 0..1 and their sizes."""
    from nvidia.dali import Pipeline, fn, types

    assert isinstance(resize.size, tuple)
    pipeline = Pipeline(batch_size=batch, num_threads=2, device_id=None)
    with pipeline:
        encoded = fn.external_source(name=ENCODED.name, device="cpu", dtype=types.UINT8, ndim=1)
        shape = fn.cast(fn.peek_image_shape(encoded)[:2], dtype=types.INT64)  # after the EXIF orientation
        images = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
        images = fn.resize(
            images,
            size=list(resize.size),
            mode="not_larger" if resize.letterbox else "stretch",
            antialias=True,
            interp_type=types.INTERP_LINEAR,
            subpixel_scale=False,  # as `Resize`, which maps the whole image to whole pixels
        )
        if resize.letterbox:
            place = 0.5 if resize.letterbox == "center" else 0.0
            images = fn.crop(
                images,
                crop=list(resize.size),
                crop_pos_x=place,
                crop_pos_y=place,
                rounding="truncate",  # as the letterbox of `Resize`, which begins at a whole pixel
                out_of_bounds_policy="pad",
                fill_values=[float(value) for value in resize.fill],
            )
        images = fn.crop_mirror_normalize(
            images, dtype=types.FLOAT, output_layout="CHW", mean=[0.0] * 3, std=[255.0] * 3
        )
        pipeline.set_outputs(images, shape)
    pipeline.serialize(filename=str(path))


_OF_SHAPES: dict[str, tuple[_Tensor, ...]] = {
    "segm": (_Tensor("masks", "FP32", (-1, -1, -1)), _Tensor("mask_boxes", "FP32", (-1, 4))),
    "keypoints": (_Tensor("keypoints", "FP32", (-1, -1, 3)), _Tensor("keypoints_scores", "FP32", (-1, -1))),
}
"""Further outputs, by what a model finds."""


def _configs(size: tuple[int, int], batch: int, finds: str) -> dict[str, str]:
    """Return the text of config.pbtxt of each model."""
    inputs = _Tensor("images", "FP32", (3, *size)), _Tensor("source_size", "INT64", (2,))
    outputs = (
        _Tensor("num_dets", "INT64", (1,), "reshape { shape: [ ] }"),
        _Tensor("boxes", "FP32", (-1, 4)),  # a model may find fewer than max_detections
        _Tensor("scores", "FP32", (-1,)),
        _Tensor("labels", "INT64", (-1,)),
        *_OF_SHAPES.get(finds, ()),
    )
    ragged = ENCODED._replace(more="allow_ragged_batch: true")
    plain = [output._replace(more="") for output in outputs]
    return {
        "preprocess": _config("preprocess", 'backend: "dali"', batch, [ragged], inputs)
        + "instance_group [ { kind: KIND_CPU } ]\n",
        "detector": _config("detector", 'backend: "onnxruntime"', batch, inputs, outputs) + "dynamic_batching { }\n",
        "image_detector": _config("image_detector", 'platform: "ensemble"', batch, [ENCODED], plain)
        + "ensemble_scheduling {\n"
        + _step("preprocess", [ENCODED], inputs)
        + _step("detector", inputs, plain)
        + "}\n",
    }


def _config(name: str, kind: str, batch: int, inputs: Sequence[_Tensor], outputs: Sequence[_Tensor]) -> str:
    lines = [f'name: "{name}"', kind, f"max_batch_size: {batch}"]
    for word, tensors in (("input", inputs), ("output", outputs)):
        for tensor in tensors:
            dims = ", ".join(map(str, tensor.dims))
            fields = f'name: "{tensor.name}" data_type: TYPE_{tensor.type} dims: [ {dims} ] {tensor.more}'.rstrip()
            lines.append(f"{word} [ {{ {fields} }} ]")
    return "\n".join(lines) + "\n"


def _step(name: str, inputs: Sequence[_Tensor], outputs: Sequence[_Tensor]) -> str:
    """Return a step of the ensemble, whose tensors have the same names outside and inside."""
    maps = [f'    input_map {{ key: "{tensor.name}" value: "{tensor.name}" }}' for tensor in inputs]
    maps += [f'    output_map {{ key: "{tensor.name}" value: "{tensor.name}" }}' for tensor in outputs]
    return "\n".join([f'  step {{\n    model_name: "{name}"\n    model_version: -1', *maps, "  }\n"])
