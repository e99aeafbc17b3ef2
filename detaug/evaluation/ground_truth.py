"""The annotated objects that detections are compared with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from detaug.arrays import Floats, Ints
from detaug.coco.annotations import read_annotations
from detaug.coco.table import load_coco


class GroundTruth(NamedTuple):
    """N images in the JSON file's order, and G objects grouped by image."""

    image_ids: list[int]
    file_names: list[str]
    """N"""
    sizes: Ints
    """(N, 2): (height, width) of the images in pixels."""
    categories: dict[int, str]
    rows: list[dict[str, Any]]
    """G, as pycocotools reads them."""
    first: Ints
    """(N + 1,): the objects of image i are first[i]:first[i + 1]."""
    shapes: Floats
    """(G, ...) what detections are compared with: boxes XYXY, or corners."""
    category_ids: Ints
    ignored: NDArray[np.bool_]
    """(G,): difficult, or a crowd; Pascal VOC's rule counts neither the object nor a detection of it."""

    def of_categories(self, category_ids: Container[int]) -> GroundTruth:
        """Return the same objects, with the categories of these ids alone; the others have no object."""
        kept = {number: name for number, name in self.categories.items() if number in category_ids}
        return self._replace(categories=kept)


def annotations_by_image(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the annotations of a JSON file in the order of the G objects of its ground truth: by image."""
    position = {row["id"]: index for index, row in enumerate(document["images"])}
    return sorted(document["annotations"], key=lambda row: position[row["image_id"]])


def read_ground_truth(path: Path, more: Callable[[dict[str, Any]], dict[str, Any]] = lambda entry: {}) -> GroundTruth:
    """Read a JSON file's objects with its own boxes and areas, as pycocotools would read them, and ids from 1.

    pycocotools takes annotation id 0 for "no match", and needs an area, which not every JSON file has. `more`: returns
    what the rows have besides, of an entry of the JSON file.
    """
    checked = read_annotations(path)
    position = {image_id: index for index, image_id in enumerate(checked.image_ids.tolist())}
    entries = annotations_by_image(load_coco(path).document)
    rows = [_row(number, entry) | more(entry) for number, entry in enumerate(entries, 1)]
    boxes = np.array([row["bbox"] for row in rows], np.float64).reshape(-1, 4)
    return GroundTruth(
        image_ids=list(position),
        file_names=list(checked.file_names),
        sizes=checked.sizes,
        categories=_unique(checked.categories),
        rows=rows,
        first=checked.first,
        shapes=np.concatenate([boxes[:, :2], boxes[:, :2] + boxes[:, 2:]], 1),
        category_ids=np.array([row["category_id"] for row in rows], np.int64),
        ignored=np.array([entry.get("iscrowd") == 1 or entry.get("difficult") == 1 for entry in entries], np.bool_),
    )


def _unique(categories: Mapping[int, str]) -> dict[int, str]:
    """Return the names of the classes, by which their scores are found; of several with one name with their ids."""
    often = Counter(categories.values())
    return {
        category_id: name if often[name] == 1 else f"{name} (id {category_id})"
        for category_id, name in categories.items()
    }


def own_area(entry: Mapping[str, Any]) -> float | None:
    """Return the area that an annotation states; None if it states none that can be used."""
    area = entry.get("area")
    return area if isinstance(area, int | float) and 0 <= area < math.inf else None


def _row(number: int, entry: dict[str, Any]) -> dict[str, Any]:
    box, area = entry["bbox"], own_area(entry)
    return {
        "id": number,
        "image_id": entry["image_id"],
        "category_id": entry["category_id"],
        "bbox": box,
        "area": box[2] * box[3] if area is None else area,
        "iscrowd": int(entry.get("iscrowd") == 1),
    }
