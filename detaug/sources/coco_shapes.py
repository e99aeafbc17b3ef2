"""The shapes of annotations, from a checked COCO JSON file."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.boxes.keypoints import KeyPoints
from detaug.boxes.shapes import Shapes, corners_of_boxes, single_rings_of_four
from detaug.coco.annotations import AnnotationError, Annotations, remedy_of
from detaug.coco.key_points import (
    Pairs,
    bones_of,
    count_of_points,
    faults_of_category,
    names_of_points,
    places_in_mirror,
    read_key_points,
    swaps_of_classes,
)
from detaug.coco.outlines import OutlineColumns
from detaug.errors import InputError
from detaug.findings.finding import shown

FlipPairs = Pairs | None
"""Pairs of keypoints that are swapped in a flipped image. None: from the names."""


@dataclass(frozen=True)
class WantedShapes:
    """Which shapes are read of a JSON file."""

    keypoints: bool
    flip_pairs: FlipPairs
    rotated: bool
    tight: bool
    masks: bool

    def with_columns(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return the keys of annotations to read, those of the columns `names` too."""
        return tuple(dict.fromkeys([*names, *["keypoints"] * self.keypoints]))

    @property
    def outlines(self) -> bool:
        """Return whether to read the polygons."""
        return self.tight or self.rotated or self.masks

    def of(self, data: Annotations, keep: Bools) -> Shapes:
        """Return the shapes of the annotations to `keep`."""
        key_points = key_points_of(data, keep, self.flip_pairs) if self.keypoints else None
        outlines = data.outlines if self.outlines else None
        # a selection is a copy of all: spared where all stay
        if outlines and not keep.all():
            outlines = outlines.of(np.flatnonzero(keep))
        corners = corners_of(data.boxes[keep], outlines) if self.rotated and outlines else None
        if outlines and (self.tight or self.masks):
            return Shapes(key_points, corners, self._complete(data, keep, outlines), self.masks, self.tight)
        return Shapes(key_points, corners)

    def _complete(self, data: Annotations, keep: Bools, outlines: OutlineColumns) -> OutlineColumns:
        """Return polygons with the corners of annotations without one; with masks, else with the box."""
        missing = np.flatnonzero(~outlines.are_there(np.arange(len(outlines.corners))))
        with_corners = ~np.isnan(outlines.corners[missing]).any((1, 2))
        if self.masks and len(missing) == len(outlines.corners) and len(missing) and not with_corners.any():
            raise AnnotationError(
                f"{data.path}: no annotation has a segmentation, which masks are made from; give a JSON file with "
                "polygons, or leave out masks=True (in detaug train: choose a --model of boxes)"
            )
        rows = missing if self.masks else missing[with_corners]
        return outlines.with_rings(rows, corners_of(data.boxes[keep][rows], outlines.of(rows)))


def corners_of(boxes: Floats, outlines: OutlineColumns) -> Floats:
    """Return (A, 4, 2): the corners of rotated boxes: `corners`, a segmentation of four points, else the box."""
    corners = corners_of_boxes(boxes)
    rows, quadrangles = single_rings_of_four(outlines)
    corners[rows] = quadrangles
    has = ~np.isnan(outlines.corners).any((1, 2))
    corners[has] = outlines.corners[has]
    return corners


def key_points_of(data: Annotations, keep: Bools, flip_pairs: FlipPairs) -> KeyPoints:
    """Return the keypoints of the annotations to `keep`, moved to continuous pixels.

    `data` has the column "keypoints". Raises AnnotationError for a JSON file without keypoints, or with wrong ones.
    """
    categories = [*data.category_keys.values()]
    names = [names_of_points(category) for category in categories]
    class_of_box = np.searchsorted([*data.categories], data.category_ids[keep])
    known = np.array([len(own_names) for own_names in names])[class_of_box]
    values = [None if _is_missing(value) else value for value in data.columns["keypoints"][keep].tolist()]
    points, faults = read_key_points(values, known.tolist())
    for row, (_, fault) in faults.items():
        image = int(np.searchsorted(data.first, np.flatnonzero(keep)[row], side="right")) - 1
        raise AnnotationError(
            f"{data.path}: an annotation of {data.file_names[image]}: {fault}; {remedy_of(data.path)}"
        )
    count = points.shape[1]
    for name, category in zip(data.categories.values(), categories, strict=True):
        for kind, fault in faults_of_category(category, count):
            if kind != "keypoints-skeleton":
                raise AnnotationError(f"{data.path}: category {name!r}: {fault}; {remedy_of(data.path)}")
    if not count:
        raise AnnotationError(
            f"{data.path}: no annotation has keypoints; give a JSON file with keypoints, or leave out keypoints=True: "
            "da.ConcatReader joins a reader of background images without it to one with it"
        )
    labeled = points[..., 2] > 0
    points[..., :2] = np.where(labeled[..., None], points[..., :2] + 0.5, 0)  # COCO counts pixels
    skeletons = [bones_of(category, count) for category in categories]
    counts = [count_of_points(labeled[class_of_box == index]) for index in range(len(names))]
    swaps, unknown = _swaps(data, names, counts, count, flip_pairs)
    return KeyPoints(points, names, skeletons, swaps, unknown)


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))


def _swaps(
    data: Annotations, names: list[list[str]], counts: list[int], count: int, flip_pairs: FlipPairs
) -> tuple[Ints, str]:
    """Return (C, count): where each point goes in a flipped image, and why that is not known, if it is not.

    `counts`: how many points the objects of each class have. Only flips need it: `KeyPoints.check_flips`.
    """
    if flip_pairs is not None:
        return swaps_of_classes(flip_pairs, names, count), ""
    swaps, unknown = np.tile(np.arange(count), (len(names), 1)), ""
    for index, category in enumerate(data.category_keys.values()):
        try:
            own = places_in_mirror(category, counts[index])
            swaps[index, : len(own)] = own
        except InputError as error:
            if counts[index]:
                unknown = unknown or f"{data.path}: category {shown([*data.categories.values()][index])}: {error}"
    return swaps, unknown
