"""Plan the batches of a DALI pipeline: the Python function that `da.fn.augment` puts into it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain, count
from typing import Literal, NamedTuple
from weakref import ReferenceType

import numpy as np
from nvidia.dali import Pipeline

from detaug.arrays import Array, Floats, Ints, padded
from detaug.boxes.checking import find_fault, to_relative
from detaug.boxes.keypoints import KeyPoints
from detaug.boxes.placement import Placement, place_key_points
from detaug.boxes.tight import fit_to_shapes
from detaug.boxes.views import Views, class_labels, rows_left, whole_images
from detaug.coco.key_points import Pairs, swaps_of_pairs
from detaug.dali.polygons import masks_of, outlines_of
from detaug.errors import InputError, OpError
from detaug.pipelines.python_functions import current_pipeline, running_in
from detaug.recipes.recipe import Recipe, draws_from

DaliSamples = list[Array]
"""An array for each sample of the batch."""

Units = Literal["relative", "pixels"]


class BatchBoxes(NamedTuple):
    """The boxes of a batch and what belongs to them, row by row: B boxes of n images."""

    boxes: Floats
    """(B, 4)"""
    counts: Ints
    """(n,) how many of them each image has."""
    columns: list[Array]
    """(B, ...) each: labels and whatever else there is for each box."""


@dataclass(eq=False)
class BatchPlanner:
    """Plans one batch at a time. `units` and `output_units` are of boxes."""

    recipe: Recipe
    seed: int
    units: Units
    output_units: Units
    has_labels: bool
    """Whether labels are given; otherwise they are 1."""
    columns: int
    """The number of columns, without labels."""
    return_matrix: bool
    has_polygons: bool
    """Whether the first two inputs are rings and vertices."""
    flip_pairs: Pairs | None
    """Of the first of the columns, which are keypoints; None: there are none."""
    has_corners: bool
    """Whether the first of the columns after keypoints are corners of rotated boxes."""
    name: str
    """The function that the user called, for errors."""
    _numbers: Iterator[int] = field(default_factory=count)
    """Numbers of batches, for errors: they start again after a restored checkpoint."""
    _pipeline: ReferenceType[Pipeline] = field(default_factory=current_pipeline)

    @property
    def box_outputs(self) -> int:
        """Return the number of outputs before the inputs of the recipe's graph."""
        return 2 + self.return_matrix + self.has_polygons + self.columns

    @property
    def outputs(self) -> int:
        """Return the number of outputs of a call."""
        return self.box_outputs + len(self.recipe.input_names)

    def __call__(self, shapes: DaliSamples, random: DaliSamples, *arrays: DaliSamples) -> tuple[DaliSamples, ...]:
        """Return boxes, labels, matrix and masks if wanted, other columns, and the inputs of the recipe's graph.

        `shapes`: of the images. `random`: numbers that differ from batch to batch. `arrays`: rings and vertices if
        there are any, boxes, labels, columns; or nothing, for images without boxes.
        """
        number = next(self._numbers)
        with running_in(self._pipeline):
            try:
                return self._plan(shapes, random, arrays)
            except Exception as error:
                raise _in_batch(error, f"{self.name}, batch {number}") from error

    def _plan(
        self, shapes: DaliSamples, random: DaliSamples, arrays: tuple[DaliSamples, ...]
    ) -> tuple[DaliSamples, ...]:
        size = np.array([shape[:2] for shape in shapes], np.float64)
        _check_images(self.recipe, shapes)
        polygons, arrays = (arrays[:2], arrays[2:]) if self.has_polygons else ((), arrays)
        if arrays and not self.has_labels:
            arrays = arrays[0], [np.ones(boxes.shape[:1], np.int32) for boxes in arrays[0]], *arrays[1:]
        rows = _rows(arrays) if arrays else _no_boxes(len(shapes))
        rows = rows._replace(boxes=_relative(rows, size, self.units))
        rng = np.random.default_rng([self.seed, *random[0].view(np.uint32).tolist()])
        labels = padded(class_labels(rows.columns[0], len(rows.boxes)), rows.counts, -1)
        views = whole_images(padded(rows.boxes, rows.counts, 0), labels, size)
        if self.has_polygons:
            relative = self.units == "relative"
            outlines = outlines_of(polygons[0], polygons[1], rows.boxes, rows.counts, size, relative=relative)
            views = replace(views, shapes=outlines)
        if self.has_corners:
            views = replace(views, shapes=replace(views.shapes, corners=self._corners_of(rows, size)))
        plan = self.recipe.plan(views, draws_from(rng))
        inputs = [list(map(np.asarray, plan.inputs[name])) for name in self.recipe.input_names]  # a row may be a number
        return (*self._outputs(fit_to_shapes(plan.views), rows, size), *inputs)

    def _outputs(self, views: Views, rows: BatchBoxes, size: Floats) -> list[DaliSamples]:
        """Return boxes, labels, matrix and masks if wanted, and the other columns, of the boxes that are left."""
        boxes, _, counts = views.unpadded()
        boxes = boxes / np.tile(views.size[:, ::-1], 2).repeat(counts, 0) if self.output_units == "relative" else boxes
        columns = [column[rows_left(views)] for column in rows.columns]
        if self.flip_pairs is not None:
            columns[1] = self._key_points(views, rows, size)
        if views.shapes.corners is not None:
            placement = Placement.of_views(views)
            columns[self._corners_at] = placement.move(views.shapes.corners[placement.rows]).astype(np.float32)
        matrix = [list(np.ascontiguousarray(views.to_output() + 0.0, np.float32))] if self.return_matrix else []
        first, labels, *others = (_split(values, counts) for values in ((boxes + 0.0).astype(np.float32), *columns))
        masks = [masks_of(views)] if self.has_polygons else []
        return [first, labels, *matrix, *masks, *others]

    def _key_points(self, views: Views, rows: BatchBoxes, size: Floats) -> Array:
        """Return the moved keypoints of the boxes that are left, (B, K, 3) float32."""
        points = self._points(rows, 1, size)
        if points.ndim != 3 or points.shape[2] != 3:
            raise InputError(f"keypoints must be (M, K, 3): x, y, visibility; got {points.shape[1:]} for each box")
        key_points = KeyPoints(points, swapped=swaps_of_pairs(self.flip_pairs or (), (), points.shape[1])[None])
        placed = place_key_points(key_points, np.zeros(len(points), np.int64), Placement.of_views(views))
        return placed.astype(np.float32)

    @property
    def _corners_at(self) -> int:
        """Return which of the columns, with the labels before them, are corners."""
        return 1 + (self.flip_pairs is not None)

    def _corners_of(self, rows: BatchBoxes, size: Floats) -> Floats:
        """Return the corners of rotated boxes, (B, 4, 2) pixels."""
        corners = self._points(rows, self._corners_at, size)
        if corners.shape[1:] != (4, 2):
            raise InputError(f"corners must be (M, 4, 2): x, y of each corner; got {corners.shape[1:]} for each box")
        return corners

    def _points(self, rows: BatchBoxes, column: int, size: Floats) -> Floats:
        """Return a column of points (B, K, 2 or more) with x and y in pixels. `size`: (n, 2) of the images."""
        points = rows.columns[column].astype(np.float64)
        if self.units == "relative" and points.ndim == 3:
            points[..., :2] *= size[:, ::-1].repeat(rows.counts, 0)[:, None]
        return points


def _rows(arrays: tuple[DaliSamples, ...]) -> BatchBoxes:
    """Concatenate the rows of all samples. Raises InputError for shapes that do not fit."""
    boxes = [
        sample if sample.shape[1:] == (4,) else _empty_boxes(index, sample) for index, sample in enumerate(arrays[0])
    ]
    counts = [len(sample) for sample in boxes]
    names = chain(["labels"], (f"columns[{number}]" for number in count()))
    columns = [_column(name, column, counts) for name, column in zip(names, arrays[1:], strict=False)]
    return BatchBoxes(np.concatenate(boxes).astype(np.float64), np.array(counts), columns)


def _column(name: str, column: DaliSamples, counts: list[int]) -> Array:
    for index, (rows, boxes) in enumerate(zip(column, counts, strict=True)):
        if rows.shape[:1] != (boxes,):
            raise _mistake(index, f"{name} must have a row for each of {boxes} boxes, got shape {rows.shape}")
        if rows.shape[1:] != column[0].shape[1:]:
            raise _mistake(index, f"{name} must have rows of one length, got shapes {column[0].shape} and {rows.shape}")
    return np.concatenate(column)


def _no_boxes(n: int) -> BatchBoxes:
    return BatchBoxes(np.zeros((0, 4)), np.zeros(n, np.int64), [np.zeros(0, np.int32)])


def _empty_boxes(index: int, boxes: Array) -> Floats:
    if boxes.size:
        raise _mistake(index, f"boxes must be (M, 4) XYXY, got shape {boxes.shape}")
    return np.zeros((0, 4))


def _relative(rows: BatchBoxes, size: Floats, units: Units) -> Floats:
    """Return the boxes relative to their images. Raises InputError for boxes that cannot be in these units."""
    boxes, sides = rows.boxes, np.tile(size[:, ::-1], 2).repeat(rows.counts, 0)
    if fault := find_fault(boxes, sides, relative=units == "relative"):
        remedies = {"swapped": "; ltrb=True in a reader gives these", "outside": _OTHER_UNITS[units]}
        raise _wrong_box(rows, fault.row, fault.rule + remedies.get(fault.kind, ""))
    if units == "relative":
        return boxes.clip(0, 1)
    fractions = (boxes % 1 > 0).any(1)
    if fractions.any() and boxes.max() <= 1:
        rule = "pixels, but all are within 0..1; for these give units='relative'"
        raise _wrong_box(rows, int(np.argmax(fractions)), rule)
    return to_relative(boxes, sides)


_OTHER_UNITS = {
    "relative": "; for pixels give units='pixels', or ratio=True to the reader",
    "pixels": "; for 0..1 give units='relative'",
}


def _wrong_box(rows: BatchBoxes, row: int, rule: str) -> InputError:
    index = int(np.searchsorted(np.cumsum(rows.counts), row, side="right"))
    return _mistake(index, f"boxes must be {rule}, got {rows.boxes[row].tolist()}")


def _check_images(recipe: Recipe, shapes: DaliSamples) -> None:
    for index, shape in enumerate(shapes):
        if len(shape) != 3 or shape[2] != 3:
            raise _mistake(index, f"images must be (H, W, 3) uint8 RGB, got shape {tuple(shape.tolist())}, in bytes")
    op = recipe.mixing_op
    if op and len(shapes) < 2:
        raise InputError(
            f"{type(op).__name__} combines images of a batch, which must have at least 2, got {len(shapes)}"
        )


def _mistake(index: int, message: str) -> InputError:
    return InputError(f"sample {index}: {message}")


def _in_batch(error: Exception, place: str) -> Exception:
    """Return the error with the place in front of its text. An error of no kind of ours becomes a RuntimeError."""
    kind = type(error) if isinstance(error, InputError | OpError) else RuntimeError
    text = str(error) if kind is type(error) else f"{type(error).__name__}: {error}"
    return kind(f"{place}: {text}")


def _split(column: Array, counts: Ints) -> DaliSamples:
    ends = list(accumulate(counts.tolist()))
    return [column[end - length : end] for end, length in zip(ends, counts.tolist(), strict=True)]
