"""Panoptic maps that are files: their segments, and which annotation of the reader each of them is."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Bools, Floats, Ints
from detaug.coco.boxes import box_iou
from detaug.errors import InputError
from detaug.maps.files import FileMaps
from detaug.maps.kinds import PanopticMap
from detaug.maps.panoptic_json import PanopticClasses, PanopticJson, read_panoptic
from detaug.maps.segments import STUFF, VOID, Segments

SAME_OBJECT = 0.5
"""The IoU of the boxes of a segment and of an annotation from which they can be of one object."""

SHOWN = 3
"""Ids that an error names."""


class ObjectsOfImages(NamedTuple):
    """The annotations of a reader."""

    class_names: tuple[str, ...]
    """K, without the background."""
    first: Ints
    """(n + 1,): those of image i are first[i] to first[i + 1]."""
    labels: Ints
    """(A,): 1..K."""
    boxes: Floats
    """(A, 4) XYXY pixels."""
    crowd: Bools
    """(A,)"""


class PanopticFiles(FileMaps):
    """Panoptic maps that are files of a folder, with one JSON file for all.

    `dropped`: how many segments are void in batches, by the reason.
    """

    kind: PanopticMap

    def __init__(
        self,
        kind: PanopticMap,
        name: str,
        images: Path,
        file_names: Sequence[str],
        sizes: Ints,
        objects: ObjectsOfImages | None = None,
        classes: PanopticClasses | None = None,
        *,
        cache: bool = False,
    ):
        """Find the maps of images, and the annotation of each segment. `classes`: see `read_panoptic`.

        Without `objects` no segment is an annotation. Raises InputError as `FileMaps` does, for a JSON file that is not
        there or wrong, and for one none of whose things is an annotation. Warns of those that are none.
        """
        self._classes, self._unlisted = classes, dict[str, Path]()
        super().__init__(kind, name, images, file_names, sizes, cache=cache)
        self._columns = self.json.columns([None if path is None else self._name(path) for path in self._paths])
        labels, self.kind = _joined_classes(kind, self.json.classes, objects)
        self._labels, self.classes = labels[self._columns.classes], self.json.classes
        self.dropped: dict[str, int] = {}
        self._rows = self._rows_of(objects)
        self.inputs.append(self.json.path)
        del self.json  # large

    @cached_property
    def json(self) -> PanopticJson:
        """Return the JSON file; it is there while the maps are found."""
        folder, json = self.folder, self.kind.annotations
        if json is None:
            file = f"{folder.name}.json"
            places = [folder.parent / file, folder.parent / "annotations" / file]
        else:
            places = [Path(json), *([] if Path(json).is_absolute() else [folder.parent / json])]
        for place in places:
            if place.is_file():
                return read_panoptic(place, self._classes)
        where = ", ".join(map(str, dict.fromkeys(places)))
        raise InputError(f"the map {self.name!r}: no such JSON file: {where}; give PanopticMap(annotations=) its path")

    def _name(self, path: Path) -> str:
        return os.path.relpath(path, self.folder)

    def _find(self, files: Mapping[str, list[Path]], file_name: str, are_flat: bool) -> Path | None:
        """Return the map of an image, if the JSON file has an entry for it."""
        path = super()._find(files, file_name, are_flat)
        if path is not None and self._name(path) not in self.json.entries:
            self._unlisted[file_name] = path
            return None
        return path

    def sought(self, index: int) -> str:
        """Return what the map of an image would be that has none."""
        if (path := self._unlisted.get(self._file_names[index])) is None:
            return super().sought(index)
        return f"the JSON file of the maps has no annotation with the file_name {self._name(path)!r}"

    def _remedy(self, index: int) -> str:
        if self._file_names[index] not in self._unlisted:
            return super()._remedy(index)
        return f"{self.sought(index)}; add it, or give PanopticMap(annotations=) another file"

    def _rows_of(self, objects: ObjectsOfImages | None) -> Ints:
        """Return (S,): which of its image's annotations each segment is, `VOID` or `STUFF`."""
        columns, labels = self._columns, self._labels
        is_thing = np.array(self.kind.is_thing)[labels]
        if objects is None:
            return np.where(is_thing | columns.crowd, VOID, STUFF)
        known = len(objects.class_names)
        has_boxes: Bools = np.zeros(len(self.kind.class_names), bool)
        has_boxes[objects.labels[~objects.crowd] - 1] = True
        is_object = is_thing | has_boxes[labels]
        sought = np.flatnonzero(is_object & ~columns.crowd & (labels < known))
        if without := np.flatnonzero(np.isnan(columns.boxes[sought, 0]))[:1].tolist():
            number = columns.ids[sought[without[0]]]
            raise InputError(
                f"{self.json.path}: the segment {number} has no bbox, by which its annotation is found; add x, y, "
                "width and height"
            )
        image = np.repeat(np.arange(len(self._sizes)), np.diff(columns.first))
        rows: Ints = np.where(is_object | columns.crowd, VOID, STUFF)
        row = match_objects(image[sought], labels[sought], columns.boxes[sought], objects)
        rows[sought[row >= 0]] = (row - objects.first[image[sought]])[row >= 0]
        self._count(rows, is_object, row, objects)
        return rows

    def _count(self, rows: Ints, is_object: Bools, row: Ints, objects: ObjectsOfImages) -> None:
        """Count what is dropped. Raises InputError where nothing is left, and warns of what should not be dropped."""
        crowd, known = self._columns.crowd, len(objects.class_names)
        self.dropped = {
            "crowd": int(crowd.sum()),
            "class without annotations": int((~crowd & is_object & (self._labels >= known)).sum()),
            "no annotation": int((row < 0).sum()),
        }
        path, things = self.json.path, int((~crowd & is_object).sum())
        lost = things - int((rows >= 0).sum())
        if things and lost == things:
            raise InputError(
                f"{path}: none of its {things:,} objects is an annotation of the reader: none has the same class, by "
                "name, and a box near it; give the JSON files of one dataset"
            )
        if lost:
            reasons = [
                f"{self.dropped[reason]:,} {reason}" for reason in ("no annotation", "class without annotations")
            ]
            warnings.warn(
                f"{path}: {lost:,} of {things:,} objects are void in the map {self.name!r}: {', '.join(reasons)}",
                stacklevel=6,
            )

    def _own(self, index: int) -> slice:
        """Return which of all segments are those of an image."""
        return slice(*self._columns.first[index : index + 2].tolist())

    def _numbers(self, index: int) -> Ints:
        return self._columns.ids[self._own(index)]

    def _segments(self, index: int) -> Segments:
        own, columns = self._own(index), self._columns
        return Segments.of(self._rows[own], self._labels[own], columns.crowd[own], columns.places[own])

    def _decoded(self, index: int, path: Path) -> NDArray[Any]:
        """Return the map with its segments as 1, 2, ..."""
        numbers, ids = super()._decoded(index, path), self._numbers(index)
        present, of_pixel = np.unique(numbers, return_inverse=True)
        unknown, unseen = np.setdiff1d(present, [0, *ids]), np.setdiff1d(ids, present)
        if len(unknown):
            raise InputError(
                f"{path} has {_listed(unknown)}, which segments_info of the JSON file does not have; add what they "
                "are, or write 0, void, there"
            )
        if len(unseen):
            raise InputError(
                f"{path} has no pixel of {_listed(unseen)}, which segments_info of the JSON file has; remove them "
                "there, or write the map again"
            )
        return np.searchsorted(np.append(0, ids), present)[of_pixel].reshape(numbers.shape).astype(np.int32)


def _listed(ids: Ints) -> str:
    more = f" and {len(ids) - SHOWN:,} more" if len(ids) > SHOWN else ""
    return f"the id{'s' * (len(ids) > 1)} {', '.join(map(str, ids[:SHOWN].tolist()))}{more}"


def _joined_classes(
    kind: PanopticMap, classes: PanopticClasses, objects: ObjectsOfImages | None
) -> tuple[Ints, PanopticMap]:
    """Return the number of each class of a JSON file among those of the reader and the file, and the map with these."""
    own = () if objects is None else objects.class_names
    names = list(dict.fromkeys([*own, *classes.names]))
    things = dict(zip(classes.names, classes.is_thing, strict=True))
    numbers: Ints = np.array([names.index(name) for name in classes.names], np.int64)
    return numbers, kind.named(names, [things.get(name, True) for name in names])


def match_objects(image: Ints, label: Ints, boxes: Floats, objects: ObjectsOfImages) -> Ints:
    """Return (S,): the annotation of each segment, of one image and class with it, -1 for none.

    `image`, `label` (S,), from 0; `boxes` (S, 4) XYXY. Pairs are taken in the order of their IoU, from 0.5 on.
    """
    classes = len(objects.class_names)
    of_image = np.repeat(np.arange(len(objects.first) - 1), np.diff(objects.first))
    keys = of_image * classes + objects.labels - 1
    keys[objects.crowd] = -1
    order = np.argsort(keys, kind="stable")
    wanted = image * classes + label
    low, high = (np.searchsorted(keys[order], wanted, side) for side in ("left", "right"))
    counts = high - low
    segment = np.repeat(np.arange(len(boxes)), counts)
    annotation = order[np.arange(len(segment)) + np.repeat(high - np.cumsum(counts), counts)]
    iou = box_iou(boxes[segment], objects.boxes[annotation])
    near = np.flatnonzero(iou >= SAME_OBJECT)
    near = near[np.argsort(-iou[near], kind="stable")]
    match, taken = np.full(len(boxes), -1), np.zeros(len(keys), bool)
    for one, other in zip(segment[near].tolist(), annotation[near].tolist(), strict=True):
        if match[one] < 0 and not taken[other]:
            match[one], taken[other] = other, True
    return match
