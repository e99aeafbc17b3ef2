"""Test-time augmentation: detect in several views of an image, move the detections back exactly, and merge them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from detaug.arguments import check, checks_names, is_number
from detaug.arrays import Arrays, Bools, Floats, Ints
from detaug.boxes.fields import Field
from detaug.boxes.keypoints import KeyPoints
from detaug.boxes.polygons import hull
from detaug.boxes.views import Views, invert, mirrors
from detaug.coco.table import THIN
from detaug.errors import InputError
from detaug.evaluation.fusion import Merge, fractions_of, fuse
from detaug.loading.batch import Batch
from detaug.loading.source_pixels import move_boxes, move_masks, move_points
from detaug.ops.flips_and_crops import RandomHorizontalFlip
from detaug.ops.op import GeometricOp, Op
from detaug.ops.resize import Resize
from detaug.recipes.recipe import make_rendering_recipe

SCALES = (0.8, 1.0, 1.2)
"""Of a model that takes images of several sizes, by default."""


@dataclass(frozen=True)
class TTA:
    """The views in which a model looks at each image, for `TrainedModel.predict`, and how detections are merged.

    Every combination of the scales, the rotations and the flip is a view, and so is each recipe. Detections of each
    view go back to pixels of the image by the inverse of the view's map: boxes, masks, keypoints, whose left and right
    are swapped back after a flip, and corners of rotated boxes. Those of a class that overlap are merged.

    With "wbf", weighted box fusion (Solovyev et al. 2021, https://arxiv.org/abs/1910.13302), boxes, keypoints and
    rotated boxes are means by score, masks the pixels that more than half of them have, by score, and a score is the
    sum of the members' scores over the number of views that show the center of the box: an object that half of the
    views find has about half the score. With "nms" the detection with the highest score stays as it is.

    Args:
        flip: Whether to add the flipped images (left to right).
        scales: Sizes of the model's input, in units of its own, such as (0.8, 1, 1.2), rounded to a size that the model
            takes. None: these three; for a model that takes a single size, as SSD and RF-DETR, 1 alone.
        rotations: Degrees counter-clockwise: 0, 90, 180 or 270. For images from above, for example (0, 90, 180, 270).
        recipes: Further views, a list of ops each, without ops that mix images. The model's own Resize and Normalize
            are added where a recipe has neither. An object that a crop cuts has a box of its visible part there.
        merge: "wbf" or "nms".
        min_iou: The IoU above which detections of a class are of one object, 0..1.

    Raises:
        InputError: for other values, and for a recipe that mixes images or whose ops are in a wrong order.

    >>> print(len(da.TTA().views((da.Resize((320, 320)), da.Normalize()))))
    6
    >>> for ops in da.TTA(scales=(1,)).views((da.Resize((320, 320)), da.Normalize())):
    ...     print([type(op).__name__ for op in ops])
    ['Resize', 'Normalize']
    ['RandomHorizontalFlip', 'Resize', 'Normalize']
    """

    flip: bool = True
    scales: Sequence[float] | None = None
    rotations: Sequence[int] = (0,)
    recipes: Sequence[Sequence[Op]] = ()
    merge: Merge = "wbf"
    min_iou: float = 0.55

    def __post_init__(self) -> None:
        check("flip", self.flip, isinstance(self.flip, bool), "True or False")
        fits = self.scales is None or (
            _is_list(self.scales) and all(is_number(scale, 0.1, 10) for scale in self.scales)
        )
        check("scales", self.scales, fits, "None, or a list of numbers in 0.1..10, such as (0.8, 1, 1.2)")
        fits = _is_list(self.rotations) and all(angle in (0, 90, 180, 270) for angle in self.rotations)
        check("rotations", self.rotations, fits, "a list of 0, 90, 180 and 270 degrees, such as (0, 90)")
        fits = isinstance(self.recipes, Sequence) and all(isinstance(recipe, Sequence) for recipe in self.recipes)
        check("recipes", self.recipes, fits, "a list of lists of ops, such as [[da.CLAHE()]]")
        check("merge", self.merge, self.merge in ("wbf", "nms"), "'wbf' or 'nms'")
        check("min_iou", self.min_iou, is_number(self.min_iou, 0, 1), "in 0..1")
        for recipe in self.recipes:
            if op := make_rendering_recipe(recipe).mixing_op:
                raise InputError(
                    f"recipes must be without ops that mix images, since detections in mixed images have no place in "
                    f"one of them; got {op!r}; leave it out"
                )

    def views(self, ops: Sequence[Op], *, stride: int = 1, smallest: int = 1) -> list[tuple[Op, ...]]:
        """Return the recipe of each view.

        Args:
            ops: The model's own: a `Resize` and a `Normalize`.
            stride: What both sides of the model's input are multiples of; 0 where it takes a single size.
            smallest: The shortest side that the model takes.
        """
        resize = next((op for op in ops if isinstance(op, Resize)), None)
        if resize is None:
            raise InputError("tta needs a model whose ops have a Resize, which it scales")
        scales = self.scales if self.scales is not None else SCALES if stride else (1.0,)
        if not stride and any(scale != 1 for scale in scales):
            raise InputError(f"scales must be (1,) for this model, whose input has one size, got {tuple(scales)}")
        views = []
        for scale, rotation, flip in product(scales, self.rotations, (False, True) if self.flip else (False,)):
            moved = [*[QuarterTurns(rotation // 90)] * (rotation > 0), *[RandomHorizontalFlip(p=1)] * flip]
            own = _scaled(resize, scale, max(stride, 1), smallest, turned=rotation % 180 == 90)
            views.append((*moved, *(own if op is resize else op for op in ops)))
        views += [_completed(recipe, resize, ops) for recipe in self.recipes]
        return views


TTA.__init__ = checks_names(TTA.__init__)  # type: ignore[method-assign]


@dataclass(frozen=True)
class QuarterTurns(GeometricOp):
    """Turn each image counter-clockwise by this many quarters."""

    quarters: int

    def move(self, views: Views, drawn: Arrays) -> Views:
        return views.quarter_turns(np.full(len(views), self.quarters))


def _is_list(values: Any) -> bool:
    return isinstance(values, Sequence) and not isinstance(values, str) and len(values) > 0


def _scaled(resize: Resize, scale: float, stride: int, smallest: int, *, turned: bool) -> Resize:
    """Return a Resize to `scale` times the size, in multiples of `stride`, of at least `smallest` pixels."""

    def side(pixels: float) -> int:
        return max(round(pixels * scale / stride), -(-smallest // stride), 1) * stride

    if scale == 1 and not turned:
        return resize
    if isinstance(resize.size, int):
        longest = None if resize.max_size is None else max(side(resize.max_size), side(resize.size))
        return replace(resize, size=side(resize.size), max_size=longest)
    height, width = (side(float(pixels)) for pixels in resize.size)  # type: ignore[arg-type]
    return replace(resize, size=(width, height) if turned else (height, width))


def _completed(recipe: Sequence[Op], resize: Resize, ops: Sequence[Op]) -> tuple[Op, ...]:
    """Return a recipe with the model's Resize, after its ops that move the image, and Normalize, if it lacks them."""
    stages = [op.stage for op in recipe]
    count = stages.count("view")
    own = [] if "render" in stages else [resize]
    last = [] if "output" in stages else [op for op in ops if op.stage == "output"]
    if own:
        return (*recipe[:count], *own, *recipe[count:], *last)
    return (*recipe, *last)


class SeenIn(NamedTuple):
    """What a model found in one view of an image."""

    predictions: Mapping[str, Tensor]
    """As torchvision's detectors return them, in pixels of the view."""
    to_output: Floats
    """(2, 3) or (3, 3): pixels of the image -> pixels of the view."""
    size: Sequence[int]
    """(height, width) of the view, without padding."""
    field: Field | None = None
    """What bends the view."""


def merged_views(
    seen: Sequence[SeenIn], size: Sequence[int], keypoints: KeyPoints | None, tta: TTA
) -> dict[str, Tensor]:
    """Return the detections of all views of one image of `size` (height, width), merged, best first, on the CPU.

    They are boxes, scores and labels, and masks, keypoints and corners where the model finds them, in its pixels. They
    are as many as in the view with the most, at most: what is left below is found in few views, with low scores.
    """
    parts = [_in_image(view, size, keypoints) for view in seen]
    of_view = np.repeat(np.arange(len(parts)), [len(part["scores"]) for part in parts])
    together = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    boxes, scores, labels = together["boxes"], together["scores"], together["labels"]
    rotated = "corners" in together
    fused = fuse(together["corners"] if rotated else boxes, scores, labels, tta.merge, tta.min_iou)
    merged_boxes = hull(fused.shapes).clip(0, [size[1], size[0]] * 2) if rotated else fused.shapes
    members = fused.members if tta.merge == "wbf" else [rows[:1] for rows in fused.members]
    merged_scores = np.array([scores[rows].sum() for rows in members], np.float64)
    if tta.merge == "wbf":
        centers, counts = (merged_boxes[:, :2] + merged_boxes[:, 2:]) / 2, np.array([len(rows) for rows in members])
        shown = np.sum([_shows(view, centers) for view in seen], axis=0)
        merged_scores = merged_scores / np.maximum(shown, counts)
    most = max(len(part["scores"]) for part in parts)
    best = np.argsort(-merged_scores, kind="stable")[:most]
    chosen = [members[index] for index in best.tolist()]
    result = {
        "boxes": torch.from_numpy(merged_boxes[best]).float(),
        "scores": torch.from_numpy(merged_scores[best]).float(),
        "labels": torch.from_numpy(fused.labels[best]),
    }
    weights = [fractions_of(scores[rows]) for rows in chosen]
    if rotated:
        result["corners"] = torch.from_numpy(fused.shapes[best]).float()
    if "keypoints" in together:
        points = together["keypoints"]
        means = [np.tensordot(weight, points[rows], 1) for weight, rows in zip(weights, chosen, strict=True)]
        result["keypoints"] = torch.from_numpy(np.array(means).reshape(-1, *points.shape[1:])).float()
    if "masks" in seen[0].predictions:
        result["masks"] = torch.zeros(len(best), *size, dtype=torch.bool)
        for index, (weight, rows) in enumerate(zip(weights, chosen, strict=True)):
            summed = torch.zeros(*size)  # one object at a time: masks of all views of a large image are gigabytes
            for part, row in zip(weight.tolist(), rows.tolist(), strict=True):
                summed += part * _mask_in_image(seen[of_view[row]], int(together["row"][row]), size)
            result["masks"][index] = summed > 0.5
    return result


def _in_image(view: SeenIn, size: Sequence[int], keypoints: KeyPoints | None) -> dict[str, Any]:
    """Return the detections of a view in pixels of the image, as arrays, and the `row` of each in the predictions."""
    predictions, matrix = view.predictions, view.to_output[None]
    inverse = torch.from_numpy(invert(matrix))
    boxes = move_boxes(predictions["boxes"].detach().cpu().double()[None], inverse, view.field)[0].numpy()
    boxes = boxes.clip(0, [size[1], size[0]] * 2)
    rows = np.flatnonzero((boxes[:, 2:] - boxes[:, :2] >= THIN).all(1))  # the others lie in the fill of a letterbox
    part = {
        "boxes": boxes[rows],
        "scores": predictions["scores"].detach().cpu().double().numpy()[rows],
        "labels": predictions["labels"].detach().cpu().numpy()[rows],
        "row": rows,
    }
    for name in ("corners", *["keypoints"] * (keypoints is not None)):
        if name in predictions:
            points = predictions[name].detach().cpu().double()[rows]
            moved = move_points(points[None, ..., :2], inverse, view.field)[0].numpy()
            part[name] = np.concatenate([moved, points[..., 2:].numpy()], -1)
    if keypoints is not None and "keypoints" in part and mirrors(matrix)[0]:
        part["keypoints"] = _swapped(part["keypoints"], part["labels"], keypoints)
    return part


def _swapped(points: Floats, labels: Ints, keypoints: KeyPoints) -> Floats:
    """Return the points (K, P, 3) of a flipped view with left and right as in the image."""
    if keypoints.flips_unknown:
        raise InputError(f"flip must be False, and recipes without flips, for this model: {keypoints.flips_unknown}")
    swaps = keypoints.swapped
    order = swaps[labels - 1] if len(swaps) > 1 else np.repeat(swaps, len(points), 0)
    return np.take_along_axis(points, order[..., None], 1)


def _shows(view: SeenIn, centers: Floats) -> Bools:
    """Return (F,): whether a view shows points of the image. What bends a view moves them by little."""
    points = move_points(torch.from_numpy(centers)[None], torch.from_numpy(view.to_output[None]))[0].numpy()
    return np.asarray(((points >= 0) & (points <= [view.size[1], view.size[0]])).all(1))


def _mask_in_image(view: SeenIn, row: int, size: Sequence[int]) -> Tensor:
    masks = view.predictions["masks"][row : row + 1].detach()
    masks = masks.reshape(1, *masks.shape[-2:])
    height, width = size
    (mask,) = move_masks(masks, torch.from_numpy(view.to_output), height, width, view.field)
    return mask[0].cpu().float()


def in_source_pixels(batch: Batch) -> Batch:
    """Return a batch whose output pixels are those of its source images, for detections that were moved there."""
    identity = torch.eye(2, 3, dtype=torch.float32, device="cpu").repeat(len(batch), 1, 1)
    return replace(batch, matrix=identity, image_size=batch.source_size, drawing=None, distortion=None)
