"""Find annotations whose polygons are almost the same, though their boxes are not."""

from __future__ import annotations

from typing import Any

import numpy as np
from pycocotools import mask as coco_mask

from detaug.arrays import Floats, Ints
from detaug.check.boxes import SAME_IOU, close_pairs
from detaug.coco.boxes import box_iou
from detaug.coco.outlines import OutlineColumns, encode_counts

SAME_MASK_IOU = 0.95


def mask_twins(
    outlines: OutlineColumns, around: Floats, boxes: Floats, image: Ints, category: Ints, sizes: Ints
) -> dict[int, tuple[int, float]]:
    """Return later annotation -> the earlier one of its image and class with its mask, and their IoU.

    `around`: (A, 4) XYXY of the polygons. `boxes`: (A, 4) as the JSON file has them; pairs that they show are left out.
    `sizes`: (A, 2) (height, width) of the images.
    """
    first, second = close_pairs(around, image)
    chosen = (category[first] == category[second]) & (box_iou(boxes[first], boxes[second]) < SAME_IOU)
    twins: dict[int, tuple[int, float]] = {}
    for one, other in zip(first[chosen].tolist(), second[chosen].tolist(), strict=True):
        runs = [_runs(outlines, index, *sizes[index].tolist()) for index in (one, other)]
        iou = float(coco_mask.iou(runs[:1], runs[1:], [0])[0, 0])
        if iou >= SAME_MASK_IOU:
            twins[max(one, other)] = min(one, other), iou
    return twins


def _runs(outlines: OutlineColumns, index: int, height: int, width: int) -> Any:
    """Return the mask of an annotation as RLE of pycocotools."""
    runs = outlines.runs[outlines.first_run[index] : outlines.first_run[index + 1]]
    if len(runs):
        return {"size": [height, width], "counts": encode_counts(np.diff(np.append(0, runs.astype(np.int64))))}
    rings = np.arange(outlines.first_ring[index], outlines.first_ring[index + 1])
    points = [
        outlines.points[outlines.first_point[ring] : outlines.first_point[ring + 1]].ravel().tolist() for ring in rings
    ]
    return coco_mask.merge(coco_mask.frPyObjects(points, height, width))
