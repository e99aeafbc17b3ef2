"""Boxes and labels that users give with images: lists of arrays, and the dicts that torchvision's detectors take."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from detaug.arrays import Floats, Ints, padded
from detaug.boxes.checking import find_fault, to_relative
from detaug.boxes.placement import Placement
from detaug.boxes.polygons import hull
from detaug.boxes.shapes import Shapes
from detaug.boxes.views import Views, rows_left, whole_images, whole_where_close
from detaug.coco.key_points import Pairs
from detaug.errors import InputError
from detaug.samples.images import is_tv_tensor, wrap_like
from detaug.samples.target_shapes import (
    corners_of_rotated,
    is_rotated,
    like_key_points,
    like_masks,
    like_rotated,
    read_shapes,
)

Target = dict[str, Any]

COLUMNS = (
    "labels", "area", "iscrowd", "difficult", "truncated", "occluded", "category_id", "track_id", "track_ids", "scores"
)  # fmt: skip
"""Entries of a target with a row for each box."""


def source_views(
    sizes: Sequence[tuple[int, int]], boxes: Sequence[Floats], labels: Sequence[Ints], names: Sequence[str]
) -> Views:
    """Return the whole images with their boxes, (M, 4) XYXY pixels each, and labels, (M,) each.

    `sizes`: (height, width) of the images. `names`: of their boxes, for errors. Boxes that reach out of their image by
    at most a pixel are clipped. Raises InputError for others, and for x0 > x1 or y0 > y1.
    """
    size, counts = np.array(sizes, np.float64), np.array([len(own_boxes) for own_boxes in boxes])
    pixels, sides = np.concatenate(boxes), np.tile(size[:, ::-1], 2).repeat(counts, 0)
    if fault := find_fault(pixels, sides):
        image = int(np.searchsorted(np.cumsum(counts), fault.row, side="right"))
        row = fault.row - int(counts[:image].sum())
        raise InputError(f"{names[image]}[{row}] must be {fault.rule}, got XYXY {pixels[fault.row].round(2).tolist()}")
    relative = padded(to_relative(pixels, sides), counts, 0)
    return whole_images(relative, padded(np.concatenate(labels), counts, -1), size)


def read_target(
    target: Target, size: tuple[int, int], columns: Sequence[str], flip_pairs: Pairs | None
) -> tuple[Floats, Ints, Shapes]:
    """Return the boxes of a target, (M, 4) XYXY pixels in an image of `size` (height, width), labels (M,), and shapes.

    Labels that are text are 0 for ops. `columns`: the names of entries with a row for each box.
    Raises InputError for a target without boxes or labels, of other shapes, or labels other than whole numbers from 1.
    """
    _check_entries(target, size, columns)
    boxes = target["boxes"]
    if getattr(boxes, "canvas_size", size) != size:
        raise InputError(f"canvas_size of the boxes must be the size of the image, {size}, got {boxes.canvas_size}")
    corners = corners_of_rotated(boxes) if is_rotated(boxes) else None
    xyxy = _read_boxes(boxes) if corners is None else hull(corners).clip(0, np.tile(size[::-1], 2))
    for name in columns:
        rows = target.get(name)
        has_rows = hasattr(rows, "__len__") and getattr(rows, "ndim", 1) > 0
        if rows is not None and (not has_rows or len(rows) != len(xyxy)):
            got = f"{len(rows)} rows" if has_rows else type(rows).__name__
            raise InputError(f"target[{name!r}] must have a row for each of {len(xyxy)} boxes, got {got}")
    labels = _labels(target["labels"])
    if len(labels) != len(xyxy):
        raise InputError(f"target['labels'] must be ({len(xyxy)},), a label for each box, got {len(labels)} numbers")
    return xyxy, labels, read_shapes(target, corners, xyxy, size, flip_pairs)


def _read_boxes(boxes: Any) -> Floats:
    """Return boxes along the axes, (M, 4) XYXY."""
    form = _format(boxes)
    array = boxes.detach().as_subclass(Tensor).double().numpy() if isinstance(boxes, Tensor) else boxes.astype(float)
    if array.size and (array.ndim != 2 or array.shape[1] != 4):
        raise InputError(f"target['boxes'] must be (M, 4), got shape {array.shape}")
    return _to_xyxy(array.reshape(-1, 4), form)


def like_target(target: Target, views: Views, size: tuple[int, int], columns: Sequence[str]) -> Target:
    """Return the target with the boxes and shapes of `views`, one image of `size`.

    The entries named in `columns` lose the rows of dropped boxes; all others are the same objects.
    """
    rows, placement, shapes = rows_left(views), Placement.of_views(views), views.shapes
    entries = {name: _select(target[name], rows) for name in columns if target.get(name) is not None}
    if shapes.keypoints is not None:
        entries["keypoints"] = like_key_points(target["keypoints"], shapes, placement, size)
    if shapes.outlines is not None:
        entries["masks"] = like_masks(target["masks"], shapes, placement, size)
    if shapes.corners is not None:
        boxes = like_rotated(target["boxes"], placement, shapes.corners[rows], size)
    else:
        boxes = _like_boxes(target["boxes"], whole_where_close(views.unpadded()[0]), size)
    return {**target, **entries, "boxes": boxes}


def _check_entries(target: Any, size: tuple[int, int], columns: Sequence[str]) -> None:
    if not isinstance(target, dict):
        raise TypeError(f"the target must be a dict with boxes and labels, got {type(target).__name__}")
    if missing := [name for name in ("boxes", "labels") if name not in target]:
        raise InputError(f"the target must have boxes and labels, got no {' and no '.join(missing)}")
    if not isinstance(target["boxes"], Tensor | np.ndarray):
        raise InputError(f"target['boxes'] must be a tensor or an array, got {type(target['boxes']).__name__}")
    labels = target["labels"]
    if not isinstance(labels, Tensor | np.ndarray | list | tuple) or (hasattr(labels, "ndim") and labels.ndim == 0):
        raise InputError(f"target['labels'] must be a tensor, an array or a list, got {type(labels).__name__}")
    for name, entry in target.items():
        if name in ("boxes", "keypoints", "masks", *columns):
            continue
        if is_tv_tensor(entry) or _has_pixels(entry, size):
            raise InputError(
                f"target[{name!r}] would stay behind: Compose moves boxes, keypoints and masks only; leave it out, or "
                "read maps with da.CocoReader(maps=) or da.MapReader, and augment them with a da.Loader"
            )


def _has_pixels(entry: Any, size: tuple[int, int]) -> bool:
    """Return whether an entry, or one of a dict or a list, has a value for each pixel of an image of `size`."""
    if isinstance(entry, dict | list | tuple):
        return any(_has_pixels(part, size) for part in (entry.values() if isinstance(entry, dict) else entry))
    if isinstance(entry, Image.Image):
        return entry.size == size[::-1]
    shape = tuple(entry.shape) if isinstance(entry, Tensor | np.ndarray) else ()
    return len(shape) > 1 and size in (shape[:2], shape[-2:])


def _format(boxes: Any) -> str:
    """Return the format of torchvision's BoundingBoxes; XYXY for other tensors and arrays."""
    if not is_tv_tensor(boxes):
        return "XYXY"
    name = getattr(getattr(boxes, "format", None), "value", type(boxes).__name__)
    if name not in ("XYXY", "XYWH", "CXCYWH"):
        raise InputError(f"the format of the boxes must be XYXY, XYWH, CXCYWH or a rotated one, got {name}")
    return str(name)


def _to_xyxy(boxes: Floats, form: str) -> Floats:
    if form == "XYXY":
        return boxes
    start = boxes[:, :2] if form == "XYWH" else boxes[:, :2] - boxes[:, 2:] / 2
    return np.concatenate([start, start + boxes[:, 2:]], axis=1)


def _from_xyxy(boxes: Floats, form: str) -> Floats:
    if form == "XYXY":
        return boxes
    sides = boxes[:, 2:] - boxes[:, :2]
    return np.concatenate([boxes[:, :2] + (sides / 2 if form == "CXCYWH" else 0), sides], axis=1)


def _like_boxes(original: Any, boxes: Floats, size: tuple[int, int]) -> Any:
    """Return boxes in the format and type of those given; whole numbers become float32."""
    result = _from_xyxy(boxes, _format(original))
    if isinstance(original, np.ndarray):
        return result.astype(original.dtype if original.dtype.kind == "f" else np.float32)
    tensor = torch.from_numpy(result).to(original.dtype if original.is_floating_point() else torch.float32)
    return wrap_like(original, tensor, canvas_size=size) if is_tv_tensor(original) else tensor


def _labels(labels: Any) -> Ints:
    """Return labels (M,) as ops see them; names are 0. Raises InputError for numbers that are not whole, or below 1."""
    array = np.asarray(labels).reshape(-1)
    if array.dtype.kind not in "iuf":
        return np.zeros(len(array), np.int64)
    wrong = ~((array >= 1) & (array == np.floor(array)))
    if wrong.any():
        row = int(wrong.argmax())
        raise InputError(
            f"target['labels'][{row}] must be a whole number from 1, or a name, got {array[row]}: for torchvision's "
            "detectors 0 is the background, so add 1 to labels that start at 0"
        )
    return array.astype(np.int64)


def _select(entry: Any, rows: Ints) -> Any:
    """Return some of the rows of a tensor, an array, or a list or tuple."""
    if isinstance(entry, Tensor):
        return entry[torch.from_numpy(rows)]
    return entry[rows] if isinstance(entry, np.ndarray) else type(entry)([entry[row] for row in rows])
