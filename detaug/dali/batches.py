"""Make a `Batch` of the outputs of a DALI pipeline."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.dlpack import from_dlpack

from detaug.arrays import Ints, padded
from detaug.errors import InputError
from detaug.loading.batch import Batch
from detaug.loading.batch_targets import pad_boxes

TensorList = Any
"""An output of a DALI pipeline: a tensor for each sample, on the CPU or on a GPU."""

Rows = list[NDArray[Any]]

FIELDS = ("images", "boxes", "labels", "image_id", "matrix", "source_size")
"""The names of outputs that are fields of `Batch`."""


def make_batch(outputs: dict[str, TensorList], count: int, columns: Collection[str], *, copy: bool) -> Batch:
    """Return a batch of the first `count` samples of outputs by name.

    `columns`: the names of those that have a row for each box. `copy`: DALI will use their memory again.
    """
    images, image_size = _images(outputs["images"], count, copy=copy)
    rows = {name: _rows(each, count) for name, each in outputs.items() if name != "images"}
    boxes, labels, counts = _boxes(rows.get("boxes", []), rows.get("labels", []), count)
    device = images.device
    return Batch(
        images=images,
        boxes=boxes.to(device),
        labels=labels.to(device),
        valid=(torch.arange(labels.shape[1], device="cpu") < torch.from_numpy(counts)[:, None]).to(device),
        image_id=_stacked(rows, "image_id", (count,), np.int64),
        source_size=_sizes(rows, count),
        image_size=image_size,
        matrix=_stacked(rows, "matrix", (count, -1, 3), np.float32),
        counts=tuple(counts.tolist()),
        columns={name: _column(name, rows[name], counts) for name in columns},
        extra={name: _extra(name, each) for name, each in rows.items() if name not in (*FIELDS, *columns)},
    )


def _images(output: TensorList, count: int, *, copy: bool) -> tuple[Tensor, Tensor]:
    """Return (N, 3, H, W), padded with zeros at the right and the bottom, and the (N, 2) sizes before padding."""
    channels_last = output.layout() == "HWC" or (not output.layout() and output.shape()[0][-1] == 3)
    if output.is_dense_tensor():
        tensor = from_dlpack(output.as_tensor())[:count]
        images = tensor.clone() if copy else tensor
        images = images.permute(0, 3, 1, 2) if channels_last else images
        return images, torch.tensor([images.shape[2:]] * count, device="cpu")
    each = [from_dlpack(output[at]) for at in range(count)]
    each = [image.permute(2, 0, 1) if channels_last else image for image in each]
    sizes = torch.tensor([image.shape[1:] for image in each], device="cpu")
    canvas = each[0].new_zeros((count, 3, *sizes.amax(0).tolist()))
    for at, image in enumerate(each):
        canvas[at, :, : image.shape[1], : image.shape[2]] = image
    return canvas, sizes


def _rows(output: TensorList, count: int) -> Rows:
    """Return copies of the first `count` samples. TensorList.at would take three times as long as its items do."""
    on_cpu = output.as_cpu()
    if on_cpu.is_dense_tensor():
        return list(np.array(on_cpu.as_array())[:count])
    return [np.array(on_cpu[at]) for at in range(count)]


def _boxes(boxes: Rows, labels: Rows, n: int) -> tuple[Tensor, Tensor, Ints]:
    """Return (N, M, 4) and (N, M), padded, and the (N,) counts."""
    boxes = boxes or [np.zeros((0, 4))] * n
    labels = labels or [np.ones(len(each)) for each in boxes]
    counts = np.array([len(each) for each in boxes])
    if [label.size for label in labels] != counts.tolist():
        raise InputError("each image must have as many labels as boxes: is the output 'labels' that of da.fn.augment?")
    room = np.full(n, counts.max(initial=0))
    joined = np.concatenate(boxes).reshape(-1, 4), np.concatenate(labels).reshape(-1).astype(np.int64)
    padded_boxes, padded_labels = pad_boxes(*joined, counts, room)
    return torch.from_numpy(padded_boxes.reshape(n, -1, 4)), torch.from_numpy(padded_labels.reshape(n, -1)), counts


def _stacked(rows: dict[str, Rows], name: str, shape: tuple[int, ...], dtype: type[np.generic]) -> Any:
    """Return an output with equal shapes as a tensor; None if the pipeline does not have it."""
    return torch.from_numpy(np.stack(rows[name]).reshape(shape).astype(dtype)) if name in rows else None


def _sizes(rows: dict[str, Rows], count: int) -> Any:
    """Return the output "source_size" as (N, 2). It may be that of fn.peek_image_shape, which has the channels too."""
    size = _stacked(rows, "source_size", (count, -1), np.int64)
    if size is None:
        return None
    if size.shape[1] not in (2, 3):
        raise InputError(f"output 'source_size' must be (height, width) of each image, got {size.shape[1]} numbers")
    return size[:, :2]


def _column(name: str, rows: Rows, counts: Ints) -> Tensor:
    """Return (N, M, ...): an output with a row for each box, padded."""
    for each, count in zip(rows, counts.tolist(), strict=True):
        if each.shape[:1] != (count,):
            raise InputError(f"output {name!r} must have a row for each of {count} boxes, got shape {each.shape}")
    padding = {"b": 0, "u": 0, "f": np.nan}.get(rows[0].dtype.kind, -1)
    return torch.from_numpy(np.ascontiguousarray(padded(np.concatenate(rows), counts, padding)))


def _extra(name: str, rows: Rows) -> Tensor:
    """Return (N, ...)."""
    if shapes := {each.shape for each in rows} - {rows[0].shape}:
        raise InputError(
            f"output {name!r} must have one shape in all samples, got shapes {rows[0].shape} and {min(shapes)}: name "
            "it in columns= if it has a row for each box"
        )
    return torch.from_numpy(np.stack(rows))
