"""Eager mode: run ops directly on arrays, for notebooks, previews and tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import ArrayLike

from detaug.arguments import check, checks_names, is_whole
from detaug.arrays import Array, Arrays, Floats, Ints
from detaug.boxes.masks import PlacedObjects, pixel_grid, rasterise
from detaug.boxes.placement import Placement
from detaug.boxes.rotated import Angle
from detaug.boxes.shape_group import ShapeGroup
from detaug.boxes.shapes import Shapes
from detaug.boxes.tight import fit_to_shapes
from detaug.boxes.views import Views, rows_left, whole_where_close
from detaug.coco.values import as_objects
from detaug.drawing.images import to_image
from detaug.drawing.points import Marks
from detaug.drawing.sheet import notebook_png
from detaug.errors import InputError
from detaug.loading.batch_shapes import marks_of, with_masks
from detaug.loading.devices import resolve_device
from detaug.loading.source_pixels import move_boxes
from detaug.ops.normalize import Normalize
from detaug.ops.op import Op
from detaug.recipes.recipe import Plan, Recipe, draws_from, make_rendering_recipe
from detaug.samples.annotations import source_views
from detaug.samples.rendering import ArrayRenderer
from detaug.sources.columns import join


@checks_names
def batch(
    images: Sequence[Array] | Array,
    boxes: Sequence[ArrayLike] | None = None,
    labels: Sequence[ArrayLike] | None = None,
    *,
    columns: Mapping[str, Sequence[ArrayLike]] | None = None,
    shapes: Shapes | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Samples:
    """Make samples, on which ops run directly: `da.RandomHorizontalFlip(p=1)(da.batch(images, boxes, labels))`.

    Raises InputError for boxes that lie outside, for arrays of another shape or type, and for a seed that is not a
    whole number.

    Args:
        images: N arrays (H, W, 3) uint8 RGB.
        boxes: N arrays (M, 4) XYXY pixels, inside their images; None: without boxes.
        labels: N arrays (M,) of whole numbers from 1; None is 1 for each box.
        columns: By name, N arrays (M, ...) of what else belongs to the boxes; `Samples.columns` has it for those that
            are left.
        shapes: Keypoints, corners and outlines of all boxes, image by image.
        seed: The same seed and the same ops draw the same numbers, as the ops of a recipe draw them one after the
            other.
        device: Where images are rendered, "cpu" or "cuda".

    >>> image = np.zeros((100, 200, 3), np.uint8)
    >>> samples = da.batch([image, image], boxes=[[[20, 10, 60, 50]], []], labels=[[3], []])
    >>> samples = samples.then(da.RandomHorizontalFlip(p=1), da.Resize((300, 300)))
    >>> print(samples.boxes[0], samples.labels, samples.images[0].shape)
    [[210.  30. 270. 150.]] [array([3]), array([], dtype=int64)] (300, 300, 3)
    """
    check("seed", seed, is_whole(seed, 0), "a whole number of at least 0: the same one gives the same draws")
    arrays = [_image(index, image) for index, image in enumerate(images)]
    if not arrays:
        raise InputError("images must hold at least one image, got none")
    pixels = [
        _boxes(index, own_boxes) for index, own_boxes in enumerate(_lists("boxes", boxes, arrays, np.zeros((0, 4))))
    ]
    of_images = (
        [np.ones(len(own_boxes)) for own_boxes in pixels] if labels is None else _lists("labels", labels, arrays)
    )
    numbers = [_labels(index, own_labels) for index, own_labels in enumerate(of_images)]
    counts = [len(own_boxes) for own_boxes in pixels]
    for index, (count, own) in enumerate(zip(counts, numbers, strict=True)):
        if len(own) != count:
            raise InputError(f"labels[{index}] must hold one label for each of {count} boxes, got {len(own)}")
    rows = {name: _concatenated(name, column, pixels) for name, column in (columns or {}).items()}
    names = [f"boxes[{index}]" for index in range(len(arrays))]
    views = source_views([(image.shape[0], image.shape[1]) for image in arrays], pixels, numbers, names)
    heights = np.repeat([len(array) for array in arrays], counts)
    shapes = (shapes or Shapes()).of(np.concatenate(numbers) - 1, heights, boxes=np.concatenate(pixels))
    return Samples(tuple(arrays), replace(views, shapes=shapes), rows, (), int(seed), resolve_device(device))


@dataclass(frozen=True, eq=False)
class Samples:
    """N images as arrays with their boxes, and the ops run on them so far. Made by `da.batch`; ops return new ones.

    >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], boxes=[[[20, 10, 60, 50]]])
    >>> print(da.RandomHorizontalFlip(p=1)(samples).boxes)
    [array([[140.,  10., 180.,  50.]])]
    """

    source_images: tuple[Array, ...]
    source_views: Views
    """The whole images with their boxes."""
    source_columns: Mapping[str, Array]
    ops: tuple[Op, ...]
    seed: int
    device: torch.device
    drawn: tuple[Arrays, ...] | None = None

    def then(self, *ops: Op) -> Samples:
        """Return these samples after more ops. Raises InputError for an op that cannot come here."""
        recipe = make_rendering_recipe((*self.ops, *ops))
        recipe.check_masks(self.shapes.has_masks, "give da.batch shapes=da.Shapes.of_segmentations(...)")
        op = recipe.mixing_op
        if op and len(self) < 2:
            raise InputError(f"{type(op).__name__} combines images of a batch: give it at least 2, got {len(self)}")
        return replace(self, ops=(*self.ops, *ops))

    def replay(self, params: Sequence[Arrays]) -> Samples:
        """Return these samples with numbers drawn before: the `params` of other samples with the same ops."""
        return replace(self, drawn=tuple(params))

    def __len__(self) -> int:
        return len(self.source_images)

    @property
    def shapes(self) -> Shapes:
        """Return keypoints, corners and outlines of all boxes, in source pixels."""
        return self.source_views.shapes

    def __repr__(self) -> str:
        return f"<{len(self)} samples after {list(self.ops)}>"

    def _repr_png_(self) -> bytes:
        """Draw the first images with their boxes for notebooks; Normalize is undone."""
        normalize = next((op for op in self.ops if isinstance(op, Normalize)), None)
        mean, std = (normalize.mean, normalize.std) if normalize else (None, None)
        white, layout = (1, "CHW") if normalize else (255, "HWC")
        images = [to_image(image, mean=mean, std=std, white=white, layout=layout) for image in self.images]
        return notebook_png(images, self.boxes, [own_labels.tolist() for own_labels in self.labels], marks=self.marks())

    @property
    def params(self) -> tuple[Arrays, ...]:
        """Return what each op drew, by name: arrays whose first axis is the samples."""
        return self.plan.drawn

    @property
    def boxes(self) -> list[Array]:
        """Return N arrays (M, 4) float64 XYXY, in pixels of `images`."""
        boxes, _, counts = self._packed
        boxes = whole_where_close(np.ascontiguousarray(boxes))
        return [own_boxes[:count] for own_boxes, count in zip(boxes, counts, strict=True)]

    @property
    def labels(self) -> list[Array]:
        """Return N arrays (M,) int64."""
        _, labels, counts = self._packed
        return [own_labels[:count] for own_labels, count in zip(labels, counts, strict=True)]

    @property
    def columns(self) -> dict[str, list[Array]]:
        """Return N arrays (M, ...) for each of the columns that were given, by name."""
        rows = rows_left(self._views)
        return {name: self._by_image(column[rows]) for name, column in self.source_columns.items()}

    @property
    def keypoints(self) -> list[Array]:
        """Return N arrays (M, K, 3): x, y in pixels of `images`, and v. See `Batch.keypoints`."""
        return self._by_image(self._moved.keypoints)

    @property
    def corners(self) -> list[Array]:
        """Return N arrays (M, 4, 2): the corners of rotated boxes in pixels of `images`."""
        return self._by_image(self._moved.corners)

    @property
    def masks(self) -> list[Array]:
        """Return N arrays (M, H, W) bool: which pixels of `images` show each object. See `Batch.masks`.

        >>> outline = [[[20, 10, 60, 10, 60, 50, 40, 50, 40, 30, 20, 30]]]
        >>> shapes = da.Shapes.of_segmentations(outline)
        >>> samples = da.batch([np.zeros((100, 200, 3), np.uint8)], [[[20, 10, 60, 50]]], shapes=shapes)
        >>> (masks,) = da.RandomHorizontalFlip(p=1)(samples).masks
        >>> print(masks.shape, masks.sum(), masks[0, 29, 179], masks[0, 30, 179])
        (1, 100, 200) 1200 True False
        """
        table = self.shapes.mask_table
        return [rasterise(table, objects, pixel_grid(*size, 1)) for objects, size in self._objects()]

    def rotated_boxes(self, angle: Angle = "le90", *, border: Literal["visible", "whole"] = "visible") -> list[Array]:
        """Return N arrays (M, 5): center x, y, width, height, angle. See `Batch.rotated_boxes`."""
        return self._by_image(self._moved.rotated_boxes(angle, visible=border == "visible"))

    def marks(self) -> list[Marks | None]:
        """Return what images show of the objects of each of N images, beside boxes."""
        nothing = [None] * len(self)
        keypoints = nothing if self.shapes.keypoints is None else self.keypoints
        corners = nothing if self.shapes.corners is None else self.corners
        rows = self._by_image(rows_left(self._views))
        marks = [marks_of(self.shapes, *own) for own in zip(rows, keypoints, corners, strict=True)]
        if not self.shapes.has_masks:
            return marks
        table = self.shapes.mask_table
        return [with_masks(image_marks, table, *own) for image_marks, own in zip(marks, self._objects(), strict=True)]

    def _objects(self) -> list[tuple[PlacedObjects, tuple[int, int]]]:
        """Return the objects of each of N images, and its size (H, W)."""
        channels_first = self._channels_first
        sizes = [image.shape[1:] if channels_first else image.shape[:2] for image in self.images]
        numbers = self._by_image(np.arange(len(self._moved.objects)))
        return [(self._moved.objects.part(own), size) for own, size in zip(numbers, sizes, strict=True)]

    def _by_image(self, values: Array) -> list[Array]:
        """Split values (B, ...) of all boxes."""
        return np.split(values, np.cumsum(self._packed[2])[:-1])

    def boxes_in_source(self) -> list[Array]:
        """Return N arrays (M, 4) XYXY: the boxes in pixels of the source images that they are of.

        They are not clipped; a box that an op clipped in the output stays so.
        """
        placement = self._moved.placement
        boxes = torch.from_numpy(np.concatenate(self.boxes))[:, None]
        of_boxes = None if placement.field is None else placement.field[placement.image]
        moved = move_boxes(boxes, torch.from_numpy(placement.to_source), of_boxes)[:, 0].numpy()
        return self._by_image(moved)

    @property
    def matrix(self) -> Floats:
        """Return the maps from source pixels to pixels of `images`: (N, 2, 3), or (N, 3, 3) after a perspective op.

        They are those before an op that bends finished images, such as `OpticalDistortion`.
        """
        return np.ascontiguousarray(self.plan.views.to_output()) + 0.0

    @cached_property
    def images(self) -> list[Array]:
        """Return N arrays (H, W, 3) in 0..255; (3, H, W) after Normalize. Without Resize, at the view's own size."""
        renderer = ArrayRenderer(self._recipe, len(self), self.device)
        images = renderer.render(self.source_images, self.plan)
        renderer.close()
        channels_first = self._channels_first
        return [np.ascontiguousarray(image if channels_first else image.permute(1, 2, 0)) for image in images]

    @property
    def _channels_first(self) -> bool:
        steps = self._recipe.pixel_steps
        return bool(steps) and steps[-1].op.output_layout == "CHW"

    @cached_property
    def plan(self) -> Plan:
        """Return what the ops do to these samples."""
        return self._recipe.plan(self.source_views, draws_from(np.random.default_rng(self.seed)), self.drawn)

    @cached_property
    def _views(self) -> Views:
        return fit_to_shapes(self.plan.views)

    @cached_property
    def _moved(self) -> ShapeGroup:
        return ShapeGroup(self.shapes, lambda: Placement.of_views(self._views))

    @cached_property
    def _packed(self) -> tuple[Array, Array, Array]:
        return self._views.packed()

    @property
    def _recipe(self) -> Recipe:
        return make_rendering_recipe(self.ops)


def _boxes(index: int, values: ArrayLike) -> Floats:
    boxes = _numbers(f"boxes[{index}]", values, "(M, 4) XYXY pixels")
    if boxes.size and (boxes.ndim != 2 or boxes.shape[1] != 4):
        raise InputError(f"boxes[{index}] must be (M, 4) XYXY pixels, got shape {boxes.shape}")
    return boxes.reshape(-1, 4)


def _labels(index: int, values: ArrayLike) -> Ints:
    rule = "whole numbers from 1: for names, their positions in your list of classes, plus 1"
    labels = _numbers(f"labels[{index}]", values, rule).reshape(-1)
    whole = np.isfinite(labels) & (labels == np.floor(labels))
    check(f"labels[{index}]", values, bool((whole & (labels >= 1)).all()), rule)
    return labels.astype(np.int64)


def _concatenated(name: str, column: Sequence[ArrayLike], boxes: list[Floats]) -> Array:
    """Return the rows (B, ...) of a column of all images. Raises InputError where an image has too few or too many."""
    arrays = [_as_rows(rows) for rows in column]
    if len(arrays) != len(boxes):
        raise InputError(f"columns[{name!r}] must hold rows for each of {len(boxes)} images, got {len(arrays)}")
    for index, (array, own) in enumerate(zip(arrays, boxes, strict=True)):
        if array.shape[:1] != (len(own),):
            raise InputError(
                f"columns[{name!r}][{index}] must have a row for each of {len(own)} boxes, got {array.shape}"
            )
    return join([{name: array} for array in arrays], [len(own) for own in boxes])[name]


def _as_rows(rows: ArrayLike) -> Array:
    """Return rows as an array; lists of several lengths are objects."""
    try:
        return np.asarray(rows)
    except ValueError:
        return as_objects(list(rows))  # type: ignore[arg-type]  # no number or text fails


def _numbers(name: str, values: ArrayLike, rule: str) -> Floats:
    try:
        array = np.asarray(values)
    except ValueError:  # rows of several lengths
        array = np.array("")
    check(name, values, array.dtype.kind in "iuf" or not array.size, rule)
    return array.astype(np.float64)


def _image(index: int, image: Any) -> Array:
    array: Array = np.require(image, requirements=["C", "W"])  # torch warns of arrays that cannot be written
    if array.ndim != 3 or array.shape[2] != 3 or array.dtype != np.uint8 or not array.size:
        raise InputError(f"images[{index}] must be (H, W, 3) uint8 RGB, got {array.shape} {array.dtype}")
    return array


def _lists(name: str, lists: Sequence[ArrayLike] | None, images: list[Array], default: Any = None) -> list[ArrayLike]:
    """Return the boxes or labels of each image. Raises InputError for more or fewer than there are images."""
    entries = [default] * len(images) if lists is None else list(lists)
    if len(entries) != len(images):
        raise InputError(f"{name} must hold an entry for each of {len(images)} images, got {len(entries)}")
    return entries
