"""Keypoints, rotated boxes and masks in the targets of `Compose`, in and out."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import Tensor

from detaug.arrays import Bools, Floats
from detaug.boxes.keypoints import KeyPoints
from detaug.boxes.masks import objects_of, pixel_grid, rasterise
from detaug.boxes.placement import Placement, in_their_places, place_key_points
from detaug.boxes.rotated import rotated_boxes
from detaug.boxes.shapes import Shapes
from detaug.coco.key_points import Pairs, swaps_of_pairs
from detaug.coco.outlines import outlines_of_masks
from detaug.errors import InputError
from detaug.samples.images import is_tv_tensor, wrap_like

ROTATED = ("XYWHR", "CXCYWHR", "XYXYXYXY")
"""torchvision's formats of rotated boxes: degrees, counter-clockwise; or the corners."""


def read_shapes(
    target: dict[str, Any], corners: Floats | None, boxes: Floats, size: tuple[int, int], flip_pairs: Pairs | None
) -> Shapes:
    """Return the shapes of a target of `boxes`, (M, 4) XYXY pixels, in an image of `size` (height, width).

    Raises InputError for keypoints or masks of another shape, and for masks of several values.
    """
    count = len(boxes)
    keypoints, masks = target.get("keypoints"), target.get("masks")
    key_points = None if keypoints is None else _read_key_points(keypoints, count, flip_pairs)
    outlines = None if masks is None else outlines_of_masks(_read_masks(masks, count, size))
    return Shapes(key_points, corners, outlines).of(np.zeros(count, np.int64), np.full(count, size[0]), "target", boxes)


def _read_masks(masks: Any, boxes: int, size: tuple[int, int]) -> Bools:
    array = _as_array(masks) if isinstance(masks, Tensor | np.ndarray) else None
    if array is None or array.shape != (boxes, *size):
        got = tuple(masks.shape) if hasattr(masks, "shape") else type(masks).__name__
        raise InputError(
            f"target['masks'] must be {(boxes, *size)}, a mask of the image's size for each box, got {got}"
        )
    inside = array > 0
    for index, mask in enumerate(array):
        if not ((mask == 0) | ((mask == mask.max(initial=0)) & inside[index])).all():  # NaN is neither
            values = ", ".join(f"{value:g}" for value in np.unique(mask)[:5])
            raise InputError(
                f"target['masks'][{index}] must have 0 and one value above it, got {values}; where edges are soft give "
                "target['masks'] > 0.5, and where values are objects or classes a mask for each of them"
            )
    return inside


def like_masks(original: Any, shapes: Shapes, placement: Placement, size: tuple[int, int]) -> Any:
    """Return the masks of the boxes that are left, (M, H, W), as those given are: sampled where pixels come from.

    A mask keeps its largest value, such as 1 or 255.
    """
    masks = rasterise(shapes.mask_table, objects_of(placement), pixel_grid(*size, 1))
    array = original
    if isinstance(original, Tensor):
        plain = original.detach().as_subclass(Tensor).cpu()
        array = (plain.double() if plain.is_floating_point() else plain).numpy()  # NumPy has no bfloat16
    values = array[placement.rows].max((1, 2), keepdims=True)
    result = np.where(masks, values, np.zeros_like(values))
    if isinstance(original, np.ndarray):
        return result
    tensor = torch.from_numpy(result).to(original.dtype)
    return wrap_like(original, tensor) if is_tv_tensor(original) else tensor


def _read_key_points(points: Any, boxes: int, flip_pairs: Pairs | None) -> KeyPoints:
    if flip_pairs is None:
        raise InputError(
            "target['keypoints']: which of them are swapped in a flipped image? Give Compose flip_pairs, such as "
            "[(1, 2), (3, 4)], or [] if none do"
        )
    array = _as_array(points) if isinstance(points, Tensor | np.ndarray) else np.zeros(0)
    if array.ndim != 3 or array.shape[0] != boxes or array.shape[2] not in (2, 3):
        got = tuple(points.shape) if hasattr(points, "shape") else type(points).__name__
        raise InputError(f"target['keypoints'] must be ({boxes}, K, 2), or ({boxes}, K, 3) with visibility, got {got}")
    if array.shape[2] == 2:
        array = np.concatenate([array, np.full((*array.shape[:2], 1), 2.0)], axis=2)
    return KeyPoints(array, swapped=swaps_of_pairs(flip_pairs, (), array.shape[1])[None])


def like_key_points(original: Any, shapes: Shapes, placement: Placement, size: tuple[int, int]) -> Any:
    """Return the moved keypoints of the boxes that are left, as those given are.

    (M, K, 3) has a visibility of 0, and zeros, for those out of view. (M, K, 2) has none: all are moved.
    """
    assert shapes.keypoints is not None
    if original.shape[2] == 3:
        result = place_key_points(shapes.keypoints, shapes.classes, placement)
    else:
        points = in_their_places(shapes.keypoints, shapes.classes, placement)
        result = placement.move(points[..., :2])
    return _like(original, result, size)


def is_rotated(boxes: Any) -> bool:
    """Return whether boxes are torchvision's rotated BoundingBoxes."""
    name = getattr(getattr(boxes, "format", None), "value", "") if is_tv_tensor(boxes) else ""
    return name in ROTATED


def corners_of_rotated(boxes: Any) -> Floats:
    """Return (M, 4, 2): the corners of torchvision's rotated boxes."""
    plain, corner_format = boxes.detach().as_subclass(Tensor).double(), type(boxes.format).XYXYXYXY
    corners = _convert(plain, old_format=boxes.format, new_format=corner_format)
    return _as_array(corners).reshape(-1, 4, 2)


def like_rotated(original: Any, placement: Placement, corners: Floats, size: tuple[int, int]) -> Any:
    """Return the moved rotated boxes in the format of those given: the smallest rectangles around them, not cut."""
    form = type(original.format)
    if original.format == form.XYXYXYXY:
        return _like(original, placement.move(corners).reshape(-1, 8), size)
    boxes = torch.from_numpy(rotated_boxes(corners, placement, "torchvision", visible=False))
    converted = _convert(boxes, old_format=form.CXCYWHR, new_format=original.format)
    return _like(original, converted.numpy(), size)


def _convert(boxes: Tensor, *, old_format: Any, new_format: Any) -> Tensor:
    """Call torchvision's function, which the module of its tv_tensors does not import."""
    functional = import_module("torchvision.transforms.v2.functional")
    converted: Tensor = functional.convert_bounding_box_format(boxes, old_format=old_format, new_format=new_format)
    return converted


def _as_array(values: Any) -> Floats:
    array = values.detach().as_subclass(Tensor).double().cpu().numpy() if isinstance(values, Tensor) else values
    return np.asarray(array, np.float64)


def _like(original: Any, result: Floats, size: tuple[int, int]) -> Any:
    if isinstance(original, np.ndarray):
        return result.astype(original.dtype if original.dtype.kind == "f" else np.float32)
    tensor = torch.from_numpy(result).to(original.dtype if original.is_floating_point() else torch.float32)
    return wrap_like(original, tensor, canvas_size=size) if is_tv_tensor(original) else tensor
