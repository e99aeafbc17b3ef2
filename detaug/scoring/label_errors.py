"""Write and draw the label errors of an evaluation: `detaug evaluate --label-errors`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from PIL import Image

from detaug.arrays import Floats
from detaug.boxes.polygons import hull
from detaug.coco.rings import keys_of_corners
from detaug.coco.table import load_coco
from detaug.drawing import class_colors, draw_boxes
from detaug.evaluation.ground_truth import GroundTruth, annotations_by_image
from detaug.evaluation.label_errors import LEAST_SUSPICION, LabelError
from detaug.files.atomic import write_json
from detaug.files.paths import PathLike
from detaug.outputs.guards import output_files
from detaug.sheets.photos import read_photos
from detaug.sources.coco_reader import CocoReader

SIDE = 300
"""The longer side of a drawing, in pixels."""

AROUND = 1.0
"""What a drawing shows around the boxes, in units of their longer side."""


def write_label_errors(reader: CocoReader, errors: Sequence[LabelError], path: PathLike) -> int:
    """Write a COCO JSON file of the images with label errors, for a labeling tool; return how many errors it has.

    The images with the worst errors come first. Their annotations stay as they are, and those that are suspected have
    `label_error`: the kind, the `suspicion`, and what the detection says instead, `category_id` and `bbox`. A missing
    object is an annotation of its own, with a `score`. Errors below `LEAST_SUSPICION` are left out.
    """
    (target,) = output_files({"label_errors": path}, reader.annotations_file).values()
    document = load_coco(reader.json_file).document
    annotations = annotations_by_image(document)
    chosen = [error for error in errors if error.suspicion >= LEAST_SUSPICION]
    order = {image_id: index for index, image_id in enumerate(dict.fromkeys(error.image_id for error in chosen))}
    images = sorted((row for row in document["images"] if row["id"] in order), key=lambda row: order[row["id"]])
    of_row = {error.annotation: error for error in chosen if error.annotation >= 0}
    rows = [
        row | ({"label_error": _entry(of_row[index])} if index in of_row else {})
        for index, row in enumerate(annotations)
        if row["image_id"] in order
    ]
    number = max((row["id"] for row in annotations), default=0)
    for error in chosen:
        if error.annotation < 0:
            number += 1
            own = {"id": number, "image_id": error.image_id, "category_id": error.category_id, "iscrowd": 0}
            shape = _keys(error)
            area = shape["bbox"][2] * shape["bbox"][3]
            rows.append(own | {"area": area} | shape | {"score": round(error.score, 4), "label_error": _entry(error)})
    write_json(target, {**document, "images": images, "annotations": rows})
    return len(chosen)


def _entry(error: LabelError) -> dict[str, Any]:
    entry: dict[str, Any] = {"kind": error.kind, "suspicion": round(error.suspicion, 4)}
    if error.shape is not None and error.annotation >= 0:
        entry |= {"score": round(error.score, 4), "category_id": error.category_id} | _keys(error)
    return entry


def _keys(error: LabelError) -> dict[str, Any]:
    """Return `bbox` of a detection, and `corners` of a rotated one."""
    assert error.shape is not None
    if error.shape.ndim == 2:
        return keys_of_corners(error.shape.round(3).ravel())
    x0, y0, x1, y1 = error.shape.round(3).tolist()
    return {"bbox": [x0, y0, round(x1 - x0, 3), round(y1 - y0, 3)]}


def draw_label_errors(reader: CocoReader, truth: GroundTruth, errors: Sequence[LabelError]) -> list[Image.Image]:
    """Draw the surroundings of each error: the annotation dashed, the detection with its class and score."""
    labels = {category: reader.class_names[label] for label, category in enumerate(reader.category_ids)}
    position = {image_id: row for row, image_id in enumerate(reader.image_ids.tolist())}
    drawings = []
    for error in errors:
        (photo,) = read_photos(reader, [position[error.image_id]])
        boxes, names, texts, dashed = list[Floats](), list[str](), list[str](), list[bool]()
        if error.annotation >= 0:
            names.append(labels[int(truth.category_ids[error.annotation])])
            boxes.append(_box(truth.shapes[error.annotation]))
            texts.append(f"{names[-1]}, annotated")
            dashed.append(True)
        if error.shape is not None:
            names.append(labels[error.category_id])
            boxes.append(_box(error.shape))
            texts.append(f"{names[-1]} {error.score:.2f}")
            dashed.append(False)
        drawings.append(_close_up(photo.pixels, np.array(boxes), names, texts, dashed, reader.class_names))
    return drawings


def _box(shape: Any) -> Floats:
    """Return (4,) XYXY, of corners the box around them."""
    return np.asarray(hull(shape[None])[0] if shape.ndim == 2 else shape)


def _close_up(
    pixels: Any, boxes: Floats, names: list[str], texts: list[str], dashed: list[bool], classes: Sequence[str]
) -> Image.Image:
    height, width = pixels.shape[:2]
    low, high = boxes[:, :2].min(0), boxes[:, 2:].max(0)
    side = (high - low).max() * (1 + AROUND)
    start = ((low + high - side) / 2).clip(0).astype(int)
    end = np.minimum(((low + high + side) / 2).astype(int) + 1, (width, height))
    start = np.minimum(start, end - 1)
    zoom = SIDE / max(end - start)
    size = np.maximum(((end - start) * zoom).round().astype(int), 1)
    image = Image.fromarray(pixels).crop((*start.tolist(), *end.tolist())).resize(tuple(size.tolist()))
    moved = (boxes - np.tile(start, 2)) * zoom
    return draw_boxes(image, moved, names, difficult=dashed, labels=texts, colors=class_colors(classes))
