"""What `Source` takes, from a checked COCO json."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np

from detaug.arrays import Bools, Ints
from detaug.converters.coco.annotations import AnnotationError, Annotations
from detaug.sources.clips import Tracks

Crowds = Literal["drop", "keep"]


def source_columns(data: Annotations, crowds: Crowds = "drop") -> dict[str, Any]:
    """Return the arguments of `Source`. `crowds`: whether regions marked `iscrowd` are left out."""
    keep, ids = _kept(data, crowds), tuple(data.categories)
    return {
        "sizes": data.sizes,
        "class_names": tuple(data.categories.values()),
        "boxes": data.boxes[keep],
        "counts": _counts(data, keep),
        "columns": {name: column[keep] for name, column in data.columns.items()},
        "labels": np.searchsorted(ids, data.category_ids[keep]) + 1,
        "classes": _classes(data),
        "image_ids": data.image_ids,
        "category_ids": ids,
        "origin": str(data.path),
    }


def tracks_of(data: Annotations) -> Tracks:
    """Return the objects of a CocoVID json."""
    keep = _kept(data, "drop")
    return Tracks(data.track_ids[keep], _counts(data, keep))


def _kept(data: Annotations, crowds: Crowds) -> Bools:
    return ~data.crowd | (crowds == "keep")


def _counts(data: Annotations, keep: Bools) -> Ints:
    """Return (n,) how many of the boxes that are kept each image has."""
    return np.diff(np.concatenate([[0], np.cumsum(keep)])[data.first])


def _classes(data: Annotations) -> Ints | None:
    """Return (n,) the position of each image's category, None if no image has one. Raises AnnotationError."""
    given = data.image_categories >= 0
    if not given.any():
        return None
    if not given.all():
        first = data.file_names[int(np.argmin(given))]
        raise AnnotationError(f"{data.path}: some images have a category_id, {first!r} has none; give all or none one")
    return np.searchsorted(tuple(data.categories), data.image_categories)
