"""The rows of YOLO's label files, from annotations of a COCO JSON file: boxes, polygons, keypoints, rotated boxes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np

from detaug.arrays import Floats
from detaug.coco.annotations import remedy_of
from detaug.coco.key_points import (
    Pairs,
    count_of_points,
    faults_of_category,
    names_of_points,
    places_in_mirror,
    swaps_of_classes,
)
from detaug.coco.rings import cut_ring, join_rings, without_overlaps
from detaug.coco.rows import CocoRows
from detaug.converters.export.row_shapes import key_points_of, outlines_of
from detaug.converters.yolo.labels import YoloTask
from detaug.errors import ConversionError, InputError
from detaug.files.text import decimal
from detaug.findings.finding import Finding, shown
from detaug.named_options import option

_DECIMALS = 9  # so that the boxes of any image come back to a thousandth of a pixel
_ROUNDING = 0.01  # pixels by which a point may leave its image because of the decimals it is written with

KEYS: dict[YoloTask, frozenset[str]] = {
    "detect": frozenset(),
    "segment": frozenset({"segmentation", "area"}),
    "pose": frozenset({"keypoints", "num_keypoints"}),
    "obb": frozenset({"corners", "segmentation", "area"}),
}
"""The keys of annotations that rows of a task have a place for."""
OF_CATEGORIES = {"keypoints": "kpt_names", "flip_idx": "flip_idx"}
"""Keys of categories, and those of data.yaml that have them."""


class LabelRows(NamedTuple):
    """What is written for each annotation, and into data.yaml."""

    rows: CocoRows
    numbers: dict[int, list[float]]
    """By position of an annotation: what follows the class, relative to the image."""
    yaml: dict[str, Any]
    """Keys of data.yaml."""
    findings: list[Finding]


def label_rows(rows: CocoRows, task: YoloTask, flip_pairs: Pairs | None = None) -> LabelRows:
    """Return the rows of a task. Raises ConversionError where the JSON file has nothing of it."""
    if task == "pose":
        return _poses(rows, flip_pairs)
    if task == "detect":
        return LabelRows(rows, {box: _box(rows, box) for box in rows.boxes.tolist()}, {}, [])
    rows, outlines, findings = outlines_of(rows)
    if not outlines.rings and not outlines.corners and len(rows.boxes):
        what = "corners, and no segmentation" if task == "obb" else "segmentation"
        raise ConversionError(f"{rows.table.path}: no annotation has {what}; {_boxes_alone()}", findings)
    numbers, counts = {}, Counter[str]()
    counts["mask-traced"] = len(outlines.runs)
    for box in rows.boxes.tolist():
        height, width = _size(rows, box)
        if task == "obb":
            ring = outlines.rotated_box(box)
        else:
            rings = [cut for ring in outlines.rings.get(box, []) if len(cut := cut_ring(ring, width, height)) > 2]
            # an even-odd fill leaves a hole where rings overlap; those of a mask never do
            if box not in outlines.runs:
                rings, traced = without_overlaps(rings)
                counts["rings-traced"] += traced
            counts["rings-joined"] += len(rings) > 1
            ring = join_rings(rings) if rings else None
        before = ring if task == "obb" or ring is None else np.concatenate(outlines.rings[box])
        if ring is None:
            counts["outline-missing"] += 1
            x0, y0, x1, y1 = rows.table.boxes[box].tolist()
            ring = before = np.array([[x0, y0], [x1, y0], [x1, y1], [x0, y1]])
        assert before is not None
        counts["outline-cut"] += bool(np.abs(before - before.clip(0, (width, height))).max() > _ROUNDING)
        numbers[box] = (ring.clip(0, (width, height)) / (width, height)).ravel().tolist()
    return LabelRows(rows, numbers, {"task": task}, [*findings, *_counted(rows, counts)])


def _boxes_alone() -> str:
    return f"{option('task', 'detect')} writes the boxes"


def _counted(rows: CocoRows, counts: Mapping[str, int]) -> Iterable[Finding]:
    return (Finding(str(rows.table.path), kind, count=count) for kind, count in counts.items() if count)


def _poses(rows: CocoRows, flip_pairs: Pairs | None) -> LabelRows:
    rows, points, findings = key_points_of(rows)
    count = max((len(own_points) for own_points in points.values()), default=0)
    if not count:
        rule = f"{rows.table.path}: no annotation has keypoints; {_boxes_alone()}"
        raise ConversionError(rule, findings)
    yaml = {"task": "pose", "kpt_shape": [count, 3], **_sides(rows, points, flip_pairs, findings)}
    numbers, outside = {}, 0
    for box in rows.boxes.tolist():
        relative, left_out = _relative_points(points[box], _size(rows, box))
        numbers[box] = [*_box(rows, box), *relative.ravel().tolist()]
        outside += left_out
    return LabelRows(rows, numbers, yaml, [*findings, *_counted(rows, {"point-outside": outside})])


def _relative_points(points: Floats, size: tuple[int, int]) -> tuple[Floats, int]:
    """Return (K, 3) keypoints relative to the image of size (H, W), and how many lie outside of it."""
    height, width = size
    places = points[:, :2] + 0.5  # COCO counts pixels
    inside = ((places >= -_ROUNDING) & (places <= np.array([width, height]) + _ROUNDING)).all(1)
    labeled = points[:, 2] > 0
    relative = np.concatenate([places.clip(0, (width, height)) / (width, height), points[:, 2:]], axis=1)
    return np.where((inside & labeled)[:, None], relative, 0), int((labeled & ~inside).sum())


def _sides(
    rows: CocoRows, points: Mapping[int, Floats], flip_pairs: Pairs | None, findings: list[Finding]
) -> dict[str, Any]:
    """Return the keys of data.yaml about the names of keypoints, and their places in flipped images."""
    path, names, places = rows.table.path, dict[int, list[str]](), dict[str, list[int]]()
    count = max(map(len, points.values()))
    by_id = {category["id"]: category for category in rows.table.coco.document["categories"]}
    of_class = [names_of_points(by_id[category_id]) for category_id in rows.table.categories]
    swaps = None if flip_pairs is None else swaps_of_classes(flip_pairs, of_class, count)
    labels = np.array([points[box][:, 2] > 0 for box in rows.boxes.tolist()])
    unknown: str | None = None
    for number, (category_id, name) in enumerate(rows.table.categories.items()):
        category = by_id[category_id]
        for _, fault in faults_of_category(category, count):
            raise ConversionError(f"{path}: category {shown(name)}: {fault}; {remedy_of(path)}")
        if len(of_class[number]) == count:
            names[number] = of_class[number]
        labeled = count_of_points(labels[rows.table.category_ids[rows.boxes] == category_id])
        try:
            own_places = places_in_mirror(category, labeled) if swaps is None else swaps[number]
        except InputError as error:
            unknown = unknown or (f"category {shown(name)}: {error}" if labeled else None)
        else:
            if labeled or category.get("flip_idx") is not None:
                places[name] = [*own_places.tolist(), *range(len(own_places), count)]
    first = next(iter(places), "")
    for name, other in places.items():
        if other != places[first]:
            rule = "YOLO has one flip_idx for all classes, but keypoints of"
            raise ConversionError(
                f"{path}: {rule} {shown(first)} and {shown(name)} swap places in other ways; split the JSON file"
            )
    if unknown:
        findings.append(Finding(str(path), "flips-unknown", note=unknown))
    flips = {"flip_idx": places[first]} if places and not unknown else {}
    return flips | ({"kpt_names": names} if names else {})


def _size(rows: CocoRows, box: int) -> tuple[int, int]:
    height, width = rows.table.sizes[rows.table.image_index[box]].tolist()
    return height, width


def _box(rows: CocoRows, box: int) -> list[float]:
    height, width = _size(rows, box)
    left, top, right, bottom = rows.table.boxes[box].tolist()
    return [(left + right) / 2 / width, (top + bottom) / 2 / height, (right - left) / width, (bottom - top) / height]


def label_text(written: LabelRows, boxes: list[int]) -> str:
    """Return the label file of an image. boxes: positions of its annotations."""
    rows = written.rows
    numbers = {category_id: number for number, category_id in enumerate(rows.table.categories)}
    lines = []
    for box in boxes:
        words = [decimal(value, _DECIMALS) for value in written.numbers[box]]
        lines.append(f"{numbers[int(rows.table.category_ids[box])]} {' '.join(words)}\n")
    return "".join(lines)
