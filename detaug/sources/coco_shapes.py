"""The shapes of annotations, from a checked COCO json."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from detaug.arrays import Bools, Floats, Ints
from detaug.boxes.keypoints import KeyPoints, Pairs, swaps_of_names, swaps_of_pairs
from detaug.boxes.shapes import Shapes, corners_of_boxes, single_rings_of_four
from detaug.converters.coco.annotations import AnnotationError, Annotations
from detaug.converters.coco.outlines import OutlineColumns
from detaug.errors import InputError

FlipPairs = Pairs | None
"""Pairs of key points that change places in a mirrored image. None: from the names."""


@dataclass(frozen=True)
class WantedShapes:
    """Which shapes are read of a json."""

    keypoints: bool
    flip_pairs: FlipPairs
    rotated: bool
    tight: bool

    @property
    def columns(self) -> list[str]:
        """Return the keys of annotations to read."""
        return ["keypoints"] * self.keypoints

    @property
    def outlines(self) -> bool:
        """Return whether to read the outlines."""
        return self.tight or self.rotated

    def of(self, data: Annotations, keep: Bools) -> Shapes:
        """Return the shapes of the annotations to `keep`."""
        key_points = key_points_of(data, keep, self.flip_pairs) if self.keypoints else None
        outlines = data.outlines.of(np.flatnonzero(keep)) if data.outlines and self.outlines else None
        corners = corners_of(data, keep, outlines) if self.rotated and outlines else None
        return Shapes(key_points, corners, outlines, self.tight)


def corners_of(data: Annotations, keep: Bools, outlines: OutlineColumns) -> Floats:
    """Return (A, 4, 2): the corners of rotated boxes: `corners`, a segmentation of four points, else the box."""
    corners = corners_of_boxes(data.boxes[keep])
    rows, quadrangles = single_rings_of_four(outlines)
    corners[rows] = quadrangles
    has = ~np.isnan(outlines.corners).any((1, 2))
    corners[has] = outlines.corners[has]
    return corners


def key_points_of(data: Annotations, keep: Bools, flip_pairs: FlipPairs) -> KeyPoints:
    """Return the key points of the annotations to `keep`, moved to continuous pixels.

    `data` has the column "keypoints". Raises AnnotationError for a json without key points, or with wrong ones.
    """
    names = [_names(data, number) for number in data.categories]
    lists = [None if _is_missing(each) else each for each in data.columns["keypoints"][keep].tolist()]
    count = max([len(each) for each in names] + [len(each) // 3 for each in lists if each], default=0)
    if not count:
        raise AnnotationError(f"{data.path}: no annotation has key points")
    points = np.zeros((len(lists), count, 3))
    for row, numbers in enumerate(lists):
        if numbers:
            points[row, : len(numbers) // 3] = _triples(data, keep, row, numbers, names)
    labelled = points[..., 2] > 0
    points[..., :2] = np.where(labelled[..., None], points[..., :2] + 0.5, 0)  # COCO counts pixels
    skeletons = [_skeleton(data, number, count) for number in data.categories]
    return KeyPoints(points, names, skeletons, _swaps(data, names, count, flip_pairs))


def _names(data: Annotations, category: int) -> list[str]:
    names = data.category_keys[category].get("keypoints") or []
    if not isinstance(names, list) or not all(isinstance(name, str) for name in names):
        raise AnnotationError(f"{data.path}: category {data.categories[category]!r}: keypoints must be a list of names")
    return names


def _is_missing(value: Any) -> bool:
    return value is None or (isinstance(value, float) and np.isnan(value))


def _triples(data: Annotations, keep: Bools, row: int, numbers: Any, names: list[list[str]]) -> Floats:
    """Return (K, 3): x, y, visibility of an annotation. Raises AnnotationError."""
    at = int(np.flatnonzero(keep)[row])
    image = int(np.searchsorted(data.first, at, side="right")) - 1
    where = f"{data.path}: an annotation of {data.file_names[image]}"
    known = len(names[int(np.searchsorted([*data.categories], data.category_ids[at]))])
    if not isinstance(numbers, list) or len(numbers) % 3 or (known and len(numbers) != 3 * known):
        rule = f"3 numbers for each of {known}" if known else "3 numbers for each"
        got = f"{len(numbers)} numbers" if isinstance(numbers, list) else repr(numbers)
        raise AnnotationError(f"{where}: keypoints must have {rule}, got {got}")
    try:
        points = np.array(numbers, np.float64).reshape(-1, 3)
    except (TypeError, ValueError):
        raise AnnotationError(f"{where}: keypoints must be numbers, got {numbers!r}") from None
    if not np.isfinite(points).all() or not np.isin(points[:, 2], (0, 1, 2)).all():
        raise AnnotationError(f"{where}: the visibility of a key point must be 0, 1 or 2, got {points[:, 2].tolist()}")
    return points


def _skeleton(data: Annotations, category: int, count: int) -> list[tuple[int, int]]:
    """Return pairs of points, from 0; COCO's are from 1."""
    pairs = data.category_keys[category].get("skeleton") or []
    fits = isinstance(pairs, list) and all(
        isinstance(pair, list) and len(pair) == 2 and all(type(at) is int and 1 <= at <= count for at in pair)
        for pair in pairs
    )
    if not fits:
        name = data.categories[category]
        raise AnnotationError(f"{data.path}: category {name!r}: skeleton must be pairs of 1..{count}, got {pairs!r}")
    return [(a - 1, b - 1) for a, b in pairs]


def _swaps(data: Annotations, names: list[list[str]], count: int, flip_pairs: FlipPairs) -> Ints:
    """Return (C, count): where each point goes in a mirrored image. Raises InputError where that is not known."""
    if flip_pairs is not None:
        return np.array([swaps_of_pairs(flip_pairs, each, count) for each in names])
    swaps = []
    for number, of_class in zip(data.categories, names, strict=True):
        given = data.category_keys[number].get("flip_idx")
        if given is not None:
            if not (isinstance(given, list) and sorted(given) == [*range(len(given))]):
                raise AnnotationError(f"{data.path}: flip_idx must have each of 0..K - 1 once, got {given!r}")
            swaps.append(np.array([*given, *range(len(given), count)]))
        else:
            swaps.append(swaps_of_names(of_class, count))
    if not any(names) and all(data.category_keys[number].get("flip_idx") is None for number in data.categories):
        raise InputError(
            f"{data.path}: the key points have no names, so which of them change places in a mirrored image is not "
            "known: give flip_pairs, such as [(1, 2), (3, 4)], or [] if none do"
        )
    return np.array(swaps)
